#include "api/e2b/not_here.h"

#include <string>

namespace caisson::api::e2b {
namespace {

io::Async<Result<Answer>> refuse(const char* sentence) {
  co_return fail({Code::kUnimplemented, sentence});
}

io::Async<Result<Answer>> pushed(Call&) {
  return refuse(
      "this server takes no images that were built elsewhere and pushed; a template is built by "
      "its "
      "steps (POST /v3/templates)");
}
io::Async<Result<Answer>> volumes(Call&) {
  return refuse("this server has no volumes");
}
io::Async<Result<Answer>> teams(Call&) {
  return refuse(
      "teams and API keys are administered on the server's host: see `caisson key --help`");
}

constexpr Route kRoutes[] = {
    {"POST", "/templates", pushed},
    {"POST", "/templates/{templateID}", pushed},
    {"POST", "/templates/{templateID}/builds/{buildID}", pushed},
    {"GET", "/volumes", volumes},
    {"POST", "/volumes", volumes},
    {"GET", "/volumes/{volumeID}", volumes},
    {"DELETE", "/volumes/{volumeID}", volumes},
    {"GET", "/teams", teams},
    {"GET", "/teams/{teamID}/metrics", teams},
    {"GET", "/teams/{teamID}/metrics/max", teams},
    {"GET", "/api-keys", teams},
    {"POST", "/api-keys", teams},
    {"PATCH", "/api-keys/{apiKeyID}", teams},
    {"DELETE", "/api-keys/{apiKeyID}", teams},
    {"POST", "/access-tokens", teams},
    {"DELETE", "/access-tokens/{accessTokenID}", teams},
};

}  // namespace

std::span<const Route> routes_not_here() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
