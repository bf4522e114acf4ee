#include "box/image_defaults.h"

#include <algorithm>
#include <utility>

#include "image/reference.h"
#include "policy/inside_path.h"
#include "policy/syntax.h"
#include "wall/plan.h"

namespace caisson::box {
namespace {

// Ports are remarks: as many as a person reads.
constexpr std::size_t kMostPorts = 64;
constexpr std::size_t kMostPortText = 32;

class Reader {
 public:
  Reader(const image::ImageConfig& config, std::string_view image)
      : config_(config), image_(image) {}

  Result<ImageDefaults> read() {
    defaults_.entrypoint = config_.entrypoint;
    defaults_.command = config_.cmd;
    TRY(read_env());
    TRY(read_user());
    TRY(read_directories());
    read_ports();
    return std::move(defaults_);
  }

 private:
  std::unexpected<Error> refuse(std::string_view key, std::string_view found,
                                std::string_view allowed) const {
    return fail(Error::precondition("image " + std::string(image_) + ": its configuration's " +
                                    std::string(key) + ": found '" + image::printable(found) +
                                    "'; allowed is " + std::string(allowed)));
  }

  // Whether it says how it is run at all.
  bool configured() const {
    return !config_.entrypoint.empty() || !config_.cmd.empty() || !config_.env.empty() ||
           !config_.user.empty() || !config_.workdir.empty();
  }

  Status read_env() {
    for (const std::string& setting : config_.env) {
      const std::size_t equals = setting.find('=');
      const std::string name = setting.substr(0, equals);
      if (equals == std::string::npos) continue;  // a name alone sets nothing
      if (const auto allowed = policy::env_name_fault(name); !allowed.empty())
        return refuse("Env", setting, allowed);
      defaults_.env[name] = setting.substr(equals + 1);
    }
    return {};
  }

  Status read_user() {
    defaults_.user = config_.user;
    if (config_.user.empty()) {
      if (configured()) defaults_.user = "0";
      return {};
    }
    if (const auto allowed = policy::user_fault(config_.user); !allowed.empty())
      return refuse("User", config_.user, allowed);
    return {};
  }

  // As text: links of the image are looked at when the directory is made.
  Result<std::string> inside(std::string_view key, const std::string& path) const {
    const std::string whole = policy::normalised(path.starts_with('/') ? path : "/" + path);
    if (const auto allowed = policy::path_fault(whole); !allowed.empty())
      return refuse(key, path, allowed);
    return whole;
  }

  void add(const std::string& directory) {
    auto& all = defaults_.directories;
    if (directory != "/" && std::ranges::find(all, directory) == all.end())
      all.push_back(directory);
  }

  Status read_directories() {
    for (const std::string& volume : config_.volumes) {
      TRY_ASSIGN(const std::string path, inside("Volumes", volume));
      add(path);
    }
    if (!config_.workdir.empty()) {
      TRY_ASSIGN(defaults_.workdir, inside("WorkingDir", config_.workdir));
      add(defaults_.workdir);
    } else if (configured()) {
      defaults_.workdir = "/";
    }
    if (defaults_.directories.size() > wall::kMaxPlanDirectories)
      return refuse("Volumes", std::to_string(config_.volumes.size()) + " directories",
                    std::to_string(wall::kMaxPlanDirectories - 1) + " at most");
    return {};
  }

  void read_ports() {
    for (const std::string& port : config_.exposed_ports) {
      if (defaults_.exposed_ports.size() == kMostPorts) return;
      defaults_.exposed_ports.push_back(image::printable(port.substr(0, kMostPortText)));
    }
  }

  const image::ImageConfig& config_;
  std::string_view image_;
  ImageDefaults defaults_;
};

}  // namespace

Result<ImageDefaults> defaults_of(const image::ImageConfig& config, std::string_view image) {
  return Reader(config, image).read();
}

std::vector<std::string> command_line(const ImageDefaults& image, const policy::SpecValues& spec,
                                      const std::vector<std::string>& command) {
  const bool replaced = spec.entrypoint.has_value();
  std::vector<std::string> line = replaced ? *spec.entrypoint : image.entrypoint;
  const std::vector<std::string>& rest = command.empty() && !replaced ? image.command : command;
  line.insert(line.end(), rest.begin(), rest.end());
  return line;
}

}  // namespace caisson::box
