#include "build/template_steps.h"

#include "base/sha256.h"
#include "image/reference.h"

namespace caisson::build {
namespace {

using image::printable;

constexpr std::string_view kRunText = "RUN ";

// A word that expand() gives back as it is.
std::string literal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '$' || c == '\'' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::unexpected<Error> wrong(std::size_t step, std::string_view what) {
  return fail(Error::invalid("steps[" + std::to_string(step) + "]: " + std::string(what)));
}

Result<std::vector<std::string>> strings_of(const json::Value& value, std::size_t step) {
  const json::Value::Array* items = value.as_array();
  if (items == nullptr) return wrong(step, "args: allowed is a list of strings");
  std::vector<std::string> strings;
  for (const json::Value& item : *items) {
    const std::string* text = item.as_string();
    if (text == nullptr || text->find('\0') != std::string::npos)
      return wrong(step, "args: allowed are strings without a zero byte");
    strings.push_back(*text);
  }
  return strings;
}

// As root, in any image that has a shell.
constexpr std::string_view kProvision =
    "set -e\n"
    "if ! id -u user >/dev/null 2>&1; then\n"
    "  if command -v useradd >/dev/null 2>&1; then\n"
    "    shell=/bin/bash; [ -x $shell ] || shell=/bin/sh\n"
    "    useradd -m -s $shell user\n"
    "  else\n"
    "    adduser -D user\n"
    "  fi\n"
    "fi\n"
    "mkdir -p /home/user && chown user /home/user\n"
    "if [ -d /etc/sudoers.d ]; then\n"
    "  echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/user\n"
    "  chmod 440 /etc/sudoers.d/user\n"
    "fi\n"
    "mkdir -p /code /usr/local && chmod 777 /code /usr/local\n";

class Compiler {
 public:
  explicit Compiler(const TemplateSpec& spec) : spec_(spec), user_(spec.user) {}

  Result<BuildPlan> run() {
    if (spec_.steps.size() > kMaxTemplateSteps)
      return fail(Error::exhausted("steps: there are " + std::to_string(spec_.steps.size()) +
                                   ", at most " + std::to_string(kMaxTemplateSteps) +
                                   " are allowed"));
    TRY(image::parse_reference(spec_.image));
    plan_.file_name = "template";
    stage_.text = "FROM " + (spec_.called.empty() ? spec_.image : spec_.called);
    stage_.base = {.kind = StageBase::Kind::kImage, .image = spec_.image, .stage = 0};
    if (spec_.provision == Provision::kYes) {
      RunStep provision;
      provision.command = {"/bin/sh", "-c", std::string(kProvision)};
      provision.shell_form = false;
      provision.user = "0";
      add("RUN the template's user and folders", std::move(provision), false);
    }
    add("USER " + spec_.user, UserStep{.user = literal(spec_.user)}, false);
    add("WORKDIR " + spec_.workdir, WorkdirStep{.path = literal(spec_.workdir), .to_user = true},
        false);
    for (std::size_t at = 0; at < spec_.steps.size(); ++at) TRY(take(at));
    if (!spec_.start_command.empty())
      plan_.labels[std::string(kStartCommandLabel)] = spec_.start_command;
    if (!spec_.ready_command.empty())
      plan_.labels[std::string(kReadyCommandLabel)] = spec_.ready_command;
    if (spec_.force && !stage_.steps.empty()) stage_.steps[0].force = true;
    plan_.stages.push_back(std::move(stage_));
    mark_needed(plan_);
    return std::move(plan_);
  }

 private:
  template <typename T>
  void add(std::string text, T what, bool force) {
    Step step;
    step.text = std::move(text);
    step.force = force;
    step.what = std::move(what);
    stage_.steps.push_back(std::move(step));
  }

  Status take(std::size_t at) {
    const TemplateStep& step = spec_.steps[at];
    std::string text = step.type;
    for (const std::string& argument : step.args) text += " " + argument;
    if (step.type == "RUN") return run_step(at, step);
    if (step.type == "COPY") return copy_step(at, step, text);
    if (step.type == "WORKDIR") {
      if (step.args.empty() || step.args[0].empty()) return wrong(at, "WORKDIR needs a path");
      add(text, WorkdirStep{.path = literal(step.args[0]), .to_user = true}, step.force);
      return {};
    }
    if (step.type == "USER") {
      if (step.args.empty() || step.args[0].empty()) return wrong(at, "USER needs a name");
      user_ = step.args[0];
      add(text, UserStep{.user = literal(user_), .create = true}, step.force);
      return {};
    }
    if (step.type == "ENV") {
      if (step.args.empty() || step.args.size() % 2 != 0)
        return wrong(at, "ENV needs names, each with a value");
      EnvStep env;
      env.plain_text = true;
      for (std::size_t i = 0; i < step.args.size(); i += 2)
        env.variables.emplace_back(step.args[i], step.args[i + 1]);
      add(text, std::move(env), step.force);
      return {};
    }
    return wrong(at, "type: found '" + printable(step.type, 40) +
                         "'; allowed are RUN, COPY, WORKDIR, USER and ENV");
  }

