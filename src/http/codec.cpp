#include "http/codec.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

#include "base/guards.h"
#include "http/text.h"

namespace caisson::http {
namespace {

constexpr std::size_t kMostMethod = 32;
constexpr std::size_t kMostLengthDigits = 18;

std::unexpected<Refusal> refuse(int status, std::string sentence) {
  return std::unexpected(Refusal{status, std::move(sentence)});
}

// The lines behind the first one.
Parsed<Headers> parse_headers(std::string_view lines, std::size_t most) {
  Headers headers;
  while (!lines.empty()) {
    const std::string_view line = take_line(lines);
    if (line.empty()) break;
    if (headers.all().size() == most)
      return refuse(431, "more than " + std::to_string(most) + " headers");
    const auto header = parse_header_line(line);
    if (!header.has_value())
      return refuse(400, "header " + std::to_string(headers.all().size() + 1) +
                             " is not NAME: VALUE without control characters");
    headers.add(header->name, header->value);
  }
  return headers;
}

std::size_t count_of(const Headers& headers, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::count_if(
      headers.all(), [name](const auto& header) { return same_name(header.first, name); }));
}

// Content-Length or Transfer-Encoding; nullopt: neither.
Parsed<std::optional<Framing>> stated_framing(const Headers& headers, int minor_version) {
  const std::size_t lengths = count_of(headers, "content-length");
  const std::size_t codings = count_of(headers, "transfer-encoding");
  if (lengths + codings == 0) return std::nullopt;
  if (lengths > 0 && codings > 0 && !guard_off(Guard::kFraming))
    return refuse(400, "both Content-Length and Transfer-Encoding");
  if (codings > 0) {
    if (minor_version == 0) return refuse(400, "Transfer-Encoding in HTTP/1.0");
    if (codings > 1 || !same_name(*headers.get("transfer-encoding"), "chunked"))
      return refuse(501, "Transfer-Encoding may be chunked and nothing else");
    return Framing{.kind = Framing::Kind::kChunked};
  }
  if (lengths > 1) return refuse(400, "more than one Content-Length");
  const std::string_view digits = *headers.get("content-length");
  Framing framing{.kind = Framing::Kind::kLength};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), framing.length);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      digits.size() > kMostLengthDigits)
    return refuse(400, "Content-Length is not a number of at most 18 digits");
  return framing;
}

bool stays_open(const Headers& headers, int minor_version) {
  if (has_word(headers, "connection", "close")) return false;
  return minor_version == 1 || has_word(headers, "connection", "keep-alive");
}

// HOST or HOST:PORT; nothing that could be taken for more than that.
bool is_host(std::string_view text) {
  constexpr std::string_view kOthers = "-._~%!$&'()*+;=:[]";
  return std::ranges::all_of(text, [&](char c) {
    return is_letter_or_digit(c) || kOthers.find(c) != std::string_view::npos;
  });
}

// The authority of an absolute target, which must be http's or https's; nullopt: it is not.
std::optional<std::string_view> authority_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_name(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    return target.substr(0, target.find_first_of("/?"));
  }
  return std::nullopt;
}

Parsed<void> check_target(const RequestHead& head) {
  if (count_of(head.headers, "host") > 1) return refuse(400, "more than one Host");
  const auto host = head.headers.get("host");
  if (!host.has_value() && head.minor_version == 1) return refuse(400, "no Host header");
  if (host.has_value() && !is_host(*host)) return refuse(400, "Host is not HOST or HOST:PORT");

  const std::string& target = head.target;
  if (!is_visible(target) || target.find('#') != std::string::npos)
    return refuse(400, "the target holds a character that has no place there");
  if (head.method == "CONNECT") {
    if (target.empty() || !is_host(target) || target.find(':') == std::string::npos)
      return refuse(400, "the target of CONNECT is not HOST:PORT");
    return {};
  }
  if (target.starts_with('/')) return {};
  if (target == "*" && head.method == "OPTIONS") return {};
  const auto authority = authority_of(target);
  if (!authority.has_value() || authority->empty() || !is_host(*authority))
    return refuse(400, "the target is neither a path nor the URL of one");
  if (host.has_value() && !same_name(*host, *authority) && !guard_off(Guard::kAbsoluteForm))
    return refuse(400, "Host names another host than the target");
  return {};
}

