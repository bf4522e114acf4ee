// What caisson-template-builder, the process of one build, is told and what it says: one JSON
// object a line over its socket, first the job, then its own lines, of which the last is the
// result. The files that the job copies come before it as descriptors, beside spaces.
//
// caisson-maker starts that process (maker/host.h) with the rights that a build needs; what the
// server may not decide, which hosts and registries are reached, it has from its environment. The
// job may hold a login and therefore never is an argument. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "build/template_steps.h"
#include "image/registry/credentials.h"

namespace caisson::build {

// Lists with commas, as the configuration's `builds` has them.
inline constexpr const char* kHostsVariable = "CAISSON_BUILD_HOSTS";
inline constexpr const char* kRegistriesVariable = "CAISSON_BUILD_REGISTRIES";
// Of one line, both ways; a job has at most kMaxTemplateSteps steps of a request's body.
inline constexpr std::size_t kMaxJobLine = 4 << 20;

struct TemplateJob {
  // Of a template that is built on the image is an id and need not be pulled.
  TemplateSpec spec;  // `user` and `workdir` of a template that is built on come from its image
  std::string name;   // what the image is called when it is done
  std::string team;   // whose cache of steps it uses (BuildOptions::cache_owner)
  std::vector<std::string> archives;  // hashes of the files, in the descriptors' order
  // Of the sandbox of each step; `disk` is the most that it may change, where the builder's usual
  // bound is higher.
  std::optional<std::uint64_t> cpu_milli, memory, disk;
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
// "a,b": its words; none of an empty text.
std::vector<std::string> split_list(std::string_view text);
Result<TemplateJob> parse_template_job(std::string_view line);
std::string encode(const JobLine& line);
Result<JobLine> parse_job_line(std::string_view line);

}  // namespace caisson::build
