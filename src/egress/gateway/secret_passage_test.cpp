#include "egress/gateway/secret_passage.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "egress/secrets/secrets_for_test.h"

// In which order a gateway asks, and what it tells. What is found where: src/egress/secrets.
namespace caisson::egress {
namespace {

using for_test::kPlaceholder;
using for_test::kValue;
using Read = SecretPassage::Read;

SecretPassage passage_to(std::string_view host, std::vector<for_test::Place> in = {}) {
  return SecretPassage(for_test::rules({for_test::entry(std::move(in))}), for_test::host(host),
                       Channel::kVerifiedTls);
}

http::RequestHead post(std::string_view type, std::size_t size) {
  http::RequestHead head{.method = "POST", .target = "/x"};
  head.headers.add("Content-Type", type).add("Content-Length", std::to_string(size));
  return head;
}

std::string reason_of(const std::optional<SecretRefusal>& refusal) {
  return refusal ? std::to_string(refusal->status) + " " + refusal->reason : "none";
}

TEST(SecretPassage, PutsTheValueInAndAsksForAnAnswerThatCanBeRead) {
  SecretPassage passage = passage_to("api.example.com");
  http::RequestHead head{.method = "GET", .target = "/x"};
  head.headers.add("Authorization", "Bearer " + std::string(kPlaceholder));
  head.headers.add("Accept-Encoding", "gzip").add("Range", "bytes=1-").add("If-Range", "x");
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  EXPECT_FALSE(passage.wants_body());
  EXPECT_EQ(reason_of(passage.prepare(head)), "none");
  EXPECT_EQ(head.headers.get("Authorization"), "Bearer " + std::string(kValue));
  EXPECT_EQ(head.headers.get("Accept-Encoding"), "identity");
  EXPECT_FALSE(head.headers.has("Range") || head.headers.has("If-Range"));
  ASSERT_EQ(passage.used().size(), 1u);
  EXPECT_EQ(passage.used()[0].where, "header:authorization");
}

std::shared_ptr<const SecretRules> signing_rules() {
  std::vector<SecretEntry> entries(2);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i] = for_test::entry();
    entries[i].rule.name = i == 0 ? "aws.access_key" : "aws.secret_key";
    entries[i].rule.env = "";
    entries[i].rule.signing = policy::SecretSigning{
        .part = static_cast<policy::SecretSigning::Part>(i), .services = {"s3"}, .regions = {"r"}};
    entries[i].placeholder = "FAKEfakeFAKEfakeFAK" + std::to_string(i);
    entries[i].value = for_test::shared("REALrealREALrealREA" + std::to_string(i));
  }
  return for_test::rules(std::move(entries));
}

// PUT with a hash, as a client signs it.
http::RequestHead signed_put(std::string_view body) {
  Sha256 hash;
  hash.update(body);
  http::RequestHead head{.method = "PUT",
                         .target = "/b/k",
                         .headers = {{"Host", "api.example.com"},
                                     {"X-Amz-Content-Sha256", hash.finish()},
                                     {"X-Amz-Date", "20010203T040506Z"},
                                     {"Range", "bytes=0-1"},
                                     {"Content-Length", std::to_string(body.size())}}};
  sigv4::Authorization made{.access_key = "FAKEfakeFAKEfakeFAK0",
                            .scope = {"20010203", "r", "s3"},
                            .signed_headers = {"host", "x-amz-content-sha256", "x-amz-date"},
                            .signature = {}};
  const std::string request = sigv4::canonical_request(head, "/b/k", "", made.signed_headers,
                                                       *head.headers.get("X-Amz-Content-Sha256"));
  made.signature = sigv4::signature(sigv4::derived_key("FAKEfakeFAKEfakeFAK1", made.scope).bytes(),
                                    "20010203T040506Z", made.scope, request);
  head.headers.add("Authorization", sigv4::written(made));
  return head;
}

