#include "build/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/file_time.h"
#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "image/files.h"
#include "image/reference.h"

namespace caisson::build {
namespace {

using image::printable;

std::string joined(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : parent + "/" + name;
}

std::string last_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// The image's id of a file's id on disk (image/ids.h).
std::uint32_t owner_of(std::uint32_t id, const std::optional<image::IdMapping>& ids,
                       std::uint32_t image::IdMapping::* base,
                       std::uint32_t image::IdMapping::* own) {
  if (!ids.has_value()) return id < image::kImageIds ? id : 0;
  if (ids->layout == image::IdLayout::kSingle) return 0;
  if (ids->layout == image::IdLayout::kSubuid && id == (*ids).*own) return image::kUserId;
  const std::uint32_t first = (*ids).*base;
  return id >= first && id - first < image::kImageIds ? id - first : 0;
}

Status hash_file(int fd, Sha256& hash, const std::string& shown) {
  std::string buffer(128 * 1024, '\0');
  for (;;) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("read " + shown);
    if (count == 0) return {};
    hash.update({buffer.data(), static_cast<std::size_t>(count)});
  }
}

void add_field(Sha256& hash, std::string_view field) {
  hash.update(std::to_string(field.size()) + ":");
  hash.update(field);
}

}  // namespace

Error Source::open_error(Error error, const std::string& path) const {
  const std::string shown = "'" + printable(path) + "'";
  switch (error.error_number()) {
    case EXDEV:
      return Error::invalid(shown + " leads out of " + what_ +
                            " through a link; only what lies in it can be copied");
    case ENOENT:
    case ENOTDIR:
      return Error::not_found(what_ + " has no " + shown);
    case ELOOP:
      return Error::invalid(shown + " of " + what_ + " is a link that leads to itself");
    default:
      return std::move(error).with(shown + " of " + what_);
  }
}

Result<Fd> Source::open_path(const std::string& path, std::uint64_t flags) const {
  const std::uint64_t scope = links_ == Links::kBeneath ? RESOLVE_BENEATH : RESOLVE_IN_ROOT;
  if (links_ == Links::kAsTheyAre && flags == O_PATH) flags |= O_NOFOLLOW;
  auto opened = sys::openat2(root_fd_, path.empty() ? "." : path, flags | O_CLOEXEC, 0,
                             scope | RESOLVE_NO_MAGICLINKS);
  if (opened.has_value()) return opened;
  return fail(open_error(std::move(opened).error(), path));
}

Result<std::string> Source::place_of(int fd, const std::string& shown) const {
  const auto absolute = [](int of) -> Result<std::string> {
    char path[4096];
    const std::string link = "/proc/self/fd/" + std::to_string(of);
    const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
    if (length < 0) return fail_errno("readlink " + link);
    if (length == sizeof path) return fail(Error::exhausted("its path is too long"));
    return std::string(path, static_cast<std::size_t>(length));
  };
  const std::string what = "where '" + printable(shown) + "' lies in " + what_;
  auto root = absolute(root_fd_);
  auto full = absolute(fd);
  if (!root.has_value()) return fail(std::move(root).error().with(what));
  if (!full.has_value()) return fail(std::move(full).error().with(what));
  if (*full == *root) return std::string();
  const std::string below = *root == "/" ? *root : *root + "/";
  if (full->starts_with(below)) return full->substr(below.size());
  return fail(Error(Code::kAborted, what + " changed while it was looked at"));
}

