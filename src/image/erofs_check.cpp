#include "image/erofs_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/kernel_abi.h"
#include "image/erofs_format.h"
#include "image/ids.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

using erofs::get16;
using erofs::get32;
using erofs::get64;
using erofs::Inode;
using erofs::kBlock;
using erofs::kEntrySize;
using erofs::kInodeSize;
using erofs::Layout;

// Far beyond what the limits of unpacking allow; they bound memory and time.
constexpr std::uint64_t kMaxMetadata = 16ull << 30;
constexpr std::uint64_t kMaxEntries = 1 << 24;
constexpr std::uint64_t kMaxSymlink = 4095;
constexpr std::size_t kMaxName = 255;
// What the units of metadata are counted in: an inode.
constexpr std::uint64_t kUnitsABlock = kBlock / kInodeSize;

std::unexpected<Error> refuse(const std::string& why) {
  return fail(Error(Code::kDataLoss, "the image file is not as the unpacker writes it: " + why));
}
std::unexpected<Error> refuse(std::uint32_t slot, const std::string& why) {
  return refuse("inode " + std::to_string(slot * std::uint64_t{erofs::kNumbersAnInode}) + ": " +
                why);
}

// Blocks of the file, the last ones used kept.
class Blocks {
 public:
  explicit Blocks(int fd) : fd_(fd), numbers_(kKept, 0), bytes_(kKept * kBlock) {}

  // `number` is not 0 and in the file. Valid until the next call.
  Result<const char*> at(std::uint64_t number) {
    const std::size_t place = number % kKept;
    char* to = bytes_.data() + place * kBlock;
    if (numbers_[place] == number) return to;
    numbers_[place] = 0;
    TRY(read(number, to));
    numbers_[place] = number;
    return to;
  }
  Status read(std::uint64_t number, char* to) const {
    for (std::size_t done = 0; done < kBlock;) {
      const ssize_t got = TEMP_FAILURE_RETRY(
          pread(fd_, to + done, kBlock - done, static_cast<off_t>(number * kBlock + done)));
      if (got < 0) return fail_errno("read the image file");
      if (got == 0) return refuse("it became shorter while it was being read");
      done += static_cast<std::size_t>(got);
    }
    return {};
  }

 private:
  static constexpr std::size_t kKept = 256;
  int fd_;
  std::vector<std::uint64_t> numbers_;
  std::vector<char> bytes_;
};

class Checker {
 public:
  Checker(int fd, RootfsKind kind) : fd_(fd), kind_(kind), blocks_(fd) {}

  Result<ErofsCounts> run() {
    TRY(check_superblock());
    taken_.resize((super_.blocks - super_.metadata_block) * kUnitsABlock);
    TRY_ASSIGN(const Inode root, take_inode(super_.root_number / erofs::kNumbersAnInode, true));
    if (!S_ISDIR(root.mode)) return refuse(erofs::kRootSlot, "the root is no directory");
    directories_.push_back({.slot = erofs::kRootSlot, .parent = erofs::kRootSlot, .inode = root});
    while (!directories_.empty()) {
      const Directory next = directories_.back();
      directories_.pop_back();
      TRY(check_directory(next));
    }
    for (const auto& [slot, link] : linked_) {
      if (link.left != 0) return refuse(slot, "it has fewer names than links");
    }
    if (counts_.inodes != super_.inodes) {
      return refuse("it has " + std::to_string(counts_.inodes) + " inodes and says " +
                    std::to_string(super_.inodes));
    }
    TRY(check_overlaps());
    return counts_;
  }

 private:
  struct Directory {
    std::uint32_t slot = 0, parent = 0;
    Inode inode;
  };
  // Where a directory's entries have come to.
  struct Reading {
    const Directory& directory;
    std::string last;
    std::uint32_t links = 0;
    bool dot = false, dots = false;
  };
  // Names of a file with several that have not been seen yet.
  struct Link {
    std::uint32_t left = 0;
    Inode inode;
  };

