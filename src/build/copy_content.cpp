#include "build/copy_content.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "image/reference.h"
#include "image/registry/names.h"

namespace caisson::build {
namespace {

using image::printable;

Status find_trees(const std::vector<std::string>& patterns, const Source& source,
                  std::vector<SourceTree>& trees) {
  for (const std::string& pattern : patterns) {
    TRY_ASSIGN(const std::vector<std::string> paths, source.match(pattern));
    if (paths.empty())
      return fail(Error::not_found("nothing matches '" + printable(pattern) + "'"));
    for (const std::string& path : paths) {
      TRY_ASSIGN(SourceTree tree, source.look(path));
      trees.push_back(std::move(tree));
    }
  }
  return {};
}

}  // namespace

namespace {

// SHA-256 of a regular file's bytes.
Result<std::string> digest_of(int file_fd) {
  Sha256 hash;
  std::string buffer(128 * 1024, '\0');
  for (off_t at = 0;;) {
    const ssize_t count = TEMP_FAILURE_RETRY(::pread(file_fd, buffer.data(), buffer.size(), at));
    if (count < 0) return fail_errno("read the archive");
    if (count == 0) return hash.finish();
    hash.update({buffer.data(), static_cast<std::size_t>(count)});
    at += count;
  }
}

}  // namespace

Result<std::string> CopyContent::find(const CopyAction& action, StageFiles* stage,
                                      std::vector<CopyPart>& parts) {
  switch (action.from) {
    case CopyStep::From::kContext:
      return find_in_context(action, parts);
    case CopyStep::From::kStage:
      return "stage:" + stage->chain();
    case CopyStep::From::kImage: {
      TRY_ASSIGN(const image::ImageInfo info, image_of(action));
      return "image:" + info.record.chain;
    }
    case CopyStep::From::kArchive: {
      // The bytes count, not what whoever handed them in calls them.
      TRY_ASSIGN(const int file, given_archive(action));
      TRY_ASSIGN(std::string digest, digest_of(file));
      parts.emplace_back().archive_digest = digest;
      return "archive:" + digest;
    }
  }
  return std::string();
}

Result<int> CopyContent::given_archive(const CopyAction& action) const {
  const auto given = options_.archives.find(action.archive);
  if (given != options_.archives.end()) return given->second;
  return fail(
      Error::not_found("the files '" + printable(action.archive, 80) + "' were not handed in"));
}

Result<std::string> CopyContent::find_image(const std::string& name) const {
  TRY_ASSIGN(const std::string local, image::local_name(name, options_.settings));
  auto id = store_.find(local);
  if (!id.has_value()) return fail(image::with_pull_hint(std::move(id).error(), local));
  return id;
}

Result<image::ImageInfo> CopyContent::image_of(const CopyAction& action) const {
  auto id = find_image(action.image);
  if (!id.has_value()) return fail(std::move(id).error().with("--from=" + printable(action.image)));
  return store_.info(*id);
}

Status CopyContent::open(const CopyAction& action, StageFiles* stage,
                         std::vector<CopyPart>& parts) {
  if (action.from == CopyStep::From::kContext) {
    for (CopyPart& part : parts) {
      if (!part.archive.valid()) continue;
      TRY(unpack(part.archive.get(), part));
      TRY(find_trees({""}, *part.source, part.trees));
    }
    return {};
  }
  if (action.from == CopyStep::From::kArchive) {
    TRY_ASSIGN(const int file, given_archive(action));
    CopyPart& part = parts.front();
    TRY(unpack(file, part));
    return find_trees(action.sources, *part.source, part.trees);
  }
  CopyPart& part = parts.emplace_back();
  if (action.from == CopyStep::From::kStage) {
    TRY_ASSIGN(part.root, stage->open());
    return find_in_root(action, part, "the stage");
  }
  TRY_ASSIGN(const image::ImageInfo info, image_of(action));
  part.files = std::make_unique<StageFiles>(store_, options_.unpack);
  TRY(part.files->set(info.record.layers, info.record.id));
  TRY_ASSIGN(part.root, part.files->open());
  return find_in_root(action, part, "the image " + action.image);
}

Status CopyContent::find_in_root(const CopyAction& action, CopyPart& part, std::string what) {
  part.source = std::make_unique<Source>(part.root->root.fd.get(), Source::Links::kInRoot,
                                         everything_, std::move(what));
  part.source->keep_owners(part.root->rootfs.form == image::RootfsForm::kErofs
                               ? std::nullopt
                               : std::optional(part.root->rootfs.ids));
  return find_trees(action.sources, *part.source, part.trees);
}

Result<std::string> CopyContent::find_in_context(const CopyAction& action,
                                                 std::vector<CopyPart>& parts) {
  if (action.sources.empty()) return std::string("texts");
  if (options_.context_fd < 0) return fail(Error::invalid("there is no context to copy from"));
  std::vector<SourceTree> trees;
  const auto context = [&] {
    return std::make_unique<Source>(options_.context_fd, Source::Links::kBeneath, options_.ignore,
                                    "the context");
  };
  std::unique_ptr<Source> source = context();
  TRY(find_trees(action.sources, *source, trees));
  TRY_ASSIGN(std::string digest, digest_trees(*source, trees));
  for (SourceTree& tree : trees) {
    if (action.unpack && !tree.is_directory()) {
      TRY_ASSIGN(Fd file, source->open(tree, tree.entries[0]));
      TRY_ASSIGN(const bool archive, is_archive(tree.name, file.get()));
      if (archive) {
        parts.emplace_back();
        TRY_ASSIGN(parts.back().archive_digest, digest_of(file.get()));
        digest += "+" + parts.back().archive_digest;
        parts.back().archive = std::move(file);
        continue;
      }
    }
    if (parts.empty() || parts.back().archive.valid()) {
      parts.emplace_back();
      parts.back().source = context();
    }
    parts.back().trees.push_back(std::move(tree));
  }
  return digest;
}

Status CopyContent::unpack(int archive_fd, CopyPart& part) {
  TRY_ASSIGN(part.unpacked, store_.make_workspace());
  image::IdMapping ids = image::mapping_of_caller();
  // An ordinary user could not read what belongs to the ids of its range.
  if (ids.layout != image::IdLayout::kShifted) {
    ids.layout = image::IdLayout::kSingle;
    ids.uid_base = ids.own_uid;
    ids.gid_base = ids.own_gid;
  }
  TRY_ASSIGN(
      image::RootfsWorker worker,
      image::RootfsWorker::start(image::RootfsForm::kDirectory, part.unpacked->directory_fd(),
                                 part.unpacked->lock_fd(), ids, options_.unpack));
  // Whoever changes the file meanwhile is found out: data_loss.
  TRY(worker.apply(archive_fd, {.blob = {.digest = part.archive_digest}}));
  TRY(worker.finish());
  TRY_ASSIGN(part.unpacked_root,
             sys::openat2(part.unpacked->directory_fd(), image::kDirectoryName,
                          O_PATH | O_DIRECTORY | O_CLOEXEC, 0, RESOLVE_BENEATH));
  part.source = std::make_unique<Source>(part.unpacked_root.get(), Source::Links::kAsTheyAre,
                                         everything_, "the archive");
  part.source->keep_owners(ids);
  return {};
}

}  // namespace caisson::build
