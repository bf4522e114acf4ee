#include "egress/client_hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <memory>
#include <random>

#include "egress/hello_for_test.h"

namespace caisson::egress {
namespace {

using namespace for_test;  // NOLINT: pieces of hellos

using State = ClientHelloReader::State;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClientHello found(std::string_view bytes) {
  ClientHelloReader reader;
  EXPECT_EQ(reader.feed(bytes), State::kFound) << reader.refusal();
  return reader.state() == State::kFound ? reader.hello() : ClientHello{};
}

std::string refused(std::string_view bytes) {
  ClientHelloReader reader;
  EXPECT_EQ(reader.feed(bytes), State::kRefused);
  return reader.refusal();
}

// What OpenSSL's client sends first.
std::string openssl_hello(const char* name, std::string_view protocols, int most_version) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_min_proto_version(ssl.get(), TLS1_2_VERSION);
  SSL_set_max_proto_version(ssl.get(), most_version);
  if (name != nullptr) SSL_set_tlsext_host_name(ssl.get(), name);
  if (!protocols.empty())
    SSL_set_alpn_protos(ssl.get(), reinterpret_cast<const unsigned char*>(protocols.data()),
                        static_cast<unsigned>(protocols.size()));
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
  SSL_set_connect_state(ssl.get());
  SSL_do_handshake(ssl.get());
  std::string bytes(BIO_ctrl_pending(out), '\0');
  EXPECT_EQ(BIO_read(out, bytes.data(), static_cast<int>(bytes.size())),
            static_cast<int>(bytes.size()));
  return bytes;
}

TEST(ClientHello, ReadsThatOfOpenSsl) {
  const std::string bytes = openssl_hello("Api.Example.com", "\x02h2\x08http/1.1", TLS1_3_VERSION);
  const ClientHello hello = found(bytes);
  EXPECT_EQ(hello.server_name, "Api.Example.com");
  EXPECT_THAT(hello.protocols, ElementsAre("h2", "http/1.1"));
  EXPECT_THAT(hello.versions, ElementsAre(0x0304, 0x0303));
  EXPECT_FALSE(hello.hides_name);
  EXPECT_FALSE(hello.early_data);
  EXPECT_EQ(hello.bytes_used, bytes.size());
}

TEST(ClientHello, ReadsThatOfAnOlderClientWithoutExtensionsOfTls13) {
  const ClientHello hello = found(openssl_hello(nullptr, "", TLS1_2_VERSION));
  EXPECT_EQ(hello.server_name, std::nullopt);
  EXPECT_THAT(hello.protocols, IsEmpty());
  EXPECT_THAT(hello.versions, ElementsAre(0x0303));
}

TEST(ClientHello, MayHaveNoExtensionsAtAll) {
  const ClientHello hello = found(records(message(fixed_part(0x0301))));
  EXPECT_EQ(hello.server_name, std::nullopt);
  EXPECT_THAT(hello.versions, ElementsAre(0x0301));
}

TEST(ClientHello, MayBeSplitAtEveryByteOverSegments) {
  const std::string bytes = openssl_hello("www.example.com", "\x02h2", TLS1_3_VERSION);
  const ClientHello whole = found(bytes);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    ClientHelloReader reader;
    EXPECT_EQ(reader.feed(std::string_view(bytes).substr(0, cut)), State::kNeedMore) << cut;
    EXPECT_EQ(reader.feed(std::string_view(bytes).substr(cut)), State::kFound) << cut;
    EXPECT_EQ(reader.hello(), whole) << cut;
  }
}

TEST(ClientHello, MayBeSplitAtEveryByteOverRecords) {
  const std::string bytes = openssl_hello("www.example.com", "\x02h2", TLS1_3_VERSION);
  const std::string_view message = std::string_view(bytes).substr(5);
  ClientHello whole = found(bytes);
  whole.bytes_used += 5;
  for (std::size_t cut = 1; cut < message.size(); ++cut) {
    const std::string split = record(message.substr(0, cut)) + record(message.substr(cut));
    EXPECT_EQ(found(split), whole) << cut;
  }
  whole.bytes_used = 6 * message.size();
  EXPECT_EQ(found(records(message, 1)), whole);
}

