#include "policy/flags.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "policy/complain.h"
#include "policy/inside_path.h"
#include "policy/names.h"
#include "policy/network_policy.h"
#include "policy/presets.h"
#include "policy/secret_check.h"
#include "policy/syntax.h"
#include "policy/units.h"

namespace caisson::policy {
namespace {

constexpr std::string_view kWorkspace = "/workspace";

std::string_view flag_of(GrantMode mode) {
  switch (mode) {
    case GrantMode::kReadOnly:
      return "--ro";
    case GrantMode::kReadWrite:
      return "--rw";
    case GrantMode::kCopy:
      return "--copy";
  }
  return "";
}

// The parts between colons, with `\:` and `\\` undone.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == ':' || text[i + 1] == '\\')) {
      parts.back() += text[++i];
    } else if (text[i] == ':') {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  return parts;
}

template <typename Enum, std::size_t N>
Result<Enum> parse_choice(std::string_view flag, std::string_view text,
                          const std::array<std::string_view, N>& names) {
  if (const auto index = index_of(names, text)) return static_cast<Enum>(*index);
  const std::string_view near = nearest(text, names.data(), N);
  std::string allowed = alternatives(names.data(), N);
  if (!near.empty() && N > 1) allowed += "; perhaps " + std::string(near) + " is meant";
  return fail(wrong(flag, quote(text), allowed));
}

std::string join(std::string_view directory, std::string_view name) {
  std::string out(directory);
  if (!out.ends_with('/')) out += '/';
  out += name;
  return out;
}

// The path of `from` below `directory`, both host paths of which only the text is known.
std::optional<std::string> relative_to(const std::string& from, const std::string& directory) {
  if (directory == ".") {
    if (from.starts_with('/') || from == "." || from == ".." || from.starts_with("../")) {
      return std::nullopt;
    }
    return from;
  }
  if (!is_below(from, directory)) return std::nullopt;
  std::string rest = from.substr(directory.size() + (directory == "/" ? 0 : 1));
  return rest;
}

// Whether validation accepts `inner` at `rest` below a directory that is granted as `outer`.
bool may_nest(GrantMode inner, GrantMode outer, std::string_view rest) {
  if ((inner == GrantMode::kCopy) != (outer == GrantMode::kCopy)) return false;
  return inner != GrantMode::kReadOnly || outer != GrantMode::kReadWrite ||
         rest.find('/') == std::string_view::npos;
}

Result<std::string> last_component(const GrantFlag& flag) {
  const std::string from = normalised(flag.from);
  const std::string name = from.substr(from.rfind('/') + 1);
  if (name.empty() || name == "." || name == "..") {
    return fail(wrong(flag_of(flag.mode), quote(flag.from) + ", a path without a name of its own",
                      "SRC:DST here, as in " + quote(flag.from + ":/mnt/data")));
  }
  return name;
}

// Chooses the places of grants without one, in the order of the flags.
class Placer {
 public:
  Placer(std::span<const GrantFlag> flags, std::string_view workdir)
      : flags_(flags), workdir_(workdir) {
    for (const GrantFlag& flag : flags_) {
      if (flag.to.empty() && flag.kind == SourceKind::kDirectory) {
        workspace_ = &flag;
        break;
      }
    }
    if (workspace_ != nullptr && workdir_.empty()) workdir_ = kWorkspace;
  }

  Result<Placement> run() {
    Placement placement;
    for (const GrantFlag& flag : flags_) {
      TRY_ASSIGN(std::string to, place(flag));
      for (const Grant& other : placement.grants) {
        if (other.to != to) continue;
        return fail(wrong(flag_of(flag.mode), quote(flag.from) + " at " + quote(to),
                          "one grant for each path inside; " + quote(other.from) +
                              " is there already, so give another DST"));
      }
      placement.grants.push_back({flag.from, std::move(to), flag.mode});
    }
    placement.workdir = workdir_;
    return placement;
  }

