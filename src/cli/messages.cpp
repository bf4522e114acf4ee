#include "cli/messages.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/encoding.h"
#include "cli/commands.h"
#include "cli/escape_filter.h"

namespace caisson::cli {

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

void say(std::string_view sentence) {
  // Names of files and words of a sandbox may be in it.
  write_all(2, "caisson: " + shown(sentence) + "\n");
}

void note(std::string_view sentence) {
  if (::isatty(2) == 1) say(sentence);
}

int say_error(const Error& error) {
  say(error.message());
  return kExitOwnError;
}

std::string shown(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  EscapeFilter filter;
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  // What is left of eight-bit controls and of bytes that are no text.
  std::string safe = filter.filter(out);
  return safe + filter.finish();
}

}  // namespace caisson::cli
