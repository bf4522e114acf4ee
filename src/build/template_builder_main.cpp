// caisson-template-builder: one build of a template, for the server (build/template_job.h).
//
// It ends with its starter, in the middle of anything: what it was doing is removed by launchers
// and by the store's next sweep. SIGTERM cancels the command that runs, so that its sandbox is
// removed before this ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "build/base_image.h"
#include "build/builder.h"
#include "build/template_job.h"
#include "image/config.h"
#include "image/store.h"
#include "policy/settings.h"

namespace caisson::build {
namespace {

constexpr std::size_t kMostLine = 4096;
// As many as are kept of a build; a command that never stops talking is not to slow itself down.
constexpr std::size_t kMostLogLines = 20'000;

const Control* running = nullptr;
volatile sig_atomic_t cancelled = 0;

void on_terminate(int) {
  cancelled = 1;
  if (running != nullptr) running->cancel();
}

// All of it; where nobody listens any more there is nothing left to do.
void write_line(std::string text) {
  text += '\n';
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t sent =
        TEMP_FAILURE_RETRY(::send(kTemplateJobFd, rest.data(), rest.size(), MSG_NOSIGNAL));
    if (sent <= 0) {
      cancelled = 1;
      return;
    }
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
}

Result<std::string> read_job() {
  std::string text;
  std::array<char, 65536> piece;
  while (!text.ends_with('\n')) {
    const ssize_t count = TEMP_FAILURE_RETRY(::recv(kTemplateJobFd, piece.data(), piece.size(), 0));
    if (count < 0) return fail_errno("read the job");
    if (count == 0) return fail(Error::invalid("the job is cut off"));
    text.append(piece.data(), static_cast<std::size_t>(count));
    if (text.size() > kMaxJobLine) return fail(Error::exhausted("the job is too long"));
  }
  text.pop_back();
  return text;
}

// What the build says, as lines.
class Log {
 public:
  explicit Log(const TemplateSpec& spec) : spec_(spec) {}

  const std::string& step() const { return step_; }
  void say(JobLog::Level level, std::string text) {
    if (++lines_ > kMostLogLines) return;
    write_line(encode(JobLine(JobLog{.level = level, .step = step_, .text = std::move(text)})));
  }
  void show(const BuildEvent& event) {
    switch (event.kind) {
      case BuildEvent::Kind::kNote:
        return say(JobLog::Level::kInfo, event.text);
      case BuildEvent::Kind::kStarted:
        step_ = template_step_name(spec_, event.number);
        return say(JobLog::Level::kInfo, "[" + std::to_string(event.number) + "/" +
                                             std::to_string(event.total) + "] " +
                                             event.text.substr(0, kMostLine));
      case BuildEvent::Kind::kOutput:
        return take_output(event);
      case BuildEvent::Kind::kCached:
        return say(JobLog::Level::kInfo, "taken from the cache");
      case BuildEvent::Kind::kDone:
      case BuildEvent::Kind::kFailed:
        return flush();
      case BuildEvent::Kind::kFinishing:
        step_ = "finalize";
        return say(JobLog::Level::kInfo, "putting the image together");
    }
  }

 private:
  static constexpr std::array<JobLog::Level, 2> kLevels = {JobLog::Level::kInfo,
                                                           JobLog::Level::kWarn};

  void take_output(const BuildEvent& event) {
    const std::size_t at = event.channel == OutputChannel::kStdout ? 0 : 1;
    std::string_view rest = event.bytes;
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      partial_[at] += rest.substr(0, std::min(end, kMostLine - partial_[at].size()));
      const bool whole = end != std::string_view::npos;
      rest.remove_prefix(whole ? end + 1 : rest.size());
      if (whole || partial_[at].size() >= kMostLine)
        say(kLevels[at], std::exchange(partial_[at], {}));
    }
  }
  void flush() {
    for (std::size_t at = 0; at < partial_.size(); ++at)
      if (!partial_[at].empty()) say(kLevels[at], std::exchange(partial_[at], {}));
  }

  const TemplateSpec& spec_;
  std::string step_ = "base";
  std::array<std::string, 2> partial_;
  std::size_t lines_ = 0;
};

// A template that is built on has a user and a folder already.
Status take_over_defaults(image::Store& store, TemplateSpec& spec) {
  TRY_ASSIGN(const std::string id, store.find(spec.image));
  TRY_ASSIGN(const std::string json, store.read_blob(id));
  TRY_ASSIGN(const image::ImageConfig config, image::parse_image_config(json));
  spec.user = config.user.empty() ? "root" : config.user;
  spec.workdir = config.workdir.empty() ? "/" : config.workdir;
  return {};
}

Result<JobLine> run(TemplateJob job, Log& log, const Control& control) {
  BuildOptions options;
  TRY_ASSIGN(options.settings, policy::load_settings());
  TRY_ASSIGN(image::Store store, image::Store::open());
  image::PullProgress progress;
  progress.begin = [&](std::size_t layers, std::uint64_t bytes) {
    log.say(JobLog::Level::kInfo, "pulling " + job.spec.image + ": " + std::to_string(layers) +
                                      " layers of " + std::to_string(bytes) + " bytes");
  };
  progress.note = [&](const std::string& text) { log.say(JobLog::Level::kWarn, text); };
  if (job.spec.provision == Provision::kNo) {
    TRY(take_over_defaults(store, job.spec));
  } else {
    TRY(have_base_image(store, job.spec.image, options.settings,
                        {.registries = job.registries, .login = job.login}, progress));
  }
  TRY_ASSIGN(const BuildPlan plan, plan_template(job.spec));
  std::vector<Fd> archives;
  for (const auto& [hash, path] : job.archives) {
    Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file.valid()) return fail_errno("open the files " + hash);
    options.archives[hash] = file.get();
    archives.push_back(std::move(file));
  }
  options.limits.cpu_milli = job.cpu_milli;
  options.limits.memory = job.memory;
  options.net = job.hosts;
  TRY_ASSIGN(image::Reference name, image::parse_reference(job.name));
  options.names.push_back(std::move(name));
  options.control = &control;
  options.cancelled = [] { return cancelled != 0; };
  TRY_ASSIGN(const BuildReport report,
             build(store, plan, options, [&](const BuildEvent& event) { log.show(event); }));
  if (!report.failure.has_value()) return JobLine(JobDone{.image = report.image_id});
  return JobLine(JobFailed{.step = log.step(), .text = template_error(*report.failure)});
}

int main_of_build() {
  // A starter that ended before this call has left no job, or nobody who listens.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return 1;
  if (::fcntl(kTemplateJobFd, F_SETFD, FD_CLOEXEC) != 0) return 1;
  ::signal(SIGPIPE, SIG_IGN);
  auto control = Control::create();
  if (!control.has_value()) return 1;
  running = &*control;
  struct sigaction action = {};
  action.sa_handler = on_terminate;
  ::sigaction(SIGTERM, &action, nullptr);
  const auto text = read_job();
  if (!text.has_value()) return 1;
  auto job = parse_template_job(*text);
  if (!job.has_value()) return 1;
  const TemplateSpec spec = job->spec;
  Log log(spec);
  auto result = run(std::move(*job), log, *control);
  write_line(encode(result.has_value() ? *result
                                       : JobLine(JobFailed{.step = log.step(),
                                                           .text = result.error().message()})));
  running = nullptr;
  return 0;
}

}  // namespace
}  // namespace caisson::build

int main() {
  return caisson::build::main_of_build();
}