 private:
  Result<std::string> place(const GrantFlag& flag) {
    if (!flag.to.empty()) return flag.to;
    if (&flag == workspace_) return std::string(kWorkspace);
    if (workspace_ != nullptr) {
      const auto rest = relative_to(normalised(flag.from), normalised(workspace_->from));
      if (rest.has_value() && may_nest(flag.mode, workspace_->mode, *rest)) {
        return join(kWorkspace, *rest);
      }
    }
    TRY_ASSIGN(const std::string name, last_component(flag));
    if (flag.kind == SourceKind::kFile) {
      if (workdir_.empty()) workdir_ = kWorkspace;
      std::string to = join(workdir_, name);
      if (!taken(to, flag.mode)) return to;
    }
    return join("/mnt", name);
  }

  // Whether `to` lies below a directory in which no mount point can be made.
  bool taken(std::string_view to, GrantMode mode) const {
    for (const GrantFlag& other : flags_) {
      const std::string_view directory = &other == workspace_ ? kWorkspace : other.to;
      if (directory.empty() || !is_below(to, directory)) continue;
      if (mode != GrantMode::kCopy || other.mode != GrantMode::kCopy) return true;
    }
    return false;
  }

  std::span<const GrantFlag> flags_;
  std::string workdir_;
  const GrantFlag* workspace_ = nullptr;
};

template <typename T>
void lay_over(T& value, std::optional<T>& flag) {
  if (flag.has_value()) value = std::move(*flag);
}

}  // namespace

SpecValues merge(SpecValues document, SpecPatch flags) {
  SpecValues values = std::move(document);
  lay_over(values.image, flags.image);
  lay_over(values.user, flags.user);
  lay_over(values.workdir, flags.workdir);
  lay_over(values.hostname, flags.hostname);
  lay_over(values.wall, flags.wall);
  lay_over(values.allow_emulation, flags.allow_emulation);
  lay_over(values.require_hard_limits, flags.require_hard_limits);
  lay_over(values.privileges, flags.privileges);
  lay_over(values.profile, flags.profile);
  lay_over(values.on_refusal, flags.on_refusal);
  lay_over(values.layer, flags.layer);
  lay_over(values.network, flags.network);
  // Without a network there is no rule for their hosts, which validation says.
  if (!flags.secrets.empty() && !values.network) values.network.emplace();
  for (SecretRule& secret : flags.secrets) values.network->secrets.push_back(std::move(secret));
  if (flags.entrypoint.has_value()) values.entrypoint = std::move(flags.entrypoint);
  if (!flags.command.empty()) values.command = std::move(flags.command);
  for (auto& [name, value] : flags.env) values.env[name] = std::move(value);
  // Flags that contradict each other stay beside each other, for validation to see.
  std::erase_if(values.grants, [&](const Grant& grant) {
    return std::any_of(flags.grants.begin(), flags.grants.end(),
                       [&](const Grant& flag) { return flag.to == grant.to; });
  });
  for (Grant& grant : flags.grants) values.grants.push_back(std::move(grant));
  std::erase_if(values.outputs, [&](const Output& output) {
    return std::any_of(flags.outputs.begin(), flags.outputs.end(),
                       [&](const Output& flag) { return flag.to == output.to; });
  });
  for (Output& output : flags.outputs) values.outputs.push_back(std::move(output));
  for (std::size_t i = 0; i < kLimitRules.size(); ++i) {
    if (flags.limits[i].has_value()) values.limits.*kLimitRules[i].value = *flags.limits[i];
  }
  return values;
}

Result<GrantFlag> parse_grant(GrantMode mode, std::string_view text) {
  const std::string_view flag = flag_of(mode);
  constexpr std::string_view kAllowed = "SRC or SRC:DST, with each colon of a name written as \\:";
  std::vector<std::string> parts = split(text);
  if (parts.size() > 2) return fail(wrong(flag, quote(text), kAllowed));
  if (parts[0].empty()) return fail(wrong(flag, quote(text) + " without SRC", kAllowed));
  GrantFlag grant;
  grant.mode = mode;
  grant.from = std::move(parts[0]);
  if (parts.size() == 2) {
    if (parts[1].empty()) return fail(wrong(flag, quote(text) + " without DST", kAllowed));
    grant.to = std::move(parts[1]);
    if (const std::string_view fault = target_fault(grant.to); !fault.empty()) {
      return fail(wrong(flag, "DST " + quote(grant.to), fault));
    }
  }
  return grant;
}

