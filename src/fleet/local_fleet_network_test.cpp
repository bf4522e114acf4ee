#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "egress/gateway/keys.h"
#include "egress/secrets/sealed.h"
#include "fleet/local_fleet_for_test.h"
#include "fleet/network.h"
#include "fleet/recipe.h"
#include "policy/network_document.h"
#include "vault/engine.h"

namespace caisson::fleet {
namespace {

using proto::ControlOperation;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A secret of the vault's, in the variable TOKEN; for hosts below the name.
policy::NetworkPolicy with_secret(const std::string& host) {
  policy::NetworkPolicy network{.unmatched = policy::NetworkDefault::kAllowPublic};
  policy::SecretRule& rule = network.secrets.emplace_back();
  rule.name = "gh";
  rule.env = "TOKEN";
  rule.source = {.kind = policy::SecretSource::Kind::kVault, .text = "gh"};
  rule.hosts = {host};
  return network;
}

std::vector<vault::GivenSecret> given(std::string_view value) {
  return {{.name = "gh", .value = std::make_shared<const SecretValue>(value)}};
}

// What the gateway of a sandbox was told by the last kSetNetwork, as it can read it.
std::vector<egress::SecretEntry> told(FakeHost& host, const std::string& id) {
  const auto keys = egress::read_keys(host.keys(id));
  const std::string text = host.network(id);
  EXPECT_TRUE(keys.has_value());
  auto entries = egress::unseal(keys->sealing.bytes(), egress::split_policy(text).sealed);
  EXPECT_TRUE(entries.has_value());
  return std::move(entries).value_or(std::vector<egress::SecretEntry>());
}

TEST_F(LocalFleetTest, ANetworkIsSetWhereTheSandboxWasMadeWithAnother) {
  const policy::NetworkPolicy open{.unmatched = policy::NetworkDefault::kAllowPublic};
  made_network_ = served_network(open);
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.network = open;
    std::ignore = co_await fleet.create("team", wanted);
    EXPECT_THAT(test.host_.asked("box000000000"),
                testing::Not(testing::Contains(ControlOperation::kSetNetwork)));
    const auto closed = co_await fleet.create("team", kBase);
    EXPECT_THAT(test.host_.asked("box100000000"), testing::Contains(ControlOperation::kSetNetwork));
    // Changed, it is kept so.
    const std::string id = (*closed)->view().id;
    const Status changed = co_await fleet.set_network("team", id, open, R"({"a":1})", {});
    EXPECT_TRUE(changed.has_value());
    EXPECT_EQ((*closed)->view().network, R"({"a":1})");
    EXPECT_EQ(test.kept_.at(id).recipe.network, test.made_network_);
    EXPECT_EQ(test.kept_.at(id).view.network, R"({"a":1})");
    policy::NetworkPolicy secret = open;
    secret.secrets = {{.name = "gh", .hosts = {"a.example.com"}}};
    const Status refused = co_await fleet.set_network("team", id, secret, "{}", {});
    EXPECT_THAT(refused.error().message(),
                testing::HasSubstr("network.secrets.gh.source: found a source of this host's"));
    EXPECT_EQ((*closed)->view().network, R"({"a":1})");
    const Status others = co_await fleet.set_network("other", id, open, "{}", {});
    EXPECT_EQ(others.error().code(), Code::kNotFound);
  });
}

TEST_F(LocalFleetTest, ANetworkThatCannotBeSetLeavesNothing) {
  made_network_ = served_network({});
  host_.refuse(ControlOperation::kSetNetwork);
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.network = policy::NetworkPolicy{.unmatched = policy::NetworkDefault::kAllowPublic};
    const auto made = co_await fleet.create("team", wanted);
    EXPECT_FALSE(made.has_value());
    EXPECT_EQ(test.host_.asked("box000000000").back(), ControlOperation::kShutdown);
    EXPECT_TRUE(test.kept_.empty());
    // Nor is one that needs keys, where nobody has any.
    wanted.network->rules = {{.hosts = {"a.example.com"}, .tls = policy::TlsMode::kInspect}};
    const auto inspecting = co_await fleet.create("team", wanted);
    EXPECT_THAT(inspecting.error().message(), testing::HasSubstr("has no keys for secrets"));
    wanted.network->rules.clear();
    // One that is too long is no reason to make any.
    for (int rule = 0; rule < 512; ++rule)
      wanted.network->rules.push_back({.hosts = {std::string(60, 'a') + ".example.com",
                                                 std::string(60, 'b') + ".example.com"}});
    const auto refused = co_await fleet.create("team", wanted);
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_EQ(test.host_.made(), 1u);
  });
}

