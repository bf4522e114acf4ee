#include "image/reference.h"

#include <algorithm>

#include "base/sha256.h"
#include "policy/syntax.h"

namespace caisson::image {
namespace {

constexpr std::string_view kDigestPrefix = "sha256:";

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

// Whether the first of several components is a registry and no part of a short name.
bool names_registry(std::string_view component) {
  return component == "localhost" || component.find_first_of(".:") != std::string_view::npos;
}

// Where the tag's colon is: behind the last '/', for a registry's port is before it.
std::size_t tag_colon(std::string_view text) {
  const std::size_t slash = text.rfind('/');
  const std::size_t from = slash == std::string_view::npos ? 0 : slash + 1;
  return text.find(':', from);
}

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameSize) return false;
  const std::size_t first = name.find('/');
  if (first != std::string_view::npos && names_registry(name.substr(0, first))) {
    if (!is_registry_name(name.substr(0, first))) return false;
    name.remove_prefix(first + 1);
  }
  for (std::string_view rest = name;;) {
    const std::size_t slash = rest.find('/');
    if (!is_component(rest.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    rest.remove_prefix(slash + 1);
  }
}

Error bad_name(std::string_view name) {
  return Error::invalid(
      "image name '" + printable(name) +
      "': allowed are lower-case letters, digits, '.', '_', '-', with '/' between parts that begin "
      "and end with a letter or digit, a registry's HOST or HOST:PORT as the first of them, at "
      "most " +
      std::to_string(kMaxNameSize) + " characters");
}

Error bad_tag(std::string_view tag, std::string_view name) {
  return Error::invalid("image tag '" + printable(tag) + "' of '" + printable(name) +
                        "': allowed are letters, digits, '_', '.', '-', not beginning with '.' or "
                        "'-', 1 to " +
                        std::to_string(kMaxTagSize) + " characters");
}

}  // namespace

bool is_registry_name(std::string_view text) {
  return policy::registry_fault(text).empty();
}

std::string_view Reference::registry() const {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return {};
  const std::string_view first = std::string_view(name).substr(0, slash);
  return names_registry(first) ? first : std::string_view();
}

std::string_view Reference::repository() const {
  const std::string_view host = registry();
  return host.empty() ? std::string_view(name) : std::string_view(name).substr(host.size() + 1);
}

std::string Reference::selector() const {
  return digest.empty() ? tag : std::string(kDigestPrefix) + digest;
}

std::string Reference::text() const {
  std::string text = name;
  if (!tag.empty()) text += ":" + tag;
  if (!digest.empty()) text += "@" + std::string(kDigestPrefix) + digest;
  return text;
}

std::string Reference::file_name() const {
  // '%' and '@' are in no alphabet, and a name's own ':' is escaped, so this is one to one.
  std::string escaped;
  for (char c : name) {
    if (c == '/') {
      escaped += "%2f";
    } else if (c == ':') {
      escaped += "%3a";
    } else {
      escaped += c;
    }
  }
  if (!tag.empty()) escaped += ":" + tag;
  if (!digest.empty()) escaped += "@" + digest;
  return escaped;
}

Result<Reference> parse_reference(std::string_view text) {
  Reference reference;
  std::string_view rest = text;
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    std::string_view digest = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!digest.starts_with(kDigestPrefix) || !is_sha256(digest.substr(kDigestPrefix.size()))) {
      return fail(Error::invalid("image digest '" + printable(digest) + "' of '" + printable(rest) +
                                 "': allowed is \"sha256:\" and 64 hexadecimal digits"));
    }
    reference.digest = digest.substr(kDigestPrefix.size());
  }
  const std::size_t colon = tag_colon(rest);
  const std::string_view name = rest.substr(0, colon);
  if (!is_name(name)) return fail(bad_name(name));
  if (name == kHostImage) {
    return fail(Error::invalid(
        "image name 'host' is taken: it means the read-only view of this host's own /usr"));
  }
  reference.name = name;
  if (colon != std::string_view::npos) {
    const std::string_view tag = rest.substr(colon + 1);
    if (!is_tag(tag)) return fail(bad_tag(tag, name));
    reference.tag = tag;
  } else if (!reference.digest.empty()) {
    reference.tag.clear();
  }
  if (reference.file_name().size() > kMaxReferenceFileName) {
    return fail(Error::invalid("image name '" + printable(text) +
                               "': name, tag and digest together are too long for the store; "
                               "allowed are " +
                               std::to_string(kMaxReferenceFileName) +
                               " characters, where each '/' and a port's ':' counts as three"));
  }
  return reference;
}

Result<Reference> parse_reference_file_name(std::string_view file_name) {
  std::string text(file_name.substr(0, file_name.find('@')));
  for (const auto& [escape, character] : {std::pair("%2f", "/"), std::pair("%3a", ":")}) {
    for (std::size_t at = 0; (at = text.find(escape, at)) != std::string::npos;) {
      text.replace(at, 3, character);
    }
  }
  if (const std::size_t at = file_name.find('@'); at != std::string_view::npos) {
    text += "@" + std::string(kDigestPrefix) + std::string(file_name.substr(at + 1));
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
