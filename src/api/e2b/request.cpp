#include "api/e2b/request.h"

#include "api/e2b/path.h"
#include "base/encoding.h"

namespace caisson::api::e2b {

using fleet::BoxStream;
using proto::FieldReader;
using proto::Tag;

namespace {

Error invalid_user(std::string_view name) {
  return Error(Code::kUnauthenticated, "invalid username: '" + std::string(name) + "'");
}

// What one call's EVENTs may hold together, and what keeping one costs beside its bytes.
constexpr std::size_t kMostBytes = 16u << 20;
constexpr std::size_t kEventCost = 64;

Error too_late() {
  return Error(Code::kDeadlineExceeded, "the time that the request allowed is over");
}

}  // namespace

Result<std::string> user_of(const Request& request) {
  const auto header = request.header("Authorization");
  if (!header.has_value()) return request.sandbox->default_user();
  constexpr std::string_view kBasic = "Basic ";
  const std::optional<std::string> pair =
      header->starts_with(kBasic) ? base64_decode(header->substr(kBasic.size())) : std::nullopt;
  if (!pair.has_value() || pair->find(':') == std::string::npos) {
    return fail(
        Error(Code::kUnauthenticated, "Authorization: allowed is Basic with base64 of \"USER:\""));
  }
  std::string name = pair->substr(0, pair->find(':'));
  return name.empty() ? request.sandbox->default_user() : name;
}

Status check_user_name(std::string_view name) {
  if (name.empty() || name.find(':') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos ||
      name.find_first_not_of("0123456789") == std::string_view::npos) {
    return fail(invalid_user(name));
  }
  return {};
}

io::Async<Result<Account>> look_up(const Request& request, std::string name) {
  CO_TRY(check_user_name(name));
  proto::Fields fields;
  fields.put_u8(Tag::kOperation, static_cast<std::uint8_t>(proto::FileOperation::kLookupUser))
      .put(Tag::kUserName, name);
  auto events = co_await call_guest(request, proto::Kind::kFile, std::move(fields));
  if (!events.has_value()) {
    const Code code = events.error().code();
    if (code == Code::kNotFound || code == Code::kInvalidArgument)
      co_return fail(invalid_user(name));
    co_return fail(std::move(events).error());
  }
  if (events->empty()) co_return fail(Error::internal("the guest told nothing of a user"));
  auto event = FieldReader::parse(events->front());
  if (!event.has_value()) co_return fail(std::move(event).error());
  if (!event->has(Tag::kUserName)) co_return fail(invalid_user(name));
  const auto uid = event->number(Tag::kUid), gid = event->number(Tag::kGid);
  const auto home = event->text(Tag::kHome);
  if (!uid.has_value() || !gid.has_value() || !home.has_value())
    co_return fail(Error::internal("the guest told too little of a user"));
  Account account;
  account.name = std::string(*event->text(Tag::kUserName));
  account.uid = static_cast<std::uint32_t>(*uid);
  account.gid = static_cast<std::uint32_t>(*gid);
  account.home = home->starts_with('/') ? std::string(*home) : "/";
  co_return account;
}

io::Async<Result<Account>> account_of(const Request& request) {
  CO_TRY_ASSIGN(std::string name, user_of(request));
  co_return co_await look_up(request, std::move(name));
}

Result<std::string> path_for(const Request& request, const Account& account,
                             std::string_view given) {
  return resolve_path(given, {account.home, request.sandbox->default_workdir()});
}

proto::Fields file_fields(proto::FileOperation operation, std::string_view path) {
  proto::Fields fields;
  fields.put_u8(Tag::kOperation, static_cast<std::uint8_t>(operation))
      .put(Tag::kPath, path)
      .put_u8(Tag::kPrivileges, 1);
  return fields;
}

void put_owner(proto::Fields& fields, const Account& account) {
  fields.put_u32(Tag::kUid, account.uid).put_u32(Tag::kGid, account.gid);
}

Result<std::unique_ptr<BoxStream>> open_stream(const Request& request, proto::Kind kind,
                                               const proto::Fields& fields) {
  const std::size_t most = kind == proto::Kind::kExec ? proto::kMaxOpen : proto::kMaxPayload;
  if (fields.bytes().size() > most) {
    return fail(Error::invalid("the request has " + std::to_string(fields.bytes().size()) +
                               " bytes; allowed are " + std::to_string(most)));
  }
  TRY_ASSIGN(fleet::BoxClient * client, request.sandbox->client());
  return client->open(kind, fields);
}

io::Async<Result<BoxStream::Message>> next_message(const Request& request, BoxStream& stream) {
  const auto until = request.deadline.value_or(io::Clock::time_point::max());
  CO_TRY_ASSIGN(std::optional<BoxStream::Message> message, co_await stream.next_until(until));
  if (!message.has_value()) co_return fail(too_late());
  co_return std::move(*message);
}

Status status_of_close(std::string_view payload) {
  TRY_ASSIGN(const FieldReader fields, FieldReader::parse(payload));
  std::optional<Error> error = fields.error();
  if (!error.has_value()) return {};
  // A failed system call of the guest's is one again here: what is done about it depends on its
  // number. Its sentence ends with the number's own.
  if (const auto number = fields.number_or_none(Tag::kErrorErrno); number.has_value()) {
    const std::string& sentence = error->message();
    Error again =
        Error::syscall(sentence.substr(0, sentence.rfind(": ")), static_cast<int>(*number & 0xfff));
    if (again.message() == sentence) return fail(std::move(again));
  }
  return fail(std::move(*error));
}

io::Async<Result<std::vector<std::string>>> call_guest(const Request& request, proto::Kind kind,
                                                       proto::Fields fields, std::size_t most) {
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream, open_stream(request, kind, fields));
  std::vector<std::string> events;
  std::size_t bytes = 0;
  for (;;) {
    CO_TRY_ASSIGN(BoxStream::Message message, co_await next_message(request, *stream));
    if (message.kind == BoxStream::Message::Kind::kEvent) {
      bytes += message.bytes.size() + kEventCost;
      if (events.size() >= most || bytes > kMostBytes) {
        co_return fail(Error::exhausted("more than " + std::to_string(most) +
                                        " entries or 16 MiB of them; ask for less at once"));
      }
      events.push_back(std::move(message.bytes));
    } else if (message.kind == BoxStream::Message::Kind::kClose) {
      CO_TRY(status_of_close(message.bytes));
      co_return events;
    }
  }
}

http::Headers answer_headers(std::string_view content_type) {
  http::Headers headers;
  if (!content_type.empty()) headers.add("Content-Type", content_type);
  headers.add("Access-Control-Allow-Origin", "*");
  headers.add("Access-Control-Expose-Headers", "*");
  return headers;
}

io::Async<Status> answer_json(http::Exchange& exchange, int status, const json::Value& body) {
  http::ResponseHead head;
  head.status = status;
  head.headers = answer_headers("application/json");
  co_return co_await exchange.respond(std::move(head), json::serialize(body));
}

io::Async<Status> answer_error(http::Exchange& exchange, int status, std::string_view message) {
  json::Value body = json::Value::object();
  body.set("code", status).set("message", message);
  co_return co_await answer_json(exchange, status, body);
}

}  // namespace caisson::api::e2b
