// Documents that an option or an argument names: their bytes, and network policies.
#pragma once

#include <caisson/network.h>
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

}  // namespace caisson::cli
