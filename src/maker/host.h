// What a server asks of its host that needs the host's rights: sandboxes to be made and reached,
// and what the image store has.
//
// Every call blocks, so it belongs on a pool's thread; all may be called from several threads at a
// time. caisson-serve has a maker::Client for it, since it has no rights of its own; tests have a
// host that is played.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "policy/spec.h"

namespace caisson::maker {

// How long a sandbox lives that nobody has claimed: whoever has it made moves its deadline before.
inline constexpr std::chrono::minutes kUnclaimed{10};

// All that distinguishes one sandbox from another before a client has it.
struct Recipe {
  std::string image;  // as the store resolves it
  policy::LimitValue cpu_milli = 1000;
  policy::LimitValue memory_bytes = 512ull << 20;
  policy::LimitValue disk_bytes = 256ull << 20;
  policy::LimitValue pids = 1024;
  // What only a spec says. Many files are open in a sandbox that serves: the command line's
  // defaults are for one command.
  policy::LimitValue inodes = 1'000'000;
  policy::LimitValue open_files = 65'536;
  policy::LimitValue output, cpu_time_ms;  // of each command
  policy::LimitValue io_read, io_write, io_read_ops, io_write_ops;
  policy::WallKind wall = policy::WallKind::kAuto;
  policy::Privileges privileges = policy::Privileges::kSudo;
  policy::SyscallProfile profile = policy::SyscallProfile::kDefault;
  policy::OnRefusal on_refusal = policy::OnRefusal::kContinue;
  // None: on a disk where that can be held, since a sandbox of a server lives long, and its files
  // are not to take its memory.
  std::optional<policy::LayerKind> layer;
  bool allow_emulation = false, require_hard_limits = false;
  std::string user, workdir, hostname;  // empty: the image's
  // The canonical JSON of its policy (policy/network_document.h); empty: nothing leaves it.
  std::string network;
  // The certificate, as PEM, of whom it is to trust where its network inspects TLS: keys come along
  // (Host::make()). Empty where there are none.
  std::string authority;
  std::string served_domain;  // of the server (egress/served_domain.h)
  auto operator<=>(const Recipe&) const = default;
};

struct Made {
  std::string id;       // of the sandbox on this host, [a-z0-9]{16}
  std::string user;     // who commands run as by default
  std::string workdir;  // the image's; empty: the user's home
  // What it was made from, as "sha256:ID": a name may mean another image later.
  std::string image;
};

// Who named an image: the operator may mean any that there is, a client only what has a name that
// is everybody's. Ids, and the beginnings of ids, would reach other teams' snapshots.
enum class NamedBy : std::uint8_t { kOperator, kClient };

// Images of templates that teams have built are called so in the store, so that it keeps them.
inline constexpr std::string_view kTemplateNames = "caisson-template/";
// And so those that a build has pulled with its own login, which nobody else may use by their name.
inline constexpr std::string_view kPulledNames = "caisson-template/pulled-";

// A caisson-template-builder that waits for its job. Dropping `life` tells it to end.
struct Builder {
  Fd socket;  // a stream (build/template_job.h)
  Fd life;
};

// A name below kTemplateNames, and the image that it means, as "sha256:ID".
struct NamedImage {
  std::string name, image;
};

// Of the store's build cache (image::CacheBound).
struct CacheBound {
  policy::LimitValue bytes, seconds;
  bool operator==(const CacheBound&) const = default;
};

class Host {
 public:
  virtual ~Host() = default;
  // A kept sandbox that nobody is connected to, for kUnclaimed. `keys_fd`: the
  // place (egress/keys_file.h) of CreateOptions::keys_fd, of a recipe with an authority; borrowed.
  // Errors: those of Sandbox::create().
  virtual Result<Made> make(const Recipe& recipe, int keys_fd) = 0;
  Result<Made> make(const Recipe& recipe) { return make(recipe, -1); }
  // A connection to its supervisor. Errors: not_found where it is there no more; unavailable where
  // it may be and does not answer.
  virtual Result<Fd> connect(const std::string& id) = 0;
  // The kept sandboxes of the run directory that live.
  virtual Result<std::vector<std::string>> kept() = 0;
  // What the name means now, as "sha256:ID". Error: not_found, invalid_argument (no image's name).
  virtual Result<std::string> find_image(const std::string& name, NamedBy who) = 0;
  // The names of the store's images that are everybody's.
  virtual Result<std::vector<std::string>> images() = 0;

  // `image` is what the sandbox was made from. Everything in the sandbox stands still while its
  // files are read, and nothing of it ends. The new image as "sha256:ID"; where nothing was
  // changed, the one that there is. Errors: unavailable (it is gone, or somebody reads its files
  // already), failed_precondition (its files cannot be held here), not_found (its image is not in
  // the store any more), resource_exhausted (the disk).
  virtual Result<std::string> take_snapshot(const std::string& id, const std::string& image) = 0;
  // Images that were made by take_snapshot(), but those of the last minutes: who has just made one
  // may not have written it down yet.
  virtual Result<std::vector<std::string>> old_snapshots() = 0;
  // The store need not keep it any more: what it has alone goes with it, or with the last sandbox
  // that uses it. No error where it is no snapshot's.
  virtual Status drop_snapshot(const std::string& image) = 0;

  virtual Result<Builder> start_builder() = 0;
  // Without those of kPulledNames that are some minutes old at most: a build is about to begin with
  // them.
  virtual Result<std::vector<NamedImage>> template_images() = 0;
  // Takes such a name away. No error where it is not there.
  virtual Status drop_template_image(const std::string& name) = 0;
  // Drops what was used longest ago of the store's build cache, and what nothing needs any more;
  // disturbs no build that goes on.
  virtual Status trim_cache(const CacheBound& bound) = 0;
  // Whether sandboxes here can have a network. Error: failed_precondition, with what is missing and
  // what helps.
  virtual Status check_network() = 0;
};

}  // namespace caisson::maker
