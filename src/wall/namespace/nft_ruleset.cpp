#include "wall/namespace/nft_ruleset.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/guards.h"
#include "base/kernel_abi.h"

namespace caisson::wall {
namespace {

using netlink::Answer;
using netlink::Attributes;
using netlink::Batch;
using netlink::raw;

constexpr const char* kTable = "gateway";
constexpr const char* kGuard = "guard";
constexpr const char* kRedirect = "redirect";
constexpr const char* kArrive = "arrive";
constexpr const char* kPass = "pass";

// Places of the kernel's own in the order of hooks.
constexpr std::int32_t kPriorityMangle = -150;  // behind connection tracking
constexpr std::int32_t kPriorityDestinationNat = -100;
constexpr std::int32_t kPriorityFilter = 0;

constexpr std::uint16_t kDomain = 53;
constexpr std::uint8_t kNeighbourSolicitation = 135, kNeighbourAdvertisement = 136;
// Of a connection's state, as `ct state` gives it.
constexpr std::uint32_t kEstablished = 1u << (IP_CT_ESTABLISHED + 1);
constexpr std::uint32_t kNew = 1u << (IP_CT_NEW + 1);

constexpr std::uint16_t message_type(unsigned message) {
  return static_cast<std::uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | message);
}

constexpr nfgenmsg family(std::uint8_t number) {
  return {number, NFNETLINK_V0, 0};
}

// ---- expressions: each reads or writes the one register that is used
// ------------------------------

NftExpression load_meta(std::uint32_t key) {
  Attributes data;
  data.big_u32(NFTA_META_DREG, NFT_REG_1).big_u32(NFTA_META_KEY, key);
  return {"meta", data};
}

NftExpression load_tracked(std::uint32_t key) {
  Attributes data;
  data.big_u32(NFTA_CT_DREG, NFT_REG_1).big_u32(NFTA_CT_KEY, key);
  return {"ct", data};
}

NftExpression load_transport(std::uint32_t offset, std::uint32_t size) {
  Attributes data;
  data.big_u32(NFTA_PAYLOAD_DREG, NFT_REG_1)
      .big_u32(NFTA_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER)
      .big_u32(NFTA_PAYLOAD_OFFSET, offset)
      .big_u32(NFTA_PAYLOAD_LEN, size);
  return {"payload", data};
}

// Goes on with the next expression where the register compares so with `value`.
NftExpression compare(std::uint32_t how, std::string_view value) {
  Attributes data;
  data.big_u32(NFTA_CMP_SREG, NFT_REG_1)
      .big_u32(NFTA_CMP_OP, how)
      .nest(NFTA_CMP_DATA, Attributes().bytes(NFTA_DATA_VALUE, value));
  return {"cmp", data};
}

NftExpression mask(std::uint32_t bits) {
  Attributes data;
  data.big_u32(NFTA_BITWISE_SREG, NFT_REG_1)
      .big_u32(NFTA_BITWISE_DREG, NFT_REG_1)
      .big_u32(NFTA_BITWISE_LEN, sizeof bits)
      .nest(NFTA_BITWISE_MASK, Attributes().bytes(NFTA_DATA_VALUE, raw(bits)))
      .nest(NFTA_BITWISE_XOR, Attributes().bytes(NFTA_DATA_VALUE, raw(std::uint32_t{0})));
  return {"bitwise", data};
}

NftExpression verdict(std::uint32_t code) {
  const Attributes inner = Attributes().big_u32(NFTA_VERDICT_CODE, code);
  Attributes data;
  data.big_u32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT)
      .nest(NFTA_IMMEDIATE_DATA, Attributes().nest(NFTA_DATA_VERDICT, inner));
  return {"immediate", data};
}

NftExpression write_port(std::uint16_t port) {
  const std::uint16_t big = htons(port);
  Attributes data;
  data.big_u32(NFTA_IMMEDIATE_DREG, NFT_REG_1)
      .nest(NFTA_IMMEDIATE_DATA, Attributes().bytes(NFTA_DATA_VALUE, raw(big)));
  return {"immediate", data};
}

