#include "egress/audit_chain.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "egress/audit_entry.h"

namespace caisson::egress {
namespace {

constexpr std::string_view kRecord =
    R"({"ts":"2023-11-14T22:13:20.000000Z","v":2,"kind":"tcp","decision":"deny"})"
    "\n";

const std::string kId(kAuditChainId, 'a');
const std::string kMaster(kAuditKey, 'm');

AuditChainKey key() {
  return AuditChainKey::of(kMaster, kId);
}
AuditChain new_chain() {
  return std::move(AuditChain::create(key(), {})).value();
}
SecretValue key_of(std::uint64_t sequence) {
  return AuditKeys(key().key.bytes()).take(sequence);
}

AuditEntry entry_of(std::string line) {
  EXPECT_TRUE(line.ends_with("\n"));
  line.pop_back();
  if (line.starts_with("\n")) line.erase(0, 1);
  auto entry = parse_audit_line(line);
  EXPECT_TRUE(entry.has_value()) << line;
  return entry.value_or(AuditEntry());
}

TEST(AuditChain, ARecordGetsItsNumberAndTheHashOfAllBeforeIt) {
  AuditChain chain = new_chain();
  const std::string first = chain.next(kRecord);
  // As Python's hmac has it, of 32 zero bytes and the line before the comma.
  EXPECT_EQ(first, R"({"ts":"2023-11-14T22:13:20.000000Z","v":2,"kind":"tcp","decision":"deny",)"
                   R"("chain":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","seq":1,)"
                   R"("hash":"12c1375839d4feb81e8c9a79a3dffdf958ffa2f17292e409207b718fbf3688b5"})"
                   "\n");
  chain.appended(first.size());
  EXPECT_EQ(chain.head().sequence, 1u);
  const std::string second = chain.next(kRecord);
  const AuditEntry entry = entry_of(second);
  EXPECT_EQ(entry.sequence, 2u);
  EXPECT_EQ(entry.hash, audit_hash(key_of(2), chain.head().hash, second.substr(0, entry.hashed)));
  EXPECT_NE(entry.hash, audit_hash(key_of(2), AuditHead().hash, second.substr(0, entry.hashed)));
}

TEST(AuditChain, ARecordThatTheFileDidNotTakeIsCountedByTheNext) {
  AuditChain chain = new_chain();
  (void)chain.next(kRecord);
  chain.appended(0);
  chain.lose();
  const std::string line = chain.next(kRecord);
  const AuditEntry entry = entry_of(line);
  EXPECT_EQ(entry.sequence, 3u);
  EXPECT_EQ(entry.lost, 2u);
  EXPECT_EQ(entry.torn, 0u);
  chain.appended(line.size());
  EXPECT_EQ(entry_of(chain.next(kRecord)).lost, 0u);
}

TEST(AuditChain, ARecordThatWasCutOffStaysAndTheNextSaysSo) {
  AuditChain chain = new_chain();
  const std::string first = chain.next(kRecord);
  chain.appended(10);
  const std::string second = chain.next(kRecord);
  EXPECT_TRUE(second.starts_with("\n{"));
  chain.appended(5);
  const std::string third = chain.next(kRecord);
  const AuditEntry entry = entry_of(third);
  EXPECT_EQ(entry.torn, 15u);
  Sha256 hash;
  hash.update(first.substr(0, 10) + second.substr(0, 5));
  EXPECT_EQ(entry.torn_sha256, hash.finish());
  EXPECT_EQ(entry.lost, 2u);
  chain.appended(third.size());
  EXPECT_TRUE(chain.next(kRecord).starts_with("{"));
}

TEST(AuditChain, TheHeadIsReadAsItWasWritten) {
  const AuditHead head{.sequence = 12, .hash = audit_hash(key_of(1), AuditHead().hash, "x")};
  const auto again = AuditHead::decode(head.encode());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, head);
  for (const char* text : {"", "12", "12 ", "x 00", "12 abc", " 12"})
    EXPECT_FALSE(AuditHead::decode(text).has_value()) << text;
  EXPECT_FALSE(AuditHead::decode(head.encode() + " ").has_value());
}

