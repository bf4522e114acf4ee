#include "base/sys.h"
#include "launcher/supervisor_state.h"

namespace caisson::launcher {

using proto::Channel;
using proto::FrameType;
using proto::Tag;

namespace {

constexpr auto kIn = static_cast<std::uint8_t>(Channel::kIn);
constexpr std::uint64_t kKeepAndEnd = 2;

}  // namespace

Status Supervisor::check_keep(const proto::FieldReader& fields) const {
  if (plan_.life != Life::kKept)
    return fail(Error::precondition("only a kept sandbox keeps commands"));
  if (fields.number_or_none(Tag::kKeep).value_or(0) > kKeepAndEnd)
    return fail(Error::invalid("keep: allowed are 0 to 2"));
  for (const std::string_view label : fields.all(Tag::kLabel)) {
    if (label.size() > proto::kMaxLabel)
      return fail(Error::invalid("label: found " + std::to_string(label.size()) +
                                 " bytes; allowed are at most " +
                                 std::to_string(proto::kMaxLabel)));
  }
  return kept_.check_room();
}

void Supervisor::keep_command(std::uint64_t id, std::uint32_t stream,
                              const proto::FieldReader& fields) {
  const auto labels = fields.all(Tag::kLabel);
  const std::uint64_t keeps =
      fields.number_or_none(Tag::kKeepOutput).value_or(KeptCommands::kUsualKept);
  KeptCommand& command = kept_.add(labels.empty() ? "" : std::string(labels.front()), keeps);
  command.guest_stream = last_stream_;
  command.started_ms = streams_.at(last_stream_).started_ms;
  command.ends_sandbox = fields.number_or_none(Tag::kKeep) == kKeepAndEnd;
  const bool reads_input =
      fields.has(Tag::kPty) || fields.number_or_none(Tag::kStdin).value_or(0) != 0;
  if (!reads_input) kept_.close_input(command);
  kept_.attach(command, id, stream, KeptCommands::From::kNow);
  streams_.at(last_stream_).kept = &command;
}

Status Supervisor::join_command(std::uint64_t id, std::uint32_t stream,
                                const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::uint64_t from, fields.number(Tag::kAttach));
  if (from > static_cast<std::uint64_t>(KeptCommands::From::kNow))
    return fail(Error::invalid("attach: found " + std::to_string(from) + "; allowed are 0 to 2"));
  const auto number = fields.number_or_none(Tag::kCommand);
  KeptCommand* const command = kept_.find(number.value_or(0));
  if (command == nullptr && !number)
    return fail(Error::precondition(
        "this sandbox has no main command whose output would be kept; caisson run -d makes one "
        "that has"));
  // One that has not started yet is nobody's but its client's.
  if (command == nullptr || (!command->is_main() && command->pid == 0))
    return fail(Error::not_found("there is no command " + std::to_string(*number) +
                                 " in this sandbox, or it ended more than " +
                                 std::to_string(KeptCommands::kEndedUs / 1'000'000) +
                                 " seconds ago"));
  TRY(kept_.check_reader_room());
  kept_.attach(*command, id, stream, static_cast<KeptCommands::From>(from));
  return {};
}

Status Supervisor::take_from_reader(std::uint64_t id, const proto::Frame& frame,
                                    KeptCommand& command) {
  switch (frame.header.type) {
    case FrameType::kCredit:
      return kept_.take_credit(id, frame);
    case FrameType::kClose:
      kept_.leave(id, frame.header.stream);
      return {};
    case FrameType::kData:
    case FrameType::kFinish:
      return take_input(id, frame, command);
    case FrameType::kControl: {
      TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
      const bool shutdown = fields.number_or_none(Tag::kControlOperation) ==
                            static_cast<std::uint64_t>(proto::ControlOperation::kShutdown);
      if (command.is_main()) {
        // Who reads a main command did not start it; a cancel ends the reading alone.
        if (shutdown) kept_.leave(id, frame.header.stream);
        return {};
      }
      const auto stream = streams_.find(command.guest_stream);
      if (stream == streams_.end()) return {};  // ended a moment ago
      if (!shutdown) {
        guest_.send(Peer::Lane::kUrgent, stream->first, frame.header.type, 0, frame.payload);
        return {};
      }
      stream->second.command->end_for(Verdict::kCancelled, "", "cancelled");
      kill_command(stream->first, stream->second);
      return {};
    }
    default:
      return fail(Error::invalid("a frame that a reader does not send"));
  }
}

Status Supervisor::take_input(std::uint64_t id, const proto::Frame& frame, KeptCommand& command) {
  if (command.is_main() || frame.header.detail != kIn)
    return fail(Error::invalid("a frame that a reader does not send"));
  if (frame.header.type == FrameType::kFinish) {
    if (command.input_state == KeptCommand::Input::kOpen)
      command.input_state = KeptCommand::Input::kFinishing;
  } else if (auto taken = kept_.add_input(command, id, frame.header.stream, frame.payload);
             !taken) {
    if (taken.error().code() != Code::kResourceExhausted) return fail(std::move(taken).error());
    kept_.leave(id, frame.header.stream, proto::Fields().put_error(taken.error()).bytes());
  }
  pass_input(command);
  return {};
}

void Supervisor::pass_input(KeptCommand& command) {
  const auto stream = streams_.find(command.guest_stream);
  if (stream == streams_.end()) return;
  std::int64_t& credit = stream->second.to_guest[kIn];
  while (credit > 0) {
    const auto part = kept_.take_input(
        command, std::min<std::size_t>(static_cast<std::size_t>(credit), proto::kMaxPayload));
    if (!part) break;
    credit -= static_cast<std::int64_t>(part->bytes.size());
    guest_.send(Peer::Lane::kData, stream->first, FrameType::kData, kIn, part->bytes);
    if (!kept_.grant_input(part->client, part->stream, part->bytes.size())) continue;
    const std::string granted = proto::encode_credit(
        part->stream, Channel::kIn, static_cast<std::uint32_t>(part->bytes.size()));
    clients_.at(part->client)
        .peer.send(Peer::Lane::kUrgent, part->stream, FrameType::kCredit, kIn,
                   std::string_view(granted).substr(proto::kHeaderSize));
  }
  if (!command.input.empty() || command.input_state != KeptCommand::Input::kFinishing) return;
  kept_.close_input(command);
  guest_.send(Peer::Lane::kData, stream->first, FrameType::kFinish, kIn, "");
}

}  // namespace caisson::launcher
