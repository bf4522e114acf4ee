// libraries: policy
// parser: src/policy/units.cpp src/policy/flags.cpp src/policy/inside_path.cpp
// parser: src/policy/presets.cpp src/policy/syntax.cpp
//
// Units and the values of flags: the first byte chooses which, the rest is the text.
#include "policy/flags.h"
#include "policy/host_name.h"
#include "policy/inside_path.h"
#include "policy/limits.h"
#include "policy/syntax.h"
#include "policy/units.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::policy;

void check_message(const Error& error) {
  VERIFY(error.message().contains("found "));
  VERIFY(error.message().contains("; allowed is "));
  for (const char c : error.message()) VERIFY(static_cast<unsigned char>(c) >= 0x20);
}

void check_limit(LimitUnit unit, std::string_view text) {
  const auto value = parse_limit(unit, text);
  if (!value.has_value()) {
    check_message(value.error());
    return;
  }
  const auto again = parse_limit(unit, format_limit(unit, *value));
  VERIFY(again.has_value() && *again == *value);
  // The same text without `unlimited`.
  const auto amount = unit == LimitUnit::kBytes   ? parse_size(text)
                      : unit == LimitUnit::kCount ? parse_count(text)
                      : unit == LimitUnit::kCpus  ? parse_cpus(text)
                                                  : parse_duration(text);
  if (unit <= LimitUnit::kDuration) VERIFY(amount.has_value() == value->has_value());
}

// The same text as a flag's value, and laid over a spec.
void check_limit_flags(std::string_view text) {
  for (const LimitRule& rule : kLimitRules) {
    SpecPatch patch;
    const auto set = set_limit_flag(patch, rule.flag, text);
    if (!set.has_value()) {
      check_message(set.error());
      VERIFY(set.error().message().starts_with(rule.flag));
      continue;
    }
    VERIFY(merge({}, patch).limits.*rule.value == *parse_limit(rule.unit, text));
  }
  SpecPatch patch;
  VERIFY(!set_limit_flag(patch, text, "1").has_value() || limit_of_flag(text) != nullptr);
}

template <typename Value>
void take(Result<Value> value, std::optional<Value>& into) {
  if (value.has_value()) {
    into = *value;
  } else {
    check_message(value.error());
  }
}

void check_server(std::string_view url) {
  const auto server = server_of_url(url);
  if (!server.has_value()) return;
  VERIFY(server->port != 0 && canonical_host(server->host).has_value());
  VERIFY(preset_policy("pip", std::span(&*server, 1)).has_value());
}

// --net, beside another that denies or allows.
void check_network(std::string_view text) {
  check_server(text);
  const auto network = parse_network(text);
  if (!network.has_value()) {
    VERIFY(network.error().message().starts_with("--net"));
    return;
  }
  if (!network->file.empty()) {
    VERIFY(network->file == text && !network->network.has_value());
    return;
  }
  if (!network->preset.empty()) {
    VERIFY("preset:" + network->preset == text && !network->network.has_value());
    return;
  }
  SpecPatch patch;
  VERIFY(add_network(patch, network->network).has_value());
  VERIFY(*patch.network == network->network);
  // Once more it only says more of the same, and deny stands alone.
  VERIFY(add_network(patch, network->network).has_value());
  VERIFY(patch.network->has_value() == network->network.has_value());
  VERIFY(add_network(patch, std::nullopt).has_value() == !network->network.has_value());
  const SpecValues merged = merge({}, patch);
  VERIFY(merged.network.has_value() == network->network.has_value());
}

// Flags that take one word of a few, and the document that they are laid over.
void check_choices(std::string_view text) {
  SpecPatch patch;
  take(parse_wall(text), patch.wall);
  take(parse_emulation(text), patch.allow_emulation);
  take(parse_privileges(text), patch.privileges);
  take(parse_profile(text), patch.profile);
  take(parse_on_refusal(text), patch.on_refusal);
  take(parse_layer(text), patch.layer);
  check_network(text);
  patch.image = text;
  patch.command = {std::string(text)};
  patch.entrypoint = patch.command;
  patch.env["A"] = text;
  patch.grants = {{.from = "b", .to = std::string(text), .mode = GrantMode::kCopy}};
  patch.outputs = {{.path = "/c", .to = std::string(text)}};
  SpecValues document;
  document.env = {{"A", "a"}, {"B", "b"}};
  document.grants = {{.from = "a", .to = std::string(text), .mode = GrantMode::kReadOnly}};
  document.outputs = {{.path = "/a", .to = std::string(text)}, {.path = "/b", .to = "d"}};
  const SpecValues merged = merge(document, patch);
  VERIFY(merged.image == text && merged.env.at("A") == text && merged.env.at("B") == "b");
  VERIFY(merged.wall == patch.wall.value_or(document.wall));
  VERIFY(merged.layer == patch.layer.value_or(document.layer));
  VERIFY(merged.grants == patch.grants);
  VERIFY(merged.outputs.size() == (text == "d" ? 1u : 2u));
}

// The text as lines, each a grant: its first byte is mode and kind.
void check_grants(std::string_view text) {
  std::vector<GrantFlag> flags;
  while (!text.empty() && flags.size() < 8) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    auto flag = parse_grant(static_cast<GrantMode>(static_cast<unsigned char>(line[0]) % 3),
                            line.substr(1));
    if (!flag.has_value()) {
      check_message(flag.error());
      return;
    }
    flag->kind = (line[0] & 4) != 0 ? SourceKind::kFile : SourceKind::kDirectory;
    flags.push_back(*flag);
  }
  const auto placement = place_grants(flags, "");
  if (!placement.has_value()) {
    check_message(placement.error());
    return;
  }
  VERIFY(placement->grants.size() == flags.size());
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const Grant& grant = placement->grants[i];
    VERIFY(grant.from == flags[i].from && grant.mode == flags[i].mode);
    for (std::size_t k = 0; k < i; ++k) VERIFY(grant.to != placement->grants[k].to);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 11) {
    case 0:
      check_limit(LimitUnit::kBytes, text);
      break;
    case 1:
      check_limit(LimitUnit::kCount, text);
      break;
    case 2:
      check_limit(LimitUnit::kCpus, text);
      break;
    case 3:
      check_limit(LimitUnit::kDuration, text);
      break;
    case 4:
      check_grants(text);
      break;
    case 5:
      if (const auto output = parse_output(text, "/workspace"); !output.has_value()) {
        check_message(output.error());
      } else {
        VERIFY(target_fault(output->path).empty());
      }
      if (const auto env = parse_env(text); env.has_value()) {
        VERIFY(env->first + "=" + env->second == text);
      } else {
        check_message(env.error());
      }
      if (const auto secret = parse_secret(text); secret.has_value()) {
        VERIFY(!secret->name.empty() && !secret->hosts.empty());
      } else {
        VERIFY(secret.error().code() == caisson::Code::kInvalidArgument);
      }
      break;
    case 7:
      check_limit(LimitUnit::kByteRate, text);
      break;
    case 8:
      check_limit(LimitUnit::kCountRate, text);
      break;
    case 9:
      check_limit_flags(text);
      break;
    case 10:
      check_choices(text);
      break;
    default: {
      const std::string normal = normalised(text);
      VERIFY(normalised(normal) == normal);
      if (path_fault(text).empty()) VERIFY(normal == text);
      (void)image_fault(text);
      (void)registry_fault(text);
      (void)user_fault(text);
      (void)hostname_fault(text);
    }
  }
  return 0;
}
