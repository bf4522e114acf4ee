#include "fleet/vault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "egress/gateway/keys.h"
#include "egress/secrets/sealed.h"

namespace caisson::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

policy::SecretRule rule(const std::string& name, const std::string& source) {
  policy::SecretRule made;
  made.name = name;
  made.env = name;
  made.source = {.kind = policy::SecretSource::Kind::kVault, .text = source};
  made.shape = {policy::SecretShape::Kind::kPrefix, "tok_"};
  made.hosts = {"api.example.com"};
  return made;
}

policy::NetworkPolicy policy_with(std::vector<policy::SecretRule> rules) {
  policy::NetworkPolicy made;
  made.secrets = std::move(rules);
  return made;
}

std::vector<GivenSecret> given(const std::string& name, std::string_view value) {
  return {{.name = name, .value = std::make_shared<const SecretValue>(value)}};
}

class VaultTest : public ::testing::Test {
 protected:
  // What a gateway with these keys finds in what it is told.
  static std::vector<egress::SecretEntry> read(const NetworkKeys& keys, const std::string& text) {
    const auto read = egress::read_keys(keys.file->get());
    EXPECT_TRUE(read.has_value());
    auto entries = egress::unseal(read->sealing.bytes(), egress::split_policy(text).sealed);
    EXPECT_TRUE(entries.has_value()) << entries.error().message();
    return std::move(entries).value_or(std::vector<egress::SecretEntry>());
  }

  Vault vault_{"the server's key"};
};

TEST_F(VaultTest, AGatewayGetsWhatWasGiven) {
  const auto sealed =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  EXPECT_THAT(*sealed, Not(HasSubstr("0123456789")));
  const auto keys = vault_.make_keys();
  ASSERT_TRUE(keys.has_value());
  EXPECT_THAT(keys->certificate, StartsWith("-----BEGIN CERTIFICATE"));
  // Another server with the same key can say the same.
  const auto text = Vault("the server's key").text_for(keys->number, "{}", *sealed);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(egress::split_policy(*text).policy, "{}");
  const auto entries = read(*keys, *text);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].value->bytes(), "tok_0123456789");
  EXPECT_EQ(entries[0].rule, rule("A", "one"));
  EXPECT_THAT(vault_.placeholders(*sealed).value(), ElementsAre(Pair("A", entries[0].placeholder)));
}

TEST_F(VaultTest, ASecretKeepsItsPlaceholderAndWhereNoneIsGivenItsValue) {
  const auto first = vault_.seal(policy_with({rule("A", "one"), rule("B", "one")}),
                                 given("one", "tok_0123456789"), "");
  ASSERT_TRUE(first.has_value());
  const auto before = vault_.placeholders(*first).value();
  const auto kept = vault_.seal(policy_with({rule("B", "one")}), {}, *first);
  ASSERT_TRUE(kept.has_value());
  EXPECT_THAT(vault_.placeholders(*kept).value(), ElementsAre(Pair("B", before.at("B"))));
  const auto rotated =
      vault_.seal(policy_with({rule("B", "one")}), given("one", "tok_new3456789"), *first);
  ASSERT_TRUE(rotated.has_value());
  EXPECT_EQ(vault_.placeholders(*rotated).value().at("B"), before.at("B"));
  const auto keys = vault_.make_keys();
  EXPECT_EQ(read(*keys, *vault_.text_for(keys->number, "{}", *rotated))[0].value->bytes(),
            "tok_new3456789");
}

TEST_F(VaultTest, WhatIsKeptNoMoreHasNoValueAndStaysKnown) {
  const auto first =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  const std::vector<GivenSecret> gone = {{.name = "one", .value = nullptr}};
  const auto sealed = vault_.seal(policy_with({rule("A", "one")}), gone, *first);
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  EXPECT_EQ(vault_.placeholders(*sealed).value(), vault_.placeholders(*first).value());
  const auto keys = vault_.make_keys();
  EXPECT_EQ(read(*keys, *vault_.text_for(keys->number, "{}", *sealed))[0].value, nullptr);
  // Nobody gets one that never was.
  EXPECT_FALSE(vault_.seal(policy_with({rule("A", "one")}), gone, "").has_value());
}

