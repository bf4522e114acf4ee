// Having the image that a build begins with: where it is not in the store it is pulled, if whoever
// builds may have images from that registry.
//
// What the settings' `images` map to an image of the store is never pulled. One thread, as a pull.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "image/registry/pull.h"
#include "image/store.h"
#include "policy/settings.h"

namespace caisson::build {

struct BaseImageOptions {
  enum class Pull : std::uint8_t { kNever, kMissing, kAlways } pull = Pull::kMissing;
  // From where, HOST[:PORT] each, beside the settings' default_registry; "*", or nullopt: from
  // anywhere.
  std::optional<std::vector<std::string>> registries;
  std::optional<image::Credentials> login;
};

// `name` as it stands behind FROM; what it is called in the store. What was pulled with a login is
// called otherwise there, so that nobody has it who has not shown the login, and is asked for anew
// each time; what `name` itself means in the store stays as it was. Errors: not_found (it is not
// there and may not or cannot be pulled), permission_denied (not from that registry), and those of
// pull().
Result<std::string> have_base_image(image::Store& store, const std::string& name,
                                    const policy::Settings& settings,
                                    const BaseImageOptions& options,
                                    const image::PullProgress& progress);

}  // namespace caisson::build