TEST(SecretPassage, ASignedRequestIsSignedAnewAndMayAskForAPart) {
  SecretPassage passage(signing_rules(), for_test::host("api.example.com"), Channel::kVerifiedTls);
  http::RequestHead head = signed_put("body");
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  ASSERT_TRUE(passage.wants_body());
  EXPECT_EQ(reason_of(passage.collected("body", Read::kAll)), "none");
  EXPECT_EQ(reason_of(passage.prepare(head)), "none");
  EXPECT_EQ(passage.take_body(), "body");
  EXPECT_TRUE(head.headers.get("Authorization")
                  ->starts_with("AWS4-HMAC-SHA256 Credential=REALrealREALrealREA0/"));
  EXPECT_TRUE(head.headers.has("Range"));
  ASSERT_EQ(passage.used().size(), 1u);
  EXPECT_EQ(passage.used()[0].where, "sigv4");
  SecretPassage other(signing_rules(), for_test::host("api.example.com"), Channel::kVerifiedTls);
  EXPECT_EQ(reason_of(other.admit(signed_put("body"), false)), "none");
  EXPECT_EQ(reason_of(other.collected("bode", Read::kAll)), "400 secret_signed_body");
}

TEST(SecretPassage, ABodyThatWasSignedIsNotLeftAway) {
  SecretPassage passage(signing_rules(), for_test::host("api.example.com"), Channel::kVerifiedTls);
  http::RequestHead head = signed_put("body");
  head.headers.remove("Content-Length");
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  EXPECT_EQ(reason_of(passage.prepare(head)), "400 secret_signed_body");
}

TEST(SecretPassage, TheLastByteOfASignedBodyWaitsForItsHash) {
  const std::string body(100, 'x');
  for (const std::string& end : {std::string("x"), std::string("y")}) {
    SecretPassage passage(signing_rules(), for_test::host("api.example.com"),
                          Channel::kVerifiedTls);
    http::RequestHead head = signed_put(body);
    EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
    EXPECT_EQ(reason_of(passage.collected(body.substr(0, 50), Read::kPart)), "none");
    EXPECT_EQ(reason_of(passage.prepare(head)), "none");
    std::string sent = passage.take_body();
    sent += passage.check_body(body.substr(0, 49)).value_or("?");
    sent += passage.check_body(end).value_or("?");
    EXPECT_LT(sent.size(), body.size());
    const auto last = passage.check_body("");
    EXPECT_EQ(last.has_value(), end == "x");
    EXPECT_EQ(reason_of(passage.refusal()), end == "x" ? "none" : "400 secret_signed_body");
    if (last.has_value()) EXPECT_EQ(sent + *last, body);
  }
}

TEST(SecretPassage, LeavesWhatGoesToOthersAsItIs) {
  SecretPassage passage = passage_to("www.example.net");
  http::RequestHead head{.method = "GET", .target = "/x"};
  head.headers.add("Accept-Encoding", "gzip").add("Range", "bytes=1-");
  EXPECT_EQ(reason_of(passage.admit(head, true)), "none");
  EXPECT_EQ(reason_of(passage.prepare(head)), "none");
  EXPECT_EQ(head.headers.get("Accept-Encoding"), "gzip");
  EXPECT_TRUE(head.headers.has("Range"));
  http::ResponseHead answer{.status = 200};
  answer.headers.add("Content-Encoding", "gzip");
  EXPECT_TRUE(passage.answer_head(answer).has_value());
  EXPECT_EQ(passage.answer_body("abc").value(), "abc");
}

TEST(SecretPassage, RefusesWithTheSecretAndThePlace) {
  SecretPassage passage = passage_to("www.example.net");
  http::RequestHead head{.method = "GET", .target = "/x"};
  head.headers.add("Authorization", "Bearer " + std::string(kPlaceholder));
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  const auto refusal = passage.prepare(head);
  EXPECT_EQ(reason_of(refusal), "403 secret_host");
  ASSERT_EQ(refusal->uses.size(), 1u);
  EXPECT_EQ(refusal->uses[0].secret, "gh");
  EXPECT_EQ(refusal->uses[0].where, "header:authorization");
  EXPECT_FALSE(refusal->sentence.contains(kPlaceholder));
}

