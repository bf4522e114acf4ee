#include "build/plan.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "build/dockerignore.h"
#include "image/reference.h"

namespace caisson::build {
namespace {

using image::printable;

bool is_stage_name(std::string_view name) {
  if (name.empty() || name[0] < 'a' || name[0] > 'z') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::optional<std::size_t> number_of(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

std::unexpected<Error> refuse_flag(const Instruction& from, const Flag& flag,
                                   std::string_view allowed) {
  return fail(Error::invalid(std::string(to_string(from.kind)) + " --" + printable(flag.name, 40) +
                             " is not supported; allowed are " + std::string(allowed)));
}

Status need_value(const Instruction& from, const Flag& flag) {
  if (flag.given && !flag.value.empty()) return {};
  return fail(Error::invalid(std::string(to_string(from.kind)) + " --" + flag.name +
                             " needs a value: --" + flag.name + "=VALUE"));
}

// `NAME=VALUE …`, or the old form `NAME VALUE…`.
Result<Pairs> read_pairs(const Instruction& from, char escape) {
  TRY_ASSIGN(const std::vector<std::string> words, split_quoted(from.rest, escape));
  const std::string keyword(to_string(from.kind));
  if (words.size() > kMaxWords) return fail(Error::exhausted(keyword + " with too many words"));
  Pairs pairs;
  if (words[0].find('=') == std::string::npos) {
    if (words.size() < 2)
      return fail(Error::invalid(keyword + " " + printable(words[0], 80) +
                                 ": allowed is NAME=VALUE, or NAME VALUE"));
    const std::string_view value = trim(std::string_view(from.rest).substr(words[0].size()));
    pairs.emplace_back(words[0], std::string(value));
    return pairs;
  }
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == 0 || equals == std::string::npos)
      return fail(Error::invalid(keyword + ": '" + printable(word, 80) +
                                 "' is not of the form NAME=VALUE"));
    pairs.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return pairs;
}

class Planner {
 public:
  Planner(const Dockerfile& file, const PlanOptions& options) : file_(file), options_(options) {
    plan_.file_name = file.name;
    plan_.escape = file.escape;
    plan_.notes = file.notes;
    plan_.build_args = options.build_args;
    const std::string platform = "linux/" + options.architecture;
    for (const std::string side : {"TARGET", "BUILD"}) {
      plan_.globals[side + "PLATFORM"] = platform;
      plan_.globals[side + "OS"] = "linux";
      plan_.globals[side + "ARCH"] = options.architecture;
      plan_.globals[side + "VARIANT"] = "";
    }
  }

  Result<BuildPlan> run() {
    for (const Instruction& instruction : file_.instructions) {
      auto taken = take(instruction);
      if (!taken.has_value())
        return fail(at_line(file_.name, instruction.line, std::move(taken).error()));
    }
    if (plan_.stages.empty()) return fail(Error::invalid(file_.name + ": there is no FROM in it"));
    TRY(choose_target());
    mark_needed(plan_);
    note_unused_arguments();
    return std::move(plan_);
  }

 private:
  Status take(const Instruction& from) {
    if (from.kind == InstructionKind::kFrom) return take_from(from);
    if (plan_.stages.empty()) {
      if (from.kind != InstructionKind::kArg)
        return fail(Error::invalid(std::string(to_string(from.kind)) +
                                   " before FROM; allowed there is ARG"));
      return take_global(from);
    }
    Step step;
    step.line = from.line;
    step.text = first_line(from.text);
    switch (from.kind) {
      case InstructionKind::kRun:
        TRY(make_run(from, step));
        break;
      case InstructionKind::kCopy:
      case InstructionKind::kAdd:
        TRY(make_copy(from, step));
        break;
      case InstructionKind::kArg: {
        ArgStep made;
        TRY_ASSIGN(made.arguments, read_arguments(from));
        step.what = std::move(made);
        break;
      }
      case InstructionKind::kEnv: {
        TRY_ASSIGN(Pairs pairs, read_pairs(from, file_.escape));
        step.what = EnvStep{std::move(pairs)};
        break;
      }
      case InstructionKind::kLabel: {
        TRY_ASSIGN(Pairs pairs, read_pairs(from, file_.escape));
        step.what = LabelStep{std::move(pairs)};
        break;
      }
      case InstructionKind::kWorkdir:
        step.what = WorkdirStep{.path = from.rest};
        break;
      case InstructionKind::kUser:
        step.what = UserStep{.user = from.rest};
        break;
      case InstructionKind::kCmd:
      case InstructionKind::kEntrypoint:
        step.what =
            CommandStep{.entrypoint = from.kind == InstructionKind::kEntrypoint,
                        .command = from.exec_form ? from.list : std::vector<std::string>{from.rest},
                        .shell_form = !from.exec_form};
        break;
      case InstructionKind::kShell:
        if (!from.exec_form || from.list.empty())
          return fail(Error::invalid("SHELL needs the JSON form: SHELL [\"/bin/sh\", \"-c\"]"));
        step.what = ShellStep{from.list};
        break;
      case InstructionKind::kExpose:
        step.what = ExposeStep{split_blank(from.rest)};
        break;
      case InstructionKind::kVolume:
        if (from.exec_form && from.list.empty()) return fail(Error::invalid("VOLUME needs a path"));
        step.what = VolumeStep{from.exec_form ? from.list : split_blank(from.rest)};
        break;
      case InstructionKind::kStopsignal:
        step.what = StopSignalStep{from.rest};
        break;
      case InstructionKind::kMaintainer:
        step.what = MaintainerStep{from.rest};
        break;
      case InstructionKind::kHealthcheck:
        TRY(check_healthcheck(from));
        note(from.line, "HEALTHCHECK has no effect here");
        step.what = NotedStep{};
        break;
      case InstructionKind::kFrom:
        break;
    }
    plan_.stages.back().steps.push_back(std::move(step));
    return {};
  }

  void note(std::uint32_t line, std::string_view text) {
    if (plan_.notes.size() < 64)
      plan_.notes.push_back(file_.name + ":" + std::to_string(line) + ": " + std::string(text));
  }

  // ---- ARG ----

  Result<std::vector<std::pair<std::string, std::optional<std::string>>>> read_arguments(
      const Instruction& from) {
    TRY_ASSIGN(const std::vector<std::string> words, split_quoted(from.rest, file_.escape));
    if (words.size() > kMaxWords) return fail(Error::exhausted("ARG with too many words"));
    std::vector<std::pair<std::string, std::optional<std::string>>> arguments;
    for (const std::string& word : words) {
      const std::size_t equals = word.find('=');
      std::string name = word.substr(0, equals);
      if (!is_variable_name(name))
        return fail(Error::invalid("ARG: '" + printable(name, 80) +
                                   "' is no name; allowed are letters, digits and '_'"));
      declared_.push_back(name);
      if (equals == std::string::npos) {
        arguments.emplace_back(std::move(name), std::nullopt);
      } else {
        arguments.emplace_back(std::move(name), word.substr(equals + 1));
      }
    }
    return arguments;
  }

  Status take_global(const Instruction& from) {
    TRY_ASSIGN(const auto arguments, read_arguments(from));
    for (const auto& [name, value] : arguments) {
      const auto given = options_.build_args.find(name);
      if (given != options_.build_args.end()) {
        plan_.globals[name] = given->second;
      } else if (value.has_value()) {
        TRY_ASSIGN(plan_.globals[name], expand(*value, file_.escape, lookup(plan_.globals)));
      }
    }
    return {};
  }

  void note_unused_arguments() {
    for (const auto& [name, value] : options_.build_args) {
      if (is_proxy_argument(name)) continue;
      if (std::find(declared_.begin(), declared_.end(), name) == declared_.end())
        plan_.notes.push_back("--build-arg " + name + ": no ARG of " + file_.name +
                              " has this name");
    }
  }

  // ---- FROM ----

  Status take_from(const Instruction& from) {
    Stage stage;
    stage.line = from.line;
    stage.text = from.text;
    for (const Flag& flag : from.flags) {
      if (flag.name != "platform") return refuse_flag(from, flag, "--platform=PLATFORM");
      TRY(need_value(from, flag));
      TRY_ASSIGN(const std::string platform,
                 expand(flag.value, file_.escape, lookup(plan_.globals)));
      if (platform != plan_.globals["BUILDPLATFORM"])
        return fail(Error(Code::kUnimplemented, "FROM --platform=" + printable(platform, 60) +
                                                    ": images are built for this machine alone, "
                                                    "which is " +
                                                    plan_.globals["BUILDPLATFORM"]));
    }
    const std::vector<std::string> words = split_blank(from.rest);
    if (words.size() != 1 && (words.size() != 3 || lower(words[1]) != "as"))
      return fail(Error::invalid("FROM takes IMAGE, or IMAGE AS NAME"));
    if (words.size() == 3) {
      stage.name = lower(words[2]);
      if (!is_stage_name(stage.name))
        return fail(Error::invalid("FROM: '" + printable(words[2], 60) +
                                   "' cannot be the name of a stage; allowed are letters, digits, "
                                   "'-', '_' and '.', beginning with a letter"));
      if (find_stage(stage.name).has_value())
        return fail(Error::invalid("FROM: there is a stage '" + stage.name + "' already"));
    }
    TRY_ASSIGN(const std::string name, expand(words[0], file_.escape, lookup(plan_.globals)));
    if (name.empty())
      return fail(Error::invalid("FROM: '" + printable(words[0], 80) +
                                 "' is empty; only ARGs before the first FROM have a value here"));
    if (name == "scratch") {
      stage.base.kind = StageBase::Kind::kScratch;
    } else if (const auto earlier = find_stage(lower(name))) {
      stage.base = {.kind = StageBase::Kind::kStage, .image = "", .stage = *earlier};
    } else {
      TRY(image::parse_reference(name));
      stage.base = {.kind = StageBase::Kind::kImage, .image = name, .stage = 0};
    }
    plan_.stages.push_back(std::move(stage));
    return {};
  }

  std::optional<std::size_t> find_stage(std::string_view name) const {
    for (std::size_t at = 0; at < plan_.stages.size(); ++at)
      if (!name.empty() && plan_.stages[at].name == name) return at;
    return std::nullopt;
  }

  // ---- RUN ----

  Status make_run(const Instruction& from, Step& step) {
    for (const Flag& flag : from.flags) {
      if (flag.name == "network") {
        // What there is of network is the caller's to say.
        if (flag.value == "none" || flag.value == "default") continue;
        return fail(Error(Code::kUnimplemented, "RUN --network=" + printable(flag.value, 40) +
                                                    " is not supported; allowed are none and "
                                                    "default"));
      }
      if (flag.name == "security" && flag.value == "sandbox") continue;
      if (flag.name == "mount")
        return fail(Error(Code::kUnimplemented,
                          "RUN --mount is not supported; COPY what the command needs, and keep "
                          "caches out of the image by removing them in the same RUN"));
      return refuse_flag(from, flag, "--network=none|default");
    }
    RunStep made;
    if (from.exec_form) {
      if (from.list.empty()) return fail(Error::invalid("RUN [] has no program"));
      made.command = from.list;
      made.shell_form = false;
      step.what = std::move(made);
      return {};
    }
    std::string text = from.rest;
    const bool only_document = from.documents.size() == 1 && split_blank(from.rest).size() == 1 &&
                               from.rest.starts_with("<<");
    if (only_document) {
      const HereDocument& document = from.documents[0];
      if (document.content.starts_with("#!")) return make_script(document, step);
      text = document.content;
      if (trim(text).empty()) return fail(Error::invalid("RUN with an empty here-document"));
    } else {
      for (const HereDocument& document : from.documents)
        text += "\n" + document.content + document.name;
    }
    made.command = {std::move(text)};
    step.what = std::move(made);
    return {};
  }

  static Status make_script(const HereDocument& document, Step& step) {
    const std::string_view line =
        trim(std::string_view(document.content).substr(2, document.content.find('\n') - 2));
    const std::size_t blank = line.find_first_of(" \t");
    RunStep made;
    made.shell_form = false;
    made.script = document.content;
    made.command.emplace_back(line.substr(0, blank));
    // The kernel hands on what follows as one argument.
    if (blank != std::string_view::npos) made.command.emplace_back(trim(line.substr(blank)));
    if (!made.command[0].starts_with('/'))
      return fail(Error::invalid("the here-document begins with '#!' without an absolute path"));
    step.what = std::move(made);
    return {};
  }

  // ---- COPY and ADD ----

  Status make_copy(const Instruction& from, Step& step) {
    CopyStep made;
    made.add = from.kind == InstructionKind::kAdd;
    const std::string keyword(to_string(from.kind));
    for (const Flag& flag : from.flags) {
      if (flag.name == "link") continue;  // an optimisation alone
      if (flag.name == "chown" || flag.name == "chmod" || (flag.name == "from" && !made.add)) {
        TRY(need_value(from, flag));
        if (flag.name == "chown") made.owner = flag.value;
        if (flag.name == "chmod") made.mode = flag.value;
        if (flag.name == "from") TRY(take_source(flag.value, made));
        continue;
      }
      return refuse_flag(
          from, flag,
          made.add ? "--chown, --chmod and --link" : "--from, --chown, --chmod and --link");
    }
    std::vector<std::string> words = from.exec_form ? from.list : split_blank(from.rest);
    if (words.size() < 2)
      return fail(Error::invalid(keyword + " needs a source and a destination"));
    if (words.size() > kMaxWords) return fail(Error::exhausted(keyword + " with too many words"));
    made.destination = std::move(words.back());
    words.pop_back();
    made.sources = std::move(words);
    made.documents = from.documents;
    if (!made.documents.empty() && made.from != CopyStep::From::kContext)
      return fail(Error::invalid("COPY --from takes no here-document"));
    for (const std::string& source : made.sources)
      if (made.add) TRY(check_add_source(source));
    step.what = std::move(made);
    return {};
  }

  static Status check_add_source(const std::string& source) {
    const std::string text = lower(source);
    for (const std::string_view scheme : {"http://", "https://", "ftp://"})
      if (text.starts_with(scheme))
        return fail(Error(Code::kUnimplemented,
                          "ADD of an address is not supported; fetch the file into the context, "
                          "or in a RUN with --net"));
    if (text.starts_with("git@") || text.starts_with("git://") || text.starts_with("ssh://"))
      return fail(Error(Code::kUnimplemented,
                        "ADD of a git repository is not supported; clone it into the context"));
    return {};
  }

  Status take_source(const std::string& value, CopyStep& made) {
    TRY_ASSIGN(const std::string name, expand(value, file_.escape, lookup(plan_.globals)));
    const std::size_t own = plan_.stages.size() - 1;
    std::optional<std::size_t> stage = find_stage(lower(name));
    if (!stage.has_value()) stage = number_of(name);
    if (stage.has_value()) {
      if (*stage >= own)
        return fail(Error::invalid("COPY --from=" + printable(name, 60) +
                                   ": only stages above this one can be copied from"));
      made.from = CopyStep::From::kStage;
      made.stage = *stage;
      return {};
    }
    if (name.empty() || name == "scratch")
      return fail(Error::invalid("COPY --from=" + printable(value, 60) + " names nothing"));
    TRY(image::parse_reference(name));
    made.from = CopyStep::From::kImage;
    made.image = name;
    return {};
  }

  static Status check_healthcheck(const Instruction& from) {
    for (const Flag& flag : from.flags) {
      constexpr std::array<std::string_view, 5> kAllowed = {"interval", "timeout", "start-period",
                                                            "start-interval", "retries"};
      if (std::find(kAllowed.begin(), kAllowed.end(), flag.name) == kAllowed.end())
        return refuse_flag(from, flag,
                           "--interval, --timeout, --start-period, --start-interval and --retries");
      TRY(need_value(from, flag));
    }
    const std::string word = lower(from.rest.substr(0, from.rest.find_first_of(" \t")));
    if (word == "cmd" || word == "none") return {};
    return fail(Error::invalid("HEALTHCHECK takes CMD and a command, or NONE"));
  }

  // ---- target ----

  Status choose_target() {
    plan_.target = plan_.stages.size() - 1;
    if (options_.target.empty()) return {};
    std::optional<std::size_t> found = find_stage(lower(options_.target));
    if (!found.has_value()) found = number_of(options_.target);
    if (!found.has_value() || *found >= plan_.stages.size()) {
      std::string names;
      for (const Stage& stage : plan_.stages)
        if (!stage.name.empty()) names += (names.empty() ? "" : ", ") + stage.name;
      return fail(Error::invalid(
          "--target: " + file_.name + " has no stage '" + printable(options_.target, 60) + "'" +
          (names.empty() ? "; its stages have no names" : "; there are " + names)));
    }
    plan_.target = *found;
    return {};
  }

  const Dockerfile& file_;
  const PlanOptions& options_;
  BuildPlan plan_;
  std::vector<std::string> declared_;
};

}  // namespace

Result<BuildPlan> plan_dockerfile(const Dockerfile& file, const PlanOptions& options) {
  return Planner(file, options).run();
}

void mark_needed(BuildPlan& plan) {
  for (Stage& stage : plan.stages) stage.needed = false;
  plan.stages[plan.target].needed = true;
  // A stage only needs stages above it.
  for (std::size_t at = plan.target + 1; at-- > 0;) {
    const Stage& stage = plan.stages[at];
    if (!stage.needed) continue;
    if (stage.base.kind == StageBase::Kind::kStage) plan.stages[stage.base.stage].needed = true;
    for (const Step& step : stage.steps)
      if (const auto* copy = std::get_if<CopyStep>(&step.what);
          copy != nullptr && copy->from == CopyStep::From::kStage)
        plan.stages[copy->stage].needed = true;
  }
}

bool is_proxy_argument(std::string_view name) {
  const std::string text = lower(name);
  return text == "http_proxy" || text == "https_proxy" || text == "ftp_proxy" ||
         text == "no_proxy" || text == "all_proxy";
}

}  // namespace caisson::build
