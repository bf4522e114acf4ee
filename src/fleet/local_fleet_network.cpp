// The networks of a local fleet's sandboxes: with keys and secrets, and changed.
#include <algorithm>
#include <tuple>
#include <utility>

#include "fleet/local_fleet_state.h"
#include "fleet/network.h"
#include "policy/network_document.h"
#include "policy/network_policy.h"
#include "policy/upstream_proxy.h"

namespace caisson::fleet {
namespace {

bool is_among(const std::vector<vault::GivenSecret>& given, const std::string& name) {
  return std::ranges::find(given, name, &vault::GivenSecret::name) != given.end();
}

// What a client gave with the sandbox, and no team keeps.
bool is_of_sandbox(const policy::SecretRule& rule) {
  return rule.source.text.starts_with('.');
}

}  // namespace

io::Async<Result<Ready>> LocalFleet::State::take_with_keys(Recipe recipe, Record& record) {
  const std::string network = recipe.network;
  auto make_keys = [vault = options.vault] { return vault->make_keys(); };
  CO_TRY_ASSIGN(vault::NetworkKeys keys, co_await loop.in_pool(std::move(make_keys)));
  CO_TRY_ASSIGN(std::string text, co_await text_for(keys.number, network, record.secrets));
  recipe.authority = std::move(keys.certificate);
  recipe.served_domain = options.served_domain;
  record.keys = std::move(keys.number);
  CO_TRY_ASSIGN(Ready ready, co_await pool.make(std::move(recipe), std::move(keys.file)));
  const Status set = co_await apply_network(*ready.client, std::move(text));
  if (set.has_value()) co_return ready;
  ready.client->shutdown();
  co_await ready.client->wait_gone_until(io::Clock::now() + kRemovalTime);
  co_return fail(set.error());
}

io::Async<Status> LocalFleet::State::seal_secrets(Record& record,
                                                  std::vector<vault::GivenSecret> values,
                                                  std::string before) const {
  if (options.vault == nullptr)
    co_return fail(Error(Code::kUnimplemented,
                         "network: this server has no keys for secrets, and "
                         "none for TLS that is inspected"));
  CO_TRY_ASSIGN(policy::NetworkPolicy policy,
                policy::parse_written_network_policy(record.recipe.network));
  auto seal = [vault = options.vault, policy = std::move(policy), values = std::move(values),
               before = std::move(before)] { return vault->seal(policy, values, before); };
  CO_TRY_ASSIGN(vault::Sealed sealed, co_await loop.in_pool(std::move(seal)));
  record.secrets = std::move(sealed.text);
  for (auto& [name, placeholder] : sealed.variables) record.env[name] = std::move(placeholder);
  co_return Status();
}

io::Async<Result<std::string>> LocalFleet::State::text_for(std::string number, std::string network,
                                                           std::string sealed) const {
  auto text = [vault = options.vault, number = std::move(number), network = std::move(network),
               sealed = std::move(sealed)] { return vault->text_for(number, network, sealed); };
  co_return co_await loop.in_pool(std::move(text));
}

io::Async<Result<std::vector<vault::GivenSecret>>> LocalFleet::State::values_for(
    std::string team, std::string network, std::vector<vault::GivenSecret> given) {
  CO_TRY_ASSIGN(const policy::NetworkPolicy policy, policy::parse_written_network_policy(network));
  std::vector<std::string> names;
  for (const policy::SecretRule& rule : policy::rules_with_values(policy)) {
    const std::string& name = rule.source.text;
    if (!is_of_sandbox(rule) && !is_among(given, name) &&
        std::ranges::find(names, name) == names.end())
      names.push_back(name);
  }
  if (names.empty() || !options.kept_values) co_return given;
  CO_TRY_ASSIGN(std::vector<vault::GivenSecret> kept,
                co_await options.kept_values(std::move(team), names));
  for (vault::GivenSecret& one : kept) given.push_back(std::move(one));
  // What is kept no more is not taken from what there was.
  for (std::string& name : names) {
    if (!is_among(given, name)) given.push_back({.name = std::move(name)});
  }
  co_return given;
}

io::Async<Status> LocalFleet::State::change_network(std::shared_ptr<LocalSandbox> sandbox,
                                                    WishOf wish_of) {
  const auto held = co_await sandbox->hold();
  const std::string id = sandbox->view().id;
  const Entry* entry = find(sandbox->team(), id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  std::optional<NetworkWish> wish = wish_of(*entry);
  if (!wish.has_value()) co_return Status();
  co_return co_await tell_network(std::move(sandbox), *std::move(wish));
}

io::Async<Status> LocalFleet::State::tell_network(std::shared_ptr<LocalSandbox> sandbox,
                                                  NetworkWish wish) {
  const std::string team = sandbox->team(), id = sandbox->view().id;
  const bool keyed = policy::inspects(wish.network);
  std::string text = served_network(std::move(wish.network));
  std::string fields = std::move(wish.fields);
  std::vector<vault::GivenSecret> secrets = std::move(wish.secrets);
  const std::uint64_t renewals_before = renewals;
  if (keyed) {
    CO_TRY_ASSIGN(secrets, co_await values_for(team, text, std::move(secrets)));
  }
  const Entry* entry = find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  if (keyed && entry->record.keys.empty())
    co_return fail(Error::precondition(
        "the sandbox was made with a network that inspects no TLS and has no secrets, so that it "
        "trusts no certificate of its gateway; make one with them, or have the server's "
        "configuration say e2b.inspect_later: true"));
  // What cannot be written down is not done.
  Record wanted = entry->record;
  wanted.view = sandbox->view();
  wanted.view.network = fields;
  wanted.recipe.network = text;
  if (keyed) {
    CO_TRY(co_await seal_secrets(wanted, std::move(secrets), wanted.secrets));
    CO_TRY_ASSIGN(text, co_await text_for(wanted.keys, std::move(text), wanted.secrets));
  }
  CO_TRY(check_network(text));
  CO_TRY(records->check(wanted));
  CO_TRY(co_await records->put(wanted));
  const Status set = co_await sandbox->set_network(std::move(text), std::move(fields));
  Entry* changed = find(team, id);
  if (changed == nullptr) {
    std::ignore = co_await records->remove(id);
    co_return fail(no_sandbox(id));
  }
  if (set.has_value()) {
    changed->record.recipe.network = std::move(wanted.recipe.network);
    changed->record.secrets = std::move(wanted.secrets);
    changed->record.env = std::move(wanted.env);
    sandbox->set_env(variables_of(changed->record));
    sandbox->note(Event::Level::kInfo, "the sandbox's network was changed");
    // What was read may be of before; nobody knew that the sandbox uses it.
    if (keyed && renewals != renewals_before)
      loop.spawn(catch_up_later(shared_from_this(), sandbox));
  }
  // Others may have written meanwhile what held before.
  const Status saved = co_await save(id);
  co_return set.has_value() ? saved : set;
}

io::Async<Status> LocalFleet::State::catch_up(std::shared_ptr<LocalSandbox> sandbox) {
  WishOf wish_of = [](const Entry& entry) -> std::optional<NetworkWish> {
    auto policy = policy::parse_written_network_policy(entry.record.recipe.network);
    if (!policy.has_value()) return std::nullopt;
    return NetworkWish{
        .network = std::move(*policy), .fields = entry.sandbox->view().network, .secrets = {}};
  };
  co_return co_await change_network(std::move(sandbox), std::move(wish_of));
}

io::Async<void> LocalFleet::State::catch_up_later(std::shared_ptr<State> self,
                                                  std::shared_ptr<LocalSandbox> sandbox) {
  const Status told = co_await self->catch_up(sandbox);
  if (told.has_value() || sandbox->ended()) co_return;
  sandbox->note(Event::Level::kError, "the sandbox may have values of secrets from before",
                {{"error", told.error().message()}});
}

io::Async<Status> LocalFleet::set_network(std::string team, std::string id,
                                          policy::NetworkPolicy network, std::string fields,
                                          std::vector<vault::GivenSecret> secrets) {
  const auto state = state_;
  const auto* entry = state->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  const auto sandbox = entry->sandbox;
  if (sandbox->view().state == fleet::State::kPaused)
    co_return fail(Error::precondition("sandbox \"" + id + "\" is paused"));
  CO_TRY(check_served(network));
  State::WishOf wish_of = [wish = State::NetworkWish{.network = std::move(network),
                                                     .fields = std::move(fields),
                                                     .secrets = std::move(secrets)}](
                              const State::Entry&) { return std::optional(wish); };
  co_return co_await state->change_network(sandbox, std::move(wish_of));
}

// Of a sandbox that uses the secret: the network that it has. Its value is read when it is told.
std::optional<LocalFleet::State::NetworkWish> LocalFleet::State::renewed(const Entry& entry,
                                                                         const std::string& name) {
  if (entry.record.keys.empty()) return std::nullopt;
  auto policy = policy::parse_written_network_policy(entry.record.recipe.network);
  const auto uses = [&](const policy::SecretRule& rule) { return rule.source.text == name; };
  if (!policy.has_value() || !std::ranges::any_of(policy::rules_with_values(*policy), uses))
    return std::nullopt;
  return NetworkWish{
      .network = std::move(*policy), .fields = entry.sandbox->view().network, .secrets = {}};
}

io::Async<void> LocalFleet::State::renew(std::shared_ptr<State> self,
                                         std::shared_ptr<LocalSandbox> sandbox, std::string name,
                                         std::shared_ptr<Renewal> all) {
  WishOf wish_of = [name](const Entry& entry) { return renewed(entry, name); };
  const Status told = co_await self->change_network(sandbox, std::move(wish_of));
  if (!told.has_value() && !sandbox->ended()) {
    all->untold.push_back(sandbox->view().id);
    sandbox->note(Event::Level::kError, "the sandbox has the value of a secret from before",
                  {{"secret", name}, {"error", told.error().message()}});
  }
  --all->under_way;
  all->changed.notify();
}

io::Async<Status> LocalFleet::renew_secret(std::string team, std::string name) {
  const auto state = state_;
  // Those that are being made have read the value before, or read it after this.
  ++state->renewals;
  std::vector<std::shared_ptr<LocalSandbox>> users;
  for (const auto& [id, entry] : state->entries) {
    if (entry.record.team == team && State::renewed(entry, name).has_value())
      users.push_back(entry.sandbox);
  }
  // Each when it has its turn: one that is busy for long holds up no other.
  const auto all = std::make_shared<State::Renewal>(state->loop);
  all->under_way = users.size();
  for (const auto& sandbox : users) state->loop.spawn(State::renew(state, sandbox, name, all));
  while (all->under_way > 0) co_await all->changed.wait();
  if (all->untold.empty()) co_return Status();
  co_return fail(Error::unavailable("the secret " + name + " was changed, but " +
                                    std::to_string(all->untold.size()) +
                                    " sandboxes still have the value from before, the first " +
                                    all->untold.front() + "; their logs say why"));
}

}  // namespace caisson::fleet
