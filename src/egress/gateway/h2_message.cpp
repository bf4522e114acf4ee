#include "egress/gateway/h2_message.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "http/text.h"

namespace caisson::egress {
namespace {

using http::Headers;

constexpr std::size_t kMostMethod = 32;
constexpr std::size_t kMostLengthDigits = 18;

// Of one connection of HTTP/1.1 (RFC 9113, section 8.2.2).
constexpr auto kConnectionOnly = std::to_array<std::string_view>(
    {"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"});
// What frames or directs a message, says who sends it or how it is encoded: not behind its body
// (RFC 9110, section 6.5.1).
constexpr auto kNoTrailers = std::to_array<std::string_view>(
    {"authorization", "content-encoding", "content-length", "content-range", "content-type",
     "cookie", "expect", "host", "max-forwards", "proxy-authorization", "range", "set-cookie", "te",
     "trailer"});

std::unexpected<Error> refuse(std::string sentence) {
  return fail(Error::invalid(std::move(sentence)));
}

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool has_capital(std::string_view name) {
  return std::ranges::any_of(name, [](char c) { return c >= 'A' && c <= 'Z'; });
}

// A field that is no pseudo-header; its name in a message for people is cut.
Status check_field(std::string_view name, std::string_view value) {
  if (!http::is_token(name) || has_capital(name))
    return refuse("a field's name is not a word in small letters");
  const std::string shown(name.substr(0, 64));
  if (!http::is_value(value) || http::trimmed(value).size() != value.size())
    return refuse("the field " + shown + " has a character, or blanks, that have no place there");
  if (is_one_of(name, kConnectionOnly))
    return refuse("the field " + shown + " is of HTTP/1.1 alone");
  if (name == "te" && !http::same_name(value, "trailers"))
    return refuse("te may be trailers and nothing else");
  return {};
}

// The pseudo-headers in front, each at most once and of those that are known; gives the rest.
class Pseudo {
 public:
  explicit Pseudo(std::span<const std::string_view> known) : known_(known) {}

  Status take(const H2Fields& fields) {
    for (const auto& [name, value] : fields) {
      if (!name.starts_with(':')) {
        ++begin_;
        continue;
      }
      if (begin_ != 0) return refuse("a pseudo-header stands behind other fields");
      if (!is_one_of(name, known_)) return refuse("a pseudo-header that has no place there");
      if (get(name)) return refuse("the pseudo-header " + name + " stands there twice");
      found_.emplace_back(name, value);
    }
    return {};
  }
  std::optional<std::string_view> get(std::string_view name) const {
    for (const auto& [own, value] : found_) {
      if (own == name) return value;
    }
    return std::nullopt;
  }
  std::size_t count() const { return found_.size(); }

