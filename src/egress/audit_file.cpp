#include "egress/audit_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/sys.h"
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

std::string now_text() {
  return time_text(std::chrono::system_clock::now());
}

// All of it, or an error.
Status append_whole(int audit_fd, AuditChain& chain, const std::string& record) {
  const std::uint64_t before = chain.head().sequence;
  (void)append(audit_fd, chain, record);
  if (chain.head().sequence > before) return {};
  return fail(Error(Code::kResourceExhausted, "the file takes no more"));
}

// Puts `path`, whose opening `old` is claimed, aside and gives the one that goes on.
Result<Fd> begin_segment(const std::string& path, int old_fd, const AuditClaim& claim,
                         const AuditEnd& end) {
  TRY_ASSIGN(const AuditHead known, read_head(claim.head.get()));
  TRY_ASSIGN(AuditChain chain, go_on(old_fd, claim.chain, end, known));
  // A crash between the two leaves a file that is closed already.
  if (!end.put_aside || chain.head() != end.head)
    TRY(append_whole(old_fd, chain, audit_aside(now_text())));
  TRY(write_head(claim.head.get(), chain.head()));
  const std::string fresh = path + ".new";
  if (::unlink(fresh.c_str()) != 0 && errno != ENOENT) return fail_errno("" + fresh);
  Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, kMode));
  if (!file.valid()) return fail_errno("" + fresh);
  TRY(lock(file.get()));
  chain.begin_file();
  Status begun = append_whole(file.get(), chain, audit_link("segment", chain.head(), now_text()));
  if (!begun.has_value()) return fail(std::move(begun).error().with(fresh));
  for (unsigned number = 1; number <= kMostSegments; ++number) {
    const std::string aside = path + "." + std::to_string(number);
    if (::link(path.c_str(), aside.c_str()) != 0) {
      if (errno != EEXIST) return fail_errno("" + aside);
      // A crash between the two calls leaves the name that this one would give.
      if (!sys::is_same_file(old_fd, aside)) continue;
    }
    if (std::rename(fresh.c_str(), path.c_str()) != 0) return fail_errno("" + path);
    return file;
  }
  return fail(Error(Code::kResourceExhausted,
                    "" + path + ".1 to ." + std::to_string(kMostSegments) + " are there"));
}

// At most kMostAuditTail bytes from `from` on.
Result<std::string> read_part(int reader_fd, off_t from) {
  if (::lseek(reader_fd, from, SEEK_SET) < 0) return fail_errno("lseek");
  std::string part(kMostAuditTail, '\0');
  std::size_t got = 0;
  while (got < part.size()) {
    const ssize_t count =
        TEMP_FAILURE_RETRY(::read(reader_fd, part.data() + got, part.size() - got));
    if (count < 0) return fail_errno("read");
    if (count == 0) break;
    got += static_cast<std::size_t>(count);
  }
  part.resize(got);
  return part;
}

Error not_ours(Error error) {
  return std::move(error).with(
      "records cannot be appended to this file ('caisson audit verify' says more); give a new one");
}

// The chain of the file, a new one where there is none yet, and its end. `put_aside` may be true.
struct Looked {
  AuditClaim claim;
  AuditEnd end;
};
Result<Looked> look_at_chain(int audit_fd, const AuditKeyring& keyring) {
  TRY_ASSIGN(const Fd reader, open_audit_reader(audit_fd));
  TRY_ASSIGN(std::string id, read_audit_chain(reader.get()));
  Looked looked;
  if (id.empty()) {
    id = AuditChainKey::new_id();
    TRY_ASSIGN(looked.claim.head, keyring.make_head_file(id));
  } else {
    TRY_ASSIGN(looked.claim.head, keyring.head_file(id));
  }
  looked.claim.chain = keyring.key_of(id);
  TRY_ASSIGN(looked.end, read_audit_end(reader.get(), looked.claim.chain));
  return looked;
}

}  // namespace

Result<Fd> open_audit_reader(int audit_fd) {
  // It is open for writing alone, so that no gateway can read what others did.
  Fd file(::open(("/proc/self/fd/" + std::to_string(audit_fd)).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail_errno("the records that are there cannot be read");
  return file;
}

Result<AuditEnd> read_audit_end(int reader_fd, const AuditChainKey& chain) {
  const off_t size = ::lseek(reader_fd, 0, SEEK_END);
  if (size < 0) return fail_errno("lseek");
  const off_t from = std::max<off_t>(size - static_cast<off_t>(kMostAuditTail), 0);
  TRY_ASSIGN(const std::string tail, read_part(reader_fd, from));
  auto end = find_audit_end(chain, tail, from > 0 ? AuditTail::kEndOnly : AuditTail::kWholeFile);
  if (!end.has_value()) return fail(not_ours(std::move(end).error()));
  return end;
}

Result<std::string> read_audit_chain(int reader_fd) {
  TRY_ASSIGN(const std::string beginning, read_part(reader_fd, 0));
  auto id = find_audit_chain(
      beginning, beginning.size() == kMostAuditTail ? AuditTail::kEndOnly : AuditTail::kWholeFile);
  if (!id.has_value()) return fail(not_ours(std::move(id).error()));
  return id;
}

std::uint64_t append(int audit_fd, AuditChain& chain, std::string_view record) {
  const std::string bytes = chain.next(record);
  const ssize_t count = TEMP_FAILURE_RETRY(::write(audit_fd, bytes.data(), bytes.size()));
  const std::size_t taken = count < 0 ? 0 : static_cast<std::size_t>(count);
  chain.appended(taken);
  return taken;
}

Result<AuditChain> go_on(int audit_fd, const AuditChainKey& chain, const AuditEnd& end,
                         const AuditHead& known) {
  const bool cut =
      known.sequence > end.head.sequence ||
      (known.sequence > 0 && known.sequence == end.head.sequence && known.hash != end.head.hash);
  if (!cut) return AuditChain::create(chain, end.head, end.torn);
  TRY_ASSIGN(AuditChain behind, AuditChain::create(chain, known, end.torn));
  if (end.head.sequence == 0) behind.begin_file();
  TRY(append_whole(audit_fd, behind, audit_link("cut", known, now_text())));
  return behind;
}

Result<AuditClaim> claim_audit(int audit_fd, const AuditKeyring& keyring) {
  TRY(look(audit_fd));
  const int flags = ::fcntl(audit_fd, F_GETFL);
  if (flags < 0) return fail_errno("fcntl");
  if ((flags & O_APPEND) == 0 || (flags & O_ACCMODE) != O_WRONLY)
    return fail(Error::invalid("allowed is a file that is open for appending alone"));
  TRY(lock(audit_fd));
  TRY_ASSIGN(Looked looked, look_at_chain(audit_fd, keyring));
  if (looked.end.put_aside)
    return fail(Error::invalid("the file's last record says that it goes on in another one"));
  TRY_ASSIGN(const AuditHead known, read_head(looked.claim.head.get()));
  TRY_ASSIGN(const AuditChain chain, go_on(audit_fd, looked.claim.chain, looked.end, known));
  // So that what is there now cannot be cut off unseen.
  TRY(write_head(looked.claim.head.get(), chain.head()));
  return std::move(looked.claim);
}

Result<Fd> open_audit(const std::string& path, const AuditKeyring& keyring, std::uint64_t most) {
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
    if (info.st_size == 0) return file;
    TRY_ASSIGN(const Looked looked, look_at_chain(file.get(), keyring));
    if (static_cast<std::uint64_t>(info.st_size) <= most && !looked.end.put_aside) return file;
    return begin_segment(path, file.get(), looked.claim, looked.end);
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