TEST(SecretPassage, RefusesWhatCannotBeLookedInto) {
  SecretPassage socket = passage_to("api.example.com");
  EXPECT_EQ(reason_of(socket.admit({.method = "GET", .target = "/"}, true)),
            "403 secret_websocket");
  for (const char* coding : {"br", "gzip, gzip", "deflate", "zstd", ""}) {
    SecretPassage encoded = passage_to("www.example.net");
    http::RequestHead head = post("text/plain", 5);
    head.headers.add("Content-Encoding", coding);
    EXPECT_EQ(reason_of(encoded.admit(head, false)), "415 secret_encoded_body") << coding;
  }
}

std::string zipped(std::string_view text) {
  http::Gzip gzip;
  std::string out = gzip.feed(text);
  return out + gzip.finish();
}

// What becomes of a gzip body of which `first` bytes are read before anything is sent.
std::string sent_of(const std::string& body, std::size_t first) {
  SecretPassage passage = passage_to("www.example.net");
  http::RequestHead head = post("text/plain", body.size());
  head.headers.add("Content-Encoding", "gzip");
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  const bool all = first >= body.size();
  if (const auto refusal = passage.collected(body.substr(0, first), all ? Read::kAll : Read::kPart))
    return reason_of(refusal);
  std::string sent = passage.take_body();
  if (all) return sent;
  for (const std::string& piece : {body.substr(first), std::string()}) {
    const auto passed = passage.check_body(piece);
    if (!passed.has_value()) return reason_of(passage.refusal());
    sent += *passed;
  }
  return sent;
}

TEST(SecretPassage, LooksIntoWhatIsGzip) {
  const std::string clean = zipped("some text"),
                    leak = zipped("some " + std::string(kPlaceholder) + " text");
  for (const std::size_t first : {5uz, 1000uz}) {
    EXPECT_EQ(sent_of(clean, first), clean);
    EXPECT_EQ(sent_of(leak, first), "403 secret_host");
    EXPECT_EQ(sent_of(clean.substr(0, clean.size() - 3), first), "415 secret_encoded_body");
    EXPECT_EQ(sent_of(clean + "garbage", first), "415 secret_encoded_body");
  }
  EXPECT_EQ(sent_of("no gzip at all", 1000), "415 secret_encoded_body");
  EXPECT_EQ(sent_of("", 1000), "");
}

TEST(SecretPassage, ABombIsNoBody) {
  EXPECT_EQ(sent_of(zipped(std::string(20u << 20, 'x')), 1u << 20), "415 secret_encoded_body");
  const std::string large = zipped(std::string(8u << 20, 'x'));
  EXPECT_EQ(sent_of(large, 1u << 20), large);
}

TEST(SecretPassage, AWholeBodyGetsTheValueAndItsLength) {
  SecretPassage passage = passage_to("api.example.com", {{for_test::PlaceKind::kJson, "/t", {}}});
  const std::string body = "{\"t\":\"" + std::string(kPlaceholder) + "\"}";
  http::RequestHead head = post("application/json", body.size());
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  EXPECT_TRUE(passage.wants_body());
  EXPECT_EQ(reason_of(passage.collected(body, Read::kAll)), "none");
  EXPECT_EQ(reason_of(passage.prepare(head)), "none");
  EXPECT_EQ(passage.take_body(), "{\"t\":\"" + std::string(kValue) + "\"}");
  EXPECT_EQ(head.headers.get("Content-Length"), std::to_string(body.size()));
}

