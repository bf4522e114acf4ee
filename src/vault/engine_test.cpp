#include "vault/engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/sha256.h"
#include "egress/gateway/keys.h"
#include "egress/secrets/sealed.h"

namespace caisson::vault {
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

class EngineTest : public ::testing::Test {
 protected:
  // What a gateway with these keys finds in what it is told.
  static std::vector<egress::SecretEntry> read(const NetworkKeys& keys, const std::string& text) {
    const auto read = egress::read_keys(keys.file->get());
    EXPECT_TRUE(read.has_value());
    auto entries = egress::unseal(read->sealing.bytes(), egress::split_policy(text).sealed);
    EXPECT_TRUE(entries.has_value()) << entries.error().message();
    return std::move(entries).value_or(std::vector<egress::SecretEntry>());
  }

  // A pipe that has all of it.
  static Fd body(std::string_view text) {
    int ends[2];
    VERIFY(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const Fd in(ends[1]);
    VERIFY(::write(in.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return Fd(ends[0]);
  }

  Engine vault_{"the server's key"};
};

TEST_F(EngineTest, AGatewayGetsWhatWasGiven) {
  const auto sealed =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  EXPECT_THAT(sealed->text, Not(HasSubstr("0123456789")));
  const auto keys = vault_.make_keys();
  ASSERT_TRUE(keys.has_value());
  EXPECT_THAT(keys->certificate, StartsWith("-----BEGIN CERTIFICATE"));
  // Another server with the same key can say the same.
  const auto text = Engine("the server's key").text_for(keys->number, "{}", sealed->text);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(egress::split_policy(*text).policy, "{}");
  const auto entries = read(*keys, *text);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].value->bytes(), "tok_0123456789");
  EXPECT_EQ(entries[0].rule, rule("A", "one"));
  EXPECT_THAT(sealed->variables, ElementsAre(Pair("A", entries[0].placeholder)));
}

TEST_F(EngineTest, ASecretKeepsItsPlaceholderAndWhereNoneIsGivenItsValue) {
  const auto first = vault_.seal(policy_with({rule("A", "one"), rule("B", "one")}),
                                 given("one", "tok_0123456789"), "");
  ASSERT_TRUE(first.has_value());
  const auto before = first->variables;
  const auto kept = vault_.seal(policy_with({rule("B", "one")}), {}, first->text);
  ASSERT_TRUE(kept.has_value());
  EXPECT_THAT(kept->variables, ElementsAre(Pair("B", before.at("B"))));
  const auto rotated =
      vault_.seal(policy_with({rule("B", "one")}), given("one", "tok_new3456789"), first->text);
  ASSERT_TRUE(rotated.has_value());
  EXPECT_EQ(rotated->variables.at("B"), before.at("B"));
  const auto keys = vault_.make_keys();
  EXPECT_EQ(read(*keys, *vault_.text_for(keys->number, "{}", rotated->text))[0].value->bytes(),
            "tok_new3456789");
}

TEST_F(EngineTest, WhatIsKeptNoMoreHasNoValueAndStaysKnown) {
  const auto first =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  const std::vector<GivenSecret> gone = {{.name = "one"}};
  const auto sealed = vault_.seal(policy_with({rule("A", "one")}), gone, first->text);
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  EXPECT_EQ(sealed->variables, first->variables);
  const auto keys = vault_.make_keys();
  EXPECT_EQ(read(*keys, *vault_.text_for(keys->number, "{}", sealed->text))[0].value, nullptr);
  // Nobody gets one that never was.
  EXPECT_FALSE(vault_.seal(policy_with({rule("A", "one")}), gone, "").has_value());
}

TEST_F(EngineTest, NothingIsTakenForASecretThatNobodyGave) {
  const auto first =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  for (const auto& before : {std::string(), first->text}) {
    const auto sealed = vault_.seal(policy_with({rule("A", "other")}), {}, before);
    ASSERT_FALSE(sealed.has_value());
    EXPECT_THAT(sealed.error().message(),
                HasSubstr("network.secrets.A: the vault has no secret other"));
  }
  EXPECT_FALSE(vault_.seal(policy_with({rule("A", "one")}), given("one", "short"), "").has_value());
}

TEST_F(EngineTest, WhatIsNotItsOwnIsRefused) {
  const auto sealed =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  const Engine other("another key");
  EXPECT_FALSE(other.text_for(other.make_keys()->number, "{}", sealed->text).has_value());
  EXPECT_FALSE(other.text_for("1", "{}", sealed->text).has_value());
  EXPECT_FALSE(other.seal(policy_with({rule("A", "one")}), {}, sealed->text).has_value());
}

TEST_F(EngineTest, WithoutSecretsThereIsNothingToSeal) {
  EXPECT_EQ(vault_.seal({}, {}, "")->text, "");
  EXPECT_EQ(vault_.text_for("1", "{}", "").value(), "{}");
}

TEST_F(EngineTest, AKeptValueIsUsedForItsSecretAlone) {
  const auto kept =
      vault_.keep("sec_1", body(R"({"name":"n","value":"tok_\u0030123456789"})").get());
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  EXPECT_EQ(kept->rest, R"({"name":"n","value":""})");
  EXPECT_THAT(kept->sealed, Not(HasSubstr("0123456789")));
  const policy::NetworkPolicy policy = policy_with({rule("A", "one")});
  const std::vector<GivenSecret> mine = {{.name = "one", .kept_id = "sec_1", .kept = kept->sealed}};
  const auto sealed = vault_.seal(policy, mine, "");
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  const auto keys = vault_.make_keys();
  EXPECT_EQ(read(*keys, *vault_.text_for(keys->number, "{}", sealed->text))[0].value->bytes(),
            "tok_0123456789");
  std::vector<GivenSecret> others = mine;
  others[0].kept_id = "sec_2";
  EXPECT_FALSE(vault_.seal(policy, others, "").has_value());
  EXPECT_FALSE(Engine("another key").seal(policy, mine, "").has_value());
  // Nor is what was sealed for a sandbox a value that is kept.
  others = {{.name = "one", .kept_id = "A", .kept = sealed->text}};
  EXPECT_FALSE(vault_.seal(policy, others, "").has_value());
}

TEST_F(EngineTest, ABodyWithoutAValueThatMayBeIsRefused) {
  for (const std::string_view text : {R"({"value":"short"})", R"({"value":"two\nlines of it"})",
                                      "{}", "", "[]", R"({"value":7})"}) {
    const auto kept = vault_.keep("sec_1", body(text).get());
    ASSERT_FALSE(kept.has_value()) << text;
    EXPECT_EQ(kept.error().code(), Code::kInvalidArgument);
  }
  // One whose other end is open, so that more may come.
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const Fd out(ends[0]), in(ends[1]);
  EXPECT_FALSE(vault_.keep("sec_1", out.get()).has_value());
}

TEST_F(EngineTest, WhatWasSealedBeforeTheVaultHadAKeyIsReadAndSealedAnew) {
  const policy::NetworkPolicy policy = policy_with({rule("A", "one")});
  const Engine before("earlier");
  const auto record = before.seal(policy, given("one", "tok_0123456789"), "");
  const auto kept = before.keep("sec_1", body(R"({"value":"tok_9876543210"})").get());
  const Engine now(MasterKeys{.key = SecretValue("key"), .earlier = SecretValue("earlier")});
  const auto keys = now.make_keys();
  const auto text = now.text_for(keys->number, "{}", record->text);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(read(*keys, *text)[0].value->bytes(), "tok_0123456789");
  // What is sealed now is nothing to who has the earlier key.
  const std::vector<GivenSecret> mine = {{.name = "one", .kept_id = "sec_1", .kept = kept->sealed}};
  const auto again = now.seal(policy, mine, record->text);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->variables, record->variables);
  EXPECT_FALSE(before.seal(policy, {}, again->text).has_value());
  // A sandbox of before has a number of digits alone, and keys that follow from the earlier key. It
  // is told what it had, and never what is sealed under ours.
  const auto old = now.text_for("0123", "{}", record->text);
  ASSERT_TRUE(old.has_value());
  const std::string sealing = hmac_sha256("earlier", "vault gateway 1 0123");
  EXPECT_EQ(egress::unseal(sealing, egress::split_policy(*old).sealed)->at(0).value->bytes(),
            "tok_0123456789");
  EXPECT_FALSE(now.text_for("0123", "{}", again->text).has_value());
  EXPECT_FALSE(vault_.text_for("0123", "{}", again->text).has_value());
}

TEST_F(EngineTest, AProxysPasswordStaysWithItsProxy) {
  policy::NetworkPolicy policy;
  policy.upstream_proxy = policy::UpstreamProxy{
      .address = "proxy.test:1080",
      .username = "me",
      .password = policy::SecretSource{.kind = policy::SecretSource::Kind::kVault, .text = ".pw"}};
  const auto sealed = vault_.seal(policy, given(".pw", "x"), "");
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  EXPECT_TRUE(sealed->variables.empty());
  // The same again needs nobody to say it; another proxy does.
  EXPECT_TRUE(vault_.seal(policy, {}, sealed->text).has_value());
  policy.upstream_proxy->address = "other.test:1080";
  const auto other = vault_.seal(policy, {}, sealed->text);
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message().find("network.upstream_proxy.password"), std::string::npos);
  EXPECT_FALSE(vault_.seal(policy, given(".pw", std::string(256, 'x')), "").has_value());
}

TEST_F(EngineTest, KeysAreOneSandboxsAlone) {
  const auto sealed =
      vault_.seal(policy_with({rule("A", "one")}), given("one", "tok_0123456789"), "");
  const auto one = vault_.make_keys(), other = vault_.make_keys();
  ASSERT_TRUE(one.has_value() && other.has_value());
  EXPECT_NE(one->number, other->number);
  EXPECT_NE(one->certificate, other->certificate);
  const auto keys = egress::read_keys(other->file->get());
  const auto text = vault_.text_for(one->number, "{}", sealed->text).value();
  EXPECT_FALSE(
      egress::unseal(keys->sealing.bytes(), egress::split_policy(text).sealed).has_value());
}

}  // namespace
}  // namespace caisson::vault
