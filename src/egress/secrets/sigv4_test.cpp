#include "egress/secrets/sigv4.h"

#include <gtest/gtest.h>

// The requests are examples of AWS's documentation: of the Signature Version 4 test suite, and of
// "Signature calculations for the Authorization header" in the S3 API reference.
namespace caisson::egress::sigv4 {
namespace {

constexpr std::string_view kSuiteKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr std::string_view kS3Key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
constexpr std::string_view kEmpty =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct Example {
  std::string_view name;
  http::RequestHead head;
  std::vector<std::string> signed_headers;
  std::string_view payload, signature;
};

std::string signed_by(std::string_view key, std::string_view time, const Scope& scope,
                      const Example& example) {
  const std::string_view target = example.head.target;
  const std::size_t question = std::min(target.find('?'), target.size());
  const std::string request =
      canonical_request(example.head, target.substr(0, question),
                        canonical_query(target.substr(std::min(question + 1, target.size()))),
                        example.signed_headers, example.payload);
  return signature(derived_key(key, scope).bytes(), time, scope, request);
}

TEST(SigV4, SignsAsTheExamplesOfTheTestSuite) {
  const std::vector<std::string> kUsual = {"host", "x-amz-date"};
  const auto get = [](std::string_view target) {
    return http::RequestHead{
        .method = "GET",
        .target = std::string(target),
        .headers = {{"Host", "example.amazonaws.com"}, {"X-Amz-Date", "20150830T123600Z"}}};
  };
  Example post{"post-vanilla", get("/"), kUsual, kEmpty,
               "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"};
  post.head.method = "POST";
  const std::vector<Example> examples = {
      {"get-vanilla", get("/"), kUsual, kEmpty,
       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"get-vanilla-query-order-key-case", get("/?Param2=value2&Param1=value1"), kUsual, kEmpty,
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-vanilla-empty-query-key", get("/?Param1=value1"), kUsual, kEmpty,
       "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
      post};
  const Scope scope{"20150830", "us-east-1", "service"};
  for (const Example& example : examples)
    EXPECT_EQ(signed_by(kSuiteKey, "20150830T123600Z", scope, example), example.signature)
        << example.name;
}

TEST(SigV4, SignsAsTheExamplesOfS3) {
  const auto head = [](std::string_view method, std::string_view target, std::string_view payload) {
    return http::RequestHead{.method = std::string(method),
                             .target = std::string(target),
                             .headers = {{"Host", "examplebucket.s3.amazonaws.com"},
                                         {"x-amz-content-sha256", payload},
                                         {"x-amz-date", "20130524T000000Z"}}};
  };
  const std::vector<std::string> kUsual = {"host", "x-amz-content-sha256", "x-amz-date"};
  constexpr std::string_view kText =
      "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
  Example get{"get",
              head("GET", "/test.txt", kEmpty),
              {"host", "range", "x-amz-content-sha256", "x-amz-date"},
              kEmpty,
              "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"};
  get.head.headers.add("Range", "bytes=0-9");
  Example put{"put",
              head("PUT", "/test%24file.text", kText),
              {"date", "host", "x-amz-content-sha256", "x-amz-date", "x-amz-storage-class"},
              kText,
              "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"};
  put.head.headers.add("Date", "Fri, 24 May 2013 00:00:00 GMT")
      .add("x-amz-storage-class", "REDUCED_REDUNDANCY");
  const std::vector<Example> examples = {
      get,
      put,
      {"lifecycle", head("GET", "/?lifecycle", kEmpty), kUsual, kEmpty,
       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {"list", head("GET", "/?max-keys=2&prefix=J", kEmpty), kUsual, kEmpty,
       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"}};
  const Scope scope{"20130524", "us-east-1", "s3"};
  for (const Example& example : examples)
    EXPECT_EQ(signed_by(kS3Key, "20130524T000000Z", scope, example), example.signature)
        << example.name;
}

TEST(SigV4, TheKeyIsThatOfTheDocumentation) {
  const SecretValue key = derived_key(kSuiteKey, {"20150830", "us-east-1", "iam"});
  std::string hex;
  for (const char c : key.bytes()) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  EXPECT_EQ(hex, "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
}

TEST(SigV4, AHeaderIsFoldedAndItsValuesJoined) {
  const http::RequestHead head{
      .method = "GET",
      .target = "/",
      .headers = {{"My-Header", "  a   b\t c "}, {"Host", "h"}, {"my-header", "second"}}};
  EXPECT_EQ(canonical_request(head, "/", "", {"host", "my-header", "x-none"}, "p"),
            "GET\n/\n\nhost:h\nmy-header:a b c,second\nx-none:\n\nhost;my-header;x-none\np");
}

TEST(SigV4, AQueryHasOneSpellingAndOneOrder) {
  EXPECT_EQ(canonical_query(""), "");
  EXPECT_EQ(canonical_query("b=2&a=2&a=1&a"), "a=&a=1&a=2&b=2");
  EXPECT_EQ(canonical_query("k=a%20b&&k=%7e&k=a/b&k=x=y"), "k=a%20b&k=a%2Fb&k=x%3Dy&k=~");
  EXPECT_EQ(canonical_query("B=1&b=1&%41=%2b"), "A=%2B&B=1&b=1");
}

TEST(SigV4, APathKeepsItsSlashesAlone) {
  EXPECT_EQ(encoded_path("/"), "/");
  EXPECT_EQ(encoded_path("/a b/%20/~-._/"), "/a%20b/%2520/~-._/");
}

TEST(SigV4, ATimestampIsUtcInItsShortForm) {
  EXPECT_EQ(timestamp(std::chrono::system_clock::time_point(std::chrono::seconds(1369353600))),
            "20130524T000000Z");
  EXPECT_TRUE(is_timestamp("20130524T000000Z"));
  for (const std::string_view wrong : {"", "20130524T000000", "20130524 000000Z",
                                       "2013052xT000000Z", "20130524T00000xZ", "20130524T0000000Z"})
    EXPECT_FALSE(is_timestamp(wrong)) << wrong;
}

const std::string kCredential = "Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request";
const std::string kSignature = "Signature=" + std::string(kEmpty);
const std::string kWhole =
    "AWS4-HMAC-SHA256 " + kCredential + ", SignedHeaders=content-type;host, " + kSignature;

TEST(SigV4, ReadsAnAuthorizationAndWritesItAsItWas) {
  const auto read = parse_authorization(kWhole);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->access_key, "AKIDEXAMPLE");
  EXPECT_EQ(read->scope, (Scope{"20150830", "us-east-1", "iam"}));
  EXPECT_EQ(read->scope.text(), "20150830/us-east-1/iam/aws4_request");
  EXPECT_EQ(read->signed_headers, (std::vector<std::string>{"content-type", "host"}));
  EXPECT_EQ(read->signature, kEmpty);
  EXPECT_EQ(written(*read), kWhole);
  EXPECT_EQ(parse_authorization("AWS4-HMAC-SHA256 " + kSignature +
                                ",SignedHeaders=content-type;host," + kCredential),
            read);
}

TEST(SigV4, RefusesWhatIsNoAuthorization) {
  const auto with = [](std::string_view credential, std::string_view headers,
                       std::string_view signature) {
    return "AWS4-HMAC-SHA256 Credential=" + std::string(credential) +
           ", SignedHeaders=" + std::string(headers) + ", Signature=" + std::string(signature);
  };
  constexpr std::string_view kGood = "A/20150830/r/s/aws4_request";
  ASSERT_TRUE(parse_authorization(with(kGood, "host", kEmpty)).has_value());
  const std::vector<std::string> wrong = {
      "",
      "Bearer x",
      "AWS4-HMAC-SHA256",
      "AWS4-HMAC-SHA256x" + kWhole.substr(16),
      "AWS4-HMAC-SHA256 " + kCredential,
      kWhole + ", " + kSignature,
      kWhole + ",",
      kWhole + ", a=b",
      "AWS4-ECDSA-P256-SHA256 " + kCredential + ", SignedHeaders=host, " + kSignature,
      with("A/20150830/r/s", "host", kEmpty),
      with("A/20150830/r/s/aws5_request", "host", kEmpty),
      with("A/b/20150830/r/s/aws4_request", "host", kEmpty),
      with("/20150830/r/s/aws4_request", "host", kEmpty),
      with("A/2015083/r/s/aws4_request", "host", kEmpty),
      with("A/20150830//s/aws4_request", "host", kEmpty),
      with("A/20150830/r/s\"/aws4_request", "host", kEmpty),
      with("A/20150830/" + std::string(129, 'r') + "/s/aws4_request", "host", kEmpty),
      with(kGood, "", kEmpty),
      with(kGood, "content-type", kEmpty),
      with(kGood, "Host", kEmpty),
      with(kGood, "host;content-type", kEmpty),
      with(kGood, "host;host", kEmpty),
      with(kGood, "host;", kEmpty),
      with(kGood, "host", "abc"),
      with(kGood, "host", std::string(64, 'A'))};
  for (const std::string& value : wrong)
    EXPECT_FALSE(parse_authorization(value).has_value()) << value;
}

}  // namespace
}  // namespace caisson::egress::sigv4