// To the port in the register, at the address of the interface that the packet came in by.
NftExpression redirect() {
  Attributes data;
  data.big_u32(NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1)
      .big_u32(NFTA_REDIR_REG_PROTO_MAX, NFT_REG_1)
      .big_u32(NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
  return {"redir", data};
}

// An ICMP error of the packet's own family.
NftExpression reject() {
  Attributes data;
  data.big_u32(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH)
      .u8(NFTA_REJECT_ICMP_CODE, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
  return {"reject", data};
}

// An end of the connection at once; of an ICMP error TCP may take notice when it tries again.
NftExpression reset() {
  Attributes data;
  data.big_u32(NFTA_REJECT_TYPE, NFT_REJECT_TCP_RST);
  return {"reject", data};
}

// Goes on where there are more packets than the rate.
NftExpression above_rate(std::uint64_t per_second, std::uint32_t at_once) {
  Attributes data;
  data.big_u64(NFTA_LIMIT_RATE, per_second)
      .big_u64(NFTA_LIMIT_UNIT, 1)
      .big_u32(NFTA_LIMIT_BURST, at_once)
      .big_u32(NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS)
      .big_u32(NFTA_LIMIT_FLAGS, NFT_LIMIT_F_INV);
  return {"limit", data};
}

// ---- rules
// ----------------------------------------------------------------------------------------

using Expressions = std::vector<NftExpression>;

Expressions is_protocol(std::uint8_t protocol) {
  return {load_meta(NFT_META_L4PROTO), compare(NFT_CMP_EQ, raw(protocol))};
}

Expressions to_domain(std::uint8_t protocol) {
  const std::uint16_t port = htons(kDomain);
  Expressions all = is_protocol(protocol);
  all.push_back(load_transport(2, sizeof port));
  all.push_back(compare(NFT_CMP_EQ, raw(port)));
  return all;
}

Expressions of_neighbours() {
  const std::uint8_t ipv6 = NFPROTO_IPV6;
  Expressions all = {load_meta(NFT_META_NFPROTO), compare(NFT_CMP_EQ, raw(ipv6))};
  for (NftExpression& expression : is_protocol(IPPROTO_ICMPV6))
    all.push_back(std::move(expression));
  all.push_back(load_transport(0, 1));
  all.push_back(compare(NFT_CMP_GTE, raw(kNeighbourSolicitation)));
  all.push_back(compare(NFT_CMP_LTE, raw(kNeighbourAdvertisement)));
  return all;
}

Expressions is_in_state(std::uint32_t state) {
  return {load_tracked(NFT_CT_STATE), compare(NFT_CMP_EQ, raw(state))};
}

Expressions was_redirected() {
  return {load_tracked(NFT_CT_STATUS), mask(IPS_DST_NAT),
          compare(NFT_CMP_NEQ, raw(std::uint32_t{0}))};
}

Expressions then(Expressions conditions, std::initializer_list<NftExpression> last) {
  conditions.insert(conditions.end(), last);
  return conditions;
}

NftChain chain(const char* name, const char* type, std::uint32_t hook, std::int32_t priority,
               std::uint32_t policy, const char* what) {
  Attributes attributes;
  attributes.text(NFTA_CHAIN_TABLE, kTable)
      .text(NFTA_CHAIN_NAME, name)
      .nest(NFTA_CHAIN_HOOK, Attributes()
                                 .big_u32(NFTA_HOOK_HOOKNUM, hook)
                                 .big_u32(NFTA_HOOK_PRIORITY, static_cast<std::uint32_t>(priority)))
      .big_u32(NFTA_CHAIN_POLICY, policy)
      .text(NFTA_CHAIN_TYPE, type);
  return {name, what, std::move(attributes)};
}

Attributes of_rule(const NftRule& rule) {
  Attributes list;
  for (const NftExpression& expression : rule.expressions) {
    list.nest(
        NFTA_LIST_ELEM,
        Attributes().text(NFTA_EXPR_NAME, expression.name).nest(NFTA_EXPR_DATA, expression.data));
  }
  Attributes attributes;
  attributes.text(NFTA_RULE_TABLE, kTable)
      .text(NFTA_RULE_CHAIN, rule.chain)
      .nest(NFTA_RULE_EXPRESSIONS, list);
  return attributes;
}

// ---- reading back
// -----------------------------------------------------------------------------------

Error differs(std::string_view what) {
  return Error::internal("the kernel does not have the gateway's rules as they were given to it: " +
                         std::string(what));
}

// The attributes of the answers that are of this kind, all of any table and family of the
// namespace.
Result<std::vector<std::string_view>> bodies(std::string_view answers, unsigned message) {
  TRY_ASSIGN(const std::vector<Answer> all, netlink::split_answers(answers));
  std::vector<std::string_view> found;
  for (const Answer& answer : all) {
    if (answer.type != message_type(message)) continue;
    if (answer.payload.size() < sizeof(nfgenmsg)) return fail(differs("an answer is cut off"));
    if (static_cast<std::uint8_t>(answer.payload[0]) != NFPROTO_INET)
      return fail(differs("there are rules of another family"));
    found.push_back(answer.payload.substr(sizeof(nfgenmsg)));
  }
  return found;
}

std::string_view text_of(std::string_view value) {
  return value.substr(0, value.find('\0'));
}

// Whether the list of expressions is the rule's: as many, in the same order, each with what was
// asked for.
Result<bool> has_expressions(const NftRule& rule, std::string_view list) {
  TRY_ASSIGN(const auto elements, netlink::split_attributes(list));
  if (elements.size() != rule.expressions.size()) return false;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    TRY_ASSIGN(const auto parts, netlink::split_attributes(elements[i].value));
    if (text_of(netlink::find(parts, NFTA_EXPR_NAME)) != rule.expressions[i].name) return false;
    TRY_ASSIGN(const bool same, netlink::holds(netlink::find(parts, NFTA_EXPR_DATA),
                                               rule.expressions[i].data.encoded()));
    if (!same) return false;
  }
  return true;
}

Result<std::string> dump(const netlink::Socket& socket, unsigned message, const char* what) {
  Batch question;
  question.add(message_type(message), NLM_F_DUMP, raw(family(NFPROTO_UNSPEC)), {}, what);
  return socket.ask(question);
}

}  // namespace

