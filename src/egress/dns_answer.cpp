#include "egress/dns_answer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/guards.h"
#include "policy/host_name.h"

namespace caisson::egress {
namespace {

using policy::IpAddress;

constexpr std::size_t kMostDisplayedName = 255;

// Last labels below which no public name lies: special use (RFC 6761, 6762, 7686, 8375, 9476; arpa
// but for the reverse names that we answer), and those that networks use for themselves (RFC 6762,
// appendix G), which no root server has. That such a name does not exist is never untrue later, and
// it makes a resolver go on to the next of its search domains.
constexpr std::array<std::string_view, 12> kPrivateEndings = {
    "alt",     "arpa", "corp",  "home",        "internal", "intranet",
    "invalid", "lan",  "local", "localdomain", "onion",    "private"};

bool is_private_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return true;
  return std::ranges::find(kPrivateEndings, name.substr(dot + 1)) != kPrivateEndings.end();
}

bool asks_for_address(const DnsQuery& query) {
  return query.type == DnsType::kA || query.type == DnsType::kAaaa;
}

DnsDecision decided(DnsOutcome outcome, std::string name) {
  return {.outcome = outcome, .name = std::move(name), .addresses = {}, .reverse_name = {}};
}

DnsDecision loopback(const DnsQuery& query, std::string name) {
  if (!asks_for_address(query)) return decided(DnsOutcome::kNoData, std::move(name));
  DnsDecision decision = decided(DnsOutcome::kLoopback, std::move(name));
  decision.addresses = {*IpAddress::parse("127.0.0.1"), *IpAddress::parse("::1")};
  return decision;
}

DnsDecision reverse(const DnsQuery& query, std::string name, const IpAddress& address,
                    const NameTable& table) {
  auto found = table.name_of(address);
  if (!found.has_value()) return decided(DnsOutcome::kNoSuchName, std::move(name));
  if (query.type != DnsType::kPtr) return decided(DnsOutcome::kNoData, std::move(name));
  DnsDecision decision = decided(DnsOutcome::kReverse, std::move(name));
  decision.reverse_name = std::move(*found);
  return decision;
}

DnsDecision synthetic(const DnsQuery& query, std::string name, NameTable& table) {
  if (!asks_for_address(query)) {
    const bool denies = guard_off(Guard::kDnsTypes);
    return decided(denies ? DnsOutcome::kNoSuchName : DnsOutcome::kNoData, std::move(name));
  }
  const auto addresses = table.addresses_of(name);
  if (!addresses) return decided(DnsOutcome::kTableFull, std::move(name));
  DnsDecision decision = decided(DnsOutcome::kSynthetic, std::move(name));
  decision.addresses = {addresses->v4, addresses->v6};
  return decision;
}

DnsDecision unmatched(const DnsQuery& query, const policy::DnsPolicy& rules, std::string name,
                      NameTable& table) {
  if (is_private_name(name) || guard_off(Guard::kDnsDenied))
    return decided(DnsOutcome::kNoSuchName, std::move(name));
  switch (rules.unmatched) {
    case policy::UnmatchedName::kSynthetic:
      return synthetic(query, std::move(name), table);
    case policy::UnmatchedName::kNodata:
      return decided(DnsOutcome::kNoData, std::move(name));
    case policy::UnmatchedName::kRefused:
      break;
  }
  return decided(DnsOutcome::kRefused, std::move(name));
}

bool is_service(const policy::DnsPolicy& rules, const std::string& name) {
  const auto fits = [&](const std::string& service) {
    // What a check does that looks at the end of a name.
    if (guard_off(Guard::kDnsServices) && name.ends_with("." + service)) return true;
    return name == service;
  };
  return std::ranges::any_of(rules.services, fits);
}

}  // namespace

bool is_localhost(std::string_view name) {
  return name == "localhost" || name.ends_with(".localhost");
}

