#include "cli/spec_options.h"

#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/document_file.h"
#include "policy/document.h"
#include "policy/flags.h"

namespace caisson::cli {

constinit const std::array<Option, 18> kAccessOptions = {{
    {.name = "--spec",
     .letter = 'f',
     .value = "FILE",
     .help = "Begin with the spec in FILE (YAML, or JSON where the name ends in .json; - is "
             "standard input); other options change it.",
     .complete = Complete::kFile},
    {.name = "--image",
     .value = "NAME",
     .help = "Files to run on: an image of the local store, or host (a read-only view of this "
             "host's /usr). Default: base where it is there, else host.",
     .complete = Complete::kImage},
    {.name = "--ro",
     .value = "SRC[:DST]",
     .help = "Show a host file or folder inside, read-only. The first folder without DST becomes "
             "/workspace, where the program starts.",
     .complete = Complete::kFile},
    {.name = "--rw",
     .value = "SRC[:DST]",
     .help = "The same, and the program may change it. Changes are real.",
     .complete = Complete::kFile},
    {.name = "--copy",
     .value = "SRC[:DST]",
     .help = "Put a copy of a host file or folder inside; changes to it are lost.",
     .complete = Complete::kFile},
    {.name = "--out",
     .value = "PATH:DEST",
     .help = "When the program has ended, copy PATH from inside to DEST on the host.",
     .complete = Complete::kFile},
    {.name = "--env",
     .letter = 'e',
     .value = "K=V",
     .help = "Set a variable; may be repeated. None of yours is inherited."},
    {.name = "--user",
     .letter = 'u',
     .value = "USER",
     .help =
         "Run as NAME, UID[:GID] or NAME:GROUP of the image. Default: the image's user, or 1000."},
    {.name = "--workdir",
     .letter = 'w',
     .value = "PATH",
     .help = "Start in PATH, inside. Default: /workspace where there is one, else the image's, or "
             "home."},
    {.name = "--hostname",
     .value = "NAME",
     .help = "The host name that it sees. Default: sandbox."},
    {.name = "--privileges",
     .value = "none|sudo",
     .help = "sudo: sudo works, inside alone; it needs a range of user ids.",
     .complete = Complete::kWords,
     .words = "none sudo"},
    {.name = "--profile",
     .value = "NAME",
     .help = "System calls: default, browser (a browser's own sandbox works) or debug (debuggers "
             "work).",
     .complete = Complete::kWords,
     .words = "default browser debug"},
    {.name = "--on-refusal",
     .value = "continue|kill",
     .help = "What a refused system call that escapes are made of (mount, ptrace, setns, …) does: "
             "continue (it fails and is counted; the default) or kill (the first ends the program, "
             "with status 119).",
     .complete = Complete::kWords,
     .words = "continue kill"},
    {.name = "--net",
     .value = "POLICY",
     .help =
         "What it may reach: deny (nothing, the default), allow:HOST[:PORT] (several with "
         "commas; HOST may be *.NAME; port 443, the default, is TLS, 80 is HTTP without it, any "
         "other is bytes of any kind), inspect:HOST[:PORT] (TLS that is opened, so that each "
         "request is judged), preset:NAME (what apt, cargo, go, npm or pip fetches from the "
         "servers that they use on this host; preset:NAME=HOST, and git too, from HOST), the FILE "
         "of a policy (its name has a slash or ends in "
         ".yaml, .yml or .json), or allow-public (all of the Internet). May be repeated.",
     .complete = Complete::kFile},
    {.name = "--secret",
     .value = "NAME=SOURCE@HOST",
     .help = "A secret that it uses without having it: the variable NAME is a placeholder, which "
             "becomes the value in requests to HOST (several with commas; --net must allow them) "
             "alone. SOURCE: env, env:VARIABLE, file:PATH, fd:N or 'command:PROGRAM "
             "ARGUMENT…'. May be repeated."},
    {.name = "--wall",
     .value = "NAME",
     .help = "What stands between it and the host: auto or namespace, which are the same in this "
             "version; gvisor and microvm, which it does not have yet, are refused.",
     .complete = Complete::kWords,
     .words = "auto namespace gvisor microvm"},
    {.name = "--emulation",
     .value = "deny|allow",
     .help = "allow: a microvm may be emulated, which is no hardware boundary. Changes nothing in "
             "this version, which has no microvm.",
     .complete = Complete::kWords,
     .words = "deny allow"},
    {.name = "--layer",
     .value = "tmpfs|quota",
     .help =
         "Where what it writes is kept: tmpfs, in memory, or quota, on disk in a file system of "
         "its own that is as large as --disk says (root alone). Default: tmpfs.",
     .complete = Complete::kWords,
     .words = "tmpfs quota"},
}};

constinit const std::array<Option, 14> kLimitOptions = {{
    {.name = "--cpus", .value = "N", .help = "Processors, 0.5 for half of one. Default: 1."},
    {.name = "--memory",
     .letter = 'm',
     .value = "SIZE",
     .help = "Memory, files in it and kernel memory included; with --layer tmpfs that is all that "
             "it writes. Default: 512MiB."},
    {.name = "--pids", .value = "N", .help = "Processes and threads together. Default: 256."},
    {.name = "--disk",
     .value = "SIZE",
     .help =
         "Bytes it may write. Default: 256MiB, but with --layer tmpfs at most half of --memory."},
    {.name = "--inodes", .value = "N", .help = "Files it may make. Default: 100k."},
    {.name = "--open-files", .value = "N", .help = "Files open at once, a process. Default: 1024."},
    {.name = "--output",
     .value = "SIZE",
     .help = "Bytes of stdout and stderr together. Default: 16MiB."},
    {.name = "--timeout", .value = "TIME", .help = "Time by the clock. Default: 30s."},
    {.name = "--cpu-time", .value = "TIME", .help = "Processor time. Default: 30s."},
    {.name = "--io-read",
     .value = "SIZE[/s]",
     .help = "Bytes a second read from each disk behind what it sees. Default: unlimited."},
    {.name = "--io-write",
     .value = "SIZE[/s]",
     .help = "Bytes a second written to each disk. Version 1 control groups hold direct and "
             "synchronous writes alone. Default: unlimited."},
    {.name = "--io-read-ops",
     .value = "N[/s]",
     .help = "Read operations a second, each disk. Default: unlimited."},
    {.name = "--io-write-ops",
     .value = "N[/s]",
     .help = "Write operations a second, each disk. Default: unlimited."},
    {.name = "--require-hard-limits",
     .help = "Refuse to run where a limit would be held by anything softer than a control group or "
             "an rlimit."},
}};

namespace {

Result<policy::SpecValues> read_spec(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_document(path, "--spec"));
  auto values = policy::parse_spec(text, format_of(path));
  if (!values.has_value()) return fail(std::move(values).error().with(path));
  return values;
}

// What the options say, before grants and results have their places.
struct Gathered {
  policy::SpecPatch patch;
  std::vector<policy::GrantFlag> grants;
  std::vector<std::string> outputs;
  std::map<std::string, std::string> client_env;  // of presets; what is given otherwise wins
};

Status add_grant(Gathered& gathered, policy::GrantMode mode, const std::string& text) {
  TRY_ASSIGN(policy::GrantFlag grant, policy::parse_grant(mode, text));
  struct stat info = {};
  const bool directory = ::stat(grant.from.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  grant.kind = directory ? policy::SourceKind::kDirectory : policy::SourceKind::kFile;
  gathered.grants.push_back(std::move(grant));
  return {};
}

Status take_option(Gathered& gathered, std::string_view name, const std::string& value) {
  policy::SpecPatch& patch = gathered.patch;
  if (policy::limit_of_flag(name) != nullptr) return policy::set_limit_flag(patch, name, value);
  if (name == "--ro") return add_grant(gathered, policy::GrantMode::kReadOnly, value);
  if (name == "--rw") return add_grant(gathered, policy::GrantMode::kReadWrite, value);
  if (name == "--copy") return add_grant(gathered, policy::GrantMode::kCopy, value);
  if (name == "--out") {
    gathered.outputs.push_back(value);
  } else if (name == "--env") {
    TRY_ASSIGN(const auto variable, policy::parse_env(value));
    patch.env[variable.first] = variable.second;
  } else if (name == "--image") {
    patch.image = value;
  } else if (name == "--entrypoint") {
    patch.entrypoint.emplace();
    if (!value.empty()) patch.entrypoint->push_back(value);
  } else if (name == "--user") {
    patch.user = value;
  } else if (name == "--workdir") {
    patch.workdir = value;
  } else if (name == "--hostname") {
    patch.hostname = value;
  } else if (name == "--privileges") {
    TRY_ASSIGN(patch.privileges, policy::parse_privileges(value));
  } else if (name == "--profile") {
    TRY_ASSIGN(patch.profile, policy::parse_profile(value));
  } else if (name == "--on-refusal") {
    TRY_ASSIGN(patch.on_refusal, policy::parse_on_refusal(value));
  } else if (name == "--net") {
    TRY_ASSIGN(GivenNetwork given, read_network(value));
    TRY(policy::add_network(patch, std::move(given.network)));
    gathered.client_env.merge(given.env);
  } else if (name == "--secret") {
    TRY_ASSIGN(patch.secrets.emplace_back(), policy::parse_secret(value));
  } else if (name == "--wall") {
    TRY_ASSIGN(patch.wall, policy::parse_wall(value));
  } else if (name == "--emulation") {
    TRY_ASSIGN(patch.allow_emulation, policy::parse_emulation(value));
  } else if (name == "--layer") {
    TRY_ASSIGN(patch.layer, policy::parse_layer(value));
  } else if (name == "--require-hard-limits") {
    patch.require_hard_limits = true;
  }
  return {};
}

bool limit_given(const policy::SpecPatch& patch, std::string_view flag) {
  const policy::LimitRule* rule = policy::limit_of_flag(flag);
  return patch.limits[rule - policy::kLimitRules.data()].has_value();
}

}  // namespace

Result<SandboxSpec> spec_from(const Parsed& parsed, policy::SpecValues defaults) {
  policy::SpecValues base = std::move(defaults);
  if (const std::string path = parsed.value("--spec"); !path.empty()) {
    TRY_ASSIGN(base, read_spec(path));
  }
  Gathered gathered;
  for (const Parsed::Given& given : parsed.options)
    TRY(take_option(gathered, given.option->name, given.value));
  policy::SpecPatch& patch = gathered.patch;
  patch.command = parsed.arguments;
  std::string workdir = patch.workdir.value_or(base.workdir);
  TRY_ASSIGN(policy::Placement placement, policy::place_grants(gathered.grants, workdir));
  if (!placement.workdir.empty()) patch.workdir = placement.workdir;
  patch.grants = std::move(placement.grants);
  for (const std::string& output : gathered.outputs) {
    TRY_ASSIGN(policy::Output parsed_output, policy::parse_output(output, placement.workdir));
    patch.outputs.push_back(std::move(parsed_output));
  }
  for (const auto& [name, value] : gathered.client_env)
    if (!base.env.contains(name)) patch.env.try_emplace(name, value);
  const bool memory_alone = limit_given(patch, "--memory") && !limit_given(patch, "--disk");
  const bool default_disk = base.limits.disk == policy::Limits().disk;
  policy::SpecValues values = policy::merge(std::move(base), std::move(patch));
  // The layer lies in memory: who asks for little memory means a smaller default disk, too.
  if (memory_alone && default_disk && values.layer == policy::LayerKind::kTmpfs &&
      values.limits.memory.has_value())
    values.limits.disk = std::min(*values.limits.disk, *values.limits.memory / 2);
  return SandboxSpec::validate(std::move(values));
}

}  // namespace caisson::cli