TEST(SecretPassage, ABodyIsLookedAtBeforeAndBehindWhatWasCollected) {
  const std::string half(kPlaceholder.substr(0, 10)), rest(kPlaceholder.substr(10));
  SecretPassage whole = passage_to("www.example.net");
  EXPECT_EQ(reason_of(whole.admit(post("text/plain", 100), false)), "none");
  EXPECT_EQ(reason_of(whole.collected("a" + half + rest, Read::kAll)), "403 secret_host");

  SecretPassage split = passage_to("www.example.net");
  EXPECT_EQ(reason_of(split.admit(post("text/plain", 100), false)), "none");
  EXPECT_EQ(reason_of(split.collected("a" + half, Read::kPart)), "none");
  EXPECT_EQ(split.take_body(), "a");
  const auto piece = split.check_body(rest);
  ASSERT_FALSE(piece.has_value());
  EXPECT_EQ(reason_of(split.refusal()), "403 secret_host");

  SecretPassage clean = passage_to("www.example.net");
  EXPECT_EQ(reason_of(clean.admit(post("text/plain", 100), false)), "none");
  EXPECT_EQ(reason_of(clean.collected("a" + half, Read::kPart)), "none");
  std::string sent = clean.take_body();
  sent += clean.check_body("b").value() + clean.check_body("").value();
  EXPECT_EQ(sent, "a" + half + "b");
}

TEST(SecretPassage, AnswersHaveThePlaceholderOrAreBrokenOff) {
  SecretPassage passage = passage_to("api.example.com");
  http::RequestHead head{.method = "GET", .target = "/x"};
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  EXPECT_EQ(reason_of(passage.prepare(head)), "none");
  http::ResponseHead answer{.status = 302, .reason = "Found"};
  answer.headers.add("Location", "https://evil.example.org/?t=" + std::string(kValue));
  EXPECT_TRUE(passage.answer_head(answer).has_value());
  EXPECT_EQ(answer.headers.get("Location"),
            "https://evil.example.org/?t=" + std::string(kPlaceholder));
  std::string body = passage.answer_body("x" + std::string(kValue.substr(0, 12))).value();
  EXPECT_EQ(body, "x");
  body += passage.answer_body(std::string(kValue.substr(12)) + "y").value();
  body += passage.answer_body("").value();
  EXPECT_EQ(body, "x" + std::string(kPlaceholder) + "y");
  EXPECT_EQ(passage.scrubbed(), 2u);

  http::ResponseHead encoded{.status = 200};
  encoded.headers.add("Content-Encoding", "gzip");
  EXPECT_FALSE(passage.answer_head(encoded).has_value());
  EXPECT_EQ(reason_of(passage.refusal()), "502 secret_encoded_answer");
}

TEST(SecretPassage, AnAnswerThatNothingCanStandInForIsBrokenOff) {
  SecretPassage passage = passage_to("api.example.com");
  http::RequestHead head{.method = "GET", .target = "/x"};
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  std::string wide;
  for (const char c : kValue) wide += std::string(1, c) + '\0';
  std::string out;
  Result<std::string> piece = passage.answer_body(wide);
  if (piece.has_value()) piece = passage.answer_body("");
  EXPECT_FALSE(piece.has_value());
  EXPECT_EQ(reason_of(passage.refusal()), "502 secret_in_answer");
  EXPECT_TRUE(passage.refusal()->sentence.contains("in the form"));
}

http::RequestHead grpc(std::string_view more_name = "x", std::string_view more = "1") {
  http::RequestHead head{.method = "POST", .target = "/a.B/C"};
  head.headers.add("content-type", "application/grpc+proto").add("Transfer-Encoding", "chunked");
  head.headers.add("grpc-accept-encoding", "gzip").add(more_name, more);
  return head;
}

