// What caisson-image-worker and the process that starts it agree on.
//
//   caisson-image-worker unpack LAYOUT ENTRIES BYTES RATIO SECONDS
//   caisson-image-worker remove NAME
//   caisson-image-worker pack ENTRIES BYTES SECONDS TRUSTED UID GID
//
// Descriptors: 3 the report socket (SOCK_SEQPACKET), 4 the archive's bytes (unpack), 5 the
// directory to work in, 6 the workspace's lock, only held. The worker makes its namespaces and says
// kWorkerReady; the other side writes the id maps and says kWorkerGo; the worker ends with one
// message: kWorkerDone and the report, kWorkerRefused and a sentence about the archive, or
// kWorkerFailed and a sentence about this host.
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

inline constexpr char kWorkerReady = 'N';
inline constexpr char kWorkerGo = 'M';
inline constexpr char kWorkerDone = 'D';
inline constexpr char kWorkerRefused = 'R';
inline constexpr char kWorkerFailed = 'F';
inline constexpr char kWorkerError = 'E';
inline constexpr char kWorkerAsksOpaque = 'O';

inline constexpr std::size_t kMaxWorkerMessage = 4096;

}  // namespace caisson::image
