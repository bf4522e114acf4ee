// What COPY takes from: a directory of the host (the build's context, or an archive that was
// unpacked), or the files of another sandbox (a stage or an image).
//
//   TRY_ASSIGN(std::vector<std::string> paths, source.match("src/*.c"));
//   TRY_ASSIGN(SourceTree tree, source.look(paths[0]));
//   TRY_ASSIGN(Fd bytes, source.open(tree, tree.entries[0]));
//
// Nothing outside of the source's root is ever reached: paths are opened beneath a descriptor, and
// a link among them that leads out is an error. Links that are not named themselves are copied as
// links. Devices, sockets and pipes are refused by name. Depth and number of entries are bounded.
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
  std::string path;  // below the source's root; empty: the root
  std::string name;  // its last component
  std::vector<SourceEntry> entries;
  bool is_directory() const { return entries[0].type == SourceType::kDirectory; }
};

class Source {
 public:
  virtual ~Source() = default;
  // The paths that a pattern means, sorted; a pattern without wildcards means itself, there or not.
  virtual Result<std::vector<std::string>> match(const std::string& pattern) = 0;
  // Error: not_found, invalid (what cannot be copied), exhausted.
  virtual Result<SourceTree> look(const std::string& path) = 0;
  // The bytes of a file of that tree, from their start.
  virtual Result<Fd> open(const SourceTree& tree, const SourceEntry& entry) = 0;
};

class HostSource final : public Source {
 public:
  // `root_fd` and `rules` are borrowed; `what` names the root in messages ("the context").
  HostSource(int root_fd, const IgnoreRules& rules, std::string what)
      : root_fd_(root_fd), rules_(rules), what_(std::move(what)) {}
  // Files belong to the ids that they have in an image, not to root.
  void keep_owners(const image::IdMapping& ids) { ids_ = ids; }

  Result<std::vector<std::string>> match(const std::string& pattern) override;
  Result<SourceTree> look(const std::string& path) override;
  Result<Fd> open(const SourceTree& tree, const SourceEntry& entry) override;

 private:
  Result<Fd> open_path(const std::string& path, std::uint64_t flags, bool follow);
  Status walk(int directory_fd, const std::string& path, std::size_t depth, SourceTree& tree);
  Result<SourceEntry> entry_of(int fd, const std::string& shown, std::string path) const;

  int root_fd_;
  const IgnoreRules& rules_;
  std::string what_;
  std::optional<image::IdMapping> ids_;
};

// Fills the digests of all files in; then a digest of names, kinds, modes, link targets and bytes
// (not of times), the same for the same trees.
Result<std::string> digest_trees(Source& source, std::vector<SourceTree>& trees);

// Whether the file is a tar archive that ADD unpacks: by its name where it is compressed (.tar.gz,
// .tgz, .tar.xz, .txz, .tar.zst, .tzst), by its contents where it is not. Error: unimplemented for
// bzip2 and others by name.
Result<bool> is_archive(std::string_view name, int file_fd);

}  // namespace caisson::build
