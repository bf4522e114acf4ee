#include <set>

#include "api/e2b/files.h"
#include "api/e2b/multipart.h"
#include "api/e2b/path.h"
#include "http/gzip.h"

namespace caisson::api::e2b {

using fleet::BoxStream;
using proto::FileOperation;
using proto::Tag;

namespace {

constexpr std::size_t kPiece = 64 * 1024;

// The bytes of a request's body, uncompressed.
class Body {
 public:
  explicit Body(const Request& request) : exchange_(request.exchange) {
    const auto coding = request.header("Content-Encoding");
    if (coding.has_value() && *coding == "gzip") gunzip_.emplace();
    known_ = gunzip_.has_value() || !coding.has_value() || *coding == "identity" || coding->empty();
  }

  bool known() const { return known_; }
  // Empty: it has ended. Error: malformed or broken off.
  io::Async<Result<std::string>> next() {
    if (!gunzip_.has_value()) co_return co_await exchange_.read_some(kPiece);
    for (;;) {
      CO_TRY_ASSIGN(std::optional<std::string> piece, gunzip_->next());
      if (piece.has_value() && !piece->empty()) co_return std::move(*piece);
      if (piece.has_value()) continue;
      CO_TRY_ASSIGN(std::string packed, co_await exchange_.read_some(kPiece));
      if (packed.empty()) {
        CO_TRY(gunzip_->finish());
        co_return std::string();
      }
      gunzip_->feed(std::move(packed));
    }
  }

 private:
  http::Exchange& exchange_;
  std::optional<http::Gunzip> gunzip_;
  bool known_ = true;
};

// All files of one request.
class Upload {
 public:
  Upload(const Request& request, Account account, std::map<std::string, std::string> metadata)
      : request_(request),
        account_(std::move(account)),
        metadata_(std::move(metadata)),
        body_(request) {}

  bool body_known() const { return body_.known(); }
  io::Async<Status> take_plain(std::string_view given);
  // `given`: the query's path, which goes before the parts' own names.
  io::Async<Status> take_parts(std::string boundary, std::optional<std::string_view> given);
  const json::Value::Array& written() const { return written_; }
  // Of the file that failed.
  const std::string& path() const { return path_; }

 private:
  io::Async<Status> begin_file(std::string_view given);
  io::Async<Status> write(std::string bytes);
  io::Async<Status> end_file();
  // What the guest says when it takes nothing more.
  io::Async<Status> verdict();

  const Request& request_;
  Account account_;
  std::map<std::string, std::string> metadata_;
  Body body_;
  std::string path_;
  std::set<std::string, std::less<>> paths_;
  std::unique_ptr<BoxStream> file_;
  json::Value::Array written_;
};

io::Async<Status> Upload::begin_file(std::string_view given) {
  path_ = given;
  CO_TRY_ASSIGN(path_, path_for(request_, account_, given));
  if (!paths_.insert(path_).second) {
    co_return fail(Error::invalid("you cannot upload several files to the same path '" + path_ +
                                  "'; only the first was written"));
  }
  proto::Fields fields = file_fields(FileOperation::kWrite, path_);
  fields.put_u8(Tag::kRecursive, 1);
  put_owner(fields, account_);
  put_metadata(fields, metadata_);
  CO_TRY_ASSIGN(file_, open_stream(request_, proto::Kind::kFile, fields));
  co_return Status();
}

io::Async<Status> Upload::verdict() {
  for (;;) {
    CO_TRY_ASSIGN(const BoxStream::Message message, co_await next_message(request_, *file_));
    if (message.kind == BoxStream::Message::Kind::kClose) co_return status_of_close(message.bytes);
  }
}

io::Async<Status> Upload::write(std::string bytes) {
  const Status written = co_await file_->write(std::move(bytes));
  if (written.has_value()) co_return Status();
  CO_TRY(co_await verdict());
  co_return fail(Error::internal("the guest ended an upload early"));
}

io::Async<Status> Upload::end_file() {
  file_->finish();
  CO_TRY(co_await verdict());
  file_.reset();
  written_.push_back(written_file(path_, metadata_));
  co_return Status();
}

io::Async<Status> Upload::take_plain(std::string_view given) {
  CO_TRY(co_await begin_file(given));
  for (;;) {
    CO_TRY_ASSIGN(std::string bytes, co_await body_.next());
    if (bytes.empty()) break;
    CO_TRY(co_await write(std::move(bytes)));
  }
  co_return co_await end_file();
}

io::Async<Status> Upload::take_parts(std::string boundary, std::optional<std::string_view> given) {
  using Kind = MultipartReader::Event::Kind;
  MultipartReader reader(boundary);
  for (;;) {
    CO_TRY_ASSIGN(MultipartReader::Event event, reader.next());
    switch (event.kind) {
      case Kind::kMore: {
        CO_TRY_ASSIGN(const std::string bytes, co_await body_.next());
        if (bytes.empty()) co_return fail(Error::invalid("the multipart body is cut off"));
        reader.feed(bytes);
        break;
      }
      case Kind::kPart: {
        if (event.part.name != "file") break;  // its bytes are dropped
        const std::string name = event.part.file_name.value_or("");
        if (!given.has_value() && name.empty())
          co_return fail(Error::invalid("a part 'file' needs a filename, or the query a path"));
        CO_TRY(co_await begin_file(given.has_value() ? *given : std::string_view(name)));
        break;
      }
      case Kind::kData:
        if (file_ != nullptr) CO_TRY(co_await write(std::move(event.data)));
        break;
      case Kind::kPartEnd:
        if (file_ != nullptr) CO_TRY(co_await end_file());
        break;
      case Kind::kEnd: {
        // What follows is ignored, but has to be sound where it is compressed.
        CO_TRY_ASSIGN(std::string rest, co_await body_.next());
        while (!rest.empty()) {
          CO_TRY_ASSIGN(rest, co_await body_.next());
        }
        co_return Status();
      }
    }
  }
}

// Where it fails, what was written of that file stays, as with any write that breaks off.
io::Async<Status> take_upload(const Request& request, Upload& upload) {
  const auto given = request.exchange.target().query_value("path");
  const std::string_view type = request.header("Content-Type").value_or("");
  if (!upload.body_known()) {
    co_return fail(Error::invalid("Content-Encoding: allowed are gzip and identity"));
  }
  if (type.starts_with("application/octet-stream")) {
    if (!given.has_value() || given->empty())
      co_return fail(
          Error::invalid("an upload of application/octet-stream needs the query 'path'"));
    co_return co_await upload.take_plain(*given);
  }
  CO_TRY_ASSIGN(std::string boundary, multipart_boundary(type));
  const bool named = given.has_value() && !given->empty();
  co_return co_await upload.take_parts(std::move(boundary), named ? given : std::nullopt);
}

}  // namespace

io::Async<Status> upload_files(const Request& request) {
  auto metadata = metadata_headers(request.exchange.request().headers);
  if (!metadata.has_value())
    co_return co_await answer_error(request.exchange, 400, metadata.error().message());
  auto account = co_await file_account(request);
  if (!account.has_value()) co_return co_await answer_file_error(request, account.error(), "");
  Upload upload(request, std::move(*account), std::move(*metadata));
  const Status status = co_await take_upload(request, upload);
  if (!status.has_value())
    co_return co_await answer_file_error(request, status.error(), upload.path());
  co_return co_await answer_json(request.exchange, 200, json::Value(upload.written()));
}

}  // namespace caisson::api::e2b
