// caisson-template-builder: one build of a template, for the server (build/template_job.h).
//
// caisson-maker starts it and it ends with the maker, in the middle of anything: what it was doing
// is removed by launchers and by the store's next sweep. Where the server drops the descriptor of
// its life it cancels the command that runs, so that its sandbox is removed, and ends soon.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/sys.h"
#include "build/base_image.h"
#include "build/builder.h"
#include "build/template_job.h"
#include "image/config.h"
#include "image/store.h"
#include "maker/host.h"
#include "maker/protocol.h"
#include "policy/settings.h"

namespace caisson::build {
namespace {

constexpr int kSocketFd = maker::kBuilderSocketFd, kLifeFd = maker::kBuilderLifeFd;
// From being told to end until it does in any case.
constexpr unsigned kMostSeconds = 10;
constexpr std::size_t kMostLine = 4096;
// As many as are kept of a build; a command that never stops talking is not to slow itself down.
constexpr std::size_t kMostLogLines = 20'000;

const Control* running = nullptr;
volatile sig_atomic_t cancelled = 0;

void stop() {
  cancelled = 1;
  if (running != nullptr) running->cancel();
  ::alarm(kMostSeconds);
}

bool is_unwanted() {
  pollfd entry{kLifeFd, 0, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0;
}

void on_life(int) {
  const int kept = errno;
  if (is_unwanted()) stop();
  errno = kept;
}

// From now on the end of the server's wish is noticed wherever this process is.
bool watch_life() {
  struct sigaction action = {};
  action.sa_handler = on_life;
  action.sa_flags = SA_RESTART;
  if (::sigaction(SIGIO, &action, nullptr) != 0 || ::fcntl(kLifeFd, F_SETOWN, ::getpid()) != 0 ||
      ::fcntl(kLifeFd, F_SETFL, O_ASYNC) != 0)
    return false;
  if (is_unwanted()) stop();
  return true;
}

// All of it; where nobody listens any more there is nothing left to do.
void write_line(std::string text) {
  text += '\n';
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t sent =
        TEMP_FAILURE_RETRY(::send(kSocketFd, rest.data(), rest.size(), MSG_NOSIGNAL));
    if (sent <= 0) {
      cancelled = 1;
      return;
    }
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
}

struct Given {
  TemplateJob job;
  std::vector<Fd> archives;
};

Result<Given> read_job() {
  std::string text;
  Given given;
  std::vector<char> room(65536);
  while (!text.ends_with('\n')) {
    sys::ReceivedPart part = sys::receive_part(kSocketFd, room);
    if (part.count < 0) return fail_errno("read the job");
    if (part.count == 0 || part.cut) return fail(Error::invalid("the job is cut off"));
    text.append(room.data(), static_cast<std::size_t>(part.count));
    for (Fd& fd : part.descriptors) given.archives.push_back(std::move(fd));
    if (text.size() > kMaxJobLine || given.archives.size() > kMaxTemplateSteps)
      return fail(Error::exhausted("the job is too long"));
  }
  TRY_ASSIGN(given.job, parse_template_job(text));
  if (given.archives.size() != given.job.archives.size())
    return fail(Error::invalid("the job has not as many files as it names"));
  return given;
}

std::vector<std::string> list_of(const char* variable) {
  const char* value = ::getenv(variable);
  return split_list(value == nullptr ? "" : value);
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

Result<JobLine> run(Given given, Log& log, const Control& control) {
  TemplateJob& job = given.job;
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
    TRY_ASSIGN(job.spec.image,
               have_base_image(store, job.spec.image, options.settings,
                               {.registries = list_of(kRegistriesVariable), .login = job.login},
                               progress));
  }
  TRY_ASSIGN(const BuildPlan plan, plan_template(job.spec));
  for (std::size_t at = 0; at < job.archives.size(); ++at) {
    struct stat info = {};
    if (::fstat(given.archives[at].get(), &info) != 0 || !S_ISREG(info.st_mode))
      return fail(Error::invalid("the files " + job.archives[at] + " are no file"));
    options.archives[job.archives[at]] = given.archives[at].get();
  }
  if (job.cpu_milli.has_value()) options.limits.cpu_milli = job.cpu_milli;
  if (job.memory.has_value()) options.limits.memory = job.memory;
  if (job.disk.has_value() && (!options.limits.disk || *job.disk < *options.limits.disk))
    options.limits.disk = job.disk;
  options.net = list_of(kHostsVariable);
  options.cache_owner = job.team;
  // Whoever gives the job has not the right to give other names a new meaning.
  if (!job.name.starts_with(maker::kTemplateNames))
    return fail(Error::invalid("the name " + image::printable(job.name) + " is no template's"));
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
  // A pull has the login that its job brings, or none: not that of whoever runs the server.
  if (::setenv("DOCKER_CONFIG", "/nonexistent", 1) != 0) return 1;
  // A starter that ended before this call has left no job, or nobody who listens.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return 1;
  for (const int fd : {kSocketFd, kLifeFd})
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return 1;
  ::signal(SIGPIPE, SIG_IGN);
  auto control = Control::create();
  if (!control.has_value()) return 1;
  running = &*control;
  if (!watch_life()) return 1;
  auto given = read_job();
  if (!given.has_value()) {
    write_line(encode(JobLine(JobFailed{.step = "base", .text = given.error().message()})));
    return 1;
  }
  const TemplateSpec spec = given->job.spec;
  Log log(spec);
  auto result = run(std::move(*given), log, *control);
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
