#include "base/json.h"

#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/src.hpp>
#include <charconv>
#include <cmath>
#include <set>

#include "base/encoding.h"

namespace caisson::json {
namespace {

namespace bj = boost::json;

std::string place_of(std::string_view text, std::size_t offset) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i < offset && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// Builds the value from the parser's events. A refusal of our own is kept in `refusal` and told to
// the parser as its generic error.
class Builder {
  enum class Nest { kArray, kObject };

 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);

  explicit Builder(std::size_t values_allowed)
      : values_allowed_(values_allowed), values_left_(values_allowed) {}

  std::string refusal;
  Value take() { return std::move(root_); }

  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }
  bool on_array_begin(bj::error_code& ec) { return open(Nest::kArray, ec); }
  bool on_array_end(std::size_t, bj::error_code&) { return close(); }
  bool on_object_begin(bj::error_code& ec) { return open(Nest::kObject, ec); }
  bool on_object_end(std::size_t, bj::error_code&) { return close(); }
  bool on_string_part(bj::string_view s, std::size_t, bj::error_code&) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool on_string(bj::string_view s, std::size_t, bj::error_code& ec) {
    text_.append(s.data(), s.size());
    return add(Value(std::exchange(text_, {})), ec);
  }
  bool on_key_part(bj::string_view s, std::size_t, bj::error_code&) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool on_key(bj::string_view s, std::size_t, bj::error_code& ec) {
    text_.append(s.data(), s.size());
    Frame& frame = frames_.back();
    frame.key = std::exchange(text_, {});
    if (!frame.keys.insert(frame.key).second) {
      return refuse(path() + ": found the key twice; allowed is once", ec);
    }
    return true;
  }
  bool on_number_part(bj::string_view s, bj::error_code&) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool on_int64(std::int64_t i, bj::string_view, bj::error_code& ec) {
    text_.clear();
    return add(i, ec);
  }
  bool on_uint64(std::uint64_t u, bj::string_view, bj::error_code& ec) {
    text_.clear();
    return add(u, ec);
  }
  bool on_double(double, bj::string_view s, bj::error_code& ec) {
    // The parser's own value can be off by the last digit: this one is the nearest.
    text_.append(s.data(), s.size());
    const std::string digits = std::exchange(text_, {});
    double value = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) {
      return refuse(path() + ": found a number out of range; allowed are those of a double", ec);
    }
    return add(value, ec);
  }
  bool on_bool(bool b, bj::error_code& ec) { return add(b, ec); }
  bool on_null(bj::error_code& ec) { return add(nullptr, ec); }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }

 private:
  struct Frame {
    Nest nest;
    Value::Array items;
    Value::Object members;
    std::string key;
    std::set<std::string> keys;
  };

  bool refuse(std::string why, bj::error_code& ec) {
    refusal = std::move(why);
    ec = bj::error::exception;
    return false;
  }

  std::string path() const {
    std::string out;
    for (const Frame& frame : frames_) {
      if (frame.nest == Nest::kArray) {
        out += "[" + std::to_string(frame.items.size()) + "]";
        continue;
      }
      if (!out.empty()) out += ".";
      // Only so much of a key as a message can bear, without control characters.
      for (const char c : std::string_view(frame.key).substr(0, 64)) {
        out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
      }
    }
    return out;
  }

  bool count(bj::error_code& ec) {
    if (values_left_ == 0) {
      return refuse("found more than " + std::to_string(values_allowed_) +
                        " values; allowed are at most so many",
                    ec);
    }
    --values_left_;
    return true;
  }

  bool open(Nest nest, bj::error_code& ec) {
    if (!count(ec)) return false;
    frames_.push_back({nest, {}, {}, {}, {}});
    return true;
  }

  bool close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    place(frame.nest == Nest::kArray ? Value(std::move(frame.items))
                                     : Value(std::move(frame.members)));
    return true;
  }

  bool add(Value value, bj::error_code& ec) {
    if (!count(ec)) return false;
    place(std::move(value));
    return true;
  }

  void place(Value value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.nest == Nest::kArray) {
      frame.items.push_back(std::move(value));
    } else {
      frame.members.push_back({std::move(frame.key), std::move(value)});
    }
  }

  std::vector<Frame> frames_;
  std::string text_;
  Value root_;
  std::size_t values_allowed_;
  std::size_t values_left_;
};

void write_string(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const std::size_t good = utf8_prefix(text);
    for (const char c : text.substr(0, good)) {
      switch (c) {
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        case '\n':
          out += "\\n";
          break;
        case '\r':
          out += "\\r";
          break;
        case '\t':
          out += "\\t";
          break;
        default:
          if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            constexpr std::string_view kHex = "0123456789abcdef";
            out += "\\u00";
            out += kHex[static_cast<unsigned char>(c) >> 4];
            out += kHex[static_cast<unsigned char>(c) & 15];
          } else {
            out += c;
          }
      }
    }
    text.remove_prefix(good);
    if (!text.empty()) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    }
  }
  out += '"';
}

