// What caisson-image-worker and the process that starts it agree on.
//
//   caisson-image-worker unpack LAYOUT ENTRIES BYTES RATIO SECONDS
//   caisson-image-worker remove NAME
//
// Descriptors: 3 the report socket (SOCK_SEQPACKET), 4 the archive's bytes (unpack), 5 the
// directory to work in, 6 the workspace's lock, only held. The worker makes its namespaces and says
// kWorkerReady; the other side writes the id maps and says kWorkerGo; the worker ends with one
// message: kWorkerDone and the report, kWorkerRefused and a sentence about the archive, or
// kWorkerFailed and a sentence about this host.
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

inline constexpr std::size_t kMaxWorkerMessage = 4096;

}  // namespace caisson::image
