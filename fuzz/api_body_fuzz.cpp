// libraries: api
// parser: src/api/body.cpp src/api/e2b/network.cpp src/api/e2b/process_state.cpp
// parser: src/fleet/recipe.cpp
//
// Bodies of the APIs as JSON: what a body asks for is read within its bounds or refused with the
// place; the network of a sandbox, the spec that a client lays over the server's, and the label of
// a process that comes back from a sandbox.
#include "api/body.h"

#include "api/e2b/network.h"
#include "api/e2b/process_state.h"
#include "base/encoding.h"
#include "base/error.h"
#include "base/proto.h"
#include "fleet/recipe.h"
#include "policy/network_policy.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::api;

template <typename T>
bool right(const Result<T>& result) {
  if (result.has_value()) return true;
  VERIFY(result.error().code() == Code::kInvalidArgument && !result.error().message().empty());
  VERIFY(result.error().message().size() < 4000);
  return false;
}

// Every reader on every key.
void check_keys(const Object& object, int depth) {
  for (const json::Member& member : *object.value().as_object()) {
    const std::string& key = member.key;
    if (const auto text = object.text(key, 100); right(text) && text->has_value())
      VERIFY((*text)->size() <= 100);
    right(object.truth(key));
    if (const auto number = object.integer(key, -5, 1000); right(number) && number->has_value())
      VERIFY(**number >= -5 && **number <= 1000);
    if (const auto texts = object.texts(key, 3, 20); right(texts) && texts->has_value())
      VERIFY((*texts)->size() <= 3);
    if (const auto map = object.map(key, {3, 20, 20}); right(map) && map->has_value())
      VERIFY((*map)->size() <= 3);
    if (const auto inner = object.object(key); right(inner) && inner->has_value() && depth < 4)
      check_keys(**inner, depth + 1);
    if (const auto items = object.objects(key, 3); right(items) && items->has_value())
      VERIFY((*items)->size() <= 3);
    VERIFY(object.find(key) == nullptr || *object.find(key) == member.value);
  }
  right(object.only({"a", "network"}));
}

void check_policy(const e2b::Network& asked, const policy::NetworkPolicy& made) {
  VERIFY(policy::CompiledNetwork::compile(made).has_value());
  // Without the Internet nothing is open that nobody named.
  const bool named = !asked.allow_out.empty();
  const bool open = made.unmatched == policy::NetworkDefault::kAllowPublic;
  if (!asked.internet) VERIFY(named || (!open && made.rules.empty()));
  for (const policy::NetworkRule& rule : made.rules)
    VERIFY(named || rule.action == policy::RuleAction::kDeny);
}

void check_network(const Object& body) {
  for (const auto& network : {e2b::parse_network(body), e2b::parse_network_update(body)}) {
    if (!right(network)) continue;
    const auto none = e2b::policy_of(*network, {});
    VERIFY(none.has_value() ==
           (network->allow_out.empty() && network->headers.empty() && !network->proxy));
    VERIFY(e2b::values_of(*network).size() <= network->headers.size() + 1);
    VERIFY(!none.has_value() || !none->has_value());
    const auto made = e2b::policy_of(*network, {.exists = true});
    if (made.has_value()) {
      VERIFY(made->has_value());
      check_policy(*network, **made);
    } else {
      VERIFY(made.error().code() == Code::kInvalidArgument);
    }
    // What is told again is JSON.
    const auto told = json::parse(e2b::network_fields(*network, {.exists = true}));
    VERIFY(told.has_value());
    VERIFY(network->mask_request_host.find_first_of("\r\n ") == std::string::npos);
  }
}

void check_recipe(std::string_view text) {
  const auto recipe = fleet::lay_over({}, text);
  if (!right(recipe)) return;
  const auto written = fleet::recipe_json(*recipe);
  VERIFY(written.has_value());
  const auto again = fleet::parse_recipe(*written);
  VERIFY(again.has_value() && *again == *recipe);
  VERIFY(fleet::merge_limits({}, {}, *recipe) == *recipe);
}

void check_label(std::string_view text) {
  const e2b::ProcessLabel label = e2b::decode_label(text);
  const std::string written = e2b::encode_label(label);
  VERIFY(written.size() <= proto::kMaxLabel || label.tag.value_or("").size() > e2b::kMaxTag);
  const e2b::ProcessLabel again = e2b::decode_label(written);
  if (is_utf8(label.tag.value_or(""))) VERIFY(again.tag == label.tag);
  VERIFY(again.terminal == label.terminal);
}

// How every kind of end is told, with the text as the reason.
void check_ends(std::string_view text) {
  for (std::size_t verdict = 0; verdict < kVerdictCount; ++verdict) {
    Outcome outcome;
    outcome.verdict = static_cast<Verdict>(verdict);
    outcome.detail = text;
    outcome.signal = outcome.verdict == Verdict::kSignaled ? text.size() % 70 : 0;
    outcome.exit_code = outcome.verdict == Verdict::kExited ? text.size() % 256 : 0;
    const auto event = e2b::end_event(outcome);
    VERIFY(event.has_value() == (outcome.verdict != Verdict::kSandboxError));
    if (event.has_value()) VERIFY(!event->find("status")->as_string()->empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Body body : {Body::kRequired, Body::kOptional}) {
    const auto object = parse_object(text, body);
    if (!right(object)) continue;
    check_keys(Object(*object), 0);
    check_network(Object(*object, "body"));
  }
  check_recipe(text);
  check_label(text);
  if (size <= 256) check_ends(text);
  return 0;
}
