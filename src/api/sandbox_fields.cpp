#include "api/sandbox_fields.h"

#include "policy/complain.h"

namespace caisson::api {
namespace {

constexpr Object::MapLimits kMetadataLimits{128, 256, 8192};
constexpr Object::MapLimits kEnvLimits{1024, 256, 128 * 1024};

}  // namespace

Result<Texts> read_metadata(const Object& body, std::string_view key) {
  TRY_ASSIGN(auto metadata, body.map(key, kMetadataLimits));
  return std::move(metadata).value_or(Texts());
}

Result<Texts> read_env(const Object& body, std::string_view key) {
  TRY_ASSIGN(auto env, body.map(key, kEnvLimits));
  if (!env.has_value()) return Texts();
  const std::string path = body.path_of(key);
  for (const auto& [name, value] : *env) {
    if (name.empty() || name.contains('=') || name.contains('\0')) {
      return fail(policy::wrong(path, "the name " + policy::quote(name),
                                "the name of a variable: not empty, and without = and zero bytes"));
    }
    if (value.contains('\0')) {
      return fail(policy::wrong(policy::key_below(path, name), "a zero byte", "text without any"));
    }
  }
  return std::move(*env);
}

Error no_such_sandbox(std::string_view id) {
  return Error::not_found("sandbox " + policy::quote(id) + " not found");
}

}  // namespace caisson::api