Result<std::vector<std::string>> Source::match(const std::string& pattern) const {
  std::vector<std::string> found = {""};
  std::string_view rest = pattern;
  bool wild = false;
  while (!rest.empty()) {
    const std::size_t slash = rest.find('/');
    const std::string part(rest.substr(0, slash));
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    TRY_ASSIGN(const Pattern matcher, Pattern::compile(part, Pattern::Scope::kName));
    std::vector<std::string> next;
    for (const std::string& parent : found) {
      if (matcher.is_plain() && part.find('\\') == std::string::npos) {
        const std::string path = joined(parent, part);
        // Among wildcards only what is there counts.
        if (!wild || open_path(path, O_PATH).has_value()) next.push_back(path);
        continue;
      }
      auto directory = open_path(parent, O_RDONLY | O_DIRECTORY);
      if (!directory.has_value()) continue;
      TRY_ASSIGN(const std::vector<std::string> names, image::list_directory(directory->get()));
      for (const std::string& name : names)
        if (matcher.matches(name)) next.push_back(joined(parent, name));
      if (next.size() > kMaxSourceEntries)
        return fail(Error::exhausted("'" + printable(pattern) + "' means too many files"));
    }
    if (!matcher.is_plain()) wild = true;
    found = std::move(next);
  }
  if (wild)
    std::erase_if(found, [this](const std::string& path) {
      return rules_.ignored(path) && !rules_.has_exceptions();
    });
  std::sort(found.begin(), found.end());
  return found;
}

Result<SourceEntry> Source::entry_of(int fd, const std::string& shown, std::string path) const {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return fail_errno("fstat " + shown);
  SourceEntry entry;
  entry.path = std::move(path);
  entry.mode = info.st_mode & 07777;
  entry.modified = to_nanoseconds(info.st_mtim);
  if (keeps_owners_) {
    entry.uid =
        owner_of(info.st_uid, ids_, &image::IdMapping::uid_base, &image::IdMapping::own_uid);
    entry.gid =
        owner_of(info.st_gid, ids_, &image::IdMapping::gid_base, &image::IdMapping::own_gid);
  }
  if (S_ISREG(info.st_mode)) {
    entry.type = SourceType::kFile;
    entry.size = static_cast<std::uint64_t>(info.st_size);
  } else if (S_ISDIR(info.st_mode)) {
    entry.type = SourceType::kDirectory;
  } else if (S_ISLNK(info.st_mode)) {
    entry.type = SourceType::kLink;
    char target[4096];
    const ssize_t length = ::readlinkat(fd, "", target, sizeof target);
    if (length <= 0) return fail_errno("readlink " + shown);
    entry.target.assign(target, static_cast<std::size_t>(length));
  } else {
    return fail(Error::invalid("'" + printable(shown) + "' of " + what_ +
                               " is neither file, folder nor link and cannot be copied"));
  }
  return entry;
}

Result<SourceTree> Source::look(const std::string& path) const {
  TRY_ASSIGN(const Fd found, open_path(path, O_PATH));
  SourceTree tree;
  tree.path = path;
  tree.name = last_of(path);
  // The rules are a context's, about where things lie in it.
  if (links_ == Links::kBeneath) {
    TRY_ASSIGN(tree.path, place_of(found.get(), path));
  }
  const auto left_out_error = [&] {
    return fail(Error::not_found("'" + printable(path) + "' is left out of " + what_ +
                                 " by .dockerignore"));
  };
  const bool through_link = tree.path != clean_path(path);
  if (through_link && !path.empty() && rules_.ignored(path)) return left_out_error();
  TRY_ASSIGN(SourceEntry first, entry_of(found.get(), path, ""));
  const bool directory = first.type == SourceType::kDirectory;
  const bool left_out = !tree.path.empty() && rules_.ignored(tree.path);
  tree.entries.push_back(std::move(first));
  if (directory && (!left_out || rules_.has_exceptions())) {
    TRY(walk(found.get(), "", 1, tree));
  }
  if (left_out && tree.entries.size() == 1) return left_out_error();
  return tree;
}

