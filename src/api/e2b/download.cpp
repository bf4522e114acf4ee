#include <algorithm>
#include <chrono>

#include "api/e2b/files.h"
#include "api/e2b/path.h"
#include "http/gzip.h"

namespace caisson::api::e2b {

using fleet::BoxStream;
using proto::FieldReader;
using proto::FileOperation;
using proto::Tag;
using Kind = BoxStream::Message::Kind;

namespace {

struct FileStatus {
  std::uint64_t size = 0;
  std::int64_t modified = 0;  // Unix seconds
};

Result<FileStatus> file_status(std::string_view payload) {
  TRY_ASSIGN(const FieldReader event, FieldReader::parse(payload));
  FileStatus status;
  TRY_ASSIGN(status.size, event.number(Tag::kSize));
  const auto time = static_cast<std::int64_t>(event.number_or_none(Tag::kMtimeNs).value_or(0));
  status.modified = time / 1'000'000'000;
  return status;
}

// Whether the path is a directory, for the text of an error.
io::Async<bool> is_directory(const Request& request, std::string path) {
  auto events =
      co_await call_guest(request, proto::Kind::kFile, file_fields(FileOperation::kStat, path));
  if (!events.has_value() || events->empty()) co_return false;
  const auto event = FieldReader::parse(events->front());
  co_return event.has_value() && event->number_or_none(Tag::kFileType) ==
                                     static_cast<std::uint64_t>(proto::FileType::kDirectory);
}

// One file of a sandbox on its way to a client.
class Download {
 public:
  Download(const Request& request, std::string path) : request_(request), path_(std::move(path)) {}

  // Error: nothing was answered yet. After the answer has begun the connection is cut off instead.
  io::Async<Status> run();

 private:
  io::Async<Status> open(std::optional<ByteRange> range);
  http::ResponseHead head() const;
  io::Async<Status> answer_plain(std::uint64_t size);
  io::Async<Status> answer_gzip();
  io::Async<Status> answer_unsized(std::string first);
  // The next bytes; empty: the file has ended.
  io::Async<Result<std::string>> next();
  io::Async<Status> answer_outside(std::uint64_t size);

