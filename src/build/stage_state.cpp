#include "build/stage_state.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "build/dockerignore.h"
#include "image/reference.h"

namespace caisson::build {
namespace {

using image::printable;

constexpr std::string_view kDefaultPath =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Fields with their lengths, so that no two lists of fields give the same text.
class KeyText {
 public:
  explicit KeyText(std::string_view kind) { add(kind); }
  KeyText& add(std::string_view field) {
    text_ += std::to_string(field.size());
    text_ += ':';
    text_ += field;
    return *this;
  }
  KeyText& add(const std::vector<std::string>& fields) {
    add(std::to_string(fields.size()));
    for (const std::string& field : fields) add(field);
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::optional<std::uint32_t> number_of(std::string_view text, int base, std::uint32_t most) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size() || number > most)
    return std::nullopt;
  return number;
}

// Relative to the root of what is copied from. Error: it leads above that.
Result<std::string> clean_source(std::string_view source) {
  std::string_view rest = source;
  std::ptrdiff_t depth = 0;
  while (!rest.empty()) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    depth += part == ".." ? -1 : 1;
    if (depth < 0)
      return fail(Error::invalid("'" + printable(source, 200) +
                                 "' leads out of the context; allowed is what lies in it"));
  }
  return clean_path(source);
}

Status check_signal(std::string_view signal) {
  if (number_of(signal, 10, 64).value_or(0) > 0) return {};
  const bool name =
      signal.starts_with("SIG") && signal.size() > 3 && signal.size() <= 16 &&
      std::all_of(signal.begin(), signal.end(), [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-';
      });
  if (name) return {};
  return fail(Error::invalid("STOPSIGNAL '" + printable(signal, 40) +
                             "'; allowed are names such as SIGTERM and numbers from 1 to 64"));
}

// Of ports, of variables, of volumes: lists that are searched for each new entry.
constexpr std::size_t kMaxListed = 1024;

Status check_room(std::string_view keyword, std::string_view what, std::size_t count) {
  if (count < kMaxListed) return {};
  return fail(Error::invalid(std::string(keyword) + " makes more than " +
                             std::to_string(kMaxListed) + " " + std::string(what) +
                             ", the most that is allowed"));
}

// "8080", "8080/udp", "7000-7010": as the configuration has them.
Status add_ports(std::string_view text, std::set<std::string>& seen,
                 std::vector<std::string>& ports) {
  const std::size_t slash = text.find('/');
  const std::string protocol(slash == std::string_view::npos ? "tcp" : text.substr(slash + 1));
  const std::string_view range = text.substr(0, slash);
  const std::size_t dash = range.find('-');
  const auto first = number_of(range.substr(0, dash), 10, 65535);
  const auto last =
      dash == std::string_view::npos ? first : number_of(range.substr(dash + 1), 10, 65535);
  const bool known = protocol == "tcp" || protocol == "udp" || protocol == "sctp";
  if (!known || first.value_or(0) == 0 || !last.has_value() || *last < *first)
    return fail(Error::invalid("EXPOSE '" + printable(text, 60) +
                               "'; allowed is PORT or PORT-PORT, with /tcp, /udp or /sctp"));
  for (std::uint32_t port = *first; port <= *last; ++port) {
    std::string entry = std::to_string(port) + "/" + protocol;
    if (!seen.insert(entry).second) continue;
    TRY(check_room("EXPOSE '" + printable(text, 60) + "'", "ports", ports.size()));
    ports.push_back(std::move(entry));
  }
  return {};
}

Status check_variable(std::string_view keyword, const std::string& name) {
  if (!name.empty() && name.find('=') == std::string::npos && name.find('\0') == std::string::npos)
    return {};
  return fail(
      Error::invalid(std::string(keyword) + ": '" + printable(name, 80) + "' cannot be a name"));
}

}  // namespace

std::string resolve_path(std::string_view directory, std::string_view path) {
  if (path.starts_with('/')) return "/" + clean_path(path);
  return "/" + clean_path(std::string(directory) + "/" + std::string(path));
}

