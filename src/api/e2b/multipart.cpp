#include "api/e2b/multipart.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace caisson::api::e2b {

namespace {

constexpr std::size_t kMaxBoundary = 70;  // RFC 2046, 5.1.1

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// A header's value with parameters, as in `form-data; name="file"`.
struct Parameters {
  std::string_view value;
  std::vector<std::pair<std::string_view, std::string>> all;

  const std::string* find(std::string_view name) const {
    for (const auto& [key, value_of_key] : all)
      if (same_word(key, name)) return &value_of_key;
    return nullptr;
  }
};

// The text between quotation marks; `rest` begins behind the first and ends up behind the last.
// A backslash escapes those two characters alone: some clients send it as it is in a name.
std::optional<std::string> quoted(std::string_view& rest) {
  std::string text;
  while (!rest.empty()) {
    char c = rest.front();
    rest.remove_prefix(1);
    if (c == '"') return text;
    if (c == '\\' && !rest.empty() && (rest.front() == '"' || rest.front() == '\\')) {
      c = rest.front();
      rest.remove_prefix(1);
    }
    text += c;
  }
  return std::nullopt;
}

Result<Parameters> parse_parameters(std::string_view text) {
  Parameters result;
  std::size_t end = text.find(';');
  result.value = trim(text.substr(0, end));
  while (end != std::string_view::npos) {
    text = trim(text.substr(end + 1));
    if (text.empty()) break;  // a semicolon at the end
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
      return fail(Error::invalid("a parameter without '=': '" + std::string(text) + "'"));
    }
    const std::string_view name = trim(text.substr(0, equals));
    if (name.empty() || name.find(';') != std::string_view::npos || result.find(name) != nullptr) {
      return fail(Error::invalid("a parameter without a name, or one that came before"));
    }
    text = trim(text.substr(equals + 1));
    if (text.starts_with('"')) {
      text.remove_prefix(1);
      std::optional<std::string> value = quoted(text);
      if (!value) return fail(Error::invalid("a quotation mark is missing"));
      result.all.emplace_back(name, std::move(*value));
      text = trim(text);
      if (!text.empty() && text.front() != ';') {
        return fail(Error::invalid("something follows a quoted text"));
      }
      end = text.empty() ? std::string_view::npos : 0;
    } else {
      end = text.find(';');
      result.all.emplace_back(name, std::string(trim(text.substr(0, end))));
    }
  }
  return result;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = lower(c);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

// The value of `filename*` (RFC 8187): UTF-8''percent%20encoded.
Result<std::string> extended_value(std::string_view text) {
  const std::size_t first = text.find('\'');
  const std::size_t second = first == std::string_view::npos ? first : text.find('\'', first + 1);
  if (second == std::string_view::npos || !same_word(text.substr(0, first), "utf-8")) {
    return fail(Error::invalid("filename* is UTF-8''TEXT"));
  }
  text.remove_prefix(second + 1);
  std::string value;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      value += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return fail(Error::invalid("filename* has a broken escape"));
    value += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return value;
}

}  // namespace

Result<std::string> multipart_boundary(std::string_view content_type) {
  TRY_ASSIGN(const Parameters parameters, parse_parameters(content_type));
  if (!same_word(parameters.value, "multipart/form-data")) {
    return fail(Error::invalid("the content is '" + std::string(parameters.value) +
                               "', not multipart/form-data"));
  }
  const std::string* boundary = parameters.find("boundary");
  if (boundary == nullptr || boundary->empty() || boundary->size() > kMaxBoundary) {
    return fail(Error::invalid("multipart/form-data needs a boundary of 1 to 70 characters"));
  }
  return *boundary;
}

Result<MultipartPart> parse_disposition(std::string_view value) {
  TRY_ASSIGN(const Parameters parameters, parse_parameters(value));
  if (!same_word(parameters.value, "form-data")) {
    return fail(Error::invalid("a part is form-data, not '" + std::string(parameters.value) + "'"));
  }
  const std::string* name = parameters.find("name");
  if (name == nullptr) return fail(Error::invalid("a part has no name"));
  MultipartPart part;
  part.name = *name;
  if (const std::string* extended = parameters.find("filename*")) {
    TRY_ASSIGN(part.file_name, extended_value(*extended));
  } else if (const std::string* plain = parameters.find("filename")) {
    part.file_name = *plain;
  }
  return part;
}

