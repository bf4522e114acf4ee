#include "build/stage_files.h"

#include <algorithm>
#include <utility>

namespace caisson::build {
namespace {

bool begins_with(const std::vector<image::LayerRef>& layers,
                 const std::vector<image::LayerRef>& start) {
  return start.size() <= layers.size() &&
         std::equal(start.begin(), start.end(), layers.begin(),
                    [](const image::LayerRef& one, const image::LayerRef& other) {
                      return one.diff_id == other.diff_id;
                    });
}

}  // namespace

StageFiles::~StageFiles() {
  // What cannot be removed now is a sweep's.
  static_cast<void>(discard());
}

Status StageFiles::discard() {
  if (session_ == nullptr) return {};
  image::Workspace workspace = std::move(session_->workspace);
  session_.reset();
  return store_.discard(std::move(workspace));
}

Status StageFiles::set(std::vector<image::LayerRef> layers, std::string image_id) {
  layers_ = std::move(layers);
  image_id_ = std::move(image_id);
  if (session_ != nullptr && !begins_with(layers_, session_->applied)) return discard();
  return {};
}

Status StageFiles::catch_up() {
  if (session_ == nullptr) {
    TRY_ASSIGN(image::Workspace workspace, store_.make_workspace());
    image::RootfsInfo rootfs;
    TRY_ASSIGN(rootfs.form, store_.preferred_form());
    rootfs.ids = image::mapping_of_caller();
    TRY_ASSIGN(image::RootfsWorker worker,
               image::RootfsWorker::start(rootfs.form, workspace.directory_fd(),
                                          workspace.lock_fd(), rootfs.ids, limits_));
    session_ = std::make_unique<Session>(std::move(workspace), std::move(worker), std::move(rootfs),
                                         std::vector<image::LayerRef>(), image::ErofsCopy());
  } else if (session_->applied.size() == layers_.size()) {
    return {};
  }
  for (std::size_t at = session_->applied.size(); at < layers_.size(); ++at) {
    TRY_ASSIGN(const Fd blob, store_.open_blob(layers_[at].blob.digest));
    TRY(session_->worker.apply(blob.get(), layers_[at]));
    store_.vouch(layers_[at]);
    session_->applied.push_back(layers_[at]);
  }
  TRY_ASSIGN(const image::RootfsReport report, session_->worker.finish());
  session_->rootfs.entries = report.entries;
  session_->rootfs.bytes = report.bytes;
  session_->rootfs.disk_bytes =
      session_->rootfs.form == image::RootfsForm::kErofs ? report.size : report.bytes;
  return {};
}

Result<image::ImageRef> StageFiles::open() {
  if (session_ == nullptr && !image_id_.empty() && store_.has_whole_rootfs(chain())) {
    TRY_ASSIGN(const image::ImageInfo info, store_.info(image_id_));
    if (info.record.chain == chain()) {
      TRY_ASSIGN(image::ImageRef ref, store_.resolve("sha256:" + image_id_));
      ref.config = {};
      ref.config_json.clear();
      return ref;
    }
  }
  if (auto ready = catch_up(); !ready.has_value()) {
    static_cast<void>(discard());
    return fail(std::move(ready).error());
  }
  image::ImageRef ref;
  ref.name = "build";
  ref.record.chain = chain();
  ref.rootfs = session_->rootfs;
  const int directory_fd = session_->workspace.directory_fd();
  if (session_->rootfs.form == image::RootfsForm::kErofs) {
    // The worker lives on and could write its file while the kernel reads it.
    TRY_ASSIGN(Fd copy, session_->copy.update(directory_fd));
    TRY_ASSIGN(ref.root, image::mount_root(std::move(copy)));
  } else {
    TRY_ASSIGN(ref.root, image::open_root(directory_fd));
  }
  return ref;
}

Result<image::ImageInfo> StageFiles::finish(const image::ImageContent& content) {
  if (session_ == nullptr || store_.has_rootfs(chain())) {
    TRY(discard());
    return store_.add_image(content, limits_);
  }
  TRY(catch_up());
  image::Workspace workspace = std::move(session_->workspace);
  image::RootfsInfo rootfs = session_->rootfs;
  // The worker ends before its files are moved.
  session_.reset();
  return store_.add_image(content, std::move(workspace), std::move(rootfs));
}

}  // namespace caisson::build