Result<Placement> place_grants(std::span<const GrantFlag> flags, std::string_view workdir) {
  return Placer(flags, workdir).run();
}

Result<Output> parse_output(std::string_view text, std::string_view workdir) {
  constexpr std::string_view kAllowed =
      "PATH:DEST, as in /home/user/report.html:./report.html, with each colon of a name written as "
      "\\:";
  std::vector<std::string> parts = split(text);
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return fail(wrong("--out", quote(text), kAllowed));
  }
  Output output{std::move(parts[0]), std::move(parts[1])};
  if (!output.path.starts_with('/')) {
    if (workdir.empty()) {
      return fail(wrong("--out", "PATH " + quote(output.path),
                        "an absolute path, because the working directory is not known"));
    }
    output.path = join(workdir, normalised(output.path));
  }
  if (const std::string_view fault = target_fault(output.path); !fault.empty()) {
    return fail(wrong("--out", "PATH " + quote(output.path), fault));
  }
  return output;
}

Result<std::pair<std::string, std::string>> parse_env(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos) {
    return fail(wrong("--env", quote(text),
                      "NAME=VALUE; nothing is taken over from the caller, so write the value, as "
                      "in --env NAME=\"$NAME\""));
  }
  const std::string_view name = text.substr(0, equals);
  if (const std::string_view fault = env_name_fault(name); !fault.empty()) {
    return fail(wrong("--env", quote(text), "NAME=VALUE with " + std::string(fault)));
  }
  return std::pair(std::string(name), std::string(text.substr(equals + 1)));
}

const LimitRule* limit_of_flag(std::string_view flag) {
  for (const LimitRule& rule : kLimitRules) {
    if (rule.flag == flag) return &rule;
  }
  return nullptr;
}

Result<LimitValue> parse_limit_flag(const LimitRule& rule, std::string_view text) {
  auto value = parse_limit(rule.unit, text);
  if (!value.has_value()) return fail(std::move(value.error()).with(rule.flag));
  return value;
}

Status set_limit_flag(SpecPatch& patch, std::string_view flag, std::string_view text) {
  const LimitRule* rule = limit_of_flag(flag);
  if (rule == nullptr) {
    return fail(Error::internal(std::string(flag) + " is no limit's flag"));
  }
  TRY_ASSIGN(patch.limits[rule - kLimitRules.data()], parse_limit_flag(*rule, text));
  return {};
}

Result<WallKind> parse_wall(std::string_view text) {
  return parse_choice<WallKind>("--wall", text, kWallNames);
}
Result<bool> parse_emulation(std::string_view text) {
  return parse_choice<bool>("--emulation", text, kEmulationNames);
}
Result<Privileges> parse_privileges(std::string_view text) {
  return parse_choice<Privileges>("--privileges", text, kPrivilegesNames);
}
Result<SyscallProfile> parse_profile(std::string_view text) {
  return parse_choice<SyscallProfile>("--profile", text, kProfileNames);
}
Result<OnRefusal> parse_on_refusal(std::string_view text) {
  return parse_choice<OnRefusal>("--on-refusal", text, kOnRefusalNames);
}
Result<LayerKind> parse_layer(std::string_view text) {
  return parse_choice<LayerKind>("--layer", text, kLayerNames);
}

// ---- --net --------------------------------------------------------------------------------------