 private:
  std::span<const std::string_view> known_;
  std::vector<std::pair<std::string_view, std::string_view>> found_;
  std::size_t begin_ = 0;  // how many others were seen
};

// The fields behind the first `skipped`. Error: one of them has no place in a head.
Result<Headers> headers_of(const H2Fields& fields, std::size_t skipped) {
  Headers headers;
  std::string cookie;
  for (std::size_t n = skipped; n < fields.size(); ++n) {
    const auto& [name, value] = fields[n];
    TRY(check_field(name, value));
    if (name != "cookie") {
      headers.add(name, value);
      continue;
    }
    if (!cookie.empty() && !value.empty()) cookie += "; ";
    cookie += value;
  }
  if (!cookie.empty()) headers.add("cookie", cookie);
  return headers;
}

// Of a length that is stated: one, and a number.
Status check_length(const Headers& headers) {
  std::size_t count = 0;
  for (const auto& [name, value] : headers.all()) {
    if (name != "content-length") continue;
    if (++count > 1) return refuse("content-length stands there twice");
    if (value.empty() || value.size() > kMostLengthDigits ||
        !std::ranges::all_of(value, http::is_digit))
      return refuse("content-length is not a number of at most 18 digits");
  }
  return {};
}

Status check_path(std::string_view method, std::string_view path) {
  if (!http::is_visible(path) || path.contains('#'))
    return refuse(":path has a character that has no place there");
  if (path.starts_with('/') || (method == "OPTIONS" && path == "*")) return {};
  return refuse(":path does not begin with a slash");
}

// Host in front, then the others; a `host` of another spelling stays beside it.
Headers with_host(const Headers& headers, std::string_view authority) {
  Headers out;
  out.add("Host", authority);
  for (const auto& [name, value] : headers.all()) {
    if (name == "host" && value == authority) continue;
    out.add(name, value);
  }
  return out;
}

std::string small(std::string_view name) {
  std::string out(name);
  std::ranges::transform(out, out.begin(), http::lower);
  return out;
}

void add_fields(H2Fields& fields, const Headers& headers) {
  for (const auto& [name, value] : headers.all()) {
    std::string field = small(name);
    if (field == "host" || field == "te" || is_one_of(field, kConnectionOnly)) continue;
    fields.emplace_back(std::move(field), value);
  }
}

}  // namespace

Result<http::RequestHead> request_of(const H2Fields& fields, H2Body body) {
  static constexpr auto kKnown =
      std::to_array<std::string_view>({":method", ":scheme", ":authority", ":path"});
  Pseudo pseudo(kKnown);
  TRY(pseudo.take(fields));
  http::RequestHead head;
  head.method = pseudo.get(":method").value_or("");
  if (!http::is_token(head.method) || head.method.size() > kMostMethod)
    return refuse(":method is not a word of at most 32 characters");
  TRY_ASSIGN(const Headers headers, headers_of(fields, pseudo.count()));
  TRY(check_length(headers));
  const auto authority = pseudo.get(":authority");
  const auto host = authority ? authority : headers.get("host");
  if (!host || host->empty() || !http::is_visible(*host))
    return refuse("the request names no host, neither in :authority nor in host");
  head.headers = with_host(headers, *host);
  const auto path = pseudo.get(":path"), scheme = pseudo.get(":scheme");
  if (head.method == "CONNECT") {
    if (path || scheme || !authority) return refuse("CONNECT has :authority alone");
    head.target = *authority;
    return head;
  }
  if (scheme.value_or("") != "https") return refuse(":scheme is not https");
  TRY(check_path(head.method, path.value_or("")));
  head.target = *path;
  if (body == H2Body::kFollows && !headers.has("content-length"))
    head.headers.add("Transfer-Encoding", "chunked");
  return head;
}

Result<http::ResponseHead> response_of(const H2Fields& fields) {
  static constexpr auto kKnown = std::to_array<std::string_view>({":status"});
  Pseudo pseudo(kKnown);
  TRY(pseudo.take(fields));
  const std::string_view status = pseudo.get(":status").value_or("");
  if (status.size() != 3 || !std::ranges::all_of(status, http::is_digit) || status[0] == '0')
    return refuse(":status is not a number of three digits");
  http::ResponseHead head;
  head.status = (status[0] - '0') * 100 + (status[1] - '0') * 10 + (status[2] - '0');
  if (head.status == 101) return refuse("HTTP/2 has no status 101");
  TRY_ASSIGN(head.headers, headers_of(fields, pseudo.count()));
  TRY(check_length(head.headers));
  return head;
}

Result<http::Headers> trailers_of(const H2Fields& fields) {
  for (const auto& [name, value] : fields) {
    TRY(check_field(name, value));
    if (is_one_of(name, kNoTrailers))
      return refuse("the field " + name + " has no place behind a body");
  }
  return headers_of(fields, 0);
}

H2Fields fields_of(const http::RequestHead& head) {
  H2Fields fields = {{":method", head.method},
                     {":scheme", "https"},
                     {":authority", std::string(head.headers.get("Host").value_or(""))},
                     {":path", head.target}};
  add_fields(fields, head.headers);
  return fields;
}

H2Fields fields_of(const http::ResponseHead& head) {
  H2Fields fields = {{":status", std::to_string(head.status)}};
  add_fields(fields, head.headers);
  return fields;
}

H2Fields fields_of(const http::Headers& trailers) {
  H2Fields fields;
  add_fields(fields, trailers);
  return fields;
}

}  // namespace caisson::egress
