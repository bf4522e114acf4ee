// A sandbox that stands still for somebody who reads its files (kHold), and one that is booted anew
// (kReboot). What clients open meanwhile waits: neither shows in what they get but as a delay.
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/sys.h"
#include "launcher/supervisor_state.h"

namespace caisson::launcher {

using proto::ControlOperation;
using proto::FrameType;
using proto::Kind;
using proto::Tag;

namespace {

// Of all clients together. A stream that is not open yet has its first credit, which its client may
// use: so much of all of them, and what is more is refused.
constexpr std::size_t kMostWaitingBytes = 8u << 20;
constexpr std::size_t kMostWaiting = 4096;

Result<Fd> copy_of(const Fd& file) {
  Fd copy(::fcntl(file.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) return fail_errno("fcntl");
  return copy;
}

}  // namespace

void Supervisor::take_layer() {
  if (plan_.life == Life::kKept) layer_ = box_->take_handouts();
}

void Supervisor::begin_hold(std::uint64_t id, const proto::Fields& head) {
  const auto refused = [&]() -> std::optional<Error> {
    if (!layer_.layer.valid())
      return Error::precondition(
          "this sandbox's files cannot be read from outside: it was not made for that");
    if (unborn()) return Error::unavailable("the sandbox is still being made");
    if (holder_ != 0 || reboot_)
      return Error::unavailable(
          "the sandbox's files are being read already, or it is being booted anew");
    return std::nullopt;
  }();
  if (refused) return send_answer(id, head, fail(*refused));
  holder_ = id;
  hold_asked_ = {.client = id, .head = head};
  hold_by_us_ = sys::monotonic_us() + kStartPatienceUs;
  hold_when_started();
}

void Supervisor::hold_when_started() {
  if (!hold_asked_) return;
  const bool starts = frozen_ == Frozen::kNo && starts_something();
  // What writes files is in no group that could be frozen: it is let finish, but not for ever.
  if ((starts || transfers_something()) && sys::monotonic_us() < hold_by_us_) return;
  const Asked asked = std::move(*std::exchange(hold_asked_, std::nullopt));
  std::vector<Fd> descriptors;
  const auto held = starts
                        ? fail(Error(Code::kDeadlineExceeded,
                                     "a command's start takes too long for its files to be read"))
                        : hold(descriptors);
  if (!held) holder_ = 0;
  send_answer(asked.client, asked.head, held, std::move(descriptors));
}

bool Supervisor::transfers_something() const {
  return std::ranges::any_of(streams_,
                             [](const auto& entry) { return entry.second.kind == Kind::kFile; });
}

Result<proto::Fields> Supervisor::hold(std::vector<Fd>& descriptors) {
  TRY_ASSIGN(Fd layer, copy_of(layer_.layer));
  TRY_ASSIGN(Fd record, copy_of(layer_.record));
  if (frozen_ == Frozen::kNo) TRY(box_->freeze());
  descriptors.push_back(std::move(layer));
  descriptors.push_back(std::move(record));
  proto::Fields result;
  result.put(Tag::kHandouts, wall::encode_handouts(layer_));
  return result;
}

void Supervisor::release() {
  const bool held = !std::exchange(hold_asked_, std::nullopt).has_value();
  holder_ = 0;
  if (!held || frozen_ == Frozen::kYes || ended_) return;
  if (!box_->thaw()) {
    // It is as if it was paused, and can be resumed like that.
    frozen_ = Frozen::kYes;
    return tell_state();
  }
  for (auto& [number, stream] : streams_) {
    if (stream.command != nullptr) stream.command->end_from_now();
  }
}

bool Supervisor::must_wait(std::uint64_t id, const proto::Frame& frame) {
  const auto of_stream = [&](const Waiting& waiting) {
    return waiting.client == id && waiting.frame.header.stream == frame.header.stream;
  };
  const bool opens = frame.header.type == FrameType::kOpen;
  // Nothing overtakes what waits already.
  const bool waits = opens ? holder_ != 0 || reboot_.has_value() || !waiting_.empty()
                           : std::ranges::any_of(waiting_, of_stream);
  if (!waits) return false;
  if (waiting_.size() >= kMostWaiting ||
      waiting_bytes_ + frame.payload.size() > kMostWaitingBytes) {
    drop_waiting(of_stream);
    refuse(id, frame.header.stream,
           Error::unavailable("the sandbox stands still for a moment, and too much waits already"));
    return true;
  }
  waiting_bytes_ += frame.payload.size();
  waiting_.push_back({.client = id, .frame = frame});
  return true;
}

void Supervisor::drop_waiting(const std::function<bool(const Waiting&)>& which) {
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (!which(waiting)) return false;
    waiting_bytes_ -= waiting.frame.payload.size();
    return true;
  });
}

