#include "image/store.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <map>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "image/files.h"
#include "image/sha256.h"
#include "image/worker_process.h"

namespace caisson::image {
namespace {

constexpr std::string_view kInfoHeader = "caisson-image 1\n";
constexpr std::string_view kReferenceHeader = "caisson-image-reference 1\n";

// "key value\n" lines after a header line.
Result<std::map<std::string, std::string>> parse_lines(std::string_view text,
                                                       std::string_view header,
                                                       std::string_view what) {
  if (!text.starts_with(header)) {
    return fail(Error(Code::kDataLoss, std::string(what) + " does not begin with '" +
                                           std::string(header.substr(0, header.size() - 1)) + "'"));
  }
  std::map<std::string, std::string> values;
  for (std::string_view rest = text.substr(header.size()); !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    const std::size_t space = line.find(' ');
    if (end == std::string_view::npos || space == std::string_view::npos) {
      return fail(
          Error(Code::kDataLoss, std::string(what) + ": malformed line '" + printable(line) + "'"));
    }
    values.emplace(line.substr(0, space), line.substr(space + 1));
    rest.remove_prefix(end + 1);
  }
  return values;
}

template <typename Number>
Result<Number> number_of(const std::map<std::string, std::string>& values, const std::string& key,
                         std::string_view what) {
  Number number = 0;
  auto found = values.find(key);
  if (found != values.end()) {
    const std::string& text = found->second;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  return fail(
      Error(Code::kDataLoss, std::string(what) + ": '" + key + "' is missing or no number"));
}

std::string random_name() {
  unsigned char bytes[16];
  VERIFY(getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
  std::string name;
  for (unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

bool exists_at(int directory_fd, const std::string& name) {
  return faccessat(directory_fd, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace

std::string ImageInfo::encode() const {
  std::string text(kInfoHeader);
  auto line = [&](std::string_view key, std::string_view value) {
    text.append(key).append(" ").append(value).append("\n");
  };
  line("digest", digest);
  line("layout", to_string(ids.layout));
  line("uid-base", std::to_string(ids.uid_base));
  line("gid-base", std::to_string(ids.gid_base));
  line("own-uid", std::to_string(ids.own_uid));
  line("own-gid", std::to_string(ids.own_gid));
  line("entries", std::to_string(entries));
  line("bytes", std::to_string(bytes));
  return text;
}

Result<ImageInfo> ImageInfo::decode(std::string_view text) {
  constexpr std::string_view kWhat = "the image's info file";
  TRY_ASSIGN(auto values, parse_lines(text, kInfoHeader, kWhat));
  ImageInfo info;
  info.digest = values["digest"];
  std::optional<IdLayout> layout = parse_id_layout(values["layout"]);
  if (!is_sha256(info.digest) || !layout) {
    return fail(Error(Code::kDataLoss, std::string(kWhat) + ": 'digest' or 'layout' is wrong"));
  }
  info.ids.layout = *layout;
  TRY_ASSIGN(info.ids.uid_base, number_of<std::uint32_t>(values, "uid-base", kWhat));
  TRY_ASSIGN(info.ids.gid_base, number_of<std::uint32_t>(values, "gid-base", kWhat));
  TRY_ASSIGN(info.ids.own_uid, number_of<std::uint32_t>(values, "own-uid", kWhat));
  TRY_ASSIGN(info.ids.own_gid, number_of<std::uint32_t>(values, "own-gid", kWhat));
  TRY_ASSIGN(info.entries, number_of<std::uint64_t>(values, "entries", kWhat));
  TRY_ASSIGN(info.bytes, number_of<std::uint64_t>(values, "bytes", kWhat));
  return info;
}

Result<Store> Store::open() {
  return open_at(state_directory() + "/images");
}

Result<Store> Store::open_at(const std::string& directory) {
  auto opened = [&]() -> Result<Store> {
    Store store;
    TRY_ASSIGN(store.directory_, open_or_make_directory(directory));
    TRY_ASSIGN(store.refs_, open_or_make_directory_at(store.directory_.get(), "refs"));
    TRY_ASSIGN(store.digests_, open_or_make_directory_at(store.directory_.get(), "by-digest"));
    TRY_ASSIGN(store.tmp_, open_or_make_directory_at(store.directory_.get(), "tmp"));
    return store;
  }();
  if (!opened.has_value()) {
    return fail(std::move(opened).error().with("image store " + directory));
  }
  // What cannot be swept now stays invisible; the next opening tries again.
  if (!opened->sweep().has_value()) errno = 0;
  return opened;
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

Result<ImageInfo> Store::read_info(const std::string& digest) {
  TRY_ASSIGN(std::string text, read_small_file_at(digests_.get(), digest + "/info"));
  return ImageInfo::decode(text);
}

Result<std::string> Store::read_reference(const std::string& file_name, std::int64_t& imported) {
  const std::string what = "reference " + file_name;
  TRY_ASSIGN(std::string text, read_small_file_at(refs_.get(), file_name));
  TRY_ASSIGN(auto values, parse_lines(text, kReferenceHeader, what));
  if (!is_sha256(values["digest"])) {
    return fail(Error(Code::kDataLoss, what + ": 'digest' is no SHA-256"));
  }
  TRY_ASSIGN(imported, number_of<std::int64_t>(values, "imported", what));
  return values["digest"];
}

Result<std::string> Store::available() {
  TRY_ASSIGN(std::vector<ListedImage> images, list());
  if (images.empty())
    return std::string("there are no images yet; `caisson image import` adds one");
  std::string text = "there are:";
  for (const ListedImage& image : images) text += " " + image.reference.text();
  return text;
}

Result<ImageRef> Store::resolve(std::string_view reference) {
  ImageRef image;
  TRY_ASSIGN(image.reference, parse_reference(reference));
  const std::string name = image.reference.text();
  // The digest may be replaced between the reading of the reference and the lock on its files: then
  // its files are gone or the reference names another, and a second look sees that.
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::int64_t imported = 0;
    auto digest = read_reference(image.reference.file_name(), imported);
    if (!digest.has_value()) {
      if (digest.error().code() != Code::kNotFound) return fail(std::move(digest).error());
      TRY_ASSIGN(std::string known, available());
      return fail(Error::not_found("no image '" + name + "' in the store; " + known));
    }
    auto directory = open_directory_at(digests_.get(), *digest);
    if (!directory.has_value()) {
      if (directory.error().code() == Code::kNotFound) continue;
      return fail(std::move(directory).error().with("image " + name));
    }
    TRY_ASSIGN(std::optional<Fd> use,
               lock_file_at(directory->get(), "use", LockKind::kShared, LockWait::kTry));
    if (!use || !exists_at(digests_.get(), *digest)) continue;
    image.in_use = std::move(*use);
    TRY_ASSIGN(image.info, read_info(*digest));
    const IdMapping caller = mapping_of_caller();
    if (image.info.ids != caller) {
      return fail(Error::precondition("image '" + name + "' was unpacked for other ids (" +
                                      std::string(to_string(image.info.ids.layout)) + " from " +
                                      std::to_string(image.info.ids.uid_base) +
                                      ") than this user has now (" +
                                      std::string(to_string(caller.layout)) + " from " +
                                      std::to_string(caller.uid_base) + "); import it again"));
    }
    image.root_directory =
        Fd(openat(directory->get(), "rootfs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!image.root_directory.valid()) return fail_errno("open the root directory of " + name);
    return image;
  }
  return fail(Error(Code::kDataLoss, "image '" + name +
                                         "' has a reference but no files; import it again, or "
                                         "remove it with `caisson image rm " +
                                         name + "`"));
}

bool Store::contains(std::string_view reference) {
  auto parsed = parse_reference(reference);
  return parsed.has_value() && exists_at(refs_.get(), parsed->file_name());
}

Result<std::vector<ListedImage>> Store::list() {
  TRY_ASSIGN(std::vector<std::string> names, list_directory(refs_.get()));
  std::vector<ListedImage> images;
  for (const std::string& name : names) {
    auto reference = parse_reference_file_name(name);
    if (!reference.has_value()) continue;  // a file half written by a dead process
    ListedImage image;
    image.reference = std::move(*reference);
    auto digest = read_reference(name, image.imported);
    if (!digest.has_value()) {
      if (digest.error().code() == Code::kNotFound) continue;  // removed since
      return fail(std::move(digest).error());
    }
    auto info = read_info(*digest);
    if (info.has_value()) {
      image.info = std::move(*info);
    } else {
      image.info.digest = *digest;
    }
    images.push_back(std::move(image));
  }
  return images;
}

Status Store::remove(std::string_view text) {
  TRY_ASSIGN(Reference reference, parse_reference(text));
  {
    TRY_ASSIGN(Fd held, lock());
    if (unlinkat(refs_.get(), reference.file_name().c_str(), 0) != 0) {
      if (errno != ENOENT) return fail_errno("remove reference " + reference.text());
      TRY_ASSIGN(std::string known, available());
      return fail(Error::not_found("no image '" + reference.text() + "' in the store; " + known));
    }
    if (fsync(refs_.get()) != 0) return fail_errno("fsync refs");
  }
  return sweep();
}

Result<Workspace> Store::make_workspace() {
  TRY_ASSIGN(Fd held, lock());
  Workspace workspace;
  workspace.name_ = random_name();
  TRY_ASSIGN(workspace.directory_, open_or_make_directory_at(tmp_.get(), workspace.name_));
  TRY_ASSIGN(std::optional<Fd> own, lock_file_at(workspace.directory_.get(), "lock",
                                                 LockKind::kExclusive, LockWait::kTry));
  VERIFY(own.has_value());
  workspace.lock_ = std::move(*own);
  return workspace;
}

Result<Fd> Store::lock_import(const std::string& digest) {
  TRY_ASSIGN(std::optional<Fd> held,
             lock_file_at(tmp_.get(), "import." + digest, LockKind::kExclusive, LockWait::kWait));
  return std::move(*held);
}

Result<bool> Store::has_digest(const std::string& digest) {
  auto info = read_info(digest);
  if (!info.has_value()) {
    if (info.error().code() == Code::kNotFound) return false;
    return fail(std::move(info).error());
  }
  // Unpacked for another range of ids: useless now, so it makes way.
  if (info->ids == mapping_of_caller()) return true;
  TRY_ASSIGN(Fd held, lock());
  TRY(retire(digest));
  if (exists_at(digests_.get(), digest)) {
    return fail(
        Error::precondition("the same image, unpacked for other ids, is in use; end its "
                            "sandboxes first"));
  }
  return false;
}

Status Store::commit(Workspace workspace, const ImageInfo& info) {
  TRY(replace_file_at(workspace.directory_fd(), "info", info.encode()));
  TRY_ASSIGN(Fd root, open_directory_at(workspace.directory_fd(), "."));
  // One call for the whole filesystem is far cheaper than one for each of ten thousand files.
  if (syncfs(root.get()) != 0) return fail_errno("syncfs");
  TRY_ASSIGN(Fd held, lock());
  if (renameat2(tmp_.get(), workspace.name_.c_str(), digests_.get(), info.digest.c_str(),
                RENAME_NOREPLACE) != 0) {
    return fail_errno("move the image into place");
  }
  unlinkat(workspace.directory_fd(), "lock", 0);
  if (fsync(digests_.get()) != 0) return fail_errno("fsync by-digest");
  return {};
}

Status Store::set_reference(const Reference& reference, const std::string& digest) {
  {
    TRY_ASSIGN(Fd held, lock());
    if (!exists_at(digests_.get(), digest)) {
      return fail(Error::not_found("no image of digest " + printable(digest) + " in the store"));
    }
    const std::string text = std::string(kReferenceHeader) + "digest " + digest + "\nimported " +
                             std::to_string(std::time(nullptr)) + "\n";
    TRY(replace_file_at(refs_.get(), reference.file_name(), text));
  }
  // Whatever it named before may be nobody's now; if that cannot be removed, the next sweep will.
  if (!sweep().has_value()) errno = 0;
  return {};
}

Status Store::remove_from_tmp(const std::string& name) {
  auto removed = remove_tree_at(tmp_.get(), name);
  if (removed.has_value()) return {};
  // Files of a range of subordinate ids are not ours to touch from here.
  if (mapping_of_caller().layout != IdLayout::kSubuid) return removed;
  return remove_by_worker(tmp_.get(), name, mapping_of_caller());
}

Status Store::discard(Workspace workspace) {
  return remove_from_tmp(workspace.name_);
}

Status Store::retire(const std::string& digest) {
  auto directory = open_directory_at(digests_.get(), digest);
  if (!directory.has_value()) {
    if (directory.error().code() == Code::kNotFound) return {};
    return fail(std::move(directory).error());
  }
  TRY_ASSIGN(std::optional<Fd> alone,
             lock_file_at(directory->get(), "use", LockKind::kExclusive, LockWait::kTry));
  if (!alone) return {};
  const std::string name = random_name();
  if (renameat(digests_.get(), digest.c_str(), tmp_.get(), name.c_str()) != 0) {
    return fail_errno("move image " + digest + " away");
  }
  return {};
}

Status Store::sweep() {
  std::vector<std::string> dead;
  {
    TRY_ASSIGN(std::optional<Fd> held,
               lock_file_at(directory_.get(), "lock", LockKind::kExclusive, LockWait::kTry));
    if (!held) return {};  // whoever works there sweeps
    TRY_ASSIGN(std::vector<std::string> digests, list_directory(digests_.get()));
    if (!digests.empty()) {
      TRY_ASSIGN(std::vector<ListedImage> images, list());
      for (const std::string& digest : digests) {
        if (std::ranges::any_of(
                images, [&](const ListedImage& image) { return image.info.digest == digest; })) {
          continue;
        }
        // An import between commit() and set_reference() holds this lock.
        TRY_ASSIGN(std::optional<Fd> idle, lock_file_at(tmp_.get(), "import." + digest,
                                                        LockKind::kExclusive, LockWait::kTry));
        if (idle) TRY(retire(digest));
      }
    }
    TRY_ASSIGN(std::vector<std::string> names, list_directory(tmp_.get()));
    for (const std::string& name : names) {
      if (name.starts_with("import.")) {
        TRY_ASSIGN(std::optional<Fd> idle,
                   lock_file_at(tmp_.get(), name, LockKind::kExclusive, LockWait::kTry));
        if (idle) unlinkat(tmp_.get(), name.c_str(), 0);
        continue;
      }
      auto directory = open_directory_at(tmp_.get(), name);
      if (!directory.has_value()) continue;
      auto idle = lock_file_at(directory->get(), "lock", LockKind::kExclusive, LockWait::kTry);
      // An error: another sweep has just taken the directory away.
      if (idle.has_value() && idle->has_value()) dead.push_back(name);
    }
    for (const std::string& name :
         list_directory(refs_.get()).value_or(std::vector<std::string>())) {
      if (name.starts_with(".new.")) unlinkat(refs_.get(), name.c_str(), 0);
    }
  }
  // Outside the lock, for it may take seconds. Two sweeps of the same name do each other no harm.
  for (const std::string& name : dead) TRY(remove_from_tmp(name));
  return {};
}

}  // namespace caisson::image
