#include "cli/build_progress.h"

#include <algorithm>

#include "base/json.h"
#include "cli/messages.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace caisson::cli {
namespace {

using build::BuildEvent;

constexpr std::size_t kMostLine = 4096;

std::string number_of(const BuildEvent& event) {
  return "#" + std::to_string(event.number);
}

std::string_view name_of(BuildEvent::Kind kind) {
  switch (kind) {
    case BuildEvent::Kind::kNote:
      return "note";
    case BuildEvent::Kind::kStarted:
      return "started";
    case BuildEvent::Kind::kOutput:
      return "output";
    case BuildEvent::Kind::kCached:
      return "cached";
    case BuildEvent::Kind::kDone:
      return "done";
    case BuildEvent::Kind::kFailed:
      return "failed";
    case BuildEvent::Kind::kFinishing:
      return "finishing";
  }
  return "";
}

}  // namespace

void BuildProgress::print(std::string_view line) {
  clear_line();
  EscapeFilter filter;
  std::string text = filtered_ ? filter.filter(line) + filter.finish() : std::string(line);
  // A carriage return would write over what stands there.
  std::erase(text, '\r');
  write_all(2, text + "\n");
}

void BuildProgress::clear_line() {
  if (shown_) write_all(2, "\r\x1b[K");
  shown_ = false;
}

void BuildProgress::status_line(std::string_view last) {
  const std::size_t width = std::max<std::size_t>(terminal_size(2).columns, 20) - 1;
  std::string text = step_;
  if (!last.empty()) text += ": " + std::string(last);
  // What has a width that we do not know would break the line.
  for (char& c : text)
    if (c < 0x20 || c > 0x7e) c = '?';
  write_all(2, "\r\x1b[K" + text.substr(0, width));
  shown_ = true;
}

void BuildProgress::output_line(const BuildEvent& event, std::string_view line) {
  if (style_ == ProgressStyle::kPlain)
    return print(number_of(event) + " " + std::string(line.substr(0, kMostLine)));
  status_line(line.substr(0, 200));
}

void BuildProgress::take_output(const BuildEvent& event) {
  std::string& partial = partial_[event.channel == OutputChannel::kStdout ? 0 : 1];
  std::string_view rest = event.bytes;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    partial += rest.substr(0, end);
    if (end == std::string_view::npos) {
      if (partial.size() < kMostLine) return;
      rest = {};
    } else {
      rest.remove_prefix(end + 1);
    }
    output_line(event, partial);
    partial.clear();
  }
}

void BuildProgress::flush_output(const BuildEvent& event) {
  for (std::string& partial : partial_) {
    if (!partial.empty()) output_line(event, partial);
    partial.clear();
  }
}

void BuildProgress::show_json(const BuildEvent& event) {
  json::Value line = json::Value::object();
  line.set("event", name_of(event.kind));
  if (event.number != 0) {
    line.set("number", event.number);
    line.set("total", event.total);
  }
  if (event.line != 0) line.set("line", event.line);
  if (!event.stage.empty()) line.set("stage", event.stage);
  if (event.kind == BuildEvent::Kind::kOutput) {
    line.set("channel", event.channel == OutputChannel::kStdout ? "stdout" : "stderr");
    line.set("text", event.bytes);
  } else if (!event.text.empty()) {
    line.set("text", event.text);
  }
  if (event.kind == BuildEvent::Kind::kDone || event.kind == BuildEvent::Kind::kFailed)
    line.set("elapsed_ms", event.elapsed_ms);
  if (event.kind == BuildEvent::Kind::kDone) line.set("layer_bytes", event.layer_bytes);
  write_all(1, json::serialize(line) + "\n");
}

void BuildProgress::show(const BuildEvent& event) {
  if (style_ == ProgressStyle::kQuiet) return;
  if (style_ == ProgressStyle::kJson) return show_json(event);
  switch (event.kind) {
    case BuildEvent::Kind::kNote:
      return print((event.number == 0 ? "" : number_of(event) + " ") + "note: " + event.text);
    case BuildEvent::Kind::kStarted:
      step_ = number_of(event) + " [" + event.stage + "] " + event.text;
      print(step_);
      if (style_ == ProgressStyle::kTerminal) status_line({});
      return;
    case BuildEvent::Kind::kOutput:
      return take_output(event);
    case BuildEvent::Kind::kCached:
      return print(number_of(event) + " CACHED");
    case BuildEvent::Kind::kDone: {
      flush_output(event);
      std::string text = number_of(event) + " DONE " + duration_text(event.elapsed_ms);
      if (event.layer_bytes != 0) text += ", " + size_text(event.layer_bytes);
      return print(text);
    }
    case BuildEvent::Kind::kFailed:
      flush_output(event);
      return print(number_of(event) + " FAILED after " + duration_text(event.elapsed_ms));
    case BuildEvent::Kind::kFinishing:
      step_ = "making the image";
      if (style_ == ProgressStyle::kTerminal) status_line({});
      return;
  }
}

void BuildProgress::conclude(const build::BuildReport& report, std::string_view names) {
  if (style_ == ProgressStyle::kJson) {
    json::Value line = json::Value::object();
    line.set("event", report.failure.has_value() ? "failure" : "built");
    if (report.failure.has_value()) {
      line.set("text", report.failure->text());
      if (!report.failure->place.empty()) line.set("place", report.failure->place);
      line.set("step", report.failure->step);
      line.set("reason", report.failure->reason);
      if (report.failure->outcome.has_value())
        line.set("verdict", to_string(report.failure->outcome->verdict));
      json::Value tail = json::Value::array();
      for (const std::string& text : report.failure->tail) tail.push(text);
      line.set("tail", std::move(tail));
    } else {
      line.set("image", "sha256:" + report.image_id);
    }
    line.set("cached", report.cached);
    line.set("elapsed_ms", report.elapsed_ms);
    write_all(1, json::serialize(line) + "\n");
    return;
  }
  clear_line();
  if (report.failure.has_value()) {
    if (!report.failure->tail.empty()) {
      print("----");
      for (const std::string& text : report.failure->tail) print(text.substr(0, kMostLine));
      print("----");
    }
    return say(shown(report.failure->text()));
  }
  if (style_ == ProgressStyle::kQuiet) {
    write_all(1, "sha256:" + report.image_id + "\n");
    return;
  }
  print("built sha256:" + report.image_id.substr(0, 12) +
        (names.empty() ? "" : " as " + std::string(names)) + " in " +
        duration_text(report.elapsed_ms) + " (" + std::to_string(report.cached) +
        " steps from the cache)");
}

}  // namespace caisson::cli
