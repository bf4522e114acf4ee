// libraries: policy
#include "spec_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  caisson::fuzz::check_document({reinterpret_cast<const char*>(data), size},
                                caisson::policy::Format::kYaml);
  return 0;
}
