#include "guest/exec_child.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "guest/confine.h"
#include "guest/users.h"

namespace caisson::guest {
namespace {

constexpr std::string_view kDefaultPath =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
// How many the test build's switch leaves open.
constexpr int kLeakedDescriptors = 64;
constexpr std::size_t kMaxFailureMessage = 1024;

[[noreturn]] void report_failure(int report_fd, const Error& error,
                                 std::optional<proto::ErrorSubject> subject = {},
                                 std::uint8_t exit_code = 0) {
  std::string message(1, static_cast<char>(ReportKind::kFailure));
  const std::int32_t error_number = error.error_number();
  message.append(reinterpret_cast<const char*>(&error_number), sizeof(error_number));
  message.push_back(static_cast<char>(error.code()));
  message.push_back(static_cast<char>(exit_code));
  message.push_back(subject ? static_cast<char>(*subject) : '\0');
  message.append(error.message(), 0, kMaxFailureMessage);
  // Where even this fails, the parent sees an exit status of 127 without a report.
  [[maybe_unused]] const ssize_t sent =
      ::send(report_fd, message.data(), message.size(), MSG_NOSIGNAL);
  ::_exit(127);
}

Status report_descriptor(int report_fd, ReportKind kind, int fd) {
  const char byte = static_cast<char>(kind);
  if (sys::send_part(report_fd, {&byte, 1}, {{fd}}) < 0)
    return fail_errno("handing a descriptor to the guest");
  return {};
}

// The values of NAME=VALUE settings, later ones winning.
class Environment {
 public:
  void set(std::string_view name, std::string_view value) {
    values_.insert_or_assign(std::string(name), std::string(value));
  }
  void set(std::string_view setting) {
    const std::size_t equals = setting.find('=');
    set(setting.substr(0, equals), setting.substr(equals + 1));
  }
  std::string_view get(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::string_view() : std::string_view(found->second);
  }
  std::vector<std::string> settings() const {
    std::vector<std::string> out;
    out.reserve(values_.size());
    for (const auto& [name, value] : values_) out.push_back(name + '=' + value);
    return out;
  }

 private:
  std::map<std::string, std::string> values_;
};

Environment make_environment(const ExecRequest& request, const Account& account,
                             SwitchMask disabled) {
  Environment environment;
  if (is_off(disabled, Mechanism::kCleanEnvironment))
    for (char** setting = ::environ; *setting != nullptr; ++setting) environment.set(*setting);
  const std::string name = account.name.empty() ? std::to_string(account.uid) : account.name;
  environment.set("HOME", account.home);
  environment.set("USER", name);
  environment.set("LOGNAME", name);
  environment.set("SHELL", account.shell);
  environment.set("PATH", kDefaultPath);
  environment.set("LANG", "C.UTF-8");
  if (request.terminal) environment.set("TERM", "xterm-256color");
  for (const std::string& setting : request.default_environment) environment.set(setting);
  for (const std::string& setting : request.environment) environment.set(setting);
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

Status enter_cgroups(const std::vector<Fd>& cgroups) {
  for (const Fd& cgroup : cgroups)
    if (::write(cgroup.get(), "0", 1) != 1)
      return fail_errno("entering the command's control group");
  return {};
}

Status set_limit(int resource, const rlimit& value) {
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &value) != 0)
    return fail_errno("setrlimit " + std::to_string(resource));
  return {};
}

// All but the one of open files.
Status set_limits(const std::vector<ExecRequest::Limit>& limits) {
  for (const ExecRequest::Limit& limit : limits)
    if (limit.resource != RLIMIT_NOFILE)
      TRY(set_limit(static_cast<int>(limit.resource), {limit.soft, limit.hard}));
  return {};
}

// Set when the last descriptor was handed over: the limit also bounds what all processes of the
// user may have under way (base/sys.h, send_part), and a lowered hard limit stays.
Status limit_open_files(const std::vector<ExecRequest::Limit>& limits, const rlimit& found) {
  TRY(set_limit(RLIMIT_NOFILE, found));
  for (const ExecRequest::Limit& limit : limits)
    if (limit.resource == RLIMIT_NOFILE) TRY(set_limit(RLIMIT_NOFILE, {limit.soft, limit.hard}));
  return {};
}

Status close_all_but(int kept) {
  const auto keep = static_cast<unsigned>(kept);
  if (keep > 3 && ::close_range(3, keep - 1, 0) != 0) return fail_errno("close_range");
  if (::close_range(keep + 1, UINT_MAX, 0) != 0) return fail_errno("close_range");
  if (::fcntl(kept, F_SETFD, FD_CLOEXEC) != 0) return fail_errno("fcntl");
  return {};
}

Status place_descriptor(int from_fd, int to_fd) {
  if (::dup2(from_fd, to_fd) < 0) return fail_errno("dup2");
  return {};
}

Status set_up_pipes(const ExecDescriptors& descriptors) {
  if (descriptors.input.valid()) {
    TRY(place_descriptor(descriptors.input.get(), 0));
  } else {
    const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!null.valid()) return fail_errno("open /dev/null");
    TRY(place_descriptor(null.get(), 0));
  }
  TRY(place_descriptor(descriptors.output.get(), 1));
  return place_descriptor(descriptors.error.get(), 2);
}