namespace {

constexpr std::string_view kNetAllowed =
    "deny, allow-public, allow:HOST[:PORT] or inspect:HOST[:PORT] (several with commas between "
    "them), preset:NAME[=HOST[:PORT]], or the file of a policy, with a slash or .yaml in its name";
constexpr std::string_view kPresetPrefix = "preset:";
constexpr std::string_view kAllowPrefix = "allow:";
constexpr std::string_view kInspectPrefix = "inspect:";

bool is_policy_file(std::string_view text) {
  return text.contains('/') || text.ends_with(".yaml") || text.ends_with(".yml") ||
         text.ends_with(".json");
}

Result<NetworkRule> allow_rule(std::string_view entry, TlsMode mode) {
  NetworkRule rule{.tls = mode};
  const std::size_t colon = entry.rfind(':');
  // The colons of an address in brackets are its own.
  const bool has_port = colon != entry.npos && entry.find(']', colon) == entry.npos;
  if (!has_port) {
    rule.hosts = {std::string(entry)};
    return rule;
  }
  auto port = parse_port(entry.substr(colon + 1));
  if (!port.has_value()) return fail(std::move(port).error().with("--net " + quote(entry)));
  rule.hosts = {std::string(entry.substr(0, colon))};
  rule.ports = {*port};
  if (mode == TlsMode::kInspect) return rule;
  if (*port == 80) rule.tls = TlsMode::kPlaintext;
  if (*port != 80 && *port != 443) rule.protocol = RuleProtocol::kTcp;
  return rule;
}

Result<NetworkFlag> parse_preset(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string name(text.substr(0, equals));
  std::vector<PresetServer> servers;
  if (equals != text.npos) {
    auto read = parse_preset_servers(text.substr(equals + 1));
    if (!read.has_value()) return fail(std::move(read).error().with("--net preset:" + name));
    servers = std::move(*read);
  } else if (std::ranges::find(kPresets, name) != kPresets.end()) {
    return NetworkFlag{.preset = name};
  }
  TRY_ASSIGN(NetworkPolicy policy, preset_policy(name, servers));
  return NetworkFlag{.network = std::move(policy)};
}

}  // namespace

Result<NetworkPolicy> preset_policy(std::string_view preset,
                                    std::span<const PresetServer> servers) {
  NetworkPolicy policy;
  auto rules = preset_rules(preset, servers);
  if (!rules.has_value()) return fail(std::move(rules).error().with("--net"));
  policy.rules = std::move(*rules);
  TRY(CompiledNetwork::compile(policy, "--net preset:" + std::string(preset)));
  return policy;
}

Result<NetworkFlag> parse_network(std::string_view text) {
  if (text == "deny") return NetworkFlag();
  if (text == to_string(NetworkDefault::kAllowPublic)) {
    return NetworkFlag{.network = NetworkPolicy{.unmatched = NetworkDefault::kAllowPublic}};
  }
  const bool inspects = text.starts_with(kInspectPrefix);
  if (inspects || text.starts_with(kAllowPrefix)) {
    NetworkPolicy policy;
    const TlsMode mode = inspects ? TlsMode::kInspect : TlsMode::kSplice;
    std::string_view rest = text.substr((inspects ? kInspectPrefix : kAllowPrefix).size());
    while (true) {
      const std::size_t comma = rest.find(',');
      TRY_ASSIGN(policy.rules.emplace_back(), allow_rule(rest.substr(0, comma), mode));
      if (comma == rest.npos) break;
      rest.remove_prefix(comma + 1);
    }
    TRY(CompiledNetwork::compile(policy, "--net"));
    return NetworkFlag{.network = std::move(policy)};
  }
  if (text.starts_with(kPresetPrefix)) return parse_preset(text.substr(kPresetPrefix.size()));
  if (is_policy_file(text)) return NetworkFlag{.file = std::string(text)};
  return fail(wrong("--net", quote(text), kNetAllowed));
}

constexpr std::string_view kAllowedSource =
    "env:VARIABLE, file:PATH, fd:N, vault:NAME or command:PROGRAM with its arguments, between "
    "spaces";

Result<SecretSource> parse_secret_source(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view kind = text.substr(0, colon);
  const std::string rest(text.substr(std::min(colon + 1, text.size())));
  if (kind == "env") return SecretSource{.kind = SecretSource::Kind::kEnv, .text = rest};
  if (kind == "file") return SecretSource{.kind = SecretSource::Kind::kFile, .text = rest};
  if (kind == "vault") return SecretSource{.kind = SecretSource::Kind::kVault, .text = rest};
  if (kind == "command") {
    SecretSource source{.kind = SecretSource::Kind::kCommand};
    for (std::size_t at = 0; at < rest.size();) {
      const std::size_t end = std::min(rest.find(' ', at), rest.size());
      if (end > at) source.command.push_back(rest.substr(at, end - at));
      at = end + 1;
    }
    return source;
  }
  // A value that stands here by mistake is not repeated.
  if (kind != "fd") return fail(wrong("the source", "another one", kAllowedSource));
  SecretSource source{.kind = SecretSource::Kind::kFd};
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), source.descriptor);
  if (read.ec != std::errc() || read.ptr != rest.data() + rest.size())
    return fail(wrong("fd:", quote(rest), "the number of an inherited descriptor"));
  return source;
}

