#include "policy/server_config.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <type_traits>
#include <vector>

#include "base/encoding.h"
#include "policy/inside_path.h"
#include "policy/limits.h"
#include "policy/names.h"
#include "policy/read_node.h"
#include "policy/syntax.h"
#include "policy/units.h"
#include "policy/yaml_text.h"

namespace caisson::policy {
namespace {

constexpr std::size_t kMaxTemplates = 1000;
constexpr std::size_t kMaxName = 128;
constexpr std::size_t kMaxWords = 1000;
constexpr std::uint64_t kMaxPool = 10'000;
constexpr std::array<std::string_view, 4> kLevelNames = {"debug", "info", "warn", "error"};
constexpr std::string_view kAddressAllowed =
    "ADDRESS:PORT such as 127.0.0.1:3000 or [::1]:3000, with a port from 0 (any free one) to 65535";

using Path = const std::string&;

// ---- values -------------------------------------------------------------------------------------

std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t max) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number > max) return std::nullopt;
  return number;
}

// One text for each address, so that what is printed is what was read.
std::optional<std::string> canonical_address(int family, const std::string& text) {
  in6_addr bytes{};
  char shown[INET6_ADDRSTRLEN] = {};
  if (text.contains('\0') || ::inet_pton(family, text.c_str(), &bytes) != 1) return std::nullopt;
  if (::inet_ntop(family, &bytes, shown, sizeof shown) == nullptr) return std::nullopt;
  return shown;
}

std::optional<ListenAddress> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  const auto port = parse_number(text.substr(colon + 1), 65535);
  std::string address(text.substr(0, colon));
  const bool bracketed = address.starts_with('[') && address.ends_with(']');
  if (bracketed) address = address.substr(1, address.size() - 2);
  const auto canonical = canonical_address(bracketed ? AF_INET6 : AF_INET, address);
  if (!port || !canonical) return std::nullopt;
  return ListenAddress{.address = *canonical, .port = static_cast<std::uint16_t>(*port)};
}

Result<ListenAddress> read_address(const Node& node, Path path) {
  const auto address = is_text(node) ? parse_address(node.text) : std::nullopt;
  if (!address) return fail(wrong_at(node, path, kAddressAllowed));
  return *address;
}

// `fault` gives what is allowed where its text is wrong, else nothing.
Result<std::string> read_word(const Node& node, Path path,
                              std::string_view (*fault)(std::string_view)) {
  const std::string_view allowed = fault(is_text(node) ? node.text : "");
  if (!is_text(node) || !allowed.empty()) return fail(wrong_at(node, path, allowed));
  return node.text;
}

std::string_view file_fault(std::string_view path) {
  return is_utf8(path) ? path_fault(path) : "a path in UTF-8";
}

std::string_view user_fault(std::string_view text) {
  constexpr std::size_t kMaxUser = 64;
  const bool good = !text.empty() && text.size() <= kMaxUser && text[0] != '-' &&
                    std::ranges::all_of(text, [](unsigned char c) {
                      return std::isalnum(c) != 0 || std::string_view("_.:$-").contains(c);
                    });
  return good ? "" : "a user's NAME, UID or UID:GID";
}

std::string_view name_fault(std::string_view name) {
  const bool right =
      !name.empty() && name.size() <= kMaxName && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
      });
  return right ? "" : "1 to 128 of a-z, 0-9, - and _";
}

Result<std::uint32_t> read_count(const Node& node, Path path, std::uint64_t min,
                                 std::uint64_t max) {
  const auto number = is_text(node) ? parse_number(node.text, max) : std::nullopt;
  if (number && *number >= min) return static_cast<std::uint32_t>(*number);
  return fail(wrong_at(
      node, path, "a whole number from " + std::to_string(min) + " to " + std::to_string(max)));
}