  Status check_superblock() {
    struct stat file = {};
    if (fstat(fd_, &file) != 0) return fail_errno("stat the image file");
    if (!S_ISREG(file.st_mode)) return refuse("it is no regular file");
    const auto size = static_cast<std::uint64_t>(file.st_size);
    if (size % kBlock != 0 || size < 2 * kBlock) return refuse("its size is not of whole blocks");
    char block[kBlock];
    TRY(blocks_.read(0, block));
    const char* super = block + erofs::kSuperOffset;
    if (get32(super) != erofs::kMagic) return refuse("superblock: no erofs magic");
    if (super[12] != 12) return refuse("superblock: the blocks are not of 4 KiB");
    if (get32(super + 8) != (erofs::kHasChecksum | erofs::kHasTimes)) {
      return refuse("superblock: other compatible features than ours");
    }
    if (get32(super + 80) != 0) return refuse("superblock: incompatible features");
    super_ = {.root_number = get16(super + 14),
              .inodes = get64(super + 16),
              .blocks = get32(super + 36),
              .metadata_block = get32(super + 40)};
    char expected[kBlock];
    erofs::encode(super_, expected);
    const bool same_sum = get32(super + 4) == get32(expected + erofs::kSuperOffset + 4);
    erofs::put32(expected + erofs::kSuperOffset + 4, get32(super + 4));
    if (std::memcmp(block, expected, kBlock) != 0) {
      return refuse("superblock: a field is set that must be zero");
    }
    if (!same_sum) return refuse("superblock: the checksum is wrong");
    if (super_.blocks != size / kBlock) {
      return refuse("superblock: " + std::to_string(super_.blocks) + " blocks, the file has " +
                    std::to_string(size / kBlock));
    }
    if (super_.metadata_block == 0 || super_.metadata_block >= super_.blocks) {
      return refuse("superblock: the metadata lies outside of the file");
    }
    if ((super_.blocks - super_.metadata_block) > kMaxMetadata / kBlock) {
      return refuse("superblock: more than 16 GiB of metadata");
    }
    if (super_.root_number != erofs::kRootSlot * erofs::kNumbersAnInode) {
      return refuse("superblock: the root has another number than ours");
    }
    return {};
  }

  // Metadata that nothing else has taken, in units from its beginning.
  bool take_units(std::uint64_t first, std::uint64_t count) {
    if (first > taken_.size() || count > taken_.size() - first) return false;
    for (std::uint64_t unit = first; unit < first + count; ++unit) {
      if (taken_[unit]) return false;
      taken_[unit] = true;
    }
    return true;
  }

  // An inode that a name leads to, checked when the first does.
  Result<Inode> take_inode(std::uint64_t slot, bool root = false) {
    if (slot == 0 || slot >= taken_.size()) return refuse("an inode lies outside of the metadata");
    const auto number = static_cast<std::uint32_t>(slot);
    if (const auto known = linked_.find(number); known != linked_.end()) {
      if (known->second.left == 0) return refuse(number, "it has more names than links");
      --known->second.left;
      return known->second.inode;
    }
    TRY_ASSIGN(const char* block, blocks_.at(super_.metadata_block + slot / kUnitsABlock));
    const std::size_t within = slot % kUnitsABlock * kInodeSize;
    char bytes[kInodeSize], again[kInodeSize];
    std::memcpy(bytes, block + within, sizeof bytes);
    const std::uint32_t format = get16(bytes);
    if (format != 1u && format != (1u | static_cast<std::uint32_t>(Layout::kInline) << 1)) {
      return refuse(number, "neither plain nor inline in the long form");
    }
    const Inode inode = Inode::decode(bytes);
    if (get16(bytes + 2) != 0)
      TRY(check_attribute(number, inode, {block + within, kBlock - within}));
    inode.encode(again);
    if (std::memcmp(bytes, again, sizeof bytes) != 0) {
      return refuse(number, "a field is set that must be zero");
    }
    TRY(check_inode(number, inode, root));
    if (inode.layout == Layout::kInline && within + inode.head() + inode.size > kBlock) {
      return refuse(number, "what it holds crosses the end of its block");
    }
    const std::uint64_t size = inode.head() + (inode.layout == Layout::kInline ? inode.size : 0);
    if (!take_units(slot, (size + kInodeSize - 1) / kInodeSize)) {
      return refuse(number, "it overlaps with another inode, or a second name leads to it");
    }
    if (S_ISLNK(inode.mode)) TRY(check_target(number, inode, block + within + kInodeSize));
    if (!S_ISDIR(inode.mode) && inode.links > 1) linked_[number] = {inode.links - 1, inode};
    ++counts_.inodes;
    return inode;
  }

  // `from` is its block from the inode on.
  Status check_attribute(std::uint32_t slot, const Inode& inode, std::string_view from) {
    if (kind_ == RootfsKind::kWhole) return refuse(slot, "it has extended attributes");
    if (!S_ISDIR(inode.mode) || !inode.opaque || slot == erofs::kRootSlot ||
        from.size() < inode.head() ||
        from.substr(kInodeSize, erofs::kOpaqueAttribute.size()) != erofs::kOpaqueAttribute) {
      return refuse(slot, "it has other attributes than an opaque directory's");
    }
    return {};
  }