TEST_F(LocalFleetTest, ASecretGoesToTheGatewayAloneAndThePlaceholderInside) {
  vault_ = std::make_shared<const vault::Engine>("key");
  kept_secrets_["gh"] = "the value 1";
  made_network_ = served_network({});
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.network = with_secret("a.example.com");
    wanted.secrets = given("the value 1");
    const auto made = co_await fleet.create("team", wanted);
    EXPECT_TRUE(made.has_value());
    const auto entries = told(test.host_, "box000000000");
    EXPECT_EQ(entries.at(0).value->bytes(), "the value 1");
    EXPECT_EQ((*made)->env().at("TOKEN"), entries.at(0).placeholder);
    const std::string id = (*made)->view().id;
    EXPECT_FALSE(json::serialize(*recipe_json(test.kept_.at(id).recipe)).contains("the value"));
    EXPECT_FALSE(test.kept_.at(id).secrets.contains("the value"));
    EXPECT_FALSE(test.host_.network("box000000000").contains("the value"));

    // Another policy, or another value; what stands for it stays.
    const Status wider =
        co_await fleet.set_network("team", id, with_secret("*.example.com"), "{}", {});
    EXPECT_TRUE(wider.has_value());
    const auto now = told(test.host_, "box000000000");
    EXPECT_EQ(now.at(0).rule.hosts.at(0), "*.example.com");
    EXPECT_EQ(now.at(0).value->bytes(), "the value 1");
    const Status rotated = co_await fleet.set_network("team", id, with_secret("*.example.com"),
                                                      "{}", given("the value 2"));
    EXPECT_TRUE(rotated.has_value());
    EXPECT_EQ(told(test.host_, "box000000000").at(0).value->bytes(), "the value 2");
    EXPECT_EQ((*made)->env().at("TOKEN"), entries.at(0).placeholder);
    test.kept_secrets_["gh"] = "the value 2";
    // What nobody gave changes nothing.
    policy::NetworkPolicy other = with_secret("a.example.com");
    other.secrets[0].source.text = "unknown";
    const Status refused = co_await fleet.set_network("team", id, other, "{}", {});
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_EQ(told(test.host_, "box000000000").at(0).value->bytes(), "the value 2");

    // A fork has the same secrets and placeholders under keys of its own.
    const auto forks = co_await fleet.fork("team", id, seconds(60), 1);
    const auto& fork = *forks->at(0);
    EXPECT_EQ(fork->env().at("TOKEN"), entries.at(0).placeholder);
    EXPECT_EQ(told(test.host_, "box100000000").at(0).value->bytes(), "the value 2");
    // A snapshot has none.
    const auto snapshot = co_await fleet.snapshot("team", id);
    EXPECT_FALSE(snapshot->shape.contains("gh"));
  });
}

TEST_F(LocalFleetTest, OneThatIsMadeWithoutRulesGetsSecretsLaterOnlyWhereTheServerSaysSo) {
  vault_ = std::make_shared<const vault::Engine>("key");
  made_network_ = served_network({});
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto made = co_await fleet.create("team", kBase);
    const Status refused = co_await fleet.set_network(
        "team", (*made)->view().id, with_secret("a.example.com"), "{}", given("the value 1"));
    EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
    EXPECT_THAT(refused.error().message(), testing::HasSubstr("e2b.inspect_later: true"));
  });
  inspect_later_ = true;
  kept_.clear();
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto made = co_await fleet.create("team", kBase);
    EXPECT_TRUE(made.has_value());
    const std::string id = (*made)->view().id, host_id = test.kept_.at(id).host_id;
    EXPECT_FALSE(test.kept_.at(id).keys.empty());
    const Status changed = co_await fleet.set_network("team", id, with_secret("a.example.com"),
                                                      "{}", given("the value 1"));
    EXPECT_TRUE(changed.has_value());
    EXPECT_EQ(told(test.host_, host_id).at(0).value->bytes(), "the value 1");
    EXPECT_EQ((*made)->env().at("TOKEN"), told(test.host_, host_id).at(0).placeholder);
    // One that has them from its beginning is like all others, and may be one that is ready.
    NewSandbox wanted = kBase;
    wanted.network = with_secret("a.example.com");
    wanted.secrets = given("the value 2");
    const auto second = co_await fleet.create("team", wanted);
    EXPECT_TRUE(second.has_value());
    const Record& record = test.kept_.at((*second)->view().id);
    EXPECT_EQ(told(test.host_, record.host_id).at(0).value->bytes(), "the value 2");
    EXPECT_NE(record.keys, test.kept_.at(id).keys);
  });
}

