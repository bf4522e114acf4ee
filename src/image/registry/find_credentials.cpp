// Where credentials are: the file, and the programs that it names.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "base/fd.h"
#include "base/sys.h"
#include "image/registry/credentials.h"

namespace caisson::image {
namespace {

constexpr std::chrono::seconds kHelperTime{10};

std::string config_path() {
  if (const char* folder = ::getenv("DOCKER_CONFIG"); folder != nullptr && *folder != '\0') {
    return std::string(folder) + "/config.json";
  }
  const char* home = ::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : std::string(home) + "/.docker/config.json";
}

// A started program that is ended and reaped at the latest on destruction.
class Helper {
 public:
  Helper() = default;
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }
  // False: no such program is installed.
  Result<bool> start(const std::string& program, int input_fd, int output_fd) {
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input_fd, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output_fd, 1);
    ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    std::string word = "get", name = program;
    char* const arguments[] = {name.data(), word.data(), nullptr};
    const int error = ::posix_spawnp(&pid_, program.c_str(), &actions, nullptr, arguments, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      pid_ = -1;
      if (error == ENOENT) return false;
      return fail(
          Error::syscall("start " + program + ", which the credentials' file names", error));
    }
    return true;
  }
  int wait() {
    int status = 0;
    if (pid_ > 0) TEMP_FAILURE_RETRY(::waitpid(pid_, &status, 0));
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

struct Pipe {
  Fd read, write;
};
Result<Pipe> make_pipe() {
  int fds[2] = {-1, -1};
  if (::pipe2(fds, O_CLOEXEC) != 0) return fail_errno("pipe");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

Result<std::string> read_until_end(int fd, const std::string& program) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + kHelperTime;
  std::string text;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) {
      return fail(Error(
          Code::kDeadlineExceeded,
          program + " did not answer within " + std::to_string(kHelperTime.count()) + " seconds"));
    }
    pollfd polled = {fd, POLLIN, 0};
    if (::poll(&polled, 1, static_cast<int>(left)) <= 0) continue;
    char buffer[4096];
    const ssize_t got = TEMP_FAILURE_RETRY(::read(fd, buffer, sizeof buffer));
    if (got < 0) return fail_errno("read from " + program);
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > kMaxHelperAnswer) {
      return fail(Error::invalid(program + " answered with more than " +
                                 std::to_string(kMaxHelperAnswer) + " bytes"));
    }
  }
}

Result<std::optional<Credentials>> ask_helper(const std::string& name, std::string_view registry) {
  const std::string program = "docker-credential-" + name;
  const std::string question = std::string(registry) + "\n";
  TRY_ASSIGN(const Fd input, sys::memory_file("caisson-registry", question));
  TRY_ASSIGN(Pipe output, make_pipe());
  Helper helper;
  TRY_ASSIGN(const bool installed, helper.start(program, input.get(), output.write.get()));
  if (!installed) return std::nullopt;
  output.write.reset();
  TRY_ASSIGN(const std::string answer, read_until_end(output.read.get(), program));
  const int status = helper.wait();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    auto credentials = parse_helper_answer(answer);
    if (!credentials.has_value()) return fail(std::move(credentials).error().with(program));
    return std::optional(std::move(*credentials));
  }
  // How all of them say that they have none.
  if (answer.find("credentials not found") != std::string::npos) return std::nullopt;
  return fail(Error::precondition(program + " failed (its answer is not shown, since it may hold "
                                            "a secret)"));
}

}  // namespace

Result<std::optional<Credentials>> find_credentials(std::string_view registry) {
  const std::string path = config_path();
  if (path.empty()) return std::nullopt;
  auto text = sys::read_file(AT_FDCWD, path, kMaxCredentialFile);
  if (!text.has_value()) {
    if (text.error().code() == Code::kNotFound) return std::nullopt;
    return fail(std::move(text).error());
  }
  auto file = parse_credential_file(*text);
  if (!file.has_value()) return fail(std::move(file).error().with(path));
  const std::string host(registry);
  const auto helper = file->helpers.find(host);
  const std::string& name = helper == file->helpers.end() ? file->store : helper->second;
  if (!name.empty()) {
    TRY_ASSIGN(std::optional<Credentials> found, ask_helper(name, registry));
    if (found) return found;
  }
  const auto entry = file->entries.find(host);
  // Beside a credsStore Docker leaves empty entries.
  if (entry == file->entries.end() || entry->second == Credentials()) return std::nullopt;
  return entry->second;
}

}  // namespace caisson::image
