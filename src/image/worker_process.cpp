#include "image/worker_process.h"

#include <array>

#include "image/worker_client.h"
#include "image/worker_protocol.h"

namespace caisson::image {

Status remove_by_worker(int directory_fd, const std::string& name, const IdMapping& ids) {
  constexpr auto kLimit = std::chrono::minutes(15);
  WorkerClient worker;
  const std::array<int, 2> descriptors = {-1, directory_fd};
  TRY(worker.start({"remove", name}, descriptors, ids, kLimit));
  TRY(worker.expect(kWorkerDone, kLimit));
  return {};
}

}  // namespace caisson::image
