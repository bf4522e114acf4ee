#include "policy/syntax.h"

#include <algorithm>

#include "base/encoding.h"
#include "policy/spec.h"

namespace caisson::policy {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_letter(char c) {
  return is_lower(c) || (c >= 'A' && c <= 'Z');
}
bool is_alnum(char c) {
  return is_letter(c) || is_digit(c);
}

bool is_id(std::string_view text) {
  if (text.empty() || text.size() > 5 || !std::all_of(text.begin(), text.end(), is_digit)) {
    return false;
  }
  // One text for each id, and no doubt whether 010 is eight or ten.
  if (text.size() > 1 && text[0] == '0') return false;
  std::uint32_t value = 0;
  for (const char c : text) value = value * 10 + static_cast<std::uint32_t>(c - '0');
  return value <= kMaxId;
}

bool is_account_name(std::string_view text) {
  return !text.empty() && text.size() <= 32 && (is_letter(text[0]) || text[0] == '_') &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.'; });
}

// Lower-case letters, digits and `._-`, with a letter or digit at both ends.
bool is_image_component(std::string_view text) {
  const auto edge = [](char c) { return is_lower(c) || is_digit(c); };
  return !text.empty() && edge(text.front()) && edge(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return edge(c) || c == '.' || c == '_' || c == '-'; });
}

bool is_tag(std::string_view text) {
  return !text.empty() && text.size() <= 128 && (is_alnum(text[0]) || text[0] == '_') &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_image(std::string_view image) {
  if (image.empty() || image.size() > 255) return false;
  if (const auto at = image.find('@'); at != std::string_view::npos) {
    const std::string_view digest = image.substr(at + 1);
    constexpr std::string_view kPrefix = "sha256:";
    if (!digest.starts_with(kPrefix)) return false;
    const std::string_view hex = digest.substr(kPrefix.size());
    if (hex.size() != 64 || !std::all_of(hex.begin(), hex.end(), [](char c) {
          return is_digit(c) || (c >= 'a' && c <= 'f');
        })) {
      return false;
    }
    image = image.substr(0, at);
  }
  const auto slash = image.rfind('/');
  if (const auto colon = image.rfind(':');
      colon != std::string_view::npos && (slash == std::string_view::npos || colon > slash)) {
    if (!is_tag(image.substr(colon + 1))) return false;
    image = image.substr(0, colon);
  }
  bool first = true;
  while (true) {
    const auto end = image.find('/');
    std::string_view component = image.substr(0, end);
    if (first && end != std::string_view::npos) {
      if (const auto colon = component.find(':'); colon != std::string_view::npos) {
        const std::string_view port = component.substr(colon + 1);
        if (!is_id(port) || port == "0") return false;
        component = component.substr(0, colon);
      }
    }
    if (!is_image_component(component)) return false;
    if (end == std::string_view::npos) return true;
    image.remove_prefix(end + 1);
    first = false;
  }
}

}  // namespace

std::string_view hostname_fault(std::string_view hostname) {
  constexpr std::string_view kAllowed =
      "a host name: at most 63 letters, digits, dashes and dots, each label beginning and ending "
      "with a letter or digit";
  if (hostname.empty() || hostname.size() > 63) return kAllowed;
  while (true) {
    const auto end = hostname.find('.');
    const std::string_view label = hostname.substr(0, end);
    if (label.empty() || !is_alnum(label.front()) || !is_alnum(label.back()) ||
        !std::all_of(label.begin(), label.end(), [](char c) { return is_alnum(c) || c == '-'; })) {
      return kAllowed;
    }
    if (end == std::string_view::npos) return "";
    hostname.remove_prefix(end + 1);
  }
}

std::string_view user_fault(std::string_view user) {
  const auto colon = user.find(':');
  const std::string_view name = user.substr(0, colon);
  const auto good = [](std::string_view part) { return is_id(part) || is_account_name(part); };
  if (good(name) && (colon == std::string_view::npos || good(user.substr(colon + 1)))) return "";
  return "NAME or UID, then :GROUP or :GID if wanted (names of at most 32 letters, digits, '_', "
         "'-' and '.'; ids from 0 to 65535)";
}

std::string_view image_fault(std::string_view image) {
  if (is_image(image)) return "";
  return "host, NAME or NAME:TAG (lower-case letters, digits, '.', '_', '-' and '/'), or a "
         "registry's reference";
}

std::string_view registry_fault(std::string_view registry) {
  constexpr std::string_view kAllowed =
      "HOST or HOST:PORT (lower-case letters, digits, '-' and '.'; ports from 1 to 65535)";
  const auto colon = registry.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view port = registry.substr(colon + 1);
    if (!is_id(port) || port == "0") return kAllowed;
  }
  const std::string_view host = registry.substr(0, colon);
  const bool good = is_image_component(host) && host.find('_') == std::string_view::npos &&
                    host.find("..") == std::string_view::npos;
  return good ? "" : kAllowed;
}

std::string_view env_name_fault(std::string_view name) {
  if (name.empty()) return "a name that is not empty";
  if (name.find('=') != std::string_view::npos) return "a name without '='";
  if (name.find('\0') != std::string_view::npos) return "a name without a NUL byte";
  if (!is_utf8(name)) return "a name in UTF-8";
  if (name.size() > 4096) return "a name of at most 4096 bytes";
  return "";
}

}  // namespace caisson::policy