StageState::StageState(const BuildPlan& plan, image::ImageConfig base)
    : plan_(plan), config_(std::move(base)) {}

std::optional<std::string> StageState::variable(std::string_view name) const {
  for (const std::string& setting : config_.env) {
    const std::size_t equals = setting.find('=');
    if (std::string_view(setting).substr(0, equals) == name && equals != std::string::npos)
      return setting.substr(equals + 1);
  }
  const auto found = arguments_.find(std::string(name));
  if (found != arguments_.end()) return found->second;
  if (name == "PATH") return std::string(kDefaultPath);
  return std::nullopt;
}

Result<std::string> StageState::expanded(std::string_view text, Quoting quoting) const {
  TRY_ASSIGN(
      std::string made,
      expand(
          text, plan_.escape, [this](std::string_view name) { return variable(name); }, quoting));
  if (made.find('\0') != std::string::npos) return fail(Error::invalid("a zero byte"));
  return made;
}

Status StageState::set_env(const std::string& name, const std::string& value) {
  const std::string start = name + "=";
  for (std::string& setting : config_.env) {
    if (!setting.starts_with(start)) continue;
    setting = start + value;
    return {};
  }
  TRY(check_room("ENV", "variables", config_.env.size()));
  config_.env.push_back(start + value);
  return {};
}

std::vector<std::string> StageState::shell() const {
  if (!config_.shell.empty()) return config_.shell;
  return {"/bin/sh", "-c"};
}

std::string StageState::absolute(std::string_view path) const {
  return resolve_path(config_.workdir, path);
}

Result<Applied> StageState::apply(const Step& step) {
  struct Visitor {
    StageState& state;
    const Step& step;

    Result<Applied> config_only(const Status& status) {
      if (!status.has_value()) return fail(status.error());
      return Applied{};
    }
    Result<Applied> operator()(const RunStep& run) { return state.run(run); }
    Result<Applied> operator()(const CopyStep& copy) { return state.copy(copy); }
    Result<Applied> operator()(const WorkdirStep& workdir) { return state.enter(workdir); }
    Result<Applied> operator()(const UserStep& user) { return state.become(user); }
    Result<Applied> operator()(const ArgStep& arg) { return config_only(state.declare(arg)); }
    Result<Applied> operator()(const CommandStep& command) {
      return config_only(state.set_command(command));
    }
    Result<Applied> operator()(const ExposeStep& ports) { return config_only(state.expose(ports)); }
    Result<Applied> operator()(const EnvStep& env) {
      // Every value sees the variables as they were before the instruction.
      Pairs made;
      for (const auto& [name, value] : env.variables) {
        TRY_ASSIGN(std::string key,
                   env.plain_text ? Result<std::string>(name) : state.expanded(name));
        TRY_ASSIGN(std::string text,
                   env.plain_text ? state.expanded(value, Quoting::kText) : state.expanded(value));
        TRY(check_variable("ENV", key));
        made.emplace_back(std::move(key), std::move(text));
      }
      for (const auto& [name, value] : made) TRY(state.set_env(name, value));
      return Applied{};
    }
    Result<Applied> operator()(const LabelStep& label) {
      for (const auto& [name, value] : label.labels) {
        TRY_ASSIGN(const std::string key, state.expanded(name));
        TRY_ASSIGN(const std::string text, state.expanded(value));
        if (key.empty()) return fail(Error::invalid("LABEL without a name"));
        state.config_.labels[key] = text;
      }
      return Applied{};
    }
    Result<Applied> operator()(const ShellStep& shell) {
      state.config_.shell = shell.shell;
      return Applied{};
    }
    Result<Applied> operator()(const VolumeStep& volume) {
      for (const std::string& path : volume.paths) {
        TRY_ASSIGN(const std::string text, state.expanded(path));
        if (text.empty()) return fail(Error::invalid("VOLUME with an empty path"));
        std::vector<std::string>& volumes = state.config_.volumes;
        const std::string full = state.absolute(text);
        if (std::find(volumes.begin(), volumes.end(), full) != volumes.end()) continue;
        TRY(check_room("VOLUME", "volumes", volumes.size()));
        volumes.push_back(full);
      }
      return Applied{};
    }
    Result<Applied> operator()(const StopSignalStep& stop) {
      TRY_ASSIGN(const std::string signal, state.expanded(stop.signal));
      TRY(check_signal(signal));
      state.config_.stop_signal = signal;
      return Applied{};
    }
    Result<Applied> operator()(const MaintainerStep& maintainer) {
      state.config_.author = maintainer.name;
      return Applied{};
    }
    Result<Applied> operator()(const NotedStep&) { return Applied{}; }
  };
  TRY_ASSIGN(Applied applied, std::visit(Visitor{*this, step}, step.what));
  if (applied.created_by.empty()) applied.created_by = step.text;
  // What only changes the configuration is told apart by what it makes of that.
  if (applied.key.empty()) {
    image::ImageConfig plain = config_;
    plain.history.clear();
    plain.created.clear();
    plain.diff_ids.clear();
    applied.key = KeyText("config").add(image::encode(plain)).take();
  }
  return applied;
}