NftRuleset gateway_ruleset() {
  NftRuleset ruleset;
  ruleset.chains = {chain(kGuard, "filter", NF_INET_PRE_ROUTING, kPriorityMangle, NF_DROP,
                          "the chain in front of all others (nf_tables)"),
                    chain(kRedirect, "nat", NF_INET_PRE_ROUTING, kPriorityDestinationNat, NF_ACCEPT,
                          "the chain that redirects (nft_chain_nat)"),
                    chain(kArrive, "filter", NF_INET_LOCAL_IN, kPriorityFilter, NF_DROP,
                          "the chain in front of the sockets (nf_tables)"),
                    chain(kPass, "filter", NF_INET_FORWARD, kPriorityFilter, NF_DROP,
                          "the chain for what would go through (nf_tables)")};
  ruleset.rules = {
      {kGuard, "the rate of new connections (nft_ct, nft_limit)",
       then(is_in_state(kNew),
            {above_rate(kNewConnectionsPerSecond, kNewConnectionsAtOnce), verdict(NF_DROP)})},
      {kGuard, "TCP is let in", then(is_protocol(IPPROTO_TCP), {verdict(NF_ACCEPT)})},
      {kGuard, "DNS is let in", then(to_domain(IPPROTO_UDP), {verdict(NF_ACCEPT)})},
      {kGuard, "IPv6 neighbours are let in", then(of_neighbours(), {verdict(NF_ACCEPT)})},
      {kGuard, "all else is refused (nft_reject_inet)", {reject()}},
      {kRedirect, "the redirection of DNS (nft_redir)",
       then(to_domain(IPPROTO_UDP), {write_port(kGatewayDnsPort), redirect()})},
      {kRedirect, "the redirection of DNS over TCP (nft_redir)",
       then(to_domain(IPPROTO_TCP), {write_port(kGatewayDnsPort), redirect()})},
      {kRedirect, "the redirection of TCP (nft_redir)",
       then(is_protocol(IPPROTO_TCP), {write_port(kGatewayTcpPort), redirect()})},
      {kArrive, "answers arrive (nft_ct)", then(is_in_state(kEstablished), {verdict(NF_ACCEPT)})},
      {kArrive, "what was redirected arrives (nft_ct)",
       then(was_redirected(), {verdict(NF_ACCEPT)})},
      {kArrive, "IPv6 neighbours' words arrive", then(of_neighbours(), {verdict(NF_ACCEPT)})},
      {kArrive, "TCP that names a listener is refused (nft_reject_inet)",
       then(is_protocol(IPPROTO_TCP), {reset()})},
      {kArrive, "all else is refused at the sockets (nft_reject_inet)", {reject()}},
  };
  std::erase_if(ruleset.rules, [](const NftRule& rule) {
    const std::string_view what = rule.what;
    return (guard_off(Guard::kRefuseRest) && what.starts_with("all else is refused")) ||
           (guard_off(Guard::kRedirectTcp) && what.starts_with("the redirection of TCP"));
  });
  return ruleset;
}

