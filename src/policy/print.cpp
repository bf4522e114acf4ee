// The canonical form of a spec: one ordered JSON value, written as JSON or as YAML.
#include <algorithm>

#include "base/encoding.h"
#include "base/json.h"
#include "policy/document.h"
#include "policy/limits.h"
#include "policy/names.h"
#include "policy/network_document.h"
#include "policy/units.h"
#include "policy/yaml_text.h"

namespace caisson::policy {
namespace {

json::Value text_value(std::string_view text) {
  if (is_utf8(text)) return text;
  json::Value value = json::Value::object();
  value.set("base64", base64_encode(text));
  return value;
}

json::Value tree_of(const SpecValues& values) {
  json::Value root = json::Value::object();
  if (!values.image.empty()) root.set("image", values.image);
  root.set("wall", to_string(values.wall));
  root.set("emulation", kEmulationNames[values.allow_emulation ? 1 : 0]);
  json::Value command = json::Value::array();
  for (const std::string& argument : values.command) command.push(text_value(argument));
  root.set("command", std::move(command));
  if (values.entrypoint.has_value()) {
    json::Value entrypoint = json::Value::array();
    for (const std::string& argument : *values.entrypoint) entrypoint.push(text_value(argument));
    root.set("entrypoint", std::move(entrypoint));
  }
  json::Value::Object env;
  for (const auto& [name, value] : values.env) env.push_back({name, text_value(value)});
  root.set("env", std::move(env));
  if (!values.user.empty()) root.set("user", values.user);
  root.set("privileges", to_string(values.privileges));
  root.set("profile", to_string(values.profile));
  root.set("on_refusal", to_string(values.on_refusal));
  if (!values.workdir.empty()) root.set("workdir", text_value(values.workdir));
  if (!values.hostname.empty()) root.set("hostname", values.hostname);
  json::Value files = json::Value::array();
  for (const Grant& grant : values.grants) {
    json::Value item = json::Value::object();
    item.set("from", text_value(grant.from)).set("to", text_value(grant.to));
    item.set("mode", to_string(grant.mode));
    files.push(std::move(item));
  }
  for (const Output& output : values.outputs) {
    json::Value item = json::Value::object();
    item.set("out", text_value(output.path)).set("to", text_value(output.to));
    files.push(std::move(item));
  }
  root.set("files", std::move(files));
  root.set("layer", to_string(values.layer));
  json::Value limits = json::Value::object();
  for (const LimitRule& rule : kLimitRules) {
    limits.set(rule.key, format_limit(rule.unit, values.limits.*rule.value));
  }
  root.set("limits", std::move(limits));
  root.set("require_hard_limits", values.require_hard_limits);
  root.set("network", network_tree(values.network));
  root.set("secrets", json::Value::array());
  return root;
}

void write_flow(const json::Value& value, std::string& out) {
  if (const auto* items = value.as_array()) {
    out += '[';
    bool first = true;
    for (const json::Value& item : *items) {
      if (!std::exchange(first, false)) out += ", ";
      write_flow(item, out);
    }
    out += ']';
  } else if (const auto* members = value.as_object()) {
    out += '{';
    bool first = true;
    for (const json::Member& member : *members) {
      if (!std::exchange(first, false)) out += ", ";
      write_yaml_text(member.key, out);
      out += ": ";
      write_flow(member.value, out);
    }
    out += '}';
  } else if (const auto* text = value.as_string()) {
    write_yaml_text(*text, out);
  } else {
    out += json::serialize(value);
  }
}

// The amounts are written without quotes: they are one of a few harmless forms.
void write_limits(const json::Value& limits, std::string& out) {
  out += "limits:\n";
  for (const json::Member& member : *limits.as_object()) {
    out.append("  ").append(member.key).append(": ").append(*member.value.as_string()) += '\n';
  }
}

std::string to_yaml(const json::Value& root) {
  std::string out;
  for (const json::Member& member : *root.as_object()) {
    if (member.key == "limits") {
      write_limits(member.value, out);
      continue;
    }
    out.append(member.key).append(":");
    const auto* items = member.value.as_array();
    const auto* members = member.value.as_object();
    if (member.key == "files" && !items->empty()) {
      out += '\n';
      for (const json::Value& item : *items) {
        out += "  - ";
        write_flow(item, out);
        out += '\n';
      }
    } else if (member.key == "env" && !members->empty()) {
      out += '\n';
      for (const json::Member& variable : *members) {
        out += "  ";
        write_yaml_text(variable.key, out);
        out += ": ";
        write_flow(variable.value, out);
        out += '\n';
      }
    } else {
      out += ' ';
      write_flow(member.value, out);
      out += '\n';
    }
  }
  return out;
}

}  // namespace

std::string print_spec(const SandboxSpec& spec, Format format) {
  const json::Value root = tree_of(spec.values());
  if (format == Format::kYaml) return to_yaml(root);
  return json::serialize(root, json::Layout::kPretty) + "\n";
}

}  // namespace caisson::policy