  Status run_step(std::size_t at, const TemplateStep& step) {
    if (step.args.empty() || step.args[0].empty()) return wrong(at, "RUN needs a command");
    RunStep run;
    run.command = {step.args[0]};
    run.shell = {"/bin/bash", "-l", "-c"};
    if (step.args.size() > 1) run.user = step.args[1];
    add(std::string(kRunText) + step.args[0], std::move(run), step.force);
    return {};
  }

  Status copy_step(std::size_t at, const TemplateStep& step, const std::string& text) {
    if (step.args.size() < 2 || step.args[0].empty() || step.args[1].empty())
      return wrong(at, "COPY needs a source and a destination");
    if (!is_sha256(step.files_hash))
      return wrong(at, "filesHash: allowed are 64 hexadecimal digits");
    CopyStep copy;
    copy.from = CopyStep::From::kArchive;
    copy.archive = step.files_hash;
    copy.sources = {literal(step.args[0])};
    copy.destination = literal(step.args[1]);
    const std::string owner = step.args.size() > 2 ? step.args[2] : "";
    copy.owner = literal(owner.empty() ? user_ : owner);
    if (step.args.size() > 3) copy.mode = literal(step.args[3]);
    add(text, std::move(copy), step.force);
    return {};
  }

  const TemplateSpec& spec_;
  std::string user_;
  BuildPlan plan_;
  Stage stage_;
};

}  // namespace

Result<std::vector<TemplateStep>> parse_template_steps(const json::Value& steps) {
  const json::Value::Array* items = steps.as_array();
  if (items == nullptr) return fail(Error::invalid("steps: allowed is a list"));
  if (items->size() > kMaxTemplateSteps)
    return fail(Error::exhausted("steps: there are " + std::to_string(items->size()) +
                                 ", at most " + std::to_string(kMaxTemplateSteps) +
                                 " are allowed"));
  std::vector<TemplateStep> parsed;
  for (std::size_t at = 0; at < items->size(); ++at) {
    const json::Value& item = (*items)[at];
    TemplateStep step;
    const json::Value* type = item.find("type");
    if (type == nullptr || type->as_string() == nullptr)
      return wrong(at, "type: allowed are RUN, COPY, WORKDIR, USER and ENV");
    step.type = *type->as_string();
    if (const json::Value* args = item.find("args"); args != nullptr && !args->is_null()) {
      TRY_ASSIGN(step.args, strings_of(*args, at));
    }
    if (const json::Value* hash = item.find("filesHash"); hash != nullptr && !hash->is_null()) {
      if (hash->as_string() == nullptr) return wrong(at, "filesHash: allowed is a string");
      step.files_hash = *hash->as_string();
    }
    if (const json::Value* force = item.find("force"); force != nullptr && !force->is_null()) {
      if (force->as_bool() == nullptr) return wrong(at, "force: allowed are true and false");
      step.force = *force->as_bool();
    }
    parsed.push_back(std::move(step));
  }
  return parsed;
}

Result<BuildPlan> plan_template(const TemplateSpec& spec) {
  return Compiler(spec).run();
}

std::string template_step_name(const TemplateSpec& spec, std::uint32_t number) {
  // FROM, USER and WORKDIR, and perhaps the command that provisions.
  const std::uint32_t before = spec.provision == Provision::kYes ? 4 : 3;
  return number <= before ? "base" : std::to_string(number - before);
}

std::string template_error(const StepFailure& failure) {
  if (!failure.step.starts_with(kRunText)) return failure.text();
  const std::string command = failure.step.substr(kRunText.size());
  std::string reason = failure.reason;
  if (!failure.unknown_user.empty())
    reason = "command failed: unauthenticated: invalid username: '" + failure.unknown_user + "'";
  return "failed to run command '" + command + "': " + reason;
}

}  // namespace caisson::build
