#include "image/registry/names.h"

namespace caisson::image {

Result<RegistryName> registry_name(const Reference& reference, const policy::Settings& settings) {
  if (const std::string_view host = reference.registry(); !host.empty()) {
    return RegistryName{std::string(host), std::string(reference.repository())};
  }
  const std::string& given = settings.default_registry;
  if (given.empty()) {
    return fail(Error::invalid("'" + reference.text() +
                               "' is not in the local store and names no registry; write HOST/" +
                               reference.text() + ", or set `default_registry: HOST` in " +
                               policy::settings_path() + " (or CAISSON_DEFAULT_REGISTRY)"));
  }
  const std::size_t slash = given.find('/');
  RegistryName name = {given.substr(0, slash), reference.name};
  // A path behind the host is where names of one part are: `python`, but not `team/python`.
  if (slash != std::string::npos && reference.name.find('/') == std::string::npos) {
    name.repository = given.substr(slash + 1) + "/" + reference.name;
  }
  return name;
}

Result<std::string> local_name(std::string_view text, const policy::Settings& settings) {
  const auto reference = parse_reference(text);
  if (settings.images.empty() || !reference.has_value()) return std::string(text);
  TRY_ASSIGN(const auto mapped, mapped_name(*reference, settings));
  return mapped ? mapped->text() : std::string(text);
}

Result<std::optional<Reference>> mapped_name(const Reference& reference,
                                             const policy::Settings& settings) {
  for (const auto& [from, to] : settings.images) {
    auto name = parse_reference(from);
    if (!name.has_value()) return fail(std::move(name).error().with("setting images"));
    if (*name != reference) continue;
    auto local = parse_reference(to);
    if (!local.has_value()) return fail(std::move(local).error().with("setting images." + from));
    return std::optional(std::move(*local));
  }
  return std::nullopt;
}

Error with_pull_hint(Error error, std::string_view text) {
  if (error.code() != Code::kNotFound) return error;
  // An id, which reads as a name too, is of the local store alone.
  const auto reference = parse_reference(text);
  if (!reference.has_value() || text.starts_with("sha256:")) return error;
  return Error::not_found(error.message() + "; `caisson image pull " + reference->text() +
                          "` gets it from a registry");
}

}  // namespace caisson::image
