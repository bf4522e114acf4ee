#include "api/e2b/watch.h"

#include <algorithm>
#include <utility>

#include "api/e2b/entry.h"
#include "api/e2b/messages.h"
#include "api/e2b/methods.h"
#include "base/secret.h"

namespace caisson::api::e2b {

using fleet::BoxStream;
using json::Value;
using proto::FieldReader;
using proto::Tag;
using proto::WatchEvent;

namespace {

constexpr std::size_t kIdLength = 20;
// Of one answer; what is left comes with the next.
constexpr std::size_t kMostEvents = 4096;

Value change(std::string_view name, EventType type) {
  Value event = Value::object();
  event.set("name", name).set("type", static_cast<std::uint8_t>(type));
  return event;
}

std::string_view text_or_empty(const FieldReader& fields, Tag tag) {
  return fields.text(tag).value_or(std::string_view());
}

// Opens the guest's watch and waits until it is in place.
io::Async<Result<std::unique_ptr<BoxStream>>> open_watch(const Request& request,
                                                         const Value& message) {
  CO_TRY_ASSIGN(const Account account, co_await account_of(request));
  CO_TRY_ASSIGN(const std::string path, path_for(request, account, text_of(message, "path")));
  proto::Fields fields;
  fields.put(Tag::kPath, path)
      .put_u8(Tag::kPrivileges, 1)
      .put_u8(Tag::kRecursive, truth_of(message, "recursive") ? 1 : 0)
      .put_u8(Tag::kAllowNetworkMounts, truth_of(message, "allowNetworkMounts") ? 1 : 0);
  if (truth_of(message, "includeEntry")) want_details(fields);
  CO_TRY_ASSIGN(std::unique_ptr<BoxStream> stream,
                open_stream(request, proto::Kind::kWatch, fields));
  CO_TRY_ASSIGN(const BoxStream::Message first, co_await next_message(request, *stream));
  if (first.kind == BoxStream::Message::Kind::kClose) CO_TRY(status_of_close(first.bytes));
  if (first.kind != BoxStream::Message::Kind::kEvent)
    co_return fail(Error::internal("the guest's watch did not begin"));
  co_return stream;
}

Entries entries_of(const Value& message) {
  return truth_of(message, "includeEntry") ? Entries::kInclude : Entries::kLeaveOut;
}

// What one message of a watch means. nullopt: it has ended well, with its directory.
Result<std::optional<std::vector<Value>>> changes_of(const BoxStream::Message& message,
                                                     Entries entries) {
  if (message.kind == BoxStream::Message::Kind::kClose) {
    TRY(status_of_close(message.bytes));
    return std::nullopt;
  }
  if (message.kind != BoxStream::Message::Kind::kEvent) return std::vector<Value>();
  TRY_ASSIGN(const FieldReader event, FieldReader::parse(message.bytes));
  TRY_ASSIGN(std::vector<Value> changes, watched_changes(event, entries));
  return changes;
}

io::Async<Status> watch_dir(const Request& request, const Value& message, RpcAnswer& answer) {
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream, co_await open_watch(request, message));
  Value start = Value::object();
  start.set("start", Value::object());
  CO_TRY(co_await answer.send(start));
  const Entries entries = entries_of(message);
  const auto ping = ping_interval(request);
  for (;;) {
    const auto quiet_until = io::Clock::now() + ping;
    const auto until = std::min(quiet_until, request.deadline.value_or(quiet_until));
    CO_TRY_ASSIGN(const std::optional<BoxStream::Message> next, co_await stream->next_until(until));
    if (!next.has_value()) {
      if (request.deadline.has_value() && io::Clock::now() >= *request.deadline) {
        co_return fail(Error(Code::kDeadlineExceeded, "the watch's time is over"));
      }
      Value keepalive = Value::object();
      keepalive.set("keepalive", Value::object());
      CO_TRY(co_await answer.send(keepalive));
      continue;
    }
    CO_TRY_ASSIGN(std::optional<std::vector<Value>> changes, changes_of(*next, entries));
    if (!changes.has_value()) co_return Status();
    for (Value& one : *changes) {
      Value event = Value::object();
      event.set("filesystem", std::move(one));
      CO_TRY(co_await answer.send(event));
    }
  }
}

io::Async<Result<Value>> create_watcher(const Request& request, const Value& message) {
  CO_TRY(request.watchers->check_room(request.sandbox));
  Watcher watcher;
  CO_TRY_ASSIGN(watcher.stream, co_await open_watch(request, message));
  watcher.sandbox = request.sandbox;
  watcher.entries = entries_of(message);
  // Again, since others may have come meanwhile.
  CO_TRY(request.watchers->check_room(request.sandbox));
  Value response = Value::object();
  response.set("watcherId", request.watchers->add(std::move(watcher)));
  co_return response;
}

Result<std::shared_ptr<Watcher>> watcher_of(const Request& request, const Value& message) {
  const std::string_view id = text_of(message, "watcherId");
  std::shared_ptr<Watcher> watcher = request.watchers->find(*request.sandbox, id);
  if (watcher == nullptr)
    return fail(Error::not_found("watcher with id " + std::string(id) + " not found"));
  return watcher;
}

io::Async<Result<Value>> watcher_events(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(const std::shared_ptr<Watcher> watcher, watcher_of(request, message));
  Value::Array events;
  while (events.size() < kMostEvents) {
    auto next = co_await watcher->stream->next_until(io::Clock::now());
    // After the watch's end what came before has still to be told.
    if (!next.has_value() && events.empty()) co_return fail(std::move(next).error());
    if (!next.has_value() || !next->has_value()) break;
    auto changes = changes_of(**next, watcher->entries);
    if (!changes.has_value()) co_return fail(std::move(changes).error());
    if (!changes->has_value()) break;
    for (Value& one : **changes) events.push_back(std::move(one));
  }
  Value response = Value::object();
  response.set("events", Value(std::move(events)));
  co_return response;
}

io::Async<Result<Value>> remove_watcher(const Request& request, const Value& message) {
  CO_TRY(watcher_of(request, message));
  request.watchers->remove(text_of(message, "watcherId"));
  co_return Value::object();
}

const StreamMethod kStreams[] = {
    {"/filesystem.Filesystem/WatchDir", kWatchRequest, kWatchStream, watch_dir},
};
const UnaryMethod kMethods[] = {
    {"/filesystem.Filesystem/CreateWatcher", kWatchRequest, kWatcherId, create_watcher},
    {"/filesystem.Filesystem/GetWatcherEvents", kWatcherId, kWatcherEvents, watcher_events},
    {"/filesystem.Filesystem/RemoveWatcher", kWatcherId, kEmpty, remove_watcher},
};

}  // namespace

