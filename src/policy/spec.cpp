#include "policy/spec.h"

#include <algorithm>
#include <set>

#include "policy/complain.h"
#include "policy/inside_path.h"
#include "policy/limits.h"
#include "policy/names.h"
#include "policy/network_policy.h"
#include "policy/syntax.h"
#include "policy/units.h"

namespace caisson::policy {
namespace {

bool has_nul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

std::string amount(std::size_t number, std::string_view what) {
  return std::to_string(number).append(" ").append(what);
}

std::string key_of(const Grant& grant, std::string_view part) {
  return "files[from=" + quote(grant.from) + "]." + std::string(part);
}
std::string key_of(const Output& output, std::string_view part) {
  return "files[out=" + quote(output.path) + "]." + std::string(part);
}

Status check_word(std::string_view key, const std::string& word,
                  std::string_view (*fault)(std::string_view)) {
  if (word.empty()) return {};
  if (const std::string_view allowed = fault(word); !allowed.empty()) {
    return fail(wrong(key, quote(word), allowed));
  }
  return {};
}

Status check_inside(const std::string& key, std::string_view path,
                    std::string_view (*fault)(std::string_view)) {
  const std::string_view allowed = fault(path);
  if (allowed.empty()) return {};
  std::string sentence(allowed);
  const std::string better = normalised(path);
  if (path != better && fault(better).empty()) sentence += ", as in " + quote(better);
  return fail(wrong(key, quote(path), sentence));
}

Status check_host_path(const std::string& key, std::string_view path) {
  if (path.empty()) return fail(wrong(key, "an empty path", "a path of this host"));
  if (has_nul(path)) return fail(wrong(key, quote(path), "a path without a NUL byte"));
  if (path.size() >= kMaxPath) {
    return fail(wrong(key, amount(path.size(), "bytes"), "a path of at most 4095 bytes"));
  }
  return {};
}

Status check_limits(const SpecValues& values) {
  const Limits& limits = values.limits;
  for (const LimitRule& rule : kLimitRules) {
    const LimitValue& value = limits.*rule.value;
    if (!value.has_value()) continue;
    const std::string key = key_below("limits", rule.key);
    if (*value < rule.min || *value > rule.max) {
      const std::string found = *value == 0 ? "0" : format_limit(rule.unit, value);
      return fail(wrong(key, found,
                        format_limit(rule.unit, rule.min) + " to " +
                            format_limit(rule.unit, rule.max) + ", or unlimited"));
    }
  }
  if (values.layer == LayerKind::kTmpfs && limits.memory.has_value() &&
      (!limits.disk.has_value() || *limits.disk > *limits.memory)) {
    return fail(wrong("limits.disk", format_limit(LimitUnit::kBytes, limits.disk),
                      "at most limits.memory (" + format_limit(LimitUnit::kBytes, limits.memory) +
                          "), because a tmpfs layer lies in memory"));
  }
  return {};
}

// `total` grows by its bytes.
Status check_entrypoint(const SpecValues& values, std::size_t& total) {
  if (!values.entrypoint.has_value()) return {};
  if (values.entrypoint->size() > kMaxArguments) {
    return fail(wrong("entrypoint", amount(values.entrypoint->size(), "arguments"),
                      amount(kMaxArguments, "arguments at most")));
  }
  for (std::size_t i = 0; i < values.entrypoint->size(); ++i) {
    const std::string& argument = (*values.entrypoint)[i];
    const std::string key = "entrypoint[" + std::to_string(i) + "]";
    if (i == 0 && argument.empty()) {
      return fail(wrong(key, "an empty text", "the name or path of a program; [] for none"));
    }
    if (has_nul(argument)) {
      return fail(wrong(key, quote(argument), "an argument without a NUL byte"));
    }
    if (argument.size() > kMaxArgumentBytes) {
      return fail(
          wrong(key, amount(argument.size(), "bytes"), amount(kMaxArgumentBytes, "bytes at most")));
    }
    total += argument.size() + 1;
  }
  return {};
}

Status check_command(const SpecValues& values) {
  if (values.command.size() > kMaxArguments) {
    return fail(wrong("command", amount(values.command.size(), "arguments"),
                      amount(kMaxArguments, "arguments at most")));
  }
  if (values.env.size() > kMaxEnv) {
    return fail(
        wrong("env", amount(values.env.size(), "variables"), amount(kMaxEnv, "variables at most")));
  }
  std::size_t total = 0;
  for (std::size_t i = 0; i < values.command.size(); ++i) {
    const std::string& argument = values.command[i];
    const std::string key = "command[" + std::to_string(i) + "]";
    if (i == 0 && argument.empty()) {
      return fail(wrong(key, "an empty text", "the name or path of a program"));
    }
    if (has_nul(argument)) {
      return fail(wrong(key, quote(argument), "an argument without a NUL byte"));
    }
    if (argument.size() > kMaxArgumentBytes) {
      return fail(
          wrong(key, amount(argument.size(), "bytes"), amount(kMaxArgumentBytes, "bytes at most")));
    }
    total += argument.size() + 1;
  }
  TRY(check_entrypoint(values, total));
  for (const auto& [name, value] : values.env) {
    if (const std::string_view allowed = env_name_fault(name); !allowed.empty()) {
      return fail(wrong("env", quote(name), allowed));
    }
    const std::string key = key_below("env", name);
    if (has_nul(value)) return fail(wrong(key, quote(value), "a value without a NUL byte"));
    const std::size_t size = name.size() + 1 + value.size();
    if (size > kMaxArgumentBytes) {
      return fail(wrong(key, amount(size, "bytes"), amount(kMaxArgumentBytes, "bytes at most")));
    }
    total += size + 1;
  }
  if (total > kMaxCommandBytes) {
    return fail(wrong("command", amount(total, "bytes together with entrypoint and env"),
                      amount(kMaxCommandBytes, "bytes at most")));
  }
  return {};
}

// The host's kernel interfaces are nobody's files, and / holds all of them. Only the text is known
// here; whoever opens the path checks what it leads to.
Status check_source(const Grant& grant) {
  const std::string key = key_of(grant, "from");
  TRY(check_host_path(key, grant.from));
  const std::string from = normalised(grant.from);
  if (from == "/") {
    return fail(wrong(key, "the whole of this host", "a directory or file below /"));
  }
  for (const std::string_view kernel : {"/proc", "/sys", "/dev"}) {
    if (from != kernel && !is_below(from, kernel)) continue;
    if (is_below(from, "/dev/shm")) continue;
    return fail(wrong(key, quote(grant.from), "a path outside the host's /proc, /sys and /dev"));
  }
  return {};
}

// Two grants of which one lies inside the other.
Status check_nested(const Grant& inner, const Grant& outer) {
  const std::string where = quote(inner.to) + " (" + std::string(to_string(inner.mode)) +
                            ") inside " + quote(outer.to) + " (" +
                            std::string(to_string(outer.mode)) + ")";
  const std::string key = key_of(inner, "to");
  const bool inner_copied = inner.mode == GrantMode::kCopy;
  const bool outer_copied = outer.mode == GrantMode::kCopy;
  if (inner_copied && !outer_copied) {
    return fail(wrong(key, where,
                      "a path outside granted directories, because a copy would be written into "
                      "the host's"));
  }
  if (!inner_copied && outer_copied) {
    return fail(wrong(key, where,
                      "a path outside copied directories, because the copy would be written into "
                      "the grant"));
  }
  // A program can rename what it may write to: only the mount point itself stays where it is.
  if (inner.mode == GrantMode::kReadOnly && outer.mode == GrantMode::kReadWrite &&
      std::string_view(inner.to).substr(outer.to.size() + 1).find('/') != std::string_view::npos) {
    return fail(wrong(key, where,
                      "a read-only grant directly below the writable one, because its parent could "
                      "be renamed"));
  }
  return {};
}

Status check_grants(const SpecValues& values) {
  const std::vector<Grant>& grants = values.grants;
  if (grants.size() > kMaxGrants) {
    return fail(
        wrong("files", amount(grants.size(), "grants"), amount(kMaxGrants, "grants at most")));
  }
  std::size_t bytes = 0;
  for (const Grant& grant : grants) {
    TRY(check_source(grant));
    TRY(check_inside(key_of(grant, "to"), grant.to, target_fault));
    bytes += grant.to.size();
  }
  if (bytes > kMaxGrantPathBytes) {
    return fail(wrong("files", amount(bytes, "bytes of paths inside"),
                      amount(kMaxGrantPathBytes, "bytes at most")));
  }
  for (std::size_t i = 0; i < grants.size(); ++i) {
    for (std::size_t k = 0; k < grants.size(); ++k) {
      if (i == k) continue;
      const Grant& one = grants[i];
      const Grant& other = grants[k];
      if (i > k && one.to == other.to) {
        return fail(
            wrong(key_of(one, "to"), quote(one.to) + " a second time",
                  "one grant for each path inside; the first is from " + quote(other.from)));
      }
      if (is_below(one.to, other.to)) TRY(check_nested(one, other));
      if (one.mode == GrantMode::kReadWrite && other.mode == GrantMode::kReadOnly &&
          normalised(one.from) == normalised(other.from)) {
        return fail(wrong(key_of(one, "mode"), "rw, and ro for the same path", "one of both"));
      }
    }
  }
  return {};
}

Status check_outputs(const SpecValues& values) {
  if (values.outputs.size() > kMaxOutputs) {
    return fail(wrong("files", amount(values.outputs.size(), "outputs"),
                      amount(kMaxOutputs, "outputs at most")));
  }
  std::set<std::string> targets;
  for (const Output& output : values.outputs) {
    TRY(check_inside(key_of(output, "out"), output.path, target_fault));
    TRY(check_host_path(key_of(output, "to"), output.to));
    if (!targets.insert(normalised(output.to)).second) {
      return fail(wrong(key_of(output, "to"), quote(output.to) + " a second time",
                        "one output for each path of this host"));
    }
    for (const Grant& grant : values.grants) {
      if (grant.mode == GrantMode::kCopy) continue;
      if (output.path != grant.to && !is_below(output.path, grant.to)) continue;
      const std::string_view why = grant.mode == GrantMode::kReadOnly
                                       ? "a path outside read-only grants, where nothing new can be"
                                       : "a path outside writable grants, whose files are this "
                                         "host's already";
      return fail(wrong(key_of(output, "out"),
                        quote(output.path) + " inside the grant " + quote(grant.to), why));
    }
  }
  return {};
}

}  // namespace

Result<SandboxSpec> SandboxSpec::validate(SpecValues draft) {
  TRY(check_word("image", draft.image, image_fault));
  TRY(check_enum("wall", draft.wall, kWallNames));
  TRY(check_enum("privileges", draft.privileges, kPrivilegesNames));
  TRY(check_enum("profile", draft.profile, kProfileNames));
  TRY(check_enum("on_refusal", draft.on_refusal, kOnRefusalNames));
  TRY(check_enum("layer", draft.layer, kLayerNames));
  if (draft.network) TRY(CompiledNetwork::compile(*draft.network));
  for (const Grant& grant : draft.grants) {
    TRY(check_enum(key_of(grant, "mode"), grant.mode, kGrantModeNames));
  }
  if (draft.allow_emulation && draft.wall != WallKind::kAuto && draft.wall != WallKind::kMicrovm) {
    return fail(wrong("emulation", "allow with wall: " + std::string(to_string(draft.wall)),
                      "allow only with wall: auto or wall: microvm"));
  }
  TRY(check_command(draft));
  TRY(check_word("user", draft.user, user_fault));
  if (!draft.workdir.empty()) TRY(check_inside("workdir", draft.workdir, path_fault));
  TRY(check_word("hostname", draft.hostname, hostname_fault));
  TRY(check_limits(draft));
  TRY(check_grants(draft));
  TRY(check_outputs(draft));
  return SandboxSpec(std::move(draft));
}

}  // namespace caisson::policy
