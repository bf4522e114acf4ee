#include "io/log.h"

#include <unistd.h>

#include <array>
#include <chrono>

#include "base/encoding.h"
#include "base/time_text.h"

namespace caisson::io {
namespace {

constexpr std::array<std::string_view, 4> kLevels = {"debug", "info", "warning", "error"};
constexpr std::size_t kMostText = 512;

json::Value cut(json::Value value) {
  const std::string* text = value.as_string();
  if (text == nullptr || text->size() <= kMostText) return value;
  const std::string_view front = std::string_view(*text).substr(0, kMostText);
  // Without the beginning of a character that does not fit; what is no UTF-8 is cut anywhere.
  const std::size_t whole = utf8_prefix(front);
  return std::string(front.substr(0, front.size() - whole < 4 ? whole : front.size())) + "…";
}

}  // namespace

void Log::write(Level level, std::string_view message, std::initializer_list<Field> fields) const {
  if (!writes(level)) return;
  json::Value line = json::Value::object();
  line.set("time", time_text(std::chrono::system_clock::now()));
  line.set("level", kLevels[static_cast<std::size_t>(level)]);
  line.set("message", cut(message));
  for (const Field& field : fields) line.set(field.key, cut(field.value));
  const std::string text = json::serialize(line) + "\n";
  // A log that cannot be written is nothing that a request could be refused for.
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, text.data(), text.size());
}

std::optional<Log::Level> parse_level(std::string_view text) {
  for (std::size_t index = 0; index < kLevels.size(); ++index) {
    if (kLevels[index] == text) return static_cast<Log::Level>(index);
  }
  return std::nullopt;
}

}  // namespace caisson::io
