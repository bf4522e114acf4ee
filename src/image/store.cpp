#include "image/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sha256.h"
#include "image/files.h"
#include "image/mount.h"
#include "image/store_steps.h"

namespace caisson::image {
namespace {

constexpr std::string_view kIdPrefix = "sha256:";
constexpr std::size_t kShortestId = 6;
constexpr const char* kFormatName = "format";

bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// The digits of an id, or of its beginning, that `text` may be; empty: it is none.
std::string_view id_digits(std::string_view text) {
  if (text.starts_with(kIdPrefix)) text.remove_prefix(kIdPrefix.size());
  const bool fits = text.size() >= kShortestId && text.size() <= 64 && is_hex(text);
  return fits ? text : std::string_view();
}

bool is_explicit_id(std::string_view text) {
  return text.starts_with(kIdPrefix) && is_sha256(text.substr(kIdPrefix.size()));
}

}  // namespace

Result<Store> Store::open() {
  return open_at(state_directory() + "/images");
}

Result<Store> Store::open_at(const std::string& directory) {
  Store store;
  store.directory_ = Fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!store.directory_.valid()) {
    auto made = open_or_make_directory(directory);
    if (!made.has_value()) return fail(std::move(made).error().with("image store " + directory));
    store.directory_ = std::move(*made);
  }
  if (Status known = store.check_format(); !known)
    return fail(std::move(known).error().with("image store " + directory));
  // What cannot be swept now stays invisible; the next opening tries again.
  if (store.may_hold_rubbish() && !store.sweep().has_value()) errno = 0;
  return store;
}

Status Store::say_format() {
  if (format_said_) return {};
  TRY(replace_file_at(directory_.get(), kFormatName, std::to_string(kStoreFormat) + "\n"));
  format_said_ = true;
  return {};
}

Status Store::check_format() {
  // Who may only read the store says nothing about it, and cannot make anything of it either.
  const auto say_if_possible = [this] {
    format_said_ = false;
    if (!say_format().has_value()) errno = 0;
  };
  auto text = read_small_file_at(directory_.get(), kFormatName);
  if (!text.has_value() && text.error().code() == Code::kNotFound) {
    say_if_possible();
    return {};
  }
  if (!text.has_value()) return fail(std::move(text).error());
  std::uint32_t format = 0;
  const char* const end = text->data() + text->size();
  const auto read = std::from_chars(text->data(), end, format);
  if (read.ec != std::errc() || std::string_view(read.ptr, end) != "\n" || format == 0)
    return fail(Error(Code::kDataLoss, "its file `format` is damaged: found " + printable(*text) +
                                           ", allowed is a number on a line"));
  if (format > kStoreFormat)
    return fail(Error::precondition("it is of format " + std::to_string(format) +
                                    ", which a newer caisson made; this one knows formats up to " +
                                    std::to_string(kStoreFormat)));
  if (format < kStoreFormat) say_if_possible();
  return {};
}

Result<std::optional<Store>> Store::open_if_present() {
  if (access((state_directory() + "/images").c_str(), F_OK) != 0) return std::nullopt;
  TRY_ASSIGN(Store store, open());
  return store;
}

Result<Fd> Store::lock() {
  TRY_ASSIGN(std::optional<Fd> held,
             lock_file_at(directory_.get(), "lock", LockKind::kExclusive, LockWait::kWait));
  return std::move(*held);
}

Result<int> Store::folder(Folder folder) {
  constexpr std::array<const char*, kFolders> kNames = {"refs",  "ids",     "rootfs", "blobs",
                                                        "cache", "partial", "tmp"};
  Fd& opened = folders_[static_cast<std::size_t>(folder)];
  if (!opened.valid()) {
    TRY_ASSIGN(opened, open_or_make_directory_at(directory_.get(),
                                                 kNames[static_cast<std::size_t>(folder)]));
  }
  return opened.get();
}