Result<LimitValue> read_limit(const Node& node, Path path, const LimitRule& rule) {
  const std::string range = format_limit(rule.unit, rule.min) + " to " +
                            format_limit(rule.unit, rule.max) + ", or unlimited";
  if (!is_text(node)) return fail(wrong_at(node, path, describe(rule.unit)));
  auto value = parse_limit(rule.unit, node.text);
  if (!value.has_value()) {
    Error error = std::move(value).error().with(path);
    if (node.line == 0) return fail(std::move(error));
    return fail(std::move(error).with("line " + std::to_string(node.line)));
  }
  if (value->has_value() && (**value < rule.min || **value > rule.max)) {
    return fail(wrong_at(node, path, range));
  }
  return *value;
}

template <typename Map, typename Read>
Result<Map> read_map(const Node& node, Path path, std::string_view what, Read read_value) {
  if (node.kind != Node::Kind::kMap || node.items.size() > kMaxTemplates) {
    return fail(wrong_at(node, path, what));
  }
  Map map;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (const auto allowed = name_fault(name); !allowed.empty()) {
      return fail(wrong_at(value, below, "a key that is no template's name", allowed));
    }
    TRY_ASSIGN(map[name], read_value(value, below));
    return {};
  };
  TRY(for_each_key(node, path, read));
  return map;
}

// As read_map(), of a list of words.
Result<std::vector<std::string>> read_words(const Node& node, Path path,
                                            std::string_view (*fault)(std::string_view)) {
  if (node.kind != Node::Kind::kList || node.items.size() > kMaxWords)
    return fail(wrong_at(node, path, "a list of " + std::string(fault("")) + ", 1000 at most"));
  std::vector<std::string> words;
  for (std::size_t at = 0; at < node.items.size(); ++at) {
    TRY_ASSIGN(std::string word,
               read_word(node.items[at], path + "[" + std::to_string(at) + "]", fault));
    words.push_back(std::move(word));
  }
  return words;
}

std::string_view pulled_fault(std::string_view text) {
  return text == "*" || (!text.empty() && registry_fault(text).empty())
             ? std::string_view()
             : "HOST, HOST:PORT or \"*\" for any";
}
// What else it must be is said by who holds the list.
std::string_view reached_fault(std::string_view text) {
  const bool fine = !text.empty() && text.size() <= kMaxName &&
                    std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
  return fine ? std::string_view() : "HOST or HOST:PORT";
}

std::string yaml_text(std::string_view text) {
  std::string out;
  if (!text.empty()) write_yaml_text(text, out);
  return out;
}

template <typename Map, typename Print>
std::string print_map(const Map& map, Print print_value) {
  std::string out = "{";
  for (const auto& [name, value] : map) {
    if (out.size() > 1) out += ", ";
    out += yaml_text(name) + ": " + print_value(value);
  }
  return out + "}";
}

std::string print_words(const std::vector<std::string>& words) {
  std::string out = "[";
  for (const std::string& word : words) out += (out.size() > 1 ? ", " : "") + yaml_text(word);
  return out + "]";
}

// ---- the table ----------------------------------------------------------------------------------

// A key of the file. `print` gives its YAML, or nothing where there is nothing to say.
struct Field {
  ServerSetting setting;
  Status (*read)(const Node& node, Path path, ServerConfig& config);
  std::string (*print)(const ServerConfig& config);
};

