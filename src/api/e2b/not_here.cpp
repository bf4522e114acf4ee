#include "api/e2b/not_here.h"

#include <string>

namespace caisson::api::e2b {
namespace {

io::Async<Result<Answer>> refuse(const char* sentence) {
  co_return fail({Code::kUnimplemented, sentence});
}

io::Async<Result<Answer>> builds(Call&) {
  return refuse(
      "this server builds no templates; `caisson image build` makes an image, which the server's "
      "configuration can offer as a template");
}
io::Async<Result<Answer>> volumes(Call&) {
  return refuse("this server has no volumes");
}
io::Async<Result<Answer>> secrets(Call&) {
  return refuse("this server keeps no secrets");
}
io::Async<Result<Answer>> teams(Call&) {
  return refuse(
      "teams and API keys are administered on the server's host: see `caisson key --help`");
}

constexpr Route kRoutes[] = {
    {"POST", "/templates", builds},
    {"POST", "/v2/templates", builds},
    {"POST", "/v3/templates", builds},
    {"GET", "/templates/{templateID}", builds},
    {"POST", "/templates/{templateID}", builds},
    {"PATCH", "/templates/{templateID}", builds},
    {"PATCH", "/v2/templates/{templateID}", builds},
    {"GET", "/templates/{templateID}/files/{hash}", builds},
    {"POST", "/templates/{templateID}/builds/{buildID}", builds},
    {"POST", "/v2/templates/{templateID}/builds/{buildID}", builds},
    {"GET", "/templates/{templateID}/builds/{buildID}/status", builds},
    {"GET", "/templates/{templateID}/builds/{buildID}/logs", builds},
    {"POST", "/templates/tags", builds},
    {"DELETE", "/templates/tags", builds},
    {"GET", "/templates/{templateID}/tags", builds},
    {"GET", "/volumes", volumes},
    {"POST", "/volumes", volumes},
    {"GET", "/volumes/{volumeID}", volumes},
    {"DELETE", "/volumes/{volumeID}", volumes},
    {"GET", "/secrets", secrets},
    {"POST", "/secrets", secrets},
    {"GET", "/secrets/{secretID}", secrets},
    {"POST", "/secrets/{secretID}", secrets},
    {"DELETE", "/secrets/{secretID}", secrets},
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
