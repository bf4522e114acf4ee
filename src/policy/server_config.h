// The configuration of the server: a file in YAML, every key optional.
//
//   listen: 127.0.0.1:3000              plain HTTP
//   tls:
//     listen: 0.0.0.0:443
//     domain: sandboxes.example.com     with :PORT where clients reach it at another one than 443
//     certificate: /etc/caisson/tls.crt for the domain and *.DOMAIN
//     key: /etc/caisson/tls.key
//     dev: false                        true: a certificate of an authority of its own making
//   state_directory: /var/lib/caisson
//   run_directory: /run/caisson
//   user: caisson                       whom root's server becomes
//   sandbox_group: /x/sandboxes         the control group that sandboxes belong to
//   default_image: base                 where a client names no template
//   templates: {base: base, py: python:3}     names that clients use, and images of the store
//   limits:
//     default: {cpus: 2, memory: 512MiB, disk: 1GiB, pids: 1024, lifetime: 5m}
//     maximum: {cpus: 8, memory: 8GiB, disk: 16GiB, pids: 16k, lifetime: 24h,
//               profile: default,     default, browser or debug, of system calls
//               privileges: sudo}     none or sudo; E2B's clients need sudo
//   pool: {base: 4}                     templates of which so many sandboxes are made ahead
//   pool_in_use: 4                      made ahead of other templates that are in use, one of each
//   builds:                             of templates, by clients
//     at_once: 4
//     team_at_once: 3                   of them, of one team
//     team_most: 20                     that wait or go on, of one team
//     time: 1h                          for one build
//     upload: 1GiB                      the files of one COPY
//     uploads: 64GiB                    all that clients sent, of all teams
//     cache: 20GiB                      results of steps in the store, without what images have
//     cache_for: 30d                    since their last use
//     kept: 50                          builds of a template that no tag means
//     kept_for: 30d                     these, and the logs of all
//     hosts: [deb.example.com]          that its commands reach by HTTP and HTTPS, HOST[:PORT]
//     registries: [registry.example.com]  from where images are pulled, beside the settings'
//     default
//   e2b: {default_network: allow-public,  or deny: of sandboxes whose clients say nothing of it
//         inspect_later: false}         true: every sandbox may get rules and secrets later
//   max_sandboxes: 1000                 that run at a time, of all teams
//   max_paused: 1000                    whose memory is kept, of all teams; else as max_sandboxes
//   max_connections: 10000
//   max_snapshots: 1000                 that a team may have
//   max_templates: 1000                 likewise, which it has built or is about to
//   threads: 4                          for work that blocks
//   log_level: info
//
// One file is read: the one that is named, else /etc/caisson/caisson.yaml for root and
// $XDG_CONFIG_HOME/caisson/caisson.yaml (~/.config/caisson/caisson.yaml) for anybody else, if it is
// there. Then the environment goes before the file, and the command line before both: each value
// but mappings and lists has a variable (CAISSON_SERVE_TLS_LISTEN) and a flag (--tls-listen). An
// unknown key or a value that cannot be is an error with key, found and allowed. Plain values;
// reading the file and the environment is all that happens.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "policy/spec.h"

namespace caisson::policy {

// A place to listen at: an IPv4 or IPv6 address (without brackets) and a port; 0: any free one.
struct ListenAddress {
  std::string address;
  std::uint16_t port = 0;
  bool operator==(const ListenAddress&) const = default;
};
// "127.0.0.1:3000", "[::1]:3000".
std::string to_string(const ListenAddress& address);

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError };

struct TlsConfig {
  std::optional<ListenAddress> listen;  // nullopt: no TLS, and nothing else of this counts
  std::string domain;                   // HOST[:PORT], as clients are told
  std::string certificate, key;         // paths of PEM files
  bool dev = false;
  bool operator==(const TlsConfig&) const = default;
};

// Of one sandbox; nullopt is unlimited.
struct ServedLimits {
  LimitValue cpu_milli, memory, disk, pids, lifetime_ms;
  bool operator==(const ServedLimits&) const = default;
};

