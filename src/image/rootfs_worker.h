// Makes a root filesystem out of OCI layers: a session with one caisson-image-worker, which parses
// the hostile bytes in namespaces and a filter of its own (worker/confine.h). Layers are applied
// bottom to top with whiteouts (`.wh.NAME`, `.wh..wh..opq`); after finish() the result is complete
// and readable, and more layers may follow.
//
//   kDirectory  `rootfs/` in the directory, owned as ids.h says. What a layer has beyond 100 000
//               entries or 4 GiB is made in a second reading, when the first has counted the whole
//               and its digests were compared: so little is made, and to be removed, of one that is
//               refused.
//   kErofs      `rootfs.erofs` in the directory: one file that the kernel mounts (uncompressed
//               erofs, blocks of 4 KiB, ids as in the image). Every layer is read once. finish()
//               writes the tree's metadata behind the data and the superblock last, and gives the
//               disk blocks of files that are gone back. Between an apply() and the next finish()
//               the file is what the last finish() left; a mount of that is stale after the next
//               finish() and must be made anew.
//
// An error ends the session, and what it made is rubbish that the caller removes. Nothing is
// synced: who renames the result into place syncs it first. The worker dies with the thread that
// started it. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "image/ids.h"
#include "image/layer.h"
#include "image/rootfs_kind.h"
#include "image/worker_process.h"

namespace caisson::image {

enum class RootfsForm { kDirectory, kErofs };

// What one layer was, in counts and digests.
struct LayerReport {
  UnpackReport counts;  // of this layer alone
  std::uint64_t whiteouts = 0;
  LayerRef layer;  // both digests as computed; the media type as given
};

// The whole, as finish() leaves it.
struct RootfsReport {
  std::uint64_t entries = 0;  // names below the root; a hard link counts as each of its names
  std::uint64_t bytes = 0;    // of the files' contents, each file once
  std::uint64_t size = 0;     // of rootfs.erofs, holes included; 0 for a directory
};

class RootfsWorker {
 public:
  // Makes `rootfs/` or `rootfs.erofs` in `directory_fd`, where neither may be yet. `lock_fd` (or
  // -1) stays open in the worker for as long as that lives. The limits hold for all layers of the
  // session together, but for `ratio` and `time`, which hold for each call. Error: precondition
  // where this host has no user namespaces.
  static Result<RootfsWorker> start(RootfsForm form, int directory_fd, int lock_fd,
                                    const IdMapping& ids, const UnpackLimits& limits);
  // The same for a delta, which takes exactly one apply(). Its root directory gets `root_mode`,
  // that of what it will lie over. Error of apply(), besides: invalid for a layer that means
  // something else without what is below it (worker/delta.h); flattened it may be good.
  static Result<RootfsWorker> start_delta(RootfsForm form, int directory_fd, int lock_fd,
                                          const IdMapping& ids, const UnpackLimits& limits,
                                          mode_t root_mode);
  // A session that makes nothing: apply() reads a layer, compares its digests and keeps the limits;
  // finish() must not be called. For layers whose root file system is there already.
  static Result<RootfsWorker> start_check(int lock_fd, const IdMapping& ids,
                                          const UnpackLimits& limits);
  RootfsWorker(RootfsWorker&&) noexcept;
  RootfsWorker& operator=(RootfsWorker&&) noexcept;
  ~RootfsWorker();

  // Applies one layer (a tar file, plain or compressed with gzip, zstd or xz), read from the start
  // of the regular file `layer_fd`. Where `expected.blob.digest` or `expected.diff_id` is not
  // empty, what was read must have it: else data_loss, with both digests. Error: invalid for what
  // the archive is to blame for.
  Result<LayerReport> apply(int layer_fd, const LayerRef& expected, const Progress& progress = {});
  Result<RootfsReport> finish();
  // Ends the session; nothing can follow. The most memory that the worker held, in bytes.
  std::uint64_t end();

 private:
  struct Session;
  explicit RootfsWorker(std::unique_ptr<Session> session);
  std::unique_ptr<Session> session_;
};

}  // namespace caisson::image
