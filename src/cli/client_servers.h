// Which servers package managers are told to use on this host, by the caller's variables and
// configuration: for the presets of --net.
//
// Only what belongs to the caller or to the host is read. Files of a project (./.npmrc,
// ./.cargo/config.toml) are not: whoever wrote a project must not choose what a sandbox reaches.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "policy/presets.h"

namespace caisson::cli {

// Where a client's configuration is looked for.
struct ClientGround {
  std::string root;  // before absolute paths: empty but in tests
  std::string home;  // empty: there is none
  std::function<std::optional<std::string>(const char*)> variable;
};
ClientGround this_host();

struct ClientServers {
  std::vector<policy::PresetServer> servers;
  // Variables that lead the same client inside to them; none for a client that knows none.
  std::map<std::string, std::string> env;
};

// Of a preset's name. `servers` is empty where nothing is configured. Errors: invalid_argument (a
// URL with a user name, or that is none; the file or variable is named, the URL is not), and those
// of reading a file that is there.
Result<ClientServers> client_servers(std::string_view preset, const ClientGround& ground);

// What is looked at for one, for messages: "PIP_INDEX_URL, ~/.config/pip/pip.conf, …".
std::string_view client_sources(std::string_view preset);

// ---- the forms of their files, pure -------------------------------------------------------------

// index-url and extra-index-url in an INI file of pip, in whatever section; a value may go on in
// lines that are indented.
struct PipUrls {
  std::vector<std::string> index, extra;
};
PipUrls pip_urls(std::string_view text);
// registry= and @SCOPE:registry= of an npmrc.
struct NpmUrls {
  std::vector<std::string> registry, scoped;
};
NpmUrls npm_urls(std::string_view text);
// registry of [source.NAME] and index of [registries.NAME] in a TOML file of cargo, as far as they
// are strings on one line.
std::vector<std::string> cargo_urls(std::string_view text);
// GOPROXY= of go's file of variables.
std::string go_proxy(std::string_view text);
// What GOPROXY lists, without `direct` and `off`.
std::vector<std::string> go_urls(std::string_view list);
// The places of deb and deb-src lines.
std::vector<std::string> apt_list_urls(std::string_view text);
// URIs: of a file in the form of deb822.
std::vector<std::string> apt_sources_urls(std::string_view text);

}  // namespace caisson::cli
