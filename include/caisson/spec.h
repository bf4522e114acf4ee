// The one noun that everything shares: what a sandbox is and may do.
//
// Every front end (flags, YAML, JSON, the HTTP APIs) fills SpecValues; validate()
// turns them into a SandboxSpec, or says which key is wrong, what was found there and what is
// allowed. A SandboxSpec is immutable and always valid; nothing below this layer decides anything
// again. Pure functions: no file is opened and no system call is made here. Part of the public API;
// implemented by src/policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <caisson/error.h>
#include <caisson/network.h>

namespace caisson::policy {

// A limit's value; nullopt means "unlimited", which a spec must write out.
using LimitValue = std::optional<std::uint64_t>;

// The limits of one sandbox. The ranges stand as numbers in policy/limits.h.
struct Limits {
  // Thousandths of a processor (1 cpu = 1000). Default 1000; 10 to 1'024'000.
  LimitValue cpu_milli = 1000;
  // Bytes of memory, the writable layer on tmpfs and kernel memory included. Default 512 MiB; 8 MiB
  // to 1 PiB.
  LimitValue memory = 512ull << 20;
  // Processes and threads together. Default 256; 2 to 4'194'304.
  LimitValue pids = 256;
  // Bytes and inodes of the writable layer. Default 256 MiB and 100'000; 64 KiB to 1 PiB and 16 to
  // 1'000'000'000.
  LimitValue disk = 256ull << 20;
  LimitValue inodes = 100'000;
  // RLIMIT_NOFILE. Default 1024; 16 to 1'048'576.
  LimitValue open_files = 1024;
  // Bytes of stdout and stderr together, per command. Default 16 MiB; 1 byte to 1 PiB.
  LimitValue output = 16ull << 20;
  // Wall-clock and processor time per command, in milliseconds. Default 30 s each; 1 ms to 365
  // days.
  LimitValue timeout_ms = 30'000;
  LimitValue cpu_time_ms = 30'000;
  // Bytes a second from and to each disk behind what the sandbox sees, and operations a second.
  // Default unlimited, since what is slow enough for one disk chokes another; 4 KiB/s to 1 PiB/s
  // and 1 to 1'000'000'000.
  LimitValue io_read = std::nullopt;
  LimitValue io_write = std::nullopt;
  LimitValue io_read_ops = std::nullopt;
  LimitValue io_write_ops = std::nullopt;

  bool operator==(const Limits&) const = default;
};

enum class WallKind { kAuto, kNamespace, kGvisor, kMicrovm };
enum class Privileges { kNone, kSudo };
// A named system-call profile. default: ordinary programs. browser: also nested user namespaces and
// what a browser's own sandbox needs. debug: also ptrace of the command's own children.
enum class SyscallProfile { kDefault, kBrowser, kDebug };
// What a refused call of the reportable set (mount, ptrace, setns, foreign socket families, …)
// means for the command that made it. continue: it gets EPERM and goes on; the result counts it.
// kill: the first one ends the command, with the verdict policy_violation.
enum class OnRefusal { kContinue, kKill };
// Where what a sandbox writes is kept. tmpfs: in memory, within limits.memory. quota: on disk, in a
// file system of its own of limits.disk and limits.inodes (root alone).
enum class LayerKind { kTmpfs, kQuota };
enum class GrantMode { kReadOnly, kReadWrite, kCopy };

// One host path made visible inside.
struct Grant {
  std::string from;  // host path: absolute, or relative to the caller's directory
  std::string to;    // absolute, normalised path inside
  GrantMode mode = GrantMode::kReadOnly;
  bool operator==(const Grant&) const = default;
};

// One path inside copied to the host when the command has ended.
struct Output {
  std::string path;  // absolute, normalised path inside
  std::string to;    // host path
  bool operator==(const Output&) const = default;
};

// How much a spec may hold.
inline constexpr std::size_t kMaxGrants = 64;
inline constexpr std::size_t kMaxOutputs = 64;
inline constexpr std::size_t kMaxEnv = 1024;
inline constexpr std::size_t kMaxArguments = 4096;
// One argument or variable, as the kernel bounds it, and all of them together, each with its end.
inline constexpr std::size_t kMaxArgumentBytes = 128 * 1024 - 1;
inline constexpr std::size_t kMaxCommandBytes = 1024 * 1024;
// The paths inside of all grants together: what one launch plan can carry.
inline constexpr std::size_t kMaxGrantPathBytes = 32 * 1024;
// Ids above this one are not mapped inside a sandbox.
inline constexpr std::uint32_t kMaxId = 65'535;

// The values as a front end gives them; see SandboxSpec for the meaning of each.
struct SpecValues {
  std::string image;  // empty: the default (base where it is there, else host)
  WallKind wall = WallKind::kAuto;
  bool allow_emulation = false;  // emulation: allow
  // The image's entrypoint stands before it, as `docker run` has it; empty: the image's own
  // command.
  std::vector<std::string> command;
  // Instead of the image's entrypoint and command; an empty list: none at all.
  std::optional<std::vector<std::string>> entrypoint;
  std::map<std::string, std::string> env;
  std::string user;  // empty: the image's; NAME or UID, then :GROUP or :GID if wanted
  Privileges privileges = Privileges::kNone;
  SyscallProfile profile = SyscallProfile::kDefault;
  OnRefusal on_refusal = OnRefusal::kContinue;
  std::string workdir;   // empty: the user's home
  std::string hostname;  // empty: "sandbox"
  std::vector<Grant> grants;
  std::vector<Output> outputs;
  LayerKind layer = LayerKind::kTmpfs;
  Limits limits;
  // nullopt: deny, which is no network at all.
  std::optional<NetworkPolicy> network;
  bool require_hard_limits = false;

  bool operator==(const SpecValues&) const = default;
};

class SandboxSpec {
 public:
  // Checks everything that can be checked without touching the host. The error's message names the
  // key's path ("limits.disk"; a grant is named by its source: "files[from=./src].to"), what was
  // found and what is allowed. An empty command is accepted: whether a command is needed is for the
  // front end to say (`run` needs one, `shell` does not).
  static Result<SandboxSpec> validate(SpecValues draft);

  const SpecValues* operator->() const { return &values_; }
  const SpecValues& values() const { return values_; }
  bool operator==(const SandboxSpec&) const = default;

 private:
  explicit SandboxSpec(SpecValues values) : values_(std::move(values)) {}
  SpecValues values_;
};

}  // namespace caisson::policy

namespace caisson {
using policy::SandboxSpec;
}  // namespace caisson
