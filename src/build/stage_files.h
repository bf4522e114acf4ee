// The files of a stage while its layers are added one by one.
//
// As long as nothing was added they are those of an image of the store, used where they are. With
// the first layer of its own the stage gets a workspace of the store, in which a worker has applied
// every layer so far; each further layer is applied there once. At the end the workspace becomes
// the image's root file system in the store. One thread; `store` is borrowed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "image/erofs_copy.h"
#include "image/rootfs_worker.h"
#include "image/store.h"

namespace caisson::build {

class StageFiles {
 public:
  StageFiles(image::Store& store, const image::UnpackLimits& limits)
      : store_(store), limits_(limits) {}
  StageFiles(StageFiles&&) = default;
  ~StageFiles();

  // The layers of `image_id`, an image of the store with or without a root file system; empty: none
  // (FROM scratch). What was applied already is used again where these layers begin with it.
  Status set(std::vector<image::LayerRef> layers, std::string image_id);
  const std::vector<image::LayerRef>& layers() const { return layers_; }
  // Whose files these are: the chain of the layers.
  std::string chain() const { return image::chain_id(layers_); }

  // The files, for one sandbox or for reading; valid until the next add(). Without the image's
  // configuration, whose volumes and users mean nothing to a build.
  Result<image::ImageRef> open();
  // One more layer, whose blob is in the store.
  void add(image::LayerRef layer) { layers_.push_back(std::move(layer)); }

  // Makes them an image, with its root file system. Nothing else may be called afterwards.
  Result<image::ImageInfo> finish(const image::ImageContent& content);

 private:
  struct Session {
    image::Workspace workspace;
    image::RootfsWorker worker;
    image::RootfsInfo rootfs;
    std::vector<image::LayerRef> applied;
    image::ErofsCopy copy;  // what steps mount
  };
  Status catch_up();
  Status discard();

  image::Store& store_;
  image::UnpackLimits limits_;
  std::vector<image::LayerRef> layers_;
  std::string image_id_;
  std::unique_ptr<Session> session_;
};

}  // namespace caisson::build
