// HostPattern of host_name.h, in a file of its own: programs that judge no patterns need no list of
// public suffixes.
#include <libpsl.h>

#include "base/guards.h"
#include "policy/complain.h"
#include "policy/host_name.h"

namespace caisson::policy {
namespace {

constexpr std::string_view kAllowedPattern =
    "a name (example.com), an IPv4 address, an IPv6 address in brackets, *.NAME for every name "
    "below NAME, or **.NAME for NAME as well";

Error no_pattern(std::string_view text, std::string_view reason) {
  return Error::invalid(quote(text) + " " + std::string(reason));
}

// Of a registry's ("co.uk"). Those that companies name (whose customers' names lie below) are often
// just what somebody means: *.storage.example.com.
bool is_public_suffix(const std::string& name) {
  return ::psl_is_public_suffix2(::psl_builtin(), name.c_str(), PSL_TYPE_ICANN) != 0;
}

}  // namespace

Result<HostPattern> HostPattern::parse(std::string_view text) {
  if ((text == "*" || text == "**") && !guard_off(Guard::kPatternEverything))
    return fail(no_pattern(text,
                           "would be every host; allowed is the hosts that are meant, or for "
                           "every host of the Internet `default: allow-public`"));
  Scope scope = Scope::kExact;
  std::string_view rest = text;
  if (rest.starts_with("*.")) {
    scope = Scope::kBelow;
    rest.remove_prefix(2);
  } else if (rest.starts_with("**.")) {
    scope = Scope::kBelowAndItself;
    rest.remove_prefix(3);
  }
  if (rest.find('*') != std::string_view::npos && !guard_off(Guard::kPatternPlace))
    return fail(no_pattern(text, "has a '*' that is not the whole first label; allowed is " +
                                     std::string(kAllowedPattern)));
  auto host = canonical_host(rest);
  if (!host) {
    if (scope == Scope::kExact) return fail(std::move(host).error());
    return fail(std::move(host).error().with("behind the wildcard of " + quote(text)));
  }
  if (scope == Scope::kExact) return HostPattern(scope, std::move(host).value());
  if (host->is_address())
    return fail(
        no_pattern(text, "is wrong: no names are below an address; allowed is the address alone"));
  if (is_public_suffix(host->name) && !guard_off(Guard::kPatternSuffix))
    return fail(no_pattern(text, "would be names of strangers: anybody can have one below " +
                                     quote(host->name) +
                                     ", a public suffix; allowed is a wildcard on a name below "
                                     "it, or the names that are meant"));
  return HostPattern(scope, std::move(host).value());
}

bool HostPattern::matches(const Host& host) const {
  if (host == host_) return scope_ != Scope::kBelow || guard_off(Guard::kPatternApex);
  return scope_ != Scope::kExact && is_below(host, host_);
}

std::string HostPattern::text() const {
  switch (scope_) {
    case Scope::kExact:
      break;
    case Scope::kBelow:
      return "*." + host_.name;
    case Scope::kBelowAndItself:
      return "**." + host_.name;
  }
  return host_.text();
}

}  // namespace caisson::policy
