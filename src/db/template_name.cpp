#include "db/template_name.h"

#include "db/text.h"

namespace caisson::db {
namespace {

constexpr std::size_t kMaxPart = 128;
constexpr std::string_view kPartAllowed = "1 to 128 of a-z, 0-9, - and _";

bool is_part(std::string_view text, std::string_view also) {
  if (text.empty() || text.size() > kMaxPart) return false;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || also.find(c) != also.npos;
    if (!plain) return false;
  }
  return true;
}

std::unexpected<Error> refuse(std::string_view what, std::string_view found,
                              std::string_view allowed) {
  return fail(Error::invalid(std::string(what) + ": found " + quoted(found) + "; allowed is " +
                             std::string(allowed)));
}

}  // namespace

Status check_template_tag(std::string_view tag) {
  if (is_part(tag, "-_.")) return {};
  return refuse("tag", tag, "1 to 128 of a-z, 0-9, -, _ and .");
}

Status check_template_name(std::string_view name) {
  if (is_part(name, "-_")) return {};
  return refuse("template", name, kPartAllowed);
}

Result<TemplateReference> parse_template_reference(std::string_view text) {
  TemplateReference reference;
  std::string_view rest = text;
  if (const std::size_t colon = rest.find(':'); colon != rest.npos) {
    reference.tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    TRY(check_template_tag(reference.tag));
  } else {
    reference.tag = kDefaultTag;
  }
  if (const std::size_t slash = rest.find('/'); slash != rest.npos) {
    reference.space = rest.substr(0, slash);
    rest = rest.substr(slash + 1);
    if (!is_part(reference.space, "-_")) {
      return refuse("template", text,
                    "[NAMESPACE/]NAME[:TAG], a namespace being " + std::string(kPartAllowed));
    }
  }
  if (!is_part(rest, "-_")) {
    return refuse("template", text,
                  "[NAMESPACE/]NAME[:TAG], a name being " + std::string(kPartAllowed));
  }
  reference.name = rest;
  return reference;
}

}  // namespace caisson::db
