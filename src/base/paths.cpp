#include "base/paths.h"

#include <unistd.h>

#include <cstdlib>

namespace caisson {
namespace {

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string state_directory() {
  if (auto given = variable("CAISSON_STATE_DIR"); !given.empty()) return given;
  if (::geteuid() == 0) return "/var/lib/caisson";
  if (auto data = variable("XDG_DATA_HOME"); !data.empty()) return data + "/caisson";
  return variable("HOME") + "/.local/share/caisson";
}

std::string run_directory() {
  if (auto given = variable("CAISSON_RUN_DIR"); !given.empty()) return given;
  if (::geteuid() == 0) return "/run/caisson";
  if (auto runtime = variable("XDG_RUNTIME_DIR"); !runtime.empty()) return runtime + "/caisson";
  return "/tmp/caisson-" + std::to_string(::geteuid());
}

Result<std::string> helper_binary(const std::string& name) {
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self - 1);
  std::string folder;
  if (length > 0) {
    folder.assign(self, static_cast<std::size_t>(length));
    folder.resize(folder.rfind('/'));
    // Tests and the example live one folder below the programs.
    for (const std::string& place : {folder, folder + "/.."}) {
      std::string path = place + "/" + name;
      if (::access(path.c_str(), X_OK) == 0) return path;
    }
  }
  std::string installed = std::string(CAISSON_LIBEXECDIR) + "/" + name;
  if (::access(installed.c_str(), X_OK) == 0) return installed;
  return fail(Error::not_found(name + " is neither in " + folder + " nor in " CAISSON_LIBEXECDIR));
}

}  // namespace caisson
