// libraries: secrets policy http base
// parser: src/egress/secrets/substitute.cpp src/egress/secrets/secret_rules.cpp
// parser: src/egress/secrets/form_search.cpp
//
// Secrets put into requests: a value goes to its hosts alone and over TLS alone, no placeholder is
// in what is sent, and a request without one is sent as it came. The first byte says where it goes
// and how; then METHOD TARGET, lines of headers, an empty line, the body. The bytes 1 to 31 stand
// for placeholders and their forms.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/encoding.h"
#include "base/error.h"
#include "egress/secrets/substitute.h"
#include "http/text.h"
#include "policy/url_path.h"
#include "secret_forms.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT
using Kind = policy::SecretPlace::Kind;
using Half = policy::SecretPlace::Half;

constexpr std::string_view kHosts[] = {"a.example.com", "b.example.com", "c.example.com",
                                       "d.example.com"};

SecretEntry entry(std::string name, std::string host, std::string value) {
  SecretEntry made;
  made.placeholder = "a-placeholder-" + name;
  made.rule.name = std::move(name);
  made.rule.source = {.kind = policy::SecretSource::Kind::kEnv, .text = "A"};
  made.rule.hosts = {std::move(host)};
  made.value = std::make_shared<const SecretValue>(value);
  return made;
}

std::vector<policy::SecretPlace> every_place() {
  return {{Kind::kHeader, "*", Half::kAny}, {Kind::kHeader, "cookie", Half::kAny},
          {Kind::kBasic, "", Half::kAny},   {Kind::kQuery, "k", Half::kAny},
          {Kind::kPath, "", Half::kAny},    {Kind::kJson, "/k", Half::kAny},
          {Kind::kForm, "k", Half::kAny}};
}

struct Setting {
  Setting() {
    std::vector<SecretEntry> entries = {
        entry("usual", std::string(kHosts[0]), "Usual-Value-0001"),
        entry("every", std::string(kHosts[0]), "Every \"Value\"/&%é=+\\2"),
        entry("elsewhere", std::string(kHosts[1]), "Elsewhere-Value-3"),
        entry("revoked", std::string(kHosts[0]), "Revoked-Value-004"),
        entry("set", std::string(kHosts[2]), "Set-By-Us-Value-5"),
        entry("gone", std::string(kHosts[0]), "Gone-Value-000006")};
    entries[0].rule.passthrough = {std::string(kHosts[3])};
    entries[1].rule.in = entries[2].rule.in = entries[3].rule.in = every_place();
    entries[1].rule.max_occurrences = 64;
    entries[3].revoked = true;
    entries[4].rule.inject = policy::SecretInjection{"X-Set", "Key "};
    entries[5].old_values = {std::exchange(entries[5].value, nullptr)};
    texts.resize(32);
    std::size_t at = 1;
    const auto add = [&](std::string text) {
      while (at == '\t' || at == '\n' || at == '\r') ++at;
      if (at < texts.size()) texts[at++] = std::move(text);
    };
    for (const SecretEntry& each : entries) {
      placeholders.push_back(fuzz::forms_of(each.placeholder));
      values.push_back(each.value ? fuzz::forms_of(each.value->bytes())
                                  : std::vector<std::string>());
      add(each.placeholder);
      add("Basic " + base64_encode(each.placeholder + ":" + each.placeholder));
    }
    for (std::size_t form = 1; form < placeholders[1].size(); ++form) add(placeholders[1][form]);
    rules = SecretRules::create(std::move(entries)).value();
  }
  std::shared_ptr<const SecretRules> rules;
  std::vector<std::vector<std::string>> placeholders, values;
  std::vector<std::string> texts;
};

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// nullopt: a codec would not have let it come this far.
std::optional<OutgoingRequest> request_of(unsigned char how, std::string_view text) {
  OutgoingRequest made;
  made.host = policy::canonical_host(kHosts[how & 3]).value();
  made.channel = (how & 4) == 0 ? Channel::kVerifiedTls : Channel::kPlaintext;
  const std::string_view first = take_line(text);
  const std::size_t space = std::min(first.find(' '), first.size());
  made.head.method = first.substr(0, space);
  const auto target = policy::canonical_target(first.substr(std::min(space + 1, first.size())));
  if (!http::is_token(made.head.method) || !target) return std::nullopt;
  made.head.target = target->text();
  for (std::string_view line = take_line(text); !line.empty(); line = take_line(text)) {
    const auto header = http::parse_header_line(line);
    if (!header) return std::nullopt;
    made.head.headers.add(header->name, header->value);
  }
  if ((how & 8) != 0) made.body = std::string(text);
  return made;
}

