// Files of a sandbox: all of it is done by its guest, as the user whom the call names; bytes go
// through in pieces.
#include <cerrno>

#include "api/body.h"
#include "api/e2b/path.h"
#include "api/sandbox_fields.h"
#include "api/v1/routes.h"
#include "api/v1/sandbox.h"
#include "base/encoding.h"
#include "base/time_text.h"
#include "policy/complain.h"

namespace caisson::api::v1 {
namespace {

using e2b::Request;
using fleet::BoxStream;
using fleet::Served;
using proto::FieldReader;
using proto::FileOperation;
using proto::FileType;
using proto::Tag;
using Kind = BoxStream::Message::Kind;

constexpr std::size_t kMostEntries = 50'000;
constexpr std::int64_t kMostDepth = 64;
constexpr std::int64_t kMostMode = 0777;
constexpr std::size_t kPiece = 64 * 1024;
constexpr std::size_t kMostUser = 256;
constexpr int kNoRoom = 507;
constexpr std::int64_t kMostNanoseconds = 7'258'118'400'000'000'000;  // 2200-01-01

// A failure of the guest's as the client's own: a failed call there is none of ours.
Result<Answer> refused(const Error& error) {
  const int number = error.error_number();
  if (number == ENOSPC || number == EDQUOT)
    return error_answer(kNoRoom, "no space left in the sandbox: " + error.message());
  return fail(Error(error.code(), error.message()));
}

Result<std::string> checked_path(std::string_view key, std::string_view path) {
  if (!path.starts_with('/'))
    return fail(policy::wrong(key, path.empty() ? "nothing" : policy::quote(path),
                              "an absolute path inside the sandbox"));
  auto resolved = e2b::resolve_path(path, {.home = "/", .workdir = "/"});
  if (!resolved.has_value()) return fail(std::move(resolved).error().with(key));
  return resolved;
}

// One operation at the path of the query.
struct Place {
  std::shared_ptr<Served> sandbox;
  std::string path;
  proto::Fields fields;
};
Result<Place> place_of(const Call& call, FileOperation operation) {
  Place place;
  TRY_ASSIGN(place.sandbox, running_sandbox_of(call));
  TRY_ASSIGN(place.path, checked_path("path", call.query("path").value_or("")));
  const std::string user(call.query("user").value_or(""));
  if (user.size() > kMostUser)
    return fail(policy::wrong("user", std::to_string(user.size()) + " bytes",
                              "at most " + std::to_string(kMostUser)));
  place.fields.put_u8(Tag::kOperation, static_cast<std::uint8_t>(operation))
      .put(Tag::kPath, place.path)
      .put(Tag::kUser, user.empty() ? place.sandbox->default_user() : user);
  return place;
}

io::Async<Result<std::vector<std::string>>> run(const Call& call, Place place,
                                                std::size_t most = 16) {
  const Request request{.exchange = call.exchange, .sandbox = place.sandbox};
  co_return co_await e2b::call_guest(request, proto::Kind::kFile, std::move(place.fields), most);
}

// Of an operation whose success is all that there is to say.
io::Async<Result<Answer>> run_to_nothing(const Call& call, Place place) {
  const auto done = co_await run(call, std::move(place));
  if (!done.has_value()) co_return refused(done.error());
  co_return Answer::empty(204);
}

constexpr std::string_view kTypeNames[] = {"",     "file",   "directory",        "link",
                                           "pipe", "socket", "character_device", "block_device"};

// What the guest tells of a file. Error: too little.
Result<json::Value> entry_of(const FieldReader& event, std::string_view name) {
  const auto type = event.number_or_none(Tag::kFileType);
  const auto mode = event.number_or_none(Tag::kMode), size = event.number_or_none(Tag::kSize);
  if (!type.has_value() || *type < 1 || *type >= std::size(kTypeNames) || !mode.has_value() ||
      !size.has_value())
    return fail(Error::internal("the guest told too little of a file"));
  json::Value entry = json::Value::object();
  // A name is bytes; JSON is text.
  entry.set(is_utf8(name) ? "name" : "name_base64",
            is_utf8(name) ? std::string(name) : base64_encode(name));
  entry.set("type", kTypeNames[*type]);
  entry.set("mode", *mode & 07777);
  entry.set("uid", event.number_or_none(Tag::kUid).value_or(0));
  entry.set("gid", event.number_or_none(Tag::kGid).value_or(0));
  entry.set("size", *size);
  if (const auto time = event.number_or_none(Tag::kMtimeNs); time.has_value())
    entry.set("modified_ns", static_cast<std::int64_t>(*time));
  if (const auto target = event.text(Tag::kTarget); target.has_value() && is_utf8(*target))
    entry.set("target", *target);
  return entry;
}

io::Async<Result<Answer>> stat(Call& call) {
  CO_TRY_ASSIGN(const Answered follow, query_truth(call, "follow"));
  CO_TRY_ASSIGN(Place place, place_of(call, FileOperation::kStat));
  place.fields.put_u8(Tag::kFollow, follow == Answered::kYes ? 1 : 0);
  const std::string path = place.path;
  const auto events = co_await run(call, std::move(place));
  if (!events.has_value()) co_return refused(events.error());
  if (events->empty()) co_return fail(Error::internal("the guest told nothing of a file"));
  CO_TRY_ASSIGN(const FieldReader event, FieldReader::parse(events->front()));
  CO_TRY_ASSIGN(const json::Value entry, entry_of(event, e2b::base_name(path)));
  co_return Answer::json(200, entry);
}

io::Async<Result<Answer>> list(Call& call) {
  CO_TRY_ASSIGN(const auto depth, query_number(call, "depth", 1, kMostDepth));
  CO_TRY_ASSIGN(Place place, place_of(call, FileOperation::kList));
  place.fields.put_u32(Tag::kDepth, static_cast<std::uint32_t>(depth.value_or(1)));
  const auto events = co_await run(call, std::move(place), kMostEntries);
  if (!events.has_value()) co_return refused(events.error());
  json::Value entries = json::Value::array();
  for (const std::string& bytes : *events) {
    CO_TRY_ASSIGN(const FieldReader event, FieldReader::parse(bytes));
    CO_TRY_ASSIGN(const std::string_view name, event.text(Tag::kName));
    CO_TRY_ASSIGN(json::Value entry, entry_of(event, name));
    entries.push(std::move(entry));
  }
  json::Value body = json::Value::object();
  body.set("entries", std::move(entries));
  co_return Answer::json(200, body);
}

// ---- bytes

io::Async<Result<Answer>> read(Call& call) {
  CO_TRY_ASSIGN(const Place place, place_of(call, FileOperation::kRead));
  CO_TRY_ASSIGN(fleet::BoxClient * client, place.sandbox->client());
  CO_TRY_ASSIGN(const auto stream, client->open(proto::Kind::kFile, place.fields));
  bool begun = false;
  for (;;) {
    CO_TRY_ASSIGN(const BoxStream::Message message, co_await stream->next());
    if (message.kind == Kind::kClose) {
      const Status status = e2b::status_of_close(message.bytes);
      if (!status.has_value() && begun) co_return fail(status.error());  // cuts the answer off
      if (!status.has_value()) co_return refused(status.error());
      if (!begun) co_return fail(Error::internal("the guest told nothing of a file"));
      co_await call.exchange.end();
      co_return Answer::already_sent();
    }
    if (message.kind == Kind::kEvent && !begun) {
      // Chunked: a file may grow, and those of /proc say that they are empty and are not.
      http::ResponseHead head;
      head.headers.add("Content-Type", "application/octet-stream");
      CO_TRY(co_await call.exchange.begin(std::move(head)));
      begun = true;
    }
    if (message.kind == Kind::kData && begun && !message.bytes.empty())
      CO_TRY(co_await call.exchange.write(message.bytes));
  }
}

// What the guest says when it takes nothing more.
io::Async<Status> verdict(BoxStream& stream) {
  for (;;) {
    CO_TRY_ASSIGN(const BoxStream::Message message, co_await stream.next());
    if (message.kind == Kind::kClose) co_return e2b::status_of_close(message.bytes);
  }
}

Result<Place> parse_write(const Call& call) {
  TRY_ASSIGN(const auto mode, query_number(call, "mode", 0, kMostMode));
  TRY_ASSIGN(const auto modified,
             query_number(call, "modified_ns", -kMostNanoseconds, kMostNanoseconds));
  TRY_ASSIGN(const Answered parents, query_truth(call, "parents"));
  TRY_ASSIGN(const Answered exclusive, query_truth(call, "exclusive"));
  TRY_ASSIGN(Place place, place_of(call, FileOperation::kWrite));
  if (mode.has_value()) place.fields.put_u32(Tag::kMode, static_cast<std::uint32_t>(*mode));
  if (modified.has_value())
    place.fields.put_u64(Tag::kMtimeNs, static_cast<std::uint64_t>(*modified));
  if (parents == Answered::kYes) place.fields.put_u8(Tag::kRecursive, 1);
  if (exclusive == Answered::kYes) place.fields.put_u8(Tag::kExclusive, 1);
  return place;
}

io::Async<Result<Answer>> write(Call& call) {
  CO_TRY_ASSIGN(const Place place, parse_write(call));
  CO_TRY_ASSIGN(fleet::BoxClient * client, place.sandbox->client());
  CO_TRY_ASSIGN(const auto stream, client->open(proto::Kind::kFile, place.fields));
  for (;;) {
    // Where it breaks off, what was written stays, as with any write that does.
    CO_TRY_ASSIGN(std::string piece, co_await call.exchange.read_some(kPiece));
    if (piece.empty()) break;
    const Status written = co_await stream->write(std::move(piece));
    if (!written.has_value()) break;
  }
  stream->finish();
  const Status done = co_await verdict(*stream);
  if (!done.has_value()) co_return refused(done.error());
  co_return Answer::empty(204);
}

// ---- names

io::Async<Result<Answer>> remove(Call& call) {
  CO_TRY_ASSIGN(const Answered recursive, query_truth(call, "recursive"));
  CO_TRY_ASSIGN(Place place, place_of(call, FileOperation::kRemove));
  if (recursive == Answered::kYes) place.fields.put_u8(Tag::kRecursive, 1);
  co_return co_await run_to_nothing(call, std::move(place));
}

io::Async<Result<Answer>> make_directory(Call& call) {
  CO_TRY_ASSIGN(const auto mode, query_number(call, "mode", 0, kMostMode));
  CO_TRY_ASSIGN(const Answered parents, query_truth(call, "parents"));
  CO_TRY_ASSIGN(Place place, place_of(call, FileOperation::kMakeDir));
  if (mode.has_value()) place.fields.put_u32(Tag::kMode, static_cast<std::uint32_t>(*mode));
  if (parents == Answered::kYes) place.fields.put_u8(Tag::kRecursive, 1);
  co_return co_await run_to_nothing(call, std::move(place));
}

// The body's text of that key, which must be there.
Result<std::string> wanted_text(const json::Value& body, std::string_view key) {
  const Object object(body);
  TRY(object.only({key}));
  TRY_ASSIGN(auto text, object.text(key, e2b::kMaxPath));
  if (text.value_or("").empty() || text->contains('\0'))
    return fail(policy::wrong(key, "nothing", "a path without zero bytes"));
  return std::move(*text);
}

io::Async<Result<Answer>> make_link(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const std::string target, wanted_text(body, "target"));
  CO_TRY_ASSIGN(Place place, place_of(call, FileOperation::kSymlink));
  place.fields.put(Tag::kTarget, target);
  co_return co_await run_to_nothing(call, std::move(place));
}

io::Async<Result<Answer>> move(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const std::string given, wanted_text(body, "to"));
  CO_TRY_ASSIGN(const std::string target, checked_path("to", given));
  CO_TRY_ASSIGN(Place place, place_of(call, FileOperation::kRename));
  place.fields.put(Tag::kTarget, target);
  co_return co_await run_to_nothing(call, std::move(place));
}