// The forms of fields; At names the member: [](auto& c) -> auto& { return c.tls.domain; }.
template <auto At, std::string_view (*Fault)(std::string_view)>
constexpr Field word(ServerSetting setting) {
  return {setting,
          [](const Node& node, Path path, ServerConfig& config) -> Status {
            TRY_ASSIGN(At(config), read_word(node, path, Fault));
            return {};
          },
          [](const ServerConfig& config) { return yaml_text(At(config)); }};
}
template <auto At>
constexpr Field address(ServerSetting setting) {
  return {setting,
          [](const Node& node, Path path, ServerConfig& config) -> Status {
            TRY_ASSIGN(At(config), read_address(node, path));
            return {};
          },
          [](const ServerConfig& config) {
            const std::optional<ListenAddress> listen = At(config);
            return listen.has_value() ? yaml_text(to_string(*listen)) : std::string();
          }};
}
template <auto At, std::uint64_t Min, std::uint64_t Max>
constexpr Field count(ServerSetting setting) {
  return {setting,
          [](const Node& node, Path path, ServerConfig& config) -> Status {
            TRY_ASSIGN(At(config), read_count(node, path, Min, Max));
            return {};
          },
          [](const ServerConfig& config) { return std::to_string(At(config)); }};
}
// With the rule of the same limit of a spec.
template <auto At, std::size_t Rule>
constexpr Field limit(ServerSetting setting) {
  return {
      setting,
      [](const Node& node, Path path, ServerConfig& config) -> Status {
        TRY_ASSIGN(At(config), read_limit(node, path, kLimitRules[Rule]));
        return {};
      },
      [](const ServerConfig& config) { return format_limit(kLimitRules[Rule].unit, At(config)); }};
}

template <auto At, std::string_view (*Fault)(std::string_view)>
constexpr Field words(ServerSetting setting) {
  return {setting,
          [](const Node& node, Path path, ServerConfig& config) -> Status {
            TRY_ASSIGN(At(config), read_words(node, path, Fault));
            return {};
          },
          [](const ServerConfig& config) { return print_words(At(config)); }};
}

template <auto At>
constexpr Field flag(ServerSetting setting) {
  return {setting,
          [](const Node& node, Path path, ServerConfig& config) -> Status {
            if (!is_text(node) || (node.text != "true" && node.text != "false"))
              return fail(wrong_at(node, path, "true or false"));
            At(config) = node.text == "true";
            return {};
          },
          [](const ServerConfig& config) -> std::string { return At(config) ? "true" : "false"; }};
}

// One of the names of an enumeration.
template <auto At, const auto& Names>
constexpr Field choice(ServerSetting setting) {
  return {setting,
          [](const Node& node, Path path, ServerConfig& config) -> Status {
            const auto chosen = is_text(node) ? index_of(Names, node.text) : std::nullopt;
            if (!chosen)
              return fail(wrong_at(node, path, alternatives(Names.data(), Names.size())));
            auto& value = At(config);
            value = static_cast<std::remove_reference_t<decltype(value)>>(*chosen);
            return {};
          },
          [](const ServerConfig& config) {
            return std::string(Names[static_cast<std::size_t>(At(config))]);
          }};
}

constexpr std::size_t rule_of(std::string_view key) {
  std::size_t at = 0;
  while (kLimitRules[at].key != key) ++at;
  return at;
}
constexpr std::size_t kCpus = rule_of("cpus"), kMemory = rule_of("memory"), kDisk = rule_of("disk"),
                      kPids = rule_of("pids"), kLifetime = rule_of("timeout");

