#include "guest/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "base/kernel_abi.h"
#include "guest/confine.h"
#include "guest/users.h"

namespace caisson::guest {
namespace {

using proto::FrameType;
using proto::Tag;

Result<Account> wanted_user(const proto::FieldReader& fields) {
  std::string user;
  if (fields.has(Tag::kUser)) {
    TRY_ASSIGN(user, fields.text(Tag::kUser));
  }
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  return resolve_user(user, root.get());
}

Status become_user(const Account& account, const proto::FieldReader& fields, const Inside& inside) {
  ConfineOptions options;
  options.userns_fd = inside.userns.get();
  options.cgroup_ns_fd = inside.cgroup_ns.get();
  options.uid = account.uid;
  options.gid = account.gid;
  options.groups = account.groups;
  // The supervisor lets this pass where the sandbox's commands may have it too.
  const bool sudo = fields.number_or_none(Tag::kPrivileges) == 1;
  options.privileges = sudo ? Privileges::kSudo : Privileges::kNone;
  options.keep_capabilities = sudo;
  options.no_setid = !sudo || fields.has(Tag::kNoSetid);
  options.disabled_mechanisms = inside.disabled_mechanisms;
  TRY(confine(options));
  return {};
}

// Keeps the worker's socket and the namespaces alone: a worker lives longer than a command's start,
// and nothing of another stream may stay open in it.
Status close_others(int link_fd, const Inside& inside) {
  unsigned next = 3;
  std::array<int, 3> all = {link_fd, inside.userns.get(), inside.cgroup_ns.get()};
  std::sort(all.begin(), all.end());
  for (const int kept : all) {
    if (kept < 0) continue;
    const auto keep = static_cast<unsigned>(kept);
    if (keep > next && ::close_range(next, keep - 1, 0) != 0) return fail_errno("close_range");
    next = keep + 1;
  }
  if (::close_range(next, UINT_MAX, 0) != 0) return fail_errno("close_range");
  return {};
}

}  // namespace

Status WorkerLink::send(std::string_view frame) {
  while (!frame.empty()) {
    const ssize_t count = ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("worker: send");
    frame.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Status WorkerLink::event(const proto::Fields& fields) {
  return send(proto::encode_frame(stream_, FrameType::kEvent, 0, fields.bytes()));
}

Status WorkerLink::data(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view chunk = bytes.substr(0, Channel::kDataChunk);
    TRY(send(proto::encode_frame(stream_, FrameType::kData,
                                 static_cast<std::uint8_t>(proto::Channel::kOut), chunk)));
    bytes.remove_prefix(chunk.size());
  }
  return {};
}

Result<std::optional<std::string>> WorkerLink::input() {
  for (;;) {
    TRY_ASSIGN(std::optional<proto::Frame> frame, decoder_.next());
    if (frame && frame->header.type == FrameType::kData)
      return std::optional<std::string>(std::move(frame->payload));
    if (frame && frame->header.type == FrameType::kFinish) return std::optional<std::string>();
    if (frame) continue;
    char bytes[Channel::kDataChunk];
    const ssize_t count = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("worker: recv");
    if (count == 0) return fail(Error(Code::kCancelled, "the input ended before it was finished"));
    decoder_.feed(std::string_view(bytes, static_cast<std::size_t>(count)));
  }
}

bool WorkerLink::given_up() const {
  pollfd entry{socket_.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void WorkerLink::close(const Status& status, std::optional<proto::ErrorSubject> subject) {
  proto::Fields fields;
  if (!status) fields.put_error(status.error());
  if (subject) fields.put_u8(Tag::kErrorSubject, static_cast<std::uint8_t>(*subject));
  // Where the guest is gone there is nobody to tell.
  [[maybe_unused]] const Status sent =
      send(proto::encode_frame(stream_, FrameType::kClose, 0, fields.bytes()));
}

void run_worker(const WorkerMain& work, WorkerRights rights, const proto::FieldReader& fields,
                const Inside& inside, WorkerLink link) {
  std::optional<proto::ErrorSubject> subject;
  const auto whole = [&]() -> Status {
    TRY(close_others(link.fd(), inside));
    if (rights == WorkerRights::kUser) {
      subject = proto::ErrorSubject::kUser;
      TRY_ASSIGN(const Account account, wanted_user(fields));
      subject.reset();
      TRY(become_user(account, fields, inside));
      for (const Fd* space : {&inside.userns, &inside.cgroup_ns})
        if (space->valid()) ::close(space->get());
    }
    ::umask(022);
    return work(fields, link);
  };
  const Status status = whole();
  link.close(status, subject);
  ::_exit(0);
}

}  // namespace caisson::guest
