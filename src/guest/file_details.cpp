#include "guest/file_details.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>

#include "base/fd.h"
#include "base/file_time.h"
#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::FileType;
using proto::Tag;

constexpr std::size_t kMaxAttributeList = 64 * 1024;  // the kernel's own bound
constexpr std::uint32_t kModeBits = 07777;

FileType type_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return FileType::kDirectory;
    case S_IFLNK:
      return FileType::kSymlink;
    case S_IFIFO:
      return FileType::kFifo;
    case S_IFSOCK:
      return FileType::kSocket;
    case S_IFCHR:
      return FileType::kCharacterDevice;
    case S_IFBLK:
      return FileType::kBlockDevice;
    default:
      return FileType::kRegular;
  }
}

// Calls `visit` with each name in what listxattr(2) gave, until it returns false.
template <typename Visit>
void for_each_name(std::string_view list, Visit visit) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find('\0'), list.size());
    if (!visit(std::string(list.substr(0, end)))) return;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

// The names of a file's attributes, in `buffer`; none where its file system has none.
Result<std::string_view> list_attributes(int fd, std::string& buffer) {
  buffer.resize(kMaxAttributeList);
  const ssize_t size = ::flistxattr(fd, buffer.data(), buffer.size());
  if (size < 0 && errno == EOPNOTSUPP) return std::string_view();
  if (size < 0) return fail_errno("listing extended attributes");
  return std::string_view(buffer).substr(0, static_cast<std::size_t>(size));
}

}  // namespace

void put_status(proto::Fields& fields, const struct stat& status) {
  fields.put_u8(Tag::kFileType, static_cast<std::uint8_t>(type_of(status.st_mode)))
      .put_u32(Tag::kMode, status.st_mode & kModeBits)
      .put_u32(Tag::kUid, status.st_uid)
      .put_u32(Tag::kGid, status.st_gid)
      .put_u64(Tag::kSize, static_cast<std::uint64_t>(status.st_size))
      .put_u64(Tag::kMtimeNs, to_nanoseconds(status.st_mtim))
      .put_u64(Tag::kInode, status.st_ino)
      .put_u64(Tag::kLinkCount, status.st_nlink);
}

void put_owner_names(proto::Fields& fields, const struct stat& status, const AccountNames& names) {
  if (const std::string_view user = names.user(status.st_uid); !user.empty())
    fields.put(Tag::kUserName, user);
  if (const std::string_view group = names.group(status.st_gid); !group.empty())
    fields.put(Tag::kGroupName, group);
}

Result<Details> Details::wanted(const proto::FieldReader& fields) {
  Details details;
  TRY_ASSIGN(const std::uint64_t any, number_field(fields, Tag::kWantDetails, 0));
  if (any == 0) return details;
  if (fields.has(Tag::kXattrPrefix)) {
    TRY_ASSIGN(details.prefix_, attribute_name(fields, Tag::kXattrPrefix));
  }
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  details.names_ = AccountNames::read(root.get());
  return details;
}

void Details::put(proto::Fields& fields, const FileName& file, const struct stat& status) {
  if (!any()) return;
  put_owner_names(fields, status, *names_);
  if (S_ISLNK(status.st_mode)) put_link(fields, file.path);
  // The kernel knows attributes of this kind of these alone.
  if (!prefix_.empty() && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)))
    put_attributes(fields, file);
}

void Details::put_link(proto::Fields& fields, const std::string& path) const {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr),
                                                             &std::free);
  struct stat target{};
  if (resolved == nullptr || ::stat(resolved.get(), &target) != 0) return;
  fields.put(Tag::kResolved, resolved.get())
      .put_u8(Tag::kTargetType, static_cast<std::uint8_t>(type_of(target.st_mode)));
}

void Details::put_attributes(proto::Fields& fields, const FileName& file) {
  // Without waiting, should it have become a fifo meanwhile.
  const Fd fd(::openat(file.directory_fd, file.name.c_str(),
                       O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC |
                           (file.directory_fd == AT_FDCWD ? 0 : O_NOFOLLOW)));
  if (!fd.valid()) return;
  const Result<std::string_view> list = list_attributes(fd.get(), list_);
  if (!list) return;
  std::size_t count = 0, left = kMaxAttributeBytes;
  for_each_name(*list, [&](const std::string& name) {
    if (!name.starts_with(prefix_)) return true;
    char value[kMaxAttributeBytes];
    const ssize_t size = ::fgetxattr(fd.get(), name.c_str(), value, sizeof(value));
    if (size < 0) return true;  // too long, or gone
    const std::size_t bytes = name.size() + static_cast<std::size_t>(size);
    if (bytes > left) return true;
    left -= bytes;
    fields.put(Tag::kXattrName, name)
        .put(Tag::kXattrValue, std::string_view(value, static_cast<std::size_t>(size)));
    return ++count < kMaxAttributes;
  });
}

Status Attributes::apply(int fd, const std::string& path) const {
  std::string buffer;
  TRY_ASSIGN(const std::string_view list, list_attributes(fd, buffer));
  std::vector<std::string> old;
  for_each_name(list, [&](std::string name) {
    const auto same = [&](const auto& value) { return value.first == name; };
    if (name.starts_with(prefix) && std::ranges::none_of(values, same))
      old.push_back(std::move(name));
    return true;
  });
  for (const std::string& name : old)
    if (::fremovexattr(fd, name.c_str()) != 0 && errno != ENODATA)
      return fail_errno("removing " + name + " from " + path);
  for (const auto& [name, value] : values)
    if (::fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0)
      return fail_errno("setting " + name + " of " + path);
  return {};
}

}  // namespace caisson::guest
