#include "image/pack.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "image/worker_child.h"
#include "image/worker_protocol.h"

namespace caisson::image {
namespace {

using Clock = WorkerChild::Clock;

constexpr std::size_t kBuffer = 256 * 1024;

// The first id that a map has inside.
std::string first_id(const std::string& lines) {
  return lines.substr(0, lines.find(' '));
}

bool is_opaque(int directory_fd) {
  char value = 0;
  return ::fgetxattr(directory_fd, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
}

Result<std::uint64_t> next_number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto used = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || used == text.size() || *end != '\n')
    return fail(Error::internal("the packer's report is malformed"));
  text.remove_prefix(used + 1);
  return value;
}

// The compressed layer on its way to the file.
class Sink {
 public:
  Sink(Fd pipe, int file_fd) : pipe_(std::move(pipe)), file_fd_(file_fd) {}

  // -1 once the worker has closed its end.
  int fd() const { return pipe_.get(); }
  std::uint64_t size() const { return size_; }
  std::string digest() { return hash_.finish(); }

  Status step() {
    const ssize_t got = TEMP_FAILURE_RETRY(::read(pipe_.get(), buffer_.data(), buffer_.size()));
    if (got < 0) return fail_errno("read from the packer");
    if (got == 0) {
      pipe_.reset();
      return {};
    }
    std::string_view bytes(buffer_.data(), static_cast<std::size_t>(got));
    hash_.update(bytes);
    while (!bytes.empty()) {
      const ssize_t written = TEMP_FAILURE_RETRY(
          ::pwrite(file_fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_)));
      if (written < 0)
        return fail(Error(errno == ENOSPC || errno == EDQUOT ? Code::kResourceExhausted
                                                             : Code::kFailedPrecondition,
                          "write the packed layer: " + std::string(::strerror(errno))));
      size_ += static_cast<std::uint64_t>(written);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
  }

 private:
  Fd pipe_;
  int file_fd_;
  std::vector<char> buffer_ = std::vector<char>(kBuffer);
  std::uint64_t size_ = 0;
  Sha256 hash_;
};

// Until the worker has said that all is done, and all of it has come. Its report.
Result<std::string> collect(WorkerChild& worker, Sink& sink, bool trusted,
                            Clock::time_point deadline, const Progress& progress) {
  std::string report;
  while (report.empty() || sink.fd() >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0)
      return fail(Error(Code::kDeadlineExceeded, "packing the layer took longer than its limit"));
    std::array<pollfd, 2> polled = {
        {{report.empty() ? worker.report_fd() : -1, POLLIN, 0}, {sink.fd(), POLLIN, 0}}};
    const int ready =
        ::poll(polled.data(), polled.size(), static_cast<int>(std::min<std::int64_t>(left, 1000)));
    if (ready < 0 && errno != EINTR) return fail_errno("poll");
    if (ready <= 0) continue;
    if (polled[1].revents != 0) {
      TRY(sink.step());
      if (progress) progress(sink.size(), 0);
    }
    if (polled[0].revents == 0) continue;
    TRY_ASSIGN(sys::Message message, worker.receive());
    if (message.bytes[0] == kWorkerDone) {
      report = message.bytes.substr(1);
    } else if (message.bytes[0] == kWorkerAsksOpaque && trusted &&
               message.descriptors.size() == 1) {
      TRY(sys::send_message(worker.report_fd(), is_opaque(message.descriptors[0].get()) ? "y" : "n",
                            {}));
    } else {
      return fail(WorkerChild::failure(message.bytes));
    }
  }
  return report;
}

}  // namespace

Result<PackedFile> pack_layer_to(int file_fd, const KeptLayer& layer, const PackLimits& limits,
                                 const Progress& progress) {
  if (!layer.directory.valid() || !layer.record.valid())
    return fail(Error::precondition("the sandbox kept no layer that could be packed"));
  struct stat facts{};
  if (::fstat(file_fd, &facts) != 0) return fail_errno("stat of the file for the layer");
  if (!S_ISREG(facts.st_mode) || facts.st_size != 0)
    return fail(Error::invalid("the file for the layer must be a regular one, and empty"));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe2");
  Sink sink(Fd(ends[0]), file_fd);
  Fd worker_end(ends[1]);
  const Clock::time_point deadline = Clock::now() + limits.time;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits.time).count() + 1;
  const int descriptors[] = {worker_end.get(), layer.directory.get(), layer.record.get()};
  WorkerChild worker;
  TRY(worker.start({"pack", std::to_string(limits.entries), std::to_string(limits.bytes),
                    std::to_string(seconds), layer.trusted_attributes ? "1" : "0",
                    first_id(layer.uid_lines), first_id(layer.gid_lines)},
                   descriptors, layer.uid_lines, layer.gid_lines, deadline));
  worker_end.reset();
  TRY_ASSIGN(const std::string report,
             collect(worker, sink, layer.trusted_attributes, deadline, progress));
  std::string_view rest = report;
  PackedFile packed;
  TRY_ASSIGN(packed.entries, next_number(rest));
  TRY_ASSIGN(packed.bytes, next_number(rest));
  if (!is_sha256(rest)) return fail(Error::internal("the packer's report is malformed"));
  packed.diff_id = rest;
  packed.digest = sink.digest();
  packed.size = sink.size();
  return packed;
}

Result<PackedLayer> pack_layer(Store& store, const KeptLayer& layer, const PackLimits& limits,
                               const Progress& progress) {
  TRY_ASSIGN(PartialBlob blob, store.begin_blob(std::nullopt));
  auto packed = pack_layer_to(blob.file.get(), layer, limits, progress);
  if (!packed || packed->entries == 0) {
    auto dropped = store.discard_blob(std::move(blob));
    if (!packed) return fail(std::move(packed).error());
    TRY(std::move(dropped));
    return PackedLayer{};
  }
  TRY_ASSIGN(const std::string digest, store.commit_blob(std::move(blob)));
  if (digest != packed->digest)
    return fail(Error(Code::kDataLoss, "the packed layer changed while it was stored"));
  return PackedLayer{
      .layer = {.blob = {.media_type = kLayerMediaType, .digest = digest, .size = packed->size},
                .diff_id = packed->diff_id},
      .entries = packed->entries,
      .bytes = packed->bytes};
}

}  // namespace caisson::image
