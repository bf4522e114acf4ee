// The launch plan: a spec made concrete, in a fixed binary form that the launcher can take without
// a parser of anything. Host paths have become descriptors; numbers of descriptors index the list
// that travels with the plan.
#pragma once

#include <caisson/life.h>
#include <caisson/result.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/switches.h"

namespace caisson::wall {

enum class PlanImage : std::uint8_t {
  kHost = 0,       // read-only view of the host's /usr, generated /etc
  kDirectory = 1,  // an unpacked root directory
  kMount = 2,      // a detached, read-only mount that is this sandbox's own: root alone
};

enum class PlanNetwork : std::uint8_t {
  kNone = 0,     // the loopback alone
  kGateway = 1,  // and a wire to a gateway, whose sockets are handed out (handouts.h)
};

// What `keys_fd` is.
enum class PlanKeys : std::uint8_t {
  kNone = 0,
  kFile = 1,  // what a gateway that the launcher keeps has (egress/gateway/keys.h)
  kSaid = 2,  // a socket into which a gateway that its maker has started says `authority`
};
// The descriptors of Plan::audit stand behind each other: the records' file, the key of their chain
// (egress/audit_key.h), the file of its head (egress/audit_keyring.h).
inline constexpr std::size_t kAuditDescriptors = 3;

// A root directory of an image, one of a stack of overlay's lower directories; the fields are as
// the plan's own of the uppermost.
struct PlanRoot {
  PlanImage form = PlanImage::kDirectory;  // never kHost
  std::uint32_t fd = 0, id_base = 0, file_fd = 0;
};

struct PlanGrant {
  std::uint32_t fd = 0;  // index into the descriptors
  std::string to;        // absolute, normalised path inside
  bool directory = true;
  bool writable = false;
  bool cover = false;  // lies over a socket of the host; left out where that has gone
  std::uint32_t owner_uid = 0, owner_gid = 0;  // of the granted path on the host
};

struct Plan {
  std::string id;  // [a-z0-9]{8,32}
  PlanImage image = PlanImage::kHost;
  std::uint32_t image_fd = 0;  // index; kDirectory and kMount
  // On-disk owner of the image's uid 0 in a root store: image id k is image_id_base + k on disk. 0
  // in a rootless store, whose files already have the owners that the command must see, and in an
  // erofs file, which has the image's own ids.
  std::uint32_t image_id_base = 0;
  std::uint32_t image_file_fd = 0;  // index; kMount: the file that is mounted, for limits of I/O
  std::vector<PlanRoot> below;      // what the image lies over, the next one first
  std::vector<PlanGrant> grants;
  // Made where they are missing, owned by the command's user: the image's volumes and the working
  // directory that it names. Absolute and normalised.
  std::vector<std::string> directories;
  // "NAME=VALUE": what every command has unless it says otherwise; the image's and the spec's.
  std::vector<std::string> environment;
  std::string workdir;  // where a command starts that names no directory; empty: its user's home
  std::string hostname = "sandbox";
  // The user that the command runs as, as far as the front end knows it: grants are mapped to it.
  std::uint32_t user_uid = 1000, user_gid = 1000;
  std::uint8_t privileges = 0;       // 0 none, 1 sudo
  std::uint8_t syscall_profile = 0;  // policy::SyscallProfile
  std::uint8_t on_refusal = 0;       // policy::OnRefusal
  std::uint8_t layer = 0;            // policy::LayerKind
  std::uint32_t layer_fd = 0;        // index; kQuota only: the directory in which the layer lies
  std::uint8_t require_hard_limits = 0;
  Life life = Life::kOwner;
  std::uint8_t single = 0;  // ends with its first command, whose result is all that is wanted
  // What set-up hands out to whoever asked (handouts.h): the overlay's upper directory; a listener
  // in the sandbox's network namespace.
  std::uint8_t keep_layer = 0, egress = 0;
  PlanNetwork network = PlanNetwork::kNone;
  std::uint8_t fixed_floor = 0;  // of such a gateway: nothing but the Internet, whatever it is told
  std::uint8_t audit = 0;        // a gateway that the launcher keeps writes records
  std::uint32_t audit_fd = 0;    // index of the first of kAuditDescriptors
  PlanKeys keys = PlanKeys::kNone;
  std::uint32_t keys_fd = 0;  // index, but where there are none
  // How the gateway, whoever keeps it, has the sandbox ended (launcher/gateway_protocol.h).
  std::uint8_t alarm = 0;
  std::uint32_t alarm_fd = 0;   // index; what it says is read there
  std::uint8_t minter = 0;      // the gateways that the launcher keeps get values from a minter
  std::uint32_t minter_fd = 0;  // index; its socket (launcher/minter_socket.h)
  std::string served_domain;    // of a sandbox of a server (egress/served_domain.h); else empty
  // A certificate, as PEM, that programs inside are to trust besides what the image has; empty:
  // none, or it is said later (PlanKeys::kSaid). Needs `network`.
  std::string authority;
  // 0 means unlimited here.
  std::uint64_t cpu_milli = 0, memory = 0, pids = 0, disk = 0, inodes = 0, open_files = 0;
  std::uint64_t output = 0, timeout_ms = 0, cpu_time_ms = 0;
  // Bytes and operations a second, for each disk.
  std::uint64_t io_read = 0, io_write = 0, io_read_ops = 0, io_write_ops = 0;
  // Opaque to the launcher, which stores it as the sandbox's `info` file; at most 8 KiB.
  std::string info;
  // Not part of the encoded plan: the descriptors that came with it, and (test build alone) what is
  // left out and where a fault is injected.
  std::vector<int> descriptors;
  // The guest, as a function of the launcher's own program.
  int (*guest_entry)(int channel_fd, int userns_fd, int cgroup_ns_fd,
                     SwitchMask switches) = nullptr;
  SwitchMask switches = 0;
  std::string fault;