TEST(ClientHello, TheNameMayStandBehindALongKeyShare) {
  const std::string bytes =
      hello(extension(51, std::string(17000, 'k')) + server_name("a.example.com"));
  EXPECT_GT(bytes.size(), 16384u);
  EXPECT_EQ(found(bytes).server_name, "a.example.com");
}

TEST(ClientHello, MayHave64KiBAndNoByteMore) {
  const std::size_t overhead =
      hello(server_name("a.example.com") + extension(21, "")).size() + 3 * 5;
  const auto padded = [&](std::size_t padding) {
    return records(
        hello_message(extension(21, std::string(padding, '\0')) + server_name("a.example.com")),
        16384);
  };
  const std::size_t most = kMostHello - overhead;
  ASSERT_EQ(padded(most).size(), kMostHello);
  EXPECT_EQ(found(padded(most)).server_name, "a.example.com");
  EXPECT_THAT(refused(padded(most + 1)), HasSubstr("more than 64 KiB"));
  // One that only says so is not waited for.
  EXPECT_THAT(refused(record(number(1, 1) + number(kMostHello, 3))), HasSubstr("more than 64 KiB"));
}

TEST(ClientHello, CountsTheHeadersOfItsRecords) {
  const std::string message = hello_message(extension(21, std::string(12000, '\0')));
  EXPECT_GT(6 * message.size(), kMostHello);
  EXPECT_THAT(refused(records(message, 1)), HasSubstr("more than 64 KiB"));
}

TEST(ClientHello, IgnoresGreaseEverywhere) {
  const ClientHello hello = found(for_test::hello(
      extension(0x0a0a, "") + server_name("a.example.com") +
      extension(16, vector(vector("\x1a\x1a", 1) + vector("h2", 1), 2)) +
      extension(43, vector("\x7a\x7a\x03\x04\x03\x03", 1)) + extension(0xfafa, "x")));
  EXPECT_EQ(hello.server_name, "a.example.com");
  EXPECT_THAT(hello.protocols, ElementsAre("h2"));
  EXPECT_THAT(hello.versions, ElementsAre(0x0304, 0x0303));
  EXPECT_FALSE(hello.hides_name);
}

TEST(ClientHello, SaysWhetherTheNameMayBeHidden) {
  for (const int type : {0xfe0d, 0xfe0a, 0xfe08, 0xffce})
    EXPECT_TRUE(found(hello(server_name("outer.example.com") + extension(type, "x"))).hides_name)
        << type;
  for (const int type : {0xfe07, 0xfe0e, 0xffcf, 0xff01})
    EXPECT_FALSE(found(hello(extension(type, "x"))).hides_name) << type;
}

TEST(ClientHello, SaysWhetherEarlyDataFollows) {
  const std::string bytes = hello(extension(42, ""));
  const ClientHello hello = found(bytes + record("data", 23));
  EXPECT_TRUE(hello.early_data);
  EXPECT_EQ(hello.bytes_used, bytes.size());
}

TEST(ClientHello, AnAddressAsNameIsGivenAsItCame) {
  EXPECT_EQ(found(hello(server_name("192.0.2.1"))).server_name, "192.0.2.1");
  EXPECT_EQ(found(hello(server_name("[2001:db8::1]"))).server_name, "[2001:db8::1]");
  EXPECT_EQ(found(hello(server_name("a..b \xff"))).server_name, "a..b \xff");
}

TEST(ClientHello, ANameOf255BytesIsTheLongest) {
  const std::string longest(255, 'n');
  EXPECT_EQ(found(hello(server_name(longest))).server_name, longest);
  EXPECT_THAT(refused(hello(server_name(longest + "n"))), HasSubstr("1 to 255 bytes"));
}