TEST_F(LocalFleetTest, WhatATeamKeepsIsGivenRenewedAndRevoked) {
  vault_ = std::make_shared<const vault::Engine>("key");
  made_network_ = served_network({});
  kept_secrets_["gh"] = "the value 1";
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.network = with_secret("a.example.com");
    const auto made = co_await fleet.create("team", wanted);
    EXPECT_TRUE(made.has_value());
    const auto first = told(test.host_, "box000000000");
    EXPECT_EQ(first.at(0).value->bytes(), "the value 1");
    test.kept_secrets_["gh"] = "the value 2";
    std::ignore = co_await fleet.renew_secret("other", "gh");
    std::ignore = co_await fleet.renew_secret("team", "another");
    EXPECT_EQ(told(test.host_, "box000000000").at(0).value->bytes(), "the value 1");
    std::ignore = co_await fleet.renew_secret("team", "gh");
    const auto second = told(test.host_, "box000000000");
    EXPECT_EQ(second.at(0).value->bytes(), "the value 2");
    EXPECT_EQ(second.at(0).placeholder, first.at(0).placeholder);
    test.kept_secrets_.clear();
    std::ignore = co_await fleet.renew_secret("team", "gh");
    const auto revoked = told(test.host_, "box000000000");
    EXPECT_EQ(revoked.at(0).value, nullptr);
    EXPECT_EQ(revoked.at(0).placeholder, first.at(0).placeholder);
  });
}

TEST_F(LocalFleetTest, ARenewalDoesNotPutBackWhatWasChangedMeanwhile) {
  vault_ = std::make_shared<const vault::Engine>("key");
  made_network_ = served_network({});
  kept_secrets_["gh"] = "the value 1";
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.network = with_secret("a.example.com");
    const auto made = co_await fleet.create("team", wanted);
    const std::string id = (*made)->view().id;
    test.kept_secrets_["gh"] = "the value 2";
    test.hold_kept_ = true;
    bool renewed = false;
    auto renew = [](LocalFleet& on, bool& done) -> io::Async<void> {
      const Status told = co_await on.renew_secret("team", "gh");
      done = told.has_value();
    };
    current_loop->spawn(renew(fleet, renewed));
    policy::NetworkPolicy narrow = with_secret("a.example.com");
    narrow.unmatched = policy::NetworkDefault::kDeny;
    narrow.rules = {{.hosts = {"a.example.com"}}};
    bool changed = false;
    auto change = [](LocalFleet& on, std::string sandbox, policy::NetworkPolicy to,
                     bool& done) -> io::Async<void> {
      const Status set =
          co_await on.set_network("team", std::move(sandbox), std::move(to), R"({"a":1})", {});
      done = set.has_value();
    };
    current_loop->spawn(change(fleet, id, narrow, changed));
    co_await io::Loop::sleep(milliseconds(5));
    test.hold_kept_ = false;
    const bool both = co_await until([&] { return renewed && changed; });
    EXPECT_TRUE(both);
    narrow.floor = policy::Floor::kFixed;
    EXPECT_EQ(egress::split_policy(test.host_.network("box000000000")).policy,
              policy::written(narrow));
    EXPECT_EQ(told(test.host_, "box000000000").at(0).value->bytes(), "the value 2");
    EXPECT_EQ((*made)->view().network, R"({"a":1})");
  });
}

TEST_F(LocalFleetTest, APausedSandboxIsToldOfARenewalToo) {
  vault_ = std::make_shared<const vault::Engine>("key");
  made_network_ = served_network({});
  kept_secrets_["gh"] = "the value 1";
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.network = with_secret("a.example.com");
    const auto made = co_await fleet.create("team", wanted);
    const Status paused = co_await fleet.pause("team", (*made)->view().id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    test.kept_secrets_.clear();
    std::ignore = co_await fleet.renew_secret("team", "gh");
    EXPECT_EQ(told(test.host_, "box000000000").at(0).value, nullptr);
    // Nor is it taken from what there was, by one that asks for it again.
    const Status again = co_await fleet.set_network("team", (*made)->view().id,
                                                    with_secret("a.example.com"), "{}", {});
    EXPECT_EQ(again.error().code(), Code::kFailedPrecondition);
    const auto resumed =
        co_await fleet.connect("team", (*made)->view().id, seconds(60), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.has_value());
    const auto forks = co_await fleet.fork("team", (*made)->view().id, seconds(60), 1);
    EXPECT_TRUE(forks.has_value() && forks->at(0).has_value());
    EXPECT_EQ(told(test.host_, "box100000000").at(0).value, nullptr);
  });
}

TEST_F(LocalFleetTest, WhatTrustsNoGatewayGetsNoSecretLater) {
  vault_ = std::make_shared<const vault::Engine>("key");
  made_network_ = served_network({});
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto made = co_await fleet.create("team", kBase);
    const Status set = co_await fleet.set_network(
        "team", (*made)->view().id, with_secret("a.example.com"), "{}", given("the value 1"));
    EXPECT_EQ(set.error().code(), Code::kFailedPrecondition);
    // Nor is a sandbox made without the value.
    NewSandbox wanted = kBase;
    wanted.network = with_secret("a.example.com");
    const auto without = co_await fleet.create("team", wanted);
    EXPECT_THAT(without.error().message(), testing::HasSubstr("the vault has no secret gh"));
  });
}

}  // namespace
}  // namespace caisson::fleet