Result<ImageRecord> Store::read_record(const std::string& image_id) {
  TRY_ASSIGN(std::string text, read_small_file_at(directory_.get(), "ids/" + image_id));
  auto record = ImageRecord::decode(text);
  if (!record.has_value()) return fail(std::move(record).error().with("image " + image_id));
  if (record->id != image_id) {
    return fail(Error(Code::kDataLoss, "the record of image " + image_id + " is another one's"));
  }
  return record;
}

Result<RootfsInfo> Store::read_rootfs(const std::string& chain) {
  TRY_ASSIGN(std::string text, read_small_file_at(directory_.get(), "rootfs/" + chain + "/info"));
  return RootfsInfo::decode(text);
}

Result<ReferenceRecord> Store::read_reference(const Reference& reference) {
  TRY_ASSIGN(std::string text,
             read_small_file_at(directory_.get(), "refs/" + reference.file_name()));
  auto record = ReferenceRecord::decode(text);
  if (!record.has_value()) {
    return fail(std::move(record).error().with("image '" + reference.text() + "'"));
  }
  return record;
}

Result<std::string> Store::available() {
  TRY_ASSIGN(std::vector<ListedImage> images, list());
  if (images.empty())
    return std::string("there are no images yet; `caisson image import` adds one");
  std::string text = "there are:";
  for (const ListedImage& image : images) text += " " + image.reference.text();
  return text;
}

Result<std::optional<std::string>> Store::find_id(std::string_view digits) {
  TRY_ASSIGN(const int ids, folder(Folder::kIds));
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(ids));
  std::optional<std::string> found;
  for (const std::string& id : all) {
    if (!id.starts_with(digits) || !is_sha256(id)) continue;
    if (found) {
      return fail(Error::invalid("'" + std::string(digits) +
                                 "' is the beginning of several images' ids: " +
                                 found->substr(0, 16) + ", " + id.substr(0, 16)));
    }
    found = id;
  }
  return found;
}

// The image that a name with a digest means where it was stored by its tag; empty: there is none.
Result<std::string> Store::find_pinned(const Reference& wanted) {
  if (wanted.digest.empty()) return std::string();
  TRY_ASSIGN(const std::vector<ListedImage> images, list());
  for (const ListedImage& listed : images) {
    if (listed.reference.name == wanted.name && listed.image &&
        listed.image->record.manifest == wanted.digest) {
      return listed.named.image_id;
    }
  }
  return std::string();
}

Result<Store::Found> Store::find_named(std::string_view text) {
  Found found;
  const std::string_view digits = id_digits(text);
  if (!is_explicit_id(text)) {
    auto reference = parse_reference(text);
    if (reference.has_value()) {
      found.name = reference->text();
      auto named = read_reference(*reference);
      if (named.has_value()) {
        found.reference = std::move(*reference);
        found.image_id = std::move(named->image_id);
        return found;
      }
      if (named.error().code() != Code::kNotFound) return fail(std::move(named).error());
      TRY_ASSIGN(found.image_id, find_pinned(*reference));
      if (!found.image_id.empty()) return found;
    } else if (digits.empty()) {
      return fail(std::move(reference).error());
    }
  }
  std::optional<std::string> id;
  if (digits.size() == 64) {
    if (has("ids/" + std::string(digits))) id = digits;
  } else if (!digits.empty()) {
    TRY_ASSIGN(id, find_id(digits));
  }
  if (id) {
    found.name = std::string(kIdPrefix) + *id;
    found.image_id = std::move(*id);
    return found;
  }
  const std::string asked = found.name.empty() ? printable(text) : found.name;
  return fail(Error::not_found("no image '" + asked + "' in the store"));
}

Result<Store::Found> Store::find_or_list(std::string_view text) {
  auto found = find_named(text);
  if (found.has_value() || found.error().code() != Code::kNotFound) return found;
  TRY_ASSIGN(const std::string known, available());
  return fail(Error::not_found(found.error().message() + "; " + known));
}

Result<std::string> Store::find(std::string_view text) {
  TRY_ASSIGN(Found found, find_named(text));
  return found.image_id;
}

