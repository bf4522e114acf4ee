// The canonical form of a spec: one ordered JSON value, written as JSON or as YAML.
#include <algorithm>

#include "base/encoding.h"
#include "base/json.h"
#include "policy/document.h"
#include "policy/limits.h"
#include "policy/names.h"
#include "policy/units.h"

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
  root.set("network", to_string(values.network));
  root.set("secrets", json::Value::array());
  return root;
}

// Whether every YAML reader takes the unquoted word as text. Amounts such as 512MiB and 0.5 are
// words too: what begins with a digit and is no amount of ours is quoted by the caller's choice of
// kText.
bool is_plain_word(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !(letter(text[0]) || text[0] == '/' || text[0] == '_')) return false;
  if (!std::all_of(text.begin(), text.end(), [&](char c) {
        return letter(c) || digit(c) || c == '/' || c == '_' || c == '.' || c == '-';
      })) {
    return false;
  }
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (const std::string_view word :
       {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return false;
  }
  return true;
}

void write_escape(unsigned long code, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const int digits = code <= 0xff ? 2 : code <= 0xffff ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int i = digits - 1; i >= 0; --i) out += kHex[code >> (4 * i) & 15];
}

// `text` is UTF-8. ASCII without control characters stands as it is, everything else as an escape,
// because readers differ in which characters they take for line ends or drop.
void write_quoted(std::string_view text, std::string& out) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      if (first == '"' || first == '\\') out += '\\';
      if (first < 0x20 || first == 0x7f) {
        write_escape(first, out);
      } else {
        out += text[i];
      }
      ++i;
      continue;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    unsigned long code = first & (0x7fu >> length);
    for (std::size_t k = 1; k < length; ++k) {
      code = code << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3fu);
    }
    write_escape(code, out);
    i += length;
  }
  out += '"';
}

void write_text(std::string_view text, std::string& out) {
  if (is_plain_word(text)) {
    out += text;
  } else {
    write_quoted(text, out);
  }
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
      write_text(member.key, out);
      out += ": ";
      write_flow(member.value, out);
    }
    out += '}';
  } else if (const auto* text = value.as_string()) {
    write_text(*text, out);
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
        write_text(variable.key, out);
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
