// Where the server's configuration is: its file, the environment, the command line.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/paths.h"
#include "base/sys.h"
#include "policy/complain.h"
#include "policy/server_config.h"

namespace caisson::policy {
namespace {

constexpr std::size_t kMaxFile = 1 << 20;
constexpr const char* kHostFile = "/etc/caisson/caisson.yaml";

std::string variable(const std::string& name) {
  const char* value = ::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

}  // namespace

std::string server_config_path() {
  if (::geteuid() == 0) return kHostFile;
  if (const std::string folder = variable("XDG_CONFIG_HOME"); !folder.empty()) {
    return folder + "/caisson/caisson.yaml";
  }
  const std::string home = variable("HOME");
  return home.empty() ? kHostFile : home + "/.config/caisson/caisson.yaml";
}

Result<ServerConfig> load_server_config(const std::string& path, std::span<const GivenFlag> flags) {
  const std::string file = path.empty() ? server_config_path() : path;
  ServerConfig config;
  auto text = sys::read_file(AT_FDCWD, file, kMaxFile);
  if (text.has_value()) {
    auto parsed = parse_server_config(*text);
    if (!parsed.has_value()) return fail(std::move(parsed).error().with(file));
    config = std::move(*parsed);
  } else if (!path.empty() || text.error().code() != Code::kNotFound) {
    return fail(std::move(text).error());
  }
  for (const ServerSetting& setting : server_settings()) {
    const std::string name = server_variable(setting);
    const std::string given = variable(name);
    if (!given.empty()) TRY(set_server_value(config, setting.key, given, name));
  }
  for (const GivenFlag& given : flags) {
    const auto settings = server_settings();
    const auto setting = std::ranges::find(settings, given.flag, &ServerSetting::flag);
    if (setting == settings.end()) {
      return fail(wrong(given.flag, quote(given.text), "a flag of the server"));
    }
    TRY(set_server_value(config, setting->key, given.text, given.flag));
  }
  if (config.state_directory.empty()) config.state_directory = state_directory();
  if (config.run_directory.empty()) config.run_directory = run_directory();
  TRY(validate_server_config(config));
  return config;
}

}  // namespace caisson::policy