void Supervisor::take_waiting() {
  if (holder_ != 0 || reboot_ || ended_) return;
  std::deque<Waiting> waiting = std::exchange(waiting_, {});
  waiting_bytes_ = 0;
  for (const auto& [id, frame] : waiting) {
    if (client_of(id) == nullptr) continue;
    if (auto taken = take_from_client(id, frame); !taken) drop_client(id);
    if (ended_) return;
  }
}

void Supervisor::forget_waiting(std::uint64_t id) {
  drop_waiting([id](const Waiting& waiting) { return waiting.client == id; });
  if (holder_ == id) release();
}

Status Supervisor::reboot(std::uint64_t id, const proto::Fields& head,
                          const proto::FieldReader& fields) {
  if (plan_.life != Life::kKept)
    return fail(
        Error::precondition("only a kept sandbox can be booted anew: this one ends with "
                            "its command or with its maker"));
  if (unborn()) return fail(Error::unavailable("the sandbox is still being made"));
  if (holder_ != 0 || reboot_)
    return fail(Error::unavailable(
        "the sandbox's files are being read, or it is being booted anew already"));
  const bool freezes = fields.number_or_none(Tag::kFrozen).value_or(0) != 0;
  end_commands_for(Verdict::kCancelled, "", "the sandbox was booted anew");
  for (auto& [number, stream] : streams_) {
    if (stream.command == nullptr) continue;
    // The sandbox outlives also the one that it was to end with.
    if (stream.kept != nullptr) stream.kept->ends_sandbox = false;
    kill_command(number, stream);
  }
  // What is frozen dies when it is not any more (cgroup v1).
  if (frozen_ == Frozen::kYes) {
    TRY(box_->thaw());
    frozen_ = Frozen::kNo;
  }
  (void)add_stream(0, 0, Kind::kControl);
  guest_.send(Peer::Lane::kUrgent, last_stream_, FrameType::kOpen,
              static_cast<std::uint8_t>(Kind::kControl),
              proto::Fields()
                  .put_u8(Tag::kControlOperation,
                          static_cast<std::uint8_t>(ControlOperation::kEndProcesses))
                  .bytes());
  reboot_ = {.asked = {.client = id, .head = head},
             .stream = last_stream_,
             .then = freezes ? Frozen::kYes : Frozen::kNo,
             .by_us = sys::monotonic_us() + reboot_us_};
  return {};
}

void Supervisor::give_reboot_up() {
  const Reboot given_up = std::move(*std::exchange(reboot_, std::nullopt));
  const std::string why = "the sandbox did not boot anew within " +
                          std::to_string(reboot_us_ / 1'000'000) + " seconds, and was ended";
  send_answer(given_up.asked.client, given_up.asked.head,
              fail(Error(Code::kDeadlineExceeded, why)));
  end(why);
}

void Supervisor::finish_reboot(std::string_view close) {
  const Reboot done = std::move(*std::exchange(reboot_, std::nullopt));
  const auto result = [&]() -> Result<proto::Fields> {
    TRY_ASSIGN(const auto fields, proto::FieldReader::parse(close));
    if (auto error = fields.error()) return fail(std::move(*error));
    TRY(box_->renew_boot_id());
    if (done.then == Frozen::kYes) TRY(box_->freeze());
    frozen_ = done.then;
    proto::Fields told;
    told.put_u8(Tag::kFrozen, frozen_ == Frozen::kYes ? 1 : 0);
    return told;
  }();
  tell_state();
  send_answer(done.asked.client, done.asked.head, result);
}

}  // namespace caisson::launcher