// The terminal is opened with the command's own ids, so that its far end under /dev/pts is the
// command's too; the guest gets the near end.
Status set_up_terminal(const ExecRequest::WindowSize& size, int report_fd) {
  const Fd near(::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!near.valid()) return fail_errno("open /dev/ptmx");
  const int locked = 0;
  if (::ioctl(near.get(), TIOCSPTLCK, &locked) != 0) return fail_errno("unlocking the terminal");
  winsize window{};
  window.ws_col = size.columns;
  window.ws_row = size.rows;
  if (::ioctl(near.get(), TIOCSWINSZ, &window) != 0) return fail_errno("terminal size");
  const Fd far(::ioctl(near.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!far.valid()) return fail_errno("opening the terminal's far end");
  if (::ioctl(far.get(), TIOCSCTTY, 0) != 0) return fail_errno("controlling terminal");
  TRY(report_descriptor(report_fd, ReportKind::kTerminal, near.get()));
  for (int fd = 0; fd <= 2; ++fd) TRY(place_descriptor(far.get(), fd));
  return {};
}

// Signals that the guest blocks are the command's business again.
void reset_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

Status enter_directory(const ExecRequest& request, const Account& account) {
  if (!request.directory.empty()) {
    if (::chdir(request.directory.c_str()) != 0)
      return fail_errno("working directory " + request.directory);
    return {};
  }
  if (::chdir(account.home.c_str()) == 0) return {};
  if (::chdir("/") != 0) return fail_errno("working directory /");
  return {};
}

struct ExecError {
  Error error;
  std::uint8_t exit_code;
};

ExecError exec_error(const std::string& what, int error_number) {
  const bool absent = error_number == ENOENT || error_number == ENOTDIR;
  return {Error::syscall(what, error_number), static_cast<std::uint8_t>(absent ? 127 : 126)};
}

// Returns only where the program could not be executed.
ExecError execute(const std::string& program, char* const* arguments, char* const* environment,
                  std::string_view path) {
  if (program.find('/') != std::string::npos || program.empty()) {
    ::execve(program.c_str(), arguments, environment);
    const int error_number = errno;
    if (error_number == ENOENT && ::access(program.c_str(), F_OK) == 0)
      return exec_error(program + ": its interpreter", error_number);
    return exec_error(program, error_number);
  }
  int denied = 0;
  for (;;) {
    const std::size_t colon = path.find(':');
    std::string candidate(path.substr(0, colon));
    if (!candidate.empty()) candidate += '/';
    candidate += program;
    ::execve(candidate.c_str(), arguments, environment);
    if (errno == ENOENT && ::access(candidate.c_str(), F_OK) == 0)
      return exec_error(candidate + ": its interpreter", ENOENT);
    if (errno == EACCES || errno == EPERM)
      denied = errno;
    else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
      return exec_error(candidate, errno);
    if (colon == std::string_view::npos) break;
    path.remove_prefix(colon + 1);
  }
  if (denied != 0) return exec_error(program + ": found in PATH, but not executable", denied);
  return exec_error(program + ": not found in PATH", ENOENT);
}

Status prepare(const ExecRequest& request, ExecDescriptors& descriptors, const Account& account) {
  const auto is_on = [&](Mechanism mechanism) {
    return !is_off(descriptors.disabled_mechanisms, mechanism);
  };
  const int report_fd = descriptors.report.get();
  TRY(enter_cgroups(descriptors.cgroups));
  if ((request.terminal || is_on(Mechanism::kNewSession)) && ::setsid() < 0)
    return fail_errno("setsid");
  if (!request.terminal) TRY(set_up_pipes(descriptors));
  const auto limits =
      is_on(Mechanism::kRlimits) ? request.limits : std::vector<ExecRequest::Limit>();
  TRY(set_limits(limits));
  ::umask(022);

  ConfineOptions options;
  options.userns_fd = descriptors.userns_fd;
  options.cgroup_ns_fd = descriptors.cgroup_ns_fd;
  options.uid = account.uid;
  options.gid = account.gid;
  options.groups = account.groups;
  options.privileges = request.sudo ? Privileges::kSudo : Privileges::kNone;
  options.profile = request.profile;
  options.want_listener = request.want_listener;
  options.no_setid = request.no_setid;
  options.disabled_mechanisms = descriptors.disabled_mechanisms;
  TRY(enter_identity(options));
  if (request.terminal) TRY(set_up_terminal(*request.terminal, report_fd));
  if (is_on(Mechanism::kCloseDescriptors)) {
    // Really, not by the execve alone: a working directory of /proc/self/fd/N would lead to what
    // one of them is, and from a directory of the host to all of the host.
    TRY(close_all_but(report_fd));
  } else {
    for (int fd = 3; fd < kLeakedDescriptors; ++fd)
      if (fd != report_fd) ::fcntl(fd, F_SETFD, 0);
  }
  TRY_ASSIGN(const Confined confined, give_up_rights(options));
  if (confined.listener.valid())
    TRY(report_descriptor(report_fd, ReportKind::kListener, confined.listener.get()));
  return limit_open_files(limits, descriptors.open_files);
}

}  // namespace

