// A root filesystem as a list of what is in it, read back from a directory or from an erofs image
// that is checked on the way as strictly as a kernel would and more. Test code only.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "image/erofs_format.h"

namespace caisson::image::testing {

struct Found {
  unsigned mode = 0;  // with the type
  unsigned uid = 0, gid = 0, links = 0;
  std::int64_t seconds = 0;
  long nanoseconds = 0;
  std::uint64_t size = 0;  // 0 for a directory
  std::string contents;    // of a file or a symbolic link
  std::string first_name;  // the least name of the same inode
  bool opaque = false;     // a directory of a delta

  bool operator==(const Found&) const = default;
};
using Listing = std::map<std::string, Found>;  // "" is the root

inline std::string describe(const Listing& listing) {
  std::string text;
  char line[128];
  for (const auto& [name, found] : listing) {
    std::snprintf(line, sizeof line, "%06o %u:%u links %u time %lld.%09ld size %llu ", found.mode,
                  found.uid, found.gid, found.links, static_cast<long long>(found.seconds),
                  found.nanoseconds, static_cast<unsigned long long>(found.size));
    text += line + (found.opaque ? std::string("opaque ") : std::string()) +
            ("'" + name + "' = '" + found.first_name + "' \"") + found.contents.substr(0, 40) +
            "\"\n";
  }
  return text;
}

// Says which name is wrong and ends the test program: a broken image is no ordinary failure.
inline void must(bool holds, const char* what, const std::string& name) {
  if (holds) return;
  std::fprintf(stderr, "erofs image: %s: '%s'\n", what, name.c_str());
  std::abort();
}

class ErofsReader {
 public:
  explicit ErofsReader(std::string_view image, bool contents = true)
      : image_(image), contents_(contents) {
    using namespace erofs;
    must(image.size() >= kBlock && image.size() % kBlock == 0, "size", "");
    const char* super = image.data() + kSuperOffset;
    std::string block(image.substr(kSuperOffset, kBlock - kSuperOffset));
    put32(block.data() + 4, 0);
    must(get32(super) == kMagic && get32(super + 4) == crc32c(block), "superblock", "");
    must(super[12] == 12 && get32(super + 80) == 0, "features", "");
    must(get32(super + 36) == image.size() / kBlock, "blocks", "");
    metadata_ = std::uint64_t{get32(super + 40)} * kBlock;
    inodes_ = get64(super + 16);
  }

  Listing list() {
    const std::uint64_t root = erofs::get16(image_.data() + erofs::kSuperOffset + 14);
    Listing listing;
    std::map<std::uint64_t, std::set<std::string>> names;
    walk(root, root, "", listing, names);
    must(names.size() == inodes_, "count of inodes", std::to_string(inodes_));
    for (const auto& [number, all] : names) {
      const erofs::Inode inode = inode_at(number);
      if (!S_ISDIR(inode.mode)) must(inode.links == all.size(), "links", *all.begin());
      for (const std::string& name : all) listing[name].first_name = *all.begin();
    }
    return listing;
  }

 private:
  erofs::Inode inode_at(std::uint64_t number) {
    const std::uint64_t at = metadata_ + number * 32;
    must(at % 64 == 0 && at + 64 <= image_.size(), "inode", std::to_string(number));
    char bytes[erofs::kInodeSize];
    std::memcpy(bytes, image_.data() + at, sizeof bytes);
    must((erofs::get16(bytes) & 1) == 1 && erofs::get16(bytes) < 6, "format",
         std::to_string(number));
    const erofs::Inode inode = erofs::Inode::decode(bytes);
    must(erofs::get16(bytes + 2) == 0 ||
             (inode.opaque && image_.substr(at + 64, 32) == erofs::kOpaqueAttribute),
         "attributes", std::to_string(number));
    return inode;
  }
  std::string_view contents(std::uint64_t number, const erofs::Inode& inode) {
    if (inode.size == 0) return {};
    std::uint64_t at = std::uint64_t{inode.block} * erofs::kBlock;
    if (inode.layout == erofs::Layout::kInline) {
      at = metadata_ + number * 32 + inode.head();
      must(at % erofs::kBlock + inode.size <= erofs::kBlock && at % erofs::kBlock != 0,
           "contents cross a block", std::to_string(number));
    } else {
      must(at >= erofs::kBlock, "contents lie in the superblock", std::to_string(number));
    }
    must(at + inode.size <= image_.size(), "contents lie outside", std::to_string(number));
    return image_.substr(at, inode.size);
  }

