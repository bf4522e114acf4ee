#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/sys.h"
#include "launcher/supervisor_state.h"
#include "policy/limits.h"

namespace caisson::launcher {

using proto::ControlOperation;
using proto::FrameType;
using proto::Tag;

namespace {

constexpr std::size_t kMaxFreezing = 64;

}  // namespace
std::uint64_t unix_ms() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

std::uint64_t Supervisor::deadline_ms() const {
  if (deadline_us_ == 0) return 0;
  const std::uint64_t now_us = sys::monotonic_us();
  return unix_ms() + (std::max(deadline_us_, now_us) - now_us) / 1000;
}

void Supervisor::tell_state() {
  if (on_state_) on_state_({.deadline_ms = deadline_ms(), .frozen = frozen_});
}

Status Supervisor::take_request(std::uint64_t id, const proto::Frame& frame) {
  if (frame.header.type != FrameType::kControl)
    return fail(Error::invalid("stream 0 takes CONTROL alone"));
  TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
  TRY_ASSIGN(const std::uint64_t number, fields.number(Tag::kControlOperation));
  Client& client = clients_.at(id);
  if (number == static_cast<std::uint64_t>(ControlOperation::kShutdown)) {
    end_commands_for(Verdict::kCancelled, "", "the sandbox was ended by its owner");
    end("the sandbox was ended by its owner");
    return {};
  }
  if (number == static_cast<std::uint64_t>(ControlOperation::kSettle)) {
    settled_ = settled_ || (client.first && plan_.life == Life::kKept);
    return {};
  }
  if (number < static_cast<std::uint64_t>(ControlOperation::kSetDeadline)) return {};
  proto::Fields head;
  head.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(number))
      .put_u32(Tag::kRequest,
               static_cast<std::uint32_t>(fields.number_or_none(Tag::kRequest).value_or(0)));
  switch (const auto operation =
              static_cast<ControlOperation>(std::min<std::uint64_t>(number, 255))) {
    case ControlOperation::kListCommands:
      list_commands(client, head);
      send_answer(id, head, proto::Fields());
      return {};
    case ControlOperation::kListVerdicts:
      list_verdicts(client, head);
      return {};
    case ControlOperation::kFreeze:
      begin_freeze(id, head);
      return {};
    case ControlOperation::kHold:
      begin_hold(id, head);
      return {};
    case ControlOperation::kReboot:
      // Answered when it is done.
      if (auto begun = reboot(id, head, fields); !begun)
        send_answer(id, head, fail(std::move(begun).error()));
      return {};
    case ControlOperation::kRelease:
      if (holder_ == id) release();
      send_answer(id, head, proto::Fields());
      return {};
    default:
      send_answer(id, head, answer(operation, fields));
      // A deadline that has come is seen at the end of this turn.
      return {};
  }
}

void Supervisor::send_answer(std::uint64_t id, const proto::Fields& head,
                             const Result<proto::Fields>& result, std::vector<Fd> descriptors) {
  Client* client = client_of(id);
  if (client == nullptr) return;
  const std::string payload =
      head.bytes() + (result ? result->bytes() : proto::Fields().put_error(result.error()).bytes());
  if (descriptors.empty())
    client->peer.send(Peer::Lane::kUrgent, 0, FrameType::kEvent, 0, payload);
  else
    client->peer.send_with(0, FrameType::kEvent, 0, payload, std::move(descriptors));
}

Result<proto::Fields> Supervisor::answer(ControlOperation operation,
                                         const proto::FieldReader& fields) {
  switch (operation) {
    case ControlOperation::kSetDeadline:
      return set_deadline(fields);
    case ControlOperation::kThaw:
      answer_freeze(fail(Error(Code::kAborted, "the sandbox was resumed before it was paused")));
      return set_frozen(Frozen::kNo);
    case ControlOperation::kUsage:
      return tell_usage();
    case ControlOperation::kLimits:
      return tell_limits();
    case ControlOperation::kSetNetwork:
      return set_network(fields);
    default:
      return fail(Error{Code::kUnimplemented, "this supervisor knows no such operation"});
  }
}

Result<proto::Fields> Supervisor::set_deadline(const proto::FieldReader& fields) {
  if (plan_.life != Life::kKept)
    return fail(Error::precondition(
        "only a kept sandbox has a deadline of its own; this one ends with its command or with "
        "its maker"));
  TRY_ASSIGN(const std::uint64_t from_now_ms, fields.number(Tag::kTimeLimitMs));
  if (from_now_ms > policy::kMaxMilliseconds)
    return fail(Error::invalid("deadline: found " + std::to_string(from_now_ms) +
                               " ms from now; allowed are 0 to " +
                               std::to_string(policy::kMaxMilliseconds)));
  deadline_us_ = sys::monotonic_us() + from_now_ms * 1000;
  tell_state();
  proto::Fields result;
  result.put_u64(Tag::kDeadlineMs, deadline_ms());
  return result;
}