  // Every limit in policy::kLimitRules' order.
  std::array<std::uint64_t, kLimits> limits() const {
    return {cpu_milli,  memory,      pids,    disk,     inodes,      open_files,  output,
            timeout_ms, cpu_time_ms, io_read, io_write, io_read_ops, io_write_ops};
  }
  bool limits_io() const { return (io_read | io_write | io_read_ops | io_write_ops) != 0; }
};

// All root directories of the image, the uppermost first; of the host image none.
std::vector<PlanRoot> image_roots(const Plan& plan);

// Whether the writable layer lies on disk (layer: quota) and takes no memory.
bool lies_on_disk(const Plan& plan);

// At most this many bytes and descriptors; decode refuses more, and anything malformed, trailing,
// out of range or not normalised.
inline constexpr std::size_t kMaxPlanBytes = 160 * 1024;
inline constexpr std::size_t kMaxPlanDescriptors = 128;
inline constexpr std::size_t kMaxPlanBelow = 7;
inline constexpr std::size_t kMaxPlanDirectories = 64;
inline constexpr std::size_t kMaxPlanAuthority = 8 * 1024;
inline constexpr std::size_t kMaxPlanServedDomain = 16 * 1024;
// Where programs inside find whom to trust, in a sandbox whose plan has an authority.
inline constexpr const char* kTrustFile = "/run/caisson/ca-certificates.crt";
inline constexpr std::size_t kMaxPlanEnvironment = 2048;
// Names, values and their ends together: they travel in one frame with each command
// (proto::kMaxPayload), which needs some room too.
inline constexpr std::size_t kMaxPlanEnvironmentBytes = 56 * 1024;

// Error: invalid_argument where this is no sandbox id.
Status check_id(std::string_view id);

std::string encode(const Plan& plan);
Result<Plan> decode_plan(std::string_view bytes, std::size_t descriptor_count);

}  // namespace caisson::wall
