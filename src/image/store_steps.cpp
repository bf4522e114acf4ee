#include "image/store_steps.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace caisson::image {

Status enter_store_step(std::string_view name) {
  VERIFY(std::ranges::find(kStoreSteps, name) != kStoreSteps.end());
#if defined(CAISSON_TEST_SWITCHES)
  const char* fault = std::getenv("CAISSON_FAULT");
  if (fault == nullptr) return {};
  if (fault == std::string(name) + ":kill") raise(SIGKILL);
  if (fault == std::string(name) + ":fail") {
    return fail(Error::internal(std::string(name) + ": fault injected"));
  }
#endif
  return {};
}

}  // namespace caisson::image