TEST(ClientHello, RefusesServerNamesThatCouldMeanTwoThings) {
  using namespace std::string_literals;
  const auto with_list = [](std::string_view list) { return hello(extension(0, vector(list, 2))); };
  EXPECT_THAT(refused(with_list(name_entry("a.example.com") + name_entry("b.example.com"))),
              HasSubstr("more than one server"));
  EXPECT_THAT(refused(with_list(name_entry("a.example.com") + "x")),
              HasSubstr("more than one server"));
  EXPECT_THAT(refused(hello(server_name("a.example.com") + server_name("b.example.com"))),
              HasSubstr("an extension twice"));
  EXPECT_THAT(refused(with_list(name_entry("a.example.com", 1))), HasSubstr("else than a name"));
  EXPECT_THAT(refused(with_list("")), HasSubstr("is empty"));
  EXPECT_THAT(refused(with_list(name_entry(""))), HasSubstr("1 to 255 bytes"));
  EXPECT_THAT(refused(hello(server_name("evil.example\0.a.example.com"s))), HasSubstr("NUL"));
  EXPECT_THAT(refused(with_list("\0\x00\x09"
                                "a"s)),
              HasSubstr("another length"));
  EXPECT_THAT(refused(hello(extension(0, vector(name_entry("a.example.com"), 2) + "x"))),
              HasSubstr("another length"));
  EXPECT_THAT(refused(hello(extension(0, ""))), HasSubstr("another length"));
}

TEST(ClientHello, RefusesExtensionsThatDoNotFit) {
  struct Case {
    std::string extensions;
    const char* why;
  };
  const std::string many_protocols = [] {
    std::string list;
    for (std::size_t i = 0; i <= kMostProtocols; ++i) list += vector("h" + std::to_string(i), 1);
    return extension(16, vector(list, 2));
  }();
  const Case cases[] = {
      {extension(16, ""), "list of protocols"},
      {extension(16, vector("", 2)), "list of protocols"},
      {extension(16, vector(vector("h2", 1), 2) + "x"), "list of protocols"},
      {extension(16, vector(vector("", 1), 2)), "a protocol"},
      {extension(16, vector("\x03h2", 2)), "a protocol"},
      {many_protocols, "more than 64 protocols"},
      {extension(43, ""), "list of versions"},
      {extension(43, vector("\x03", 1)), "list of versions"},
      {extension(43, vector("\x03\x04", 1) + "x"), "list of versions"},
      {extension(43, vector("\x0a\x0a", 1)), "versions is empty"},
      {extension(42, "x"), "early data"},
      {extension(10, "x") + extension(11, "x") + extension(10, "y"), "an extension twice"},
      {number(10, 2), "an extension of the TLS hello"},
      {number(10, 2) + number(5, 2) + "abcd", "an extension of the TLS hello"},
  };
  for (const Case& one : cases) EXPECT_THAT(refused(hello(one.extensions)), HasSubstr(one.why));
}

TEST(ClientHello, RefusesAFixedPartThatDoesNotFit) {
  const auto with = [](std::string_view session, std::string_view ciphers,
                       std::string_view compressions) {
    return records(message(number(0x0303, 2) + std::string(32, 'r') + vector(session, 1) +
                           vector(ciphers, 2) + vector(compressions, 1)));
  };
  EXPECT_THAT(refused(with(std::string(33, 's'), "\x13\x01", "0")), HasSubstr("32 bytes"));
  EXPECT_THAT(refused(with("", "", "0")), HasSubstr("no cipher"));
  EXPECT_THAT(refused(with("", "\x13", "0")), HasSubstr("half a one"));
  EXPECT_THAT(refused(with("", "\x13\x01", "")), HasSubstr("no compression"));
  EXPECT_EQ(found(with("", "\x13\x01", "0")).versions.size(), 1u);
  EXPECT_THAT(refused(records(message(fixed_part(0x0203)))), HasSubstr("no version that exists"));
  EXPECT_THAT(refused(records(message(""))), HasSubstr("ends too early"));
  const std::string whole = fixed_part();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(refused(records(message(whole.substr(0, size)))), HasSubstr("ends too early"));
}