// One attribute after the other: what was changed before a failure stays.
io::Async<Result<Answer>> change(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kRequired));
  const Object body(value);
  CO_TRY(body.only({"mode", "modified_ns"}));
  CO_TRY_ASSIGN(const auto mode, body.integer("mode", 0, kMostMode));
  CO_TRY_ASSIGN(const auto modified,
                body.integer("modified_ns", -kMostNanoseconds, kMostNanoseconds));
  if (!mode.has_value() && !modified.has_value())
    co_return fail(policy::wrong("the body", "nothing to change", "mode, modified_ns or both"));
  if (mode.has_value()) {
    CO_TRY_ASSIGN(Place place, place_of(call, FileOperation::kChmod));
    place.fields.put_u32(Tag::kMode, static_cast<std::uint32_t>(*mode));
    const auto done = co_await run(call, std::move(place));
    if (!done.has_value()) co_return refused(done.error());
  }
  if (!modified.has_value()) co_return Answer::empty(204);
  CO_TRY_ASSIGN(Place place, place_of(call, FileOperation::kSetTimes));
  place.fields.put_u64(Tag::kMtimeNs, static_cast<std::uint64_t>(*modified));
  co_return co_await run_to_nothing(call, std::move(place));
}

constexpr Route kRoutes[] = {
    {"GET", "/v1/sandboxes/{id}/files", read},
    {"PUT", "/v1/sandboxes/{id}/files", write},
    {"PATCH", "/v1/sandboxes/{id}/files", change},
    {"DELETE", "/v1/sandboxes/{id}/files", remove},
    {"GET", "/v1/sandboxes/{id}/files/stat", stat},
    {"GET", "/v1/sandboxes/{id}/files/list", list},
    {"PUT", "/v1/sandboxes/{id}/files/directory", make_directory},
    {"PUT", "/v1/sandboxes/{id}/files/link", make_link},
    {"POST", "/v1/sandboxes/{id}/files/move", move},
};

}  // namespace

std::span<const Route> file_routes() {
  return kRoutes;
}

}  // namespace caisson::api::v1
