// What caisson-image-worker and the process that starts it agree on.
//
//   caisson-image-worker layers FORM LAYOUT ENTRIES BYTES RATIO SECONDS [ROOTMODE]
//   caisson-image-worker remove NAME
//   caisson-image-worker pack ENTRIES BYTES SECONDS TRUSTED UID GID
//
// FORM is `directory` or `erofs`; with ROOTMODE it becomes a delta of one layer (rootfs_kind.h)
// whose root has that mode. Descriptors: 3 the report socket (SOCK_SEQPACKET), 4 the layers' bytes,
// one after the other (layers), 5 the directory to work in (not with erofs), 6 the workspace's
// lock, only held, 7 the image and 8 a file for its metadata (erofs).
//
// The worker makes its namespaces and says kWorkerReady; the other side writes the id maps and says
// kWorkerGo. `remove` then does its work and ends with a message. `layers` waits for orders and
// answers each:
//   kWorkerApply SIZE   the next SIZE bytes of the stream are a layer. kWorkerDone with what it
//                       found (LayerCounts). Before that it may say kWorkerAgain, of a layer that
//                       is too large to be made as it comes: then the same bytes follow once more
//                       behind the kWorkerDone, for another one.
//   kWorkerFinish       kWorkerDone with the whole (encode_rootfs_report).
// Whatever goes wrong is the last message: kWorkerRefused and a sentence about the archive, or
// kWorkerFailed and a sentence about this host. The end of the report socket ends the worker.
//
// `pack` is about an overlay's upper directory (image/pack.h): 4 takes the compressed layer, 5 is
// that directory, 6 the record of what set-up made in it. It becomes UID and GID and has an empty
// root. Its failures are kWorkerError, the byte of a Code, and a sentence. With TRUSTED 1 it may
// send kWorkerAsksOpaque with the descriptor of a directory, and is answered 'y' or 'n': whether
// that has the attribute trusted.overlay.opaque, which only the host's root can read.
#pragma once

#include <cstddef>

namespace caisson::image {

inline constexpr int kWorkerReportFd = 3;
inline constexpr int kWorkerArchiveFd = 4;
inline constexpr int kWorkerDirectoryFd = 5;
inline constexpr int kWorkerLockFd = 6;
inline constexpr int kWorkerImageFd = 7;
inline constexpr int kWorkerMetadataFd = 8;

inline constexpr char kWorkerReady = 'N';
inline constexpr char kWorkerGo = 'M';
inline constexpr char kWorkerApply = 'A';
inline constexpr char kWorkerAgain = 'P';
inline constexpr char kWorkerFinish = 'Q';
inline constexpr char kWorkerDone = 'D';
inline constexpr char kWorkerRefused = 'R';
inline constexpr char kWorkerFailed = 'F';
inline constexpr char kWorkerError = 'E';
inline constexpr char kWorkerAsksOpaque = 'O';

inline constexpr std::size_t kMaxWorkerMessage = 4096;

}  // namespace caisson::image
