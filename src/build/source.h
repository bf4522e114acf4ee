// What COPY takes from: the build's context, or the files of a stage, an image or an archive that
// was unpacked.
//
//   Source source(context_fd, Source::Links::kBeneath, rules, "the context");
//   TRY_ASSIGN(std::vector<std::string> paths, source.match("src/*.c"));
//   TRY_ASSIGN(SourceTree tree, source.look(paths[0]));
//   TRY_ASSIGN(Fd bytes, source.open(tree, tree.entries[0]));
//
// Nothing outside of the source's root is ever reached: paths are opened beneath a descriptor. In a
// context a link that leads out is an error; in an image an absolute link begins at its root. Links
// that are not named themselves are copied as links. What `.dockerignore` leaves out is left out by
// the place where it lies, whatever link led there, and a link that is left out itself leads
// nowhere. Devices, sockets and pipes are refused by name. Depth and number of entries are bounded.
// An ordinary user can only copy what its own rights let it read: of an image with a range of ids,
// not the files that others may not read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "build/dockerignore.h"
#include "image/ids.h"

namespace caisson::build {

inline constexpr std::size_t kMaxSourceEntries = 1'000'000;
inline constexpr std::size_t kMaxSourceDepth = 60;

enum class SourceType : std::uint8_t { kFile, kDirectory, kLink };

struct SourceEntry {
  std::string path;  // below the tree's own; empty: the tree itself
  SourceType type = SourceType::kFile;
  std::uint32_t mode = 0;          // permissions, set-id and sticky bits
  std::uint32_t uid = 0, gid = 0;  // of the image
  std::uint64_t size = 0;
  std::uint64_t modified = 0;  // base/file_time.h
  std::string target;          // of a link
  std::string digest;          // of a file's bytes, where digest_trees() was called
};

// One source as it was named: a file, or a directory with everything below it, parents first.
struct SourceTree {
  std::string path;  // below the source's root, in a context without links; empty: the root
  std::string name;  // the last component of what was named
  std::vector<SourceEntry> entries;
  bool is_directory() const { return entries[0].type == SourceType::kDirectory; }
};

class Source {
 public:
  // kAsTheyAre: as kInRoot, but a link that is named itself is copied as a link.
  enum class Links : std::uint8_t { kBeneath, kInRoot, kAsTheyAre };
  // Both are borrowed; `what` names the root in messages ("the context").
  Source(int root_fd, Links links, const IgnoreRules& rules, std::string what)
      : root_fd_(root_fd), links_(links), rules_(rules), what_(std::move(what)) {}
  // Files belong to the ids that they have in the image, not to root. nullopt: as they are.
  void keep_owners(std::optional<image::IdMapping> ids) {
    keeps_owners_ = true;
    ids_ = ids;
  }

  // The paths that a pattern means, sorted; a pattern without wildcards means itself, there or not.
  Result<std::vector<std::string>> match(const std::string& pattern) const;
  // Error: not_found, invalid (what cannot be copied), exhausted.
  Result<SourceTree> look(const std::string& path) const;
  // The bytes of a file of that tree, from their start.
  Result<Fd> open(const SourceTree& tree, const SourceEntry& entry) const;

 private:
  Result<Fd> open_path(const std::string& path, std::uint64_t flags) const;
  Error open_error(Error error, const std::string& path) const;
  Status walk(int directory_fd, const std::string& path, std::size_t depth, SourceTree& tree) const;
  // Where below the root an open file lies; empty for the root itself. Error: where that cannot be
  // told (a path of 4096 bytes and more, a file that was moved out meanwhile).
  Result<std::string> place_of(int fd, const std::string& shown) const;
  Result<SourceEntry> entry_of(int fd, const std::string& shown, std::string path) const;

  int root_fd_;
  Links links_;
  const IgnoreRules& rules_;
  std::string what_;
  bool keeps_owners_ = false;
  std::optional<image::IdMapping> ids_;
};

// Fills the digests of all files in; then a digest of names, kinds, modes, link targets and bytes
// (not of times), the same for the same trees.
Result<std::string> digest_trees(const Source& source, std::vector<SourceTree>& trees);

// Whether the file is a tar archive that ADD unpacks: by its name where it is compressed (.tar.gz,
// .tgz, .tar.xz, .txz, .tar.zst, .tzst), by its contents where it is not. Error: unimplemented for
// bzip2 and others by name.
Result<bool> is_archive(std::string_view name, int file_fd);

}  // namespace caisson::build
