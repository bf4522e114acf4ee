// Entries onto a directory of this host. Every name is resolved by the kernel beneath the root's
// descriptor and through no symbolic link, one parent at a time, so that no entry, whatever came
// before it, reaches a place outside; the worker's own root is that directory as well.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "image/ids.h"
#include "image/worker/unpack.h"

namespace caisson::image {

class DirectoryDestination final : public Destination {
 public:
  // Borrows `root_fd`. With IdLayout::kSingle no owner is set.
  DirectoryDestination(int root_fd, IdLayout layout) : root_fd_(root_fd), layout_(layout) {}

  Status make_directory(const EntryName& name, const EntryAttributes& attributes) override;
  Status make_symlink(const EntryName& name, std::string_view target,
                      const EntryAttributes& attributes) override;
  Status make_fifo(const EntryName& name, const EntryAttributes& attributes) override;
  Status make_hard_link(const EntryName& name, const EntryName& target) override;
  Status begin_file(const EntryName& name) override;
  Status write_file(std::string_view bytes, std::uint64_t offset) override;
  Status end_file(std::uint64_t size, const EntryAttributes& attributes) override;
  Status finish() override;

 private:
  // The descriptor of the directory `path`, valid until the next call.
  Result<int> open_parent(const EntryName& name);
  // Opens without making. Error: invalid where the way leads through a link or a file.
  Result<Fd> open_beneath(const EntryName& name, const std::string& path);
  // Makes room for an entry that is no directory.
  Status clear(int parent_fd, const EntryName& name);
  Status set_owner(int parent_fd, const std::string& last, const EntryAttributes& attributes);

  int root_fd_;
  IdLayout layout_;
  std::string parent_path_;
  Fd parent_;
  std::string file_name_;
  Fd file_;
  // Directories' times are set last, since every entry made in one changes them.
  std::vector<std::pair<EntryName, timespec>> directory_times_;
};

}  // namespace caisson::image
