// libraries: api
// parser: src/api/sandbox_address.cpp src/api/router.cpp src/api/e2b/signature.cpp
// parser: src/api/e2b/files_text.cpp src/fleet/page_token.cpp src/db/template_name.cpp
//
// What the APIs read in the head of a request: whom it is meant for, pages, names of templates,
// signatures, ranges, metadata, paths. The input is lines: a method, a path, a query's value, and
// from the fourth on "NAME: VALUE" headers.
#include "api/e2b/files.h"
#include "api/e2b/signature.h"
#include "api/router.h"
#include "api/sandbox_address.h"
#include "base/error.h"
#include "db/template_name.h"
#include "fleet/page_token.h"
#include "http/codec.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::api;

std::string_view take_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

http::Headers headers_of(std::string_view rest) {
  http::Headers headers;
  while (!rest.empty() && headers.all().size() < 80) {
    const std::string_view line = take_line(rest);
    const std::size_t colon = line.find(": ");
    if (colon != line.npos) headers.add(line.substr(0, colon), line.substr(colon + 2));
  }
  return headers;
}

void check_address(const http::Headers& headers) {
  for (const std::string_view domain : {"", "e2b.test", "e2b.test:3000"}) {
    const auto address = sandbox_address(headers, domain);
    if (!address.has_value()) {
      VERIFY(address.error().code() == Code::kInvalidArgument);
      continue;
    }
    if (!address->has_value()) continue;
    VERIFY((*address)->port != 0 && !(*address)->id.empty() && (*address)->id.size() <= 64);
    VERIFY((*address)->id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") ==
           std::string::npos);
  }
}

void check_route(std::string_view method, std::string_view path) {
  Router router;
  router.add("GET", "/sandboxes");
  router.add("POST", "/sandboxes");
  const std::size_t one = router.add("GET", "/sandboxes/{id}");
  const std::size_t metrics = router.add("GET", "/sandboxes/metrics");
  router.add("DELETE", "/sandboxes/{id}");
  router.add("GET", "/{any}/metrics");
  const auto target = http::parse_target(path);
  if (!target.has_value()) return;
  const Router::Match match = router.match(method, target->segments);
  if (match.kind != Router::Match::Kind::kRoute) {
    VERIFY(match.allowed.empty() == (match.kind == Router::Match::Kind::kNoPath));
    return;
  }
  for (const std::string& parameter : match.parameters) VERIFY(!parameter.empty());
  VERIFY(match.route != one || match.parameters.at(0) != "metrics");
  if (match.route == metrics) VERIFY(match.parameters.empty());
}

void check_page(std::string_view token) {
  std::vector<fleet::SandboxView> views(3);
  for (std::size_t i = 0; i < views.size(); ++i) {
    views[i].id = std::string(1, static_cast<char>('a' + i));
    views[i].started = fleet::WallClock::time_point(std::chrono::milliseconds(i / 2));
    views[i].state = i == 2 ? fleet::State::kPaused : fleet::State::kRunning;
    views[i].metadata["a"] = token;
  }
  for (const bool ascending : {false, true}) {
    fleet::ListQuery query{.ascending = ascending, .limit = 2};
    query.after = token;
    if (const auto page = fleet::page_of(views, query); page.has_value())
      VERIFY(page->sandboxes.size() <= 2);
    // Page by page, each once.
    query = {.ascending = ascending, .limit = 1};
    std::string seen;
    do {
      const auto page = fleet::page_of(views, query);
      VERIFY(page.has_value() && page->sandboxes.size() == 1);
      seen += page->sandboxes[0].id;
      query.after = page->next_token;
    } while (!query.after.empty());
    VERIFY(seen == (ascending ? "abc" : "cba"));
    query = {.metadata = {{"a", std::string(token)}}, .running = false};
    query.template_name = "";
    VERIFY(!fleet::matches(views[0], query) && fleet::matches(views[2], query));
    query.template_name = "t";
    VERIFY(!fleet::matches(views[2], query));
    query.started_after = views[2].started + std::chrono::seconds(1);
    VERIFY(!fleet::matches(views[2], query));
  }
}

void check_names(std::string_view text) {
  const auto reference = db::parse_template_reference(text);
  if (reference.has_value()) {
    VERIFY(db::check_template_name(reference->name).has_value());
    VERIFY(db::check_template_tag(reference->tag).has_value());
    const std::string whole = (reference->space.empty() ? "" : reference->space + "/") +
                              reference->name + ":" + reference->tag;
    VERIFY(db::parse_template_reference(whole).value() == *reference);
  }
  if (db::check_template_name(text).has_value()) VERIFY(reference.has_value());
}

void check_claim(std::string_view path, std::string_view text) {
  using namespace e2b;  // NOLINT
  const auto expires = parse_expiration(text);
  const FileClaim claim{.token_header = std::nullopt,
                        .signature = text,
                        .expires = text,
                        .path = path,
                        .user = "user"};
  VERIFY(!check_file_claim(claim, FileAccess::kRead, "secret", 0).has_value());
  VERIFY(check_file_claim(claim, FileAccess::kRead, "", 0).has_value());
  FileClaim own = claim;
  own.token_header = text;
  VERIFY(check_file_claim(own, FileAccess::kWrite, "secret", 0).has_value() == (text == "secret"));
  // What is signed is good until its end, for this one path and operation.
  const std::string good =
      sign_file(path, FileAccess::kRead, "user", "secret", expires.value_or(std::nullopt));
  own = claim;
  own.signature = good;
  if (!expires.has_value()) own.expires.reset();
  const std::int64_t end = expires.has_value() ? expires->value_or(0) : 0;
  VERIFY(check_file_claim(own, FileAccess::kRead, "secret", end).has_value());
  VERIFY(!check_file_claim(own, FileAccess::kWrite, "secret", end).has_value());
  if (expires.has_value() && end < INT64_MAX)
    VERIFY(!check_file_claim(own, FileAccess::kRead, "secret", end + 1).has_value());
  own.signature.reset();
  VERIFY(!check_file_claim(own, FileAccess::kRead, "secret", end).has_value());
}

void check_file(std::string_view path, const http::Headers& headers) {
  for (const std::uint64_t size : {0u, 1u, 1000u}) {
    const auto range = e2b::parse_range(headers.get("Range"), size);
    if (!range.has_value() || !range->has_value()) continue;
    VERIFY((*range)->size > 0 && (*range)->first < size);
    VERIFY((*range)->size <= size - (*range)->first);
    VERIFY(e2b::http_date(static_cast<std::int64_t>((*range)->first)).ends_with(" GMT"));
  }
  const std::string disposition = e2b::inline_disposition(path);
  for (const char c : disposition) VERIFY(c >= ' ' && c <= '~');
  const auto metadata = e2b::metadata_headers(headers);
  if (!metadata.has_value()) return;
  VERIFY(metadata->size() <= 64);
  proto::Fields fields;
  e2b::put_metadata(fields, *metadata);
  const auto read = proto::FieldReader::parse(fields.bytes());
  VERIFY(read.has_value() && read->all(proto::Tag::kXattrName).size() == metadata->size());
  VERIFY(e2b::written_file("/a", *metadata).find("name") != nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view method = take_line(rest), path = take_line(rest), value = take_line(rest);
  const http::Headers headers = headers_of(rest);
  check_address(headers);
  check_route(method, path);
  check_page(value);
  check_names(value);
  check_claim(path, value);
  check_file(path, headers);
  return 0;
}
