#include "box/file_client.h"

#include <algorithm>

#include "box/inside_entry.h"

namespace caisson::box {
namespace {

using proto::Channel;
using proto::FileOperation;
using proto::FrameType;
using proto::Tag;

constexpr std::uint64_t kListDepth = 64;
// A single answer is far quicker even on a slow, busy host.
constexpr int kSilenceMs = 30'000;

}  // namespace

proto::Fields FileClient::fields(FileOperation operation, const std::string& path) const {
  proto::Fields fields;
  fields.put_u8(Tag::kOperation, static_cast<std::uint8_t>(operation));
  fields.put(Tag::kPath, path);
  if (!user_.empty()) fields.put(Tag::kUser, user_);
  if (rights_ == FileRights::kSudo) fields.put_u8(Tag::kPrivileges, 1);
  return fields;
}

Result<std::uint32_t> FileClient::open(const proto::Fields& fields, Request request) {
  TRY(collect(kWindow - 1));
  if (fields.bytes().size() > proto::kMaxPayload)
    return fail(Error::invalid(request.what + ": the names are too long"));
  const std::uint32_t stream = connection_.new_stream();
  connection_.send(stream, FrameType::kOpen, static_cast<std::uint8_t>(proto::Kind::kFile),
                   fields.bytes());
  open_.emplace(stream, std::move(request));
  return stream;
}

Status FileClient::step() {
  // What a command left running inside may stop our workers; that must not stop the caller.
  TRY_ASSIGN(const proto::Frame frame, connection_.wait(kSilenceMs));
  return take(frame);
}

Status FileClient::take(const proto::Frame& frame) {
  const auto found = open_.find(frame.header.stream);
  if (found == open_.end() || found->second.closed) return {};
  Request& request = found->second;
  switch (frame.header.type) {
    case FrameType::kData: {
      TRY(request.credit.received(frame.header.detail, frame.payload.size()));
      if (request.on_data) TRY(request.on_data(frame.payload));
      const std::uint32_t grant =
          request.credit.consumed(frame.header.detail, frame.payload.size());
      if (grant > 0)
        connection_.send(frame.header.stream, FrameType::kCredit, frame.header.detail,
                         credit_payload(grant));
      return {};
    }
    case FrameType::kCredit:
      return request.credit.granted(frame.payload);
    case FrameType::kEvent: {
      TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(frame.payload));
      if (request.on_event) TRY(request.on_event(fields));
      return {};
    }
    case FrameType::kClose: {
      TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(frame.payload));
      request.closed = true;
      if (fields.has(Tag::kErrorCode) && !request.may_fail)
        request.error = inside_error(fields, request.what);
      return {};
    }
    default:
      return {};
  }
}

Status FileClient::finish(std::uint32_t stream) {
  const auto found = open_.find(stream);
  while (!found->second.closed) TRY(step());
  std::optional<Error> error = std::move(found->second.error);
  open_.erase(found);
  if (error.has_value()) return fail(std::move(*error));
  return {};
}

Status FileClient::collect(std::size_t most_open) {
  std::optional<Error> first;
  for (;;) {
    for (auto at = open_.begin(); at != open_.end();) {
      if (!at->second.closed) {
        ++at;
        continue;
      }
      if (at->second.error.has_value() && !first.has_value()) first = std::move(at->second.error);
      at = open_.erase(at);
    }
    if (first.has_value()) return fail(std::move(*first));
    if (open_.size() <= most_open) return {};
    TRY(step());
  }
}

Status FileClient::settle() {
  return collect(0);
}

Result<std::optional<InsideEntry>> FileClient::look(const std::string& path, Follow follow) {
  std::optional<InsideEntry> entry;
  Request request;
  request.what = "stat " + path;
  request.on_event = [&](const proto::FieldReader& event) -> Status {
    TRY_ASSIGN(entry, inside_entry(event));
    return {};
  };
  TRY_ASSIGN(
      const std::uint32_t stream,
      open(fields(FileOperation::kStat, path).put_u8(Tag::kFollow, follow == Follow::kYes ? 1 : 0),
           std::move(request)));
  auto finished = finish(stream);
  if (!finished.has_value()) {
    if (finished.error().code() == Code::kNotFound) return std::nullopt;
    return fail(std::move(finished).error());
  }
  if (!entry.has_value()) return fail(broken_protocol("a file without a type"));
  return entry;
}

