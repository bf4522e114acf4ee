// libraries: secrets policy http base
// parser: src/egress/secrets/scrub.cpp src/egress/secrets/decoding.cpp
//
// Secrets taken out of answers: no form of a value comes through, an answer without one passes as
// it is, and where it is cut into pieces makes no difference. The bytes 1 to 31 stand for values
// and their forms.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/encoding.h"
#include "base/error.h"
#include "egress/secrets/decoding.h"
#include "egress/secrets/scrub.h"
#include "http/text.h"
#include "secret_forms.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT

constexpr std::string_view kSame = "v1-Aq3/Zk9~pX+";
constexpr std::string_view kSamePlaceholder = "p1.placeholder";
constexpr std::string_view kShort = "correct horse";
constexpr std::string_view kShortPlaceholder = "p2.a.longer.placeholder";
// Another of the first one's, which goes on.
constexpr std::string_view kLonger = "v1-Aq3/Zk9~pX+and.more";

SecretEntry entry(std::string name, std::string_view placeholder, std::string_view value) {
  SecretEntry made;
  made.rule.name = std::move(name);
  made.rule.source = {.kind = policy::SecretSource::Kind::kEnv, .text = "A"};
  made.rule.hosts = {"a.example.com"};
  made.placeholder = placeholder;
  // One that fills up a short placeholder.
  made.placeholder.resize(std::max<std::size_t>(made.placeholder.size(), 16), '.');
  std::string padded(value);
  if (placeholder == kSamePlaceholder) padded += "!!";
  made.value = std::make_shared<const SecretValue>(padded);
  return made;
}

struct Setting {
  Setting() {
    std::vector<SecretEntry> entries = {entry("same", kSamePlaceholder, kSame),
                                        entry("short", kShortPlaceholder, kShort),
                                        entry("longer", "p3.placeholder.of.22.b", kLonger)};
    texts.resize(32);
    std::size_t at = 1;
    for (const SecretEntry& each : entries) {
      forms.push_back(fuzz::forms_of(each.value->bytes()));
      for (const std::string& form : forms.back()) {
        while (at == '\t' || at == '\n' || at == '\r') ++at;
        if (at < texts.size()) texts[at++] = form;
      }
    }
    rules = SecretRules::create(std::move(entries)).value();
  }
  std::shared_ptr<const SecretRules> rules;
  std::vector<std::vector<std::string>> forms;
  std::vector<std::string> texts;
};

std::optional<std::string> scrubbed(const Setting& setting, std::string_view body,
                                    std::size_t most) {
  AnswerScrub scrub(setting.rules);
  std::string got;
  while (!body.empty()) {
    const auto out = scrub.body(body.substr(0, most));
    if (!out) {
      VERIFY(scrub.cause().has_value() && !scrub.end().has_value());
      return std::nullopt;
    }
    got += *out;
    body.remove_prefix(std::min(most, body.size()));
  }
  const auto out = scrub.end();
  if (!out) return std::nullopt;
  return got + *out;
}

// With a pause behind each piece: as without, or broken off with no value out.
void check_pauses(const Setting& setting, std::string_view body, std::size_t most,
                  const std::optional<std::string>& whole) {
  AnswerScrub scrub(setting.rules);
  std::string got;
  bool broken = false;
  while (!body.empty() && !broken) {
    const auto out = scrub.body(body.substr(0, most));
    broken = !out.has_value();
    if (broken) break;
    got += *out + scrub.pause();
    body.remove_prefix(std::min(most, body.size()));
  }
  const auto last = scrub.end();
  VERIFY(!broken || !last.has_value());
  if (last) VERIFY(got + *last == whole);
  for (const auto& forms : setting.forms) VERIFY(!fuzz::has_form(got, forms));
}

void check_clean(const Setting& setting, std::string_view text) {
  for (const auto& forms : setting.forms) VERIFY(!fuzz::has_form(text, forms));
}

bool is_found(const Setting& setting, std::string_view text) {
  FormSearch search(setting.rules->values());
  search.feed(text);
  search.finish();
  return !search.take().empty();
}

void check_head(const Setting& setting, const std::string& text) {
  if (!http::is_value(text)) return;
  AnswerScrub scrub(setting.rules);
  const auto head = scrub.head({200, text, {{"X-Echo", text}}, 1});
  if (!head) return;
  check_clean(setting, head->reason);
  check_clean(setting, head->headers.get("x-echo").value());
  if (!is_found(setting, text)) VERIFY(head->reason == text && scrub.replaced() == 0);
}

// What each encoding makes of the text says where in it every byte stood, and what is encoded is
// decoded as what it was.
void check_decoding(std::string_view text) {
  for (const Decoding decoding :
       {Decoding::kNone, Decoding::kPercent, Decoding::kJson, Decoding::kJsonDeep,
        Decoding::kBase64, Decoding::kLower, Decoding::kWide}) {
    const DecodedText decoded = decode(text, decoding);
    VERIFY(decoded.begins.size() == decoded.text.size());
    VERIFY(decoded.ends.size() == decoded.text.size());
    for (std::size_t i = 0; i < decoded.text.size(); ++i)
      VERIFY(decoded.begins[i] < decoded.ends[i] && decoded.ends[i] <= text.size());
    if (decoding == Decoding::kNone) VERIFY(decoded.text == text);
  }
  VERIFY(decode(percent_encode(text), Decoding::kPercent).text == text);
  if (is_utf8(text)) VERIFY(decode(json_escape(text), Decoding::kJson).text == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Setting setting;
  const std::string text = fuzz::written_out(
      {reinterpret_cast<const char*>(data), std::min<std::size_t>(size, 1024)}, setting.texts);
  const auto whole = scrubbed(setting, text, text.size() + 1);
  for (const std::size_t most : {std::size_t{1}, std::size_t{7}, text.size() / 2 + 1}) {
    VERIFY(scrubbed(setting, text, most) == whole);
    check_pauses(setting, text, most, whole);
  }
  if (whole) {
    VERIFY(whole->size() == text.size());
    check_clean(setting, *whole);
  }
  if (!is_found(setting, text)) VERIFY(whole == text);
  check_head(setting, text);
  check_decoding(text);
  return 0;
}
