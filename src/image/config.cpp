#include "image/config.h"

#include <set>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "image/json_fields.h"

namespace caisson::image {
namespace {

json::Value list_of(const std::vector<std::string>& texts) {
  json::Value list = json::Value::array();
  for (const std::string& text : texts) list.push(text);
  return list;
}

void set_text(json::Value& object, std::string_view key, const std::string& text) {
  if (!text.empty()) object.set(key, text);
}

void set_list(json::Value& object, std::string_view key, const std::vector<std::string>& texts) {
  if (!texts.empty()) object.set(key, list_of(texts));
}

// OCI writes sets as objects of empty objects.
void set_keys(json::Value& object, std::string_view key, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  // Value::set() looks through all keys for each. A key that occurs twice would be no JSON.
  std::set<std::string_view> seen;
  json::Value::Object set;
  for (const std::string& name : keys) {
    if (seen.insert(name).second) set.push_back({name, json::Value::object()});
  }
  object.set(key, std::move(set));
}

Result<std::vector<ImageHistory>> history_of(const Field& field) {
  TRY_ASSIGN(std::vector<Field> items, items_of(field, 4 * kMaxLayers));
  std::vector<ImageHistory> history;
  for (const Field& item : items) {
    ImageHistory step;
    TRY_ASSIGN(step.created, text_of(item.at("created")));
    TRY_ASSIGN(step.created_by, text_of(item.at("created_by")));
    TRY_ASSIGN(step.comment, text_of(item.at("comment")));
    TRY_ASSIGN(step.empty_layer, truth_of(item.at("empty_layer")));
    history.push_back(std::move(step));
  }
  return history;
}

Status read_run_config(const Field& run, ImageConfig& config) {
  if (run.present() && run.value->as_object() == nullptr) {
    return fail(wrong_field(run, "an object"));
  }
  TRY_ASSIGN(config.entrypoint, texts_of(run.at("Entrypoint")));
  TRY_ASSIGN(config.cmd, texts_of(run.at("Cmd")));
  TRY_ASSIGN(config.env, texts_of(run.at("Env")));
  TRY_ASSIGN(config.user, text_of(run.at("User")));
  TRY_ASSIGN(config.workdir, text_of(run.at("WorkingDir")));
  TRY_ASSIGN(config.volumes, keys_of(run.at("Volumes")));
  TRY_ASSIGN(config.exposed_ports, keys_of(run.at("ExposedPorts")));
  TRY_ASSIGN(config.labels, text_map_of(run.at("Labels")));
  TRY_ASSIGN(config.stop_signal, text_of(run.at("StopSignal")));
  TRY_ASSIGN(config.shell, texts_of(run.at("Shell")));
  TRY_ASSIGN(config.on_build, texts_of(run.at("OnBuild")));
  return {};
}

}  // namespace

Result<ImageConfig> parse_image_config(std::string_view text) {
  TRY_ASSIGN(json::Value root, parse_object(text, "image configuration", kMaxConfigSize));
  const Field top = {&root, ""};
  ImageConfig config;
  TRY_ASSIGN(config.os, required_text(top.at("os")));
  TRY_ASSIGN(config.architecture, required_text(top.at("architecture")));
  TRY_ASSIGN(config.variant, text_of(top.at("variant")));
  TRY_ASSIGN(config.created, text_of(top.at("created")));
  TRY_ASSIGN(config.author, text_of(top.at("author")));
  TRY(read_run_config(top.at("config"), config));
  const Field rootfs = top.at("rootfs");
  TRY_ASSIGN(const std::string type, text_of(rootfs.at("type")));
  if (type != "layers") return fail(wrong_field(rootfs.at("type"), "\"layers\""));
  TRY_ASSIGN(std::vector<Field> diff_ids, items_of(rootfs.at("diff_ids"), kMaxLayers));
  for (const Field& item : diff_ids) {
    TRY_ASSIGN(std::string diff_id, required_digest(item));
    config.diff_ids.push_back(std::move(diff_id));
  }
  TRY_ASSIGN(config.history, history_of(top.at("history")));
  return config;
}

std::string encode(const ImageConfig& config) {
  json::Value root = json::Value::object();
  set_text(root, "created", config.created);
  set_text(root, "author", config.author);
  root.set("architecture", config.architecture);
  set_text(root, "variant", config.variant);
  root.set("os", config.os);

  json::Value run = json::Value::object();
  set_text(run, "User", config.user);
  set_keys(run, "ExposedPorts", config.exposed_ports);
  set_list(run, "Env", config.env);
  set_list(run, "Entrypoint", config.entrypoint);
  set_list(run, "Cmd", config.cmd);
  set_keys(run, "Volumes", config.volumes);
  set_text(run, "WorkingDir", config.workdir);
  if (!config.labels.empty()) {
    json::Value::Object labels;
    for (const auto& [key, value] : config.labels) labels.push_back({key, value});
    run.set("Labels", std::move(labels));
  }
  set_text(run, "StopSignal", config.stop_signal);
  set_list(run, "Shell", config.shell);
  set_list(run, "OnBuild", config.on_build);
  root.set("config", std::move(run));

  json::Value diff_ids = json::Value::array();
  for (const std::string& diff_id : config.diff_ids) diff_ids.push("sha256:" + diff_id);
  json::Value rootfs = json::Value::object();
  rootfs.set("type", "layers").set("diff_ids", std::move(diff_ids));
  root.set("rootfs", std::move(rootfs));

  if (!config.history.empty()) {
    json::Value history = json::Value::array();
    for (const ImageHistory& step : config.history) {
      json::Value entry = json::Value::object();
      set_text(entry, "created", step.created);
      set_text(entry, "created_by", step.created_by);
      set_text(entry, "comment", step.comment);
      if (step.empty_layer) entry.set("empty_layer", true);
      history.push(std::move(entry));
    }
    root.set("history", std::move(history));
  }
  return json::serialize(root);
}

std::string_view host_architecture() {
#if defined(__x86_64__)
  return "amd64";
#elif defined(__aarch64__)
  return "arm64";
#else
#error "an architecture that OCI's name is to be added for"
#endif
}

}  // namespace caisson::image
