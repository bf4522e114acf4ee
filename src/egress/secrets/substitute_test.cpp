#include "egress/secrets/substitute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/encoding.h"
#include "egress/secrets/decoding.h"
#include "egress/secrets/secrets_for_test.h"

namespace caisson::egress {
namespace {

using namespace for_test;  // NOLINT: rules and their parts

using Half = policy::SecretPlace::Half;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kP(kPlaceholder), kV(kValue);

OutgoingRequest get(std::string target, http::Headers headers = {}) {
  OutgoingRequest made;
  made.host = host("api.example.com");
  made.channel = Channel::kVerifiedTls;
  made.head = {"GET", std::move(target), std::move(headers), 1};
  made.head.headers.add("Host", "api.example.com");
  return made;
}

OutgoingRequest post(std::string type, std::string body) {
  OutgoingRequest made = get("/a", {{"Content-Type", type}});
  made.head.method = "POST";
  made.head.headers.add("Content-Length", std::to_string(body.size()));
  made.body = std::move(body);
  return made;
}

PreparedRequest prepared(const std::shared_ptr<const SecretRules>& all, OutgoingRequest request) {
  auto made = prepare_request(*all, std::move(request));
  if (made) return std::move(*made);
  ADD_FAILURE() << made.error().sentence();
  return {};
}

std::string violated(const std::shared_ptr<const SecretRules>& all, OutgoingRequest request) {
  const auto made = prepare_request(*all, std::move(request));
  if (made) return "sent";
  return made.error().secret + " " + made.error().where + " " +
         std::string(to_string(made.error().fault));
}

std::string basic(std::string_view text) {
  return "Basic " + base64_encode(text);
}

// ---- what is put in, and where

TEST(Substitute, PutsTheValueIntoAHeader) {
  const auto all = rules({entry()});
  const PreparedRequest sent =
      prepared(all, get("/a?b", {{"Authorization", "Bearer " + kP}, {"X-Other", "yes"}}));
  EXPECT_EQ(sent.head.headers.get("authorization"), "Bearer " + kV);
  EXPECT_EQ(sent.head.headers.get("x-other"), "yes");
  EXPECT_EQ(sent.head.target, "/a?b");
  EXPECT_EQ(sent.used, (std::vector<SecretUse>{{"gh", "header:authorization", 1}}));
}

TEST(Substitute, PutsItIntoAHeaderOfTheRulesOwn) {
  const auto all = rules({entry({{PlaceKind::kHeader, "X-Vault-Token", Half::kAny}})});
  const PreparedRequest sent = prepared(all, get("/", {{"x-vault-token", kP}}));
  EXPECT_EQ(sent.head.headers.get("x-vault-token"), kV);
}

TEST(Substitute, PutsItIntoEitherHalfOfBasic) {
  const auto both = rules({entry()});
  EXPECT_EQ(prepared(both, get("/", {{"Authorization", basic(kP + ":x")}}))
                .head.headers.get("authorization"),
            basic(kV + ":x"));
  const PreparedRequest sent =
      prepared(both, get("/", {{"authorization", basic("u:" + kP + ":y")}}));
  EXPECT_EQ(sent.head.headers.get("authorization"), basic("u:" + kV + ":y"));
  EXPECT_EQ(sent.used, (std::vector<SecretUse>{{"gh", "basic:password", 1}}));
}

TEST(Substitute, TakesBasicWithoutItsPaddingAndInAnyCase) {
  const auto all = rules({entry()});
  std::string value = basic("u:" + kP + "xx");
  while (value.ends_with('=')) value.pop_back();
  value.replace(0, 5, "bAsIc");
  EXPECT_EQ(prepared(all, get("/", {{"authorization", value}})).head.headers.get("authorization"),
            basic("u:" + kV + "xx"));
}

TEST(Substitute, PutsItIntoAParameterAndLeavesTheOthersAsTheyCame) {
  const auto all = rules({entry({{PlaceKind::kQuery, "api key", Half::kAny}})});
  const PreparedRequest sent = prepared(all, get("/a?x=%2f+y&&api+k%65y=a%20" + kP + "+b&z&="));
  EXPECT_EQ(sent.head.target, "/a?x=%2f+y&&api+k%65y=a%20" + kV + "+b&z&=");
  EXPECT_EQ(sent.used, (std::vector<SecretUse>{{"gh", "query:api key", 1}}));
}

TEST(Substitute, EscapesWhatAValueHasThatIsNoPlainCharacter) {
  SecretEntry made = entry({{PlaceKind::kQuery, "key", Half::kAny},
                            {PlaceKind::kForm, "key", Half::kAny},
                            {PlaceKind::kJson, "/key", Half::kAny}});
  made.value = shared("a b/\"\\&=+%é");
  const auto all = rules({made});
  EXPECT_EQ(prepared(all, get("/?key=" + kP)).head.target,
            "/?key=a%20b%2F%22%5C%26%3D%2B%25%C3%A9");
  EXPECT_EQ(prepared(all, post("application/x-www-form-urlencoded", "key=" + kP)).body,
            "key=a%20b%2F%22%5C%26%3D%2B%25%C3%A9");
  EXPECT_EQ(prepared(all, post("application/json", R"({"key":")" + kP + "\"}")).body,
            R"({"key":"a b/\"\\&=+%é"})");
}

