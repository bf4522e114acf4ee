#include "egress/secrets/resign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/sha256.h"
#include "egress/secrets/secrets_for_test.h"
#include "policy/secret_check.h"

// What a program signed with placeholders, and what of it is sent.
namespace caisson::egress {
namespace {

using ::testing::HasSubstr;
using Part = policy::SecretSigning::Part;

constexpr std::string_view kFakeId = "AKIAFAKEFAKEFAKE2345";
constexpr std::string_view kRealId = "AKIAREALREALREAL2345";
constexpr std::string_view kFakeKey = "FakeFakeFakeFakeFakeFakeFakeFakeFake0001";
constexpr std::string_view kRealKey = "RealRealRealRealRealRealRealReal/Real+01";
constexpr std::string_view kFakeToken = "FakeTokenFakeTokenFakeTokenFake";
constexpr std::string_view kRealToken = "RealToken/RealToken+RealTokenA=";
constexpr std::string_view kHost = "s3.example.com";
const auto kNow = std::chrono::system_clock::time_point(std::chrono::seconds(1369353600));

std::vector<SecretEntry> credentials(bool temporary = false) {
  std::vector<SecretEntry> entries;
  const auto add = [&](Part part, std::string_view placeholder, std::string_view value) {
    SecretEntry& made = entries.emplace_back();
    made.rule.name = "aws" + std::string(policy::suffix_of(part));
    made.rule.source = {.kind = policy::SecretSource::Kind::kEnv, .text = "A"};
    made.rule.hosts = {std::string(kHost), "sts.example.com"};
    made.rule.signing = policy::SecretSigning{
        .part = part, .temporary = temporary, .services = {"s3", "sts"}, .regions = {"r-1"}};
    made.placeholder = placeholder;
    made.value = for_test::shared(value);
  };
  add(Part::kAccessKey, kFakeId, kRealId);
  add(Part::kSecretKey, kFakeKey, kRealKey);
  if (temporary) add(Part::kSessionToken, kFakeToken, kRealToken);
  return entries;
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

struct Signing {
  std::string method = "GET", target = "/bucket/one";
  std::string service = "s3", region = "r-1";
  std::string payload = "UNSIGNED-PAYLOAD";  // of the header; empty: none
  std::string body = {};
  std::string_view key = kFakeKey;
  http::Headers more = {};
  std::string path = {};  // as it is signed; empty: as it is
};

std::pair<std::string, std::string> split(const std::string& target) {
  const std::size_t question = std::min(target.find('?'), target.size());
  return {target.substr(0, question), question == target.size() ? "" : target.substr(question + 1)};
}

std::string signature_of(const http::RequestHead& head, const sigv4::Authorization& said,
                         std::string_view path, std::string_view payload, std::string_view key) {
  const std::string request = sigv4::canonical_request(
      head, path, sigv4::canonical_query(split(head.target).second), said.signed_headers, payload);
  return sigv4::signature(sigv4::derived_key(key, said.scope).bytes(),
                          head.headers.get("X-Amz-Date").value_or(""), said.scope, request);
}

// As a client signs.
http::RequestHead signed_by(const Signing& s) {
  http::RequestHead head{.method = s.method, .target = s.target, .headers = s.more};
  head.headers.add("Host", kHost).add("X-Amz-Date", "20010203T040506Z");
  sigv4::Authorization made{.access_key = std::string(kFakeId),
                            .scope = {"20010203", s.region, s.service},
                            .signed_headers = {"host", "x-amz-date"},
                            .signature = {}};
  if (!s.payload.empty()) {
    head.headers.add("X-Amz-Content-Sha256", s.payload);
    made.signed_headers = {"host", "x-amz-content-sha256", "x-amz-date"};
  }
  made.signature = signature_of(head, made, s.path.empty() ? split(s.target).first : s.path,
                                s.payload.empty() ? sha256(s.body) : s.payload, s.key);
  head.headers.add("Authorization", sigv4::written(made));
  return head;
}

Judged<std::optional<Resigning>> begun(const http::RequestHead& head,
                                       std::vector<SecretEntry> entries = credentials(),
                                       std::string_view host = kHost,
                                       Channel channel = Channel::kVerifiedTls) {
  return Resigning::begin(for_test::rules(std::move(entries)), for_test::host(host), channel, head);
}

// The head that is sent for it, or why none is.
Judged<http::RequestHead> sent(const http::RequestHead& head,
                               std::vector<SecretEntry> entries = credentials(),
                               std::string_view body = {},
                               const std::optional<std::string>& target = {}) {
  auto resigning = begun(head, std::move(entries));
  if (!resigning.has_value()) return std::unexpected(resigning.error());
  if (!resigning->has_value()) return head;
  const std::string hash = sha256(body);
  if (auto wrong = (*resigning)->check_body(hash)) return std::unexpected(*wrong);
  http::RequestHead made = head;
  if (target) made.target = *target;
  (*resigning)->strip(made);
  const auto use = (*resigning)->sign(made, hash, hash, kNow);
  if (!use.has_value()) return std::unexpected(use.error());
  EXPECT_EQ(*use, (SecretUse{"aws", "sigv4", 1}));
  return made;
}

void expect_fault(const http::RequestHead& head, SecretFault fault, std::string_view detail,
                  std::string_view body = {}) {
  const auto made = sent(head, credentials(), body);
  ASSERT_FALSE(made.has_value()) << detail;
  EXPECT_EQ(to_string(made.error().fault), to_string(fault)) << detail;
  EXPECT_THAT(made.error().sentence(), HasSubstr("the secret aws (sigv4)"));
  EXPECT_THAT(made.error().sentence(), HasSubstr(std::string(detail)));
}

TEST(Resign, TheServerGetsASignatureWithTheKeyOverWhatIsSent) {
  const auto made = sent(signed_by({.more = {{"X-Amz-Meta-A", "late"}, {"Connection", "close"}}}));
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->headers.get("X-Amz-Date"), "20130524T000000Z");
  const auto said = sigv4::parse_authorization(made->headers.get("Authorization").value_or("none"));
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ(said->access_key, kRealId);
  EXPECT_EQ(said->scope, (sigv4::Scope{"20130524", "r-1", "s3"}));
  EXPECT_EQ(said->signed_headers, (std::vector<std::string>{"host", "x-amz-content-sha256",
                                                            "x-amz-date", "x-amz-meta-a"}));
  EXPECT_EQ(said->signature,
            signature_of(*made, *said, "/bucket/one", "UNSIGNED-PAYLOAD", kRealKey));
}

TEST(Resign, TheSessionTokenIsThatOfTheCredentials) {
  http::RequestHead head = signed_by({});
  head.headers.add("X-Amz-Security-Token", kFakeToken);
  const auto made = sent(head, credentials(true));
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->headers.joined("X-Amz-Security-Token"), kRealToken);
  EXPECT_THAT(std::string(made->headers.get("Authorization").value_or("")),
              HasSubstr("x-amz-security-token"));
  const auto without = sent(head);
  ASSERT_TRUE(without.has_value());
  EXPECT_FALSE(without->headers.has("X-Amz-Security-Token"));
}

TEST(Resign, OfS3APathIsEscapedOnceAndOfOthersTwice) {
  for (const auto& [service, path] : {std::pair("s3", "/a%20b/%3A"), {"sts", "/a%2520b/%253A"}}) {
    const auto made =
        sent(signed_by({.target = "/a%20b/%3A?b=2&a", .service = service, .path = path}));
    ASSERT_TRUE(made.has_value()) << service << made.error().sentence();
    const auto said = sigv4::parse_authorization(*made->headers.get("Authorization"));
    ASSERT_TRUE(said.has_value());
    EXPECT_EQ(said->signature, signature_of(*made, *said, path, "UNSIGNED-PAYLOAD", kRealKey));
  }
}

TEST(Resign, ABodyWithoutAHashOfItsOwnIsHashed) {
  const auto made =
      sent(signed_by({.method = "POST", .service = "sts", .payload = "", .body = "x"}),
           credentials(), "x");
  ASSERT_TRUE(made.has_value()) << made.error().sentence();
  const auto said = sigv4::parse_authorization(*made->headers.get("Authorization"));
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ(said->signature, signature_of(*made, *said, "/bucket/one", sha256("x"), kRealKey));
  expect_fault(signed_by({.method = "POST", .service = "sts", .payload = "", .body = "x"}),
               SecretFault::kSignature, "does not fit", "y");
}

TEST(Resign, ABodyIsTheOneThatWasSigned) {
  const http::RequestHead head = signed_by({.method = "PUT", .payload = sha256("right")});
  EXPECT_TRUE(sent(head, credentials(), "right").has_value());
  expect_fault(head, SecretFault::kSignedBody, "SHA-256 is not", "wrong");
}

TEST(Resign, WhatIsSignedForOtherServicesOrRegionsIsNotSent) {
  expect_fault(signed_by({.service = "iam"}), SecretFault::kScope,
               "the service is iam; allowed are s3, sts");
  expect_fault(signed_by({.region = "r-2"}), SecretFault::kScope,
               "the region is r-2; allowed are r-1");
}

TEST(Resign, WhatWasNotSignedWithThePlaceholdersIsNotSent) {
  expect_fault(signed_by({.key = kRealId}), SecretFault::kSignature, "does not fit");
  http::RequestHead changed = signed_by({});
  changed.target = "/bucket/two";
  expect_fault(changed, SecretFault::kSignature, "does not fit");
  http::RequestHead undated = signed_by({});
  undated.headers.remove("X-Amz-Date");
  expect_fault(undated, SecretFault::kSignature, "no header X-Amz-Date");
}

TEST(Resign, APathThatIsSentOtherwiseNamesAnotherObject) {
  const auto made = sent(signed_by({.target = "/bucket/a//b"}), credentials(), "", "/bucket/a/b");
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().sentence(), HasSubstr("names another object"));
  EXPECT_TRUE(
      sent(signed_by({.target = "/bucket/%7eb"}), credentials(), "", "/bucket/~b").has_value());
  expect_fault(signed_by({.target = "/bucket?a=b+c"}), SecretFault::kSignature, "read in two ways");
}