ExecFailure parse_failure(std::string_view message) {
  ExecFailure failure;
  constexpr std::size_t kFixed = 1 + sizeof(failure.error_number) + 3;
  if (message.size() < kFixed) {
    failure.code = static_cast<std::uint8_t>(Code::kInternal);
    failure.message = "the command's start ended without a reason";
    return failure;
  }
  std::memcpy(&failure.error_number, message.data() + 1, sizeof(failure.error_number));
  failure.code = static_cast<std::uint8_t>(message[kFixed - 3]);
  failure.exit_code = static_cast<std::uint8_t>(message[kFixed - 2]);
  failure.subject = static_cast<std::uint8_t>(message[kFixed - 1]);
  failure.message = message.substr(kFixed);
  return failure;
}

void run_command(const ExecRequest& request, ExecDescriptors descriptors) {
  const int report_fd = descriptors.report.get();
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  Result<Account> account = resolve_user(request.user, root.get());
  if (!account) report_failure(report_fd, account.error(), proto::ErrorSubject::kUser);
  if (Status status = prepare(request, descriptors, *account); !status)
    report_failure(report_fd, status.error());
  // Only now, so that no right of the start enters a directory that the command could not.
  if (Status status = enter_directory(request, *account); !status)
    report_failure(report_fd, status.error(), proto::ErrorSubject::kDirectory);
  const Environment environment =
      make_environment(request, *account, descriptors.disabled_mechanisms);
  std::vector<std::string> arguments = request.arguments;
  std::vector<std::string> settings = environment.settings();
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> setting_pointers = pointers(settings);
  reset_signals();
  const ExecError failure = execute(request.arguments.front(), argument_pointers.data(),
                                    setting_pointers.data(), environment.get("PATH"));
  report_failure(report_fd, failure.error, proto::ErrorSubject::kProgram, failure.exit_code);
}

}  // namespace caisson::guest