std::string_view to_string(DnsOutcome outcome) {
  switch (outcome) {
    case DnsOutcome::kSynthetic:
      return "synthetic";
    case DnsOutcome::kLoopback:
      return "loopback";
    case DnsOutcome::kReverse:
      return "reverse";
    case DnsOutcome::kServices:
      return "services";
    case DnsOutcome::kNoData:
      return "no_data";
    case DnsOutcome::kNoSuchName:
      return "no_such_name";
    case DnsOutcome::kRefused:
      return "refused";
    case DnsOutcome::kNotAName:
      return "not_a_name";
    case DnsOutcome::kTableFull:
      return "table_full";
    case DnsOutcome::kMalformed:
      break;
  }
  return "malformed";
}

DnsDecision dns_decision(const DnsQuery& query, const policy::DnsPolicy& rules,
                         const DnsNames& names, NameTable& table) {
  const auto text = dns_host_text(query.name);
  auto host = text.has_value() ? policy::canonical_host(*text)
                               : Result<policy::Host>(fail(Error::invalid("no host's name")));
  if (!host)
    return decided(DnsOutcome::kNotAName, dns_display_text(query.name, kMostDisplayedName));
  std::string name = std::move(host->name);
  // An address is no name; no DNS has one.
  if (host->is_address()) return decided(DnsOutcome::kNoSuchName, std::move(name));
  if (is_localhost(name)) return loopback(query, std::move(name));
  if (const auto address = reverse_dns_address(name))
    return reverse(query, std::move(name), *address, table);
  if (query.type == DnsType::kSrv && is_service(rules, name))
    return decided(DnsOutcome::kServices, std::move(name));
  if (names.verdict(name) == NameVerdict::kMatched) return synthetic(query, std::move(name), table);
  return unmatched(query, rules, std::move(name), table);
}

std::string dns_answer(const DnsQuery& query, DnsTransport transport, const DnsDecision& decision,
                       std::uint32_t ttl) {
  const DnsAnswers answers(query, transport);
  switch (decision.outcome) {
    case DnsOutcome::kSynthetic:
    case DnsOutcome::kLoopback:
      return answers.addresses(decision.addresses, ttl);
    case DnsOutcome::kReverse: {
      const auto target = dns_wire_name(decision.reverse_name);
      VERIFY(target.has_value());  // a canonical name
      return answers.pointer(*target, ttl);
    }
    case DnsOutcome::kNoData:
      return answers.empty(DnsRcode::kNoError);
    case DnsOutcome::kNoSuchName:
      return answers.empty(DnsRcode::kNxDomain);
    case DnsOutcome::kTableFull:
      return answers.empty(DnsRcode::kServFail);
    case DnsOutcome::kServices:  // services_answer()
    case DnsOutcome::kRefused:
    case DnsOutcome::kNotAName:
    case DnsOutcome::kMalformed:
      break;
  }
  return answers.empty(DnsRcode::kRefused);
}

std::string services_answer(const DnsQuery& query, DnsTransport transport,
                            const KnownServices& services, const policy::DnsPolicy& rules,
                            const DnsNames& names) {
  const DnsAnswers answers(query, transport);
  // The policy may be another one than when it was asked for.
  const auto name = dns_host_text(query.name);
  if (!name || !is_service(rules, policy::canonical_host(*name)->name))
    return answers.empty(DnsRcode::kNoError);
  if (!services) return answers.empty(DnsRcode::kServFail);
  std::vector<DnsService> allowed;
  std::ranges::copy_if(*services, std::back_inserter(allowed), [&](const DnsService& service) {
    return names.verdict(service.target) == NameVerdict::kMatched;
  });
  return answers.services(allowed, rules.ttl);
}

DnsReply reply_to_dns(std::string_view message, DnsTransport transport,
                      const policy::DnsPolicy& rules, const DnsNames& names, NameTable& table) {
  DnsReply reply;
  ParsedDnsQuery parsed = parse_dns_query(message);
  if (!parsed.query.has_value()) {
    reply.answer = std::move(parsed.answer);
    reply.why = parsed.why;
    return reply;
  }
  const DnsQuery& query = *parsed.query;
  DnsDecision decision = dns_decision(query, rules, names, table);
  if (decision.outcome == DnsOutcome::kServices) {
    reply.waiting = query;
  } else {
    reply.answer = dns_answer(query, transport, decision, rules.ttl);
  }
  reply.outcome = decision.outcome;
  reply.name = std::move(decision.name);
  reply.type = query.type;
  return reply;
}

}  // namespace caisson::egress
