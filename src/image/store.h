// The local image store: named references to unpacked root directories that are kept by the digest
// of what they were made from.
//
//   state_directory()/images/        0700
//     lock                           held for moments, by whoever changes references or moves
//     things refs/NAME:TAG                  text: which digest it is and when it was imported
//     by-digest/SHA256/info          text: what is known about it; written before it becomes
//     visible by-digest/SHA256/rootfs/       the root directory, owned as ids.h says
//     by-digest/SHA256/use           locked shared by who uses it, exclusively by who removes it
//     tmp/RANDOM/                    work under way; its owner holds a lock on tmp/RANDOM/lock
//     tmp/import.SHA256              lock: one import of the same bytes at a time
//
// Things are made in tmp, synced, and renamed into place, so that a crash at any moment leaves
// nothing visible; what it leaves in tmp is removed when a store is next opened. A digest that no
// reference names is removed too, once nobody uses it. Other forms of the same image (compressed
// layers, one erofs file) have their place beside rootfs.
//
// Not thread-safe; several processes may use one store at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/ids.h"
#include "image/reference.h"

namespace caisson::image {

// What the store knows about one digest.
struct ImageInfo {
  std::string digest;  // 64 hexadecimal digits
  IdMapping ids;
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // of the files' contents

  std::string encode() const;
  static Result<ImageInfo> decode(std::string_view text);
};

// One image, ready to be a sandbox's root.
struct ImageRef {
  Reference reference;
  ImageInfo info;
  Fd root_directory;  // O_PATH
  // Keep it (or a copy of the descriptor) open for as long as the sandbox lives: as long as it is,
  // nobody removes the files.
  Fd in_use;

  // For the launch plan: on-disk id of the image's uid 0 in a root store, else 0.
  std::uint32_t disk_base() const {
    return info.ids.layout == IdLayout::kShifted ? info.ids.uid_base : 0;
  }
};

struct ListedImage {
  Reference reference;
  ImageInfo info;
  std::int64_t imported = 0;  // seconds since 1970
};

// A directory in tmp that is ours until commit() or destruction.
class Workspace {
 public:
  Workspace(Workspace&&) noexcept = default;
  Workspace& operator=(Workspace&&) noexcept = default;

  int directory_fd() const { return directory_.get(); }
  // Locked; whoever inherits it keeps the sweep away.
  int lock_fd() const { return lock_.get(); }
  const std::string& name() const { return name_; }

 private:
  friend class Store;
  Workspace() = default;
  std::string name_;
  Fd directory_;
  Fd lock_;
};

class Store {
 public:
  // Opens (and makes) the store of this user and sweeps what a crash left. An error of the sweep is
  // no error of the store.
  static Result<Store> open();
  static Result<Store> open_at(const std::string& directory);
  // open(), but nullopt and nothing made when this user has no store yet.
  static Result<std::optional<Store>> open_if_present();

  // Error: not_found, naming the images that there are; precondition where the image was unpacked
  // for ids that this process cannot use.
  Result<ImageRef> resolve(std::string_view reference);
  bool contains(std::string_view reference);
  Result<std::vector<ListedImage>> list();
  // Removes the reference, and the files unless another reference names them or a sandbox uses
  // them (then they go when a store is next opened after it).
  Status remove(std::string_view reference);

  // For import.cpp, in this order.
  Result<Workspace> make_workspace();
  // Held until the returned lock is closed: nobody else imports these bytes meanwhile.
  Result<Fd> lock_import(const std::string& digest);
  Result<bool> has_digest(const std::string& digest);
  // Makes the workspace's `rootfs` the image of that digest and syncs it.
  Status commit(Workspace workspace, const ImageInfo& info);
  // Points the reference to the digest, which must be there.
  Status set_reference(const Reference& reference, const std::string& digest);
  Status discard(Workspace workspace);
  // Removes dead work and digests without a reference.
  Status sweep();

  int directory_fd() const { return directory_.get(); }

 private:
  Store() = default;
  Result<Fd> lock();
  Result<ImageInfo> read_info(const std::string& digest);
  Result<std::string> read_reference(const std::string& file_name, std::int64_t& imported);
  Result<std::string> available();
  // Moves an unused digest to tmp for removal; nothing happens while it is in use. Under the lock.
  Status retire(const std::string& digest);
  Status remove_from_tmp(const std::string& name);

  Fd directory_, refs_, digests_, tmp_;
};

}  // namespace caisson::image
