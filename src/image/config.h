// The configuration of an image: what to run in it, as whom, where, with what environment, and the
// layers that it is made of. Read from the JSON that OCI and Docker share, and written as OCI's.
// Pure functions; the text comes from elsewhere and is hostile.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::image {

inline constexpr std::size_t kMaxConfigSize = 8 << 20;  // bytes of JSON
inline constexpr std::size_t kMaxLayers = 512;

// One step of how it was made. Steps that only changed the configuration have no layer.
struct ImageHistory {
  std::string created;
  std::string created_by;
  std::string comment;
  bool empty_layer = false;
  bool operator==(const ImageHistory&) const = default;
};

// Texts are as the image has them: not validated beyond being UTF-8 without NUL bytes. Empty means
// that the image does not say.
struct ImageConfig {
  std::string os = "linux";
  std::string architecture;  // as OCI names it: "amd64", "arm64"
  std::string variant;       // "v8"
  std::string created;       // RFC 3339
  std::string author;

  std::vector<std::string> entrypoint;
  std::vector<std::string> cmd;
  std::vector<std::string> env;  // "KEY=VALUE"
  std::string user;              // NAME, UID, with :GROUP or :GID
  std::string workdir;
  std::vector<std::string> volumes;        // paths
  std::vector<std::string> exposed_ports;  // "8080/tcp"
  std::map<std::string, std::string> labels;
  std::string stop_signal;
  std::vector<std::string> shell;     // of a Dockerfile's shell form
  std::vector<std::string> on_build;  // instructions for whoever builds on it

  std::vector<std::string> diff_ids;  // 64 hexadecimal digits each, the lowest layer first
  std::vector<ImageHistory> history;
  bool operator==(const ImageConfig&) const = default;
};

// Error: invalid, with the key, what was found and what is allowed.
Result<ImageConfig> parse_image_config(std::string_view text);

// OCI's JSON, the same text for the same value. Reading it gives the value back.
std::string encode(const ImageConfig& config);

// This machine as OCI names it: "amd64", "arm64".
std::string_view host_architecture();

}  // namespace caisson::image