TEST(Substitute, PutsItIntoThePath) {
  const auto all = rules({entry({{PlaceKind::kPath, "", Half::kAny}})});
  EXPECT_EQ(prepared(all, get("/bot" + kP + "/send?x=1")).head.target, "/bot" + kV + "/send?x=1");
}

TEST(Substitute, PutsItIntoTheStringAtAPointerAndLeavesEveryOtherByte) {
  const auto all = rules({entry({{PlaceKind::kJson, "/auth/0/key", Half::kAny}})});
  const std::string before = "{ \"n\": 1.0e0,\t\"auth\" : [{\"key\": \"x ";
  const std::string after = "\\u0041\"} ], \"z\":\"\\/\"}\n";
  const PreparedRequest sent =
      prepared(all, post("application/json; charset=utf-8", before + kP + after));
  EXPECT_EQ(sent.body, before + kV + after);
  EXPECT_EQ(sent.head.headers.get("content-length"), std::to_string((before + kP + after).size()));
  EXPECT_EQ(sent.used, (std::vector<SecretUse>{{"gh", "json:/auth/0/key", 1}}));
}

TEST(Substitute, FindsThePlaceholderInWhateverSpellingItsPlaceHas) {
  const auto json = rules({entry({{PlaceKind::kJson, "/key", Half::kAny}})});
  EXPECT_EQ(prepared(json, post("application/vnd.api+json",
                                R"({"key":"\u0067hp\u005F)" + kP.substr(4) + "\"}"))
                .body,
            R"({"key":")" + kV + "\"}");
  const auto query = rules({entry({{PlaceKind::kQuery, "k", Half::kAny}})});
  EXPECT_EQ(prepared(query, get("/?k=%67hp%5f" + kP.substr(4))).head.target, "/?k=" + kV);
  const auto form = rules({entry({{PlaceKind::kForm, "k", Half::kAny}})});
  EXPECT_EQ(
      prepared(form, post("Application/X-WWW-Form-Urlencoded", "k=gh%70_" + kP.substr(4))).body,
      "k=" + kV);
}

TEST(Substitute, TheBodysLengthFollows) {
  SecretEntry made = entry({{PlaceKind::kForm, "k", Half::kAny}});
  made.value = shared("a longer value than the placeholder ever was");
  OutgoingRequest request = post("application/x-www-form-urlencoded", "k=" + kP);
  request.head.headers.remove("content-length").add("Transfer-Encoding", "chunked");
  const PreparedRequest sent = prepared(rules({made}), request);
  EXPECT_FALSE(sent.head.headers.has("transfer-encoding"));
  EXPECT_EQ(sent.head.headers.get("content-length"), std::to_string(sent.body.value().size()));
}

