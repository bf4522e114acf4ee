// caisson ps: the sandboxes that run.
#include <caisson/sandbox.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/server_options.h"
#include "cli/table.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 2> kOptions = {{
    {.name = "--json", .help = "Print one line of JSON: a list."},
    {.name = "--quiet", .letter = 'q', .help = "Print ids alone."},
}};
constexpr std::array<OptionGroup, 2> kGroups = {{{"Options", kOptions}, kServerGroup}};
constexpr std::array<Example, 1> kExamples = {
    {{"caisson ps", "what runs, since when, and how long it still may"}}};
constexpr std::size_t kMostCommand = 60;
constexpr std::size_t kMostPorts = 40;

std::string command_line(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& argument : command) {
    if (!line.empty()) line += ' ';
    line += argument;
  }
  std::ranges::replace(line, '\n', ' ');
  line = shown(line);
  if (line.size() > kMostCommand) line = line.substr(0, kMostCommand - 3) + "...";
  return line;
}

// What the image says it listens on; nothing of it is reachable from outside.
std::string ports(const std::vector<std::string>& exposed) {
  std::string text;
  for (const std::string& port : exposed) {
    if (text.size() + port.size() > kMostPorts) return text + ",...";
    if (!text.empty()) text += ',';
    text += port;
  }
  return text.empty() ? "-" : shown(text);
}

}  // namespace

constinit const CommandTable kPsTable = {
    .name = "ps",
    .synopsis = "[OPTIONS]",
    .summary = "List the sandboxes that run",
    .text =
        "Lists those of this user, oldest first. PORTS are what "
        "an image says that it listens on; none is published.",
    .groups = kGroups,
    .examples = kExamples};

int run_ps(const Parsed& parsed, Host& host) {
  if (!parsed.arguments.empty()) {
    say("caisson ps takes no arguments, '" + parsed.arguments[0] + "' was given");
    return kExitOwnError;
  }
  const auto list = host.list();
  if (!list.has_value()) return say_error(list.error());
  if (parsed.has("--json")) {
    json::Value all = json::Value::array();
    for (const SandboxInfo& info : *list) all.push(host.shown(info));
    write_all(1, json::serialize(all) + "\n");
    return 0;
  }
  if (parsed.has("--quiet")) {
    for (const SandboxInfo& info : *list) write_all(1, info.id + "\n");
    return 0;
  }
  const std::int64_t now = std::chrono::duration_cast<std::chrono::milliseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  TextTable table({"ID", "STATE", "WALL", "IMAGE", "AGE", "LEFT", "PORTS", "COMMAND"});
  for (const SandboxInfo& info : *list)
    table.add({info.id, info.paused ? "paused" : "running", info.wall, shown(info.image),
               duration_text(now - info.created_ms),
               info.deadline_ms.has_value() ? duration_text(*info.deadline_ms - now) : "unlimited",
               ports(info.exposed_ports), command_line(info.command)});
  write_all(1, table.text());
  return 0;
}

}  // namespace caisson::cli
