#include "egress/secrets/scrub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/encoding.h"
#include "egress/secrets/secrets_for_test.h"

namespace caisson::egress {
namespace {

using namespace for_test;  // NOLINT: rules and their parts

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kP(kPlaceholder), kV(kValue);

std::string escaped(std::string_view text, std::string_view before, bool upper = false) {
  std::string out;
  for (const char& c : text) {
    std::string hex = hex_encode(std::string_view(&c, 1));
    if (upper) {
      for (char& digit : hex) digit = static_cast<char>(::toupper(digit));
    }
    out.append(before).append(hex);
  }
  return out;
}

std::string wide(std::string_view text) {
  std::string out;
  for (const char c : text) out.append(1, c).append(1, '\0');
  return out;
}

// What the sandbox gets of a body in these pieces; nullopt: nothing more after what it had.
std::optional<std::string> scrubbed(const std::shared_ptr<const SecretRules>& all,
                                    const std::vector<std::string_view>& pieces) {
  AnswerScrub scrub(all);
  std::string got;
  for (const std::string_view piece : pieces) {
    const auto out = scrub.body(piece);
    if (!out) return std::nullopt;
    got += *out;
  }
  const auto out = scrub.end();
  if (!out) return std::nullopt;
  return got + *out;
}

struct Case {
  std::string name, value;
  std::optional<std::string> placeholder;  // nullopt: the answer is aborted
};

// The value in every form, and what a body has in its place.
std::vector<Case> forms() {
  const std::string part_v = kV.substr(1), part_p = kP.substr(1);
  return {
      {"plain", kV, kP},
      {"percent", escaped(kV, "%"), escaped(kP, "%")},
      {"percent upper", escaped(kV, "%", true), escaped(kP, "%", true)},
      {"percent, one byte", "%67" + part_v, "%67" + part_p},
      {"percent, one byte at the end", kV.substr(0, 35) + "%31", kP.substr(0, 35) + "%31"},
      {"percent twice", "%2567" + part_v, std::nullopt},
      {"json", escaped(kV, "\\u00"), escaped(kP, "\\u00")},
      {"json upper", escaped(kV, "\\u00", true), escaped(kP, "\\u00", true)},
      {"json, one byte", "\\u0067" + part_v, "\\u0067" + part_p},
      {"json twice", "\\\\u0067" + part_v, std::nullopt},
      {"base64", base64_encode(kV), base64_encode(kP)},
      {"base64, one before", base64_encode("x" + kV), std::nullopt},
      {"base64, two before", base64_encode("xy" + kV), std::nullopt},
      {"base64, three before", base64_encode("xyz" + kV), base64_encode("xyz" + kP)},
      {"base64url", base64url_encode("?" + kV), std::nullopt},
      {"base64 in two lines", base64_encode(kV).insert(20, "\r\n"), std::nullopt},
      {"base64 percent-encoded", escaped(base64_encode(kV), "%"), std::nullopt},
      {"hex", hex_encode(kV), hex_encode(kP)},
      {"hex upper", escaped(kV, "", true), escaped(kP, "", true)},
      {"utf-16", wide(kV), std::nullopt},
  };
}

TEST(Scrub, NoFormOfTheValueComesThroughAtAnySplit) {
  const auto all = rules({entry(), other_entry()});
  for (const Case& c : forms()) {
    const std::string body = "{\"you sent\": \"" + c.value + "\"}\n";
    std::optional<std::string> expected;
    if (c.placeholder) expected = "{\"you sent\": \"" + *c.placeholder + "\"}\n";
    for (std::size_t split = 0; split <= body.size(); ++split) {
      const std::string_view text = body;
      EXPECT_EQ(scrubbed(all, {text.substr(0, split), text.substr(split)}), expected)
          << c.name << " " << split;
    }
    std::vector<std::string_view> bytes;
    for (const char& byte : body) bytes.emplace_back(&byte, 1);
    EXPECT_EQ(scrubbed(all, bytes), expected) << c.name;
  }
}

TEST(Scrub, NothingOfTheValueIsOutBeforeAnAbort) {
  const auto all = rules({entry()});
  for (const Case& c : forms()) {
    if (c.placeholder) continue;
    AnswerScrub scrub(all);
    std::string got;
    for (const char& byte : "12345" + c.value + "6") {
      const auto out = scrub.body(std::string_view(&byte, 1));
      if (!out) break;
      got += *out;
    }
    // What was before it, and for base64 a character that is not the value's alone.
    EXPECT_LE(got.size(), 9u) << c.name << " " << got;
    EXPECT_EQ(scrub.body("more"), std::nullopt);
    EXPECT_EQ(scrub.end(), std::nullopt);
    EXPECT_EQ(scrub.cause().value().secret, "gh") << c.name;
  }
}

TEST(Scrub, ReplacesEveryOneAndCounts) {
  AnswerScrub scrub(rules({entry(), other_entry()}));
  const auto out = scrub.body(kV + " and " + std::string(kOtherValue) + " and " + kV + "\n");
  EXPECT_EQ(out, kP + " and " + std::string(kOtherPlaceholder) + " and " + kP + "\n");
  EXPECT_EQ(scrub.replaced(), 3u);
  EXPECT_FALSE(scrub.cause().has_value());
}

TEST(Scrub, EventsPassAsTheyCome) {
  AnswerScrub scrub(rules({entry()}));
  EXPECT_EQ(scrub.body("data: {\"a\": 1}\n\n"), "data: {\"a\": 1}\n\n");
  EXPECT_EQ(scrub.body("data: " + kV + "\n\n"), "data: " + kP + "\n\n");
  EXPECT_EQ(scrub.body(kV), kP);
}

TEST(Scrub, ABodyWhoseLengthWouldChangeIsAborted) {
  SecretEntry made = entry();
  made.placeholder = "ghp_OfAnotherLength0000000";
  const auto all = rules({made});
  for (const std::string& text : {kV, hex_encode(kV), base64_encode(kV), escaped(kV, "%")})
    EXPECT_EQ(scrubbed(all, {text}), std::nullopt) << text;
  EXPECT_EQ(scrubbed(all, {"nothing of it"}), "nothing of it");
}

TEST(Scrub, EscapesThatAPlaceholderHasNoLikeForAreAborted) {
  SecretEntry made = entry();
  made.value = shared("ab/\"\\é" + std::string(kV.size() - 7, 'x'));
  const auto all = rules({made});
  ASSERT_EQ(made.value->bytes().size(), kP.size());
  const std::string rest(kV.size() - 7, 'x');
  EXPECT_EQ(scrubbed(all, {"ab/\"\\é" + rest}), kP);
  EXPECT_EQ(scrubbed(all, {"ab\\/\\\"\\\\é" + rest}), std::nullopt);
  EXPECT_EQ(scrubbed(all, {"ab/\\u0022\\u005cé" + rest}),
            kP.substr(0, 3) + "\\u005f\\u0046" + kP.substr(5));
  EXPECT_EQ(scrubbed(all, {"ab/\\\"\\\\\\u00e9" + rest}), std::nullopt);
}

TEST(Scrub, OldValuesGetThePlaceholderToo) {
  SecretEntry made = entry();
  made.old_values = {shared("ghp_RealRealRealRealRealRealReal0000")};
  EXPECT_EQ(scrubbed(rules({made}), {"ghp_RealRealRealRealRealRealReal0000"}), kP);
}

TEST(Scrub, ValuesThatAreStartOrPartOfOthersLeaveNothing) {
  SecretEntry longer = other_entry();
  longer.value = shared(kV + "-longer");
  longer.placeholder = std::string(kV.size() + 7, 'P');
  const auto all = rules({entry(), longer});
  EXPECT_EQ(scrubbed(all, {kV + "-longer"}), longer.placeholder);
  EXPECT_EQ(scrubbed(all, {kV, "-longer"}), longer.placeholder);
  EXPECT_EQ(scrubbed(all, {kV, "-lon"}), kP + "-lon");
}

TEST(Scrub, ValuesThatOverlapAreAborted) {
  SecretEntry other = other_entry();
  other.value = shared("Real0001" + std::string(22, 'z'));
  const auto all = rules({entry(), other});
  EXPECT_EQ(scrubbed(all, {kV + std::string(22, 'z')}), std::nullopt);
  EXPECT_EQ(scrubbed(all, {kV, std::string(22, 'z')}), std::nullopt);
  EXPECT_EQ(scrubbed(all, {kV + "z"}), kP + "z");
}

TEST(Scrub, AHeadHasNoFormOfTheValue) {
  const auto all = rules({entry()});
  for (const Case& c : forms()) {
    if (c.name == "utf-16" || c.name == "base64 in two lines") continue;
    AnswerScrub scrub(all);
    http::ResponseHead head;
    head.status = 302;
    head.reason = "Found " + kV;
    head.headers = {{"Location", "https://example.org/?t=" + c.value},
                    {"Set-Cookie", "t=" + c.value},
                    {"Content-Length", "0"}};
    const auto clean = scrub.head(head);
    // Where a body would have another length a head need not be aborted.
    if (!c.placeholder && !c.name.contains("percent-encoded")) {
      EXPECT_EQ(clean, std::nullopt) << c.name;
      EXPECT_EQ(scrub.body("x"), std::nullopt);
      continue;
    }
    ASSERT_TRUE(clean.has_value()) << c.name;
    EXPECT_EQ(clean->status, 302);
    EXPECT_EQ(clean->reason, "Found " + kP);
    for (const auto& [name, value] : clean->headers.all())
      EXPECT_THAT(value, Not(HasSubstr(c.value))) << c.name;
    EXPECT_EQ(clean->headers.all().size(), 3u);
    EXPECT_EQ(scrub.replaced(), 3u);
  }
}

TEST(Scrub, AHeadersLengthMayChange) {
  SecretEntry made = entry();
  made.placeholder = "ghp_OfAnotherLength0000000";
  AnswerScrub scrub(rules({made}));
  const auto clean = scrub.head(
      {200, "OK", {{"X-Echo", "a " + escaped(kV, "%") + " b"}, {"X-" + kV, hex_encode(kV)}}, 1});
  ASSERT_TRUE(clean.has_value());
  EXPECT_EQ(clean->headers.get("x-echo"), "a " + made.placeholder + " b");
  EXPECT_EQ(clean->headers.get("X-" + made.placeholder), hex_encode(made.placeholder));
}

TEST(Scrub, AHeadIsAbortedWhereValuesOverlap) {
  SecretEntry other = other_entry();
  other.value = shared("Real0001" + std::string(22, 'z'));
  AnswerScrub scrub(rules({entry(), other}));
  EXPECT_EQ(scrub.head({200, "OK", {{"X-Echo", kV + std::string(22, 'z')}}, 1}), std::nullopt);
  EXPECT_EQ(scrub.cause().value().secret, "other");
}

TEST(Scrub, SaysWhetherABodyHasToBeDecodedFirst) {
  EXPECT_FALSE(AnswerScrub::is_encoded({200, "OK", {}, 1}));
  EXPECT_FALSE(AnswerScrub::is_encoded({200, "OK", {{"Content-Encoding", "Identity"}}, 1}));
  EXPECT_TRUE(AnswerScrub::is_encoded({200, "OK", {{"content-encoding", "gzip"}}, 1}));
}

TEST(Scrub, WithoutValuesEverythingPasses) {
  SecretEntry made = entry();
  made.value = nullptr;
  EXPECT_EQ(scrubbed(rules({made}), {kV, "%41"}), kV + "%41");
  EXPECT_EQ(scrubbed(rules({}), {"abc"}), "abc");
}

TEST(AnswerScrub, APauseLetsOutTheBeginningOfWhatMayBeAValueAndNoMore) {
  const auto all = rules({entry()});
  for (const Case& each : forms()) {
    for (std::size_t at = 1; at < each.value.size(); ++at) {
      AnswerScrub scrub(all);
      const auto first = scrub.body("before " + each.value.substr(0, at));
      if (!first) continue;  // so much of it is enough
      const std::string early = scrub.pause();
      EXPECT_LE(early.size(), kMostEarly) << each.name << at;
      EXPECT_EQ(scrub.pause(), "");
      const auto rest = scrub.body(each.value.substr(at) + " after");
      const auto last = rest ? scrub.end() : std::nullopt;
      // Where nothing of it was out, the placeholder stands for it as ever.
      if (!last) {
        EXPECT_TRUE(!early.empty() || !each.placeholder) << each.name << at;
        continue;
      }
      ASSERT_TRUE(each.placeholder.has_value()) << each.name << at;
      EXPECT_EQ(*first + early + *rest + *last, "before " + *each.placeholder + " after");
    }
  }
}

TEST(AnswerScrub, WhatBeginsAsAValueAndIsNoneComesOnce) {
  AnswerScrub scrub(rules({entry()}));
  std::string got;
  for (const std::string& piece :
       {kV.substr(0, 2), std::string("x"), kV.substr(0, 3), kV.substr(0, 1), std::string("end")}) {
    got += scrub.body(piece).value();
    got += scrub.pause();
  }
  got += scrub.end().value();
  EXPECT_EQ(got, kV.substr(0, 2) + "x" + kV.substr(0, 3) + kV.substr(0, 1) + "end");
}

}  // namespace
}  // namespace caisson::egress
