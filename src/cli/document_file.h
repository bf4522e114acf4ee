// Documents that an option or an argument names: their bytes, and network policies.
#pragma once

#include <caisson/network.h>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "policy/document.h"

namespace caisson::cli {

// The file's text, at most 1 MiB; "-" is standard input. Errors begin with `called`: "--spec".
Result<std::string> read_document(const std::string& path, const std::string& called);
// JSON where the name ends in .json, else YAML.
policy::Format format_of(const std::string& path);

// A network policy that is valid. Errors name the file.
Result<policy::NetworkPolicy> read_network_policy(const std::string& path);

// What a value of --net says, with its file read and the servers of its preset found.
struct GivenNetwork {
  std::optional<policy::NetworkPolicy> network;  // nullopt is deny
  // Variables that lead a preset's client inside to the servers that it uses on this host.
  std::map<std::string, std::string> env;
};
// Errors: those of parse_network(), of reading, and of a preset whose client is told of no server.
Result<GivenNetwork> read_network(const std::string& value);

}  // namespace caisson::cli
