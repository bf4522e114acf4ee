#include "io/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/dev_ca.h"
#include "io/loop_for_test.h"

namespace caisson::io {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

std::string output_of(const std::string& command) {
  std::string all;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  VERIFY(pipe != nullptr);
  std::array<char, 4096> piece;
  while (const std::size_t count = ::fread(piece.data(), 1, piece.size(), pipe))
    all.append(piece.data(), count);
  ::pclose(pipe);
  return all;
}

std::string contents_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Directory {
 public:
  Directory() { VERIFY(::mkdtemp(path_) != nullptr); }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/caisson-tls-XXXXXX";
};

TEST(DevCa, KeepsItsFilesFromStartToStart) {
  const Directory directory;
  const auto first = make_dev_ca(directory.path(), "caisson.example.com");
  ASSERT_TRUE(first.has_value()) << first.error().message();
  const std::string ca = contents_of(first->ca_certificate),
                    certificate = contents_of(first->certificate);
  EXPECT_NE(ca, "");
  const auto second = make_dev_ca(directory.path(), "caisson.example.com");
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(contents_of(second->ca_certificate), ca);
  EXPECT_EQ(contents_of(second->certificate), certificate);
}

TEST(DevCa, KeysAreTheirOwnersAlone) {
  const Directory directory;
  const auto made = make_dev_ca(directory.path(), "example.com");
  ASSERT_TRUE(made.has_value());
  for (const std::string& key : {made->key, directory.path() + "/ca-key.pem"}) {
    struct stat status{};
    ASSERT_EQ(::stat(key.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U) << key;
  }
}

TEST(DevCa, IsMadeAnewForAnotherDomain) {
  const Directory directory;
  const auto first = make_dev_ca(directory.path(), "one.example.com");
  ASSERT_TRUE(first.has_value());
  const std::string ca = contents_of(first->ca_certificate);
  const auto second = make_dev_ca(directory.path(), "two.example.com");
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(contents_of(second->ca_certificate), ca);
  const std::string verified =
      output_of("openssl verify -verify_hostname x.two.example.com -CAfile " +
                second->ca_certificate + " " + second->certificate);
  EXPECT_THAT(verified, HasSubstr(": OK"));
}

TEST(DevCa, WhatIsDamagedIsMadeAnew) {
  const Directory directory;
  const auto first = make_dev_ca(directory.path(), "example.com");
  ASSERT_TRUE(first.has_value());
  const std::string ca = contents_of(first->ca_certificate);
  std::ofstream(first->certificate) << "damaged";
  ASSERT_TRUE(make_dev_ca(directory.path(), "example.com").has_value());
  EXPECT_THAT(contents_of(first->certificate), HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_EQ(contents_of(first->ca_certificate), ca);
  std::filesystem::remove(directory.path() + "/ca-key.pem");
  ASSERT_TRUE(make_dev_ca(directory.path(), "example.com").has_value());
  EXPECT_NE(contents_of(first->ca_certificate), ca);
}

TEST(DevCa, IsOfNoUseForOtherDomains) {
  const Directory directory;
  const auto made = make_dev_ca(directory.path(), "example.com");
  ASSERT_TRUE(made.has_value());
  const std::string verified = output_of("openssl verify -verify_hostname example.org -CAfile " +
                                         made->ca_certificate + " " + made->certificate);
  EXPECT_THAT(verified, Not(HasSubstr(": OK")));
  EXPECT_THAT(output_of("openssl x509 -noout -text -in " + made->ca_certificate),
              HasSubstr("Name Constraints: critical"));
}

TEST(DevCa, RefusesWhatIsNoDomain) {
  const Directory directory;
  for (const std::string& domain :
       {std::string(), std::string("."), std::string("a."), std::string(".a"), std::string("a..b"),
        std::string("A.example.com"), std::string("-a"), std::string("a,DNS:b"), std::string("a b"),
        std::string("a:80"), std::string("*.a"), std::string(51, 'a')}) {
    const auto made = make_dev_ca(directory.path(), domain);
    ASSERT_FALSE(made.has_value()) << domain;
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  }
}

TEST(DevCa, AnErrorNamesTheFile) {
  const auto made = make_dev_ca("/nowhere", "example.com");
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message(), HasSubstr("/nowhere/ca-key.pem"));
}

TEST(TlsIdentity, AnErrorNamesTheFile) {
  const auto missing = TlsIdentity::load("/nowhere/certificate.pem", "/nowhere/key.pem");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("/nowhere/certificate.pem"));
}

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() : ca_(*make_dev_ca(directory_.path(), "example.com")) {
    identity_ = *TlsIdentity::load(ca_.certificate, ca_.key);
  }
  void listen(TlsLimits limits = {}) {
    listener_ =
        wrap_tls_server(loop_, std::move(*listen_tcp(loop_, "127.0.0.1:0")), identity_, limits);
  }
  // What the openssl program says that sends `input` and waits for the end.
  Async<std::string> openssl(std::string options, std::string input) {
    const std::string command = "printf '%s' '" + input +
                                "' | timeout 20 openssl s_client -quiet -ign_eof -CAfile " +
                                ca_.ca_certificate + " -verify_return_error -connect " +
                                listener_->address() + " " + options;
    auto run = [command] { return output_of(command); };
    return loop_.in_pool(std::move(run));
  }
  // Accepts one, reads a line, answers with it and the name that was asked for.
  Async<void> answer_one() {
    auto stream = co_await listener_->accept();
    EXPECT_TRUE(stream.has_value());
    if (!stream.has_value()) co_return;
    std::string line;
    std::array<char, 64> piece;
    while (!line.ends_with("\n")) {
      const auto count = co_await (*stream)->read(piece);
      if (count.value_or(0) == 0) break;
      line.append(piece.data(), *count);
    }
    co_await send(**stream, "to " + (*stream)->server_name() + ": " + line);
    co_await (*stream)->finish();
    co_await read_to_end(**stream);
  }

