// Adding images to the store: the root file system of a chain, then the record, which makes the
// image visible to names.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "image/erofs_check.h"
#include "image/files.h"
#include "image/rootfs_worker.h"
#include "image/store.h"
#include "image/store_steps.h"
#include "policy/settings.h"

namespace caisson::image {
namespace {

std::uint64_t disk_bytes_of(int directory_fd, const char* name) {
  struct stat status = {};
  if (fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

}  // namespace

Status Store::begin_adding() {
  if (adding_.valid()) return {};
  TRY(say_format());
  TRY_ASSIGN(std::optional<Fd> held,
             lock_file_at(directory_.get(), "work", LockKind::kShared, LockWait::kWait));
  // From now on a sweep has to look at everything.
  if (ftruncate(held->get(), 0) != 0) return fail_errno("truncate work");
  adding_ = std::move(*held);
  return enter_store_step("store-begin");
}

Result<Workspace> Store::make_workspace() {
  TRY(begin_adding());
  TRY_ASSIGN(const int tmp, folder(Folder::kTmp));
  Workspace workspace;
  workspace.name_ = random_name();
  TRY_ASSIGN(workspace.directory_, open_or_make_directory_at(tmp, workspace.name_));
  TRY(enter_store_step("store-workspace"));
  TRY_ASSIGN(std::optional<Fd> own, lock_file_at(workspace.directory_.get(), "lock",
                                                 LockKind::kExclusive, LockWait::kTry));
  VERIFY(own.has_value());  // nobody sweeps meanwhile, and nobody else knows the name
  workspace.lock_ = std::move(*own);
  return workspace;
}

Status Store::discard(Workspace workspace) {
  return remove_from_tmp(workspace.name_);
}

Result<Fd> Store::lock_work(const std::string& name) {
  TRY(begin_adding());
  TRY_ASSIGN(const int tmp, folder(Folder::kTmp));
  TRY_ASSIGN(std::optional<Fd> held,
             lock_file_at(tmp, "work." + name, LockKind::kExclusive, LockWait::kWait));
  return std::move(*held);
}

Result<RootfsForm> Store::preferred_form() {
  TRY_ASSIGN(const policy::Settings settings, policy::load_settings());
  if (settings.image_form == policy::ImageForm::kDirectory) return RootfsForm::kDirectory;
  if (mounts_erofs()) return RootfsForm::kErofs;
  return fail(Error::precondition(
      "image_form: erofs: such a file cannot be mounted here (`caisson doctor` says why); allowed "
      "is directory"));
}

bool Store::mounts_erofs() {
  return known_mounts(directory_.get()).mounts_erofs();
}

Status Store::check_content(const ImageContent& content) {
  TRY_ASSIGN(const ImageConfig config, parse_image_config(content.config));
  if (config.diff_ids.size() != content.layers.size()) {
    return fail(Error::invalid("the image's config lists " +
                               std::to_string(config.diff_ids.size()) + " layers, and there are " +
                               std::to_string(content.layers.size())));
  }
  TRY_ASSIGN(const int blobs, folder(Folder::kBlobs));
  for (std::size_t i = 0; i < content.layers.size(); ++i) {
    const LayerRef& layer = content.layers[i];
    if (config.diff_ids[i] != layer.diff_id) {
      return fail(Error::invalid("layer " + std::to_string(i + 1) + " is sha256:" + layer.diff_id +
                                 " and the image's config says sha256:" + config.diff_ids[i]));
    }
    struct stat status = {};
    if (!is_sha256(layer.blob.digest) ||
        fstatat(blobs, layer.blob.digest.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      return fail(Error::not_found("layer " + std::to_string(i + 1) + ": no blob sha256:" +
                                   printable(layer.blob.digest) + " in the store"));
    }
    if (static_cast<std::uint64_t>(status.st_size) != layer.blob.size) {
      return fail(Error::invalid("layer " + std::to_string(i + 1) + " has " +
                                 std::to_string(status.st_size) + " bytes, its descriptor says " +
                                 std::to_string(layer.blob.size)));
    }
  }
  return {};
}

void Store::vouch(const LayerRef& layer) {
  vouched_.emplace(layer.blob.digest, layer.diff_id);
}

// The layers of which nobody has seen that the blob, uncompressed, has the diff_id.
Result<std::vector<LayerRef>> Store::unverified(const ImageContent& content) {
  std::set<std::pair<std::string, std::string>> wanted;
  for (const LayerRef& layer : content.layers) {
    wanted.emplace(layer.blob.digest, layer.diff_id);
  }
  std::erase_if(wanted, [&](const auto& pair) { return vouched_.contains(pair); });
  std::vector<LayerRef> left;
  if (wanted.empty()) return left;
  TRY_ASSIGN(const int ids, folder(Folder::kIds));
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(ids));
  for (const std::string& id : all) {
    if (wanted.empty()) return left;
    const auto record = read_record(id);
    if (!record.has_value()) continue;  // removed since, or damaged
    for (const LayerRef& layer : record->layers) {
      wanted.erase({layer.blob.digest, layer.diff_id});
    }
  }
  for (const LayerRef& layer : content.layers) {
    if (wanted.erase({layer.blob.digest, layer.diff_id}) > 0) left.push_back(layer);
  }
  return left;
}

// A chain that is here says nothing of the blobs that another image claims to be made of. Without
// this, an image could claim any blob for its layers' diff_ids.
Status Store::verify_layers(const ImageContent& content, const UnpackLimits& limits,
                            const Progress& progress) {
  TRY_ASSIGN(const std::vector<LayerRef> layers, unverified(content));
  if (layers.empty()) return {};
  TRY_ASSIGN(RootfsWorker worker, RootfsWorker::start_check(-1, mapping_of_caller(), limits));
  std::uint64_t total = 0, before = 0;
  for (const LayerRef& layer : layers) total += layer.blob.size;
  for (const LayerRef& layer : layers) {
    TRY_ASSIGN(const Fd blob, open_blob(layer.blob.digest));
    auto read = worker.apply(blob.get(), layer, [&](std::uint64_t done, std::uint64_t) {
      if (progress) progress(before + done, total);
    });
    if (!read.has_value()) {
      return fail(std::move(read).error().with("layer sha256:" + layer.blob.digest));
    }
    before += layer.blob.size;
    vouch(layer);
  }
  return {};
}

// Whether all of it is here, in forms that this process can use.
bool Store::is_usable(const std::vector<RootfsInfo>& stack) {
  if (stack.empty() || stack.size() > kMostStacked || !stack.back().below.empty()) return false;
  const IdMapping caller = mapping_of_caller();
  return std::ranges::all_of(stack, [&](const RootfsInfo& info) {
    return info.ids == caller && (info.form == RootfsForm::kDirectory || mounts_erofs());
  });
}

// Whether the chain is here in a form that this process can use. Another one makes way.
Result<bool> Store::has_usable_rootfs(const std::string& chain) {
  // What cannot be read makes way.
  const auto stack = stack_of(chain);
  if (stack.has_value() && is_usable(*stack)) return true;
  const auto info = read_rootfs(chain);
  if (!info.has_value() && info.error().code() == Code::kNotFound && !has_rootfs(chain)) {
    return false;
  }
  TRY(make_way(chain));
  if (has_rootfs(chain)) {
    return fail(Error::precondition(
        "the same image, unpacked in a way that is of no use any more, is in use; end its "
        "sandboxes first"));
  }
  return false;
}

Result<RootfsInfo> Store::flatten(const ImageContent& content, const Workspace& workspace,
                                  const UnpackLimits& limits, const Progress& progress) {
  RootfsInfo rootfs{.ids = mapping_of_caller()};
  TRY_ASSIGN(rootfs.form, preferred_form());
  TRY_ASSIGN(RootfsWorker worker, RootfsWorker::start(rootfs.form, workspace.directory_fd(),
                                                      workspace.lock_fd(), rootfs.ids, limits));
  std::uint64_t total = 0, before = 0;
  for (const LayerRef& layer : content.layers) total += layer.blob.size;
  for (std::size_t i = 0; i < content.layers.size(); ++i) {
    const LayerRef& layer = content.layers[i];
    TRY_ASSIGN(const Fd blob, open_blob(layer.blob.digest));
    auto applied = worker.apply(blob.get(), layer, [&](std::uint64_t done, std::uint64_t) {
      if (progress) progress(before + done, total);
    });
    if (!applied.has_value()) {
      if (content.layers.size() == 1) return fail(std::move(applied).error());
      return fail(std::move(applied).error().with("layer " + std::to_string(i + 1)));
    }
    before += layer.blob.size;
    vouch(layer);
  }
  TRY_ASSIGN(const RootfsReport report, worker.finish());
  TRY(enter_store_step("store-unpack"));
  rootfs.entries = report.entries;
  rootfs.bytes = report.bytes;
  return rootfs;
}

// The last layer alone.
Result<RootfsInfo> Store::make_delta(const ImageContent& content, RootfsForm form,
                                     const RootfsInfo& below, const Workspace& workspace,
                                     const UnpackLimits& limits, const Progress& progress) {
  RootfsInfo rootfs{.below = below.chain, .form = form, .ids = mapping_of_caller()};
  TRY_ASSIGN(const Fd directory, open_directory_at(directory_.get(), "rootfs/" + below.chain));
  TRY_ASSIGN(const ImageRoot base, open_root(directory.get()));
  struct stat root = {};
  if (fstat(base.fd.get(), &root) != 0) return fail_errno("stat the root that lies below");
  TRY_ASSIGN(RootfsWorker worker,
             RootfsWorker::start_delta(rootfs.form, workspace.directory_fd(), workspace.lock_fd(),
                                       rootfs.ids, limits, root.st_mode & 07777));
  const LayerRef& layer = content.layers.back();
  TRY_ASSIGN(const Fd blob, open_blob(layer.blob.digest));
  TRY(worker.apply(blob.get(), layer, progress));
  vouch(layer);
  TRY_ASSIGN(const RootfsReport report, worker.finish());
  TRY(enter_store_step("store-unpack"));
  rootfs.entries = report.entries;
  rootfs.bytes = report.bytes;
  return rootfs;
}

// False: it cannot be so, and nothing was made.
Result<bool> Store::delta_into_place(const ImageContent& content, const std::string& chain,
                                     const std::string& below, const UnpackLimits& limits,
                                     const Progress& progress) {
  TRY_ASSIGN(const std::vector<RootfsInfo> stack, stack_of(below));
  if (!is_usable(stack) || stack.size() == kMostStacked) return false;
  TRY_ASSIGN(const RootfsForm form, preferred_form());
  if (form == RootfsForm::kErofs && !known_mounts(directory_.get()).attributes) return false;
  TRY_ASSIGN(Workspace workspace, make_workspace());
  auto rootfs = make_delta(content, form, stack.front(), workspace, limits, progress);
  if (!rootfs.has_value()) {
    if (!discard(std::move(workspace)).has_value()) errno = 0;
    // Flattening says what is wrong with a layer that is bad in itself; and there are file systems
    // that take no marks of an overlay.
    switch (rootfs.error().code()) {
      case Code::kInvalidArgument:
      case Code::kPermissionDenied:
      case Code::kUnimplemented:
        return false;
      default:
        return fail(std::move(rootfs).error());
    }
  }
  rootfs->chain = chain;
  TRY(place_or_discard(std::move(workspace), std::move(*rootfs)));
  return true;
}

Status Store::place_rootfs(const Workspace& workspace, RootfsInfo rootfs) {
  if (rootfs.form == RootfsForm::kErofs) {
    const Fd file(openat(workspace.directory_fd(), kErofsName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file.valid()) return fail_errno("open the root file system");
    // Root's kernel will parse it. Its worker has ended, so it stays what is checked here.
    TRY(expect_no_writer(file.get()));
    TRY(check_erofs(file.get(), rootfs.below.empty() ? RootfsKind::kWhole : RootfsKind::kDelta));
    if (fsync(file.get()) != 0) return fail_errno("fsync the root file system");
    rootfs.disk_bytes = disk_bytes_of(workspace.directory_fd(), kErofsName);
  }
  TRY(replace_file_at(workspace.directory_fd(), "info", rootfs.encode()));
  // Now, so that it can be removed from a disk that is full.
  TRY(lock_file_at(workspace.directory_fd(), "use", LockKind::kShared, LockWait::kTry));
  TRY(enter_store_step("store-info"));
  TRY_ASSIGN(Fd root, open_directory_at(workspace.directory_fd(), "."));
  // One call for the whole file system is far cheaper than one for each of ten thousand files.
  if (rootfs.form == RootfsForm::kDirectory && syncfs(root.get()) != 0) return fail_errno("syncfs");
  TRY_ASSIGN(const int tmp, folder(Folder::kTmp));
  TRY_ASSIGN(const int chains, folder(Folder::kRootfs));
  TRY(enter_store_step("store-move"));
  TRY_ASSIGN(Fd held, lock());
  if (renameat2(tmp, workspace.name_.c_str(), chains, rootfs.chain.c_str(), RENAME_NOREPLACE) !=
      0) {
    return fail_errno("move the root file system into place");
  }
  TRY(enter_store_step("store-moved"));
  unlinkat(workspace.directory_fd(), "lock", 0);
  if (fsync(chains) != 0) return fail_errno("fsync rootfs");
  return {};
}

Status Store::place_or_discard(Workspace workspace, RootfsInfo rootfs) {
  auto placed = place_rootfs(workspace, std::move(rootfs));
  // What cannot be removed now is invisible, and swept later.
  if (!placed.has_value() && !discard(std::move(workspace)).has_value()) errno = 0;
  return placed;
}

// A root file system that nobody can use is removed, unless a sandbox does use it.
Status Store::make_way(const std::string& chain) {
  TRY_ASSIGN(const int chains, folder(Folder::kRootfs));
  TRY_ASSIGN(Fd held, lock());
  TRY_ASSIGN([[maybe_unused]] const bool gone, retire(chains, chain));
  return {};
}

// The record of the same image with all its blobs, which one of no manifest need not replace: it
// may differ only in how the layers are packed.
std::optional<ImageRecord> Store::whole_record(const std::string& image_id) {
  auto record = read_record(image_id);
  if (!record.has_value() || (!record->manifest.empty() && !has_blob(record->manifest))) {
    return std::nullopt;
  }
  for (const LayerRef& layer : record->layers) {
    if (!has_blob(layer.blob.digest)) return std::nullopt;
  }
  return std::move(*record);
}

Status Store::add_rootfs(ImageInfo& info) {
  TRY_ASSIGN(std::vector<RootfsInfo> stack, stack_of(info.record.chain));
  if (stack.empty()) return {};
  info.rootfs = std::move(stack.front());
  stack.erase(stack.begin());
  info.below = std::move(stack);
  return {};
}

Result<ImageInfo> Store::write_record(const ImageContent& content) {
  ImageInfo info;
  TRY_ASSIGN(info.record.id, put_blob(content.config));
  if (auto known = whole_record(info.record.id); known && content.manifest.empty()) {
    info.record = std::move(*known);
    TRY(add_rootfs(info));
    return info;
  }
  if (!content.manifest.empty()) {
    TRY_ASSIGN(info.record.manifest, put_blob(content.manifest));
  }
  info.record.chain = chain_id(content.layers);
  info.record.config_size = content.config.size();
  info.record.layers = content.layers;
  TRY_ASSIGN(const int ids, folder(Folder::kIds));
  TRY_ASSIGN(const int partial, folder(Folder::kPartial));
  TRY(enter_store_step("store-record"));
  {
    TRY_ASSIGN(Fd held, lock());
    TRY(replace_file_at(ids, info.record.id, info.record.encode()));
    // From now on the record keeps them.
    auto unmark = [&](const std::string& digest) {
      unlinkat(partial, (digest + ".kept").c_str(), 0);
    };
    unmark(info.record.id);
    if (!info.record.manifest.empty()) unmark(info.record.manifest);
    for (const LayerRef& layer : info.record.layers) unmark(layer.blob.digest);
  }
  TRY(add_rootfs(info));
  return info;
}

Status Store::flatten_into_place(const ImageContent& content, const std::string& chain,
                                 const UnpackLimits& limits, const Progress& progress) {
  TRY_ASSIGN(Workspace workspace, make_workspace());
  auto rootfs = flatten(content, workspace, limits, progress);
  if (!rootfs.has_value()) {
    if (!discard(std::move(workspace)).has_value()) errno = 0;
    return fail(std::move(rootfs).error());
  }
  rootfs->chain = chain;
  return place_or_discard(std::move(workspace), std::move(*rootfs));
}

Result<ImageInfo> Store::add_record(const ImageContent& content) {
  TRY(begin_adding());
  TRY(check_content(content));
  TRY(verify_layers(content, {}, {}));
  return write_record(content);
}

Result<ImageInfo> Store::add_image(const ImageContent& content, const UnpackLimits& limits,
                                   const Progress& progress) {
  TRY(begin_adding());
  TRY(check_content(content));
  const std::string chain = chain_id(content.layers);
  // From here on the same chain is flattened once: whoever waits finds it done.
  TRY_ASSIGN(Fd turn, lock_work(chain));
  TRY_ASSIGN(const bool usable, has_usable_rootfs(chain));
  if (usable) {
    TRY(verify_layers(content, limits, progress));
  } else {
    TRY(flatten_into_place(content, chain, limits, progress));
  }
  TRY_ASSIGN(ImageInfo info, write_record(content));
  info.flattened = !usable;
  return info;
}

Result<ImageInfo> Store::add_image_over(const std::string& base_image_id,
                                        const ImageContent& content, const UnpackLimits& limits,
                                        const Progress& progress) {
  TRY(begin_adding());
  TRY(check_content(content));
  TRY_ASSIGN(const ImageInfo base, info(base_image_id));
  std::vector<LayerRef> lower = content.layers;
  if (!lower.empty()) lower.pop_back();
  if (content.layers.empty() || chain_id(lower) != base.record.chain) {
    return fail(Error::invalid(
        "the image's layers are not those of the image sha256:" + base_image_id + " and one more"));
  }
  const std::string chain = chain_id(content.layers);
  TRY_ASSIGN(Fd turn, lock_work(chain));
  TRY_ASSIGN(const bool usable, has_usable_rootfs(chain));
  if (!usable) {
    TRY_ASSIGN(const bool placed,
               delta_into_place(content, chain, base.record.chain, limits, progress));
    if (!placed) TRY(flatten_into_place(content, chain, limits, progress));
  }
  TRY(verify_layers(content, limits, progress));
  TRY_ASSIGN(ImageInfo info, write_record(content));
  info.flattened = !usable;
  return info;
}

Result<ImageInfo> Store::add_image(const ImageContent& content, Workspace workspace,
                                   RootfsInfo rootfs) {
  TRY(begin_adding());
  TRY(check_content(content));
  TRY(verify_layers(content, {}, {}));
  rootfs.chain = chain_id(content.layers);
  TRY_ASSIGN(Fd turn, lock_work(rootfs.chain));
  TRY_ASSIGN(const bool usable, has_usable_rootfs(rootfs.chain));
  if (usable) {
    if (!discard(std::move(workspace)).has_value()) errno = 0;
  } else {
    TRY(place_or_discard(std::move(workspace), std::move(rootfs)));
  }
  TRY_ASSIGN(ImageInfo info, write_record(content));
  info.flattened = !usable;
  return info;
}

}  // namespace caisson::image