TEST(Substitute, TwoSecretsMayHaveOnePlace) {
  SecretEntry other = other_entry({{PlaceKind::kJson, "/k", Half::kAny}});
  other.rule.hosts = {"api.example.com"};
  const auto all = rules({entry({{PlaceKind::kJson, "/k", Half::kAny}}), other});
  EXPECT_EQ(prepared(all, post("application/json",
                               R"({"k":")" + std::string(kOtherPlaceholder) + "." + kP + "\"}"))
                .body,
            R"({"k":")" + std::string(kOtherValue) + "." + kV + "\"}");
}

TEST(Substitute, ARequestWithoutAPlaceholderIsSentAsItCame) {
  const auto all = rules({entry({{PlaceKind::kJson, "/k", Half::kAny}}), other_entry()});
  OutgoingRequest request = post("application/json", "not even JSON: \"");
  request.head.headers.add("Accept-Encoding", "gzip").add("Max-Forwards", "3");
  const PreparedRequest sent = prepared(all, request);
  EXPECT_EQ(sent.body, request.body);
  EXPECT_EQ(sent.head.headers.get("accept-encoding"), "gzip");
  EXPECT_EQ(sent.head.headers.get("max-forwards"), "3");
  EXPECT_THAT(sent.used, IsEmpty());
}

TEST(Substitute, WhatGotASecretAsksForAnAnswerThatCanBeRead) {
  const PreparedRequest sent = prepared(rules({entry()}), get("/", {{"Authorization", kP},
                                                                    {"Accept-Encoding", "gzip"},
                                                                    {"accept-encoding", "br"},
                                                                    {"Max-Forwards", "3"}}));
  EXPECT_EQ(sent.head.headers.joined("accept-encoding"), "identity");
  EXPECT_FALSE(sent.head.headers.has("max-forwards"));
}

TEST(Substitute, ProxyAuthorizationIsNeverSent) {
  const auto all = rules({entry({{PlaceKind::kHeader, "*", Half::kAny}})});
  for (const std::string& value : {std::string("Basic abc"), "Bearer " + kP}) {
    const PreparedRequest sent = prepared(all, get("/", {{"Proxy-Authorization", value}}));
    EXPECT_FALSE(sent.head.headers.has("proxy-authorization"));
    EXPECT_THAT(sent.used, IsEmpty());
  }
}

TEST(Substitute, AsOftenAsTheRuleSays) {
  SecretEntry made = entry();
  made.rule.max_occurrences = 2;
  const auto all = rules({made});
  const PreparedRequest sent = prepared(all, get("/", {{"Authorization", kP + kP}}));
  EXPECT_EQ(sent.head.headers.get("authorization"), kV + kV);
  EXPECT_EQ(sent.used, (std::vector<SecretUse>{{"gh", "header:authorization", 2}}));
  EXPECT_EQ(violated(all, get("/", {{"Authorization", kP + kP}, {"X-Api-Key", kP}})),
            "gh header:x-api-key occurrences");
  EXPECT_EQ(violated(rules({entry()}), get("/", {{"Authorization", kP + kP}})),
            "gh header:authorization occurrences");
}

// ---- what is refused

TEST(Substitute, RefusesEveryOtherHost) {
  const auto all = rules({entry(), other_entry()});
  for (const std::string_view other : {"evil.example.com", "example.org", "203.0.113.1",
                                       "api.example.com.evil.example.com", "xapi.example.com"}) {
    OutgoingRequest request = get("/", {{"Authorization", "Bearer " + kP}});
    request.host = host(other);
    EXPECT_EQ(violated(all, request), "gh header:authorization host") << other;
  }
  EXPECT_EQ(violated(all, get("/", {{"Authorization", std::string(kOtherPlaceholder)}})),
            "other header:authorization host");
}