constexpr std::array kFields = {
    address<[](auto& c) -> auto& { return c.listen; }>(
        {"listen", "--listen", "ADDRESS:PORT", "Where to listen for plain HTTP."}),
    address<[](auto& c) -> auto& { return c.tls.listen; }>(
        {"tls.listen", "--tls-listen", "ADDRESS:PORT", "Where to listen for HTTPS."}),
    word<[](auto& c) -> auto& { return c.tls.domain; }, registry_fault>(
        {"tls.domain", "--tls-domain", "HOST[:PORT]",
         "The domain whose names PORT-SANDBOX.DOMAIN lead here."}),
    word<[](auto& c) -> auto& { return c.tls.certificate; }, file_fault>(
        {"tls.certificate", "--tls-certificate", "FILE",
         "The certificate of the domain and *.DOMAIN, with its chain, as PEM."}),
    word<[](auto& c) -> auto& { return c.tls.key; }, file_fault>(
        {"tls.key", "--tls-key", "FILE", "The certificate's key, as PEM."}),
    flag<[](auto& c) -> auto& { return c.tls.dev; }>(
        {"tls.dev", "--tls-dev", "true|false",
         "Make a certificate with an authority of its own, for a try."}),
    word<[](auto& c) -> auto& { return c.state_directory; }, file_fault>(
        {"state_directory", "--state-dir", "DIRECTORY", "What outlives a boot."}),
    word<[](auto& c) -> auto& { return c.run_directory; }, file_fault>(
        {"run_directory", "--run-dir", "DIRECTORY", "Sandboxes that live now."}),
    word<[](auto& c) -> auto& { return c.user; }, user_fault>(
        {"user", "--user", "USER", "Whom a server that root starts becomes."}),
    word<[](auto& c) -> auto& { return c.sandbox_group; }, file_fault>(
        {"sandbox_group", "--sandbox-group", "PATH",
         "The control group that sandboxes belong to."}),
    word<[](auto& c) -> auto& { return c.default_image; }, image_fault>(
        {"default_image", "--default-image", "IMAGE", "Where a client names no template."}),
    Field{{"templates", "", "", ""},
          [](const Node& node, Path path, ServerConfig& config) -> Status {
            TRY_ASSIGN(config.templates,
                       (read_map<std::map<std::string, std::string>>(
                           node, path, "a mapping from names to images, 1000 at most",
                           [](const Node& value, Path below) {
                             return read_word(value, below, image_fault);
                           })));
            return {};
          },
          [](const ServerConfig& config) { return print_map(config.templates, yaml_text); }},
    limit<[](auto& c) -> auto& { return c.defaults.cpu_milli; }, kCpus>(
        {"limits.default.cpus", "--default-cpus", "CPUS",
         "Processors of a sandbox that asks for nothing."}),
    limit<[](auto& c) -> auto& { return c.defaults.memory; }, kMemory>(
        {"limits.default.memory", "--default-memory", "SIZE",
         "Memory of a sandbox that asks for nothing."}),
    limit<[](auto& c) -> auto& { return c.defaults.disk; }, kDisk>(
        {"limits.default.disk", "--default-disk", "SIZE",
         "Disk of a sandbox that asks for nothing."}),
    limit<[](auto& c) -> auto& { return c.defaults.pids; }, kPids>(
        {"limits.default.pids", "--default-pids", "COUNT",
         "Processes and threads of a sandbox that asks for nothing."}),
    limit<[](auto& c) -> auto& { return c.defaults.lifetime_ms; }, kLifetime>(
        {"limits.default.lifetime", "--default-lifetime", "TIME",
         "Time to live of a sandbox that asks for nothing."}),
    limit<[](auto& c) -> auto& { return c.maxima.cpu_milli; }, kCpus>(
        {"limits.maximum.cpus", "--max-cpus", "CPUS",
         "Processors, the most that a sandbox may ask for."}),
    limit<[](auto& c) -> auto& { return c.maxima.memory; }, kMemory>(
        {"limits.maximum.memory", "--max-memory", "SIZE",
         "Memory, the most that a sandbox may ask for."}),
    limit<[](auto& c) -> auto& { return c.maxima.disk; }, kDisk>(
        {"limits.maximum.disk", "--max-disk", "SIZE",
         "Disk, the most that a sandbox may ask for."}),
    limit<[](auto& c) -> auto& { return c.maxima.pids; }, kPids>(
        {"limits.maximum.pids", "--max-pids", "COUNT",
         "Processes and threads, the most that a sandbox may ask for."}),
    limit<[](auto& c) -> auto& { return c.maxima.lifetime_ms; }, kLifetime>(
        {"limits.maximum.lifetime", "--max-lifetime", "TIME",
         "Time to live, the most that a sandbox may ask for."}),
    choice<[](auto& c) -> auto& { return c.most_profile; }, kProfileNames>(
        {"limits.maximum.profile", "--max-profile", "PROFILE",
         "default, browser or debug: beside default, the profile of system calls that a sandbox "
         "may ask for."}),
    choice<[](auto& c) -> auto& { return c.most_privileges; }, kPrivilegesNames>(
        {"limits.maximum.privileges", "--max-privileges", "PRIVILEGES",
         "none or sudo: the most that commands of a sandbox may have."}),
    Field{{"pool", "", "", ""},
          [](const Node& node, Path path, ServerConfig& config) -> Status {
            TRY_ASSIGN(config.pool,
                       (read_map<std::map<std::string, std::uint32_t>>(
                           node, path, "a mapping from templates to numbers, 1000 at most",
                           [](const Node& value, Path below) {
                             return read_count(value, below, 1, kMaxPool);
                           })));
            return {};
          },
          [](const ServerConfig& config) {
            return print_map(config.pool, [](std::uint32_t n) { return std::to_string(n); });
          }},
    count<[](auto& c) -> auto& { return c.pool_in_use; }, 0, kMaxPool>(
        {"pool_in_use", "--pool-in-use", "COUNT",
         "Sandboxes made ahead of templates that are in use, one of each."}),
    count<[](auto& c) -> auto& { return c.builds.at_once; }, 1, 256>(
        {"builds.at_once", "--builds-at-once", "COUNT", "Builds of templates at a time."}),
    count<[](auto& c) -> auto& { return c.builds.team_at_once; }, 1, 256>(
        {"builds.team_at_once", "--builds-team-at-once", "COUNT",
         "Builds of templates at a time, of one team."}),
    count<[](auto& c) -> auto& { return c.builds.team_most; }, 1, 200>(
        {"builds.team_most", "--builds-team-most", "COUNT",
         "Builds of templates that wait or go on, of one team."}),
    limit<[](auto& c) -> auto& { return c.builds.time_ms; }, kLifetime>(
        {"builds.time", "--build-time", "TIME", "The most that a build may take."}),
    limit<[](auto& c) -> auto& { return c.builds.upload; }, kDisk>(
        {"builds.upload", "--build-upload", "SIZE",
         "The most that a client may send for one COPY of a build."}),
    limit<[](auto& c) -> auto& { return c.builds.uploads; }, kDisk>(
        {"builds.uploads", "--build-uploads", "SIZE",
         "What is kept of all that clients sent for builds."}),
    limit<[](auto& c) -> auto& { return c.builds.cache; }, kDisk>(
        {"builds.cache", "--build-cache", "SIZE", "What the results of builds' steps may take."}),
    limit<[](auto& c) -> auto& { return c.builds.cache_ms; }, kLifetime>(
        {"builds.cache_for", "--build-cache-for", "TIME",
         "How long the result of a step is kept that is not used."}),
    count<[](auto& c) -> auto& { return c.builds.kept; }, 1, 10'000>(
        {"builds.kept", "--builds-kept", "COUNT",
         "Builds of a template that are kept though no tag means them."}),
    limit<[](auto& c) -> auto& { return c.builds.kept_ms; }, kLifetime>(
        {"builds.kept_for", "--builds-kept-for", "TIME",
         "How long such builds are kept, and the logs of all."}),
    words<[](auto& c) -> auto& { return c.builds.hosts; }, reached_fault>(
        {"builds.hosts", "", "", ""}),
    words<[](auto& c) -> auto& { return c.builds.registries; }, pulled_fault>(
        {"builds.registries", "", "", ""}),
    choice<[](auto& c) -> auto& { return c.e2b_network; }, kNetworkDefaultNames>(
        {"e2b.default_network", "--e2b-default-network", "NETWORK",
         "deny or allow-public: what sandboxes reach whose E2B clients say nothing of it."}),
    flag<[](auto& c) -> auto& { return c.e2b_inspect_later; }>(
        {"e2b.inspect_later", "--e2b-inspect-later", "true|false",
         "Whether sandboxes that are made without rules may get some later."}),
    count<[](auto& c) -> auto& { return c.max_sandboxes; }, 1, 100'000>(
        {"max_sandboxes", "--max-sandboxes", "COUNT", "Sandboxes that run at a time."}),
    Field{
        {"max_paused", "--max-paused", "COUNT", "Paused sandboxes whose memory is kept at a time."},
        [](const Node& node, Path path, ServerConfig& config) -> Status {
          TRY_ASSIGN(config.max_paused, read_count(node, path, 0, 100'000));
          return {};
        },
        [](const ServerConfig& config) {
          return config.max_paused.has_value() ? std::to_string(*config.max_paused) : "";
        }},
    count<[](auto& c) -> auto& { return c.max_connections; }, 1, 1'000'000>(
        {"max_connections", "--max-connections", "COUNT", "Connections of clients at a time."}),
    count<[](auto& c) -> auto& { return c.max_snapshots; }, 1, 1'000'000>(
        {"max_snapshots", "--max-snapshots", "COUNT", "Snapshots that a team may have."}),
    count<[](auto& c) -> auto& { return c.max_templates; }, 1, 1'000'000>(
        {"max_templates", "--max-templates", "COUNT", "Templates that a team may have built."}),
    count<[](auto& c) -> auto& { return c.threads; }, 1, 256>(
        {"threads", "--threads", "COUNT", "Threads for work that blocks."}),
    choice<[](auto& c) -> auto& { return c.log_level; }, kLevelNames>(
        {"log_level", "--log-level", "LEVEL", "debug, info, warn or error."}),
};

constexpr std::size_t kSettingCount =
    std::ranges::count_if(kFields, [](const Field& f) { return !f.setting.flag.empty(); });
constexpr std::array<ServerSetting, kSettingCount> kSettings = [] {
  std::array<ServerSetting, kSettingCount> settings = {};
  std::size_t at = 0;
  for (const Field& field : kFields) {
    if (!field.setting.flag.empty()) settings[at++] = field.setting;
  }
  return settings;
}();

const Field* find_field(std::string_view key) {
  const auto found =
      std::ranges::find(kFields, key, [](const Field& field) { return field.setting.key; });
  return found == kFields.end() ? nullptr : &*found;
}

// ---- the file -----------------------------------------------------------------------------------

// The keys that may stand below `group` ("", "tls", "limits.default"), each once.
std::vector<std::string_view> keys_of(std::string_view group) {
  std::vector<std::string_view> keys;
  for (const Field& field : kFields) {
    std::string_view rest = field.setting.key;
    if (!group.empty()) {
      if (!rest.starts_with(group) || rest[group.size()] != '.') continue;
      rest.remove_prefix(group.size() + 1);
    }
    const std::string_view key = rest.substr(0, rest.find('.'));
    if (keys.empty() || keys.back() != key) keys.push_back(key);
  }
  return keys;
}

Status read_group(const Node& node, const std::string& group, ServerConfig& config) {
  const std::vector<std::string_view> keys = keys_of(group);
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, group.empty() ? "configuration" : group,
                         "a mapping with the keys " + alternatives(keys.data(), keys.size())));
  }
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (std::ranges::find(keys, name) == keys.end()) {
      return fail(unknown_key(name, value, below, keys));
    }
    const Field* const field = find_field(below);
    return field != nullptr ? field->read(value, below, config) : read_group(value, below, config);
  };
  return for_each_key(node, group, read);
}

