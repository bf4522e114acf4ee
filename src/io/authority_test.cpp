#include "io/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "io/authority_state.h"
#include "io/loop_for_test.h"
#include "io/race.h"
#include "io/tls.h"

namespace caisson::io {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

std::shared_ptr<Authority> made_authority(const std::string& name = "Caisson sandbox abc") {
  auto made = Authority::make(name);
  VERIFY(made.has_value());
  return std::move(*made);
}

// A file that ends with this object.
class TextFile {
 public:
  explicit TextFile(const std::string& text) {
    const int file = ::mkstemp(path_);
    VERIFY(file >= 0);
    ::close(file);
    std::ofstream(path_) << text;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  char path_[40] = "/tmp/caisson-authority-XXXXXX";
};

std::string openssl(const std::string& arguments) {
  std::string all;
  FILE* const pipe = ::popen(("openssl " + arguments + " 2>&1").c_str(), "r");
  VERIFY(pipe != nullptr);
  std::array<char, 4096> piece;
  while (const std::size_t count = ::fread(piece.data(), 1, piece.size(), pipe))
    all.append(piece.data(), count);
  ::pclose(pipe);
  return all;
}

std::string leaf_of(Authority& authority, const std::string& name) {
  const auto leaf = authority.state().certificate_of(name);
  VERIFY(leaf.has_value());
  const Bio bio(BIO_new(BIO_s_mem()));
  VERIFY(PEM_write_bio_X509(bio.get(), *leaf) == 1);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<std::size_t>(size));
}

TEST(Authority, ItsCertificateIsOfAnAuthorityThatSignsNoOther) {
  const auto authority = made_authority();
  EXPECT_THAT(authority->certificate(), Not(HasSubstr("PRIVATE")));
  const TextFile file(authority->certificate());
  const std::string text = openssl("x509 -noout -text -in " + file.path());
  EXPECT_THAT(text, HasSubstr("CN = Caisson sandbox abc"));
  EXPECT_THAT(text, HasSubstr("CA:TRUE, pathlen:0"));
  EXPECT_THAT(text, HasSubstr("Certificate Sign, CRL Sign"));
  EXPECT_THAT(text, HasSubstr("prime256v1"));
}

TEST(Authority, EachHasAKeyOfItsOwn) {
  EXPECT_NE(made_authority()->certificate(), made_authority()->certificate());
}

TEST(Authority, ANameThatIsTooLongForACertificateIsAnError) {
  EXPECT_FALSE(Authority::make(std::string(65, 'x')).has_value());
}

TEST(Authority, CertificatesOfNamesHoldBeforeAStrictVerifier) {
  const auto authority = made_authority();
  const TextFile root(authority->certificate());
  struct Case {
    std::string name, check;
  };
  for (const Case& named :
       {Case{"api.example.com", "-verify_hostname api.example.com"},
        {"a_b.xn--bcher-kva.example.com", "-verify_hostname a_b.xn--bcher-kva.example.com"},
        {"192.0.2.1", "-verify_ip 192.0.2.1"},
        {"2001:db8::1", "-verify_ip 2001:db8::1"}}) {
    const TextFile leaf(leaf_of(*authority, named.name));
    const std::string verify = "verify -x509_strict -purpose sslserver -CAfile " + root.path();
    EXPECT_THAT(openssl(verify + " " + named.check + " " + leaf.path()), HasSubstr(": OK"))
        << named.name;
    EXPECT_THAT(openssl(verify + " -verify_hostname other.example.com " + leaf.path()),
                Not(HasSubstr(": OK")))
        << named.name;
    const auto in_two_days = static_cast<long>(::time(nullptr)) - 47 * 3600;
    EXPECT_THAT(openssl(verify + " -attime " + std::to_string(in_two_days) + " " + leaf.path()),
                HasSubstr(": OK"))
        << "a client whose clock is behind";
  }
}

TEST(Authority, ANameSaysNoMoreThanItself) {
  const auto authority = made_authority();
  const TextFile leaf(leaf_of(*authority, "a.example.com,DNS:b.example.com"));
  const TextFile root(authority->certificate());
  EXPECT_THAT(
      openssl("verify -CAfile " + root.path() + " -verify_hostname b.example.com " + leaf.path()),
      Not(HasSubstr(": OK")));
}

TEST(Authority, KeepsTheNewestNames) {
  const auto authority = made_authority();
  const std::string first = leaf_of(*authority, "first.example.com");
  EXPECT_EQ(leaf_of(*authority, "first.example.com"), first);
  const std::string second = leaf_of(*authority, "second.example.com");
  for (std::size_t n = 0; n < Authority::kMostKept - 1; ++n) {
    (void)leaf_of(*authority, std::to_string(n) + ".example.com");
    EXPECT_EQ(leaf_of(*authority, "first.example.com"), first);
  }
  EXPECT_EQ(authority->kept(), Authority::kMostKept);
  EXPECT_NE(leaf_of(*authority, "second.example.com"), second);
}

// What both sides of a handshake over a pair of streams come to.
struct Shaken {
  std::optional<Result<std::unique_ptr<Stream>>> server, client;
};

Shaken shake(Loop& loop, const std::shared_ptr<Authority>& authority, const std::string& trusted,
             const std::string& host, const std::string& name) {
  Shaken shaken;
  const TextFile file(trusted);
  const std::shared_ptr<TlsTrust> trust = *TlsTrust::load(file.path());
  auto body = [&]() -> Async<void> {
    auto ends = stream_pair(loop);
    auto serve = [&]() -> Async<void> {
      shaken.server = co_await accept_tls(loop, std::move(ends[0]), authority, name);
    };
    auto connect = [&]() -> Async<void> {
      shaken.client = co_await connect_tls(loop, std::move(ends[1]), host, trust);
    };
    co_await both(serve(), connect());
    if (!shaken.client->has_value() || !shaken.server->has_value()) co_return;
    const Status sent = co_await (**shaken.client)->write("hello");
    EXPECT_TRUE(sent.has_value());
    std::array<char, 64> piece;
    const auto count = co_await (**shaken.server)->read(piece);
    EXPECT_EQ(std::string_view(piece.data(), count.value_or(0)), "hello");
    EXPECT_EQ((**shaken.server)->server_name(), host);
  };
  run_on(loop, body);
  return shaken;
}

TEST(AcceptTls, AClientThatTrustsTheAuthoritySpeaksWithTheName) {
  Loop loop(1);
  const auto authority = made_authority();
  const Shaken shaken =
      shake(loop, authority, authority->certificate(), "a.example.com", "a.example.com");
  EXPECT_TRUE(shaken.server->has_value());
  EXPECT_TRUE(shaken.client->has_value());
  EXPECT_EQ(authority->kept(), 1u);
}

TEST(AcceptTls, SaysWhenTheClientDoesNotBelieveIt) {
  Loop loop(1);
  const auto authority = made_authority();
  const Shaken other = shake(loop, authority, made_authority("another")->certificate(),
                             "a.example.com", "a.example.com");
  ASSERT_FALSE(other.server->has_value());
  EXPECT_EQ(other.server->error().code(), Code::kUnauthenticated);
  EXPECT_EQ(other.client->error().code(), Code::kUnauthenticated);
}

TEST(AcceptTls, ACertificateIsForItsNameAlone) {
  Loop loop(1);
  const auto authority = made_authority();
  const Shaken shaken =
      shake(loop, authority, authority->certificate(), "a.example.com", "b.example.com");
  EXPECT_EQ(shaken.client->error().code(), Code::kUnauthenticated);
  EXPECT_FALSE(shaken.server->has_value());
}

// What a server and a client that offer this agree on, as both say it.
std::string agreed(Alpn server, Alpn client) {
  Loop loop(1);
  const auto authority = made_authority();
  const TextFile file(authority->certificate());
  const std::shared_ptr<TlsTrust> trust = *TlsTrust::load(file.path());
  std::string protocol;
  auto body = [&]() -> Async<void> {
    auto ends = stream_pair(loop);
    Shaken shaken;
    auto serve = [&]() -> Async<void> {
      shaken.server =
          co_await accept_tls(loop, std::move(ends[0]), authority, "a.example.com", {}, server);
    };
    auto connect = [&]() -> Async<void> {
      shaken.client =
          co_await connect_tls(loop, std::move(ends[1]), "a.example.com", trust, client);
    };
    co_await both(serve(), connect());
    EXPECT_TRUE(shaken.client->has_value() && shaken.server->has_value());
    protocol = (**shaken.server)->protocol();
    EXPECT_EQ((**shaken.client)->protocol(), protocol);
  };
  run_on(loop, body);
  return protocol;
}

TEST(AcceptTls, Http2IsAgreedOnWhereBothSpeakIt) {
  EXPECT_EQ(agreed(Alpn::kHttp2, Alpn::kHttp2), "h2");
  EXPECT_EQ(agreed(Alpn::kHttp2, Alpn::kHttp1), "http/1.1");
  EXPECT_EQ(agreed(Alpn::kHttp1, Alpn::kHttp2), "http/1.1");
}

TEST(AcceptTls, WhoeverDoesNotShakeHandsIsCutOff) {
  Loop loop(1);
  const auto authority = made_authority();
  auto body = [&]() -> Async<void> {
    auto ends = stream_pair(loop);
    const auto accepted = co_await accept_tls(loop, std::move(ends[0]), authority, "a.example.com",
                                              TlsLimits{.handshake_time = 50ms});
    EXPECT_EQ(accepted.error().code(), Code::kDeadlineExceeded);
    const std::string nothing = co_await read_to_end(*ends[1]);
    EXPECT_EQ(nothing, "");
  };
  run_on(loop, body);
}

}  // namespace
}  // namespace caisson::io