TEST_F(VaultTest, NothingIsTakenForASecretThatNobodyGave) {
  const auto first =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  for (const auto& before : {std::string(), *first}) {
    const auto sealed = vault_.seal(policy_with({rule("A", "other")}), {}, before);
    ASSERT_FALSE(sealed.has_value());
    EXPECT_THAT(sealed.error().message(),
                HasSubstr("network.secrets.A: the vault has no secret other"));
  }
  EXPECT_FALSE(vault_.seal(policy_with({rule("A", "one")}), given("one", "short"), "").has_value());
}

TEST_F(VaultTest, WhatIsNotItsOwnIsRefused) {
  const auto sealed =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  const Vault other("another key");
  EXPECT_FALSE(other.placeholders(*sealed).has_value());
  EXPECT_FALSE(other.text_for("1", "{}", *sealed).has_value());
  EXPECT_FALSE(other.seal(policy_with({rule("A", "one")}), {}, *sealed).has_value());
}

TEST_F(VaultTest, WithoutSecretsThereIsNothingToSeal) {
  EXPECT_EQ(vault_.seal({}, {}, "").value(), "");
  EXPECT_EQ(vault_.text_for("1", "{}", "").value(), "{}");
  EXPECT_TRUE(vault_.placeholders("").value().empty());
}

TEST_F(VaultTest, AKeptValueIsOpenedForItsSecretAlone) {
  const auto sealed = vault_.seal_value("sec_1", "the value 1");
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  EXPECT_EQ(vault_.open_value("sec_1", *sealed).value()->bytes(), "the value 1");
  EXPECT_FALSE(vault_.open_value("sec_2", *sealed).has_value());
  EXPECT_FALSE(Vault("another key").open_value("sec_1", *sealed).has_value());
  EXPECT_FALSE(vault_.open_value("sec_1", "").has_value());
  EXPECT_FALSE(vault_.seal_value("sec_1", "short").has_value());
  EXPECT_FALSE(vault_.seal_value("sec_1", "two\nlines of it").has_value());
  // Nor is what was sealed for a sandbox a value that is kept.
  const auto other = vault_.seal(policy_with({rule("A", "one")}), given("one", "the value 1"), "");
  EXPECT_FALSE(vault_.open_value("A", *other).has_value());
}

TEST_F(VaultTest, AProxysPasswordStaysWithItsProxy) {
  policy::NetworkPolicy policy;
  policy.upstream_proxy = policy::UpstreamProxy{
      .address = "proxy.test:1080",
      .username = "me",
      .password = policy::SecretSource{.kind = policy::SecretSource::Kind::kVault, .text = ".pw"}};
  const auto sealed = vault_.seal(policy, given(".pw", "x"), "");
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  EXPECT_TRUE(vault_.placeholders(*sealed).value().empty());
  // The same again needs nobody to say it; another proxy does.
  EXPECT_TRUE(vault_.seal(policy, {}, *sealed).has_value());
  policy.upstream_proxy->address = "other.test:1080";
  const auto other = vault_.seal(policy, {}, *sealed);
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message().find("network.upstream_proxy.password"), std::string::npos);
  EXPECT_FALSE(vault_.seal(policy, given(".pw", std::string(256, 'x')), "").has_value());
}

TEST_F(VaultTest, KeysAreOneSandboxsAlone) {
  const auto sealed =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  const auto one = vault_.make_keys(), other = vault_.make_keys();
  ASSERT_TRUE(one.has_value() && other.has_value());
  EXPECT_NE(one->number, other->number);
  EXPECT_NE(one->certificate, other->certificate);
  const auto keys = egress::read_keys(other->file->get());
  const auto text = vault_.text_for(one->number, "{}", *sealed).value();
  EXPECT_FALSE(
      egress::unseal(keys->sealing.bytes(), egress::split_policy(text).sealed).has_value());
}

}  // namespace
}  // namespace caisson::fleet