bool Store::has(const std::string& path) const {
  return faccessat(directory_.get(), path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool Store::has_rootfs(const std::string& chain) {
  return has("rootfs/" + chain);
}

bool Store::has_whole_rootfs(const std::string& chain) {
  const auto info = read_rootfs(chain);
  return info.has_value() && info->below.empty();
}

bool Store::in_use(const std::string& chain) {
  return is_locked_at(directory_.get(), "rootfs/" + chain + "/use");
}

bool Store::contains(std::string_view reference) {
  auto parsed = parse_reference(reference);
  return parsed.has_value() && has("refs/" + parsed->file_name());
}

std::uint64_t ImageInfo::rootfs_bytes() const {
  std::uint64_t bytes = rootfs ? rootfs->bytes : 0;
  for (const RootfsInfo& lower : below) bytes += lower.bytes;
  return bytes;
}

std::uint64_t ImageInfo::rootfs_entries() const {
  std::uint64_t entries = rootfs ? rootfs->entries : 0;
  for (const RootfsInfo& lower : below) entries += lower.entries;
  return entries;
}

Result<std::vector<RootfsInfo>> Store::stack_of(const std::string& chain) {
  std::vector<RootfsInfo> stack;
  // A stack that is damaged could go round.
  for (std::string next = chain; !next.empty() && stack.size() <= kMostStacked;) {
    auto info = read_rootfs(next);
    if (!info.has_value()) {
      if (info.error().code() == Code::kNotFound) break;
      return fail(std::move(info).error());
    }
    next = info->below;
    stack.push_back(std::move(*info));
  }
  return stack;
}

// nullopt: it is gone or was replaced meanwhile, look again.
Result<std::optional<OpenRootfs>> Store::open_rootfs(const std::string& chain,
                                                     const std::string& image_name) {
  const std::string path = "rootfs/" + chain;
  auto directory = open_directory_at(directory_.get(), path);
  if (!directory.has_value()) {
    if (directory.error().code() == Code::kNotFound) return std::nullopt;
    return fail(std::move(directory).error().with("image " + image_name));
  }
  // Whoever has it alone has it for a moment, before it moves the directory away.
  TRY_ASSIGN(std::optional<Fd> use,
             lock_file_at(directory->get(), "use", LockKind::kShared, LockWait::kWait));
  if (!has(path)) return std::nullopt;
  OpenRootfs opened;
  opened.in_use = std::move(*use);
  TRY_ASSIGN(std::string info, read_small_file_at(directory->get(), "info"));
  TRY_ASSIGN(opened.info, RootfsInfo::decode(info));
  const IdMapping caller = mapping_of_caller();
  const IdMapping& ids = opened.info.ids;
  if (ids != caller) {
    return fail(Error::precondition("image '" + image_name + "' was unpacked for other ids (" +
                                    std::string(to_string(ids.layout)) + " from " +
                                    std::to_string(ids.uid_base) + ") than this user has now (" +
                                    std::string(to_string(caller.layout)) + " from " +
                                    std::to_string(caller.uid_base) + "); import it again"));
  }
  TRY_ASSIGN(opened.root, open_root(directory->get()));
  return opened;
}

// Whether the marks of deltas in erofs files are seen here: they were made on a kernel that shows
// them, but a store outlives a boot. Without them a sandbox would see what its image has removed.
Status Store::check_marks(const ImageRef& image) const {
  bool needs = !image.below.empty() && image.root.mounted;
  // The lowest one is whole.
  for (std::size_t at = 0; at + 1 < image.below.size(); ++at)
    needs = needs || image.below[at].root.mounted;
  if (!needs || known_mounts(directory_.get()).attributes) return {};
  return fail(Error::precondition(
      "image '" + image.name +
      "' lies over another one in erofs files, and this kernel's erofs shows no extended "
      "attributes, by which it says what it removes; allowed are a kernel with "
      "CONFIG_EROFS_FS_XATTR, or the image built, pulled or imported again on this one"));
}

// nullopt: it is gone or was replaced meanwhile, look again.
Result<std::optional<ImageRef>> Store::open_image(const Found& found) {
  ImageRef image;
  image.name = found.name;
  auto record = read_record(found.image_id);
  if (!record.has_value()) {
    if (record.error().code() == Code::kNotFound) return std::nullopt;
    return fail(std::move(record).error());
  }
  image.record = std::move(*record);
  TRY_ASSIGN(std::optional<OpenRootfs> top, open_rootfs(image.record.chain, image.name));
  if (!top) return std::nullopt;
  std::string below = top->info.below;
  image.rootfs = std::move(top->info);
  image.root = std::move(top->root);
  image.in_use = std::move(top->in_use);
  while (!below.empty()) {
    if (image.below.size() + 1 == kMostStacked) {
      return fail(Error(Code::kDataLoss, "image " + image.name + " lies over more than " +
                                             std::to_string(kMostStacked - 1) + " others"));
    }
    TRY_ASSIGN(std::optional<OpenRootfs> lower, open_rootfs(below, image.name));
    if (!lower) return std::nullopt;
    below = lower->info.below;
    image.below.push_back(std::move(*lower));
  }
  TRY(check_marks(image));
  auto config = read_blob_bytes(image.record.id);
  if (!config.has_value()) {
    if (config.error().code() == Code::kNotFound) return std::nullopt;
    return fail(std::move(config).error().with("image " + image.name));
  }
  image.config_json = std::move(*config);
  TRY_ASSIGN(image.config, parse_image_config(image.config_json));
  return image;
}

Result<ImageRef> Store::resolve(std::string_view text) {
  // The image may be replaced between the reading of its name and the lock on its files: then its
  // files are gone or the name means another, and a second look sees that.
  Found found;
  for (int attempt = 0; attempt < 10; ++attempt) {
    TRY_ASSIGN(found, find_or_list(text));
    TRY_ASSIGN(std::optional<ImageRef> image, open_image(found));
    if (image) return std::move(*image);
  }
  if (found.reference.name.empty()) {
    return fail(Error::precondition("image " + found.name +
                                    " has no root file system here: it is a step of a build"));
  }
  return fail(Error(Code::kDataLoss, "image '" + found.name +
                                         "' has a name but no files; import, pull or build it "
                                         "again, or remove it with `caisson image rm " +
                                         found.name + "`"));
}

Result<ImageInfo> Store::info(const std::string& image_id) {
  ImageInfo info;
  auto record = read_record(image_id);
  if (!record.has_value()) {
    if (record.error().code() != Code::kNotFound) return fail(std::move(record).error());
    return fail(Error::not_found("no image " + printable(image_id) + " in the store"));
  }
  info.record = std::move(*record);
  auto rootfs = read_rootfs(info.record.chain);
  if (rootfs.has_value()) {
    info.rootfs = std::move(*rootfs);
    TRY_ASSIGN(info.below, stack_of(info.rootfs->below));
  } else if (rootfs.error().code() != Code::kNotFound) {
    return fail(std::move(rootfs).error());
  }
  return info;
}

Result<std::optional<LayerRef>> Store::find_layer(const std::string& blob_digest) {
  TRY_ASSIGN(const int ids, folder(Folder::kIds));
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(ids));
  for (const std::string& id : all) {
    const auto record = read_record(id);
    if (!record.has_value()) continue;  // removed since, or damaged
    for (const LayerRef& layer : record->layers) {
      if (layer.blob.digest == blob_digest) return layer;
    }
  }
  return std::nullopt;
}

Result<std::vector<Reference>> Store::names() {
  TRY_ASSIGN(const int refs, folder(Folder::kRefs));
  TRY_ASSIGN(const std::vector<std::string> files, list_directory(refs));
  std::vector<Reference> names;
  for (const std::string& file : files) {
    auto reference = parse_reference_file_name(file);
    // Else a file half written by a dead process.
    if (reference.has_value()) names.push_back(std::move(*reference));
  }
  return names;
}

Result<std::vector<ListedImage>> Store::list() {
  TRY_ASSIGN(std::vector<Reference> all, names());
  std::vector<ListedImage> images;
  for (Reference& name : all) {
    ListedImage image;
    auto named = read_reference(name);
    image.reference = std::move(name);
    if (named.has_value()) {
      image.named = std::move(*named);
      auto known = info(image.named.image_id);
      if (known.has_value()) image.image = std::move(*known);
    } else if (named.error().code() == Code::kNotFound) {
      continue;  // removed since
    } else if (named.error().code() != Code::kFailedPrecondition) {
      return fail(std::move(named).error());
    }
    images.push_back(std::move(image));
  }
  return images;
}

Result<std::vector<Reference>> Store::names_of(const std::string& image_id) {
  TRY_ASSIGN(std::vector<ListedImage> images, list());
  std::vector<Reference> names;
  for (ListedImage& image : images) {
    if (image.named.image_id == image_id) names.push_back(std::move(image.reference));
  }
  return names;
}

Status Store::set_reference(const Reference& reference, const std::string& image_id) {
  TRY(begin_adding());
  TRY_ASSIGN(const int refs, folder(Folder::kRefs));
  TRY(enter_store_step("store-name"));
  TRY_ASSIGN(Fd held, lock());
  if (!has("ids/" + image_id)) {
    return fail(Error::not_found("no image " + printable(image_id) + " in the store"));
  }
  const ReferenceRecord record{.image_id = image_id, .set_at = std::time(nullptr)};
  TRY(replace_file_at(refs, reference.file_name(), record.encode()));
  return enter_store_step("store-named");
}

Status Store::remove(std::string_view text) {
  std::vector<Reference> names;
  auto found = find_or_list(text);
  if (found.has_value() && found->reference.name.empty()) {
    TRY_ASSIGN(names, names_of(found->image_id));
    if (auto pinned = parse_reference(text); !found->name.starts_with(kIdPrefix)) {
      std::erase_if(names, [&](const Reference& name) { return name.name != pinned->name; });
    }
    if (names.empty()) {
      return fail(Error::precondition("image " + found->name +
                                      " has no name: it belongs to the build cache, which "
                                      "`caisson image gc --all` empties"));
    }
  } else if (found.has_value()) {
    names.push_back(found->reference);
  } else {
    // A name whose file cannot be read can still be removed.
    auto reference = parse_reference(text);
    if (!reference.has_value() || !contains(text)) return fail(std::move(found).error());
    names.push_back(std::move(*reference));
  }
  // On a full disk the mark may have no room; removing makes some, and sweeps below.
  if (auto marked = begin_adding();
      !marked.has_value() && marked.error().code() != Code::kResourceExhausted) {
    return marked;
  }
  {
    TRY_ASSIGN(const int refs, folder(Folder::kRefs));
    TRY(enter_store_step("store-unname"));
    TRY_ASSIGN(Fd held, lock());
    for (const Reference& name : names) {
      if (unlinkat(refs, name.file_name().c_str(), 0) != 0 && errno != ENOENT) {
        return fail_errno("remove the name " + name.text());
      }
    }
    if (fsync(refs) != 0) return fail_errno("fsync refs");
  }
  return sweep();
}

Result<std::optional<std::string>> Store::cache_get(const std::string& key) {
  if (!is_sha256(key)) return fail(Error::invalid("a build cache's key is a SHA-256"));
  TRY(begin_adding());  // whoever asks is about to use it
  auto text = read_small_file_at(directory_.get(), "cache/" + key);
  if (!text.has_value()) {
    if (text.error().code() == Code::kNotFound) return std::nullopt;
    return fail(std::move(text).error());
  }
  auto record = CacheRecord::decode(*text);
  if (!record.has_value() || !has("ids/" + record->image_id)) return std::nullopt;
  utimensat(directory_.get(), ("cache/" + key).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return record->image_id;
}

Status Store::cache_put(const std::string& key, const std::string& image_id) {
  if (!is_sha256(key)) return fail(Error::invalid("a build cache's key is a SHA-256"));
  TRY(begin_adding());
  TRY_ASSIGN(const int cache, folder(Folder::kCache));
  TRY_ASSIGN(Fd held, lock());
  if (!has("ids/" + image_id)) {
    return fail(Error::not_found("no image " + printable(image_id) + " in the store"));
  }
  return replace_file_at(cache, key, CacheRecord{.image_id = image_id}.encode());
}

}  // namespace caisson::image