Result<Applied> StageState::run(const RunStep& step) {
  RunAction action;
  if (step.shell_form) {
    action.command = step.shell.empty() ? shell() : step.shell;
    action.command.insert(action.command.end(), step.command.begin(), step.command.end());
  } else {
    action.command = step.command;
  }
  action.script = step.script;
  action.user = step.user.empty() ? config_.user : step.user;
  action.workdir = absolute(".");
  for (const auto& [name, value] : arguments_) action.env[name] = value;
  KeyText key("run");
  key.add(action.command).add(action.script).add(action.user).add(action.workdir);
  std::string arguments;
  std::size_t count = 0;
  for (const auto& [name, value] : arguments_) {
    if (is_proxy_argument(name)) continue;
    key.add(name).add(value);
    arguments += " " + name + "=" + value;
    ++count;
  }
  for (const std::string& setting : config_.env) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) continue;
    action.env[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  // The caller's proxy needs no ARG and changes nothing about the result.
  for (const auto& [name, value] : plan_.build_args)
    if (is_proxy_argument(name)) action.env.try_emplace(name, value);
  key.add("env").add(config_.env);
  Applied applied;
  applied.created_by = "RUN ";
  if (count > 0) applied.created_by += "|" + std::to_string(count) + arguments + " ";
  for (std::size_t at = 0; at < action.command.size(); ++at)
    applied.created_by += (at == 0 ? "" : " ") + action.command[at];
  applied.key = key.take();
  applied.action = std::move(action);
  return applied;
}

Result<Applied> StageState::copy(const CopyStep& step) {
  CopyAction action;
  action.from = step.from;
  action.stage = step.stage;
  action.image = step.image;
  action.archive = step.archive;
  action.unpack = step.add;
  std::size_t document = 0;
  for (const std::string& source : step.sources) {
    if (document < step.documents.size() && source.starts_with("<<")) {
      const HereDocument& here = step.documents[document++];
      std::string text = here.content;
      if (here.expand) {
        TRY_ASSIGN(text, expanded(here.content, Quoting::kText));
      }
      if (here.name.find('/') != std::string::npos || here.name == "." || here.name == "..")
        return fail(Error::invalid("the here-document '" + printable(here.name, 60) +
                                   "' cannot be the name of a file"));
      action.texts.emplace_back(here.name, std::move(text));
      continue;
    }
    TRY_ASSIGN(const std::string text, expanded(source));
    if (text.empty()) return fail(Error::invalid("a source is empty"));
    TRY_ASSIGN(std::string clean, clean_source(text));
    action.sources.push_back(std::move(clean));
  }
  TRY_ASSIGN(const std::string destination, expanded(step.destination));
  if (destination.empty()) return fail(Error::invalid("the destination is empty"));
  action.into_directory = destination.ends_with('/') || destination == "." ||
                          destination.ends_with("/.") || destination == ".." ||
                          destination.ends_with("/..");
  action.destination = absolute(destination);
  if (action.sources.size() + action.texts.size() > 1 && !action.into_directory)
    return fail(
        Error::invalid("several sources need a directory as the destination, which ends "
                       "with '/'"));
  TRY_ASSIGN(action.owner, expanded(step.owner));
  TRY_ASSIGN(const std::string mode, expanded(step.mode));
  if (!mode.empty()) {
    action.mode = number_of(mode, 8, 07777);
    if (!action.mode.has_value())
      return fail(Error::invalid("--chmod=" + printable(mode, 40) +
                                 "; allowed are octal numbers up to 7777"));
  }
  KeyText key(step.add ? "add" : "copy");
  key.add(std::to_string(static_cast<int>(action.from)));
  key.add(action.sources).add(action.destination).add(action.into_directory ? "d" : "");
  key.add(action.owner).add(mode);
  for (const auto& [name, text] : action.texts) key.add(name).add(text);
  Applied applied;
  applied.key = key.take();
  applied.action = std::move(action);
  return applied;
}

