// The values of the command line's flags, and how they are laid over a spec: the document first,
// then the flags. Every error names its flag, what was found and what is allowed. Pure functions:
// whether a granted path is a directory is the caller's to look up.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/limits.h"
#include "policy/presets.h"
#include "policy/spec.h"

namespace caisson::policy {

// What the flags say; what they leave open stays as it is in the document.
struct SpecPatch {
  std::optional<std::string> image, user, workdir, hostname;
  std::optional<WallKind> wall;
  std::optional<bool> allow_emulation, require_hard_limits;
  std::optional<Privileges> privileges;
  std::optional<SyscallProfile> profile;
  std::optional<OnRefusal> on_refusal;
  std::optional<LayerKind> layer;
  std::optional<std::optional<NetworkPolicy>> network;  // the inner nullopt is deny
  std::vector<SecretRule> secrets;                      // besides those of the network
  std::vector<std::string> command;  // replaces the document's where it is not empty
  std::optional<std::vector<std::string>> entrypoint;
  std::map<std::string, std::string> env;  // wins over the document's of the same name
  std::vector<Grant> grants;               // wins over the document's with the same `to`
  std::vector<Output> outputs;             // the same
  // In the order of kLimitRules; the inner nullopt is `unlimited`.
  std::optional<LimitValue> limits[kLimitRules.size()];
};

SpecValues merge(SpecValues document, SpecPatch flags);

enum class SourceKind { kFile, kDirectory };

// --ro, --rw and --copy SRC[:DST]. A colon of a name is written `\:`, a backslash before a colon
// `\\`.
struct GrantFlag {
  GrantMode mode = GrantMode::kReadOnly;
  std::string from;
  std::string to;                            // empty: place_grants() chooses
  SourceKind kind = SourceKind::kDirectory;  // to be set by the caller
};
Result<GrantFlag> parse_grant(GrantMode mode, std::string_view text);

// Where the grants without DST go:
// - the first directory to /workspace, which becomes the working directory where none is given;
// - what lies inside that directory (as its text says) keeps its place in it;
// - another file to the working directory (/workspace where there is none yet, which then becomes
//   it) unless another grant lies there, and everything else to /mnt/NAME.
struct Placement {
  std::vector<Grant> grants;
  std::string workdir;
};
Result<Placement> place_grants(std::span<const GrantFlag> flags, std::string_view workdir);

// --out PATH:DEST. A relative PATH is below the working directory, which may be empty (unknown).
Result<Output> parse_output(std::string_view text, std::string_view workdir);

// --env K=V.
Result<std::pair<std::string, std::string>> parse_env(std::string_view text);

// The rule whose flag (with its dashes) this is; null where there is none.
const LimitRule* limit_of_flag(std::string_view flag);
Result<LimitValue> parse_limit_flag(const LimitRule& rule, std::string_view text);
// Writes one limit into the patch.
Status set_limit_flag(SpecPatch& patch, std::string_view flag, std::string_view text);

Result<WallKind> parse_wall(std::string_view text);
Result<bool> parse_emulation(std::string_view text);
Result<Privileges> parse_privileges(std::string_view text);
Result<SyscallProfile> parse_profile(std::string_view text);
Result<OnRefusal> parse_on_refusal(std::string_view text);
Result<LayerKind> parse_layer(std::string_view text);

// --net: deny, allow-public, allow:HOST[:PORT][,HOST[:PORT]…], inspect: and the same,
// preset:NAME[=HOST[:PORT],…], or a file's name, which has a slash or ends in .yaml, .yml or .json.
// A HOST without a port is meant by TLS on 443, with 80 by HTTP, with another one as bytes of any
// kind.
struct NetworkFlag {
  std::string file;    // where it names one; or
  std::string preset;  // where it names one without hosts, which the caller is to find; else:
  std::optional<NetworkPolicy> network;  // nullopt is deny
};
Result<NetworkFlag> parse_network(std::string_view text);
// What a preset lets through to these servers. Error: invalid_argument.
Result<NetworkPolicy> preset_policy(std::string_view preset, std::span<const PresetServer> servers);
// --secret NAME=SOURCE@HOST[,HOST…]: the variable NAME has a placeholder of the secret, which is
// fetched from SOURCE: env (the caller's variable of that name), env:VARIABLE, file:PATH, fd:N or
// command:PROGRAM with its arguments, between spaces.
Result<SecretRule> parse_secret(std::string_view text);
// env:VARIABLE, file:PATH, fd:N or vault:NAME.
Result<SecretSource> parse_secret_source(std::string_view text);
// Another --net after those before it: their rules follow one another. Error: deny beside another.
Status add_network(SpecPatch& patch, std::optional<NetworkPolicy> network);

}  // namespace caisson::policy
