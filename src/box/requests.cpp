#include "box/requests.h"

#include <optional>
#include <string>

#include "base/proto.h"
#include "base/verdict.h"
#include "launcher/gateway_protocol.h"

namespace caisson::box {
namespace {

using proto::ControlOperation;
using proto::FrameType;
using proto::Tag;

constexpr int kSilenceMs = 30'000;
// More than a supervisor lists: what it keeps is bounded there too.
constexpr std::size_t kMostListed = 1024;

// One request at a time: an answer to another is one that came too late.
constexpr std::uint32_t kRequest = 1;

Error strange(std::string_view what) {
  return Error(Code::kDataLoss, "the sandbox broke the protocol: " + std::string(what));
}

proto::Fields request(ControlOperation operation) {
  proto::Fields fields;
  fields.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(operation))
      .put_u32(Tag::kRequest, kRequest);
  return fields;
}

void send(Connection& connection, const proto::Fields& fields) {
  connection.send(0, FrameType::kControl, 0, fields.bytes());
}

// The payload of the next EVENT that answers. Error: the sandbox's own too.
Result<std::string> next_answer(Connection& connection) {
  for (;;) {
    TRY_ASSIGN(proto::Frame frame, connection.wait(kSilenceMs));
    if (frame.header.stream != 0 || frame.header.type != FrameType::kEvent) continue;
    TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
    if (fields.number_or_none(Tag::kRequest) != kRequest) continue;
    if (auto error = fields.error()) return fail(std::move(*error));
    return std::move(frame.payload);
  }
}

Result<std::string> ask(Connection& connection, const proto::Fields& fields) {
  send(connection, fields);
  return next_answer(connection);
}

Result<KeptCommand> kept_from(std::string_view payload, const proto::FieldReader& fields) {
  KeptCommand command;
  TRY_ASSIGN(const std::uint64_t number, fields.number(Tag::kCommand));
  TRY_ASSIGN(const std::uint64_t pid, fields.number(Tag::kPid));
  TRY_ASSIGN(const std::uint64_t started, fields.number(Tag::kStartedMs));
  TRY_ASSIGN(command.label, fields.text(Tag::kLabel));
  command.number = static_cast<std::uint32_t>(number);
  command.pid = static_cast<std::uint32_t>(pid);
  command.started_ms = static_cast<std::int64_t>(started);
  if (fields.has(Tag::kVerdict)) {
    TRY_ASSIGN(command.outcome, decode_outcome(payload));
  }
  return command;
}

}  // namespace

Result<std::int64_t> set_deadline(Connection& connection, std::uint64_t from_now_ms) {
  TRY_ASSIGN(const std::string answer,
             ask(connection,
                 request(ControlOperation::kSetDeadline).put_u64(Tag::kTimeLimitMs, from_now_ms)));
  TRY_ASSIGN(const auto fields, proto::FieldReader::parse(answer));
  TRY_ASSIGN(const std::uint64_t deadline, fields.number(Tag::kDeadlineMs));
  return static_cast<std::int64_t>(deadline);
}

Status hold(Connection& connection, Held held) {
  const auto operation = held == Held::kYes ? ControlOperation::kFreeze : ControlOperation::kThaw;
  TRY(ask(connection, request(operation)));
  return {};
}

Status set_network(Connection& connection, std::string_view policy) {
  // A frame takes no more.
  if (policy.size() > launcher::kMostLivePolicy)
    return fail(
        Error::exhausted("network: found a policy of " + std::to_string(policy.size()) +
                         " bytes as JSON; a sandbox that outlives its maker takes at most " +
                         std::to_string(launcher::kMostLivePolicy)));
  TRY(ask(connection, request(ControlOperation::kSetNetwork).put(Tag::kNetworkPolicy, policy)));
  return {};
}

Result<wall::Handouts> hold_layer(Connection& connection) {
  // What an earlier answer may have left.
  while (connection.take_descriptor().valid()) {
  }
  TRY_ASSIGN(const std::string answer, ask(connection, request(ControlOperation::kHold)));
  TRY_ASSIGN(const auto fields, proto::FieldReader::parse(answer));
  TRY_ASSIGN(const std::string_view text, fields.text(Tag::kHandouts));
  std::vector<Fd> descriptors;
  for (Fd fd = connection.take_descriptor(); fd.valid(); fd = connection.take_descriptor())
    descriptors.push_back(std::move(fd));
  TRY_ASSIGN(wall::Handouts handouts, wall::decode_handouts(text, std::move(descriptors)));
  if (!handouts.layer.valid()) return fail(strange("a layer that is not there"));
  return handouts;
}

Status release_layer(Connection& connection) {
  TRY(ask(connection, request(ControlOperation::kRelease)));
  return {};
}

Status reboot(Connection& connection, Held then) {
  TRY(ask(connection,
          request(ControlOperation::kReboot).put_u8(Tag::kFrozen, then == Held::kYes ? 1 : 0)));
  return {};
}

Result<SandboxUsage> usage(Connection& connection) {
  TRY_ASSIGN(const std::string answer, ask(connection, request(ControlOperation::kUsage)));
  TRY_ASSIGN(const auto fields, proto::FieldReader::parse(answer));
  SandboxUsage usage;
  TRY_ASSIGN(usage.user_us, fields.number(Tag::kUserMicros));
  TRY_ASSIGN(usage.system_us, fields.number(Tag::kSystemMicros));
  TRY_ASSIGN(usage.memory_now, fields.number(Tag::kMemoryNow));
  TRY_ASSIGN(usage.memory_peak, fields.number(Tag::kMemoryPeak));
  TRY_ASSIGN(usage.pids_now, fields.number(Tag::kPidsNow));
  TRY_ASSIGN(usage.pids_peak, fields.number(Tag::kPidsPeak));
  TRY_ASSIGN(usage.disk_bytes, fields.number(Tag::kDiskBytes));
  TRY_ASSIGN(usage.disk_inodes, fields.number(Tag::kDiskInodes));
  return usage;
}

Result<std::vector<KeptCommand>> list_kept(Connection& connection) {
  send(connection, request(ControlOperation::kListCommands));
  std::vector<KeptCommand> list;
  for (;;) {
    TRY_ASSIGN(const std::string answer, next_answer(connection));
    TRY_ASSIGN(const auto fields, proto::FieldReader::parse(answer));
    if (!fields.has(Tag::kCommand)) return list;
    if (list.size() == kMostListed) return fail(strange("a list of commands without end"));
    TRY_ASSIGN(KeptCommand command, kept_from(answer, fields));
    list.push_back(std::move(command));
  }
}

void send_settled(Connection& connection) {
  send(connection, request(ControlOperation::kSettle));
}

void send_shutdown(Connection& connection) {
  proto::Fields fields;
  fields.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(ControlOperation::kShutdown));
  send(connection, fields);
}

}  // namespace caisson::box
