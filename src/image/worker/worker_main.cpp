// caisson-image-worker: makes a root filesystem out of layers, or removes one tree, for the process
// that starts it; see image/worker_protocol.h. Not for people.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/kernel_abi.h"
#include "image/files.h"
#include "image/ids.h"
#include "image/worker/confine.h"
#include "image/worker/delta.h"
#include "image/worker/directory_writer.h"
#include "image/worker/erofs_writer.h"
#include "image/worker/flatten.h"
#include "image/worker/pack_mode.h"
#include "image/worker/portion.h"
#include "image/worker/uncompress_ahead.h"
#include "image/worker/unpack.h"
#include "image/worker_protocol.h"
#include "image/worker_report.h"

namespace caisson::image {
namespace {

constexpr std::size_t kInputBuffer = 128 * 1024;
constexpr std::uint64_t kManyLayers = 128;
constexpr std::uint64_t kBlockOrInode = 4096;
// What is made in a directory of a layer that may turn out to be over a limit. Ordinary images have
// less, and are read once.
constexpr PortionBudget kUnseen = {.entries = 100'000, .bytes = 4ull << 30};

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

// One layer of the stream.
class StreamInput final : public ArchiveInput {
 public:
  void begin(std::uint64_t size) { left_ = size; }
  Result<std::string_view> read() override {
    if (left_ == 0) return std::string_view();
    const std::size_t wanted = std::min<std::uint64_t>(left_, buffer_.size());
    const ssize_t got = TEMP_FAILURE_RETRY(::read(kWorkerArchiveFd, buffer_.data(), wanted));
    if (got < 0) return fail_errno("read the archive");
    if (got == 0) return fail(Error::unavailable("the layer's bytes ended too early"));
    left_ -= static_cast<std::uint64_t>(got);
    return std::string_view(buffer_.data(), static_cast<std::size_t>(got));
  }
  // What nobody wanted of it makes way for the next.
  Status skip_rest() {
    while (left_ > 0) TRY(read());
    return {};
  }

 private:
  std::vector<char> buffer_ = std::vector<char>(kInputBuffer);
  std::uint64_t left_ = 0;
};

struct Job {
  bool remove = false;
  bool check = false;  // read layers, make nothing
  std::string name;    // to remove
  RootfsForm form = RootfsForm::kDirectory;
  RootfsKind kind = RootfsKind::kWhole;
  mode_t root_mode = 0755;  // of a delta
  IdLayout layout = IdLayout::kSingle;
  UnpackLimits limits;
  WorkerLimits worker{.file_size = 1ull << 20, .seconds = 900};

  // Needs no directory.
  bool writes_no_names() const { return !remove && (check || form == RootfsForm::kErofs); }
};

Result<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(Error::internal("'" + std::string(text) + "' is no number"));
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
  if (kind != "layers" || (count != 8 && count != 9)) {
    return fail(Error::internal("caisson-image-worker is started by caisson, not by hand"));
  }
  const std::string_view form = arguments[2];
  if (form == "erofs") job.form = RootfsForm::kErofs;
  auto layout = parse_id_layout(arguments[3]);
  job.check = form == "check";
  if ((form != "erofs" && !job.check && form != "directory") || !layout) {
    return fail(Error::internal("unknown form or layout of ids"));
  }
  job.layout = *layout;
  TRY_ASSIGN(job.limits.entries, number(arguments[4]));
  TRY_ASSIGN(job.limits.bytes, number(arguments[5]));
  TRY_ASSIGN(job.limits.ratio, number(arguments[6]));
  TRY_ASSIGN(const std::uint64_t seconds, number(arguments[7]));
  // The other side ends us when one layer takes longer than that; a session has many.
  job.worker.seconds = kManyLayers * seconds;
  job.worker.file_size = job.check ? 0 : job.limits.bytes;
  if (job.check) job.worker.task = WorkerTask::kWriteImage;  // the narrowest of them
  if (count == 9) {
    TRY_ASSIGN(const std::uint64_t mode, number(arguments[8]));
    job.kind = RootfsKind::kDelta;
    job.root_mode = static_cast<mode_t>(mode) & 07777;
    job.worker.task = WorkerTask::kUnpackDelta;
  }
  if (job.form == RootfsForm::kErofs) {
    job.worker.task = WorkerTask::kWriteImage;
    // One file has all the others, each in blocks of its own, and the metadata of several turns.
    job.worker.file_size += kManyLayers * (job.limits.entries * kBlockOrInode + (1ull << 30));
  }
  return job;
}

// The layers that are ordered, one after the other.
class Session {
 public:
  Session(const Job& job, UncompressAhead& bytes) : job_(job), bytes_(bytes) {}