TEST(Substitute, RefusesWhatIsNotOnItsWayOverVerifiedTls) {
  OutgoingRequest request = get("/", {{"Authorization", "Bearer " + kP}});
  request.channel = Channel::kPlaintext;
  EXPECT_EQ(violated(rules({entry()}), request), "gh header:authorization plaintext");
}

TEST(Substitute, RefusesARevokedSecretAndOneWithoutAValue) {
  SecretEntry made = entry();
  made.revoked = true;
  EXPECT_EQ(violated(rules({made}), get("/", {{"Authorization", kP}})),
            "gh header:authorization revoked");
  EXPECT_EQ(violated(rules({made}), get("/" + kP)), "gh path revoked");
  made = entry();
  made.value = nullptr;
  EXPECT_EQ(violated(rules({made}), get("/", {{"Authorization", kP}})),
            "gh header:authorization no_value");
}

TEST(Substitute, RefusesHeadersThatServersRepeat) {
  const auto all = rules({entry({{PlaceKind::kHeader, "*", Half::kAny}})});
  for (const std::string_view name : {"User-Agent", "Origin", "Referer", "X-Request-Id", "Cookie",
                                      "Accept-Language", "Host", "Content-Type", "X-Forwarded-For"})
    EXPECT_THAT(violated(all, get("/", {{name, kP}})), HasSubstr(" place")) << name;
}

struct Leak {
  std::string name, text;
  bool twice = false;
};

// Ways to write the placeholder, none of which a header has a place for.
std::vector<Leak> leaks() {
  std::string hex = hex_encode(kP), wide;
  for (const char c : kP) wide.append(1, c).append(1, '\0');
  return {
      {"percent", "%67" + kP.substr(1)},
      {"percent twice", "%2567" + kP.substr(1), true},
      {"json", "\\u0067" + kP.substr(1)},
      {"json twice", "\\\\u0067" + kP.substr(1), true},
      {"base64", base64_encode(kP)},
      {"base64, one before", base64_encode("x" + kP)},
      {"base64url, two before", base64url_encode("xy" + kP + "?>")},
      {"hex", hex},
      {"wide", wide},
  };
}

TEST(Substitute, RefusesEveryRegularEncodingOutsideOfItsPlace) {
  const auto all = rules({entry()});
  for (const Leak& leak : leaks()) {
    if (leak.name != "wide") {
      EXPECT_EQ(violated(all, get("/", {{"Authorization", "Bearer " + leak.text}})),
                "gh header:authorization place")
          << leak.name;
      const std::string query = "/?a=" + (leak.twice ? leak.text : percent_encode(leak.text));
      EXPECT_EQ(violated(all, get(query)), "gh query place") << leak.name;
    }
    EXPECT_EQ(violated(all, post("text/plain", leak.text)), "gh body place") << leak.name;
  }
}

TEST(Substitute, RefusesEveryPartOfTheHeadThatIsNoPlace) {
  const auto all = rules({entry({{PlaceKind::kHeader, "x-key", Half::kAny}})});
  EXPECT_EQ(violated(all, get("/a/" + kP)), "gh path place");
  EXPECT_EQ(violated(all, get("/a?x=" + kP)), "gh query place");
  EXPECT_EQ(violated(all, get("/a?" + kP + "=x")), "gh query place");
  EXPECT_EQ(violated(all, get("/a", {{"X-" + kP, "x"}})), "gh header name place");
  EXPECT_EQ(violated(all, get("/a", {{"Authorization", kP}})), "gh header:authorization place");
  EXPECT_EQ(violated(all, get("/a", {{"Authorization", basic("u:" + kP)}})),
            "gh header:authorization place");
  OutgoingRequest request = get("/");
  request.head.method = kP;
  EXPECT_EQ(violated(all, request), "gh method place");
}

