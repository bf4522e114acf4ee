#include "api/e2b/templates.h"

#include "api/e2b/view.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

// Whether a name is taken: clients ask before they build. 403 is a yes too.
io::Async<Result<Answer>> find_alias(Call& call) {
  CO_TRY_ASSIGN(const TemplateView found,
                co_await call.backend.templates.find(call.team, call.parameter(0)));
  json::Value body = json::Value::object();
  body.set("templateID", found.id);
  body.set("public", found.access == TemplateView::Access::kPublic);
  co_return Answer::json(200, body);
}

io::Async<Result<Answer>> list(Call& call) {
  CO_TRY_ASSIGN(const auto found, co_await call.backend.templates.list(call.team));
  json::Value body = json::Value::array();
  for (const TemplateView& view : found) body.push(template_body(view));
  co_return Answer::json(200, body);
}

constexpr Route kRoutes[] = {
    {"GET", "/templates/aliases/{alias}", find_alias},
    {"GET", "/templates", list},
    {"GET", "/v2/templates", list},
};

}  // namespace

std::span<const Route> template_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
