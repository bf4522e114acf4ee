// /files: contents of files as HTTP bodies, in both directions, and /files/compose.
//
// Bytes are passed on piece by piece; no file is ever held whole. Who may ask: whoever shows the
// sandbox's token, or a signature for that one path (signature.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/e2b/request.h"
#include "api/e2b/signature.h"

namespace caisson::api::e2b {

io::Async<Status> download_file(const Request& request);
io::Async<Status> upload_files(const Request& request);
io::Async<Status> compose_file(const Request& request);

// ---- what they share, and what is pure of them

// Whether the request may; answers it where not.
io::Async<Result<Allowed>> check_claim(const Request& request, FileAccess access);

// The user of a request for a file: `username` of the query, else user_of(); of a
// signed URL without one, the sandbox's default.
io::Async<Result<Account>> file_account(const Request& request);

// An error of a file operation as HTTP, with texts that clients know.
io::Async<Status> answer_file_error(const Request& request, const Error& error,
                                    std::string_view path);

struct ByteRange {
  std::uint64_t first = 0, size = 0;
};
// Of a Range header and a file of `size` bytes. nullopt: the whole file is meant, also where the
// header is not understood or names several ranges. Error: out_of_range, it names nothing of it.
Result<std::optional<ByteRange>> parse_range(std::optional<std::string_view> header,
                                             std::uint64_t size);

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::int64_t seconds);
// Content-Disposition: inline, with the name in the plainest form that holds it.
std::string inline_disposition(std::string_view name);

// The attributes of X-Metadata-KEY headers, by key. Error: invalid_argument for what is too long or
// not printable ASCII.
Result<std::map<std::string, std::string>> metadata_headers(const http::Headers& headers);
void put_metadata(proto::Fields& fields, const std::map<std::string, std::string>& metadata);
// {"path","name","type":"file","metadata"?}
json::Value written_file(std::string_view path, const std::map<std::string, std::string>& metadata);

}  // namespace caisson::api::e2b
