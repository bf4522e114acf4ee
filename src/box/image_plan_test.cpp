#include "box/image_plan.h"

#include <caisson/spec.h>
#include <fcntl.h>
#include <gtest/gtest.h>

namespace caisson::box {
namespace {

Fd any() {
  return Fd(::open("/", O_PATH | O_CLOEXEC));
}

image::ImageRef image_over(unsigned lowers) {
  image::ImageRef image;
  image.rootfs.ids.layout = image::IdLayout::kShifted;
  image.rootfs.ids.uid_base = 7;
  image.root.fd = any();
  image.in_use = any();
  for (unsigned i = 0; i < lowers; ++i) {
    image::OpenRootfs& lower = image.below.emplace_back();
    lower.info.form = image::RootfsForm::kErofs;
    lower.root = {.fd = any(), .mounted = true, .file = any()};
    lower.in_use = any();
  }
  return image;
}

TEST(ImagePlan, NamesEveryRootWithItsFormAndIds) {
  const image::ImageRef image = image_over(2);
  wall::Plan plan;
  PlanDescriptors descriptors;
  add_image(plan, descriptors, &image);
  EXPECT_EQ(plan.image, wall::PlanImage::kDirectory);
  EXPECT_EQ(plan.image_id_base, 7u);
  ASSERT_EQ(plan.below.size(), 2u);
  const auto fd_of = [&](std::uint32_t number) { return descriptors.numbers()[number]; };
  EXPECT_EQ(fd_of(plan.image_fd), image.root.fd.get());
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(plan.below[i].form, wall::PlanImage::kMount);
    EXPECT_EQ(plan.below[i].id_base, 0u);
    EXPECT_EQ(fd_of(plan.below[i].fd), image.below[i].root.fd.get());
    EXPECT_EQ(fd_of(plan.below[i].file_fd), image.below[i].root.file.get());
  }
  EXPECT_EQ(roots_of(&image), (std::vector<int>{image.root.fd.get(), image.below[0].root.fd.get(),
                                                image.below[1].root.fd.get()}));
}

TEST(ImagePlan, TheLocksOfAllRootsTravelAlong) {
  const image::ImageRef image = image_over(2);
  PlanDescriptors descriptors;
  add_locks(descriptors, &image);
  const std::vector<int> sent(descriptors.numbers().begin(), descriptors.numbers().end());
  EXPECT_EQ(sent, (std::vector<int>{image.in_use.get(), image.below[0].in_use.get(),
                                    image.below[1].in_use.get()}));
}

TEST(ImagePlan, TheHostImageHasNothingOfThis) {
  wall::Plan plan;
  PlanDescriptors descriptors;
  add_image(plan, descriptors, nullptr);
  add_locks(descriptors, nullptr);
  EXPECT_EQ(plan.image, wall::PlanImage::kHost);
  EXPECT_TRUE(descriptors.numbers().empty());
  EXPECT_TRUE(roots_of(nullptr).empty());
}

// The most that there can be, with the most grants, fit into one plan.
TEST(ImagePlan, TheLargestStackFitsBesideTheMostGrants) {
  const std::size_t image = 3 * image::kMostStacked;
  EXPECT_LE(image + policy::kMaxGrants + 2, wall::kMaxPlanDescriptors);
}

}  // namespace
}  // namespace caisson::box
