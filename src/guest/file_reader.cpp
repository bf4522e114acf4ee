#include "guest/file_reader.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "guest/users.h"

namespace caisson::guest {
namespace {

constexpr auto kAsk = static_cast<uid_t>(-1);  // changes nothing, answers what is

// These two calls report no error.
bool set_file_ids(uid_t uid, gid_t gid) {
  ::setfsgid(gid);
  ::setfsuid(uid);
  return static_cast<uid_t>(::setfsuid(kAsk)) == uid && static_cast<gid_t>(::setfsgid(kAsk)) == gid;
}

bool set_groups(const std::vector<gid_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

Result<std::vector<gid_t>> own_groups() {
  const int count = ::getgroups(0, nullptr);
  if (count < 0) return fail_errno("getgroups");
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  if (::getgroups(count, groups.data()) != count) return fail_errno("getgroups");
  return groups;
}

}  // namespace

Result<FileReader> FileReader::become(const Owner& owner) {
  FileReader reader;
  if (!owner.given() || owner.uid() == 0 || owner.uid() == kAsk) return reader;
  const std::string name = std::to_string(owner.uid());
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  TRY_ASSIGN(const Account account, resolve_user(name, root.get()));
  TRY_ASSIGN(reader.groups_, own_groups());
  reader.uid_ = ::geteuid();
  reader.gid_ = ::getegid();
  reader.active_ = true;
  const gid_t gid = owner.gid() == kAsk ? account.gid : owner.gid();
  // The ids last: they take the right to set groups along.
  if (!set_groups(account.groups) || !set_file_ids(owner.uid(), gid))
    return fail(
        Error(Code::kPermissionDenied, "reading as user " + name + " needs the rights of root"));
  return reader;
}

FileReader::FileReader(FileReader&& other) noexcept
    : active_(std::exchange(other.active_, false)),
      uid_(other.uid_),
      gid_(other.gid_),
      groups_(std::move(other.groups_)) {}

FileReader::~FileReader() {
  if (!active_) return;
  ::setfsuid(uid_);
  ::setfsgid(gid_);
  const bool back =
      static_cast<uid_t>(::setfsuid(kAsk)) == uid_ && static_cast<gid_t>(::setfsgid(kAsk)) == gid_;
  // Who could not set its groups has its own.
  if (!back || (!set_groups(groups_) && errno != EPERM)) ::_exit(1);
}

}  // namespace caisson::guest
