// The settings of a user or a host: a file in YAML, every key optional.
//
//   default_registry: registry.example.com      what a short name means when it is pulled
//   insecure_registries: [registry.example.com:5000]   plain HTTP is allowed there
//   images: {"ubuntu:22.04": base}              names that stand for images of the local store
//   image_form: directory                       how root file systems are kept: directory or erofs
//
// One file is read: $XDG_CONFIG_HOME/caisson/config.yaml (else ~/.config/caisson/config.yaml), and
// where that is absent /etc/caisson/config.yaml. $CAISSON_DEFAULT_REGISTRY and $CAISSON_IMAGE_FORM
// go before the file's default_registry and image_form. An unknown key or a value of the wrong type
// is an error with key, found and allowed. Plain values; reading the file is all that happens.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::policy {

// A directory starts fastest, since every sandbox shares what the page cache has of it; an erofs
// file is one file, made in half the time, and what a server mounts once or hands to a machine.
enum class ImageForm : std::uint8_t { kDirectory, kErofs };

struct Settings {
  std::string default_registry;                  // HOST[:PORT]; empty: none
  std::vector<std::string> insecure_registries;  // HOST[:PORT]
  std::map<std::string, std::string> images;     // from "ubuntu:22.04" to "base:latest"
  ImageForm image_form = ImageForm::kDirectory;
  bool operator==(const Settings&) const = default;
};

// The text of a settings file. Pure.
Result<Settings> parse_settings(std::string_view text);

// The same with what the environment says in the place of the file's default_registry and
// image_form; empty: nothing. Pure. The error names the variable.
Result<Settings> overridden(Settings settings, std::string_view default_registry,
                            std::string_view image_form);

// What holds for this process; defaults where there is no file. The error names the file.
Result<Settings> load_settings();

// Where the user's own file is or would be, for messages.
std::string settings_path();

}  // namespace caisson::policy
