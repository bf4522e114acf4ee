// Where settings are: the user's file, the host's, the environment.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/sys.h"
#include "policy/settings.h"

namespace caisson::policy {
namespace {

constexpr std::size_t kMaxFile = 1 << 20;
constexpr const char* kHostFile = "/etc/caisson/config.yaml";

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

Result<Settings> load_file(const std::string& path, bool& found) {
  // Behind a folder that this user may not enter lies somebody else's file: HOME outlives a change
  // of user.
  struct stat status{};
  found = ::stat(path.c_str(), &status) == 0 || errno != EACCES;
  if (!found) return Settings();
  auto text = sys::read_file(AT_FDCWD, path, kMaxFile);
  found = text.has_value() || text.error().code() != Code::kNotFound;
  if (!found) return Settings();
  if (!text.has_value()) return fail(std::move(text).error());
  auto settings = parse_settings(*text);
  if (!settings.has_value()) return fail(std::move(settings).error().with(path));
  return settings;
}

}  // namespace

std::string settings_path() {
  if (const std::string folder = variable("XDG_CONFIG_HOME"); !folder.empty()) {
    return folder + "/caisson/config.yaml";
  }
  const std::string home = variable("HOME");
  return home.empty() ? kHostFile : home + "/.config/caisson/config.yaml";
}

Result<Settings> load_settings() {
  bool found = false;
  TRY_ASSIGN(Settings settings, load_file(settings_path(), found));
  if (!found) {
    TRY_ASSIGN(settings, load_file(kHostFile, found));
  }
  return overridden(std::move(settings), variable("CAISSON_DEFAULT_REGISTRY"),
                    variable("CAISSON_IMAGE_FORM"));
}

}  // namespace caisson::policy
