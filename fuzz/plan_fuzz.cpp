// libraries: wall
// parser: src/wall/plan.cpp src/policy/inside_path.cpp
//
// The launch plan: the first byte is the number of descriptors, the rest the plan.
#include "policy/inside_path.h"
#include "wall/plan.h"

namespace {

bool is_id(std::string_view text) {
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == text.npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (!caisson::wall::check_id(bytes).has_value()) VERIFY(bytes.size() != 8 || !is_id(bytes));
  const auto plan = caisson::wall::decode_plan(bytes, data[0]);
  if (!plan.has_value()) {
    VERIFY(plan.error().message().starts_with("plan: "));
    return 0;
  }
  VERIFY(caisson::wall::check_id(plan->id).has_value());
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