Result<SecretRule> parse_secret(std::string_view text) {
  constexpr std::string_view kAllowed =
      "NAME=SOURCE@HOST[,HOST…], where SOURCE is env, env:VARIABLE, file:PATH, fd:N, "
      "vault:NAME or command:PROGRAM with its arguments, between spaces";
  const std::size_t equals = text.find('=');
  const std::size_t at = text.rfind('@');
  // A value that stands here by mistake is not repeated.
  if (equals == text.npos) return fail(wrong("--secret", "a text without '='", kAllowed));
  const std::string name(text.substr(0, equals));
  const std::string path = "--secret " + quote(name);
  if (at == text.npos || at < equals)
    return fail(wrong(path, "no @HOST behind the source", kAllowed));
  SecretRule rule{.name = name, .env = name};
  const std::string_view source = text.substr(equals + 1, at - equals - 1);
  if (source == "env" || source == "vault") {
    rule.source = {.kind = source == "env" ? SecretSource::Kind::kEnv : SecretSource::Kind::kVault,
                   .text = name};
  } else {
    auto read = parse_secret_source(source);
    if (!read.has_value()) return fail(std::move(read).error().with(path));
    rule.source = std::move(*read);
  }
  std::string_view hosts = text.substr(at + 1);
  while (true) {
    const std::size_t comma = hosts.find(',');
    rule.hosts.emplace_back(hosts.substr(0, comma));
    if (comma == hosts.npos) break;
    hosts.remove_prefix(comma + 1);
  }
  TRY(check_secret(rule, path));
  return rule;
}

namespace {

// A preset may be given more than once: its rules then have the next free of its ids.
void rename_preset(NetworkRule& rule, std::span<const NetworkRule> before) {
  const std::string preset = rule.id.substr(0, rule.id.find('-'));
  const std::string_view number = std::string_view(rule.id).substr(preset.size());
  if (std::ranges::find(kPresets, preset) == kPresets.end()) return;
  if (number.find_first_not_of("-0123456789") != number.npos) return;
  const auto taken = [&] {
    return std::ranges::find(before, rule.id, &NetworkRule::id) != before.end();
  };
  for (std::size_t i = 2; taken(); ++i) rule.id = preset + "-" + std::to_string(i);
}

}  // namespace

Status add_network(SpecPatch& patch, std::optional<NetworkPolicy> network) {
  if (!patch.network.has_value()) {
    patch.network = std::move(network);
    return {};
  }
  std::optional<NetworkPolicy>& before = *patch.network;
  if (!before && !network) return {};
  if (!before || !network) {
    return fail(wrong("--net", "deny beside another --net", "deny alone, or others without it"));
  }
  if (network->unmatched == NetworkDefault::kAllowPublic) before->unmatched = network->unmatched;
  if (network->dns != DnsPolicy()) before->dns = network->dns;
  if (network->limits != NetworkLimits()) before->limits = network->limits;
  if (network->floor == Floor::kFixed) before->floor = network->floor;
  if (network->audit != AuditPolicy()) before->audit = network->audit;
  if (network->upstream_proxy) {
    if (before->upstream_proxy && before->upstream_proxy != network->upstream_proxy)
      return fail(wrong("--net", "two files with another upstream_proxy each", "one"));
    before->upstream_proxy = std::move(network->upstream_proxy);
  }
  for (NetworkRule& rule : network->rules) {
    rename_preset(rule, before->rules);
    before->rules.push_back(std::move(rule));
  }
  std::ranges::move(network->secrets, std::back_inserter(before->secrets));
  return {};
}

}  // namespace caisson::policy
