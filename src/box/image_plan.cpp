#include "box/image_plan.h"

namespace caisson::box {
namespace {

wall::PlanRoot plan_root(PlanDescriptors& descriptors, const image::ImageRoot& root,
                         std::uint32_t disk_base) {
  wall::PlanRoot planned{.fd = descriptors.add(root.fd.get())};
  if (root.mounted) {
    planned.form = wall::PlanImage::kMount;
    planned.file_fd = descriptors.add(root.file.get());
  } else {
    planned.id_base = disk_base;
  }
  return planned;
}

}  // namespace

std::vector<int> roots_of(const image::ImageRef* files) {
  std::vector<int> roots;
  if (files == nullptr) return roots;
  roots.push_back(files->root.fd.get());
  for (const image::OpenRootfs& lower : files->below) roots.push_back(lower.root.fd.get());
  return roots;
}

void add_image(wall::Plan& plan, PlanDescriptors& descriptors, const image::ImageRef* files) {
  if (files == nullptr) return;
  const wall::PlanRoot top = plan_root(descriptors, files->root, files->disk_base());
  plan.image = top.form;
  plan.image_fd = top.fd;
  plan.image_id_base = top.id_base;
  plan.image_file_fd = top.file_fd;
  static_assert(wall::kMaxPlanBelow + 1 == image::kMostStacked);
  for (const image::OpenRootfs& lower : files->below)
    plan.below.push_back(plan_root(descriptors, lower.root, lower.info.disk_base()));
}

void add_locks(PlanDescriptors& descriptors, const image::ImageRef* files) {
  if (files == nullptr || !files->in_use.valid()) return;
  descriptors.add(files->in_use.get());
  for (const image::OpenRootfs& lower : files->below) descriptors.add(lower.in_use.get());
}

}  // namespace caisson::box
