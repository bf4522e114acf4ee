#include "cli/client_servers.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/sys.h"

namespace caisson::cli {
namespace {

constexpr std::size_t kMostConfiguration = 1 << 20;
constexpr std::string_view kBlank = " \t\r";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string_view unquoted(std::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '"' || text.front() == '\'');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

template <typename Take>
void each_line(std::string_view text, const Take& take) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

template <typename Take>
void each_word(std::string_view text, std::string_view between, const Take& take) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(between), text.size());
    if (end > 0) take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

struct KeyValue {
  std::string_view key, value;  // both empty: the line is no assignment
};
KeyValue assignment(std::string_view line, char sign) {
  const std::size_t at = line.find(sign);
  if (at == line.npos) return {};
  return {trim(line.substr(0, at)), trim(line.substr(at + 1))};
}

bool is_comment(std::string_view line) {
  const std::string_view trimmed = trim(line);
  return trimmed.starts_with('#') || trimmed.starts_with(';');
}

}  // namespace

// ---- the forms of their files -------------------------------------------------------------------

PipUrls pip_urls(std::string_view text) {
  PipUrls urls;
  std::vector<std::string>* into = nullptr;  // of a value that may go on
  each_line(text, [&](std::string_view line) {
    if (is_comment(line)) return;
    std::string_view value = line;
    if (into == nullptr || line.find_first_of(kBlank) != 0) {
      const KeyValue read = assignment(line, '=');
      into = read.key == "index-url" ? &urls.index : nullptr;
      if (read.key == "extra-index-url") into = &urls.extra;
      if (into == nullptr) return;
      into->clear();
      value = read.value;
    }
    each_word(value, kBlank, [&](std::string_view word) { into->emplace_back(word); });
  });
  return urls;
}

NpmUrls npm_urls(std::string_view text) {
  NpmUrls urls;
  each_line(text, [&](std::string_view line) {
    if (is_comment(line)) return;
    const KeyValue read = assignment(line, '=');
    const bool scoped = read.key.starts_with('@') && read.key.ends_with(":registry");
    if ((read.key != "registry" && !scoped) || read.value.empty()) return;
    (scoped ? urls.scoped : urls.registry).emplace_back(unquoted(read.value));
  });
  return urls;
}

std::vector<std::string> cargo_urls(std::string_view text) {
  std::vector<std::string> urls;
  std::string_view wanted;
  each_line(text, [&](std::string_view line) {
    const std::string_view trimmed = trim(line);
    if (trimmed.starts_with('[')) {
      wanted = {};
      if (trimmed.starts_with("[source.")) wanted = "registry";
      if (trimmed.starts_with("[registries.")) wanted = "index";
      return;
    }
    const KeyValue read = assignment(trimmed, '=');
    if (wanted.empty() || read.key != wanted || read.value.empty()) return;
    const char quote = read.value.front();
    const std::size_t end = read.value.find(quote, 1);
    if ((quote != '"' && quote != '\'') || end == read.value.npos) return;
    urls.emplace_back(read.value.substr(1, end - 1));
  });
  return urls;
}

std::string go_proxy(std::string_view text) {
  std::string found;
  each_line(text, [&](std::string_view line) {
    const KeyValue read = assignment(line, '=');
    if (read.key == "GOPROXY") found = unquoted(read.value);
  });
  return found;
}

std::vector<std::string> go_urls(std::string_view list) {
  std::vector<std::string> urls;
  each_word(list, ",|", [&](std::string_view word) {
    const std::string_view url = trim(word);
    if (url != "direct" && url != "off") urls.emplace_back(url);
  });
  return urls;
}

std::vector<std::string> apt_list_urls(std::string_view text) {
  std::vector<std::string> urls;
  each_line(text, [&](std::string_view line) {
    std::string_view rest = trim(line);
    const std::size_t type = std::min(rest.find_first_of(kBlank), rest.size());
    if (rest.substr(0, type) != "deb" && rest.substr(0, type) != "deb-src") return;
    rest = trim(rest.substr(type));
    if (rest.starts_with('[')) {
      const std::size_t end = rest.find(']');
      if (end == rest.npos) return;
      rest = trim(rest.substr(end + 1));
    }
    urls.emplace_back(rest.substr(0, rest.find_first_of(kBlank)));
  });
  return urls;
}