TEST(ClientHello, RefusesWhatStandsBehindTheLastField) {
  const std::string extensions = server_name("a.example.com");
  EXPECT_THAT(refused(records(message(fixed_part() + vector(extensions, 2) + "x"))),
              HasSubstr("another length"));
  EXPECT_THAT(refused(records(message(fixed_part() + "x"))), HasSubstr("another length"));
  EXPECT_THAT(refused(record(hello_message(extensions) + "x")), HasSubstr("behind the TLS hello"));
  EXPECT_THAT(refused(record(hello_message(extensions) + hello_message(extensions))),
              HasSubstr("behind the TLS hello"));
  const std::string message = hello_message(extensions);
  EXPECT_THAT(refused(record(message.substr(0, 20)) + record(message.substr(20) + "x")),
              HasSubstr("behind the TLS hello"));
}

TEST(ClientHello, ItsRecordsAreOfOneKind) {
  const std::string message = hello_message(server_name("a.example.com"));
  const std::string first = record(message.substr(0, 20));
  for (const unsigned type : {20u, 21u, 23u, 24u, 0u})
    EXPECT_THAT(refused(first + record("x", type)), HasSubstr("another kind"));
  EXPECT_THAT(refused(first + "\x16\x02" + record("x").substr(2)), HasSubstr("no version"));
  EXPECT_THAT(refused(record("")), HasSubstr("1 to 16384 bytes"));
  EXPECT_THAT(refused(first + record("")), HasSubstr("1 to 16384 bytes"));
  EXPECT_THAT(refused(record(std::string(16385, 'x'))), HasSubstr("1 to 16384 bytes"));
}

TEST(ClientHello, IsTheFirstMessage) {
  for (const unsigned type : {0u, 2u, 11u, 16u, 20u})
    EXPECT_THAT(refused(records(message(fixed_part(), type))), HasSubstr("no hello"));
}

TEST(ClientHello, RefusesSsl2) {
  using namespace std::string_literals;
  EXPECT_THAT(refused("\x80\x2e\x01\x00\x02"s), HasSubstr("SSL 2"));
  EXPECT_THAT(refused("\x80\x2e\x01\x03\x01\x00\x15"s), HasSubstr("SSL 2"));
}

TEST(ClientHello, OtherFirstBytesAreNoTls) {
  for (const std::string& bytes :
       {record("x", 23), record("x", 21), std::string("GET / HTTP/1.1\r\n"),
        std::string("SSH-2.0-x"), std::string("\x16\x02\x01"), std::string("\x80\x2e\x02\x00\x02"),
        std::string(5, '\0')}) {
    ClientHelloReader reader;
    EXPECT_EQ(reader.feed(bytes), State::kNotTls) << bytes;
    EXPECT_EQ(reader.refusal(), "");
  }
}

TEST(ClientHello, StaysWithItsAnswer) {
  ClientHelloReader reader;
  const std::string bytes = hello(server_name("a.example.com"));
  reader.feed(bytes);
  EXPECT_EQ(reader.feed(hello(server_name("b.example.com"))), State::kFound);
  EXPECT_EQ(reader.hello().server_name, "a.example.com");
  EXPECT_EQ(reader.hello().bytes_used, bytes.size());
  ClientHelloReader other;
  EXPECT_EQ(other.feed("x"), State::kNotTls);
  EXPECT_EQ(other.feed(bytes), State::kNotTls);
}

TEST(ClientHello, NoAnswerDependsOnTheSplit) {
  std::mt19937 random(7);
  const std::string good =
      hello(server_name("a.example.com") + extension(16, vector(vector("h2", 1), 2)));
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    ClientHelloReader whole, bytewise;
    whole.feed(bytes);
    for (const char& byte : bytes) bytewise.feed(std::string_view(&byte, 1));
    ASSERT_EQ(whole.state(), bytewise.state());
    ASSERT_EQ(whole.refusal(), bytewise.refusal());
    if (whole.state() == State::kFound) {
      ASSERT_EQ(whole.hello(), bytewise.hello());
    }
  }
}

}  // namespace
}  // namespace caisson::egress
