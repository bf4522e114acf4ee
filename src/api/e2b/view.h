// Sandboxes and templates as E2B's clients read them. Pure functions.
#pragma once

#include <string_view>

#include "api/templates.h"
#include "base/json.h"
#include "fleet/fleet.h"

namespace caisson::api::e2b {

// The version of E2B's daemon whose behaviour the data plane has; clients turn features on by it.
inline constexpr std::string_view kEnvdVersion = "0.6.13";
// Clients want one and use it for nothing.
inline constexpr std::string_view kClientId = "caisson";

// What create, connect and resume answer. `domain`: see Backend.
json::Value sandbox_body(const fleet::SandboxView& view, std::string_view domain);
// One of a list.
json::Value listed_body(const fleet::SandboxView& view);
json::Value detail_body(const fleet::SandboxView& view, std::string_view domain);
json::Value sample_body(const fleet::Sample& sample);
json::Value template_body(const TemplateView& view);
// "aliases", and "names" with the namespace before them.
void set_names(json::Value& body, const TemplateView& view);
std::string_view status_text(TemplateView::Status status);

}  // namespace caisson::api::e2b