std::vector<std::string_view> parts_of(const http::RequestHead& head,
                                       const std::optional<std::string>& body) {
  std::vector<std::string_view> parts = {head.method, head.target};
  for (const auto& [name, value] : head.headers.all()) {
    parts.emplace_back(name);
    parts.emplace_back(value);
  }
  if (body) parts.emplace_back(*body);
  return parts;
}

bool has_any(const std::vector<std::string_view>& parts, const std::vector<std::string>& forms) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return fuzz::has_form(part, forms); });
}

void check_violation(const Setting& setting, const SecretViolation& violation) {
  VERIFY(std::ranges::any_of(setting.rules->all(), [&](const Secret& secret) {
    return secret.name() == violation.secret;
  }));
  VERIFY(!violation.where.empty() && violation.where.size() < 300 && !violation.sentence().empty());
  VERIFY(!to_string(violation.fault).empty());
}

void check_sent(const Setting& setting, const OutgoingRequest& request,
                const PreparedRequest& sent) {
  const auto before = parts_of(request.head, request.body);
  const auto after = parts_of(sent.head, sent.body);
  const auto& all = setting.rules->all();
  std::size_t used = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool may = all[i].serves(request.host) && !all[i].revoked() &&
                     request.channel == Channel::kVerifiedTls;
    if (!may) VERIFY(!has_any(after, setting.values[i]) || has_any(before, setting.values[i]));
    if (!all[i].passes(request.host)) VERIFY(!has_any(after, setting.placeholders[i]));
    std::size_t count = 0;
    for (const SecretUse& use : sent.used) {
      if (use.secret == all[i].name()) count += use.count;
    }
    VERIFY(count <= all[i].max_occurrences() && (may || count == 0));
    used += count;
  }
  VERIFY(!sent.head.headers.has("proxy-authorization"));
  if (used > 0) {
    VERIFY(sent.head.headers.joined("accept-encoding") == "identity");
    VERIFY(sent.head.method != "TRACE");
    const auto target = policy::canonical_target(sent.head.target);
    VERIFY(target.has_value() && target->text() == sent.head.target);
    return;
  }
  http::RequestHead same = request.head;
  same.headers.remove("proxy-authorization");
  if (sent.body) {
    same.headers.remove("transfer-encoding");
    same.headers.set("Content-Length", std::to_string(sent.body->size()));
  }
  VERIFY(same.headers.all() == sent.head.headers.all() && same.target == sent.head.target &&
         same.method == sent.head.method && request.body == sent.body);
}

// Everything that came through, or why not. With a pause behind each piece, or without.
enum class Pauses : bool { kNone, kMany };
Judged<std::string> checked(const Setting& setting, const OutgoingRequest& request,
                            std::string_view body, std::size_t most,
                            Pauses pauses = Pauses::kNone) {
  LeakCheck check(setting.rules, request.host, request.channel);
  std::string sent;
  while (!body.empty()) {
    const auto out = check.feed(body.substr(0, most));
    if (!out) {
      VERIFY(check.finish() == out);
      return out;
    }
    sent += *out;
    if (pauses == Pauses::kMany) sent += check.pause();
    body.remove_prefix(std::min(most, body.size()));
  }
  const auto out = check.finish();
  if (!out) return out;
  return sent + *out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Setting setting;
  if (size == 0) return 0;
  const std::string text = fuzz::written_out(
      {reinterpret_cast<const char*>(data) + 1, std::min<std::size_t>(size - 1, 4096)},
      setting.texts);
  const auto request = request_of(data[0], text);
  if (!request) return 0;

  const auto need = body_need(*setting.rules, request->host, request->head);
  if (!need) check_violation(setting, need.error());
  const auto sent = prepare_request(*setting.rules, *request);
  if (sent) {
    check_sent(setting, *request, *sent);
  } else {
    check_violation(setting, sent.error());
  }
  if (!request->body) return 0;
  const auto whole = checked(setting, *request, *request->body, text.size() + 1);
  const auto bytewise = checked(setting, *request, *request->body, 1);
  VERIFY(whole.has_value() == bytewise.has_value());
  for (const std::size_t most : {std::size_t{1}, std::size_t{5}})
    VERIFY(checked(setting, *request, *request->body, most, Pauses::kMany) == whole);
  if (whole) {
    VERIFY(*whole == *request->body && *bytewise == *whole);
    for (std::size_t i = 0; i < setting.placeholders.size(); ++i) {
      if (!setting.rules->all()[i].passes(request->host))
        VERIFY(!fuzz::has_form(*whole, setting.placeholders[i]));
    }
  } else {
    check_violation(setting, whole.error());
  }
  return 0;
}
