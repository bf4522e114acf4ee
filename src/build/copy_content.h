// What a COPY takes, found and opened: files of the context, of a stage, of an image, or of an
// archive, which is unpacked into a workspace of the store first.
//
// find() gives the text that stands for the contents in the step's cache key; what is not needed
// for that is opened by open(), when the step is really done. All of it is borrowed from the store
// and the options, which must stay. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "build/builder.h"
#include "build/source.h"
#include "build/stage_files.h"
#include "build/stage_state.h"
#include "image/store.h"

namespace caisson::build {

// One source of a COPY that was opened.
struct CopyPart {
  // What the source's root descriptor needs to stay.
  std::optional<image::ImageRef> root;
  std::unique_ptr<StageFiles> files;
  std::optional<image::Workspace> unpacked;
  Fd unpacked_root;
  std::unique_ptr<Source> source;
  std::vector<SourceTree> trees;
  // Of the context: an archive that ADD unpacks. Its contents go into the destination.
  Fd archive;
  // SHA-256 of the archive that is unpacked: what is in the step's key is what is unpacked.
  std::string archive_digest;
};

class CopyContent {
 public:
  CopyContent(image::Store& store, const BuildOptions& options)
      : store_(store), options_(options) {}

  // `stage` is what is copied from, where that is a stage. Errors: what is the step's own fault
  // (not_found, invalid, …).
  Result<std::string> find(const CopyAction& action, StageFiles* stage,
                           std::vector<CopyPart>& parts);
  Status open(const CopyAction& action, StageFiles* stage, std::vector<CopyPart>& parts);
  // The id of the local image that a name in the Dockerfile means. Error: not_found.
  Result<std::string> find_image(const std::string& name) const;

 private:
  Result<std::string> find_in_context(const CopyAction& action, std::vector<CopyPart>& parts);
  // Error: not_found.
  Result<int> given_archive(const CopyAction& action) const;
  Result<image::ImageInfo> image_of(const CopyAction& action) const;
  Status find_in_root(const CopyAction& action, CopyPart& part, std::string what);
  // Unpacks an archive into a workspace, where it is what is copied from.
  Status unpack(int archive_fd, CopyPart& part);

  image::Store& store_;
  const BuildOptions& options_;
  const IgnoreRules everything_;
};

}  // namespace caisson::build
