#include <caisson/spec.h>
#include <fcntl.h>
#include <signal.h>

#include <algorithm>

#include "base/sys.h"
#include "launcher/additions.h"
#include "launcher/supervisor_state.h"

namespace caisson::launcher {

using proto::FrameType;
using proto::Kind;
using proto::Tag;

bool has_writable_grant(const wall::Plan& plan) {
  return std::any_of(plan.grants.begin(), plan.grants.end(),
                     [](const wall::PlanGrant& grant) { return grant.writable; });
}

Status Supervisor::open_command(std::uint64_t id, const proto::Frame& frame,
                                const proto::FieldReader& fields) {
  // What only we may say does not come from a client.
  for (const Tag tag : {Tag::kCgroup, Tag::kBirthCgroup, Tag::kRlimit, Tag::kSyscallProfile,
                        Tag::kWantListener, Tag::kPrivileges, Tag::kNoSetid, Tag::kDefaultEnv}) {
    if (fields.has(tag)) return fail(Error::invalid("a field that a client does not send"));
  }
  const bool listener = box_->channel_passes_descriptors();
  if (!listener && plan_.on_refusal == static_cast<std::uint8_t>(policy::OnRefusal::kKill))
    return fail(
        Error::precondition("on_refusal: kill needs a wall over whose channel descriptors travel; "
                            "this one's does not"));
  if (frozen_ == Frozen::kYes || !freezing_.empty())
    return fail(Error::precondition(
        "the sandbox is paused; it takes commands once it is resumed (caisson resume)"));
  const bool keep = fields.number_or_none(Tag::kKeep).value_or(0) != 0;
  if (keep) TRY(check_keep(fields));
  TRY_ASSIGN(auto slot, box_->make_slot());
  std::vector<Fd> descriptors;
  for (const int fd : slot->descriptors()) {
    descriptors.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!descriptors.back().valid()) return fail_errno("fcntl");
  }
  proto::Fields ours = command_limits_;
  ours.put_u8(Tag::kSyscallProfile, plan_.syscall_profile)
      .put_u8(Tag::kWantListener, listener ? 1 : 0)
      .put_u8(Tag::kPrivileges, plan_.privileges);
  if (has_writable_grant(plan_)) ours.put_u8(Tag::kNoSetid, 1);
  for (const std::string& setting : plan_.environment) ours.put(Tag::kDefaultEnv, setting);
  if (!plan_.workdir.empty() && !fields.has(Tag::kCwd)) ours.put(Tag::kCwd, plan_.workdir);
  const std::size_t births = slot->born_in_last() ? 1 : 0;
  if (births != 0) ours.put_u8(Tag::kBirthCgroup, 1);
  if (descriptors.size() > births)
    ours.put_u8(Tag::kCgroup, static_cast<std::uint8_t>(descriptors.size() - births));
  const std::string payload = frame.payload + ours.bytes();
  if (payload.size() > proto::kMaxOpen)
    return fail(
        Error::invalid("arguments and environment, the image's included, are longer "
                       "than 2.5 MiB together"));

  // Who opened a kept command reads it as all others do.
  Stream& stream = add_stream(keep ? 0 : id, keep ? 0 : frame.header.stream, Kind::kExec);
  stream.started_ms = unix_ms();
  if (const auto program = fields.text(Tag::kArg); program.has_value())
    stream.program = program->substr(0, proto::kMaxProgram);
  stream.command = std::make_unique<Command>(plan_, bounds_of(plan_, fields), std::move(slot));
  if (keep) keep_command(id, frame.header.stream, fields);
  if (plan_.life == Life::kMainCommand && !main_opened_) {
    main_opened_ = true;
    stream.kept = kept_.find(0);
    stream.kept->guest_stream = last_stream_;
  }
  // Whoever else runs something in it meanwhile does not end it.
  stream.last = !keep && plan_.single != 0 && clients_.at(id).first;
  guest_.send_with(last_stream_, FrameType::kOpen, frame.header.detail, payload,
                   std::move(descriptors));
  return {};
}

void Supervisor::finish_command(Stream& stream, std::optional<std::string_view> close) {
  Outcome outcome = stream.command->finish(close, box_->held());
  if (!close && outcome.verdict == Verdict::kSandboxError && !end_reason_.empty()) {
    outcome.detail = end_reason_;
  }
  const std::string payload = encode_outcome(outcome) + start_error(close.value_or(""));
  verdicts_.add({.command = stream.kept != nullptr ? stream.kept->number : 0,
                 .program = std::move(stream.program),
                 .started_ms = stream.started_ms,
                 .ended_ms = unix_ms()},
                outcome);
  if (Client* client = client_of(stream.client))
    client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kClose, 0, payload);
  if (stream.kept != nullptr) kept_.end(*stream.kept, payload, sys::monotonic_us());
}

void Supervisor::end_commands_for(Verdict verdict, const std::string& cause,
                                  const std::string& detail) {
  for (auto& [number, stream] : streams_) {
    if (stream.command != nullptr) stream.command->end_for(verdict, cause, detail);
  }
}

void Supervisor::kill_command(std::uint32_t id, Stream& stream) {
  if (stream.command->slot().kill()) return;
  // No group of its own: the guest ends it, and if it does not, the box goes.
  proto::Fields fields;
  fields.put_u32(Tag::kSignal, SIGKILL);
  guest_.send(Peer::Lane::kUrgent, id, FrameType::kControl, 0, fields.bytes());
}

// Output that a client has no credit for would keep a command that was killed open for ever.
void Supervisor::cut_command(std::uint32_t id, Stream& stream) {
  stream.cut = true;
  guest_.send(Peer::Lane::kUrgent, id, FrameType::kClose, 0, "");
}

}  // namespace caisson::launcher