Status refuse(std::string_view key, std::string_view found, std::string_view allowed) {
  return fail(wrong(key, found, allowed));
}

Status validate_tls(const TlsConfig& tls, const ListenAddress& plain) {
  if (!tls.listen.has_value()) {
    if (tls == TlsConfig()) return {};
    return refuse("tls.listen", "nothing",
                  std::string(kAddressAllowed) + ", where other keys of tls are given");
  }
  if (*tls.listen == plain && plain.port != 0) {
    return refuse("tls.listen", to_string(plain) + ", where plain HTTP is",
                  "another address or port");
  }
  if (tls.domain.empty()) return refuse("tls.domain", "nothing", "the domain of the certificate");
  if (tls.dev) {
    if (tls.certificate.empty() && tls.key.empty()) return {};
    return refuse("tls.dev", "true beside tls.certificate or tls.key", "one or the other");
  }
  if (tls.certificate.empty()) {
    return refuse("tls.certificate", "nothing", "a file, or tls.dev: true");
  }
  if (tls.key.empty()) return refuse("tls.key", "nothing", "the file of the certificate's key");
  return {};
}

}  // namespace

std::string to_string(const ListenAddress& address) {
  const bool is_v6 = address.address.contains(':');
  const std::string host = is_v6 ? "[" + address.address + "]" : address.address;
  return host + ":" + std::to_string(address.port);
}