TEST(Substitute, RefusesThePlaceholderThatIsLeftBesideOneThatWasPutIn) {
  const auto all = rules({entry()});
  EXPECT_EQ(violated(all, get("/?x=" + kP, {{"Authorization", kP}})), "gh query place");
  EXPECT_EQ(violated(rules({entry({{PlaceKind::kBasic, "", Half::kUser}})}),
                     get("/", {{"Authorization", basic(kP + ":" + kP)}})),
            "gh header:authorization place");
}

TEST(Substitute, OtherParametersFieldsAndPointersAreNoPlace) {
  const auto all = rules({entry({{PlaceKind::kQuery, "k", Half::kAny},
                                 {PlaceKind::kForm, "k", Half::kAny},
                                 {PlaceKind::kJson, "/k", Half::kAny}})});
  EXPECT_EQ(violated(all, get("/?K=" + kP)), "gh query place");
  EXPECT_EQ(violated(all, get("/?k[]=" + kP)), "gh query place");
  EXPECT_EQ(violated(all, post("application/x-www-form-urlencoded", "j=" + kP)), "gh body place");
  EXPECT_EQ(violated(all, post("application/json", "{\"a\":{\"k\":\"" + kP + "\"}}")),
            "gh body place");
  EXPECT_EQ(violated(all, post("application/json", "{\"" + kP + "\":1}")), "gh body place");
  EXPECT_EQ(violated(all, post("application/json", "{\"k\":[\"" + kP + "\"]}")), "gh body place");
  // A type that says nothing of how the body is read.
  EXPECT_EQ(violated(all, post("text/plain", "k=" + kP)), "gh body place");
  EXPECT_EQ(violated(all, post("multipart/form-data; boundary=x",
                               "--x\r\nContent-Disposition: form-data; name=k\r\n\r\n" + kP +
                                   "\r\n--x--\r\n")),
            "gh body place");
}

TEST(Substitute, ABodyOfTwoTypesIsOfNone) {
  const auto all = rules({entry({{PlaceKind::kJson, "/k", Half::kAny}})});
  OutgoingRequest request = post("application/json", "{\"k\":\"" + kP + "\"}");
  request.head.headers.add("content-type", "text/plain");
  EXPECT_EQ(violated(all, request), "gh body place");
}

TEST(Substitute, RefusesAMalformedBodyThatHasAPlaceholder) {
  const auto all = rules({entry({{PlaceKind::kJson, "/k", Half::kAny}})});
  EXPECT_EQ(violated(all, post("application/json", "{\"k\":\"" + kP + "\"")),
            "gh body malformed_body");
  EXPECT_EQ(violated(all, post("application/json", "{\"k\":1,\"k\":\"" + kP + "\"}")),
            "gh body malformed_body");
}

TEST(Substitute, RefusesAValueThatCannotStandInItsPlace) {
  SecretEntry made = entry({{PlaceKind::kPath, "", Half::kAny},
                            {PlaceKind::kBasic, "", Half::kUser},
                            {PlaceKind::kJson, "/k", Half::kAny},
                            {PlaceKind::kQuery, "k", Half::kAny}});
  made.value = shared("../../etc/pass:wd");
  EXPECT_EQ(violated(rules({made}), get("/a/" + kP)), "gh path unfit");
  EXPECT_EQ(violated(rules({made}), get("/", {{"Authorization", basic(kP + ":x")}})),
            "gh basic:user unfit");
  made.value = shared("not \xff UTF-8");
  EXPECT_EQ(violated(rules({made}), post("application/json", "{\"k\":\"" + kP + "\"}")),
            "gh json:/k unfit");
  made.value = shared(std::string(4096, '/'));
  EXPECT_EQ(violated(rules({made}), get("/?k=" + kP + "&x=" + std::string(8000, 'x'))),
            "gh query:k unfit");
}

