#include "image/store_steps.h"

#if defined(CAISSON_TEST_SWITCHES)
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace caisson::image {

Status enter_store_step(std::string_view name) {
  VERIFY(std::ranges::find(kStoreSteps, name) != kStoreSteps.end());
  const char* fault = std::getenv("CAISSON_FAULT");
  if (fault == nullptr) return {};
  if (fault == std::string(name) + ":kill") raise(SIGKILL);
  if (fault == std::string(name) + ":fail") {
    return fail(Error::internal(std::string(name) + ": fault injected"));
  }
  return {};
}

}  // namespace caisson::image
#endif