TEST(SecretPassage, LooksAtACallOfGrpcAsItGoes) {
  SecretPassage passage = passage_to("www.example.net");
  EXPECT_EQ(reason_of(passage.admit(grpc(), false)), "none");
  EXPECT_FALSE(passage.wants_body());
  // A message that ends as a placeholder begins is whole, or its answer would not come.
  const std::string end = "x" + std::string(kPlaceholder.substr(0, 4));
  EXPECT_EQ(passage.check_body(end).value_or("?"), end);
  EXPECT_EQ(passage.check_body("other").value_or("?"), "other");
  // No more than that begins it, and the rest of it is not out.
  EXPECT_EQ(passage.check_body(std::string(kPlaceholder.substr(0, 5))).value_or("?"), "");
  EXPECT_FALSE(passage.check_body(std::string(kPlaceholder.substr(5))).has_value());
  EXPECT_EQ(reason_of(passage.refusal()), "403 secret_host");
}

TEST(SecretPassage, MessagesThatAreCompressedCannotBeLookedInto) {
  EXPECT_EQ(reason_of(passage_to("www.example.net").admit(grpc("grpc-encoding", "gzip"), false)),
            "415 secret_encoded_body");
  EXPECT_EQ(
      reason_of(passage_to("www.example.net").admit(grpc("grpc-encoding", "identity"), false)),
      "none");
  EXPECT_EQ(
      reason_of(
          passage_to("www.example.net").admit(grpc("connect-content-encoding", "gzip"), false)),
      "415 secret_encoded_body");
  SecretPassage passage = passage_to("api.example.com");
  http::RequestHead head = grpc("connect-accept-encoding", "gzip");
  EXPECT_EQ(reason_of(passage.admit(head, false)), "none");
  EXPECT_EQ(reason_of(passage.prepare(head)), "none");
  EXPECT_FALSE(head.headers.has("grpc-accept-encoding"));
  EXPECT_FALSE(head.headers.has("connect-accept-encoding"));
  http::ResponseHead answer{.status = 200};
  answer.headers.add("content-type", "application/grpc").add("grpc-encoding", "gzip");
  EXPECT_FALSE(passage.answer_head(answer).has_value());
  EXPECT_EQ(reason_of(passage.refusal()), "502 secret_encoded_answer");
}

TEST(SecretPassage, AnAnswerOfGrpcHasPausesAndStillNoValue) {
  SecretPassage passage = passage_to("api.example.com");
  EXPECT_EQ(reason_of(passage.admit(grpc(), false)), "none");
  http::ResponseHead head{.status = 200};
  head.headers.add("content-type", "application/grpc");
  EXPECT_TRUE(passage.answer_head(head).has_value());
  const std::string value(kValue);
  EXPECT_EQ(passage.answer_body("a" + value + "b").value_or("?"),
            "a" + std::string(kPlaceholder) + "b");
  EXPECT_EQ(passage.answer_body(value.substr(0, 4)).value_or("?"), value.substr(0, 4));
  EXPECT_FALSE(passage.answer_body(value.substr(4)).has_value());
}

TEST(SecretPassage, WhatStandsBehindABodyIsLookedAtToo) {
  SecretPassage passage = passage_to("api.example.com");
  EXPECT_EQ(reason_of(passage.admit(grpc(), false)), "none");
  http::Headers clean, placeholder;
  clean.add("x-mine", "1");
  placeholder.add("authorization-late", kPlaceholder);
  EXPECT_TRUE(passage.check_trailers(clean).has_value());
  EXPECT_FALSE(passage.check_trailers(placeholder).has_value());
  EXPECT_EQ(reason_of(passage.refusal()), "403 secret_place");
  http::Headers answer;
  answer.add("grpc-status", "0").add("x-echo", kValue);
  EXPECT_TRUE(passage.answer_trailers(answer).has_value());
  EXPECT_EQ(answer.get("x-echo"), kPlaceholder);
  EXPECT_EQ(answer.get("grpc-status"), "0");
}

}  // namespace
}  // namespace caisson::egress
