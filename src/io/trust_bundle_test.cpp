#include "io/trust_bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "io/authority.h"
#include "io/loop_for_test.h"
#include "io/make_certificate.h"
#include "io/race.h"
#include "io/tls.h"

namespace caisson::io {
namespace {

using ::testing::HasSubstr;

class File {
 public:
  explicit File(const std::string& text) {
    const int file = ::mkstemp(path_);
    VERIFY(file >= 0);
    ::close(file);
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  char path_[40] = "/tmp/caisson-bundle-XXXXXX";
};

std::shared_ptr<Authority> made(const std::string& name) {
  auto authority = Authority::make(name);
  VERIFY(authority.has_value());
  return std::move(*authority);
}

// What a client that trusts the bundle says of a server of that authority; empty: it believes it.
std::string heard(const std::shared_ptr<TlsTrust>& trust,
                  const std::shared_ptr<Authority>& authority) {
  Loop loop(1);
  std::string said;
  auto body = [&]() -> Async<void> {
    auto ends = stream_pair(loop);
    auto serve = [&]() -> Async<void> {
      const auto ignored = co_await accept_tls(loop, std::move(ends[0]), authority, "example.com");
    };
    auto connect = [&]() -> Async<void> {
      const auto stream = co_await connect_tls(loop, std::move(ends[1]), "example.com", trust);
      if (!stream.has_value()) said = stream.error().message();
    };
    co_await both(serve(), connect());
  };
  run_on(loop, body);
  return said;
}

std::shared_ptr<TlsTrust> trust_of(const std::string& text) {
  const File file(text);
  auto trust = TlsTrust::load_bundle(file.path());
  EXPECT_TRUE(trust.has_value()) << trust.error().message();
  return trust.value_or(nullptr);
}

std::string refusal_of(const std::string& text) {
  const File file(text);
  const auto trust = TlsTrust::load_bundle(file.path());
  return trust.has_value() ? "" : trust.error().message();
}

TEST(TrustBundle, WhoIsInItIsBelievedWhenItsFileIsGone) {
  const auto one = made("one"), two = made("two"), three = made("three");
  const auto trust = trust_of("# a remark\n" + one->certificate() + "\n" + two->certificate() +
                              three->certificate());
  EXPECT_EQ(heard(trust, two), "");
  // From then on the store has it.
  EXPECT_EQ(heard(trust, two), "");
  EXPECT_EQ(heard(trust, one), "");
}

TEST(TrustBundle, WhoIsNotInItIsNotBelieved) {
  const auto one = made("one"), other = made("other");
  const auto trust = trust_of(one->certificate());
  EXPECT_THAT(heard(trust, other), HasSubstr("is not to be trusted"));
  // Nor who has a name that is in it.
  EXPECT_THAT(heard(trust, made("one")), HasSubstr("is not to be trusted"));
  EXPECT_EQ(heard(trust, one), "");
}

TEST(TrustBundle, SeveralMayHaveOneName) {
  const auto first = made("one name"), second = made("one name");
  const auto trust = trust_of(first->certificate() + second->certificate());
  EXPECT_EQ(heard(trust, second), "");
  EXPECT_EQ(heard(trust, first), "");
}

TEST(TrustBundle, WhatOpenSslDoesNotUnderstandIsTrustedByNobody) {
  auto pair = begin_pair("broken", std::chrono::seconds(0), std::chrono::hours(1));
  ASSERT_TRUE(pair.has_value());
  ASSERT_TRUE(sign(pair->certificate.get(), pair->certificate.get(), pair->key.get()).has_value());
  unsigned char* bytes = nullptr;
  const int size = i2d_X509(pair->certificate.get(), &bytes);
  ASSERT_GT(size, 0);
  std::string der(reinterpret_cast<char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  const auto subject = subject_of(der);
  ASSERT_TRUE(subject.has_value());
  // Behind the subject comes the key, which is no sequence any more.
  der[static_cast<std::size_t>(subject->data() - der.data()) + subject->size()] = 0x05;
  const Bio out(BIO_new(BIO_s_mem()));
  ASSERT_GT(PEM_write_bio(out.get(), PEM_STRING_X509, "",
                          reinterpret_cast<const unsigned char*>(der.data()), size),
            0);
  char* text = nullptr;
  const long length = BIO_get_mem_data(out.get(), &text);
  const auto good = made("good");
  const auto trust =
      trust_of(std::string(text, static_cast<std::size_t>(length)) + good->certificate());
  EXPECT_THAT(heard(trust, made("broken")), HasSubstr("is not to be trusted"));
  EXPECT_EQ(heard(trust, good), "");
}

TEST(TrustBundle, OneWithOtherThingsBesideIsReadAsAWhole) {
  const auto one = made("one");
  const auto pair = pair_in(std::string(one->secret()->bytes()));
  ASSERT_TRUE(pair.has_value());
  const Bio out(BIO_new(BIO_s_mem()));
  ASSERT_EQ(PEM_write_bio_X509_AUX(out.get(), pair->certificate.get()), 1);
  char* text = nullptr;
  const long length = BIO_get_mem_data(out.get(), &text);
  const std::string conditions(text, static_cast<std::size_t>(length));
  ASSERT_THAT(conditions, HasSubstr("TRUSTED CERTIFICATE"));
  EXPECT_EQ(heard(trust_of(conditions), one), "");
  // Who is rejected there is not believed.
  ASSERT_EQ(X509_add1_reject_object(pair->certificate.get(), OBJ_nid2obj(NID_server_auth)), 1);
  const Bio rejecting(BIO_new(BIO_s_mem()));
  ASSERT_EQ(PEM_write_bio_X509_AUX(rejecting.get(), pair->certificate.get()), 1);
  const long size = BIO_get_mem_data(rejecting.get(), &text);
  EXPECT_THAT(heard(trust_of(std::string(text, static_cast<std::size_t>(size))), one),
              HasSubstr("is not to be trusted"));
}

TEST(TrustBundle, SaysWhatIsWrongWithIt) {
  EXPECT_THAT(refusal_of(""), HasSubstr("there is no certificate"));
  EXPECT_THAT(refusal_of("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
              HasSubstr("certificate 1 is none"));
  const std::string good = made("one")->certificate();
  EXPECT_THAT(refusal_of(good + good.substr(0, good.size() / 2)), HasSubstr("the certificates of"));
  const auto missing = TlsTrust::load_bundle("/nowhere/bundle.pem");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("/nowhere/bundle.pem"));
}

TEST(TrustBundle, OfACertificateThatIsCutOffThereIsNoSubject) {
  const auto pair = pair_in(std::string(made("one")->secret()->bytes()));
  ASSERT_TRUE(pair.has_value());
  unsigned char* bytes = nullptr;
  const int size = i2d_X509(pair->certificate.get(), &bytes);
  ASSERT_GT(size, 0);
  const std::string whole(reinterpret_cast<char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  EXPECT_TRUE(subject_of(whole).has_value());
  EXPECT_FALSE(subject_of(whole + "\n").has_value());
  for (std::size_t end = 0; end < whole.size(); ++end)
    EXPECT_FALSE(subject_of(whole.substr(0, end)).has_value()) << end;
  // Whatever one byte says, nothing is read beyond the end.
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '\x30', '\x7f', '\x80', '\x84', '\xff'}) {
      std::string changed = whole;
      changed[at] = value;
      const auto subject = subject_of(changed);
      if (!subject) continue;
      EXPECT_GE(subject->data(), changed.data());
      EXPECT_LE(subject->data() + subject->size(), changed.data() + changed.size());
    }
  }
}

}  // namespace
}  // namespace caisson::io