Status Source::walk(int directory_fd, const std::string& path, std::size_t depth,
                    SourceTree& tree) const {
  const std::string shown = joined(tree.path, path);
  if (depth > kMaxSourceDepth)
    return fail(Error::exhausted("'" + printable(shown) + "': folders are nested more than " +
                                 std::to_string(kMaxSourceDepth) + " deep"));
  const Fd readable(::openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable.valid()) return fail_errno("open '" + printable(shown) + "' of " + what_);
  TRY_ASSIGN(const std::vector<std::string> names, image::list_directory(readable.get()));
  for (const std::string& name : names) {
    const std::string below = joined(path, name);
    const std::string full = joined(tree.path, below);
    const bool left_out = rules_.ignored(full);
    if (left_out && !rules_.has_exceptions()) continue;
    const Fd found(::openat(readable.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!found.valid()) {
      if (errno == ENOENT) continue;  // gone since the folder was read
      return fail_errno("open '" + printable(full) + "' of " + what_);
    }
    if (left_out) {
      // Only for what is an exception below it.
      struct stat info = {};
      if (::fstat(found.get(), &info) != 0) return fail_errno("fstat " + printable(full));
      if (!S_ISDIR(info.st_mode)) continue;
    }
    if (tree.entries.size() >= kMaxSourceEntries)
      return fail(Error::exhausted("more than " + std::to_string(kMaxSourceEntries) +
                                   " files, which is more than can be copied"));
    TRY_ASSIGN(SourceEntry entry, entry_of(found.get(), full, below));
    const bool directory = entry.type == SourceType::kDirectory;
    tree.entries.push_back(std::move(entry));
    const std::size_t before = tree.entries.size();
    if (directory) TRY(walk(found.get(), below, depth + 1, tree));
    if (left_out && tree.entries.size() == before) tree.entries.pop_back();
  }
  return {};
}

Result<Fd> Source::open(const SourceTree& tree, const SourceEntry& entry) const {
  const std::string path = joined(tree.path, entry.path);
  const auto changed = [&] {
    return fail(Error(Code::kAborted,
                      "'" + printable(path) + "' of " + what_ + " changed while it was read"));
  };
  // In a context no link is on the way to what look() found: one by now was put there to bring what
  // is left out.
  const std::uint64_t scope = links_ == Links::kBeneath ? RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS
                                                        : RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  auto file = sys::openat2(root_fd_, entry.path.empty() ? tree.path : path,
                           O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0, scope);
  if (!file.has_value()) {
    const bool link = links_ == Links::kBeneath && file.error().error_number() == ELOOP;
    if (link) return changed();
    return fail(open_error(std::move(file).error(), path));
  }
  struct stat info = {};
  if (::fstat(file->get(), &info) != 0) return fail_errno("fstat " + printable(path));
  if (!S_ISREG(info.st_mode)) return changed();
  return std::move(*file);
}

Result<std::string> digest_trees(const Source& source, std::vector<SourceTree>& trees) {
  Sha256 all;
  for (SourceTree& tree : trees) {
    add_field(all, "tree");
    add_field(all, tree.name);
    for (SourceEntry& entry : tree.entries) {
      if (entry.type == SourceType::kFile) {
        TRY_ASSIGN(const Fd file, source.open(tree, entry));
        Sha256 hash;
        TRY(hash_file(file.get(), hash, entry.path));
        entry.digest = hash.finish();
      }
      add_field(all, entry.path);
      add_field(all, std::to_string(static_cast<int>(entry.type)));
      // A link's mode means nothing.
      add_field(all, entry.type == SourceType::kLink ? "" : std::to_string(entry.mode));
      add_field(all, std::to_string(entry.uid) + ":" + std::to_string(entry.gid));
      add_field(all, entry.target);
      add_field(all, entry.digest);
    }
  }
  return all.finish();
}

Result<bool> is_archive(std::string_view name, int file_fd) {
  for (const std::string_view end : {".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.zst", ".tzst"})
    if (name.ends_with(end)) return true;
  for (const std::string_view end : {".tar.bz2", ".tbz2", ".tbz", ".tar.lz", ".tar.Z"})
    if (name.ends_with(end))
      return fail(Error(Code::kUnimplemented,
                        "ADD cannot unpack " + printable(name) +
                            "; allowed are tar archives, plain or with gzip, xz or zstd; COPY "
                            "copies it as it is"));
  char magic[6] = {};
  const ssize_t count = ::pread(file_fd, magic, 5, 257);
  if (count < 0) return fail_errno("read " + printable(name));
  return count == 5 && std::memcmp(magic, "ustar", 5) == 0;
}

}  // namespace caisson::build
