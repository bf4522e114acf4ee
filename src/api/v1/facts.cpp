// What is to be known of a sandbox: what it uses, its limits and how each is held, how its commands
// ended, which calls were refused, and which ports are listened on.
#include <algorithm>
#include <array>

#include "api/v1/listening.h"
#include "api/v1/routes.h"
#include "api/v1/sandbox.h"
#include "base/encoding.h"
#include "base/time_text.h"
#include "base/verdict.h"
#include "box/result_json.h"

namespace caisson::api::v1 {
namespace {

using fleet::BoxStream;
using fleet::Served;
using proto::ControlOperation;
using proto::FieldReader;
using proto::Tag;
using Kind = BoxStream::Message::Kind;

// Of /proc/net/tcp; more is cut off.
constexpr std::size_t kMostTable = 1 << 20;

// The last part of an answer. A sandbox of an older version answers unimplemented.
io::Async<Result<std::string>> ask_once(std::shared_ptr<Served> sandbox, ControlOperation what) {
  CO_TRY_ASSIGN(std::vector<std::string> answers, co_await ask(std::move(sandbox), what));
  co_return std::move(answers.back());
}

std::string time_of(std::uint64_t ms) {
  return time_text(WallTime(std::chrono::milliseconds(static_cast<std::int64_t>(ms))));
}

io::Async<Result<Answer>> usage(Call& call) {
  CO_TRY_ASSIGN(std::shared_ptr<Served> sandbox, running_sandbox_of(call));
  CO_TRY_ASSIGN(const std::string told,
                co_await ask_once(std::move(sandbox), ControlOperation::kUsage));
  CO_TRY_ASSIGN(const FieldReader fields, FieldReader::parse(told));
  json::Value body = json::Value::object();
  for (const auto& [key, tag] : {std::pair{"user_us", Tag::kUserMicros},
                                 {"system_us", Tag::kSystemMicros},
                                 {"memory_now", Tag::kMemoryNow},
                                 {"memory_peak", Tag::kMemoryPeak},
                                 {"pids_now", Tag::kPidsNow},
                                 {"pids_peak", Tag::kPidsPeak},
                                 {"disk_bytes", Tag::kDiskBytes},
                                 {"disk_inodes", Tag::kDiskInodes}})
    body.set(key, fields.number_or_none(tag).value_or(0));
  co_return Answer::json(200, body);
}

std::uint64_t number_at(std::string_view bytes, std::size_t index) {
  std::uint64_t number = 0;
  for (unsigned at = 0; at < 8; ++at)
    number |= std::uint64_t{static_cast<std::uint8_t>(bytes[index * 8 + at])} << 8 * at;
  return number;
}

io::Async<Result<Answer>> limits(Call& call) {
  CO_TRY_ASSIGN(std::shared_ptr<Served> sandbox, running_sandbox_of(call));
  CO_TRY_ASSIGN(const std::string told,
                co_await ask_once(std::move(sandbox), ControlOperation::kLimits));
  CO_TRY_ASSIGN(const FieldReader fields, FieldReader::parse(told));
  CO_TRY_ASSIGN(const std::string_view values, fields.text(Tag::kLimitValues));
  CO_TRY_ASSIGN(const auto held, decode_held(fields));
  if (values.size() < kLimits * 8)
    co_return fail(Error::internal("the supervisor told too little of its limits"));
  json::Value body = json::Value::object();
  for (std::size_t at = 0; at < kLimits; ++at) {
    const auto limit = static_cast<Limit>(at);
    // The sandbox's time is its deadline, which moves.
    if (limit == Limit::kTimeout) continue;
    const std::uint64_t value = number_at(values, at);
    json::Value entry = json::Value::object();
    if (value == 0) {
      entry.set("value", nullptr);
    } else if (limit == Limit::kCpus) {
      entry.set("value", static_cast<double>(value) / 1000);
    } else {
      entry.set("value", value);
    }
    entry.set("held", to_string(held[at]));
    body.set(limit == Limit::kCpuTime ? "cpu_time_ms" : to_string(limit), std::move(entry));
  }
  co_return Answer::json(200, body);
}

json::Value verdict_of(const FieldReader& fields, const Outcome& outcome, std::string_view image) {
  json::Value verdict = json::Value::object();
  if (const auto number = fields.number_or_none(Tag::kCommand).value_or(0); number != 0)
    verdict.set("number", number);
  const std::string_view program = fields.text(Tag::kProgram).value_or("");
  verdict.set("program", program.substr(0, utf8_prefix(program)));
  verdict.set("started", time_of(fields.number_or_none(Tag::kStartedMs).value_or(0)));
  verdict.set("ended", time_of(fields.number_or_none(Tag::kEndedMs).value_or(0)));
  RunResult result;
  result.outcome = outcome;
  verdict.set("result",
              box::result_value(result, {.wall = "namespace",
                                         .image = image,
                                         .output = box::ResultContext::Output::kElsewhere}));
  return verdict;
}

io::Async<Result<Answer>> verdicts(Call& call) {
  CO_TRY_ASSIGN(const std::shared_ptr<Served> sandbox, running_sandbox_of(call));
  CO_TRY_ASSIGN(const std::vector<std::string> answers,
                co_await ask(sandbox, ControlOperation::kListVerdicts));
  json::Value all = json::Value::array();
  for (const std::string& answer : answers) {
    CO_TRY_ASSIGN(const FieldReader fields, FieldReader::parse(answer));
    if (!fields.has(Tag::kCommand)) continue;
    CO_TRY_ASSIGN(const Outcome outcome, decode_outcome(answer));
    all.push(verdict_of(fields, outcome, sandbox->view().template_id));
  }
  json::Value body = json::Value::object();
  body.set("verdicts", std::move(all));
  co_return Answer::json(200, body);
}

io::Async<Result<Answer>> refusals(Call& call) {
  CO_TRY_ASSIGN(std::shared_ptr<Served> sandbox, running_sandbox_of(call));
  CO_TRY_ASSIGN(const std::string told,
                co_await ask_once(std::move(sandbox), ControlOperation::kListVerdicts));
  CO_TRY_ASSIGN(const FieldReader fields, FieldReader::parse(told));
  CO_TRY_ASSIGN(const std::vector<Refusal> refused, decode_refusals(fields));
  json::Value body = json::Value::object();
  body.set("refusals", box::refusals_value(refused));
  co_return Answer::json(200, body);
}

// A file's first bytes; empty where it cannot be read.
io::Async<Result<std::string>> read_table(std::shared_ptr<Served> sandbox, std::string path) {
  proto::Fields fields;
  fields.put_u8(Tag::kOperation, static_cast<std::uint8_t>(proto::FileOperation::kRead))
      .put(Tag::kPath, path)
      .put(Tag::kUser, sandbox->default_user());
  CO_TRY_ASSIGN(fleet::BoxClient * client, sandbox->client());
  CO_TRY_ASSIGN(const auto stream, client->open(proto::Kind::kFile, fields));
  std::string text;
  while (text.size() < kMostTable) {
    CO_TRY_ASSIGN(const BoxStream::Message message, co_await stream->next());
    if (message.kind == Kind::kData) text += message.bytes;
    if (message.kind == Kind::kClose) break;
  }
  co_return text;
}

io::Async<Result<Answer>> ports(Call& call) {
  CO_TRY_ASSIGN(const std::shared_ptr<Served> sandbox, running_sandbox_of(call));
  std::vector<ListeningPort> found;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    CO_TRY_ASSIGN(const std::string table, co_await read_table(sandbox, path));
    std::ranges::move(listening_ports(table), std::back_inserter(found));
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  json::Value all = json::Value::array();
  for (const ListeningPort& one : found) {
    json::Value entry = json::Value::object();
    entry.set("port", one.port);
    entry.set("address", one.address);
    if (!call.backend.domain.empty())
      entry.set("host",
                std::to_string(one.port) + "-" + sandbox->view().id + "." + call.backend.domain);
    all.push(std::move(entry));
  }
  json::Value body = json::Value::object();
  body.set("ports", std::move(all));
  co_return Answer::json(200, body);
}

constexpr Route kRoutes[] = {
    {"GET", "/v1/sandboxes/{id}/usage", usage},
    {"GET", "/v1/sandboxes/{id}/limits", limits},
    {"GET", "/v1/sandboxes/{id}/verdicts", verdicts},
    {"GET", "/v1/sandboxes/{id}/refusals", refusals},
    {"GET", "/v1/sandboxes/{id}/ports", ports},
};

}  // namespace

std::span<const Route> fact_routes() {
  return kRoutes;
}

}  // namespace caisson::api::v1