TEST(AuditChain, ItsHeadIsAlsoFortyBytes) {
  const AuditHead head{.sequence = 0x010203040506, .hash = std::string(64, 'b')};
  EXPECT_EQ(head.bytes().size(), 40u);
  EXPECT_EQ(head.bytes().substr(0, 8), std::string("\0\0\1\2\3\4\5\6", 8));
  EXPECT_EQ(AuditHead::from_bytes(head.bytes()).value(), head);
  for (const std::size_t size : {0, 39, 41})
    EXPECT_FALSE(AuditHead::from_bytes(std::string(size, 'x')).has_value());
}

TEST(AuditChain, EndsWithTheNumbers) {
  EXPECT_FALSE(AuditChain::create(key(), {.sequence = kMostAuditSequence}).has_value());
  AuditChain chain =
      std::move(AuditChain::create(key(), {.sequence = kMostAuditSequence - 1})).value();
  const std::string last = chain.next(kRecord);
  EXPECT_EQ(entry_of(last).sequence, kMostAuditSequence);
  chain.appended(last.size());
  EXPECT_EQ(chain.next(kRecord), "");
}

TEST(AuditChain, TheFirstRecordOfAFileNamesIt) {
  AuditChain chain = std::move(AuditChain::create(key(), {.sequence = 7})).value();
  const std::string before = chain.next(kRecord);
  EXPECT_EQ(entry_of(before).chain, "");
  chain.appended(before.size());
  chain.begin_file();
  const std::string line = chain.next(audit_link("segment", {}, "2023-11-14T22:13:20Z"));
  const AuditEntry entry = entry_of(line);
  EXPECT_EQ(entry.chain, kId);
  EXPECT_EQ(entry.before, AuditHead().hash);
  chain.appended(line.size());
  const AuditEntry aside = entry_of(chain.next(audit_aside("2023-11-14T22:13:20Z")));
  EXPECT_EQ(aside.kind, "aside");
  EXPECT_EQ(aside.chain, "");
}

TEST(AuditEntry, OnlyWhatTheChainMakesIsARecord) {
  AuditChain chain = new_chain();
  std::string line = chain.next(kRecord);
  line.pop_back();
  ASSERT_TRUE(parse_audit_line(line).has_value());
  const auto refused = [&](std::string_view from, std::string_view to) {
    std::string other = line;
    other.replace(other.find(from), from.size(), to);
    const auto entry = parse_audit_line(other);
    return entry.has_value() ? "" : entry.error().message();
  };
  EXPECT_EQ(refused("\"v\":2", "\"v\":1"), "v: allowed is 2");
  EXPECT_EQ(refused("\"seq\":1", "\"seq\":0"), "seq: allowed is a number from 1 to 2^48 - 1");
  EXPECT_EQ(refused("\"seq\":1", "\"seq\":-1"), "seq: allowed is a whole number");
  EXPECT_EQ(refused("\"seq\":1", "\"seq\":1.5"), "seq: allowed is a whole number");
  EXPECT_EQ(refused("\"tcp\"", "\"\""), "kind: allowed is a word");
  EXPECT_EQ(refused("\"tcp\"", "7"), "kind: allowed is a text");
  EXPECT_EQ(refused("2023-", "x"), "ts: allowed is a time");
  EXPECT_EQ(refused("\"deny\"", "\"maybe\""), "decision: allowed is allow or deny");
  EXPECT_EQ(refused("\"v\":2", "\"v\":2,\"torn\":3"),
            "torn_sha256: allowed is a SHA-256 beside torn");
  EXPECT_EQ(refused("\"v\":2", "\"v\":2,\"before\":\"x\""), "before: allowed is a SHA-256");
  EXPECT_NE(refused("\"v\":2", "\"v\":2,\"v\":2"), "");
  EXPECT_EQ(refused("\"v\":2", "\"v\":2,\"x\":{\"y\":1}"),
            "x: allowed is a text, a number or a truth");
  EXPECT_NE(refused("\"v\":2", "\"v\":2,\"secrets\":[{\"name\":[]}]"), "");
  for (const char* uses : {"{}", "[1]"}) {
    EXPECT_EQ(refused("\"v\":2", "\"v\":2,\"secrets\":" + std::string(uses)),
              "secrets: allowed is a list of the uses of secrets");
  }
  EXPECT_NE(refused("\"seq\":1,", "\"seq\":1, "), "");
  EXPECT_NE(refused("\"tcp\"", "\"tcp"), "");
  EXPECT_NE(refused("\"}", "\"} "), "");
  for (const char* text : {"", "{}", "[]", "x"})
    EXPECT_FALSE(parse_audit_line(text).has_value()) << text;
  std::string upper = line;
  upper[upper.size() - 3] = 'F';
  EXPECT_EQ(parse_audit_line(upper).error().message(), "hash: allowed is 64 hexadecimal digits");
  std::string large = line;
  large.insert(large.find("tcp"), std::string(kMostAuditLine, 'x'));
  EXPECT_EQ(parse_audit_line(large).error().message(), "it is longer than 65536 bytes");
}

