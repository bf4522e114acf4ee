#include "egress/audit_keyring.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/paths.h"
#include "base/sys.h"
#include "launcher/gateway_protocol.h"

namespace caisson::egress {
namespace {

constexpr const char* kKey = "key";
constexpr const char* kHeads = "heads";
constexpr mode_t kFolderMode = 0700, kFileMode = 0600;

Status make_folders(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const bool last = slash == std::string::npos;
    if (::mkdir(part.c_str(), last ? kFolderMode : 0755) != 0 && errno != EEXIST)
      return fail_errno("make the folder " + part);
    if (last) return {};
  }
}

// What root makes in somebody's folder is his.
Status give_to_owner(int folder_fd, int file_fd) {
  if (::geteuid() != 0) return {};
  struct stat info = {};
  if (::fstat(folder_fd, &info) != 0) return fail_errno("stat");
  if (::fchown(file_fd, info.st_uid, info.st_gid) != 0) return fail_errno("chown");
  return {};
}

Result<Fd> open_folder(int at_fd, const std::string& path) {
  Fd folder(::openat(at_fd, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return fail_errno(path);
  struct stat info = {};
  if (::fstat(folder.get(), &info) != 0) return fail_errno(path);
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(Error::precondition(path + ": others may write to the folder; allowed is one that "
                                           "is its owner's alone (chmod 0700)"));
  return folder;
}

// Made under another name and linked, so that it is whole wherever it is seen, and so that of two
// processes one makes it.
Status make_key(int folder_fd) {
  const std::string beside = "key." + random_hex(16);
  const Fd file(
      ::openat(folder_fd, beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode));
  if (!file.valid()) return fail_errno("make " + beside);
  const auto fill = [&]() -> Status {
    TRY(give_to_owner(folder_fd, file.get()));
    std::string random = random_bytes(kAuditKey);
    const ssize_t written = ::write(file.get(), random.data(), random.size());
    wipe(random);
    if (written < 0) return fail_errno("write " + beside);
    if (written != static_cast<ssize_t>(kAuditKey))
      return fail(Error::exhausted("no room for " + beside));
    if (::fsync(file.get()) != 0) return fail_errno("flush " + beside);
    if (::linkat(folder_fd, beside.c_str(), folder_fd, kKey, 0) != 0 && errno != EEXIST)
      return fail_errno("link " + beside);
    return {};
  };
  Status filled = fill();
  ::unlinkat(folder_fd, beside.c_str(), 0);
  TRY(filled);
  if (::fsync(folder_fd) != 0) return fail_errno("flush the folder of the key");
  return {};
}

Result<SecretValue> read_key(int folder_fd) {
  const Fd file(::openat(folder_fd, kKey, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return fail_errno("open");
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return fail_errno("stat");
  if (!S_ISREG(info.st_mode) || (info.st_mode & 077) != 0)
    return fail(
        Error::precondition("others may read it; allowed is a file that is its owner's alone "
                            "(chmod 0600)"));
  if (info.st_size != static_cast<off_t>(kAuditKey))
    return fail(
        Error::precondition("found " + std::to_string(info.st_size) + " bytes; allowed are 32"));
  TRY_ASSIGN(std::string bytes, sys::read_again(file.get(), kAuditKey));
  return SecretValue::take(bytes);
}

// Of more than may be the older half: nobody has to look again for a long time.
void make_room(int heads_fd) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(
      ::fdopendir(::openat(heads_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      [](DIR* open) { return open == nullptr ? 0 : ::closedir(open); });
  if (folder == nullptr) return;
  std::vector<std::pair<std::int64_t, std::string>> found;
  while (const dirent* entry = ::readdir(folder.get())) {
    struct stat info = {};
    if (is_audit_chain_id(entry->d_name) &&
        ::fstatat(heads_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0)
      found.emplace_back(info.st_mtim.tv_sec, entry->d_name);
  }
  if (found.size() < AuditKeyring::kMostHeads) return;
  std::ranges::sort(found);
  found.resize(found.size() / 2);
  for (const auto& [time, name] : found) ::unlinkat(heads_fd, name.c_str(), 0);
}

}  // namespace

std::string AuditKeyring::usual_folder() {
  return state_directory() + "/audit";
}

Result<AuditKeyring> AuditKeyring::find(const std::string& folder) {
  TRY_ASSIGN(const Fd opened, open_folder(AT_FDCWD, folder));
  auto key = read_key(opened.get());
  if (!key.has_value()) return fail(std::move(key).error().with(folder + "/" + kKey));
  TRY_ASSIGN(Fd heads, open_folder(opened.get(), kHeads));
  return AuditKeyring(std::move(heads), std::move(*key));
}

Result<AuditKeyring> AuditKeyring::open(const std::string& folder) {
  TRY(make_folders(folder));
  TRY_ASSIGN(const Fd opened, open_folder(AT_FDCWD, folder));
  if (::mkdirat(opened.get(), kHeads, kFolderMode) == 0) {
    TRY_ASSIGN(const Fd made, open_folder(opened.get(), kHeads));
    TRY(give_to_owner(opened.get(), made.get()));
  } else if (errno != EEXIST) {
    return fail_errno("make the folder " + folder + "/" + kHeads);
  }
  if (::faccessat(opened.get(), kKey, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    Status made = make_key(opened.get());
    if (!made.has_value()) return fail(std::move(made).error().with(folder));
  }
  return find(folder);
}

Result<Fd> AuditKeyring::head_file(const std::string& id) const {
  VERIFY(is_audit_chain_id(id));
  Fd file(
      ::openat(heads_->get(), id.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (!file.valid()) return fail_errno("the head of the audit's chain " + id);
  TRY(give_to_owner(heads_->get(), file.get()));
  return file;
}

Result<Fd> AuditKeyring::make_head_file(const std::string& id) const {
  make_room(heads_->get());
  return head_file(id);
}

Result<AuditHead> AuditKeyring::known(const std::string& id) const {
  VERIFY(is_audit_chain_id(id));
  const Fd file(::openat(heads_->get(), id.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return AuditHead();
  if (!file.valid()) return fail_errno("the head of the audit's chain " + id);
  return read_head(file.get());
}

Result<AuditHead> read_head(int head_fd) {
  TRY_ASSIGN(const std::string bytes, sys::read_again(head_fd, launcher::kAuditHeadBytes));
  if (bytes.empty()) return AuditHead();
  return AuditHead::from_bytes(bytes);
}

Status write_head(int head_fd, const AuditHead& head) {
  const std::string bytes = head.bytes();
  const ssize_t count = TEMP_FAILURE_RETRY(::pwrite(head_fd, bytes.data(), bytes.size(), 0));
  if (count < 0) return fail_errno("write the head of the audit's chain");
  if (static_cast<std::size_t>(count) != bytes.size())
    return fail(Error::exhausted("no room for the head of the audit's chain"));
  return {};
}

}  // namespace caisson::egress
