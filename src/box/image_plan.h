// An opened image as a launch plan has it: its root directories with the descriptors that travel
// along, and the locks that keep their files in place. Pure but for the descriptors, which are
// borrowed. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "image/store.h"
#include "wall/plan.h"

namespace caisson::box {

// Descriptors of a plan: kept open until it was sent.
class PlanDescriptors {
 public:
  std::uint32_t add(int fd) {
    numbers_.push_back(fd);
    return static_cast<std::uint32_t>(numbers_.size() - 1);
  }
  std::span<const int> numbers() const { return numbers_; }

 private:
  std::vector<int> numbers_;
};

// `files` is nullptr for the host image, which has nothing of this.

// The root directories, the uppermost first.
std::vector<int> roots_of(const image::ImageRef* files);
void add_image(wall::Plan& plan, PlanDescriptors& descriptors, const image::ImageRef* files);
// The locks are not named by the plan: the launcher keeps them for as long as the sandbox lives.
void add_locks(PlanDescriptors& descriptors, const image::ImageRef* files);

}  // namespace caisson::box
