#include "image/registry/fetch_protocol.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "image/reference.h"

namespace caisson::image {
namespace {

constexpr std::array<std::string_view, 10> kEnds = {
    "done", "cancelled", "resolve",   "connect",   "certificate",
    "tls",  "broken",    "too-large", "forbidden", "other"};

void line(std::string& text, std::string_view key, std::string_view value) {
  text.append(key).append(" ");
  // A line is a line, whatever was in it.
  for (char c : value) text += c == '\n' || c == '\r' || c == '\0' ? ' ' : c;
  text += '\n';
}

struct Line {
  std::string_view key, value;
};

Error malformed(std::string_view message) {
  return Error::internal("caisson-image-fetch: malformed message '" +
                         printable(message.substr(0, message.find(' ')), 40) + "'");
}

Result<std::vector<Line>> lines_of(std::string_view message) {
  if (message.size() > kMaxFetchMessage) return fail(malformed(message));
  std::vector<Line> lines;
  for (std::string_view rest = message; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return fail(malformed(message));
    const std::string_view text = rest.substr(0, end);
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return fail(malformed(message));
    lines.push_back({text.substr(0, space), text.substr(space + 1)});
    rest.remove_prefix(end + 1);
  }
  if (lines.empty()) return fail(malformed(message));
  return lines;
}

template <typename Number>
Result<Number> number_of(std::string_view text, std::string_view message) {
  Number number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return fail(malformed(message));
  return number;
}

bool is_one_line(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

}  // namespace

std::string_view to_string(FetchEnd end) {
  return kEnds.at(static_cast<std::size_t>(end));
}

std::string FetchRequest::encode() const {
  std::string text;
  line(text, form ? "post" : "get", std::to_string(id));
  line(text, "url", url);
  for (const std::string& header : headers) line(text, "header", header);
  if (form) line(text, "form", *form);
  line(text, "limit", std::to_string(limit));
  line(text, "seconds", std::to_string(seconds));
  line(text, "outside-only", outside_only ? "1" : "0");
  return text;
}

std::string_view FetchHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string FetchHead::encode() const {
  std::string text;
  line(text, "head", std::to_string(id));
  line(text, "status", std::to_string(status));
  for (const auto& [key, value] : headers) line(text, key, value);
  return text;
}

std::string FetchResult::encode() const {
  std::string line_text;
  line(line_text, "end", std::to_string(id));
  line(line_text, to_string(end), text);
  return line_text;
}

std::string encode_cancel(std::uint32_t id) {
  std::string text;
  line(text, "cancel", std::to_string(id));
  return text;
}

Result<FetchRequest> decode_request(std::string_view message) {
  TRY_ASSIGN(std::vector<Line> lines, lines_of(message));
  FetchRequest request;
  TRY_ASSIGN(request.id, number_of<std::uint32_t>(lines[0].value, message));
  const std::string_view kind = lines[0].key;
  if (kind == "cancel" && lines.size() == 1) return request;
  if (kind != "get" && kind != "post") return fail(malformed(message));
  for (const Line& entry : std::span(lines).subspan(1)) {
    if (entry.key == "url") {
      request.url = entry.value;
    } else if (entry.key == "header" && is_one_line(entry.value)) {
      request.headers.emplace_back(entry.value);
    } else if (entry.key == "form" && kind == "post") {
      request.form = std::string(entry.value);
    } else if (entry.key == "limit") {
      TRY_ASSIGN(request.limit, number_of<std::uint64_t>(entry.value, message));
    } else if (entry.key == "seconds") {
      TRY_ASSIGN(request.seconds, number_of<std::uint32_t>(entry.value, message));
    } else if (entry.key == "outside-only") {
      request.outside_only = entry.value == "1";
    } else {
      return fail(malformed(message));
    }
  }
  if (request.url.empty() || (kind == "post") != request.form.has_value()) {
    return fail(malformed(message));
  }
  return request;
}

Result<FetchMessage> decode_fetch_message(std::string_view message) {
  TRY_ASSIGN(std::vector<Line> lines, lines_of(message));
  FetchMessage decoded;
  TRY_ASSIGN(const auto id, number_of<std::uint32_t>(lines[0].value, message));
  if (lines[0].key == "end" && lines.size() == 2) {
    const auto end = std::ranges::find(kEnds, lines[1].key);
    if (end == kEnds.end()) return fail(malformed(message));
    decoded.result = FetchResult{.id = id,
                                 .end = static_cast<FetchEnd>(end - kEnds.begin()),
                                 .text = printable(lines[1].value)};
    return decoded;
  }
  if (lines[0].key != "head" || lines.size() < 2 || lines[1].key != "status") {
    return fail(malformed(message));
  }
  FetchHead head = {.id = id};
  TRY_ASSIGN(head.status, number_of<int>(lines[1].value, message));
  if (head.status < 100 || head.status > 599) return fail(malformed(message));
  for (const Line& entry : std::span(lines).subspan(2)) {
    if (std::ranges::find(kFetchHeaders, entry.key) == kFetchHeaders.end() ||
        !is_one_line(entry.value)) {
      return fail(malformed(message));
    }
    head.headers.emplace_back(entry.key, entry.value);
  }
  decoded.head = std::move(head);
  return decoded;
}

}  // namespace caisson::image
