#include "wall/namespace/nft_ruleset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/kernel_abi.h"

namespace caisson::wall {
namespace {

using netlink::Answer;
using netlink::Attributes;
using netlink::Batch;
using netlink::raw;
using ::testing::HasSubstr;

// The messages of a ruleset that are of one kind, as a kernel without opinions tells them.
std::string told(const NftRuleset& ruleset, unsigned message) {
  const std::string all = encode_ruleset(ruleset).encoded();
  const auto messages = netlink::split_answers(all);
  std::string some;
  for (const Answer& entry : *messages) {
    if (entry.type != (NFNL_SUBSYS_NFTABLES << 8 | message)) continue;
    const nlmsghdr header{static_cast<std::uint32_t>(sizeof(nlmsghdr) + entry.payload.size()),
                          entry.type, NLM_F_MULTI, 1, 0};
    some.append(raw(header)).append(entry.payload);
  }
  return some;
}

// The same attributes but for a bit at the end of the one of this type.
Attributes spoilt(std::string_view bytes, std::uint16_t type) {
  Attributes changed;
  const auto parts = netlink::split_attributes(bytes);
  for (const netlink::Attribute& part : *parts) {
    std::string value(part.value);
    if (part.type == type) {
      const auto inner = netlink::split_attributes(value);
      if (part.nested)
        value = spoilt(part.value, inner->back().type).encoded();
      else
        value.back() = static_cast<char>(value.back() ^ 1);
    }
    changed.bytes(static_cast<std::uint16_t>(part.type | (part.nested ? NLA_F_NESTED : 0)), value);
  }
  return changed;
}

std::string fault_of(const Status& status) {
  return status.has_value() ? "" : status.error().message();
}

TEST(NftRuleset, IsOneTransactionWithOneAnswer) {
  const NftRuleset ruleset = gateway_ruleset();
  const Batch batch = encode_ruleset(ruleset);
  EXPECT_TRUE(batch.fits());
  const auto messages = netlink::split_answers(batch.encoded());
  ASSERT_TRUE(messages.has_value());
  ASSERT_EQ(messages->size(), 3 + ruleset.chains.size() + ruleset.rules.size());
  EXPECT_EQ(messages->front().type, NFNL_MSG_BATCH_BEGIN);
  EXPECT_EQ(messages->back().type, NFNL_MSG_BATCH_END);
  for (std::size_t number = 1; number <= messages->size(); ++number)
    EXPECT_EQ(batch.wants_answer(number), number + 1 == messages->size()) << number;
}

TEST(NftRuleset, EveryChainThatFiltersDropsAndEndsInARefusal) {
  const NftRuleset ruleset = gateway_ruleset();
  for (const NftChain& chain : ruleset.chains) {
    const bool filters = chain.name != std::string_view("redirect");
    const Attributes policy =
        Attributes().big_u32(NFTA_CHAIN_POLICY, filters ? NF_DROP : NF_ACCEPT);
    EXPECT_TRUE(netlink::holds(chain.attributes.encoded(), policy.encoded()).value()) << chain.name;
  }
  for (const std::string_view name : {"guard", "arrive"}) {
    const NftRule last = only_chain(ruleset, name).rules.back();
    ASSERT_EQ(last.expressions.size(), 1u) << name;
    EXPECT_STREQ(last.expressions[0].name, "reject") << name;
  }
  EXPECT_TRUE(only_chain(ruleset, "pass").rules.empty());
}

// The bytes that nft(8) sends for the same words, as `nft --debug=netlink` shows them.
TEST(NftRuleset, TcpIsLetInByTheseExpressions) {
  const NftRule rule = gateway_ruleset().rules[1];
  const Attributes load =
      Attributes().big_u32(NFTA_META_DREG, NFT_REG_1).big_u32(NFTA_META_KEY, NFT_META_L4PROTO);
  EXPECT_EQ(rule.expressions[0].data.encoded(), load.encoded());
  using namespace std::string_view_literals;
  EXPECT_EQ(rule.expressions[1].data.encoded(),
            "\x08\0\x01\0\0\0\0\x01"  // register 1
            "\x08\0\x02\0\0\0\0\0"    // equals
            "\x0c\0\x03\x80"
            "\x05\0\x01\0\x06\0\0\0"sv);
  EXPECT_EQ(rule.expressions[2].data.encoded(),
            "\x08\0\x01\0\0\0\0\0"  // the verdict's register
            "\x10\0\x02\x80"
            "\x0c\0\x02\x80"
            "\x08\0\x01\0\0\0\0\x01"sv);
}

TEST(NftReadBack, WhatWasAskedForIsTaken) {
  const NftRuleset asked = gateway_ruleset();
  EXPECT_EQ(fault_of(compare_chains(asked, told(asked, NFT_MSG_NEWCHAIN))), "");
  EXPECT_EQ(fault_of(compare_rules(asked, told(asked, NFT_MSG_NEWRULE))), "");
}

TEST(NftReadBack, EveryRuleThatIsMissingIsNoticed) {
  const NftRuleset asked = gateway_ruleset();
  for (std::size_t i = 0; i < asked.rules.size(); ++i) {
    NftRuleset less = asked;
    less.rules.erase(less.rules.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(fault_of(compare_rules(asked, told(less, NFT_MSG_NEWRULE))),
                HasSubstr("12 rules instead of 13"));
    EXPECT_NE(fault_of(compare_rules(less, told(asked, NFT_MSG_NEWRULE))), "");
  }
}

TEST(NftReadBack, EveryRuleThatIsAnotherOrElsewhereIsNoticed) {
  const NftRuleset asked = gateway_ruleset();
  for (std::size_t i = 0; i < asked.rules.size(); ++i) {
    NftRuleset other = asked;
    other.rules[i].chain = "pass";
    EXPECT_THAT(fault_of(compare_rules(asked, told(other, NFT_MSG_NEWRULE))),
                HasSubstr(asked.rules[i].what));
    other = asked;
    other.rules[i].expressions.pop_back();
    EXPECT_THAT(fault_of(compare_rules(asked, told(other, NFT_MSG_NEWRULE))),
                HasSubstr(asked.rules[i].what));
    for (std::size_t e = 0; e < asked.rules[i].expressions.size(); ++e) {
      other = asked;
      other.rules[i].expressions[e].name = "counter";
      EXPECT_NE(fault_of(compare_rules(asked, told(other, NFT_MSG_NEWRULE))), "");
      other = asked;
      const std::string& data = asked.rules[i].expressions[e].data.encoded();
      other.rules[i].expressions[e].data =
          spoilt(data, netlink::split_attributes(data)->back().type);
      EXPECT_THAT(fault_of(compare_rules(asked, told(other, NFT_MSG_NEWRULE))),
                  HasSubstr(asked.rules[i].what));
    }
    if (i == 0) continue;
    other = asked;
    std::swap(other.rules[i], other.rules[i - 1]);
    EXPECT_NE(fault_of(compare_rules(asked, told(other, NFT_MSG_NEWRULE))), "");
  }
}

TEST(NftReadBack, EveryChainThatIsAnotherIsNoticed) {
  const NftRuleset asked = gateway_ruleset();
  for (std::size_t i = 0; i < asked.chains.size(); ++i) {
    NftRuleset other = asked;
    other.chains.erase(other.chains.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(fault_of(compare_chains(asked, told(other, NFT_MSG_NEWCHAIN))),
                HasSubstr("3 chains instead of 4"));
    for (const std::uint16_t type :
         {NFTA_CHAIN_POLICY, NFTA_CHAIN_HOOK, NFTA_CHAIN_TYPE, NFTA_CHAIN_NAME, NFTA_CHAIN_TABLE}) {
      other = asked;
      other.chains[i].attributes = spoilt(asked.chains[i].attributes.encoded(), type);
      EXPECT_THAT(fault_of(compare_chains(asked, told(other, NFT_MSG_NEWCHAIN))),
                  HasSubstr(asked.chains[i].what))
          << type;
    }
  }
}

TEST(NftReadBack, RulesOfAnotherFamilyAndCutAnswersAreNoticed) {
  const NftRuleset asked = gateway_ruleset();
  std::string chains = told(asked, NFT_MSG_NEWCHAIN);
  chains[sizeof(nlmsghdr)] = NFPROTO_IPV4;
  EXPECT_THAT(fault_of(compare_chains(asked, chains)), HasSubstr("another family"));
  const nlmsghdr header{sizeof(nlmsghdr), NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, 0, 1, 0};
  EXPECT_THAT(fault_of(compare_rules(asked, raw(header))), HasSubstr("cut off"));
  EXPECT_NE(fault_of(compare_rules(asked, "x")), "");
}

}  // namespace
}  // namespace caisson::wall