TEST(Substitute, AHeaderOfBasicThatIsNoneIsLeftAsItIs) {
  const auto all = rules({entry()});
  for (const std::string& value :
       {std::string("Basic"), std::string("Basic ?"), basic("no colon"), std::string("Bearer abc")})
    EXPECT_EQ(prepared(all, get("/", {{"Authorization", value}})).head.headers.get("authorization"),
              value);
  EXPECT_EQ(violated(all, get("/", {{"Authorization", basic(kP)}})),
            "gh header:authorization place");
}

TEST(Substitute, RefusesTraceWithASecret) {
  for (const std::string_view method : {"TRACE", "TRACK", "trace"}) {
    OutgoingRequest request = get("/", {{"Authorization", kP}});
    request.head.method = method;
    EXPECT_EQ(violated(rules({entry()}), request), "gh header:authorization trace");
  }
}

TEST(Substitute, HostsThatMaySeeThePlaceholderGetItAsItIs) {
  SecretEntry made = entry();
  made.rule.passthrough = {"logs.example.com"};
  made.revoked = true;
  OutgoingRequest request = get("/" + kP, {{"Authorization", kP}});
  request.host = host("logs.example.com");
  const PreparedRequest sent = prepared(rules({made}), request);
  EXPECT_EQ(sent.head.target, "/" + kP);
  EXPECT_EQ(sent.head.headers.get("authorization"), kP);
  EXPECT_THAT(sent.used, IsEmpty());
}

TEST(Substitute, AHostOfBothListsGetsTheValueInItsPlaceAlone) {
  SecretEntry made = entry();
  made.rule.passthrough = {"api.example.com"};
  const PreparedRequest sent =
      prepared(rules({made}), get("/" + kP, {{"Authorization", kP}, {"User-Agent", kP}}));
  EXPECT_EQ(sent.head.headers.get("authorization"), kV);
  EXPECT_EQ(sent.head.headers.get("user-agent"), kP);
  EXPECT_EQ(sent.head.target, "/" + kP);
}

TEST(Substitute, AViolationSaysWhatItCosts) {
  SecretEntry made = entry();
  made.rule.on_violation = policy::OnSecretViolation::kTerminate;
  const auto refused = prepare_request(*rules({made}), get("/" + kP));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().consequence, policy::OnSecretViolation::kTerminate);
  EXPECT_EQ(refused.error().sentence(),
            "the secret gh (path) keeps the request back: it may not stand there");
}

// ---- set by the gateway

SecretEntry injected(std::string header = "Authorization") {
  SecretEntry made = entry();
  made.rule.env = "";
  made.rule.inject = policy::SecretInjection{std::move(header), "Bearer "};
  return made;
}

TEST(Inject, SetsTheHeaderInPlaceOfWhatTheClientSays) {
  const PreparedRequest sent =
      prepared(rules({injected()}), get("/", {{"Authorization", "Bearer mine"},
                                              {"authorization", "again"},
                                              {"Cookie", "a=b"},
                                              {"X-Api-Key", "mine"},
                                              {"Proxy-Authorization", "x"},
                                              {"X-Other", "y"}}));
  EXPECT_EQ(sent.head.headers.joined("authorization"), "Bearer " + kV);
  for (const std::string_view name : {"cookie", "x-api-key", "proxy-authorization"})
    EXPECT_FALSE(sent.head.headers.has(name)) << name;
  EXPECT_EQ(sent.head.headers.get("x-other"), "y");
  EXPECT_EQ(sent.head.headers.get("accept-encoding"), "identity");
  EXPECT_EQ(sent.used, (std::vector<SecretUse>{{"gh", "header:authorization", 1}}));
}

TEST(Inject, LeavesWhatTheClientSaysWhereAnswersMayHaveTheValue) {
  SecretEntry open = injected("X-Token");
  open.rule.inject->scrub = false;
  open.value = for_test::shared("v");
  const auto all = rules({open});
  const PreparedRequest sent = prepared(all, get("/", {{"Authorization", "Bearer mine"}}));
  EXPECT_EQ(sent.head.headers.get("x-token"), "Bearer v");
  EXPECT_EQ(sent.head.headers.get("authorization"), "Bearer mine");
  EXPECT_TRUE(all->values().empty());
}

