// What caisson-template-builder, the process of one build, is told and what it says: one JSON
// object a line over its socket (descriptor 3), first the job, then its own lines, of which the
// last is the result.
//
// The server starts that process with its own rights, since a build blocks and starts programs; the
// job may hold a login and therefore never is an argument. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "build/template_steps.h"
#include "image/registry/credentials.h"

namespace caisson::build {

inline constexpr int kTemplateJobFd = 3;
// Of one line, both ways; a job has at most kMaxTemplateSteps steps of a request's body.
inline constexpr std::size_t kMaxJobLine = 4 << 20;

struct TemplateJob {
  // Of a template that is built on the image is an id and need not be pulled.
  TemplateSpec spec;  // `user` and `workdir` of a template that is built on come from its image
  std::string name;   // what the image is called when it is done
  std::map<std::string, std::string> archives;  // files of COPY, by their hash
  std::optional<std::uint64_t> cpu_milli, memory;
  std::vector<std::string> hosts;       // that commands reach
  std::vector<std::string> registries;  // from where images may be pulled; "*" is any
  std::optional<image::Credentials> login;
};

struct JobLog {
  enum class Level : std::uint8_t { kDebug, kInfo, kWarn, kError } level = Level::kInfo;
  std::string step;  // "base", a number, "finalize"
  std::string text;
  bool operator==(const JobLog&) const = default;
};
struct JobDone {
  std::string image;  // its id, 64 hexadecimal digits
  bool operator==(const JobDone&) const = default;
};
struct JobFailed {
  std::string step, text;
  bool operator==(const JobFailed&) const = default;
};
using JobLine = std::variant<JobLog, JobDone, JobFailed>;

// Without the newline.
std::string encode(const TemplateJob& job);
Result<TemplateJob> parse_template_job(std::string_view line);
std::string encode(const JobLine& line);
Result<JobLine> parse_job_line(std::string_view line);

}  // namespace caisson::build
