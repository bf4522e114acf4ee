// caisson image build: an image from a Dockerfile.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sys.h"
#include "build/builder.h"
#include "build/dockerfile.h"
#include "build/plan.h"
#include "cli/build_progress.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/terminal.h"
#include "egress/allow_list.h"
#include "image/config.h"
#include "image/store.h"
#include "policy/flags.h"
#include "policy/settings.h"

namespace caisson::cli {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitCancelled = 130;

constexpr std::array<Option, 10> kBuildOptions = {{
    {.name = "--file",
     .letter = 'f',
     .value = "FILE",
     .help = "The Dockerfile; '-' reads it from a pipe. Default: Dockerfile in the context.",
     .complete = Complete::kFile},
    {.name = "--tag",
     .letter = 't',
     .value = "NAME[:TAG]",
     .help = "Name the image so when it is built. May be given several times."},
    {.name = "--build-arg",
     .value = "NAME[=VALUE]",
     .help = "The value of an ARG; without =VALUE that of the caller's variable. It is kept in the "
             "image's "
             "history: nothing for secrets."},
    {.name = "--target", .value = "STAGE", .help = "Build this stage and what it needs."},
    {.name = "--label", .value = "NAME=VALUE", .help = "A label of the image."},
    {.name = "--no-cache", .help = "Run every step, whatever the cache has."},
    {
        .name = "--net",
        .value = "HOST[:PORT]",
        .help =
            "Let RUN reach this host by HTTP and HTTPS (without :PORT at 80 and 443), through a "
            "proxy that the variables http_proxy and https_proxy name. May be given several "
            "times; without it there is no network.",
    },
    {.name = "--progress",
     .value = "plain|tty|json",
     .help = "How progress is shown. Default: tty on a terminal, else plain.",
     .complete = Complete::kWords,
     .words = "plain tty json"},
    {.name = "--quiet", .letter = 'q', .help = "Print the image's id alone."},
    {.name = "--verbose", .letter = 'v', .help = "On a terminal, too, show all output."},
}};
constexpr std::array<Option, 7> kBuildLimits = {{
    {.name = "--memory",
     .letter = 'm',
     .value = "SIZE",
     .help = "Memory of a step. Default: 2GiB."},
    {.name = "--cpus", .value = "N", .help = "Processors of a step. Default: unlimited."},
    {.name = "--pids", .value = "N", .help = "Processes and threads of a step. Default: 2048."},
    {.name = "--disk",
     .value = "SIZE",
     .help = "Bytes that a step may write; without loop devices, or as an ordinary user, at most "
             "half of --memory. Default: 8GiB."},
    {.name = "--inodes", .value = "N", .help = "Files that a step may make. Default: 1M."},
    {.name = "--timeout", .value = "TIME", .help = "Time of a step by the clock. Default: 30m."},
    {.name = "--cpu-time",
     .value = "TIME",
     .help = "Processor time of a step. Default: unlimited."},
}};
constexpr std::array<OptionGroup, 2> kGroups = {
    {{"Options", kBuildOptions}, {"Limits", kBuildLimits}}};
constexpr std::array<Example, 3> kExamples = {{
    {"caisson image build -t app .", "build the Dockerfile of this folder"},
    {"caisson image build -t app --net deb.example.org --net registry.example.org:443 .",
     "let its RUN steps install packages from there"},
    {"caisson image build --target test --no-cache -f ci/Dockerfile .", "one stage, all anew"},
}};

struct Sources {
  Fd context;
  std::string dockerfile;  // its text
  std::string name;        // for messages
  build::IgnoreRules ignore;
};

Result<std::string> read_all(int fd, const std::string& what, std::size_t most) {
  std::string text;
  char bytes[32 * 1024];
  for (;;) {
    const ssize_t count = ::read(fd, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("read " + what);
    if (count == 0) return text;
    text.append(bytes, static_cast<std::size_t>(count));
    if (text.size() > most)
      return fail(Error::exhausted(what + " is longer than " + std::to_string(most) + " bytes"));
  }
}

// nullopt: there is no such file.
Result<std::optional<std::string>> read_if_there(int directory_fd, const std::string& path,
                                                 std::size_t most) {
  // What lies in the context is the context's maker's: a link out of it would show the files of
  // whoever builds, in an error if not in the image.
  const std::uint64_t scope =
      directory_fd == AT_FDCWD ? 0 : RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  auto opened = sys::openat2(directory_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, scope);
  if (!opened.has_value()) {
    const int error = opened.error().error_number();
    if (error == ENOENT || error == ENOTDIR) return std::nullopt;
    if (error == EXDEV)
      return fail(Error::invalid(path +
                                 " leads out of the context through a link; --file names one "
                                 "that lies elsewhere"));
    return fail(std::move(opened).error());
  }
  const Fd file = std::move(*opened);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return fail_errno("fstat " + path);
  if (!S_ISREG(info.st_mode)) return fail(Error::invalid(path + " is not a regular file"));
  return read_all(file.get(), path, most);
}

Status read_ignore(Sources& sources, const std::string& file) {
  // Beside the Dockerfile one of its own is stronger than the context's.
  if (!file.empty() && file != "-") {
    const std::string own = file + ".dockerignore";
    TRY_ASSIGN(const auto text, read_if_there(AT_FDCWD, own, build::kMaxIgnoreFile));
    if (text.has_value()) {
      TRY_ASSIGN(sources.ignore, build::IgnoreRules::parse(*text, own));
      return {};
    }
  }
  for (const std::string name : {"Dockerfile.dockerignore", ".dockerignore"}) {
    if (name[0] != '.' && !file.empty()) continue;
    TRY_ASSIGN(const auto text, read_if_there(sources.context.get(), name, build::kMaxIgnoreFile));
    if (!text.has_value()) continue;
    TRY_ASSIGN(sources.ignore, build::IgnoreRules::parse(*text, name));
    return {};
  }
  return {};
}

Result<Sources> read_sources(const Parsed& parsed) {
  Sources sources;
  const std::string& context = parsed.arguments[0];
  sources.context = Fd(::open(context.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!sources.context.valid()) return fail_errno("the context '" + context + "'");
  const std::string file = parsed.value("--file");
  sources.name = file.empty() ? "Dockerfile" : file == "-" ? "stdin" : file;
  if (file == "-") {
    TRY_ASSIGN(sources.dockerfile, read_all(0, sources.name, build::kMaxDockerfile));
  } else {
    TRY_ASSIGN(auto text, read_if_there(file.empty() ? sources.context.get() : AT_FDCWD,
                                        sources.name, build::kMaxDockerfile));
    if (!text.has_value())
      return fail(Error::not_found(file.empty() ? "there is no Dockerfile in '" + context +
                                                      "'; --file names one that lies elsewhere"
                                                : "there is no file '" + file + "'"));
    sources.dockerfile = std::move(*text);
  }
  TRY(read_ignore(sources, file));
  return sources;
}

Result<std::pair<std::string, std::string>> parse_pair(std::string_view option,
                                                       const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    return fail(Error::invalid(std::string(option) + " '" + text + "': allowed is NAME=VALUE"));
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

struct Request {
  build::PlanOptions plan;
  build::BuildOptions build;
  std::string names;
};

Status take_option(Request& request, policy::SpecPatch& patch, std::string_view name,
                   const std::string& value) {
  if (policy::limit_of_flag(name) != nullptr) return policy::set_limit_flag(patch, name, value);
  if (name == "--target") request.plan.target = value;
  if (name == "--no-cache") request.build.use_cache = false;
  if (name == "--net") request.build.net.push_back(value);
  if (name == "--tag") {
    TRY_ASSIGN(image::Reference reference, image::parse_reference(value));
    request.names += (request.names.empty() ? "" : ", ") + reference.text();
    request.build.names.push_back(std::move(reference));
  }
  if (name == "--label") {
    TRY_ASSIGN(const auto pair, parse_pair(name, value));
    request.build.labels[pair.first] = pair.second;
  }
  if (name == "--build-arg") {
    if (value.find('=') != std::string::npos) {
      TRY_ASSIGN(const auto pair, parse_pair(name, value));
      request.plan.build_args[pair.first] = pair.second;
    } else if (const char* set = std::getenv(value.c_str()); set != nullptr) {
      request.plan.build_args[value] = set;
    }
  }
  return {};
}

Result<Request> read_request(const Parsed& parsed) {
  Request request;
  request.plan.architecture = std::string(image::host_architecture());
  policy::SpecPatch patch;
  for (const Parsed::Given& given : parsed.options)
    TRY(take_option(request, patch, given.option->name, given.value));
  for (std::size_t at = 0; at < policy::kLimitRules.size(); ++at)
    if (patch.limits[at].has_value())
      request.build.limits.*policy::kLimitRules[at].value = *patch.limits[at];
  // Said now, not by the first step.
  if (auto list = egress::AllowList::parse(request.build.net); !list.has_value())
    return fail(std::move(list).error().with("--net"));
  return request;
}

Result<ProgressStyle> style_of(const Parsed& parsed) {
  const std::string word = parsed.value("--progress");
  if (word == "json") return ProgressStyle::kJson;
  if (parsed.has("--quiet")) return ProgressStyle::kQuiet;
  if (word == "plain") return ProgressStyle::kPlain;
  if (word == "tty") return ProgressStyle::kTerminal;
  if (!word.empty())
    return fail(
        Error::invalid("--progress: found '" + word + "'; allowed are plain, tty and json"));
  return ::isatty(2) == 1 && !parsed.has("--verbose") ? ProgressStyle::kTerminal
                                                      : ProgressStyle::kPlain;
}

Result<build::BuildReport> run_build(Request& request, const Sources& sources, Session& session,
                                     BuildProgress& progress) {
  TRY_ASSIGN(const build::Dockerfile file,
             build::parse_dockerfile(sources.dockerfile, sources.name));
  TRY_ASSIGN(const build::BuildPlan plan, build::plan_dockerfile(file, request.plan));
  TRY_ASSIGN(request.build.settings, policy::load_settings());
  TRY_ASSIGN(image::Store store, image::Store::open());
  session.listen();
  request.build.context_fd = sources.context.get();
  request.build.ignore = sources.ignore;
  request.build.control = &session.control();
  request.build.cancelled = [] { return Session::interrupts() > 0; };
  return build::build(store, plan, request.build,
                      [&](const build::BuildEvent& event) { progress.show(event); });
}

}  // namespace

constinit const CommandTable kImageBuildTable = {
    .name = "image build",
    .synopsis = "[OPTIONS] CONTEXT",
    .summary = "Build an image from a Dockerfile",
    .text =
        "CONTEXT is the folder that COPY and ADD take from; .dockerignore leaves files out. Every "
        "RUN and COPY is done in a sandbox of its own, with the limits below and without any "
        "network "
        "but the hosts of --net; a RUN is done as the user whom USER names, without one as root of "
        "the image. What a step changed becomes a layer. A "
        "step that was done before on the same files, with the same words and the same copied "
        "contents, is taken from the cache.\n\n"
        "Images of FROM must be in the local store (caisson image pull), by their own names or by "
        "those "
        "that the settings' images give them. The exit status is 1 where a step of the "
        "Dockerfile failed, 125 for everything else that went wrong, 130 where it was cancelled.",
    .groups = kGroups,
    .examples = kExamples,
    .complete = Complete::kDirectory};

int run_image_build(const Parsed& parsed) {
  if (parsed.arguments.size() != 1) {
    say("a context is needed; caisson image build [OPTIONS] CONTEXT");
    return kExitOwnError;
  }
  const auto style = style_of(parsed);
  if (!style.has_value()) return say_error(style.error());
  auto request = read_request(parsed);
  if (!request.has_value()) return say_error(request.error());
  const auto sources = read_sources(parsed);
  if (!sources.has_value()) return say_error(sources.error());
  auto session = Session::create();
  if (!session.has_value()) return say_error(session.error());
  BuildProgress progress(*style, ::isatty(2) == 1);
  const auto report = run_build(*request, *sources, *session, progress);
  if (!report.has_value()) {
    progress.interrupt();
    say_error(report.error());
    return report.error().code() == Code::kCancelled ? kExitCancelled : kExitOwnError;
  }
  progress.conclude(*report, request->names);
  return report->failure.has_value() ? kExitFailed : 0;
}

}  // namespace caisson::cli
