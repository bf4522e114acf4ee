#include "api/e2b/process_state.h"

#include <utility>

#include "api/e2b/messages.h"
#include "api/e2b/wire.h"
#include "base/encoding.h"
#include "base/proto.h"
#include "fleet/process_log.h"

namespace caisson::api::e2b {

using json::Value;

namespace {

std::string label_text(const Value& config, const ProcessLabel& label) {
  Value text = Value::object();
  text.set("config", config);
  if (label.tag.has_value()) text.set("tag", *label.tag);
  if (label.terminal == Terminal::kPty) text.set("pty", true);
  return json::serialize(text);
}

// So much of it, and no part of a character.
std::string cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  text = text.substr(0, most);
  return std::string(text.substr(0, utf8_prefix(text))) + "…";
}

Value with_short_arguments(const Value& config, std::size_t each) {
  Value shorter = Value::object();
  shorter.set("cmd", cut(text_of(config, "cmd"), each));
  if (const Value* cwd = config.find("cwd")) shorter.set("cwd", cut(*cwd->as_string(), each));
  Value::Array shown;
  if (const Value* args = config.find("args")) {
    for (const Value& arg : *args->as_array()) {
      if (shown.size() >= 16) break;
      shown.emplace_back(cut(*arg.as_string(), each));
    }
  }
  return shorter.set("args", Value(std::move(shown)));
}

}  // namespace

std::string encode_label(const ProcessLabel& label) {
  std::string text = label_text(label.config, label);
  if (text.size() <= proto::kMaxLabel) return text;
  Value config = Value::object();
  for (const json::Member& member : *label.config.as_object())
    if (member.key != "envs") config.set(member.key, member.value);
  text = label_text(config, label);
  // A byte is at most six in JSON.
  for (std::size_t each = 1024; text.size() > proto::kMaxLabel && each > 0; each /= 2)
    text = label_text(with_short_arguments(config, each), label);
  return text;
}

ProcessLabel decode_label(std::string_view text) {
  ProcessLabel label;
  const Result<Value> value = json::parse(text);
  if (!value.has_value()) return label;
  if (const Value* config = value->find("config")) {
    Result<Value> checked =
        decode_message(kProcessConfig, Encoding::kJson, json::serialize(*config));
    if (checked.has_value()) label.config = std::move(*checked);
  }
  const Value* tag = value->find("tag");
  if (tag != nullptr && tag->as_string() != nullptr) label.tag = *tag->as_string();
  if (truth_of(*value, "pty")) label.terminal = Terminal::kPty;
  return label;
}

Result<Value> end_event(const Outcome& outcome) {
  if (outcome.verdict == Verdict::kSandboxError) {
    return fail(Error::internal(outcome.detail.empty() ? "the sandbox failed" : outcome.detail));
  }
  // What a limit or we ourselves ended has no status of its own always.
  const bool ended_by_us = outcome.verdict == Verdict::kTimeLimit ||
                           outcome.verdict == Verdict::kCancelled ||
                           outcome.verdict == Verdict::kOutputLimit;
  constexpr std::uint32_t kKilled = 9;
  const std::uint32_t signal =
      outcome.signal == 0 && ended_by_us && outcome.exit_code == 0 ? kKilled : outcome.signal;
  Value event = Value::object();
  std::string status;
  if (signal != 0) {
    status =
        "signal: " + fleet::signal_text(signal) + (outcome.core_dumped ? " (core dumped)" : "");
    event.set("exitCode", -1).set("exited", false);
  } else {
    status = "exit status " + std::to_string(outcome.exit_code);
    event.set("exitCode", static_cast<std::int32_t>(outcome.exit_code)).set("exited", true);
  }
  event.set("status", status);
  if (signal != 0 || outcome.exit_code != 0) {
    const bool plain = outcome.verdict == Verdict::kExited ||
                       outcome.verdict == Verdict::kSignaled ||
                       outcome.verdict == Verdict::kCancelled;
    event.set("error", plain || outcome.detail.empty() ? status : status + ": " + outcome.detail);
  }
  return event;
}

}  // namespace caisson::api::e2b