// METHOD TARGET HTTP/1.x
Parsed<RequestHead> parse_request_line(std::string_view line) {
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    return refuse(400, "the first line is not METHOD TARGET HTTP/1.1");
  RequestHead head;
  head.method = line.substr(0, first);
  head.target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(head.method) || head.method.size() > kMostMethod)
    return refuse(400, "the method is not a word of at most 32 characters");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    if (version.starts_with("HTTP/")) return refuse(505, "HTTP/1.1 and HTTP/1.0 alone are spoken");
    return refuse(400, "the first line is not METHOD TARGET HTTP/1.1");
  }
  head.minor_version = version == "HTTP/1.1" ? 1 : 0;
  return head;
}

}  // namespace

Parsed<std::optional<std::size_t>> HeadScanner::scan(std::string_view bytes, std::size_t most) {
  const std::size_t end = std::min(bytes.size(), most);
  for (; seen_ < end; ++seen_) {
    const char c = bytes[seen_];
    if (c == '\0') return refuse(400, "a zero byte in the head");
    if (seen_ > 0 && bytes[seen_ - 1] == '\r' && c != '\n')
      return refuse(400, "a carriage return without a line feed in the head");
    if (c != '\n') continue;
    if (seen_ == 0 || bytes[seen_ - 1] != '\r')
      return refuse(400, "a line feed without a carriage return in the head");
    if (seen_ - line_start_ == 1) {  // only the carriage return
      if (line_start_ == 0) return refuse(400, "an empty line before the first line");
      return seen_ + 1;
    }
    line_start_ = seen_ + 1;
  }
  if (seen_ >= most) return refuse(431, "a head of more than " + std::to_string(most) + " bytes");
  return std::nullopt;
}

Parsed<ParsedRequest> parse_request_head(std::string_view head, std::size_t most_headers) {
  auto line = parse_request_line(take_line(head));
  if (!line.has_value()) return std::unexpected(std::move(line).error());
  ParsedRequest request{.head = std::move(*line)};
  auto headers = parse_headers(head, most_headers);
  if (!headers.has_value()) return std::unexpected(std::move(headers).error());
  request.head.headers = std::move(*headers);
  const RequestHead& parsed = request.head;
  if (auto target = check_target(parsed); !target.has_value())
    return std::unexpected(std::move(target).error());

  auto framing = stated_framing(parsed.headers, parsed.minor_version);
  if (!framing.has_value()) return std::unexpected(std::move(framing).error());
  request.body = framing->value_or(Framing());
  if (request.body.kind == Framing::Kind::kLength && request.body.length == 0)
    request.body.kind = Framing::Kind::kNone;
  const bool has_body = request.body.kind != Framing::Kind::kNone;

  const bool connect = parsed.method == "CONNECT";
  if (connect && has_body) return refuse(400, "CONNECT with a body");
  request.keep_alive = stays_open(parsed.headers, parsed.minor_version);
  request.upgrade = connect || (parsed.minor_version == 1 && parsed.headers.has("upgrade") &&
                                has_word(parsed.headers, "connection", "upgrade"));
  if (parsed.minor_version == 1 && parsed.headers.has("expect")) {
    if (!same_name(parsed.headers.joined("expect"), "100-continue"))
      return refuse(417, "Expect may be 100-continue and nothing else");
    request.expects_continue = has_body;
  }
  return request;
}

Parsed<ParsedResponse> parse_response_head(std::string_view head, std::string_view method,
                                           std::size_t most_headers) {
  const std::string_view line = take_line(head);
  ParsedResponse response;
  const bool modern = line.starts_with("HTTP/1.1 ");
  if (!modern && !line.starts_with("HTTP/1.0 "))
    return refuse(502, "the first line is not HTTP/1.1 STATUS REASON");
  response.head.minor_version = modern ? 1 : 0;
  const std::string_view status = line.substr(9, 3);
  if (status.size() != 3 || !std::ranges::all_of(status, is_digit) || status[0] == '0' ||
      (line.size() > 12 && line[12] != ' ') || !is_value(line))
    return refuse(502, "the first line is not HTTP/1.1 STATUS REASON");
  response.head.status = (status[0] - '0') * 100 + (status[1] - '0') * 10 + (status[2] - '0');
  if (line.size() > 13) response.head.reason = line.substr(13);
  auto headers = parse_headers(head, most_headers);
  if (!headers.has_value()) return std::unexpected(std::move(headers).error());
  response.head.headers = std::move(*headers);

  auto framing = stated_framing(response.head.headers, response.head.minor_version);
  if (!framing.has_value()) return std::unexpected(std::move(framing).error());
  const int code = response.head.status;
  if (method == "HEAD" || code < 200 || code == 204 || code == 304 ||
      (method == "CONNECT" && code < 300)) {
    response.body = {};
  } else {
    response.body = framing->value_or(Framing{.kind = Framing::Kind::kUntilClose});
    if (response.body.kind == Framing::Kind::kLength && response.body.length == 0)
      response.body.kind = Framing::Kind::kNone;
  }
  response.keep_alive = stays_open(response.head.headers, response.head.minor_version) &&
                        response.body.kind != Framing::Kind::kUntilClose;
  return response;
}

