// From an image's files in the store to the root that a wall takes as its overlay's lower side.
//
// A rootfs lies in the store as one erofs file or as a directory. The file is mounted: from the
// file itself where the kernel can (Linux 6.12), else over a loop device; the mount is read-only,
// without devices and set-id modes, and never attached to the host's tree, so that nobody on the
// host sees it but through a descriptor, and it ends with the last one. A directory is only opened.
//
//   TRY_ASSIGN(ImageRoot root, open_root(chain_directory_fd));       // of a store: mounts
//   rootfs.erofs plan.image = root.mounted ? kMount : kDirectory;
//
// Ids in an erofs file are the image's own, 0 to 65535; only the wall's id mapping makes them ids
// of a sandbox (wall/namespace/parts.cpp). Until then no process may run in such a mount.
//
// Every sandbox mounts for itself, buffered: pages are copied from the file's own page cache, which
// outlives it. All sandboxes share what is in memory of a directory, which is therefore what a
// server should have. docs/benchmarks.md has the figures. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::image {

// The names below a chain's directory in the store; exactly one of them is there.
inline constexpr const char* kErofsName = "rootfs.erofs";
inline constexpr const char* kDirectoryName = "rootfs";

enum class ErofsMethod : std::uint8_t {
  kBuffered,  // from the file, whose own pages stay in the cache
  kLoop,      // over a loop device, with direct I/O where its file system has that
  kCount
};
std::string_view to_string(ErofsMethod method);

struct ImageRoot {
  // A detached mount, else an O_PATH directory.
  Fd fd;
  bool mounted = false;
  Fd file;  // what is mounted
};

// A detached mount of the erofs file. Root alone. Error: the system call's.
Result<Fd> mount_erofs(int file_fd, ErofsMethod method);

// Opens the rootfs of a chain's directory for one sandbox: buffered, else over a loop device.
// Error: data_loss where neither name is there; precondition, saying what each way met, where this
// host or user cannot mount an erofs file (the image must then be unpacked again).
Result<ImageRoot> open_root(int chain_directory_fd);
// The same for an erofs file that has no place in the store. It must have been checked
// (erofs_check.h), and nobody else may be able to write it.
Result<ImageRoot> mount_root(Fd file);

// What this host can do, as tried with a small file in `directory_fd` (whose file system matters).
struct MountSupport {
  // 0: works; else the errno that it met.
  std::array<int, static_cast<std::size_t>(ErofsMethod::kCount)> error;
  // Whether what is mounted shows its attributes, as deltas need (rootfs_kind.h): a kernel may have
  // been built without.
  bool attributes = false;

  int operator[](ErofsMethod method) const { return error[static_cast<std::size_t>(method)]; }
  // Whether images may be kept as erofs files: they can be mounted from the file. A loop device
  // takes milliseconds for each run.
  bool mounts_erofs() const { return (*this)[ErofsMethod::kBuffered] == 0; }
  std::string encode() const;
  static Result<MountSupport> decode(std::string_view text);
  bool operator==(const MountSupport&) const = default;
};
// Tries each way. Nothing of it is left. Not root: EPERM for all, without trying.
MountSupport try_mounts(int directory_fd);
// MountSupport::attributes, tried in the same way.
bool erofs_shows_attributes(int directory_fd);
// As try_mounts(), tried once a boot and file system and then remembered in RUN/erofs-mounts.
MountSupport known_mounts(int directory_fd);
// Tries again and remembers that.
MountSupport refresh_mounts(int directory_fd);

}  // namespace caisson::image
