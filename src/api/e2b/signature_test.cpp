#include "api/e2b/signature.h"

#include <gtest/gtest.h>

namespace caisson::api::e2b {
namespace {

constexpr std::int64_t kNow = 1'700'000'000;

// What it says, or "" where it is allowed.
std::string said(const FileClaim& claim, FileAccess access, std::string_view token) {
  const Status status = check_file_claim(claim, access, token, kNow);
  return status ? "" : status.error().message();
}

// The texts were computed with another implementation of SHA-256.
TEST(Signature, IsWhatTheSdksCompute) {
  EXPECT_EQ(sign_file("a.txt", FileAccess::kRead, "user", "tok", std::nullopt),
            "v1_wPjHOh/p+K3FbqiyGd5vwPNc/g4IPd8sigMxb1gqu9I");
  EXPECT_EQ(sign_file("a.txt", FileAccess::kWrite, "", "tok", 1'700'000'000),
            "v1_ynwN4qqj2sEXxAURgzwm1HWNT+RQ03EBkBe4oJxeqs8");
}

TEST(Signature, WithoutATokenEverybodyMay) {
  EXPECT_EQ(said({}, FileAccess::kRead, ""), "");
}

TEST(Signature, TheTokenInTheHeaderGoesFirst) {
  const std::string good = sign_file("a", FileAccess::kRead, "", "tok", std::nullopt);
  EXPECT_EQ(said({.token_header = "tok"}, FileAccess::kRead, "tok"), "");
  EXPECT_EQ(said({.token_header = "not", .signature = good, .path = "a"}, FileAccess::kRead, "tok"),
            "access token present in header but does not match");
}

TEST(Signature, MissingAndWrongOnesAreToldApart) {
  EXPECT_EQ(said({.path = "a"}, FileAccess::kRead, "tok"), "missing signature query parameter");
  EXPECT_EQ(said({.signature = "v1_x", .path = "a"}, FileAccess::kRead, "tok"),
            "invalid signature");
}

TEST(Signature, HoldsForOnePathOneUserAndOneOperation) {
  const std::string good = sign_file("a", FileAccess::kRead, "u", "tok", std::nullopt);
  const auto with = [&](std::string_view path, std::string_view user, FileAccess access) {
    return said({.signature = good, .path = path, .user = user}, access, "tok");
  };
  EXPECT_EQ(with("a", "u", FileAccess::kRead), "");
  EXPECT_EQ(with("b", "u", FileAccess::kRead), "invalid signature");
  EXPECT_EQ(with("a", "", FileAccess::kRead), "invalid signature");
  EXPECT_EQ(with("a", "u", FileAccess::kWrite), "invalid signature");
}

TEST(Signature, ExpiresAndItsEndIsPartOfIt) {
  const std::string good = sign_file("a", FileAccess::kWrite, "", "tok", kNow);
  const auto with = [&](std::string_view expires) {
    return said({.signature = good, .expires = expires, .path = "a"}, FileAccess::kWrite, "tok");
  };
  EXPECT_EQ(with("1700000000"), "");
  EXPECT_EQ(with("1800000000"), "invalid signature");
  EXPECT_EQ(with("17e8"), "signature_expiration is no number of Unix seconds");
  const std::string old = sign_file("a", FileAccess::kWrite, "", "tok", kNow - 1);
  EXPECT_EQ(
      said({.signature = old, .expires = "1699999999", .path = "a"}, FileAccess::kWrite, "tok"),
      "signature is already expired");
}

}  // namespace
}  // namespace caisson::api::e2b
