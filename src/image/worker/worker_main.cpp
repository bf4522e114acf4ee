// caisson-image-worker: unpacks one archive, or removes one tree, for the process that starts it;
// see image/worker_protocol.h. Not for people.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/kernel_abi.h"
#include "image/files.h"
#include "image/ids.h"
#include "image/worker/confine.h"
#include "image/worker/directory_destination.h"
#include "image/worker/pack_mode.h"
#include "image/worker/unpack.h"
#include "image/worker_protocol.h"

namespace caisson::image {
namespace {

constexpr std::size_t kInputBuffer = 128 * 1024;

void say(char kind, std::string_view text) {
  std::string message(1, kind);
  message += text.substr(0, kMaxWorkerMessage - 1);
  // Where nobody listens any more there is nobody to tell.
  if (send(kWorkerReportFd, message.data(), message.size(), MSG_NOSIGNAL) < 0) _exit(3);
}

int report_failure(const Error& error) {
  const bool archive = error.code() == Code::kInvalidArgument && error.error_number() == 0;
  say(archive ? kWorkerRefused : kWorkerFailed, error.message());
  return 1;
}

class DescriptorInput final : public ArchiveInput {
 public:
  Result<std::string_view> read() override {
    ssize_t got = TEMP_FAILURE_RETRY(::read(kWorkerArchiveFd, buffer_.data(), buffer_.size()));
    if (got < 0) return fail_errno("read the archive");
    return std::string_view(buffer_.data(), static_cast<std::size_t>(got));
  }

 private:
  std::vector<char> buffer_ = std::vector<char>(kInputBuffer);
};

struct Job {
  bool remove = false;
  std::string name;  // to remove
  IdLayout layout = IdLayout::kSingle;
  UnpackLimits limits;
  WorkerLimits worker{.file_size = 1ull << 20, .seconds = 900};
};

Result<std::uint64_t> number(const char* text) {
  std::uint64_t value = 0;
  const std::string_view view(text);
  auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value == 0) {
    return fail(Error::internal("'" + std::string(view) + "' is no positive number"));
  }
  return value;
}

Result<Job> parse(int count, char** arguments) {
  Job job;
  const std::string_view kind = count > 1 ? arguments[1] : "";
  if (kind == "remove" && count == 3) {
    job.remove = true;
    job.name = arguments[2];
    return job;
  }
  if (kind != "unpack" || count != 7) {
    return fail(Error::internal("caisson-image-worker is started by caisson, not by hand"));
  }
  auto layout = parse_id_layout(arguments[2]);
  if (!layout) return fail(Error::internal("unknown layout of ids"));
  job.layout = *layout;
  TRY_ASSIGN(job.limits.entries, number(arguments[3]));
  TRY_ASSIGN(job.limits.bytes, number(arguments[4]));
  TRY_ASSIGN(job.limits.ratio, number(arguments[5]));
  TRY_ASSIGN(job.worker.seconds, number(arguments[6]));
  job.worker.file_size = job.limits.bytes;
  return job;
}

Result<std::string> work(const Job& job) {
  TRY(lock_down(job.worker));
  Fd root(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return fail_errno("open the destination");
  if (job.remove) {
    TRY(remove_tree_at(root.get(), job.name));
    return std::string();
  }
  DescriptorInput input;
  DirectoryDestination destination(root.get(), job.layout);
  TRY_ASSIGN(UnpackReport report, unpack(input, destination, job.limits));
  return encode_report(report);
}

int run_inner(const Job& job) {
  if (auto tied = die_with_parent(); !tied.has_value()) return report_failure(tied.error());
  auto done = work(job);
  if (!done.has_value()) return report_failure(done.error());
  say(kWorkerDone, *done);
  return 0;
}

// The outer process only waits, so that a killed unpacker still gets its sentence.
int wait_for(pid_t child) {
  int status = 0;
  TEMP_FAILURE_RETRY(waitpid(child, &status, 0));
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const int signal_number = WTERMSIG(status);
  std::string text = "the unpacker was ended by signal " + std::to_string(signal_number);
  if (signal_number == SIGXCPU || signal_number == SIGKILL) text += " (its time limit)";
  if (signal_number == SIGSYS) text += " (a system call that unpacking does not need)";
  say(kWorkerFailed, text);
  return 1;
}

Status prepare() {
  TRY(die_with_parent());
  TRY(enter_namespaces(kWorkerDirectoryFd));
  say(kWorkerReady, "");
  char go = 0;
  if (recv(kWorkerReportFd, &go, 1, 0) != 1 || go != kWorkerGo) {
    return fail(Error::internal("the image worker was not told to go on"));
  }
  TRY(take_root());
  TRY(die_with_parent());
  close(kWorkerDirectoryFd);
  return {};
}

int run(int count, char** arguments) {
  auto job = parse(count, arguments);
  if (!job.has_value()) {
    if (send(kWorkerReportFd, "", 0, MSG_NOSIGNAL) < 0) {
      const std::string text = job.error().message() + "\n";
      return write(STDERR_FILENO, text.data(), text.size()) < 0 ? 3 : 2;
    }
    return report_failure(job.error());
  }
  if (auto ready = prepare(); !ready.has_value()) return report_failure(ready.error());
  const pid_t child = fork();
  if (child < 0) return report_failure(Error::syscall("fork", errno));
  if (child == 0) _exit(run_inner(*job));
  close(kWorkerArchiveFd);
  return wait_for(child);
}

}  // namespace
}  // namespace caisson::image

int main(int count, char** arguments) {
  if (count > 1 && std::string_view(arguments[1]) == "pack")
    return caisson::image::run_pack(count, arguments);
  return caisson::image::run(count, arguments);
}
