// What an image's name means under the settings: which registry to ask for it, or which image of
// the local store it stands for. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "image/reference.h"
#include "policy/settings.h"

namespace caisson::image {

struct RegistryName {
  std::string registry;  // HOST[:PORT]
  std::string repository;
};

// Error: invalid for a short name without default_registry; it says which setting to make.
Result<RegistryName> registry_name(const Reference& reference, const policy::Settings& settings);

// What to look for in the local store when somebody says `text` (a name or an id): the image that
// the settings' `images` give for it, else the same text.
Result<std::string> local_name(std::string_view text, const policy::Settings& settings);

// An error of the local store about `text`: where that is a name that is not there, with the
// command that gets it from a registry.
Error with_pull_hint(Error error, std::string_view text);

// The local image that the settings' `images` give for this name; nullopt: none, it means itself.
Result<std::optional<Reference>> mapped_name(const Reference& reference,
                                             const policy::Settings& settings);

}  // namespace caisson::image
