#include "api/e2b/view.h"

#include "api/e2b/network.h"
#include "base/time_text.h"

namespace caisson::api::e2b {
namespace {

// What every body begins with.
json::Value named(const fleet::SandboxView& view) {
  json::Value body = json::Value::object();
  body.set("sandboxID", view.id);
  body.set("templateID", view.template_id);
  if (!view.alias.empty()) body.set("alias", view.alias);
  body.set("clientID", kClientId);
  body.set("envdVersion", kEnvdVersion);
  return body;
}

void add_access(json::Value& body, const fleet::SandboxView& view, std::string_view domain) {
  if (!view.access_token.empty()) body.set("envdAccessToken", view.access_token);
  if (!domain.empty()) body.set("domain", domain);
}

}  // namespace

std::string_view status_text(TemplateView::Status status) {
  switch (status) {
    case TemplateView::Status::kWaiting:
      return "waiting";
    case TemplateView::Status::kBuilding:
      return "building";
    case TemplateView::Status::kReady:
      return "ready";
    case TemplateView::Status::kError:
      return "error";
  }
  return "error";
}

void set_names(json::Value& body, const TemplateView& view) {
  json::Value aliases = json::Value::array(), names = json::Value::array();
  for (const std::string& name : view.names) {
    aliases.push(name);
    names.push(view.space.empty() ? name : view.space + "/" + name);
  }
  body.set("aliases", std::move(aliases));
  body.set("names", std::move(names));
}

json::Value sandbox_body(const fleet::SandboxView& view, std::string_view domain) {
  json::Value body = named(view);
  add_access(body, view, domain);
  if (!view.traffic_token.empty()) body.set("trafficAccessToken", view.traffic_token);
  return body;
}

json::Value listed_body(const fleet::SandboxView& view) {
  json::Value body = named(view);
  body.set("startedAt", time_text(view.started));
  body.set("endAt", time_text(view.end));
  body.set("state", view.state == fleet::State::kRunning ? "running" : "paused");
  body.set("cpuCount", view.cpus);
  body.set("memoryMB", view.memory_mib);
  body.set("diskSizeMB", view.disk_mib);
  json::Value metadata = json::Value::object();
  for (const auto& [key, value] : view.metadata) metadata.set(key, value);
  body.set("metadata", std::move(metadata));
  return body;
}

json::Value detail_body(const fleet::SandboxView& view, std::string_view domain) {
  json::Value body = listed_body(view);
  add_access(body, view, domain);
  add_network(body, view);
  json::Value lifecycle = json::Value::object();
  lifecycle.set("autoResume", view.auto_resume);
  lifecycle.set("onTimeout",
                view.on_timeout == fleet::NewSandbox::OnTimeout::kKill ? "kill" : "pause");
  body.set("lifecycle", std::move(lifecycle));
  return body;
}

json::Value sample_body(const fleet::Sample& sample) {
  json::Value body = json::Value::object();
  body.set("timestamp", time_text(sample.time));
  body.set("timestampUnix",
           std::chrono::floor<std::chrono::seconds>(sample.time).time_since_epoch().count());
  body.set("cpuCount", sample.cpus);
  body.set("cpuUsedPct", sample.cpu_used_percent);
  body.set("memUsed", sample.memory_used);
  body.set("memTotal", sample.memory_total);
  body.set("memCache", sample.memory_cache);
  body.set("diskUsed", sample.disk_used);
  body.set("diskTotal", sample.disk_total);
  return body;
}

json::Value template_body(const TemplateView& view) {
  json::Value body = json::Value::object();
  body.set("templateID", view.id);
  body.set("buildID", view.build_id);
  body.set("cpuCount", view.cpus);
  body.set("memoryMB", view.memory_mib);
  body.set("diskSizeMB", view.disk_mib);
  body.set("public", view.access == TemplateView::Access::kPublic);
  set_names(body, view);
  body.set("createdAt", time_text(view.created));
  body.set("updatedAt", time_text(view.updated));
  // Nobody counts these here; clients want the keys.
  body.set("createdBy", nullptr);
  body.set("lastSpawnedAt", nullptr);
  body.set("spawnCount", 0);
  body.set("buildCount", view.builds);
  body.set("envdVersion", kEnvdVersion);
  body.set("buildStatus", status_text(view.status));
  return body;
}

}  // namespace caisson::api::e2b