MultipartReader::MultipartReader(std::string_view boundary) : delimiter_("\r\n--") {
  delimiter_ += boundary;
  buffer_ = "\r\n";  // so that the first boundary looks as the others do
}

void MultipartReader::feed(std::string_view bytes) {
  if (state_ != State::kEnd) buffer_ += bytes;
}

Result<MultipartReader::Event> MultipartReader::next() {
  switch (state_) {
    case State::kPreamble: {
      const std::size_t found = buffer_.find(delimiter_);
      if (found == std::string::npos) {
        // No boundary begins before its last bytes.
        const std::size_t keep = std::min(buffer_.size(), delimiter_.size() - 1);
        buffer_.erase(0, buffer_.size() - keep);
        return Event{};
      }
      buffer_.erase(0, found + delimiter_.size());
      state_ = State::kBoundary;
      return after_boundary();
    }
    case State::kBoundary:
      return after_boundary();
    case State::kHead:
      return head();
    case State::kBody:
      return body();
    case State::kEnd:
      break;
  }
  return Event{.kind = Event::Kind::kEnd};
}

// Behind a boundary stands "--" after the last part, or the end of the line.
Result<MultipartReader::Event> MultipartReader::after_boundary() {
  if (buffer_.starts_with("--")) {
    state_ = State::kEnd;
    buffer_.clear();
    return Event{.kind = Event::Kind::kEnd};
  }
  const std::size_t text = std::min(buffer_.find_first_not_of(" \t"), buffer_.size());
  if (text > kMaxPartHead) return fail(Error::invalid("a multipart boundary's line is too long"));
  const std::string_view rest = std::string_view(buffer_).substr(text);
  if (rest.starts_with("\r\n")) {
    buffer_.erase(0, text);  // its CR LF stays, so that a head without lines ends as others do
    state_ = State::kHead;
    return head();
  }
  if (rest.empty() || rest == "\r" || (text == 0 && rest == "-")) return Event{};
  return fail(Error::invalid("something follows a multipart boundary on its line"));
}

Result<MultipartReader::Event> MultipartReader::head() {
  const std::size_t end = buffer_.find("\r\n\r\n");
  if ((end == std::string::npos ? buffer_.size() : end) > kMaxPartHead) {
    return fail(Error::invalid("the header lines of a part are longer than " +
                               std::to_string(kMaxPartHead) + " bytes"));
  }
  if (end == std::string::npos) return Event{};
  if (++parts_ > kMaxParts) {
    return fail(Error::invalid("more than " + std::to_string(kMaxParts) + " parts"));
  }
  std::optional<MultipartPart> part;
  std::string_view lines = std::string_view(buffer_).substr(0, end);
  while (!lines.empty()) {
    lines.remove_prefix(2);  // CR LF
    const std::string_view line = lines.substr(0, lines.find("\r\n"));
    lines.remove_prefix(line.size());
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return fail(Error::invalid("a part has a header line without a colon"));
    }
    const std::string_view name = line.substr(0, colon);
    if (same_word(name, "content-transfer-encoding") &&
        !same_word(trim(line.substr(colon + 1)), "binary") &&
        !same_word(trim(line.substr(colon + 1)), "8bit")) {
      return fail(Error::invalid("a part is encoded; only plain bytes are allowed"));
    }
    if (!same_word(name, "content-disposition")) continue;
    if (part) return fail(Error::invalid("a part has two Content-Disposition lines"));
    TRY_ASSIGN(part, parse_disposition(line.substr(colon + 1)));
  }
  if (!part) return fail(Error::invalid("a part has no Content-Disposition"));
  buffer_.erase(0, end + 4);
  state_ = State::kBody;
  Event event{.kind = Event::Kind::kPart};
  event.part = std::move(*part);
  return event;
}

Result<MultipartReader::Event> MultipartReader::body() {
  const std::size_t found = buffer_.find(delimiter_);
  if (found == 0) {
    buffer_.erase(0, delimiter_.size());
    state_ = State::kBoundary;
    return Event{.kind = Event::Kind::kPartEnd};
  }
  std::size_t ready = found;
  if (found == std::string::npos) {
    ready = buffer_.size() - std::min(buffer_.size(), delimiter_.size() - 1);
    if (ready == 0) return Event{};
  }
  Event event{.kind = Event::Kind::kData};
  event.data = buffer_.substr(0, ready);
  buffer_.erase(0, ready);
  return event;
}

}  // namespace caisson::api::e2b
