#include "build/template_job.h"

#include <array>
#include <utility>

#include "base/sha256.h"

namespace caisson::build {
namespace {

using json::Value;

constexpr std::array<std::string_view, 4> kLevels = {"debug", "info", "warn", "error"};
constexpr json::ParseLimits kLimits = {.bytes = kMaxJobLine, .depth = 32, .values = 200'000};

std::string text_of(const Value& value, std::string_view key) {
  const Value* found = value.find(key);
  return found != nullptr && found->as_string() != nullptr ? *found->as_string() : "";
}

bool truth_of(const Value& value, std::string_view key) {
  const Value* found = value.find(key);
  return found != nullptr && found->as_bool() != nullptr && *found->as_bool();
}

std::optional<std::uint64_t> number_of(const Value& value, std::string_view key) {
  const Value* found = value.find(key);
  if (found == nullptr || found->as_integer() == nullptr || *found->as_integer() < 0)
    return std::nullopt;
  return static_cast<std::uint64_t>(*found->as_integer());
}

Value strings(const std::vector<std::string>& texts) {
  Value array = Value::array();
  for (const std::string& text : texts) array.push(text);
  return array;
}

std::vector<std::string> strings_of(const Value& value, std::string_view key) {
  std::vector<std::string> texts;
  const Value* found = value.find(key);
  if (found == nullptr || found->as_array() == nullptr) return texts;
  for (const Value& item : *found->as_array())
    if (item.as_string() != nullptr) texts.push_back(*item.as_string());
  return texts;
}

Value steps_value(const std::vector<TemplateStep>& steps) {
  Value array = Value::array();
  for (const TemplateStep& step : steps) {
    Value value = Value::object();
    value.set("type", step.type).set("args", strings(step.args)).set("force", step.force);
    if (!step.files_hash.empty()) value.set("filesHash", step.files_hash);
    array.push(std::move(value));
  }
  return array;
}

}  // namespace

std::string encode(const TemplateJob& job) {
  Value value = Value::object();
  value.set("image", job.spec.image)
      .set("steps", steps_value(job.spec.steps))
      .set("startCommand", job.spec.start_command)
      .set("readyCommand", job.spec.ready_command)
      .set("force", job.spec.force)
      .set("provision", job.spec.provision == Provision::kYes)
      .set("calledImage", job.spec.called)
      .set("name", job.name)
      .set("team", job.team)
      .set("archives", strings(job.archives));
  if (job.cpu_milli.has_value()) value.set("cpuMilli", *job.cpu_milli);
  if (job.memory.has_value()) value.set("memory", *job.memory);
  if (job.disk.has_value()) value.set("disk", *job.disk);
  if (job.login.has_value()) value.set("user", job.login->user).set("password", job.login->secret);
  return json::serialize(value);
}

Result<TemplateJob> parse_template_job(std::string_view line) {
  TRY_ASSIGN(const Value value, json::parse(line, kLimits));
  TemplateJob job;
  job.spec.image = text_of(value, "image");
  job.spec.called = text_of(value, "calledImage");
  job.name = text_of(value, "name");
  job.team = text_of(value, "team");
  // Without a team it would share the cache of whoever builds on this host.
  if (job.spec.image.empty() || job.name.empty() || job.team.empty())
    return fail(Error::invalid("a job has an image, a name and a team"));
  const Value* steps = value.find("steps");
  if (steps == nullptr) return fail(Error::invalid("steps: allowed is a list"));
  TRY_ASSIGN(job.spec.steps, parse_template_steps(*steps));
  job.spec.start_command = text_of(value, "startCommand");
  job.spec.ready_command = text_of(value, "readyCommand");
  job.spec.force = truth_of(value, "force");
  job.spec.provision = truth_of(value, "provision") ? Provision::kYes : Provision::kNo;
  job.archives = strings_of(value, "archives");
  job.cpu_milli = number_of(value, "cpuMilli");
  job.memory = number_of(value, "memory");
  job.disk = number_of(value, "disk");
  if (value.find("user") != nullptr) {
    job.login.emplace();
    job.login->user = text_of(value, "user");
    job.login->secret = text_of(value, "password");
  }
  return job;
}

std::string encode(const JobLine& line) {
  Value value = Value::object();
  if (const auto* log = std::get_if<JobLog>(&line)) {
    value.set("log", log->text)
        .set("step", log->step)
        .set("level", kLevels[static_cast<std::size_t>(log->level)]);
  } else if (const auto* failed = std::get_if<JobFailed>(&line)) {
    value.set("failure", failed->text).set("step", failed->step);
  } else {
    value.set("image", std::get<JobDone>(line).image);
  }
  return json::serialize(value);
}

Result<JobLine> parse_job_line(std::string_view line) {
  TRY_ASSIGN(const Value value, json::parse(line, kLimits));
  if (std::string image = text_of(value, "image"); is_sha256(image))
    return JobDone{.image = std::move(image)};
  if (value.find("failure") != nullptr)
    return JobFailed{.step = text_of(value, "step"), .text = text_of(value, "failure")};
  if (value.find("log") == nullptr)
    return fail(Error::invalid("a line of a build is a log, a failure or its end"));
  JobLog log{.step = text_of(value, "step"), .text = text_of(value, "log")};
  const std::string level = text_of(value, "level");
  for (std::size_t at = 0; at < kLevels.size(); ++at)
    if (kLevels[at] == level) log.level = static_cast<JobLog::Level>(at);
  return log;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = text.find(',');
    if (end != 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return words;
}

}  // namespace caisson::build