Result<std::vector<Value>> watched_changes(const FieldReader& event, Entries entries) {
  std::vector<Value> changes;
  const std::string_view name = text_or_empty(event, Tag::kName);
  const auto add = [&](std::string_view of, std::string_view path, EventType type) {
    Value one = change(of, type);
    if (entries == Entries::kInclude && event.has(Tag::kMode)) {
      if (Result<Value> entry = entry_info(event, path)) one.set("entry", std::move(*entry));
    }
    changes.push_back(std::move(one));
  };
  const auto kind = static_cast<WatchEvent>(event.number_or_none(Tag::kWatchEvent).value_or(0));
  if (kind == WatchEvent::kOverflow) {
    return fail(Error::exhausted(
        "changes came faster than they could be told, or there are too many directories to watch; "
        "some were missed"));
  }
  // Of the directory itself clients hear only that the watch has ended.
  if (name.empty()) return changes;
  const std::string_view path = text_or_empty(event, Tag::kPath);
  switch (kind) {
    case WatchEvent::kCreated:
      add(name, path, EventType::kCreate);
      break;
    case WatchEvent::kModified:
      add(name, path, EventType::kWrite);
      break;
    case WatchEvent::kAttributes:
      add(name, path, EventType::kChmod);
      break;
    case WatchEvent::kRemoved:
      changes.push_back(change(name, EventType::kRemove));
      break;
    case WatchEvent::kRenamed:
      changes.push_back(change(name, EventType::kRename));
      if (event.has(Tag::kTargetName))
        add(text_or_empty(event, Tag::kTargetName), text_or_empty(event, Tag::kTarget),
            EventType::kCreate);
      break;
    default:
      break;
  }
  return changes;
}

void Watchers::forget_ended() {
  std::erase_if(all_, [](const auto& entry) {
    const auto sandbox = entry.second->sandbox.lock();
    return sandbox == nullptr || sandbox->ended();
  });
}

Status Watchers::check_room(const std::shared_ptr<fleet::Served>& sandbox) {
  forget_ended();
  const auto count = std::ranges::count_if(
      all_, [&](const auto& entry) { return entry.second->sandbox.lock() == sandbox; });
  if (static_cast<std::size_t>(count) < kMostEach) return {};
  return fail(Error::exhausted("this sandbox has " + std::to_string(count) +
                               " watchers; remove one first"));
}

std::string Watchers::add(Watcher watcher) {
  std::string id = random_id(kIdLength);
  all_.emplace(id, std::make_shared<Watcher>(std::move(watcher)));
  return id;
}

std::shared_ptr<Watcher> Watchers::find(const fleet::Served& sandbox, std::string_view id) {
  forget_ended();
  const auto found = all_.find(id);
  if (found == all_.end() || found->second->sandbox.lock().get() != &sandbox) return nullptr;
  return found->second;
}

void Watchers::remove(std::string_view id) {
  if (const auto found = all_.find(id); found != all_.end()) all_.erase(found);
}

std::span<const StreamMethod> filesystem_streams() {
  return kStreams;
}

std::span<const UnaryMethod> watcher_methods() {
  return kMethods;
}

}  // namespace caisson::api::e2b
