#include "build/base_image.h"

#include <algorithm>
#include <utility>

#include "image/registry/names.h"
#include "maker/host.h"

namespace caisson::build {
namespace {

using image::printable;

bool may_pull_from(const std::string& registry, const policy::Settings& settings,
                   const BaseImageOptions& options) {
  if (!options.registries.has_value()) return true;
  const std::string usual =
      settings.default_registry.substr(0, settings.default_registry.find('/'));
  return registry == usual || std::ranges::any_of(*options.registries, [&](const auto& allowed) {
           return allowed == "*" || allowed == registry;
         });
}

}  // namespace

Result<std::string> have_base_image(image::Store& store, const std::string& name,
                                    const policy::Settings& settings,
                                    const BaseImageOptions& options,
                                    const image::PullProgress& progress) {
  TRY_ASSIGN(const image::Reference reference, image::parse_reference(name));
  TRY_ASSIGN(const auto mapped, image::mapped_name(reference, settings));
  const std::string local = mapped.has_value() ? mapped->text() : reference.text();
  const bool is_there = store.contains(local);
  const bool keeps = options.pull != BaseImageOptions::Pull::kAlways && !options.login.has_value();
  if (is_there && (mapped.has_value() || keeps)) return local;
  const std::string missing = "there is no image '" + printable(local) + "' in the local store";
  if (mapped.has_value())
    return fail(Error::not_found(missing + ", for which the settings have '" +
                                 printable(reference.text()) + "' stand"));
  if (options.pull == BaseImageOptions::Pull::kNever) return fail(Error::not_found(missing));
  auto place = image::registry_name(reference, settings);
  if (!place.has_value()) return fail(Error::not_found(missing + ": " + place.error().message()));
  if (!may_pull_from(place->registry, settings, options))
    return fail(Error(Code::kPermissionDenied,
                      missing + ", and images of " + place->registry + " are not pulled here"));
  image::PullOptions pull;
  pull.settings = settings;
  pull.login = options.login;
  // Not for a moment under the name that everybody knows, which may mean another image here too.
  if (options.login.has_value())
    pull.named = [](const std::string& image_id) {
      return image::Reference{.name = std::string(maker::kPulledNames) + image_id.substr(0, 32)};
    };
  TRY_ASSIGN(const image::PullReport pulled, image::pull(store, reference, pull, progress));
  return pulled.reference.text();
}

}  // namespace caisson::build