  Directory directory_;
  DevCa ca_;
  std::shared_ptr<TlsIdentity> identity_;
  Loop loop_{2};
  std::unique_ptr<Listener> listener_;
};

TEST_F(TlsTest, TheOpensslProgramTrustsItAndSpeaksWithIt) {
  listen();
  auto body = [&]() -> Async<void> {
    loop_.spawn(answer_one());
    const std::string said =
        co_await openssl("-servername a.example.com -verify_hostname a.example.com", "hello\n");
    EXPECT_THAT(said, HasSubstr("to a.example.com: hello"));
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, Speaks12And13AndNothingOlder) {
  listen();
  auto body = [&]() -> Async<void> {
    loop_.spawn(answer_one());
    const std::string older = co_await openssl("-tls1_2", "hello\n");
    EXPECT_THAT(older, HasSubstr("to : hello"));
    loop_.spawn(answer_one());
    const std::string newer = co_await openssl("-tls1_3", "hello\n");
    EXPECT_THAT(newer, HasSubstr("to : hello"));
    const std::string oldest = co_await openssl("-tls1_1 -cipher DEFAULT:@SECLEVEL=0", "hello\n");
    EXPECT_THAT(oldest, Not(HasSubstr("to : hello")));
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, AgreesOnHttp11AndRefusesWhoWantsAnotherProtocol) {
  listen();
  auto body = [&]() -> Async<void> {
    loop_.spawn(answer_one());
    const std::string both = co_await openssl("-alpn h2,http/1.1", "hello\n");
    EXPECT_THAT(both, HasSubstr("hello"));
    const std::string other = co_await openssl("-alpn h2", "hello\n");
    EXPECT_THAT(other, HasSubstr("no application protocol"));
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, WhoDoesNotShakeHandsDelaysNobodyAndIsCutOff) {
  listen({.handshake_time = 300ms});
  auto body = [&]() -> Async<void> {
    auto silent = co_await connect_tcp(loop_, listener_->address());
    EXPECT_TRUE(silent.has_value());
    loop_.spawn(answer_one());
    const std::string said = co_await openssl("", "hello\n");
    EXPECT_THAT(said, HasSubstr("hello"));
    const std::string nothing = co_await read_to_end(**silent);
    EXPECT_EQ(nothing, "");
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, TheOldestHandshakeMakesRoom) {
  listen({.waiting = 1});
  auto body = [&]() -> Async<void> {
    auto first = co_await connect_tcp(loop_, listener_->address());
    auto second = co_await connect_tcp(loop_, listener_->address());
    EXPECT_TRUE(first.has_value() && second.has_value());
    const std::string nothing = co_await read_to_end(**first);
    EXPECT_EQ(nothing, "");
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, WhoSpeaksNoTlsIsSentAnAlertAndCutOff) {
  listen();
  auto body = [&]() -> Async<void> {
    auto plain = co_await connect_tcp(loop_, listener_->address());
    EXPECT_TRUE(plain.has_value());
    co_await send(**plain, std::string("\x16\x03\x01\0\x05hello", 10));
    const std::string alert = co_await read_to_end(**plain);
    EXPECT_EQ(alert.substr(0, 1), "\x15");
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, AnEndWithoutTheEndOfTlsIsAnError) {
  listen();
  auto body = [&]() -> Async<void> {
    const std::string input = directory_.path() + "/input", pid = directory_.path() + "/pid";
    auto client = [&]() -> Async<void> {
      const std::string command = "mkfifo " + input + "\nopenssl s_client -quiet -connect " +
                                  listener_->address() + " 0<>" + input + " & echo $! > " + pid +
                                  "; wait";
      auto run = [command] { return output_of(command); };
      co_await loop_.in_pool(std::move(run));
    };
    loop_.spawn(client());
    auto stream = co_await listener_->accept();
    EXPECT_TRUE(stream.has_value());
    if (!stream.has_value()) co_return;
    std::string number;
    while (!number.ends_with("\n")) {
      co_await Loop::sleep(1ms);
      number = contents_of(pid);
    }
    EXPECT_EQ(::kill(std::stoi(number), SIGKILL), 0);
    std::array<char, 64> piece;
    const auto count = co_await (*stream)->read(piece);
    EXPECT_FALSE(count.has_value());
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, ReloadServesTheNewCertificateAndKeepsTheOldOnAnError) {
  listen();
  auto body = [&]() -> Async<void> {
    std::filesystem::remove(ca_.certificate);
    EXPECT_FALSE(identity_->reload().has_value());
    loop_.spawn(answer_one());
    const std::string old = co_await openssl("", "hello\n");
    EXPECT_THAT(old, HasSubstr("hello"));

    std::filesystem::remove(ca_.ca_certificate);
    ca_ = *make_dev_ca(directory_.path(), "example.com");
    EXPECT_TRUE(identity_->reload().has_value());
    loop_.spawn(answer_one());
    const std::string renewed = co_await openssl("", "hello\n");
    EXPECT_THAT(renewed, HasSubstr("hello"));
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, CloseWakesWhoAccepts) {
  listen();
  auto body = [&]() -> Async<void> {
    loop_.post([&] { listener_->close(); });
    const auto accepted = co_await listener_->accept();
    EXPECT_FALSE(accepted.has_value());
  };
  run_on(loop_, body);
}

TEST_F(TlsTest, LargeAmountsGoBothWaysAtOnce) {
  constexpr std::size_t kSize = 3'000'000;
  listen();
  auto body = [&]() -> Async<void> {
    Event done(loop_);
    int running = 2;
    std::size_t came_back = 0;
    auto client = [&]() -> Async<void> {
      const std::string command =
          "head -c 3000000 /dev/zero | timeout 20 openssl s_client -quiet "
          "-ign_eof -connect " +
          listener_->address() + " 2>/dev/null | tr -cd x | wc -c";
      auto run = [command] { return output_of(command); };
      const std::string count = co_await loop_.in_pool(std::move(run));
      came_back = std::stoul(count);
      --running;
      done.notify();
    };
    loop_.spawn(client());
    auto stream = co_await listener_->accept();
    EXPECT_TRUE(stream.has_value());
    if (!stream.has_value()) co_return;
    auto writer = [&]() -> Async<void> {
      co_await send(**stream, std::string(kSize, 'x'));
      --running;
      done.notify();
    };
    loop_.spawn(writer());
    std::size_t total = 0;
    std::vector<char> piece(100'000);
    while (total < kSize) {
      const auto count = co_await (*stream)->read(piece);
      if (count.value_or(0) == 0) break;
      total += *count;
    }
    EXPECT_EQ(total, kSize);
    while (running > 1) co_await done.wait();
    co_await (*stream)->finish();
    while (running > 0) co_await done.wait();
    EXPECT_EQ(came_back, kSize);
  };
  run_on(loop_, body);
}

// What a client of `host` that trusts `ca_file` hears of a server that answers one line; else why
// it does not connect.
class TlsClientTest : public TlsTest {
 protected:
  std::string heard(std::string host, const std::string& ca_file,
                    std::shared_ptr<TlsSessions> sessions = nullptr) {
    listen();
    return again(std::move(host), ca_file, std::move(sessions));
  }
  // By the listener that there is.
  std::string again(std::string host, const std::string& ca_file,
                    std::shared_ptr<TlsSessions> sessions) {
    std::string heard;
    auto body = [&]() -> Async<void> {
      const auto trust = TlsTrust::load(ca_file);
      EXPECT_TRUE(trust.has_value());
      if (!trust.has_value()) co_return;
      loop_.spawn(answer_one_if_any());
      auto below = co_await connect_tcp(loop_, listener_->address());
      EXPECT_TRUE(below.has_value());
      if (!below.has_value()) co_return;
      auto stream =
          co_await connect_tls(loop_, std::move(*below), host, *trust, Alpn::kHttp1, sessions);
      if (!stream.has_value()) {
        heard = stream.error().message();
        co_return;
      }
      co_await send(**stream, "hello\n");
      std::array<char, 256> piece;
      const auto count = co_await (*stream)->read(piece);
      heard.assign(piece.data(), count.value_or(0));
      co_await (*stream)->finish();
      const auto end = co_await (*stream)->read(piece);
      EXPECT_EQ(end.value_or(1), 0U);
    };
    run_on(loop_, body);
    return heard;
  }

 private:
  // A client that does not trust it never comes.
  Async<void> answer_one_if_any() {
    auto stream = co_await listener_->accept();
    if (!stream.has_value()) co_return;
    std::array<char, 64> piece;
    const auto count = co_await (*stream)->read(piece);
    if (count.value_or(0) == 0) co_return;
    co_await send(**stream, "to " + (*stream)->server_name());
    co_await (*stream)->finish();
    co_await read_to_end(**stream);
  }
};

TEST_F(TlsClientTest, SpeaksWithAServerThatItTrusts) {
  EXPECT_EQ(heard("example.com", ca_.ca_certificate), "to example.com");
}

TEST_F(TlsClientTest, GoesOnByWhatAServerGaveWhereItsCertificateWasBelieved) {
  const auto sessions = std::make_shared<TlsSessions>();
  EXPECT_EQ(heard("example.com", ca_.ca_certificate, sessions), "to example.com");
  EXPECT_EQ(sessions->size(), 1u);
  // By somebody who would not believe it: so the certificate does not come again.
  EXPECT_EQ(again("example.com", "", sessions), "to example.com");
  // For another name it would have to.
  EXPECT_THAT(again("a.example.com", "", sessions), HasSubstr("is not to be trusted"));
  sessions->forget();
  EXPECT_THAT(again("example.com", "", sessions), HasSubstr("is not to be trusted"));
  EXPECT_EQ(sessions->size(), 0u);
}

TEST_F(TlsClientTest, KeepsNothingOfAServerThatItDoesNotBelieve) {
  const auto sessions = std::make_shared<TlsSessions>();
  EXPECT_THAT(heard("example.com", "", sessions), HasSubstr("is not to be trusted"));
  EXPECT_EQ(sessions->size(), 0u);
}

TEST_F(TlsClientTest, RefusesACertificateOfAnotherHost) {
  EXPECT_THAT(heard("example.org", ca_.ca_certificate),
              HasSubstr("the certificate of example.org is not to be trusted: hostname mismatch"));
}

TEST_F(TlsClientTest, RefusesACertificateOfAnAddress) {
  EXPECT_THAT(heard("127.0.0.1", ca_.ca_certificate), HasSubstr("IP address mismatch"));
}

TEST_F(TlsClientTest, RefusesWhoIsNotTrustedHere) {
  EXPECT_THAT(heard("example.com", ""), HasSubstr("is not to be trusted"));
}

TEST_F(TlsClientTest, RefusesWhatIsNoName) {
  EXPECT_THAT(heard("", ca_.ca_certificate), HasSubstr("'' is no name of a host"));
}

TEST(TlsTrust, AnErrorNamesTheFile) {
  const auto trust = TlsTrust::load("/nowhere/ca.pem");
  ASSERT_FALSE(trust.has_value());
  EXPECT_THAT(trust.error().message(), HasSubstr("/nowhere/ca.pem"));
}

}  // namespace
}  // namespace caisson::io