Status StageState::declare(const ArgStep& step) {
  for (const auto& [name, fallback] : step.arguments) {
    const auto given = plan_.build_args.find(name);
    const auto global = plan_.globals.find(name);
    if (given != plan_.build_args.end()) {
      arguments_[name] = given->second;
    } else if (fallback.has_value()) {
      TRY_ASSIGN(arguments_[name], expanded(*fallback));
    } else if (global != plan_.globals.end()) {
      arguments_[name] = global->second;
    }
  }
  return {};
}

Result<Applied> StageState::enter(const WorkdirStep& step) {
  TRY_ASSIGN(const std::string path, expanded(step.path));
  if (path.empty()) return fail(Error::invalid("WORKDIR is empty"));
  config_.workdir = absolute(path);
  DirectoryAction action;
  action.path = config_.workdir;
  if (step.to_user) action.owner = config_.user;
  Applied applied;
  applied.key = KeyText("directory").add(action.path).add(action.owner).take();
  applied.action = std::move(action);
  return applied;
}

Result<Applied> StageState::become(const UserStep& step) {
  TRY_ASSIGN(const std::string user, expanded(step.user));
  const std::string_view name = trim(user);
  if (name.empty() || name.find_first_of(" \t\n") != std::string_view::npos)
    return fail(Error::invalid("USER '" + printable(user, 60) +
                               "'; allowed is NAME or NUMBER, with :GROUP if wanted"));
  config_.user = std::string(name);
  Applied applied;
  if (!step.create || name == "root" || name == "0") return applied;
  // Images have one of two programs for it.
  constexpr std::string_view kScript =
      "id -u \"$1\" >/dev/null 2>&1 && exit 0\n"
      "if command -v useradd >/dev/null 2>&1; then exec useradd -m -s /bin/bash \"$1\"; fi\n"
      "exec adduser -D \"$1\"\n";
  if (name.starts_with('-'))
    return fail(Error::invalid("USER '" + printable(user, 60) + "' begins with '-'"));
  RunAction action;
  action.command = {"/bin/sh", "-c", std::string(kScript), "sh", std::string(name)};
  action.user = "0";
  action.workdir = "/";
  applied.key = KeyText("user").add(name).take();
  applied.action = std::move(action);
  return applied;
}

Status StageState::set_command(const CommandStep& step) {
  std::vector<std::string> command = step.command;
  if (step.shell_form) {
    command = shell();
    command.insert(command.end(), step.command.begin(), step.command.end());
  }
  if (step.entrypoint) {
    config_.entrypoint = std::move(command);
    // The arguments of the image below were for another program.
    if (!command_set_) config_.cmd.clear();
  } else {
    config_.cmd = std::move(command);
    command_set_ = true;
  }
  return {};
}

Status StageState::expose(const ExposeStep& step) {
  std::set<std::string> seen(config_.exposed_ports.begin(), config_.exposed_ports.end());
  for (const std::string& word : step.ports) {
    TRY_ASSIGN(const std::string text, expanded(word));
    for (const std::string& port : split_blank(text))
      TRY(add_ports(port, seen, config_.exposed_ports));
  }
  return {};
}

}  // namespace caisson::build