TEST(AuditEntry, TheSecretsOfARequestAreTold) {
  const auto parsed = [](std::string_view secrets) {
    std::string record(kRecord);
    record.insert(record.rfind('}'), R"(,"secrets":)" + std::string(secrets));
    AuditChain chain = new_chain();
    std::string line = chain.next(record);
    line.pop_back();
    return parse_audit_line(line);
  };
  const auto entry =
      parsed(R"([{"name":"gh","where":"query:key","n":1},{"name":"x","where":"path"}])");
  ASSERT_TRUE(entry.has_value()) << entry.error().message();
  EXPECT_EQ(entry->secrets, (std::vector<std::string>{"gh in query:key", "x in path"}));
  EXPECT_TRUE(audit_sentence(*entry).ends_with(", secret gh in query:key, secret x in path"));
  EXPECT_TRUE(parsed(R"([{"name":1}])").has_value());
  std::string many = "{}";
  for (std::size_t i = 0; i < kMostAuditSecrets; ++i) many += ",{}";
  EXPECT_FALSE(parsed("[" + many + "]").has_value());
}

TEST(AuditEntry, ASentenceSaysWhatAndWhyAndCannotPlayWithATerminal) {
  AuditEntry entry{.sequence = 9,
                   .time = "2023-11-14T22:13:20Z",
                   .sandbox = "sb1",
                   .kind = "http",
                   .decides = true,
                   .rule = "api",
                   .reason = "path",
                   .host = "a.example.com",
                   .method = "GET",
                   .path = "/\x1b[0m",
                   .port = 80,
                   .status = 403};
  EXPECT_EQ(audit_sentence(entry),
            "9 2023-11-14T22:13:20Z sb1 deny http GET a.example.com:80/?[0m: no rule for the host "
            "has the path, with that method (the nearest is api), status 403");
  entry = {.sequence = 1,
           .time = "T",
           .kind = "tcp",
           .decides = true,
           .allowed = true,
           .rule = "api",
           .reason = "match",
           .destination = "10.0.0.1:5432",
           .detail = "ended by idle",
           .bytes_up = 1,
           .bytes_down = 2,
           .lost = 3,
           .torn = 4};
  EXPECT_EQ(audit_sentence(entry),
            "1 T allow tcp 10.0.0.1:5432: a rule allows it (api); ended by idle, 1 bytes up, 2 "
            "down; 3 records before it were lost; the 4 bytes before it were cut off");
  EXPECT_EQ(audit_sentence({.sequence = 2, .time = "T", .sandbox = "sb1", .kind = "begin"}),
            "2 T sb1 begin");
}

}  // namespace
}  // namespace caisson::egress
