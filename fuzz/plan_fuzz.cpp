// libraries: wall
//
// The launch plan: the first byte is the number of descriptors, the rest the plan.
#include "policy/inside_path.h"
#include "wall/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto plan = caisson::wall::decode_plan(bytes, data[0]);
  if (!plan.has_value()) {
    VERIFY(plan.error().message().starts_with("plan: "));
    return 0;
  }
  VERIFY(plan->below.size() <= caisson::wall::kMaxPlanBelow);
  for (const auto& root : caisson::wall::image_roots(*plan)) {
    VERIFY(root.fd < data[0]);
    VERIFY(root.form != caisson::wall::PlanImage::kMount || root.file_fd < data[0]);
  }
  for (const auto& grant : plan->grants) {
    VERIFY(grant.fd < data[0]);
    VERIFY(caisson::policy::target_fault(grant.to).empty());
  }
  // One reading, one writing.
  VERIFY(caisson::wall::encode(*plan) == bytes);
  return 0;
}
