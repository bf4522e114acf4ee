#include "image/rootfs_worker.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "image/files.h"
#include "image/worker_client.h"
#include "image/worker_protocol.h"
#include "image/worker_report.h"

namespace caisson::image {

struct RootfsWorker::Session {
  WorkerClient worker;
  Fd stream;
  RootfsForm form = RootfsForm::kDirectory;
  UnpackLimits limits;
  bool checks_only = false;
  std::optional<mode_t> delta_root_mode;  // none: no delta
  bool ended = false;                     // by an error

  Status start(int directory_fd, int image_fd, int metadata_fd, int lock_fd, const IdMapping& ids);
  // With the empty root directory or image in `directory_fd`.
  Status start_making(int directory_fd, int lock_fd, const IdMapping& ids);
  Result<LayerReport> apply(int layer_fd, const LayerRef& expected, const Progress& progress);
};

RootfsWorker::RootfsWorker(std::unique_ptr<Session> session) : session_(std::move(session)) {}
RootfsWorker::RootfsWorker(RootfsWorker&&) noexcept = default;
RootfsWorker& RootfsWorker::operator=(RootfsWorker&&) noexcept = default;
RootfsWorker::~RootfsWorker() = default;

namespace {

Result<Fd> make_root(int directory_fd, const IdMapping& ids) {
  if (mkdirat(directory_fd, "rootfs", 0755) != 0) return fail_errno("make rootfs");
  TRY_ASSIGN(Fd root, open_directory_at(directory_fd, "rootfs"));
  if (fchmod(root.get(), 0755) != 0) return fail_errno("chmod rootfs");
  if (ids.layout == IdLayout::kShifted && fchown(root.get(), ids.uid_base, ids.gid_base) != 0) {
    return fail_errno("chown rootfs");
  }
  return root;
}

Result<Fd> make_image(int directory_fd) {
  Fd image(openat(directory_fd, "rootfs.erofs", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!image.valid()) return fail_errno("make rootfs.erofs");
  return image;
}

// Beside the image, so that its blocks can be shared; it has no name for longer than a moment.
Result<Fd> make_metadata(int directory_fd) {
  Fd file(openat(directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid()) return file;
  constexpr const char* kName = "rootfs.erofs.metadata";
  file = Fd(openat(directory_fd, kName, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("make a file for the image's metadata");
  if (unlinkat(directory_fd, kName, 0) != 0) return fail_errno("unlink the metadata file");
  return file;
}

// Error: data_loss, unless it is as expected or nothing was.
Status compare(const char* what, const std::string& expected, const std::string& found) {
  if (expected.empty() || expected == found) return {};
  return fail(Error(Code::kDataLoss, std::string(what) + " should have the SHA-256 " + expected +
                                         " and has " + found));
}

// Tells of one or two readings of a layer as of one: from where it is known that there will be
// another one, what is left to show is for the rest of both.
class Meter {
 public:
  Meter(const Progress& progress, std::uint64_t size) : progress_(progress), size_(size) {}
  // So many bytes, of all readings.
  void show(std::uint64_t done) const {
    if (!progress_) return;
    const auto shown = static_cast<double>(done - turn_) * pace_;
    progress_(std::min(size_, turn_ + static_cast<std::uint64_t>(shown)), size_);
  }
  void expect_another(std::uint64_t done) {
    turn_ = done;
    const auto left = static_cast<double>(size_ - done);
    if (size_ > 0) pace_ = left / (left + static_cast<double>(size_));
  }

 private:
  const Progress& progress_;
  std::uint64_t size_, turn_ = 0;
  double pace_ = 1;
};

}  // namespace

Status RootfsWorker::Session::start(int directory_fd, int image_fd, int metadata_fd, int lock_fd,
                                    const IdMapping& ids) {
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_STREAM));
  stream = std::move(pair.ours);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits.time).count() + 1;
  const std::array<int, 5> descriptors = {pair.theirs.get(), directory_fd, lock_fd, image_fd,
                                          metadata_fd};
  std::vector<std::string> arguments = {"layers",
                                        checks_only                  ? "check"
                                        : form == RootfsForm::kErofs ? "erofs"
                                                                     : "directory",
                                        std::string(to_string(ids.layout)),
                                        std::to_string(limits.entries),
                                        std::to_string(limits.bytes),
                                        std::to_string(limits.ratio),
                                        std::to_string(seconds)};
  if (delta_root_mode) arguments.push_back(std::to_string(*delta_root_mode));
  return worker.start(arguments, descriptors, ids, limits.time);
}

Result<LayerReport> RootfsWorker::Session::apply(int layer_fd, const LayerRef& expected,
                                                 const Progress& progress) {
  struct stat file = {};
  if (fstat(layer_fd, &file) != 0) return fail_errno("stat the layer");
  if (!S_ISREG(file.st_mode)) return fail(Error::invalid("the layer is no regular file"));
  const auto size = static_cast<std::uint64_t>(file.st_size);
  if (size > limits.archive) {
    return fail(Error::invalid("the layer has " + std::to_string(size) + " bytes; at most " +
                               std::to_string(limits.archive) + " are allowed"));
  }
  TRY(worker.send(kWorkerApply, std::to_string(size)));
  LayerReport report;
  report.layer = expected;
  report.layer.blob.size = size;
  Meter meter(progress, size);
  std::uint64_t before = 0;
  bool again = false;
  do {
    Feed feed(stream.get(), layer_fd, size);
    auto receive = [&] {
      return worker.receive(limits.time, &feed, [&] { meter.show(before + feed.done()); });
    };
    TRY_ASSIGN(std::string message, receive());
    again = !again && message.starts_with(kWorkerAgain);
    if (again) {
      meter.expect_another(feed.done());
      TRY_ASSIGN(message, receive());
    }
    if (!message.starts_with(kWorkerDone)) return fail(worker.error_of(message));
    TRY_ASSIGN(const LayerCounts found, LayerCounts::decode(std::string_view(message).substr(1)));
    // What the first of two readings found the second must find too.
    LayerRef& layer = report.layer;
    TRY_ASSIGN(const std::string digest, feed.digest());
    TRY(compare("the layer", layer.blob.digest, digest));
    TRY(compare("the layer's uncompressed tar", layer.diff_id, found.diff_id));
    layer.blob.digest = digest;
    layer.diff_id = found.diff_id;
    report.counts = found.counts;
    report.whiteouts = found.whiteouts;
    before = size;
  } while (again);
  return report;
}

Status RootfsWorker::Session::start_making(int directory_fd, int lock_fd, const IdMapping& ids) {
  if (form == RootfsForm::kErofs) {
    TRY_ASSIGN(Fd image, make_image(directory_fd));
    TRY_ASSIGN(Fd metadata, make_metadata(directory_fd));
    return start(-1, image.get(), metadata.get(), lock_fd, ids);
  }
  TRY_ASSIGN(Fd root, make_root(directory_fd, ids));
  return start(root.get(), -1, -1, lock_fd, ids);
}

Result<RootfsWorker> RootfsWorker::start(RootfsForm form, int directory_fd, int lock_fd,
                                         const IdMapping& ids, const UnpackLimits& limits) {
  auto session = std::make_unique<Session>();
  session->form = form;
  session->limits = limits;
  TRY(session->start_making(directory_fd, lock_fd, ids));
  return RootfsWorker(std::move(session));
}

Result<RootfsWorker> RootfsWorker::start_delta(RootfsForm form, int directory_fd, int lock_fd,
                                               const IdMapping& ids, const UnpackLimits& limits,
                                               mode_t root_mode) {
  auto session = std::make_unique<Session>();
  session->form = form;
  session->limits = limits;
  session->delta_root_mode = root_mode;
  TRY(session->start_making(directory_fd, lock_fd, ids));
  return RootfsWorker(std::move(session));
}

Result<RootfsWorker> RootfsWorker::start_check(int lock_fd, const IdMapping& ids,
                                               const UnpackLimits& limits) {
  auto session = std::make_unique<Session>();
  session->checks_only = true;
  session->limits = limits;
  TRY(session->start(-1, -1, -1, lock_fd, ids));
  return RootfsWorker(std::move(session));
}

Result<LayerReport> RootfsWorker::apply(int layer_fd, const LayerRef& expected,
                                        const Progress& progress) {
  VERIFY(!session_->ended);
  auto report = session_->apply(layer_fd, expected, progress);
  if (!report.has_value()) end();
  return report;
}

Result<RootfsReport> RootfsWorker::finish() {
  VERIFY(!session_->ended);
  auto report = [&]() -> Result<RootfsReport> {
    TRY(session_->worker.send(kWorkerFinish, ""));
    TRY_ASSIGN(std::string text, session_->worker.expect(kWorkerDone, session_->limits.time));
    return decode_rootfs_report(text);
  }();
  if (!report.has_value()) end();
  return report;
}

std::uint64_t RootfsWorker::end() {
  session_->ended = true;
  return session_->worker.end();
}

}  // namespace caisson::image
