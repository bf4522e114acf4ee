#include "image/reference.h"

#include <algorithm>

namespace caisson::image {
namespace {

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_component(std::string_view text) {
  if (text.empty() || !is_lower_or_digit(text.front()) || !is_lower_or_digit(text.back())) {
    return false;
  }
  return std::ranges::all_of(
      text, [](char c) { return is_lower_or_digit(c) || c == '.' || c == '_' || c == '-'; });
}

bool is_tag(std::string_view text) {
  if (text.empty() || text.size() > kMaxTagSize || text.front() == '.' || text.front() == '-') {
    return false;
  }
  return std::ranges::all_of(text, [](char c) {
    return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

std::string Reference::file_name() const {
  // '%' is in neither alphabet, so this is one to one.
  std::string escaped;
  for (char c : name) {
    if (c == '/') {
      escaped += "%2f";
    } else {
      escaped += c;
    }
  }
  return escaped + ":" + tag;
}

Result<Reference> parse_reference(std::string_view text) {
  Reference reference;
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  bool good = !name.empty() && name.size() <= kMaxNameSize;
  for (std::string_view rest = name; good;) {
    const std::size_t slash = rest.find('/');
    good = is_component(rest.substr(0, slash));
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  if (!good) {
    return fail(Error::invalid("image name '" + printable(name) +
                               "': allowed are lower-case letters, digits, '.', '_', '-', with '/' "
                               "between parts that begin and end with a letter or digit, at most " +
                               std::to_string(kMaxNameSize) + " characters"));
  }
  if (name == kHostImage) {
    return fail(Error::invalid(
        "image name 'host' is taken: it means the read-only view of this host's own /usr"));
  }
  reference.name = name;
  if (colon != std::string_view::npos) {
    const std::string_view tag = text.substr(colon + 1);
    if (!is_tag(tag)) {
      return fail(Error::invalid("image tag '" + printable(tag) + "' of '" + reference.name +
                                 "': allowed are letters, digits, '_', '.', '-', not beginning "
                                 "with '.' or '-', 1 to " +
                                 std::to_string(kMaxTagSize) + " characters"));
    }
    reference.tag = tag;
  }
  return reference;
}

Result<Reference> parse_reference_file_name(std::string_view file_name) {
  std::string text(file_name);
  for (std::size_t at = 0; (at = text.find("%2f", at)) != std::string::npos;) {
    text.replace(at, 3, "/");
  }
  TRY_ASSIGN(Reference reference, parse_reference(text));
  if (reference.file_name() != file_name) {
    return fail(Error::invalid("'" + printable(file_name) + "' is no reference of this store"));
  }
  return reference;
}

std::string printable(std::string_view bytes, std::size_t limit) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (char c : bytes) {
    if (text.size() >= limit) return text + "...";
    if (c >= 0x20 && c < 0x7f && c != '\\') {
      text += c;
    } else {
      text += "\\x";
      text += kDigits[(static_cast<unsigned char>(c) >> 4) & 15];
      text += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return text;
}

}  // namespace caisson::image