// A secret of the path stands in what is sent by then.
TEST(Resign, NothingOfWhatIsSentIsSaid) {
  const auto with_value = sent(signed_by({.target = "/placeholder/x"}), credentials(), "",
                               "/" + std::string(for_test::kValue) + "/x");
  EXPECT_TRUE(with_value.has_value());
  const auto other = sent(signed_by({.target = "/placeholder//x"}), credentials(), "",
                          "/" + std::string(for_test::kValue) + "/x");
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().sentence(), testing::Not(HasSubstr(std::string(for_test::kValue))));
}

TEST(Resign, OtherFormsOfSignaturesAreRefused) {
  expect_fault(signed_by({.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}),
               SecretFault::kSigningForm, "chunks are signed");
  http::RequestHead other = signed_by({});
  other.headers.set(
      "Authorization",
      for_test::replaced(std::string(*other.headers.get("Authorization")), "HMAC", "ECDSA-P256"));
  expect_fault(other, SecretFault::kSigningForm, "the algorithm is not");
  for (const std::string_view name : {"X-Amz-Credential", "x-amz-%63redential"}) {
    const http::RequestHead url{.method = "GET",
                                .target = "https://s3.example.com/o?a=1&" + std::string(name) +
                                          "=" + std::string(kFakeId) + "%2F20010203"};
    expect_fault(url, SecretFault::kSigningForm, "in the URL");
  }
}

