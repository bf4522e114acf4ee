// The birth of a command: everything between the guest's fork and the command's execve.
//
// It runs in the forked child, which shares nothing with the guest but what it was given. The child
// reports over a socket of its own (SOCK_SEQPACKET, close-on-exec): one message with a descriptor
// for the terminal and for the seccomp listener, one message for an error; the end of the socket
// without an error means that the command runs.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/proto.h"
#include "base/switches.h"
#include "guest/seccomp/filters.h"

namespace caisson::guest {

struct ExecRequest {
  struct Limit {
    std::uint32_t resource = 0;
    std::uint64_t soft = 0, hard = 0;
  };
  struct WindowSize {
    std::uint16_t columns = 80, rows = 24;
  };

  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<std::string> default_environment;
  std::string directory;  // empty: the user's home, or / where there is none
  std::string user;
  std::optional<WindowSize> terminal;
  std::vector<Limit> limits;
  std::uint32_t cgroup_count = 0;
  bool birth_cgroup = false;
  seccomp::Profile profile = seccomp::Profile::kDefault;
  bool want_listener = false;
  bool no_setid = false;
  bool sudo = false;
  bool has_input = false;

  // From the payload of an OPEN frame; the error names the field.
  static Result<ExecRequest> parse(const proto::FieldReader& fields);
};

// The payload of kPty and kResize.
Result<ExecRequest::WindowSize> parse_window_size(std::string_view bytes);

// The child's report of its failure.
struct ExecFailure {
  std::int32_t error_number = 0;
  std::uint8_t code = 0;       // Code
  std::uint8_t exit_code = 0;  // 127 or 126 where the program itself was the reason, else 0
  std::uint8_t subject = 0;    // proto::ErrorSubject; 0: none of these
  std::string message;
};

// First byte of a message on the report socket.
enum class ReportKind : char { kFailure = 'F', kTerminal = 'T', kListener = 'L' };
ExecFailure parse_failure(std::string_view message);

struct ExecDescriptors {
  Fd input, output, error;  // the child's ends; all invalid with a terminal
  Fd report;
  std::vector<Fd> cgroups;  // `tasks` files
  int userns_fd = -1;       // borrowed
  int cgroup_ns_fd = -1;    // borrowed
  rlimit open_files{};
  SwitchMask disabled_mechanisms = 0;
};

// Never returns: the command runs, or the failure was reported.
[[noreturn]] void run_command(const ExecRequest& request, ExecDescriptors descriptors);

}  // namespace caisson::guest
