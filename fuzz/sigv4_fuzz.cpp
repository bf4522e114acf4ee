// libraries: secrets policy http base
// parser: src/egress/secrets/sigv4.cpp src/egress/secrets/resign.cpp
// parser: src/egress/secrets/secret_rules.cpp
//
// Requests that are signed with placeholders of AWS credentials: METHOD TARGET, lines of headers,
// an empty line, the body. In the value of a header, $I is the placeholder of the access key and $S
// the signature that a client with the placeholders makes of the request. What is sent is signed
// with the value, has no placeholder, and a signature that was not verified is sent nowhere.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"
#include "egress/secrets/resign.h"
#include "http/text.h"
#include "policy/secret_check.h"
#include "policy/url_path.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT
using Part = policy::SecretSigning::Part;

constexpr std::string_view kFakeId = "AKIAFAKEFAKEFAKE2345";
constexpr std::string_view kFakeKey = "FakeFakeFakeFakeFakeFakeFakeFakeFake0001";
constexpr std::string_view kHost = "s3.example.com";

std::shared_ptr<const SecretRules> rules() {
  constexpr std::string_view kFake[] = {kFakeId, kFakeKey, "FakeTokenFakeTokenFakeTokenFake"};
  constexpr std::string_view kReal[] = {"AKIAREALREALREAL2345",
                                        "RealRealRealRealRealRealRealReal/Real+01",
                                        "RealToken/RealToken+RealTokenA="};
  std::vector<SecretEntry> entries;
  for (std::size_t i = 0; i < 3; ++i) {
    SecretEntry& made = entries.emplace_back();
    const Part part = static_cast<Part>(i);
    made.rule.name = "aws" + std::string(policy::suffix_of(part));
    made.rule.source = {.kind = policy::SecretSource::Kind::kEnv, .text = "A"};
    made.rule.hosts = {std::string(kHost)};
    made.rule.signing = policy::SecretSigning{
        .part = part, .temporary = true, .services = {"s3", "sts"}, .regions = {"r"}};
    made.placeholder = kFake[i];
    made.value = std::make_shared<const SecretValue>(kReal[i]);
  }
  auto made = SecretRules::create(std::move(entries));
  VERIFY(made.has_value());  // the credentials fit together
  return *made;
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

struct Input {
  http::RequestHead head;
  std::string body;
};

std::optional<Input> read(std::string_view text) {
  Input made;
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::string_view first = text.substr(0, line);
  const std::size_t space = first.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  made.head.method = first.substr(0, space);
  made.head.target = first.substr(space + 1);
  replace(made.head.target, "$I", kFakeId);
  text.remove_prefix(std::min(line + 1, text.size()));
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view header = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (header.empty()) break;
    const std::size_t colon = header.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    std::string value(http::trimmed(header.substr(colon + 1)));
    replace(value, "$I", kFakeId);
    if (!http::is_token(header.substr(0, colon)) || !http::is_value(value)) return std::nullopt;
    made.head.headers.add(header.substr(0, colon), value);
  }
  made.body = text;
  return made;
}

// The signature that a client makes, where the request says $S.
void sign_as_client(Input& input) {
  const auto said = input.head.headers.get("Authorization");
  if (!said || said->find("$S") == std::string_view::npos) return;
  std::string value(*said);
  std::string blank = value;
  replace(blank, "$S", std::string(64, '0'));
  const auto read = sigv4::parse_authorization(blank);
  if (!read) return;
  const std::string_view target = input.head.target;
  const std::size_t question = std::min(target.find('?'), target.size());
  const std::string hash = sha256(input.body);
  const std::string request = sigv4::canonical_request(
      input.head, target.substr(0, question),
      sigv4::canonical_query(target.substr(std::min(question + 1, target.size()))),
      read->signed_headers, input.head.headers.get("X-Amz-Content-Sha256").value_or(hash));
  replace(
      value, "$S",
      sigv4::signature(sigv4::derived_key(kFakeKey, read->scope).bytes(),
                       input.head.headers.get("X-Amz-Date").value_or(""), read->scope, request));
  input.head.headers.set("Authorization", value);
}

void check_written(const http::RequestHead& head) {
  for (const auto& [name, value] : head.headers.all()) {
    const auto read = sigv4::parse_authorization(value);
    if (!read) continue;
    const auto again = sigv4::parse_authorization(sigv4::written(*read));
    VERIFY(again.has_value() && *again == *read);  // what is written is read as the same
  }
  const std::string once = sigv4::canonical_query(head.target);
  VERIFY(sigv4::canonical_query(once) == once);  // a canonical query stays as it is
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<const SecretRules> all = rules();
  static const policy::Host host = policy::canonical_host(kHost).value();
  auto input = read({reinterpret_cast<const char*>(data), size});
  // What is sent always names its host; the server's reader has seen to that.
  if (!input || !input->head.headers.has("Host")) return 0;
  sign_as_client(*input);
  check_written(input->head);
  const auto resigning = Resigning::begin(all, host, Channel::kVerifiedTls, input->head);
  if (!resigning.has_value()) {
    VERIFY(!resigning.error().sentence().empty());  // a refusal says why
    return 0;
  }
  if (!resigning->has_value()) return 0;
  const std::string hash = sha256(input->body);
  if ((*resigning)->check_body(hash)) return 0;
  if ((*resigning)->body() == Resigning::Body::kWhole)
    VERIFY(!(*resigning)->too_long().sentence().empty());  // a refusal says why
  const auto target = policy::canonical_target(input->head.target);
  if (!target.has_value()) return 0;
  http::RequestHead sent = input->head;
  sent.target = target->text();
  (*resigning)->strip(sent);
  const auto use = (*resigning)->sign(sent, hash, hash, std::chrono::system_clock::time_point());
  if (!use.has_value()) return 0;
  const auto made = sigv4::parse_authorization(sent.headers.joined("Authorization"));
  VERIFY(made.has_value() &&
         made->access_key ==
             "AKIAREALREALREAL2345");  // the server gets one signature, with the value
  VERIFY(sent.headers.joined("X-Amz-Security-Token") ==
         "RealToken/RealToken+RealTokenA=");  // and the session token
  VERIFY(made->scope.date == "19700101");     // of the gateway's own day
  return 0;
}