Result<proto::Fields> Supervisor::set_network(const proto::FieldReader& fields) {
  if (!on_network_)
    return fail(Error::precondition("the network of this sandbox is its maker's to change"));
  if (unborn()) return fail(Error::unavailable("the sandbox is still being made"));
  TRY_ASSIGN(const std::string_view policy, fields.text(Tag::kNetworkPolicy));
  TRY(on_network_(policy));
  return proto::Fields();
}

Result<proto::Fields> Supervisor::set_frozen(Frozen wanted) {
  proto::Fields result;
  result.put_u8(Tag::kFrozen, wanted == Frozen::kYes ? 1 : 0);
  if (wanted == frozen_) return result;
  if (unborn()) return fail(Error::unavailable("the sandbox is still being made"));
  if (holder_ != 0 || reboot_)
    return fail(Error::unavailable(
        "the sandbox's files are being read, or it is being booted anew; try again in a moment"));
  TRY(wanted == Frozen::kYes ? box_->freeze() : box_->thaw());
  frozen_ = wanted;
  // What was to end meanwhile could not, and has its time for that from now on.
  for (auto& [number, stream] : streams_) {
    if (wanted == Frozen::kNo && stream.command != nullptr) stream.command->end_from_now();
  }
  tell_state();
  return result;
}

bool Supervisor::starts_something() const {
  return std::ranges::any_of(streams_, [](const auto& entry) {
    return entry.second.command != nullptr && !entry.second.started;
  });
}

void Supervisor::begin_freeze(std::uint64_t id, const proto::Fields& head) {
  if (freezing_.size() >= kMaxFreezing) {
    return send_answer(id, head,
                       fail(Error::exhausted("too many wait for the sandbox to be paused")));
  }
  if (freezing_.empty()) freeze_by_us_ = sys::monotonic_us() + kStartPatienceUs;
  freezing_.push_back({.client = id, .head = head});
  freeze_when_started();
}

void Supervisor::freeze_when_started() {
  if (freezing_.empty()) return;
  if (unborn() || !starts_something()) return answer_freeze(set_frozen(Frozen::kYes));
  if (sys::monotonic_us() < freeze_by_us_) return;
  answer_freeze(fail(Error(Code::kDeadlineExceeded,
                           "a command's start takes too long for the sandbox to be paused now")));
}

void Supervisor::answer_freeze(const Result<proto::Fields>& result) {
  for (const Asked& asked : std::exchange(freezing_, {}))
    send_answer(asked.client, asked.head, result);
}

Result<proto::Fields> Supervisor::tell_usage() {
  TRY_ASSIGN(const wall::Usage usage, box_->usage());
  proto::Fields result;
  result.put_u64(Tag::kUserMicros, usage.user_us)
      .put_u64(Tag::kSystemMicros, usage.system_us)
      .put_u64(Tag::kMemoryNow, usage.memory_now)
      .put_u64(Tag::kMemoryPeak, usage.memory_peak)
      .put_u64(Tag::kPidsNow, usage.pids_now)
      .put_u64(Tag::kPidsPeak, usage.pids_peak)
      .put_u64(Tag::kDiskBytes, usage.disk_bytes)
      .put_u64(Tag::kDiskInodes, usage.disk_inodes)
      .put_u64(Tag::kDeadlineMs, deadline_ms())
      .put_u64(Tag::kCommandsEnded, verdicts_.count())
      .put_u8(Tag::kFrozen, frozen_ == Frozen::kYes ? 1 : 0);
  return result;
}

Result<proto::Fields> Supervisor::tell_limits() const {
  std::string values;
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(plan_.cpu_milli), plan_.memory, plan_.pids, plan_.disk,
        plan_.inodes, plan_.open_files, plan_.output, plan_.timeout_ms, plan_.cpu_time_ms,
        plan_.io_read, plan_.io_write, plan_.io_read_ops, plan_.io_write_ops}) {
    for (unsigned shift = 0; shift < 64; shift += 8)
      values += static_cast<char>(value >> shift & 0xff);
  }
  std::string held;
  for (const HeldBy how : box_->held()) held += static_cast<char>(how);
  proto::Fields result;
  result.put(Tag::kLimitValues, values).put(Tag::kHeld, held);
  return result;
}

void Supervisor::list_verdicts(Client& client, const proto::Fields& head) const {
  const auto send = [&](const std::string& payload) {
    client.peer.send(Peer::Lane::kUrgent, 0, FrameType::kEvent, 0, head.bytes() + payload);
  };
  for (const std::string& verdict : verdicts_.all()) send(verdict);
  send(verdicts_.refusals());
}

void Supervisor::list_commands(Client& client, const proto::Fields& head) const {
  for (const auto& [number, command] : kept_.all()) {
    if (command.is_main() || command.pid == 0) continue;
    proto::Fields fields;
    fields.put_u32(Tag::kCommand, number)
        .put_u32(Tag::kPid, command.pid)
        .put_u64(Tag::kStartedMs, command.started_ms)
        .put_u8(Tag::kStdin, command.input_state == KeptCommand::Input::kOpen ? 1 : 0)
        .put(Tag::kLabel, command.label);
    client.peer.send(Peer::Lane::kUrgent, 0, FrameType::kEvent, 0,
                     head.bytes() + fields.bytes() + command.close.value_or(""));
  }
}

}  // namespace caisson::launcher