inline constexpr std::string_view kServerUser = "caisson";

struct BuildConfig {
  std::uint32_t at_once = 4;
  std::uint32_t team_at_once = 3;
  std::uint32_t team_most = 20;  // that wait or go on
  LimitValue time_ms = 3'600'000;
  LimitValue upload = 1ull << 30;    // bytes
  LimitValue uploads = 64ull << 30;  // bytes
  LimitValue cache = 20ull << 30;    // bytes
  LimitValue cache_ms = 30ull * 86'400'000;
  std::uint32_t kept = 50;
  LimitValue kept_ms = 30ull * 86'400'000;
  std::vector<std::string> hosts;
  std::vector<std::string> registries;  // HOST[:PORT]; "*" is any
  bool operator==(const BuildConfig&) const = default;
};

struct ServerConfig {
  ListenAddress listen = {"127.0.0.1", 3000};
  TlsConfig tls;
  std::string state_directory, run_directory;  // empty: those of base/paths.h
  // Whom a server that root starts becomes: NAME or UID[:GID]; empty: kServerUser where the host
  // has it, else an id that is nobody's.
  std::string user;
  // Of version 2, as /proc/PID/cgroup names it: where supervisors are, beside whom sandboxes' own
  // groups are made; empty: where the server is.
  std::string sandbox_group;
  std::string default_image = "base";
  std::map<std::string, std::string> templates;
  ServedLimits defaults = {2000, 512ull << 20, 1ull << 30, 1024, 300'000};
  ServedLimits maxima = {8000, 8ull << 30, 16ull << 30, 16'000, 86'400'000};
  // That clients may ask for.
  SyscallProfile most_profile = SyscallProfile::kDefault;
  Privileges most_privileges = Privileges::kSudo;
  std::map<std::string, std::uint32_t> pool;
  std::uint32_t pool_in_use = 0;
  BuildConfig builds;
  // Of sandboxes whose E2B clients say nothing of a network.
  NetworkDefault e2b_network = NetworkDefault::kAllowPublic;
  // Whether every sandbox trusts its gateway from its beginning.
  bool e2b_inspect_later = false;
  std::uint32_t max_sandboxes = 1000;
  std::optional<std::uint32_t> max_paused;  // nullopt: as max_sandboxes
  std::uint32_t max_connections = 10'000;
  std::uint32_t max_snapshots = 1000;  // of a team
  std::uint32_t max_templates = 1000;  // of a team
  std::uint32_t threads = 4;
  LogLevel log_level = LogLevel::kInfo;
  bool operator==(const ServerConfig&) const = default;
};

// A value that the environment and the command line can set too.
struct ServerSetting {
  std::string_view key;    // "tls.listen"
  std::string_view flag;   // "--tls-listen"
  std::string_view value;  // "ADDRESS:PORT"
  std::string_view help;
};
std::span<const ServerSetting> server_settings();
// "CAISSON_SERVE_TLS_LISTEN".
std::string server_variable(const ServerSetting& setting);

// The text of a file, over the defaults. Pure. What stands in one place is checked; what several
// places must agree on is not (validate_server_config).
Result<ServerConfig> parse_server_config(std::string_view text);
// Sets one of server_settings(); `called` is what errors call it: its variable or its flag. Pure.
Status set_server_value(ServerConfig& config, std::string_view key, std::string_view text,
                        std::string_view called);
// Whether the values go together. Pure.
Status validate_server_config(const ServerConfig& config);
// All values as YAML, so that reading it gives the same again. Pure.
std::string print_server_config(const ServerConfig& config);

struct GivenFlag {
  std::string_view flag, text;
};
// What holds for this process, validated, with both directories filled in. `path` is empty where
// none was named. Errors name the file.
Result<ServerConfig> load_server_config(const std::string& path, std::span<const GivenFlag> flags);

// Where the file is or would be.
std::string server_config_path();

}  // namespace caisson::policy
