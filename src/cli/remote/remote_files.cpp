#include "cli/remote/remote_files.h"

#include <algorithm>
#include <array>

#include "base/encoding.h"
#include "cli/remote/waiting.h"

namespace caisson::cli {
namespace {

using box::InsideEntry;

constexpr std::size_t kPiece = 64 * 1024;
// As deep as a copy goes.
constexpr const char* kDepth = "64";

// In the order of proto::FileType, which begins with 1.
constexpr std::array<std::string_view, 7> kTypes = {
    "file", "directory", "link", "pipe", "socket", "character_device", "block_device"};

Error no_entry(std::string_view key) {
  return Error(Code::kDataLoss,
               "the server tells of a file whose \"" + std::string(key) + "\" is missing or wrong");
}

const std::string* text_of(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  return found == nullptr ? nullptr : found->as_string();
}

Result<std::int64_t> number_of(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  if (found == nullptr || found->as_integer() == nullptr) return fail(no_entry(key));
  return *found->as_integer();
}

json::Value one(std::string_view key, json::Value value) {
  json::Value object = json::Value::object();
  object.set(key, std::move(value));
  return object;
}

Status status_of(const Result<json::Value>& answer) {
  if (!answer.has_value()) return fail(answer.error());
  return {};
}

}  // namespace

Result<InsideEntry> parse_entry(const json::Value& value) {
  InsideEntry entry;
  if (const std::string* name = text_of(value, "name")) {
    entry.name = *name;
  } else if (const std::string* encoded = text_of(value, "name_base64")) {
    auto bytes = base64_decode(*encoded);
    if (!bytes.has_value()) return fail(no_entry("name_base64"));
    entry.name = std::move(*bytes);
  } else {
    return fail(no_entry("name"));
  }
  const std::string* type = text_of(value, "type");
  const auto found = std::ranges::find(kTypes, type == nullptr ? std::string_view() : *type);
  if (found == kTypes.end()) return fail(no_entry("type"));
  entry.type = static_cast<proto::FileType>(found - kTypes.begin() + 1);
  TRY_ASSIGN(const std::int64_t mode, number_of(value, "mode"));
  TRY_ASSIGN(const std::int64_t size, number_of(value, "size"));
  if (mode < 0 || mode > 07777 || size < 0) return fail(no_entry("mode"));
  entry.all_mode = static_cast<std::uint32_t>(mode);
  entry.mode = entry.all_mode & 0777;
  entry.size = static_cast<std::uint64_t>(size);
  if (const json::Value* time = value.find("modified_ns");
      time != nullptr && time->as_integer() != nullptr)
    entry.modified = static_cast<std::uint64_t>(*time->as_integer());
  if (const std::string* target = text_of(value, "target")) entry.target = *target;
  return entry;
}

std::string RemoteFiles::target(std::string_view below, const std::string& path, Query more) const {
  more.emplace_back("path", path);
  more.emplace_back("user", user_);
  return target_of(sandbox_ + "/files" + std::string(below), more);
}

Result<json::Value> RemoteFiles::call(std::string method, std::string target, json::Value body) {
  return wait(api_.loop(), api_.call(std::move(method), std::move(target), std::move(body)));
}

Result<std::optional<InsideEntry>> RemoteFiles::look(const std::string& path) {
  const auto answer = call("GET", target("/stat", path, {}), nullptr);
  if (!answer.has_value()) {
    if (answer.error().code() == Code::kNotFound) return std::nullopt;
    return fail(answer.error());
  }
  TRY_ASSIGN(InsideEntry entry, parse_entry(*answer));
  return entry;
}

Result<std::vector<InsideEntry>> RemoteFiles::list(const std::string& path,
                                                   std::size_t most_entries) {
  TRY_ASSIGN(const json::Value answer,
             call("GET", target("/list", path, {{"depth", kDepth}}), nullptr));
  const json::Value* entries = answer.find("entries");
  if (entries == nullptr || entries->as_array() == nullptr) return fail(no_entry("entries"));
  if (entries->as_array()->size() > most_entries)
    return fail(Error::exhausted("more than " + std::to_string(most_entries) +
                                 " files, which is more than can be copied"));
  std::vector<InsideEntry> all;
  for (const json::Value& value : *entries->as_array()) {
    TRY_ASSIGN(InsideEntry entry, parse_entry(value));
    all.push_back(std::move(entry));
  }
  return all;
}

io::Async<Result<std::size_t>> RemoteFiles::read_all(
    std::string from, const std::function<Status(std::string_view)>& take) {
  CO_TRY_ASSIGN(Api::Exchange exchange, co_await api_.open("GET", std::move(from), {}));
  CO_TRY(co_await api_.accept(*exchange));
  std::size_t total = 0;
  for (;;) {
    CO_TRY_ASSIGN(const std::string piece, co_await exchange->read_some(kPiece));
    if (piece.empty()) break;
    total += piece.size();
    CO_TRY(take(piece));
  }
  api_.keep(std::move(exchange));
  co_return total;
}

Status RemoteFiles::read(const std::string& path,
                         const std::function<Status(std::string_view)>& take) {
  TRY(wait(api_.loop(), read_all(target("", path, {}), take)));
  return {};
}

Status RemoteFiles::make_directory(const std::string& path, std::uint32_t mode) {
  return status_of(
      call("PUT", target("/directory", path, {{"mode", std::to_string(mode)}, {"parents", "true"}}),
           nullptr));
}

Status RemoteFiles::change_mode(const std::string& path, std::uint32_t mode) {
  return status_of(call("PATCH", target("", path, {}), one("mode", mode)));
}

Status RemoteFiles::symlink(const std::string& path, std::string_view to) {
  return status_of(call("PUT", target("/link", path, {}), one("target", to)));
}

Status RemoteFiles::set_modified(const std::string& path, std::uint64_t modified) {
  const auto done =
      call("PATCH", target("", path, {}), one("modified_ns", static_cast<std::int64_t>(modified)));
  if (!done.has_value() && done.error().code() == Code::kPermissionDenied) return {};
  return status_of(done);
}

io::Async<Result<std::size_t>> RemoteFiles::write_all(std::string to, const Source& source) {
  const http::Framing chunked{.kind = http::Framing::Kind::kChunked};
  CO_TRY_ASSIGN(Api::Exchange exchange, co_await api_.open("PUT", std::move(to), chunked));
  std::size_t total = 0;
  for (;;) {
    CO_TRY_ASSIGN(const std::string piece, source());
    if (piece.empty()) break;
    total += piece.size();
    // A server that refuses it reads no further, and says why.
    const Status written = co_await exchange->write(piece);
    if (!written.has_value()) break;
  }
  const Status ended = co_await exchange->end();
  const Status accepted = co_await api_.accept(*exchange);
  CO_TRY(Status(accepted));
  CO_TRY(Status(ended));
  api_.keep(std::move(exchange));
  co_return total;
}

Status RemoteFiles::write(const std::string& path, std::uint32_t mode, std::uint64_t modified,
                          const Source& source) {
  const std::string to =
      target("", path,
             {{"mode", std::to_string(mode)},
              {"modified_ns", std::to_string(static_cast<std::int64_t>(modified))}});
  TRY(wait(api_.loop(), write_all(to, source)));
  return {};
}

}  // namespace caisson::cli