std::vector<std::string> apt_sources_urls(std::string_view text) {
  std::vector<std::string> urls;
  bool within = false;
  each_line(text, [&](std::string_view line) {
    if (line.starts_with('#')) return;
    std::string_view value = line;
    if (!within || line.find_first_of(kBlank) != 0) {
      const KeyValue read = assignment(line, ':');
      within = read.key == "URIs";
      if (!within) return;
      value = read.value;
    }
    each_word(value, kBlank, [&](std::string_view word) { urls.emplace_back(word); });
  });
  return urls;
}

// ---- where they are -----------------------------------------------------------------------------

namespace {

// One look-up: gathers URLs, and says in each error where they stood.
class Search {
 public:
  explicit Search(const ClientGround& ground) : ground_(ground) {}

  std::string variable(const char* name) const { return ground_.variable(name).value_or(""); }

  // The text of a file; empty where there is none, or no path.
  Result<std::string> text_of(const std::string& path) const {
    if (path.empty()) return std::string();
    auto text = sys::read_file(AT_FDCWD, path, kMostConfiguration);
    if (!text.has_value() && text.error().code() == Code::kNotFound) return std::string();
    return text;
  }
  std::string host_path(std::string_view path) const { return ground_.root + std::string(path); }
  // Empty where there is no home.
  std::string home_path(std::string_view path) const {
    return ground_.home.empty() ? std::string() : ground_.home + std::string(path);
  }

  Status take(const std::string& where, const std::vector<std::string>& urls) {
    for (const std::string& url : urls) {
      auto server = policy::server_of_url(url);
      if (!server.has_value()) return fail(std::move(server).error().with(where));
      if (std::ranges::find(found_.servers, *server) == found_.servers.end())
        found_.servers.push_back(std::move(*server));
    }
    return {};
  }

  void set(const char* name, const std::vector<std::string>& words) {
    std::string value;
    for (const std::string& word : words) value += (value.empty() ? "" : " ") + word;
    if (!value.empty()) found_.env.insert_or_assign(name, std::move(value));
  }
  ClientServers& found() { return found_; }

