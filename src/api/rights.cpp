#include "api/rights.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <memory>
#include <optional>

#include "api/server_calls.h"
#include "base/fd.h"
#include "base/kernel_abi.h"
#include "policy/server_config.h"

namespace caisson::api {
namespace {

constexpr std::size_t kMostAccount = 64 * 1024;
constexpr int kMostGroups = 256;

Error wrong_user(const std::string& name, std::string_view why) {
  return Error::invalid("user: found '" + name + "', " + std::string(why) +
                        "; allowed is a user of this host that is not root, or UID:GID");
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

// nullopt: the host has no such user.
std::optional<ServerUser> look_up(const std::string& name) {
  std::string room(kMostAccount, '\0');
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, room.data(), room.size(), &found) != 0 || found == nullptr)
    return std::nullopt;
  ServerUser user{.uid = found->pw_uid, .gid = found->pw_gid, .groups = {}};
  user.groups.resize(kMostGroups);
  int count = kMostGroups;
  const int listed = ::getgrouplist(name.c_str(), found->pw_gid, user.groups.data(), &count);
  user.groups.resize(listed < 0 ? 0 : static_cast<std::size_t>(count));
  return user;
}

Status give_file(int folder_fd, const char* name, uid_t owner, const ServerUser& user) {
  const Fd file(::openat(folder_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts{};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0) return {};  // it has gone
  if (!S_ISREG(facts.st_mode) || facts.st_uid != owner || facts.st_nlink != 1) return {};
  if (::fchownat(file.get(), "", user.uid, user.gid, AT_EMPTY_PATH) != 0)
    return fail_errno("chown " + std::string(name));
  return {};
}

}  // namespace

Result<ServerUser> find_server_user(const std::string& name) {
  ServerUser user;
  const std::size_t colon = name.find(':');
  const auto uid = number(std::string_view(name).substr(0, colon));
  if (uid.has_value()) {
    const auto gid =
        colon == std::string::npos ? uid : number(std::string_view(name).substr(colon + 1));
    if (!gid.has_value()) return fail(wrong_user(name, "which names no group"));
    user = {.uid = *uid, .gid = *gid, .groups = {}};
  } else {
    const bool usual = name.empty();
    auto found = look_up(usual ? std::string(policy::kServerUser) : name);
    if (!found.has_value() && !usual) return fail(wrong_user(name, "whom this host does not have"));
    if (found.has_value()) user = std::move(*found);
  }
  if (user.uid == 0) return fail(wrong_user(name, "which is root"));
  return user;
}

Status give_folder(const std::string& path, const ServerUser& user) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("make " + path);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr) return fail_errno("open " + path);
  const int folder_fd = ::dirfd(folder.get());
  struct stat facts{};
  if (::fstat(folder_fd, &facts) != 0) return fail_errno("stat " + path);
  if (facts.st_uid == user.uid) return {};
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(Error::precondition("others may write to the folder " + path +
                                    "; allowed is one that is its owner's alone (chmod 0700)"));
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    auto given = give_file(folder_fd, entry->d_name, facts.st_uid, user);
    if (!given.has_value()) return fail(std::move(given).error().with(path));
  }
  // Last, so that what is interrupted is done again.
  if (::fchown(folder_fd, user.uid, user.gid) != 0) return fail_errno("chown " + path);
  return {};
}

Status make_passable(const std::string& path) {
  constexpr mode_t kGoThrough = 0111;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("make " + path);
  const Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts{};
  if (!folder.valid() || ::fstat(folder.get(), &facts) != 0) return fail_errno("open " + path);
  if ((facts.st_mode & kGoThrough) == kGoThrough) return {};
  if (::fchmod(folder.get(), (facts.st_mode & 07777) | kGoThrough) != 0)
    return fail_errno("chmod " + path);
  return {};
}

Status become(const ServerUser& user) {
  // While they can still be dropped.
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability)
    if (::prctl(PR_CAPBSET_DROP, capability) != 0) return fail_errno("prctl capbset_drop");
  if (::setgroups(user.groups.size(), user.groups.data()) != 0) return fail_errno("setgroups");
  if (::setresgid(user.gid, user.gid, user.gid) != 0) return fail_errno("setresgid");
  if (::setresuid(user.uid, user.uid, user.uid) != 0) return fail_errno("setresuid");
  return {};
}

Status confine_server() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl no_new_privs");
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl dumpable");
  return filter_server_calls();
}

}  // namespace caisson::api