void write_double(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  const std::string_view digits(buffer.data(), end.ptr);
  out += digits;
  // So that it is read back as the same kind of number.
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void write(const Value& value, Layout layout, std::size_t indent, std::string& out) {
  const auto new_line = [&](std::size_t depth) {
    if (layout == Layout::kPretty) out.append("\n").append(depth * 2, ' ');
  };
  switch (value.kind()) {
    case Value::Kind::kNull:
      out += "null";
      return;
    case Value::Kind::kBool:
      out += *value.as_bool() ? "true" : "false";
      return;
    case Value::Kind::kInteger:
      out += std::to_string(*value.as_integer());
      return;
    case Value::Kind::kUnsigned:
      out += std::to_string(*value.as_unsigned());
      return;
    case Value::Kind::kDouble:
      write_double(*value.as_double(), out);
      return;
    case Value::Kind::kString:
      write_string(*value.as_string(), out);
      return;
    case Value::Kind::kArray: {
      out += '[';
      bool first = true;
      for (const Value& item : *value.as_array()) {
        if (!std::exchange(first, false)) out += ',';
        new_line(indent + 1);
        write(item, layout, indent + 1, out);
      }
      if (!first) new_line(indent);
      out += ']';
      return;
    }
    case Value::Kind::kObject: {
      out += '{';
      bool first = true;
      for (const Member& member : *value.as_object()) {
        if (!std::exchange(first, false)) out += ',';
        new_line(indent + 1);
        write_string(member.key, out);
        out += layout == Layout::kPretty ? ": " : ":";
        write(member.value, layout, indent + 1, out);
      }
      if (!first) new_line(indent);
      out += '}';
      return;
    }
  }
}

}  // namespace

Value::Value() = default;
Value::Value(std::nullptr_t) {}
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;
Value::Value(Truth truth) : data_(truth.value) {}
Value::Value(Bits number) {
  if (number.fits_signed) {
    data_ = static_cast<std::int64_t>(number.bits);
  } else {
    data_ = number.bits;
  }
}
Value::Value(double value) : data_(value) {}
Value::Value(std::string value) : data_(std::move(value)) {}
Value::Value(std::string_view value) : data_(std::string(value)) {}
Value::Value(const char* value) : data_(std::string(value)) {}
Value::Value(Array items) : data_(std::move(items)) {}
Value::Value(Object members) : data_(std::move(members)) {}

Value Value::array() {
  return Array();
}
Value Value::object() {
  return Object();
}

const Value* Value::find(std::string_view key) const {
  if (const Object* members = as_object()) {
    for (const Member& member : *members) {
      if (member.key == key) return &member.value;
    }
  }
  return nullptr;
}

Value& Value::push(Value item) {
  VERIFY(kind() == Kind::kArray);
  std::get<Array>(data_).push_back(std::move(item));
  return *this;
}

Value& Value::set(std::string_view key, Value value) {
  VERIFY(kind() == Kind::kObject);
  auto& members = std::get<Object>(data_);
  for (Member& member : members) {
    if (member.key == key) {
      member.value = std::move(value);
      return *this;
    }
  }
  members.push_back({std::string(key), std::move(value)});
  return *this;
}

bool Value::operator==(const Value&) const = default;

Result<Value> parse(std::string_view text, const ParseLimits& limits) {
  if (text.size() > limits.bytes) {
    return fail(Error::invalid("found " + std::to_string(text.size()) +
                               " bytes of JSON; allowed are at most " +
                               std::to_string(limits.bytes)));
  }
  bj::parse_options options;
  options.max_depth = limits.depth;
  bj::basic_parser<Builder> parser(options, limits.values);
  bj::error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  std::string_view found;
  if (!ec) {
    if (used == text.size()) return parser.handler().take();
    found = "something behind the end of the JSON text";
  } else if (!parser.handler().refusal.empty()) {
    return fail(Error::invalid(parser.handler().refusal));
  } else if (ec == bj::error::too_deep) {
    return fail(Error::invalid(place_of(text, used) + ": found JSON nested deeper than " +
                               std::to_string(limits.depth) +
                               " levels; allowed are at most so many"));
  } else if (ec == bj::error::incomplete) {
    found = "an incomplete JSON text";
  } else {
    found = "broken JSON";
  }
  std::string message = place_of(text, used) + ": found ";
  message += found;
  if (ec) message += " (" + ec.message() + ")";
  message += "; allowed is one JSON value";
  return fail(Error::invalid(std::move(message)));
}

std::string serialize(const Value& value, Layout layout) {
  std::string out;
  write(value, layout, 0, out);
  return out;
}

}  // namespace caisson::json