  Status make(LayerTree& tree, RootfsWriter& writer) {
    if (job_.kind == RootfsKind::kDelta) {
      DeltaLayer layer(tree, writer, job_.root_mode);
      return obey([&] { return make_layer(layer); }, [&] { return writer.finish(); });
    }
    Flattener flattener(tree, writer);
    return obey([&] { return make_layer(flattener); }, [&] { return writer.finish(); });
  }
  Status check() {
    CountingSink nothing;
    return obey([&] { return read(nothing); },
                []() -> Result<RootfsReport> { return fail(Error::internal("an unknown order")); });
  }

 private:
  Status obey(const std::function<Result<LayerCounts>()>& apply,
              const std::function<Result<RootfsReport>()>& finish) {
    for (std::string order(kMaxWorkerMessage, '\0');;) {
      const ssize_t got = TEMP_FAILURE_RETRY(recv(kWorkerReportFd, order.data(), order.size(), 0));
      if (got <= 0) return {};  // nobody wants more
      const std::string_view text(order.data(), static_cast<std::size_t>(got));
      if (text.front() == kWorkerFinish) {
        TRY_ASSIGN(RootfsReport report, finish());
        if (job_.form == RootfsForm::kDirectory) report.bytes = before_.bytes;
        say(kWorkerDone, encode_rootfs_report(report));
        continue;
      }
      if (text.front() != kWorkerApply) return fail(Error::internal("an unknown order"));
      TRY_ASSIGN(size_, number(text.substr(1)));
      TRY_ASSIGN(const LayerCounts found, apply());
      before_.entries += found.counts.entries;
      before_.bytes += found.counts.bytes;
      say(kWorkerDone, found.encode());
    }
  }

  // The next bytes of the stream, as a layer.
  Result<LayerCounts> read(EntrySink& sink) {
    input_.begin(size_);
    bytes_.begin(input_, job_.limits.ratio);
    TRY_ASSIGN(LayerCounts found, read_layer(bytes_, sink, job_.limits, before_));
    TRY(input_.skip_rest());
    return found;
  }

  Result<LayerCounts> make_layer(LayerSink& sink) {
    TRY(sink.begin_layer());
    const PortionBudget budget = job_.form == RootfsForm::kDirectory ? kUnseen : PortionBudget();
    Portion beginning(sink, 0, budget, [] { say(kWorkerAgain, ""); });
    TRY_ASSIGN(LayerCounts found, read(beginning));
    if (beginning.full()) {
      say(kWorkerDone, found.encode());
      Portion rest(sink, beginning.passed(), {}, [] {});
      TRY_ASSIGN(found, read(rest));
    }
    TRY(sink.end_layer());
    return found;
  }

  const Job& job_;
  UncompressAhead& bytes_;
  StreamInput input_;
  std::uint64_t size_ = 0;  // of the layer under way
  UnpackReport before_;     // what the layers before had
};

Status make_rootfs(const Job& job, UncompressAhead& bytes) {
  Session session(job, bytes);
  if (job.check) return session.check();
  LayerTree tree(job.limits.entries);
  if (job.form == RootfsForm::kErofs) {
    ErofsWriter writer(tree, kWorkerImageFd, kWorkerMetadataFd, job.kind);
    TRY(writer.begin());
    return session.make(tree, writer);
  }
  Fd root(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return fail_errno("open the destination");
  DirectoryWriter writer(tree, root.get(), job.layout);
  return session.make(tree, writer);
}

Status remove(const Job& job) {
  Fd root(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return fail_errno("open the destination");
  TRY(remove_tree_at(root.get(), job.name));
  say(kWorkerDone, "");
  return {};
}

Status work(const Job& job, std::unique_ptr<UncompressAhead>& bytes) {
  TRY(die_with_parent());
  if (job.remove) {
    TRY(lock_down(job.worker));
    return remove(job);
  }
  TRY_ASSIGN(bytes,
             UncompressAhead::start([] { return lock_down_thread(WorkerTask::kUncompress); }));
  TRY(lock_down(job.worker));
  return make_rootfs(job, *bytes);
}

[[noreturn]] void run_inner(const Job& job) {
  std::unique_ptr<UncompressAhead> bytes;
  auto done = work(job, bytes);
  const int status = done.has_value() ? 0 : report_failure(done.error());
  // At once: the other thread may be waiting for bytes that do not come any more.
  _exit(status);
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

Status prepare(const Job& job) {
  TRY(die_with_parent());
  const Fd root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  TRY(enter_namespaces(job.writes_no_names() ? root.get() : kWorkerDirectoryFd));
  say(kWorkerReady, "");
  char go = 0;
  if (recv(kWorkerReportFd, &go, 1, 0) != 1 || go != kWorkerGo) {
    return fail(Error::internal("the image worker was not told to go on"));
  }
  TRY(job.writes_no_names() ? take_empty_root(0, 0) : take_root());
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
  if (auto ready = prepare(*job); !ready.has_value()) return report_failure(ready.error());
  const pid_t child = fork();
  if (child < 0) return report_failure(Error::syscall("fork", errno));
  if (child == 0) run_inner(*job);
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
