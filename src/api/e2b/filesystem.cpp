// filesystem.Filesystem: what there is, directories, moving and removing. Watching is in watch.cpp.
#include "api/e2b/entry.h"
#include "api/e2b/messages.h"
#include "api/e2b/methods.h"
#include "api/e2b/path.h"

namespace caisson::api::e2b {

using json::Value;
using proto::FieldReader;
using proto::FileOperation;
using proto::Tag;

namespace {

// A listing is answered as one message; this is some 15 MB of it.
constexpr std::size_t kMostEntries = 50'000;

// The user who asks, and one path of theirs.
struct Place {
  Account account;
  std::string path;
};

io::Async<Result<Place>> place_of(const Request& request, const Value& message,
                                  std::string_view field) {
  CO_TRY_ASSIGN(Account account, co_await account_of(request));
  CO_TRY_ASSIGN(std::string path, path_for(request, account, text_of(message, field)));
  co_return Place{std::move(account), std::move(path)};
}

io::Async<Result<Value>> entry_response(const Request& request, std::string path) {
  proto::Fields fields = file_fields(FileOperation::kStat, path);
  fields.put_u8(Tag::kFollow, 0);
  want_details(fields);
  CO_TRY_ASSIGN(const std::vector<std::string> events,
                co_await call_guest(request, proto::Kind::kFile, std::move(fields)));
  if (events.empty()) co_return fail(Error::internal("the guest told nothing of " + path));
  CO_TRY_ASSIGN(const FieldReader event, FieldReader::parse(events.front()));
  CO_TRY_ASSIGN(Value entry, entry_info(event, path));
  Value response = Value::object();
  response.set("entry", std::move(entry));
  co_return response;
}

io::Async<Result<Value>> stat(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(Place place, co_await place_of(request, message, "path"));
  co_return co_await entry_response(request, std::move(place.path));
}

io::Async<Result<Value>> make_dir(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(Place place, co_await place_of(request, message, "path"));
  proto::Fields fields = file_fields(FileOperation::kMakeDir, place.path);
  fields.put_u8(Tag::kRecursive, 1).put_u8(Tag::kExclusive, 1);
  put_owner(fields, place.account);
  CO_TRY(co_await call_guest(request, proto::Kind::kFile, std::move(fields)));
  co_return co_await entry_response(request, std::move(place.path));
}

io::Async<Result<Value>> move(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(Place place, co_await place_of(request, message, "source"));
  CO_TRY_ASSIGN(std::string target,
                path_for(request, place.account, text_of(message, "destination")));
  proto::Fields fields = file_fields(FileOperation::kRename, place.path);
  fields.put(Tag::kTarget, target).put_u8(Tag::kRecursive, 1);
  put_owner(fields, place.account);
  CO_TRY(co_await call_guest(request, proto::Kind::kFile, std::move(fields)));
  co_return co_await entry_response(request, std::move(target));
}

io::Async<Result<Value>> remove(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(const Place place, co_await place_of(request, message, "path"));
  proto::Fields fields = file_fields(FileOperation::kRemove, place.path);
  fields.put_u8(Tag::kRecursive, 1);
  put_owner(fields, place.account);  // so that no planted link leads root's rights astray
  const auto removed = co_await call_guest(request, proto::Kind::kFile, std::move(fields));
  // What is not there needs no removing.
  if (!removed.has_value() && removed.error().code() != Code::kNotFound)
    co_return fail(removed.error());
  co_return Value::object();
}

io::Async<Result<Value>> list_dir(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(const Place place, co_await place_of(request, message, "path"));
  const std::int64_t depth = number_of(message, "depth");
  proto::Fields fields = file_fields(FileOperation::kList, place.path);
  fields.put_u32(Tag::kDepth, depth == 0 ? 1 : static_cast<std::uint32_t>(depth));
  want_details(fields);
  CO_TRY_ASSIGN(std::vector<std::string> events,
                co_await call_guest(request, proto::Kind::kFile, std::move(fields), kMostEntries));
  Value::Array entries;
  entries.reserve(events.size());
  const std::string parent = place.path == "/" ? "" : place.path;
  for (std::string& bytes : events) {
    CO_TRY_ASSIGN(const FieldReader event, FieldReader::parse(bytes));
    CO_TRY_ASSIGN(const std::string_view name, event.text(Tag::kName));
    CO_TRY_ASSIGN(Value entry, entry_info(event, parent + "/" + std::string(name)));
    entries.push_back(std::move(entry));
    std::string().swap(bytes);  // so that a long listing is not held twice
  }
  Value response = Value::object();
  response.set("entries", Value(std::move(entries)));
  co_return response;
}

const UnaryMethod kMethods[] = {
    {"/filesystem.Filesystem/Stat", kPathRequest, kEntryResponse, stat},
    {"/filesystem.Filesystem/MakeDir", kPathRequest, kEntryResponse, make_dir},
    {"/filesystem.Filesystem/Move", kMoveRequest, kEntryResponse, move},
    {"/filesystem.Filesystem/ListDir", kListDirRequest, kListDirResponse, list_dir},
    {"/filesystem.Filesystem/Remove", kPathRequest, kEmpty, remove},
};

}  // namespace

std::span<const UnaryMethod> filesystem_methods() {
  return kMethods;
}

}  // namespace caisson::api::e2b