  void walk(std::uint64_t number, std::uint64_t parent, const std::string& name, Listing& listing,
            std::map<std::uint64_t, std::set<std::string>>& names) {
    const erofs::Inode inode = inode_at(number);
    names[number].insert(name);
    Found& found = listing[name];
    found = {.mode = inode.mode,
             .uid = inode.uid,
             .gid = inode.gid,
             .links = inode.links,
             .seconds = inode.modified.tv_sec,
             .nanoseconds = inode.modified.tv_nsec,
             .size = S_ISDIR(inode.mode) ? 0 : inode.size,
             .opaque = inode.opaque};
    if (!S_ISDIR(inode.mode)) {
      if (contents_ || S_ISLNK(inode.mode)) found.contents = contents(number, inode);
      return;
    }
    must(names[number].size() == 1, "a directory with two names", name);
    const std::string_view bytes = contents(number, inode);
    std::string last;
    unsigned links = 0;
    for (std::size_t begin = 0; begin < bytes.size(); begin += erofs::kBlock) {
      const std::string_view block = bytes.substr(begin, erofs::kBlock);
      must(block.size() >= 12, "a block of a directory", name);
      const std::size_t count = erofs::get16(block.data() + 8) / 12;
      must(count > 0 && count * 12 == erofs::get16(block.data() + 8), "first name offset", name);
      for (std::size_t i = 0; i < count; ++i) {
        const char* at = block.data() + 12 * i;
        const std::size_t from = erofs::get16(at + 8);
        const std::size_t to = i + 1 < count ? erofs::get16(at + 20) : block.size();
        must(from < to && to <= block.size(), "name offsets", name);
        std::string entry(block.substr(from, to - from));
        if (i + 1 == count) entry.resize(strnlen(entry.data(), entry.size()));
        must(!entry.empty() && entry.size() <= 255 && entry.find('/') == std::string::npos &&
                 entry.find('\0') == std::string::npos,
             "a name", name + "/" + entry);
        must(last.empty() || last < entry, "order", name + "/" + entry);
        last = entry;
        const std::uint64_t child = erofs::get64(at);
        must(static_cast<unsigned char>(at[10]) == erofs::entry_type(inode_at(child).mode),
             "kind of an entry", name + "/" + entry);
        if (S_ISDIR(inode_at(child).mode)) ++links;
        if (entry == ".") {
          must(child == number, "'.'", name);
        } else if (entry == "..") {
          must(child == parent, "'..'", name);
        } else {
          walk(child, number, name.empty() ? entry : name + "/" + entry, listing, names);
        }
      }
    }
    must(links >= 2 && links == inode.links, "links of a directory", name);
  }

  std::string_view image_;
  bool contents_;
  std::uint64_t metadata_ = 0, inodes_ = 0;
};

inline std::string read_whole(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  must(fd >= 0, "open", path);
  char buffer[65536];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(fd);
  return text;
}

// `shift` is taken off the owners.
inline Listing list_tree(const std::string& root, unsigned shift = 0) {
  Listing listing;
  std::map<std::uint64_t, std::string> first;
  auto look = [&](const std::string& path, const std::string& name) {
    struct stat status = {};
    must(lstat(path.c_str(), &status) == 0, "stat", path);
    Found& found = listing[name];
    found = {.mode = status.st_mode,
             .uid = status.st_uid - shift,
             .gid = status.st_gid - shift,
             .links = static_cast<unsigned>(status.st_nlink),
             .seconds = status.st_mtim.tv_sec,
             .nanoseconds = status.st_mtim.tv_nsec,
             .size = S_ISDIR(status.st_mode) ? 0 : static_cast<std::uint64_t>(status.st_size)};
    if (S_ISREG(status.st_mode)) found.contents = read_whole(path);
    char mark = 0;
    found.opaque = lgetxattr(path.c_str(), "user.overlay.opaque", &mark, 1) == 1 && mark == 'y';
    if (S_ISLNK(status.st_mode)) found.contents = std::filesystem::read_symlink(path);
    auto [known, added] = first.emplace(status.st_ino, name);
    if (!added) known->second = std::min(known->second, name);
  };
  look(root, "");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    look(entry.path(), entry.path().string().substr(root.size() + 1));
  }
  for (auto& [name, found] : listing) {
    struct stat status = {};
    lstat((name.empty() ? root : root + "/" + name).c_str(), &status);
    found.first_name = first[status.st_ino];
    // Not every file system counts the directories in a directory (btrfs does not).
    if (S_ISDIR(found.mode)) {
      found.links = 2;
      for (const auto& entry :
           std::filesystem::directory_iterator(name.empty() ? root : root + "/" + name)) {
        if (entry.symlink_status().type() == std::filesystem::file_type::directory) ++found.links;
      }
    }
  }
  return listing;
}

}  // namespace caisson::image::testing