TEST(Inject, SetsNothingForOtherHostsAndWithoutTls) {
  const auto all = rules({injected()});
  OutgoingRequest elsewhere = get("/", {{"Authorization", "mine"}});
  elsewhere.host = host("evil.example.com");
  OutgoingRequest plain = get("/", {{"Authorization", "mine"}});
  plain.channel = Channel::kPlaintext;
  for (const OutgoingRequest& request : {elsewhere, plain}) {
    const PreparedRequest sent = prepared(all, request);
    EXPECT_EQ(sent.head.headers.get("authorization"), "mine");
    EXPECT_THAT(sent.used, IsEmpty());
  }
}

TEST(Inject, RefusesRatherThanToSendTheRequestWithout) {
  SecretEntry made = injected();
  made.revoked = true;
  EXPECT_EQ(violated(rules({made}), get("/")), "gh header:authorization revoked");
  made = injected();
  made.value = nullptr;
  EXPECT_EQ(violated(rules({made}), get("/")), "gh header:authorization no_value");
}

TEST(Inject, TwoSecretsSetTwoHeadersButNotOne) {
  SecretEntry other = other_entry();
  other.rule.env = "";
  other.rule.hosts = {"api.example.com"};
  other.rule.inject = policy::SecretInjection{"X-App", ""};
  const PreparedRequest sent = prepared(rules({injected(), other}), get("/"));
  EXPECT_EQ(sent.head.headers.get("x-app"), kOtherValue);
  EXPECT_EQ(sent.head.headers.get("authorization"), "Bearer " + kV);
  other.rule.inject->header = "AUTHORIZATION";
  EXPECT_EQ(violated(rules({injected(), other}), get("/")), "other header:authorization set_twice");
}

TEST(Inject, NobodyGetsItsPlaceholderIn) {
  EXPECT_EQ(violated(rules({injected()}), get("/", {{"X-Key", kP}})), "gh header:x-key place");
}

// ---- bodies

BodyNeed need(const std::shared_ptr<const SecretRules>& all, const http::Headers& headers,
              std::string_view to = "api.example.com") {
  const auto made = body_need(*all, host(to), {"POST", "/", headers, 1});
  if (!made) {
    ADD_FAILURE() << made.error().sentence();
    return BodyNeed::kNothing;
  }
  return *made;
}

TEST(BodyNeed, IsWholeWhereASecretMayBeInABodyOfItsType) {
  const auto all = rules({entry({{PlaceKind::kJson, "/k", Half::kAny}}), other_entry()});
  const auto form = rules({entry({{PlaceKind::kForm, "k", Half::kAny}})});
  const http::Headers json = {{"Content-Type", "application/json"}, {"Content-Length", "5"}};
  const http::Headers fields = {{"Content-Type", "application/x-www-form-urlencoded"},
                                {"Transfer-Encoding", "chunked"}};
  EXPECT_EQ(need(all, json), BodyNeed::kWhole);
  EXPECT_EQ(need(all, fields), BodyNeed::kCheck);
  EXPECT_EQ(need(form, json), BodyNeed::kCheck);
  EXPECT_EQ(need(form, fields), BodyNeed::kWhole);
  EXPECT_EQ(need(all, json, "other.example.com"), BodyNeed::kCheck);
}

TEST(BodyNeed, IsNothingWhereThereIsNoneOrNothingCanLeak) {
  SecretEntry made = entry();
  made.rule.passthrough = {"logs.example.com"};
  const auto all = rules({made});
  EXPECT_EQ(need(all, {}), BodyNeed::kNothing);
  EXPECT_EQ(need(all, {{"Content-Length", "0"}}), BodyNeed::kNothing);
  EXPECT_EQ(need(all, {{"Content-Length", "9"}}, "logs.example.com"), BodyNeed::kNothing);
  EXPECT_EQ(need(rules({}), {{"Content-Length", "9"}}), BodyNeed::kNothing);
}