Result<std::vector<InsideEntry>> FileClient::list(const std::string& path,
                                                  std::size_t most_entries) {
  std::vector<InsideEntry> entries;
  Request request;
  request.what = "list " + path;
  request.on_event = [&](const proto::FieldReader& event) -> Status {
    if (entries.size() == most_entries)
      return fail(Error::exhausted(path + " has more than " + std::to_string(most_entries) +
                                   " entries inside, which is more than can be copied"));
    TRY_ASSIGN(InsideEntry entry, inside_entry(event));
    entries.push_back(std::move(entry));
    return {};
  };
  TRY_ASSIGN(const std::uint32_t stream,
             open(fields(FileOperation::kList, path).put_u32(Tag::kDepth, kListDepth),
                  std::move(request)));
  TRY(finish(stream));
  return entries;
}

Status FileClient::read(const std::string& path,
                        const std::function<Status(std::string_view)>& take) {
  Request request;
  request.what = "read " + path;
  request.on_data = take;
  TRY_ASSIGN(const std::uint32_t stream,
             open(fields(FileOperation::kRead, path), std::move(request)));
  return finish(stream);
}

Status FileClient::make_directory(const std::string& path, std::uint32_t mode) {
  TRY(settle());
  Request request;
  request.what = "mkdir " + path;
  TRY_ASSIGN(const std::uint32_t stream, open(fields(FileOperation::kMakeDir, path)
                                                  .put_u32(Tag::kMode, mode)
                                                  .put_u8(Tag::kRecursive, 1),
                                              std::move(request)));
  return finish(stream);
}

Status FileClient::change_mode(const std::string& path, std::uint32_t mode) {
  Request request;
  request.what = "chmod " + path;
  TRY_ASSIGN(
      const std::uint32_t stream,
      open(fields(FileOperation::kChmod, path).put_u32(Tag::kMode, mode), std::move(request)));
  return finish(stream);
}

Status FileClient::change_owner(const std::string& path, std::uint32_t uid, std::uint32_t gid) {
  Request request;
  request.what = "chown " + path;
  TRY(open(fields(FileOperation::kChown, path)
               .put_u32(Tag::kUid, uid)
               .put_u32(Tag::kGid, gid)
               .put_u8(Tag::kFollow, 0),
           std::move(request)));
  return {};
}

Status FileClient::remove(const std::string& path) {
  Request request;
  request.what = "remove " + path;
  TRY_ASSIGN(const std::uint32_t stream,
             open(fields(FileOperation::kRemove, path), std::move(request)));
  return finish(stream);
}

Status FileClient::symlink(const std::string& path, std::string_view target) {
  const auto make = [&]() -> Status {
    Request request;
    request.what = "symlink " + path;
    TRY_ASSIGN(
        const std::uint32_t stream,
        open(fields(FileOperation::kSymlink, path).put(Tag::kTarget, target), std::move(request)));
    return finish(stream);
  };
  auto made = make();
  if (made.has_value() || made.error().code() != Code::kAlreadyExists) return made;
  TRY(remove(path));
  return make();
}

Status FileClient::set_modified(const std::string& path, std::uint64_t modified) {
  Request request;
  request.what = "setting the times of " + path;
  request.may_fail = true;
  TRY(open(fields(FileOperation::kSetTimes, path).put_u64(Tag::kMtimeNs, modified),
           std::move(request)));
  return {};
}

Status FileClient::write(const std::string& path, std::uint32_t mode, std::uint64_t modified,
                         const Source& source, Replace replace) {
  Request opened;
  opened.what = "write " + path;
  TRY_ASSIGN(const std::uint32_t stream,
             open(fields(FileOperation::kWrite, path)
                      .put_u32(Tag::kMode, mode)
                      .put_u64(Tag::kMtimeNs, modified)
                      .put_u8(Tag::kAtomic, replace == Replace::kWhole ? 1 : 0),
                  std::move(opened)));
  const auto channel = static_cast<std::uint8_t>(Channel::kIn);
  Request& request = open_.at(stream);
  for (;;) {
    TRY_ASSIGN(const std::string piece, source());
    std::string_view rest = piece;
    while (!rest.empty() && !request.closed) {
      if (request.credit.may_send() == 0) {
        TRY(step());
        continue;
      }
      const std::size_t size = std::min<std::uint64_t>(
          {rest.size(), request.credit.may_send(), std::uint64_t{proto::kMaxPayload / 2}});
      connection_.send(stream, FrameType::kData, channel, rest.substr(0, size));
      request.credit.spent(size);
      rest.remove_prefix(size);
      TRY(connection_.flush(proto::kInitialCredit));
    }
    // A full disk closes the stream early: its error comes with the next request.
    if (piece.empty() || request.closed) break;
  }
  if (!request.closed) connection_.send(stream, FrameType::kFinish, channel, {});
  return collect(kWindow);
}

}  // namespace caisson::box
