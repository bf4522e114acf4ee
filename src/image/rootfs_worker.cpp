#include "image/rootfs_worker.h"

#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "image/files.h"
#include "image/sha256.h"

namespace caisson::image {

struct RootfsWorker::Session {
  Fd root;
  int lock_fd = -1;
  IdMapping ids;
  UnpackLimits limits;
  RootfsReport total;
};

RootfsWorker::RootfsWorker(std::unique_ptr<Session> session) : session_(std::move(session)) {}
RootfsWorker::RootfsWorker(RootfsWorker&&) noexcept = default;
RootfsWorker& RootfsWorker::operator=(RootfsWorker&&) noexcept = default;
RootfsWorker::~RootfsWorker() = default;

Result<RootfsWorker> RootfsWorker::start(RootfsForm form, int directory_fd, int lock_fd,
                                         const IdMapping& ids, const UnpackLimits& limits) {
  if (form == RootfsForm::kErofs) return fail(Error::unavailable("erofs images: not yet"));
  auto session = std::make_unique<Session>();
  session->lock_fd = lock_fd;
  session->ids = ids;
  session->limits = limits;
  TRY_ASSIGN(session->root, open_or_make_directory_at(directory_fd, "rootfs"));
  if (fchmod(session->root.get(), 0755) != 0) return fail_errno("chmod rootfs");
  if (ids.layout == IdLayout::kShifted &&
      fchown(session->root.get(), ids.uid_base, ids.gid_base) != 0) {
    return fail_errno("chown rootfs");
  }
  return RootfsWorker(std::move(session));
}

Result<LayerReport> RootfsWorker::apply(int layer_fd, const LayerRef& expected,
                                        const Progress& progress) {
  LayerReport report;
  report.layer = expected;
  if (report.layer.blob.digest.empty()) {
    Sha256 hash;
    std::vector<char> buffer(128 * 1024);
    for (std::uint64_t at = 0;;) {
      const ssize_t got =
          TEMP_FAILURE_RETRY(pread(layer_fd, buffer.data(), buffer.size(), static_cast<off_t>(at)));
      if (got < 0) return fail_errno("read the layer");
      if (got == 0) break;
      hash.update({buffer.data(), static_cast<std::size_t>(got)});
      at += static_cast<std::uint64_t>(got);
    }
    report.layer.blob.digest = hash.finish();
  }
  TRY_ASSIGN(report.counts,
             unpack_by_worker(layer_fd, report.layer.blob.digest, session_->root.get(),
                              session_->lock_fd, session_->ids, session_->limits, progress));
  session_->total.entries += report.counts.entries;
  session_->total.bytes += report.counts.bytes;
  return report;
}

Result<RootfsReport> RootfsWorker::finish() {
  return session_->total;
}

}  // namespace caisson::image