TEST(BodyNeed, OfAnEncodedBodyIsACheckOrARefusal) {
  const http::Headers encoded = {{"Content-Length", "9"}, {"Content-Encoding", "gzip"}};
  const http::Headers identity = {{"Content-Length", "9"}, {"Content-Encoding", "identity"}};
  const auto header = rules({entry()});
  EXPECT_EQ(need(header, encoded), BodyNeed::kCheckDecoded);
  EXPECT_EQ(need(header, identity), BodyNeed::kCheck);
  const auto json = rules({entry({{PlaceKind::kJson, "/k", Half::kAny}})});
  const auto refused = body_need(*json, host("api.example.com"), {"POST", "/", encoded, 1});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().fault, SecretFault::kEncodedBody);
  EXPECT_EQ(refused.error().secret, "gh");
  EXPECT_EQ(need(json, encoded, "other.example.com"), BodyNeed::kCheckDecoded);
}

TEST(LeakCheck, PassesWhatHasNoPlaceholderAtOnce) {
  LeakCheck check(rules({entry()}), host("api.example.com"), Channel::kVerifiedTls);
  EXPECT_EQ(check.feed("some bytes"), "some bytes");
  EXPECT_EQ(check.feed("gh"), "");
  EXPECT_EQ(check.feed("ost"), "ghost");
  EXPECT_EQ(check.feed("ghp_"), "");
  EXPECT_EQ(check.finish(), "ghp_");
}

TEST(LeakCheck, StopsEveryEncodingAtEverySplitBeforeItIsOut) {
  const auto all = rules({entry()});
  for (const Leak& leak : leaks()) {
    const std::string stream = "before " + leak.text + " after";
    for (std::size_t split = 0; split <= stream.size(); ++split) {
      LeakCheck check(all, host("api.example.com"), Channel::kVerifiedTls);
      std::string sent;
      bool stopped = false;
      for (const std::string_view piece :
           {std::string_view(stream).substr(0, split), std::string_view(stream).substr(split)}) {
        const auto out = check.feed(piece);
        if (out) sent += *out;
        stopped = stopped || !out;
      }
      const auto end = check.finish();
      EXPECT_TRUE(stopped && !end) << leak.name << " " << split;
      EXPECT_EQ(end.error().where, "body");
      EXPECT_EQ(end.error().fault, SecretFault::kPlace);
      // For base64 with the characters that are not the placeholder's alone.
      EXPECT_LE(sent.size(), 10u) << leak.name << " " << split;
    }
  }
}

TEST(LeakCheck, SaysWhyByTheHostAndTheChannel) {
  SecretEntry revoked = other_entry();
  revoked.revoked = true;
  const auto all = rules({entry(), revoked});
  const auto fault = [&](std::string_view to, Channel channel, std::string_view text) {
    LeakCheck check(all, host(to), channel);
    const auto out = check.feed(text);
    return out ? "passed" : std::string(to_string(out.error().fault));
  };
  EXPECT_EQ(fault("evil.example.com", Channel::kVerifiedTls, kP), "host");
  EXPECT_EQ(fault("api.example.com", Channel::kPlaintext, kP), "plaintext");
  EXPECT_EQ(fault("other.example.com", Channel::kVerifiedTls, kOtherPlaceholder), "revoked");
}

TEST(LeakCheck, PassesPlaceholdersToHostsThatMaySeeThem) {
  SecretEntry made = entry();
  made.rule.passthrough = {"logs.example.com"};
  LeakCheck check(rules({made, other_entry()}), host("logs.example.com"), Channel::kPlaintext);
  EXPECT_EQ(check.feed("a " + kP + " b"), "a " + kP + " b");
  EXPECT_FALSE(check.feed(kOtherPlaceholder).has_value());
}

}  // namespace
}  // namespace caisson::egress