  Status check_inode(std::uint32_t slot, const Inode& inode, bool root) {
    if (inode.uid >= kImageIds || inode.gid >= kImageIds) return refuse(slot, "an id above 65535");
    if (inode.modified.tv_nsec >= 1'000'000'000) return refuse(slot, "a time that is none");
    if (inode.links == 0) return refuse(slot, "it has no links");
    switch (inode.mode & S_IFMT) {
      case S_IFIFO:
        if ((inode.mode & 07000) != 0) return refuse(slot, "a pipe with a special mode");
        if (inode.size != 0) return refuse(slot, "a pipe that holds something");
        return check_place(slot, inode, false);
      case S_IFLNK:
        if ((inode.mode & 07777) != 0777) return refuse(slot, "a symbolic link's mode is not 0777");
        if (inode.size == 0 || inode.size > kMaxSymlink) {
          return refuse(slot, "a symbolic link of " + std::to_string(inode.size) +
                                  " bytes; 1 to 4095 are allowed");
        }
        return check_place(slot, inode, kInodeSize + inode.size <= kBlock);
      case S_IFREG:
        return check_place(slot, inode, inode.size > 0 && inode.size <= erofs::kInline);
      case S_IFDIR:
        return check_place(slot, inode, !root && inode.size <= erofs::kInline);
      case S_IFCHR:
        if (kind_ == RootfsKind::kDelta) return check_whiteout(slot, inode);
        [[fallthrough]];
      default:
        return refuse(slot, "neither directory, file, symbolic link nor pipe");
    }
  }

  Status check_whiteout(std::uint32_t slot, const Inode& inode) {
    if ((inode.mode & 07777) != 0 || inode.uid != 0 || inode.gid != 0 || inode.size != 0 ||
        inode.block != 0 || inode.links != 1) {
      return refuse(slot, "a device that is no whiteout");
    }
    return check_place(slot, inode, false);
  }

  // Where what it holds must lie; what is not inline is remembered or taken.
  Status check_place(std::uint32_t slot, const Inode& inode, bool inside) {
    if ((inode.layout == Layout::kInline) != inside) {
      return refuse(slot, "what it holds is not where something of its size must be");
    }
    // The number is what stat() shows; a directory that has moved keeps its old one.
    if (!S_ISDIR(inode.mode) && inode.number != slot) {
      return refuse(slot, "it has another number than its place");
    }
    if (inside || inode.size == 0) {
      if (inode.block != 0) return refuse(slot, "it names a block and needs none");
      return {};
    }
    const bool directory = S_ISDIR(inode.mode);
    const std::uint64_t begin = directory ? super_.metadata_block : 1;
    const std::uint64_t end = directory ? super_.blocks : super_.metadata_block;
    if (inode.block < begin || inode.block >= end || inode.size > (end - inode.block) * kBlock) {
      return refuse(slot, "what it holds lies outside of the image");
    }
    const auto count = static_cast<std::uint32_t>(erofs::blocks_up(inode.size) / kBlock);
    if (!directory) {
      ranges_.emplace_back(inode.block, count);
    } else if (!take_units((inode.block - begin) * kUnitsABlock, count * kUnitsABlock)) {
      return refuse(slot, "its entries overlap with something else");
    }
    return {};
  }

  // `behind` is what follows the inode in its block.
  Status check_target(std::uint32_t slot, const Inode& inode, const char* behind) {
    if (inode.layout != Layout::kInline) {
      TRY_ASSIGN(behind, blocks_.at(inode.block));
    }
    if (std::memchr(behind, 0, inode.size) != nullptr) {
      return refuse(slot, "a symbolic link's target with a zero byte");
    }
    return {};
  }

  Status check_directory(const Directory& directory) {
    Reading reading{.directory = directory, .last = {}};
    char block[kBlock];
    const Inode& inode = directory.inode;
    for (std::uint64_t done = 0; done < inode.size; done += kBlock) {
      const std::size_t size = std::min<std::uint64_t>(kBlock, inode.size - done);
      const bool inside = inode.layout == Layout::kInline;
      TRY_ASSIGN(const char* from,
                 blocks_.at(inside ? super_.metadata_block + directory.slot / kUnitsABlock
                                   : inode.block + done / kBlock));
      if (inside) from += directory.slot % kUnitsABlock * kInodeSize + inode.head();
      std::memcpy(block, from, size);  // reading the entries' inodes uses the kept ones
      TRY(check_entries(reading, {block, size}));
    }
    if (!reading.dot || !reading.dots) return refuse(directory.slot, "no '.' or no '..'");
    if (reading.links != inode.links) {
      return refuse(directory.slot, "a directory whose links are not its directories");
    }
    return {};
  }

  // One block of a directory.
  Status check_entries(Reading& reading, std::string_view block) {
    const std::uint32_t slot = reading.directory.slot;
    if (block.size() < kEntrySize) return refuse(slot, "a block too small for an entry");
    const std::size_t names = get16(block.data() + 8);
    if (names == 0 || names % kEntrySize != 0 || names > block.size()) {
      return refuse(slot, "the first name is not behind whole entries");
    }
    for (std::size_t at = 0; at < names; at += kEntrySize) {
      const char* entry = block.data() + at;
      const bool last = at + kEntrySize == names;
      const std::size_t begin = get16(entry + 8);
      const std::size_t end = last ? block.size() : get16(entry + kEntrySize + 8);
      if (begin < names || begin >= end || end > block.size()) {
        return refuse(slot, "a name does not lie behind the one before it");
      }
      std::string_view name = block.substr(begin, end - begin);
      if (last) {
        // Behind the last one is nothing.
        const std::size_t zero = name.find('\0');
        if (zero != std::string_view::npos) {
          if (name.find_first_not_of('\0', zero) != std::string_view::npos) {
            return refuse(slot, "something lies behind the last name of a block");
          }
          name = name.substr(0, zero);
        }
      }
      if (entry[11] != 0) return refuse(slot, "an entry with a field set that must be zero");
      TRY(check_entry(reading, name, get64(entry), static_cast<std::uint8_t>(entry[10])));
    }
    return {};
  }

  Status check_entry(Reading& reading, std::string_view name, std::uint64_t number,
                     std::uint8_t type) {
    const std::uint32_t slot = reading.directory.slot;
    if (name.empty() || name.size() > kMaxName || name.find('/') != std::string_view::npos ||
        name.find('\0') != std::string_view::npos) {
      return refuse(slot, "'" + printable(name) + "' cannot be a name");
    }
    // A first name is never empty, so everything lies behind the empty one.
    if (name <= reading.last) return refuse(slot, "'" + printable(name) + "' is out of order");
    reading.last = name;
    if (number % erofs::kNumbersAnInode != 0) {
      return refuse(slot, "'" + printable(name) + "' leads between inodes");
    }
    const std::uint64_t child = number / erofs::kNumbersAnInode;
    if (type == erofs::entry_type(S_IFDIR)) ++reading.links;
    if (name == "." || name == "..") {
      const bool dot = name == ".";
      (dot ? reading.dot : reading.dots) = true;
      if (child != (dot ? slot : reading.directory.parent) || type != erofs::entry_type(S_IFDIR)) {
        return refuse(slot, "'" + std::string(name) + "' leads elsewhere");
      }
      return {};
    }
    if (++counts_.entries > kMaxEntries) return refuse("it has more than 16 million names");
    TRY_ASSIGN(const Inode inode, take_inode(child));
    if (type != erofs::entry_type(inode.mode)) {
      return refuse(slot, "'" + printable(name) + "' is of another kind than its inode");
    }
    if (S_ISDIR(inode.mode)) {
      directories_.push_back(
          {.slot = static_cast<std::uint32_t>(child), .parent = slot, .inode = inode});
    }
    return {};
  }

  Status check_overlaps() {
    std::ranges::sort(ranges_);
    std::uint64_t end = 0;
    for (const auto& [begin, count] : ranges_) {
      if (begin < end) return refuse("two files share block " + std::to_string(begin));
      end = std::uint64_t{begin} + count;
    }
    return {};
  }

  int fd_;
  RootfsKind kind_;
  Blocks blocks_;
  erofs::Superblock super_;
  ErofsCounts counts_;
  std::vector<bool> taken_;                                      // metadata by unit
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges_;  // of files: first block, count
  std::map<std::uint32_t, Link> linked_;                         // by slot
  std::vector<Directory> directories_;                           // still to be looked at
};

}  // namespace

Result<ErofsCounts> check_erofs(int image_fd, RootfsKind kind) {
  return Checker(image_fd, kind).run();
}

}  // namespace caisson::image
