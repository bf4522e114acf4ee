// libraries: policy
// parser: src/policy/document.cpp src/policy/read_node.cpp src/policy/yaml.cpp
// parser: src/policy/yaml_text.cpp src/policy/print.cpp src/policy/spec.cpp src/policy/complain.cpp
#include "spec_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  caisson::fuzz::check_document({reinterpret_cast<const char*>(data), size},
                                caisson::policy::Format::kYaml);
  return 0;
}