// ---- encoding
// -------------------------------------------------------------------------------------

namespace {

Status append_headers(std::string& out, const Headers& headers) {
  for (const auto& [name, value] : headers.all()) {
    if (!is_token(name)) return fail(Error::invalid("'" + name + "' is no name of a header"));
    if (!is_value(value) || trimmed(value).size() != value.size())
      return fail(Error::invalid("the value of the header " + name +
                                 " has a control character, or a blank at its ends"));
    out.append(name).append(": ").append(value).append("\r\n");
  }
  out += "\r\n";
  return {};
}

std::string_view version_of(int minor_version) {
  return minor_version == 0 ? "HTTP/1.0" : "HTTP/1.1";
}

}  // namespace

Result<std::string> encode(const RequestHead& head) {
  if (!is_token(head.method)) return fail(Error::invalid("'" + head.method + "' is no method"));
  if (head.target.empty() || !is_visible(head.target))
    return fail(Error::invalid("the target is empty or has characters that have no place there"));
  std::string out;
  out.append(head.method).append(" ").append(head.target).append(" ");
  out.append(version_of(head.minor_version)).append("\r\n");
  TRY(append_headers(out, head.headers));
  return out;
}

Result<std::string> encode(const ResponseHead& head) {
  if (head.status < 100 || head.status > 999)
    return fail(Error::invalid(std::to_string(head.status) + " is no status"));
  if (!is_value(head.reason)) return fail(Error::invalid("the reason has a control character"));
  std::string out;
  out.append(version_of(head.minor_version)).append(" ").append(std::to_string(head.status));
  out.append(" ").append(head.reason.empty() ? reason_of(head.status) : head.reason);
  out.append("\r\n");
  TRY(append_headers(out, head.headers));
  return out;
}

std::string chunk(std::string_view bytes) {
  VERIFY(!bytes.empty());
  char size[16];
  char* const end = std::to_chars(std::begin(size), std::end(size), bytes.size(), 16).ptr;
  std::string out;
  out.reserve(bytes.size() + 20);
  out.append(size, static_cast<std::size_t>(end - size))
      .append("\r\n")
      .append(bytes)
      .append("\r\n");
  return out;
}

// ---- lists
// ----------------------------------------------------------------------------------------

namespace {

std::vector<std::string_view> words_of(const Headers& headers, std::string_view name) {
  std::vector<std::string_view> words;
  for (const auto& [own, value] : headers.all()) {
    if (!same_name(own, name)) continue;
    for (std::string_view rest = value; !rest.empty();) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      words.push_back(trimmed(rest.substr(0, comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return words;
}

}  // namespace

bool has_word(const Headers& headers, std::string_view name, std::string_view word) {
  return std::ranges::any_of(words_of(headers, name),
                             [word](std::string_view own) { return same_name(own, word); });
}

void remove_hop_by_hop(Headers& headers) {
  std::vector<std::string> named;
  for (const std::string_view word : words_of(headers, "connection")) named.emplace_back(word);
  for (const std::string& name : named) {
    // Nobody may take away what says where a message goes and where it ends.
    if (same_name(name, "host") || same_name(name, "content-length") ||
        same_name(name, "transfer-encoding"))
      continue;
    headers.remove(name);
  }
  for (const std::string_view name :
       {"connection", "proxy-connection", "keep-alive", "te", "trailer", "upgrade",
        "proxy-authorization", "proxy-authenticate", "proxy-authentication-info"})
    headers.remove(name);
}

}  // namespace caisson::http