 private:
  const ClientGround& ground_;
  ClientServers found_;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  each_word(text, kBlank, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

// As pip: the user's file over the host's, PIP_CONFIG_FILE over both, variables over all.
Status find_pip(Search& search) {
  PipUrls held;
  const auto take = [&](const std::string& where, const PipUrls& read) -> Status {
    TRY(search.take(where, read.index));
    TRY(search.take(where, read.extra));
    if (!read.index.empty()) held.index = read.index;
    if (!read.extra.empty()) held.extra = read.extra;
    return {};
  };
  for (const std::string& path :
       {search.host_path("/etc/pip.conf"), search.home_path("/.pip/pip.conf"),
        search.home_path("/.config/pip/pip.conf"), search.variable("PIP_CONFIG_FILE")}) {
    TRY_ASSIGN(const std::string text, search.text_of(path));
    TRY(take(path, pip_urls(text)));
  }
  TRY(take("PIP_INDEX_URL", {.index = words_of(search.variable("PIP_INDEX_URL")), .extra = {}}));
  TRY(take("PIP_EXTRA_INDEX_URL",
           {.index = {}, .extra = words_of(search.variable("PIP_EXTRA_INDEX_URL"))}));
  search.set("PIP_INDEX_URL", held.index);
  search.set("PIP_EXTRA_INDEX_URL", held.extra);
  return {};
}

Status find_npm(Search& search) {
  std::vector<std::string> registry;
  for (const std::string& path :
       {search.host_path("/etc/npmrc"), search.host_path("/usr/etc/npmrc"),
        search.host_path("/usr/local/etc/npmrc"), search.home_path("/.npmrc"),
        search.variable("NPM_CONFIG_USERCONFIG")}) {
    TRY_ASSIGN(const std::string text, search.text_of(path));
    const NpmUrls read = npm_urls(text);
    TRY(search.take(path, read.registry));
    TRY(search.take(path, read.scoped));
    if (!read.registry.empty()) registry = {read.registry.back()};
  }
  for (const char* name : {"NPM_CONFIG_REGISTRY", "npm_config_registry"}) {
    const std::vector<std::string> read = words_of(search.variable(name));
    TRY(search.take(name, read));
    if (!read.empty()) registry = read;
  }
  search.set("npm_config_registry", registry);
  return {};
}

Status find_cargo(Search& search) {
  std::string home = search.variable("CARGO_HOME");
  if (home.empty()) home = search.home_path("/.cargo");
  if (home.empty()) return {};
  for (const char* name : {"/config.toml", "/config"}) {
    TRY_ASSIGN(const std::string text, search.text_of(home + name));
    TRY(search.take(home + name, cargo_urls(text)));
  }
  return {};
}

Status find_go(Search& search) {
  std::string where = search.variable("GOENV");
  if (where.empty()) where = search.home_path("/.config/go/env");
  TRY_ASSIGN(const std::string text, search.text_of(where == "off" ? std::string() : where));
  std::string list = go_proxy(text);
  if (const std::string set = search.variable("GOPROXY"); !set.empty()) {
    list = set;
    where = "GOPROXY";
  }
  TRY(search.take(where, go_urls(list)));
  search.set("GOPROXY", {list});
  return {};
}

Status find_apt(Search& search) {
  // cdrom:, file: and their like need no network.
  const auto take = [&](const std::string& path, std::vector<std::string> urls) {
    std::erase_if(urls, [](const std::string& url) {
      return !url.substr(0, url.find(':')).contains("http");
    });
    return search.take(path, urls);
  };
  const std::string list = search.host_path("/etc/apt/sources.list");
  TRY_ASSIGN(const std::string main, search.text_of(list));
  TRY(take(list, apt_list_urls(main)));
  std::error_code none;
  std::vector<std::string> parts;
  for (const auto& entry :
       std::filesystem::directory_iterator(search.host_path("/etc/apt/sources.list.d"), none))
    parts.push_back(entry.path());
  std::ranges::sort(parts);
  for (const std::string& path : parts) {
    const bool sources = path.ends_with(".sources");
    if (!sources && !path.ends_with(".list")) continue;
    TRY_ASSIGN(const std::string text, search.text_of(path));
    TRY(take(path, sources ? apt_sources_urls(text) : apt_list_urls(text)));
  }
  return {};
}

struct Client {
  std::string_view preset;
  Status (*find)(Search&);
  std::string_view sources;
};
constexpr std::array<Client, 5> kClients = {{
    {"apt", find_apt, "/etc/apt/sources.list and sources.list.d"},
    {"cargo", find_cargo, "~/.cargo/config.toml"},
    {"go", find_go, "GOPROXY and ~/.config/go/env"},
    {"npm", find_npm, "npm_config_registry, ~/.npmrc and /etc/npmrc"},
    {"pip", find_pip, "PIP_INDEX_URL, ~/.config/pip/pip.conf and /etc/pip.conf"},
}};

const Client* client_of(std::string_view preset) {
  const auto* found = std::ranges::find(kClients, preset, &Client::preset);
  return found == kClients.end() ? nullptr : found;
}

}  // namespace

ClientGround this_host() {
  const auto variable = [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return {.root = "", .home = variable("HOME").value_or(""), .variable = variable};
}

Result<ClientServers> client_servers(std::string_view preset, const ClientGround& ground) {
  const Client* client = client_of(preset);
  if (client == nullptr) return ClientServers();
  Search search(ground);
  TRY(client->find(search));
  return std::move(search.found());
}

std::string_view client_sources(std::string_view preset) {
  const Client* client = client_of(preset);
  return client == nullptr ? std::string_view() : client->sources;
}

}  // namespace caisson::cli
