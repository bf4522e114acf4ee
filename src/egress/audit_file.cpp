#include "egress/audit_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/json.h"
#include "base/time_text.h"

namespace caisson::egress {
namespace {

constexpr int kMode = 0600;
constexpr unsigned kMostSegments = 9999;
constexpr int kMostAttempts = 16;

Result<struct stat> look(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return fail_errno("fstat");
  // Whoever reads anything else could hold the gateway back.
  if (!S_ISREG(info.st_mode)) return fail(Error::invalid("allowed is a regular file"));
  return info;
}

Status lock(int fd) {
  // Of the opening, as flock()'s is, but one that can be asked after without being taken.
  struct flock wanted = {};
  wanted.l_type = F_WRLCK;
  wanted.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_SETLK, &wanted) == 0) return {};
  if (errno != EAGAIN && errno != EACCES) return fail_errno("lock");
  return fail(Error::unavailable(
      "another sandbox writes its records to this file; give each a file of its own"));
}

// Puts `path`, whose opening `old` is claimed, aside and gives the one that goes on.
Result<Fd> begin_segment(const std::string& path, const AuditEnd& end) {
  const std::string fresh = path + ".new";
  if (::unlink(fresh.c_str()) != 0 && errno != ENOENT) return fail_errno("" + fresh);
  Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, kMode));
  if (!file.valid()) return fail_errno("" + fresh);
  TRY(lock(file.get()));
  json::Value record = json::Value::object();
  record.set("ts", time_text(std::chrono::system_clock::now())).set("v", 1);
  record.set("kind", "segment").set("before", end.head.hash);
  const std::string line = AuditChain(end.head).next(json::serialize(record) + "\n");
  const ssize_t count = TEMP_FAILURE_RETRY(::write(file.get(), line.data(), line.size()));
  if (count < 0) return fail_errno(fresh);
  if (static_cast<std::size_t>(count) != line.size())
    return fail(Error(Code::kResourceExhausted, fresh + ": the file takes no more"));
  for (unsigned number = 1; number <= kMostSegments; ++number) {
    const std::string aside = path + "." + std::to_string(number);
    if (::link(path.c_str(), aside.c_str()) != 0) {
      if (errno == EEXIST) continue;
      return fail_errno("" + aside);
    }
    if (std::rename(fresh.c_str(), path.c_str()) != 0) return fail_errno("" + path);
    return file;
  }
  return fail(Error(Code::kResourceExhausted,
                    "" + path + ".1 to ." + std::to_string(kMostSegments) + " are there"));
}

}  // namespace

Result<Fd> open_audit_reader(int audit_fd) {
  // It is open for writing alone, so that no gateway can read what others did.
  Fd file(::open(("/proc/self/fd/" + std::to_string(audit_fd)).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail_errno("the records that are there cannot be read");
  return file;
}

Result<AuditEnd> read_audit_end(int reader_fd) {
  const off_t size = ::lseek(reader_fd, 0, SEEK_END);
  const off_t from = std::max<off_t>(size - static_cast<off_t>(kMostAuditTail), 0);
  if (size < 0 || ::lseek(reader_fd, from, SEEK_SET) < 0) return fail_errno("lseek");
  std::string tail(static_cast<std::size_t>(size - from), '\0');
  std::size_t got = 0;
  while (got < tail.size()) {
    const ssize_t count =
        TEMP_FAILURE_RETRY(::read(reader_fd, tail.data() + got, tail.size() - got));
    if (count < 0) return fail_errno("read");
    if (count == 0) break;
    got += static_cast<std::size_t>(count);
  }
  tail.resize(got);
  auto end = find_audit_end(tail, from > 0 ? AuditTail::kEndOnly : AuditTail::kWholeFile);
  if (!end.has_value()) {
    return fail(std::move(end).error().with(
        "records cannot be appended to this file ('caisson audit verify' says "
        "more); give a new one"));
  }
  return end;
}

Status claim_audit(int audit_fd) {
  TRY(look(audit_fd));
  const int flags = ::fcntl(audit_fd, F_GETFL);
  if (flags < 0) return fail_errno("fcntl");
  if ((flags & O_APPEND) == 0 || (flags & O_ACCMODE) != O_WRONLY)
    return fail(Error::invalid("allowed is a file that is open for appending alone"));
  TRY(lock(audit_fd));
  TRY_ASSIGN(const Fd reader, open_audit_reader(audit_fd));
  TRY(read_audit_end(reader.get()));
  return {};
}

Result<Fd> open_audit(const std::string& path, std::uint64_t most) {
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, kMode));
    if (!file.valid()) return fail_errno("open");
    TRY(look(file.get()));
    TRY(lock(file.get()));
    // Before it was locked it may have been put aside by another run.
    struct stat named = {};
    TRY_ASSIGN(const struct stat info, look(file.get()));
    if (::stat(path.c_str(), &named) != 0 || named.st_ino != info.st_ino ||
        named.st_dev != info.st_dev)
      continue;
    if (static_cast<std::uint64_t>(info.st_size) <= most) return file;
    TRY_ASSIGN(const Fd reader, open_audit_reader(file.get()));
    TRY_ASSIGN(const AuditEnd end, read_audit_end(reader.get()));
    return begin_segment(path, end);
  }
  return fail(Error::unavailable("'" + path + "' is replaced again and again"));
}

Result<bool> is_audit_claimed(int file_fd) {
  struct flock asked = {};
  asked.l_type = F_RDLCK;
  asked.l_whence = SEEK_SET;
  if (::fcntl(file_fd, F_OFD_GETLK, &asked) != 0) return fail_errno("lock");
  return asked.l_type != F_UNLCK;
}

Result<bool> AuditLines::next(Line& line) {
  constexpr std::size_t kPiece = 64 * 1024;
  std::size_t searched = at_;
  for (;;) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      line = {.text = std::string_view(buffer_).substr(at_, end - at_), .ended = true};
      at_ = end + 1;
      return true;
    }
    buffer_.erase(0, at_);
    at_ = 0;
    searched = buffer_.size();
    if (buffer_.size() > kMostAuditLine) {
      line = {.text = buffer_, .ended = false};
      return true;
    }
    const std::size_t had = buffer_.size();
    buffer_.resize(had + kPiece);
    const ssize_t count = TEMP_FAILURE_RETRY(::read(file_fd_, buffer_.data() + had, kPiece));
    buffer_.resize(had + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) return fail_errno("read");
    if (count > 0) continue;
    line = {.text = buffer_, .ended = false};
    return !buffer_.empty();
  }
}

}  // namespace caisson::egress