std::span<const ServerSetting> server_settings() {
  return kSettings;
}

std::string server_variable(const ServerSetting& setting) {
  std::string name = "CAISSON_SERVE_";
  for (const char c : setting.flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

Result<ServerConfig> parse_server_config(std::string_view text) {
  TRY_ASSIGN(const Node root, parse_yaml_tree(text, "configuration"));
  ServerConfig config;
  if (root.kind == Node::Kind::kNull) return config;  // an empty file
  TRY(read_group(root, "", config));
  return config;
}

Status set_server_value(ServerConfig& config, std::string_view key, std::string_view text,
                        std::string_view called) {
  const Field* const field = find_field(key);
  if (field == nullptr || field->setting.flag.empty()) {
    return refuse(called, quote(key), "a setting of the server");
  }
  Node node;
  node.kind = Node::Kind::kPlain;
  node.text = text;
  return field->read(node, std::string(called), config);
}

Status validate_server_config(const ServerConfig& config) {
  TRY(validate_tls(config.tls, config.listen));
  for (const std::size_t rule : {kCpus, kMemory, kDisk, kPids, kLifetime}) {
    const auto of = [rule](const ServedLimits& limits) {
      return rule == kCpus     ? limits.cpu_milli
             : rule == kMemory ? limits.memory
             : rule == kDisk   ? limits.disk
             : rule == kPids   ? limits.pids
                               : limits.lifetime_ms;
    };
    const LimitValue most = of(config.maxima), usual = of(config.defaults);
    if (!most.has_value() || (usual.has_value() && *usual <= *most)) continue;
    const LimitUnit unit = kLimitRules[rule].unit;
    const std::string key = rule == kLifetime ? "lifetime" : std::string(kLimitRules[rule].key);
    return refuse("limits.default." + key, format_limit(unit, usual),
                  format_limit(unit, most) + " at most (limits.maximum." + key + ")");
  }
  if (!config.pool.empty() && config.most_privileges != Privileges::kSudo)
    return refuse("pool", "sandboxes that are made ahead, with sudo",
                  "none where sudo is not allowed (limits.maximum.privileges)");
  std::uint64_t ahead = 0;
  for (const auto& [name, number] : config.pool) ahead += number;
  if (ahead > config.max_sandboxes) {
    return refuse("pool", std::to_string(ahead) + " sandboxes",
                  std::to_string(config.max_sandboxes) + " at most (max_sandboxes)");
  }
  return {};
}

std::string print_server_config(const ServerConfig& config) {
  std::string out;
  std::string_view open;  // the group whose key was printed last
  for (const Field& field : kFields) {
    const std::string value = field.print(config);
    if (value.empty()) continue;
    const std::string_view key = field.setting.key;
    std::size_t indent = 0;
    std::size_t begin = 0;
    for (std::size_t dot = key.find('.'); dot != key.npos; dot = key.find('.', begin)) {
      const std::string_view group = key.substr(0, dot);
      const bool is_open = open == group || (open.starts_with(group) && open[dot] == '.');
      if (!is_open) {
        out.append(indent, ' ').append(key.substr(begin, dot - begin)).append(":\n");
      }
      indent += 2;
      begin = dot + 1;
    }
    open = key.substr(0, begin == 0 ? 0 : begin - 1);
    out.append(indent, ' ').append(key.substr(begin)).append(": ").append(value).append("\n");
  }
  return out;
}

}  // namespace caisson::policy
