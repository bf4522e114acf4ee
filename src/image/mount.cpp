#include "image/mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "base/kernel_abi.h"
#include "base/loop_device.h"
#include "base/paths.h"
#include "base/sys.h"
#include "image/erofs_format.h"
#include "image/files.h"

namespace caisson::image {
namespace {

constexpr unsigned kAttributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID;
constexpr std::string_view kRememberedName = "erofs-mounts";
constexpr std::string_view kHeader = "caisson-erofs-mounts 2\n";
constexpr std::string_view kAttributesShown = "attributes yes\n",
                           kAttributesHidden = "attributes no\n";
constexpr std::array<ErofsMethod, 2> kMethods = {ErofsMethod::kBuffered, ErofsMethod::kLoop};

Result<Fd> mount_from(const std::string& source) {
  // "ro": else a read-only device is refused, being opened for writing first.
  const sys::MountOption options[] = {{"source", source.c_str()}, {"ro", nullptr}};
  return sys::make_mount("erofs", options, kAttributes);
}

Result<Fd> mount_over_loop(int file_fd) {
  LoopOptions options{.read_only = true, .direct = true};
  auto loop = attach_loop(file_fd, options);
  if (!loop.has_value() && loop.error().error_number() == EINVAL) {
    options.direct = false;
    loop = attach_loop(file_fd, options);
  }
  if (!loop.has_value()) return fail(std::move(loop).error());
  // The mount keeps the device from here on.
  return mount_from(loop->path);
}

// The smallest image that erofs takes: one block with a super block at 1024 and, after it, the
// inode of an empty root directory, which is opaque.
std::array<unsigned char, 4096> empty_erofs() {
  constexpr std::size_t kSuper = 1024, kInode = 1152, kInodeSize = 32;
  std::array<unsigned char, 4096> image{};
  const auto put = [&image](std::size_t offset, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      image[offset + i] = static_cast<unsigned char>(value >> (8 * i));
  };
  put(kSuper + 0, EROFS_SUPER_MAGIC_V1, 4);
  put(kSuper + 12, 12, 1);                   // blocks of 4096 bytes
  put(kSuper + 14, kInode / kInodeSize, 2);  // number of the root inode
  put(kSuper + 16, 1, 8);                    // inodes
  put(kSuper + 36, 1, 4);                    // blocks
  put(kInode + 0, 2 << 1, 2);                // compact, data behind the inode
  put(kInode + 2, erofs::kOpaqueAttributeCount, 2);
  put(kInode + 4, S_IFDIR | 0755, 2);
  put(kInode + 6, 2, 2);  // links
  std::ranges::copy(erofs::kOpaqueAttribute, image.begin() + kInode + kInodeSize);
  return image;
}

// A file without a name with that image, or the errno.
Result<Fd> make_empty_image(int directory_fd) {
  Fd file(::openat(directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("a file without a name");
  const auto image = empty_erofs();
  if (::pwrite(file.get(), image.data(), image.size(), 0) != static_cast<ssize_t>(image.size()))
    return fail_errno("write");
  return file;
}

int number_of(const Error& error) {
  return error.error_number() != 0 ? error.error_number() : EINVAL;
}

// What the remembered lines hold for: this boot, this file system, and what the kernel has loaded.
std::string occasion(int directory_fd) {
  auto boot = sys::read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64);
  struct stat facts{};
  auto types = sys::read_file(AT_FDCWD, "/proc/filesystems", 64 * 1024);
  if (!boot.has_value() || !types.has_value() || ::fstat(directory_fd, &facts) != 0) return {};
  const bool erofs = types->find("\terofs\n") != std::string::npos;
  const bool loop = ::access("/dev/loop-control", W_OK) == 0;
  return "boot " + *boot + "device " + std::to_string(facts.st_dev) + "\n" +
         (erofs ? "erofs" : "no erofs") + (loop ? " loop\n" : " no loop\n");
}

Status remember(const std::string& when, const MountSupport& support) {
  TRY_ASSIGN(const Fd run, open_or_make_directory(run_directory()));
  return replace_file_at(run.get(), std::string(kRememberedName), when + support.encode());
}

std::optional<MountSupport> recall(const std::string& when) {
  auto text = read_small_file(run_directory() + "/" + std::string(kRememberedName));
  if (!text.has_value() || !text->starts_with(when)) return std::nullopt;
  auto support = MountSupport::decode(std::string_view(*text).substr(when.size()));
  if (!support.has_value()) return std::nullopt;
  return *support;
}

Result<Fd> open_erofs(int chain_directory_fd) {
  Fd file(::openat(chain_directory_fd, kErofsName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return fail_errno(std::string("open ") + kErofsName);
  return file;
}

Result<ImageRoot> open_directory(int chain_directory_fd) {
  ImageRoot root;
  root.fd = Fd(
      ::openat(chain_directory_fd, kDirectoryName, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (root.fd.valid()) return root;
  if (errno == ENOENT)
    return fail(Error(Code::kDataLoss, std::string("the image's files are gone: neither ") +
                                           kErofsName + " nor " + kDirectoryName + " is there"));
  return fail_errno(std::string("open ") + kDirectoryName);
}

// The first of the methods that works.
Result<Fd> mount_first(int file_fd, std::span<const ErofsMethod> methods) {
  std::string met;
  for (const ErofsMethod method : methods) {
    auto mount = mount_erofs(file_fd, method);
    if (mount.has_value()) return mount;
    if (!met.empty()) met += "; ";
    met += std::string(to_string(method)) + ": " + mount.error().message();
  }
  return fail(Error::precondition(
      "the image is kept as an erofs file, which cannot be mounted here (" + met +
      "); allowed are root's rights on a kernel with erofs (`caisson doctor` says which way "
      "works)"));
}

}  // namespace

std::string_view to_string(ErofsMethod method) {
  switch (method) {
    case ErofsMethod::kBuffered:
      return "buffered";
    case ErofsMethod::kLoop:
    case ErofsMethod::kCount:
      break;
  }
  return "loop";
}

Result<Fd> mount_erofs(int file_fd, ErofsMethod method) {
  if (method == ErofsMethod::kLoop) return mount_over_loop(file_fd);
  return mount_from("/proc/self/fd/" + std::to_string(file_fd));
}

Result<ImageRoot> open_root(int chain_directory_fd) {
  auto file = open_erofs(chain_directory_fd);
  if (!file.has_value()) {
    if (file.error().error_number() != ENOENT) return fail(std::move(file).error());
    return open_directory(chain_directory_fd);
  }
  return mount_root(std::move(*file));
}

Result<ImageRoot> mount_root(Fd file) {
  TRY_ASSIGN(Fd mount, mount_first(file.get(), kMethods));
  return ImageRoot{.fd = std::move(mount), .mounted = true, .file = std::move(file)};
}

std::string MountSupport::encode() const {
  std::string text(kHeader);
  for (const ErofsMethod method : kMethods)
    text += std::string(to_string(method)) + " " + std::to_string((*this)[method]) + "\n";
  text += attributes ? kAttributesShown : kAttributesHidden;
  return text;
}

Result<MountSupport> MountSupport::decode(std::string_view text) {
  const auto malformed = [] {
    return fail(Error(Code::kDataLoss, "RUN/erofs-mounts is malformed"));
  };
  if (!text.starts_with(kHeader)) return malformed();
  text.remove_prefix(kHeader.size());
  MountSupport support{};
  for (const ErofsMethod method : kMethods) {
    const std::string start = std::string(to_string(method)) + " ";
    if (!text.starts_with(start)) return malformed();
    text.remove_prefix(start.size());
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const auto length = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || number < 0 || length == text.size() || *end != '\n')
      return malformed();
    support.error[static_cast<std::size_t>(method)] = number;
    text.remove_prefix(length + 1);
  }
  support.attributes = text == kAttributesShown;
  if (!support.attributes && text != kAttributesHidden) return malformed();
  return support;
}

MountSupport try_mounts(int directory_fd) {
  MountSupport support{};
  support.error.fill(EPERM);
  if (::geteuid() != 0) return support;
  auto file = make_empty_image(directory_fd);
  if (!file.has_value()) {
    support.error.fill(number_of(file.error()));
    return support;
  }
  for (const ErofsMethod method : kMethods) {
    const auto mount = mount_erofs(file->get(), method);
    support.error[static_cast<std::size_t>(method)] =
        mount.has_value() ? 0 : number_of(mount.error());
  }
  support.attributes = erofs_shows_attributes(directory_fd);
  return support;
}

bool erofs_shows_attributes(int directory_fd) {
  const auto shows = [&]() -> Result<bool> {
    TRY_ASSIGN(Fd file, make_empty_image(directory_fd));
    TRY_ASSIGN(const ImageRoot root, mount_root(std::move(file)));
    const Fd opened(::openat(root.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    char value = 0;
    return ::fgetxattr(opened.get(), "user.overlay.opaque", &value, 1) == 1 && value == 'y';
  }();
  errno = 0;
  return shows.value_or(false);
}

MountSupport known_mounts(int directory_fd) {
  // Nobody else's rights change, and asking costs nothing.
  if (::geteuid() != 0) return try_mounts(directory_fd);
  const std::string when = occasion(directory_fd);
  if (!when.empty())
    if (const auto known = recall(when)) return *known;
  return refresh_mounts(directory_fd);
}

MountSupport refresh_mounts(int directory_fd) {
  const MountSupport support = try_mounts(directory_fd);
  const std::string when = occasion(directory_fd);
  // What cannot be remembered is tried again.
  if (!when.empty() && ::geteuid() == 0) (void)remember(when, support);
  errno = 0;
  return support;
}

}  // namespace caisson::image