TEST(Resign, WhatIsMalformedIsRefused) {
  http::RequestHead broken = signed_by({});
  broken.headers.set("Authorization", std::string(*broken.headers.get("Authorization")) + ",x=y");
  expect_fault(broken, SecretFault::kSignature, "malformed");
  http::RequestHead twice = signed_by({});
  twice.headers.add("authorization", "Bearer x");
  expect_fault(twice, SecretFault::kSignature, "several headers Authorization");
  http::RequestHead payloads = signed_by({});
  payloads.headers.add("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD");
  expect_fault(payloads, SecretFault::kSignature, "several headers X-Amz-Content-Sha256");
}

TEST(Resign, OtherHostsAndHttpWithoutTlsGetNothing) {
  EXPECT_EQ(begun(signed_by({}), credentials(), "other.example.com").error().fault,
            SecretFault::kHost);
  EXPECT_EQ(begun(signed_by({}), credentials(), kHost, Channel::kPlaintext).error().fault,
            SecretFault::kPlaintext);
  auto without = credentials();
  without[1].value = nullptr;
  EXPECT_EQ(begun(signed_by({}), without).error().fault, SecretFault::kNoValue);
}

TEST(Resign, OtherPeoplesSignaturesAndRevokedOnesAreNotItsMatter) {
  http::RequestHead other = signed_by({});
  other.headers.set("Authorization",
                    for_test::replaced(std::string(*other.headers.get("Authorization")), kFakeId,
                                       "AKIAOTHEROTHEROTHER1"));
  EXPECT_FALSE(begun(other).value().has_value());
  EXPECT_FALSE(begun({.method = "GET", .target = "/"}).value().has_value());
  auto revoked = credentials();
  for (SecretEntry& entry : revoked) entry.revoked = true;
  EXPECT_FALSE(begun(signed_by({}), revoked).value().has_value());
}

TEST(Resign, AHeaderThatASecretHasSetIsNotReplaced) {
  http::RequestHead head = signed_by({});
  const auto resigning = begun(head);
  ASSERT_TRUE(resigning.has_value() && resigning->has_value());
  const auto made = (*resigning)->sign(head, "", "", kNow);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().fault, SecretFault::kTwice);
}

TEST(Resign, ThePartsOfCredentialsStandTogether) {
  auto entries = credentials(true);
  std::swap(entries[1], entries[2]);
  EXPECT_FALSE(SecretRules::create(entries).has_value());
  entries = credentials(true);
  entries.pop_back();
  EXPECT_FALSE(SecretRules::create(entries).has_value());
  entries = credentials();
  entries[1].rule.signing->regions = {"r-2"};
  EXPECT_FALSE(SecretRules::create(entries).has_value());
  entries = credentials();
  entries[0].rule.max_occurrences = 2;
  EXPECT_FALSE(SecretRules::create(entries).has_value());
  // Of which one is no more.
  entries = credentials();
  entries.push_back(credentials(true).back());
  entries.back().revoked = true;
  const auto rules = SecretRules::create(entries);
  ASSERT_TRUE(rules.has_value());
  ASSERT_EQ((*rules)->signers().size(), 1u);
  EXPECT_FALSE((*rules)->signers()[0].session_token.has_value());
}

}  // namespace
}  // namespace caisson::egress