  const Request& request_;
  std::string path_;
  std::unique_ptr<BoxStream> stream_;
  FileStatus status_;
  std::optional<ByteRange> range_;
};

http::ResponseHead Download::head() const {
  http::ResponseHead head;
  head.headers = answer_headers("application/octet-stream");
  head.headers.add("Content-Disposition", inline_disposition(base_name(path_)))
      .add("Last-Modified", http_date(status_.modified))
      .add("Accept-Ranges", "bytes")
      .add("Vary", "Accept-Encoding");
  return head;
}

io::Async<Status> Download::open(std::optional<ByteRange> range) {
  proto::Fields fields = file_fields(FileOperation::kRead, path_);
  if (range.has_value())
    fields.put_u64(Tag::kOffset, range->first).put_u64(Tag::kSize, range->size);
  CO_TRY_ASSIGN(stream_, open_stream(request_, proto::Kind::kFile, fields));
  CO_TRY_ASSIGN(const BoxStream::Message first, co_await next_message(request_, *stream_));
  if (first.kind == Kind::kClose) CO_TRY(status_of_close(first.bytes));
  if (first.kind != Kind::kEvent)
    co_return fail(Error::internal("the guest told nothing of " + path_));
  CO_TRY_ASSIGN(status_, file_status(first.bytes));
  co_return Status();
}

io::Async<Result<std::string>> Download::next() {
  for (;;) {
    CO_TRY_ASSIGN(BoxStream::Message message, co_await next_message(request_, *stream_));
    if (message.kind == Kind::kData && !message.bytes.empty()) co_return std::move(message.bytes);
    if (message.kind == Kind::kClose) {
      CO_TRY(status_of_close(message.bytes));
      co_return std::string();
    }
  }
}

io::Async<Status> Download::run() {
  const auto range_header =
      request_.header("If-Range").has_value() ? std::nullopt : request_.header("Range");
  const http::Coding coding = http::coding_for(request_.header("Accept-Encoding"));
  if (coding == http::Coding::kNone) {
    co_return co_await answer_error(request_.exchange, 406,
                                    "Accept-Encoding allows neither gzip nor the plain file");
  }
  if (range_header.has_value()) {
    CO_TRY_ASSIGN(const std::vector<std::string> events,
                  co_await call_guest(request_, proto::Kind::kFile,
                                      file_fields(FileOperation::kStat, path_)));
    if (events.empty()) co_return fail(Error::internal("the guest told nothing of " + path_));
    CO_TRY_ASSIGN(status_, file_status(events.front()));
    auto range = parse_range(range_header, status_.size);
    // A directory has a size too; the reading says what is wrong with it.
    if (range.has_value()) {
      range_ = *range;
    } else {
      CO_TRY(co_await open(std::nullopt));
      co_return co_await answer_outside(status_.size);
    }
  }
  CO_TRY(co_await open(range_));
  if (range_.has_value()) co_return co_await answer_plain(range_->size);
  if (status_.size == 0) {
    // Files of /proc say that they are empty and are not.
    CO_TRY_ASSIGN(std::string first, co_await next());
    if (!first.empty()) co_return co_await answer_unsized(std::move(first));
    co_return co_await answer_plain(0);
  }
  if (coding == http::Coding::kGzip) co_return co_await answer_gzip();
  co_return co_await answer_plain(status_.size);
}

io::Async<Status> Download::answer_outside(std::uint64_t size) {
  http::ResponseHead answer;
  answer.status = 416;
  answer.headers = answer_headers("application/json");
  answer.headers.add("Content-Range", "bytes */" + std::to_string(size));
  json::Value body = json::Value::object();
  body.set("code", 416).set("message", "the range is outside of the file");
  co_return co_await request_.exchange.respond(std::move(answer), json::serialize(body));
}

io::Async<Status> Download::answer_plain(std::uint64_t size) {
  http::ResponseHead answer = head();
  if (range_.has_value()) {
    answer.status = 206;
    answer.headers.add("Content-Range", "bytes " + std::to_string(range_->first) + "-" +
                                            std::to_string(range_->first + range_->size - 1) + "/" +
                                            std::to_string(status_.size));
  }
  answer.headers.add("Content-Length", std::to_string(size));
  CO_TRY(co_await request_.exchange.begin(std::move(answer)));
  while (size > 0) {
    CO_TRY_ASSIGN(std::string bytes, co_await next());
    if (bytes.empty()) co_return fail(Error::unavailable("the file became shorter"));
    // One that grows meanwhile is as long as it was said to be.
    if (bytes.size() > size) bytes.resize(size);
    size -= bytes.size();
    CO_TRY(co_await request_.exchange.write(bytes));
  }
  co_return co_await request_.exchange.end();
}

io::Async<Status> Download::answer_unsized(std::string first) {
  CO_TRY(co_await request_.exchange.begin(head()));
  for (std::string bytes = std::move(first); !bytes.empty();) {
    CO_TRY(co_await request_.exchange.write(bytes));
    CO_TRY_ASSIGN(bytes, co_await next());
  }
  co_return co_await request_.exchange.end();
}

io::Async<Status> Download::answer_gzip() {
  http::ResponseHead answer = head();
  answer.headers.add("Content-Encoding", "gzip");
  CO_TRY(co_await request_.exchange.begin(std::move(answer)));
  http::Gzip gzip;
  for (;;) {
    CO_TRY_ASSIGN(const std::string bytes, co_await next());
    const std::string packed = bytes.empty() ? gzip.finish() : gzip.feed(bytes);
    if (!packed.empty()) CO_TRY(co_await request_.exchange.write(packed));
    if (bytes.empty()) break;
  }
  co_return co_await request_.exchange.end();
}

}  // namespace

io::Async<Status> download_file(const Request& request) {
  const std::string_view given = request.exchange.target().query_value("path").value_or("");
  const auto account = co_await file_account(request);
  if (!account.has_value()) co_return co_await answer_file_error(request, account.error(), given);
  const auto path = path_for(request, *account, given);
  if (!path.has_value()) co_return co_await answer_file_error(request, path.error(), given);
  Download download(request, *path);
  const Status status = co_await download.run();
  if (status.has_value() || request.exchange.begun()) co_return status;
  if (status.error().code() == Code::kFailedPrecondition) {
    const bool directory = co_await is_directory(request, *path);
    const std::string text =
        "path '" + *path + "' is " + (directory ? "a directory" : "not a regular file");
    co_return co_await answer_error(request.exchange, 400, text);
  }
  co_return co_await answer_file_error(request, status.error(), *path);
}

}  // namespace caisson::api::e2b
