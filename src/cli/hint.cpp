#include "cli/hint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "policy/inside_path.h"

namespace caisson::cli {
namespace {

// Part of every image, so a host file of that name says nothing.
bool in_every_image(std::string_view path) {
  for (const std::string_view folder :
       {"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys"})
    if (path == folder || policy::is_below(path, folder)) return true;
  return path == "/" || path == "/tmp" || path == "/run" || path == "/home" || path == "/var";
}

std::string absolute(const std::string& path) {
  if (path.starts_with('/')) return policy::normalised(path);
  char here[4096];
  if (::getcwd(here, sizeof here) == nullptr) return "";
  return policy::normalised(std::string(here) + "/" + path);
}

bool granted(const policy::SpecValues& spec, const std::string& host_path) {
  return std::ranges::any_of(spec.grants, [&](const policy::Grant& grant) {
    const std::string from = absolute(grant.from);
    return host_path == from || policy::is_below(host_path, from);
  });
}

// The file that an argument such as "x.py" or "--config=x.yaml" may mean.
std::string named_file(const std::string& argument) {
  if (!argument.starts_with('-')) return argument;
  const std::size_t equals = argument.find('=');
  return equals == std::string::npos ? "" : argument.substr(equals + 1);
}

}  // namespace

std::string invisible_file_hint(const policy::SpecValues& spec, std::string_view option) {
  for (const std::string& argument : spec.command) {
    const std::string name = named_file(argument);
    struct stat info = {};
    if (name.empty() || ::stat(name.c_str(), &info) != 0) continue;
    const std::string path = absolute(name);
    if (path.empty() || in_every_image(path) || granted(spec, path)) continue;
    // A bare word ("test", "build") may be a file here by chance: it counts only as a regular file.
    const bool plain_word = !name.contains('/') && !name.contains('.');
    if (plain_word && !S_ISREG(info.st_mode)) continue;
    const std::string here = absolute(".");
    const bool below_here = path == here || policy::is_below(path, here);
    const std::string grant = below_here              ? "."
                              : S_ISDIR(info.st_mode) ? path
                                                      : path.substr(0, path.rfind('/'));
    return "'" + name + "' is a file of this host that the sandbox could not see: add " +
           std::string(option) + " " + (grant.empty() ? path : grant);
  }
  return "";
}

}  // namespace caisson::cli
