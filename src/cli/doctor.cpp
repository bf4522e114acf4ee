// caisson doctor: which walls and features work on this host, and what would make the rest work.
#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "wall/namespace/probe.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 1> kOptions = {{
    {.name = "--json", .help = "Print one line of JSON: a list of findings."},
}};
constexpr std::array<OptionGroup, 1> kGroups = {{{"Options", kOptions}}};
constexpr std::array<Example, 1> kExamples = {
    {{"caisson doctor", "what works here, and how to get what does not"}}};

constexpr std::string_view kDefaultWall = "namespace";

std::string_view mark(wall::FeatureState state) {
  switch (state) {
    case wall::FeatureState::kWorks:
      return "  ok       ";
    case wall::FeatureState::kLimited:
      return "  limited  ";
    case wall::FeatureState::kMissing:
      return "  missing  ";
  }
  return "";
}

std::string report_text(const std::vector<wall::Finding>& findings) {
  std::string out;
  std::string_view wall;
  for (const wall::Finding& finding : findings) {
    if (finding.wall != wall) {
      if (!out.empty()) out += '\n';
      wall = finding.wall;
      out += "wall " + finding.wall + "\n";
    }
    out += mark(finding.state);
    out += finding.feature;
    if (!finding.detail.empty()) out += ": " + finding.detail;
    out += '\n';
    if (!finding.remedy.empty()) out += "           -> " + finding.remedy + "\n";
  }
  return out;
}

std::string report_json(const std::vector<wall::Finding>& findings) {
  json::Value all = json::Value::array();
  for (const wall::Finding& finding : findings) {
    json::Value entry = json::Value::object();
    entry.set("wall", finding.wall);
    entry.set("feature", finding.feature);
    entry.set("state", wall::to_string(finding.state));
    entry.set("detail", finding.detail);
    entry.set("remedy", finding.remedy);
    all.push(std::move(entry));
  }
  return json::serialize(all) + "\n";
}

}  // namespace

constinit const CommandTable kDoctorTable = {
    .name = "doctor",
    .synopsis = "[OPTIONS]",
    .summary = "Say which walls and features work on this host, and what would make the rest work",
    .text = "Changes nothing. The exit status is 0 where the namespace wall works, else 1.",
    .groups = kGroups,
    .examples = kExamples};

int run_doctor(const Parsed& parsed) {
  if (!parsed.arguments.empty()) {
    say("caisson doctor takes no arguments, '" + parsed.arguments[0] + "' was given");
    return kExitOwnError;
  }
  const std::vector<wall::Finding> findings = wall::diagnose(wall::probe_host());
  write_all(1, parsed.has("--json") ? report_json(findings) : report_text(findings));
  const bool works = std::ranges::any_of(findings, [](const wall::Finding& finding) {
    return finding.wall == kDefaultWall && finding.feature == "wall" &&
           finding.state != wall::FeatureState::kMissing;
  });
  return works ? 0 : 1;
}

}  // namespace caisson::cli
