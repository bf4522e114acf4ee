// How a command in a sandbox ended: one verdict, what it used, how each limit was held.
//
// Plain values. Every command ends in exactly one Verdict. A limit's verdict is given when the
// limit was met during the run and the program failed, or was ended for it; a program that met a
// limit and still succeeded is kExited with that limit in `limits_hit`.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace caisson {

enum class Verdict : std::uint8_t {
  kExited = 0,        // by itself: Outcome::exit_code
  kSignaled = 1,      // by a signal that no limit of ours sent: Outcome::signal
  kTimeLimit = 2,     // cause "elapsed" or "cpu"
  kMemoryLimit = 3,   // the kernel refused memory to it, or ended a process of it for memory
  kProcessLimit = 4,  // the kernel refused it a process or thread
  kDiskLimit = 5,     // cause "bytes" or "inodes" of the writable layer
  kOutputLimit = 6,   // more stdout and stderr together than allowed; ended for it
  // cause "syscall": ended for a refused call (on_refusal: kill). cause "secret": the sandbox was
  // ended for the misuse of a secret (on_violation: terminate)
  kPolicyViolation = 7,
  kCancelled = 8,     // by the caller
  kSandboxError = 9,  // ours, not the program's: cause names the part, detail says what
};
inline constexpr std::size_t kVerdictCount = 10;
// As JSON spells it: "exited", "time_limit", …
std::string_view to_string(Verdict verdict);

// The limits of a spec, in the order in which Outcome::held lists them.
enum class Limit : std::uint8_t {
  kCpus = 0,
  kMemory,
  kPids,
  kDisk,
  kInodes,
  kOpenFiles,
  kOutput,
  kTimeout,
  kCpuTime,
  kIoRead,
  kIoWrite,
  kIoReadOps,
  kIoWriteOps,
};
inline constexpr std::size_t kLimits = 13;
// The limit's key in a spec: "cpus", "memory", …
std::string_view to_string(Limit limit);

// How a limit was held: by a control group, by an rlimit or a filesystem's own size, by a watcher
// that looks every so often (so that it can be overrun for a moment), or not at all. kPartly: by a
// control group that does not see all of it, as version 1 does not see what the kernel writes out
// later for a program.
enum class HeldBy : std::uint8_t { kNone = 0, kWatched = 1, kRlimit = 2, kCgroup = 3, kPartly = 4 };
inline constexpr std::size_t kHeldKinds = 5;
std::string_view to_string(HeldBy held);

// What the command and everything that it started used. Times in microseconds; peaks are the
// highest value that was seen, in bytes or processes.
struct ExecUsage {
  std::uint64_t elapsed_us = 0;
  std::uint64_t user_us = 0;
  std::uint64_t system_us = 0;
  std::uint64_t memory_peak = 0;
  std::uint64_t bytes_written = 0;  // to the writable layer: its growth at the highest sample
  std::uint64_t pids_peak = 0;
  std::uint64_t bytes_out = 0;  // stdout and stderr together, before any limit cut them
  // From and to disks, as a control group counts it: only where a limit of I/O is set and held.
  std::uint64_t io_read_bytes = 0;
  std::uint64_t io_write_bytes = 0;
  bool operator==(const ExecUsage&) const = default;
};

// One kind of refused system call of the reportable set, and how often it was tried.
struct Refusal {
  std::uint32_t syscall = 0;  // number on x86-64
  std::uint32_t count = 0;
  std::string what;  // "mount", "socket AF_VSOCK", …
  bool operator==(const Refusal&) const = default;
};

struct Outcome {
  Verdict verdict = Verdict::kSandboxError;
  std::uint32_t exit_code = 0;
  std::uint32_t signal = 0;
  bool core_dumped = false;
  // One word that narrows the verdict ("cpu", "inodes", "syscall", a part's name); often empty.
  std::string cause;
  // A sentence for people; may be empty where the verdict says it all.
  std::string detail;
  ExecUsage usage;
  std::array<HeldBy, kLimits> held = {};
  std::vector<Limit> limits_hit;  // each at most once
  std::vector<Refusal> refusals;  // the first 64 kinds
  bool operator==(const Outcome&) const = default;
};

}  // namespace caisson