NftRuleset only_chain(const NftRuleset& ruleset, std::string_view chain) {
  NftRuleset part = ruleset;
  std::erase_if(part.chains, [&](const NftChain& entry) { return entry.name != chain; });
  std::erase_if(part.rules, [&](const NftRule& entry) { return entry.chain != chain; });
  return part;
}

Batch encode_ruleset(const NftRuleset& ruleset) {
  Batch batch;
  const nfgenmsg transaction{AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES)};
  const nfgenmsg inet = family(NFPROTO_INET);
  batch.add(NFNL_MSG_BATCH_BEGIN, 0, raw(transaction), {}, "the rules' transaction (nf_tables)");
  batch.add(message_type(NFT_MSG_NEWTABLE), NLM_F_CREATE, raw(inet),
            Attributes().text(NFTA_TABLE_NAME, kTable), "the rules' table (nf_tables)");
  for (const NftChain& chain : ruleset.chains)
    batch.add(message_type(NFT_MSG_NEWCHAIN), NLM_F_CREATE, raw(inet), chain.attributes,
              chain.what);
  for (const NftRule& rule : ruleset.rules) {
    // Of a transaction the kernel tells what fails in any case, and that it was done where the last
    // message asks.
    const bool last = &rule == &ruleset.rules.back();
    batch.add(message_type(NFT_MSG_NEWRULE),
              static_cast<std::uint16_t>(NLM_F_CREATE | NLM_F_APPEND | (last ? NLM_F_ACK : 0)),
              raw(inet), of_rule(rule), rule.what);
  }
  batch.add(NFNL_MSG_BATCH_END, 0, raw(transaction), {}, "the end of the rules' transaction");
  return batch;
}

Status load_ruleset(const netlink::Socket& socket, const NftRuleset& ruleset, SwitchMask switches) {
  if (!is_off(switches, Mechanism::kGatewayRules)) return socket.commit(encode_ruleset(ruleset));
  NftRuleset less = ruleset;
  less.rules.erase(std::ranges::find_if(less.rules, [](const NftRule& rule) {
    return rule.expressions.front().name == std::string_view("reject");
  }));
  return socket.commit(encode_ruleset(less));
}

Status compare_chains(const NftRuleset& asked, std::string_view answers) {
  TRY_ASSIGN(const auto found, bodies(answers, NFT_MSG_NEWCHAIN));
  if (found.size() != asked.chains.size())
    return fail(differs(std::to_string(found.size()) + " chains instead of " +
                        std::to_string(asked.chains.size())));
  for (std::size_t i = 0; i < found.size(); ++i) {
    TRY_ASSIGN(const bool same, netlink::holds(found[i], asked.chains[i].attributes.encoded()));
    if (!same) return fail(differs(asked.chains[i].what));
  }
  return {};
}

Status compare_rules(const NftRuleset& asked, std::string_view answers) {
  TRY_ASSIGN(const auto found, bodies(answers, NFT_MSG_NEWRULE));
  if (found.size() != asked.rules.size())
    return fail(differs(std::to_string(found.size()) + " rules instead of " +
                        std::to_string(asked.rules.size())));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const NftRule& rule = asked.rules[i];
    TRY_ASSIGN(const auto parts, netlink::split_attributes(found[i]));
    TRY_ASSIGN(const bool same, has_expressions(rule, netlink::find(parts, NFTA_RULE_EXPRESSIONS)));
    if (!same || text_of(netlink::find(parts, NFTA_RULE_TABLE)) != kTable ||
        text_of(netlink::find(parts, NFTA_RULE_CHAIN)) != rule.chain)
      return fail(differs(rule.what));
  }
  return {};
}

Status check_ruleset(const netlink::Socket& socket, const NftRuleset& asked) {
  TRY_ASSIGN(const std::string chains, dump(socket, NFT_MSG_GETCHAIN, "reading the chains back"));
  TRY(compare_chains(asked, chains));
  TRY_ASSIGN(const std::string rules, dump(socket, NFT_MSG_GETRULE, "reading the rules back"));
  return compare_rules(asked, rules);
}

}  // namespace caisson::wall
