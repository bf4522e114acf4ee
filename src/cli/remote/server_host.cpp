#include "cli/remote/server_host.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/sys.h"
#include "base/time_text.h"
#include "box/files.h"
#include "box/host_path.h"
#include "box/result_json.h"
#include "cli/remote/api.h"
#include "cli/remote/remote_command.h"
#include "cli/remote/remote_files.h"
#include "cli/remote/waiting.h"
#include "cli/server_options.h"
#include "policy/document.h"
#include "policy/limits.h"
#include "policy/network_document.h"

namespace caisson::cli {
namespace {

constexpr std::string_view kSandboxes = "/v1/sandboxes";
constexpr std::string_view kSecrets = "/secrets";
constexpr std::size_t kMostSecretName = 64;
constexpr std::string_view kWall = "namespace";
// Where a sandbox keeps what it was made to run, for `ps`.
constexpr std::string_view kCommandKey = "caisson.command";
constexpr std::size_t kMostShownCommand = 4096;
// What a sandbox has beside the time of its command: files are brought in before and out after.
constexpr std::uint64_t kExtraTimeMs = 5 * 60'000;
constexpr std::uint64_t kLeastResults = 256ull << 20;
constexpr std::uint64_t kMostCopiedOut = 64ull << 30;
constexpr std::size_t kMostKey = 4096;
// A server that always has a next page is not followed for ever.
constexpr int kMostPages = 1000;

Error strange(std::string_view key) {
  return Error(Code::kDataLoss, "the server tells of a sandbox whose \"" + std::string(key) +
                                    "\" is missing or wrong");
}

Result<std::string> text_of(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  if (found == nullptr || found->as_string() == nullptr) return fail(strange(key));
  return *found->as_string();
}

Result<std::int64_t> time_of(const json::Value& value, std::string_view key) {
  TRY_ASSIGN(const std::string text, text_of(value, key));
  const auto time = parse_time(text);
  if (!time.has_value()) return fail(strange(key));
  return std::chrono::duration_cast<std::chrono::milliseconds>(time->time_since_epoch()).count();
}

class RemoteSandbox final : public HostedSandbox {
 public:
  RemoteSandbox(Api& api, SandboxInfo info)
      : api_(api), info_(std::move(info)), path_(std::string(kSandboxes) + "/" + info_.id) {}
  // One that is for this command's time alone.
  ~RemoteSandbox() override { static_cast<void>(close()); }

  // Of one that was made here.
  Status fill(const SandboxSpec& spec, const CreateOptions& options);

  const SandboxInfo& info() const override { return info_; }
  const std::vector<std::string>& notes() const override { return notes_; }
  Result<RunResult> run(const Command& command, const RunOptions& options) override;
  Result<std::optional<Outcome>> start(const Command& command) override;
  Result<std::optional<Outcome>> attach(Sandbox::Follow follow, const RunOptions& options) override;
  Status copy_in(const std::string& host_path, const std::string& inside_path) override;
  Status copy_out(const std::string& inside_path, const std::string& host_path) override;
  Status fetch_outputs() override;
  Status pause() override { return call("POST", path_ + "/pause"); }
  Status resume() override { return call("POST", path_ + "/resume"); }
  Status set_network(const std::optional<policy::NetworkPolicy>& policy) override {
    json::Value body = json::Value::object();
    body.set("network", policy::network_tree(policy));
    return call("PUT", path_ + "/network", std::move(body));
  }
  Status close() override;
  Status end() override { return call("DELETE", path_); }

 private:
  Status call(std::string method, std::string target, json::Value body = nullptr);
  // Both outlive it.
  io::Async<Result<RunResult>> run_whole(const Command& command, const RunOptions& options);
  Command with_defaults(Command command) const;

  Api& api_;
  SandboxInfo info_;
  std::string path_;
  std::vector<std::string> notes_;
  bool to_close_ = false;
  CommandBounds bounds_;
  std::vector<std::string> entrypoint_;
  std::vector<std::pair<std::string, box::HostTarget>> outputs_;
  std::uint64_t disk_ = kMostCopiedOut;
};

Status RemoteSandbox::call(std::string method, std::string target, json::Value body) {
  const auto done =
      wait(api_.loop(), api_.call(std::move(method), std::move(target), std::move(body)));
  if (!done.has_value()) return fail(done.error());
  return {};
}

Status RemoteSandbox::fill(const SandboxSpec& spec, const CreateOptions& options) {
  info_.command = spec->command;
  info_.life = options.life;
  to_close_ = options.life == Life::kOwner;
  bounds_ = {.timeout_ms = spec->limits.timeout_ms, .output = spec->limits.output};
  if (spec->entrypoint.has_value()) entrypoint_ = *spec->entrypoint;
  if (spec->limits.disk.has_value()) disk_ = *spec->limits.disk;
  for (const policy::Grant& grant : spec->grants) {
    auto source = box::open_host_path(grant.from);
    if (!source.has_value()) return fail(std::move(source).error().with("files"));
    RemoteFiles files(api_, path_);
    auto copied = box::copy_in(files, *source, box::last_component(grant.from), grant.to, "",
                               box::Existing::kMerge);
    if (!copied.has_value())
      return fail(std::move(copied).error().with("copy " + grant.from + " to " + grant.to));
  }
  for (const policy::Output& output : spec->outputs) {
    auto target = box::open_host_target(output.to);
    if (!target.has_value()) return fail(std::move(target).error().with("results"));
    outputs_.emplace_back(output.path, std::move(*target));
  }
  return {};
}

Command RemoteSandbox::with_defaults(Command command) const {
  if (command.from_image)
    command.arguments.insert(command.arguments.begin(), entrypoint_.begin(), entrypoint_.end());
  return command;
}

io::Async<Result<RunResult>> RemoteSandbox::run_whole(const Command& command,
                                                      const RunOptions& options) {
  CO_TRY_ASSIGN(const Started started,
                co_await start_command(api_, path_, command, bounds_, Lives::kForItself));
  RunResult result;
  if (started.outcome.has_value()) {
    result.outcome = *started.outcome;
    co_return result;
  }
  if (options.on_started) options.on_started();
  co_return co_await follow_command(api_, path_, started.number, command, options);
}

Result<RunResult> RemoteSandbox::run(const Command& command, const RunOptions& options) {
  const Command full = with_defaults(command);
  return wait(api_.loop(), run_whole(full, options), kGivesUpAfter);
}

Result<std::optional<Outcome>> RemoteSandbox::start(const Command& given) {
  const Command command = with_defaults(given);
  TRY_ASSIGN(const Started started, wait(api_.loop(), start_command(api_, path_, command, bounds_,
                                                                    Lives::kForTheCommand)));
  return started.outcome;
}

Result<std::optional<Outcome>> RemoteSandbox::attach(Sandbox::Follow follow,
                                                     const RunOptions& options) {
  // The main command is the sandbox's first.
  constexpr std::uint32_t kFirst = 1;
  auto read = wait(api_.loop(), read_command(api_, path_, kFirst, follow, options));
  if (read.has_value() || read.error().code() != Code::kNotFound) return read;
  return fail(Error::precondition("sandbox " + info_.id +
                                  " has no main command; caisson run -d makes one that has"));
}

Status RemoteSandbox::copy_in(const std::string& host_path, const std::string& inside_path) {
  TRY_ASSIGN(const box::HostPath source, box::open_host_path(host_path));
  RemoteFiles files(api_, path_);
  return box::copy_in(files, source, box::last_component(host_path), inside_path, "",
                      box::Existing::kInto);
}

Status RemoteSandbox::copy_out(const std::string& inside_path, const std::string& host_path) {
  TRY_ASSIGN(const box::HostTarget target, box::open_host_target(host_path));
  RemoteFiles files(api_, path_);
  return box::copy_out(files, inside_path, target, "", box::Existing::kInto, kMostCopiedOut);
}

Status RemoteSandbox::fetch_outputs() {
  std::string failures;
  for (const auto& [path, target] : outputs_) {
    RemoteFiles files(api_, path_);
    const auto copied = box::copy_out(files, path, target, "", box::Existing::kMerge,
                                      std::max(disk_, kLeastResults));
    if (copied.has_value()) continue;
    if (!failures.empty()) failures += "; ";
    failures += "result " + path + ": " + copied.error().message();
  }
  if (!failures.empty()) return fail(Error::precondition(failures));
  return {};
}

Status RemoteSandbox::close() {
  if (!std::exchange(to_close_, false)) return {};
  const Status ended = end();
  // One that ended by itself is as wished.
  if (!ended.has_value() && ended.error().code() == Code::kNotFound) return {};
  return ended;
}

class ServerHost final : public Host {
 public:
  explicit ServerHost(Api::Server server) : api_(loop_, std::move(server)) {}

  void sweep() override {}
  void begin() override {}
  Result<std::unique_ptr<HostedSandbox>> create(const SandboxSpec& spec,
                                                CreateOptions options) override;
  Result<std::unique_ptr<HostedSandbox>> connect(const std::string& id) override;
  Result<std::vector<SandboxInfo>> list() override;
  json::Value shown(const SandboxInfo& info) const override;
  Status keep_secret(const std::string& name, SecretValue value) override;
  Result<json::Value::Array> kept_secrets() override;
  Status forget_secret(const std::string& name) override;
  std::string_view grant_option() const override { return "--copy"; }

 private:
  Result<json::Value> call(std::string method, std::string target, json::Value body) {
    return wait(loop_, api_.call(std::move(method), std::move(target), std::move(body)));
  }

  // Three threads: what blocks is input, the control, and looking up a name.
  io::Loop loop_{3};
  Api api_;
};

Result<std::unique_ptr<HostedSandbox>> ServerHost::create(const SandboxSpec& spec,
                                                          CreateOptions options) {
  if (options.first_command != nullptr && spec->command.empty() && !spec->entrypoint.has_value())
    return fail(
        Error::invalid("no program to run: over --server the image's own command does not "
                       "stand in; caisson run [OPTIONS] -- PROGRAM [ARGUMENT...]"));
  TRY_ASSIGN(json::Value body, sandbox_body(spec));
  TRY_ASSIGN(const json::Value made, call("POST", std::string(kSandboxes), std::move(body)));
  TRY_ASSIGN(SandboxInfo info, parse_sandbox(made));
  auto sandbox = std::make_unique<RemoteSandbox>(api_, std::move(info));
  const Status filled = sandbox->fill(spec, options);
  if (!filled.has_value()) {
    static_cast<void>(sandbox->end());
    return fail(filled.error());
  }
  return sandbox;
}

Result<std::unique_ptr<HostedSandbox>> ServerHost::connect(const std::string& id) {
  TRY_ASSIGN(const std::vector<SandboxInfo> all, list());
  const SandboxInfo* found = nullptr;
  for (const SandboxInfo& info : all) {
    if (info.id == id) {
      found = &info;
      break;
    }
    if (id.empty() || !info.id.starts_with(id)) continue;
    if (found != nullptr)
      return fail(Error::invalid("'" + id + "' is the beginning of several sandboxes' ids"));
    found = &info;
  }
  if (found == nullptr)
    return fail(Error::not_found("there is no sandbox '" + id + "' on the server; see caisson ps"));
  return std::make_unique<RemoteSandbox>(api_, *found);
}

// A path of names that anybody may have typed.
static Result<std::string> secret_path(const std::string& name) {
  const bool plain =
      !name.empty() && name.size() <= kMostSecretName &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
          std::string::npos;
  if (!plain)
    return fail(Error::invalid("the name: found '" + name +
                               "'; allowed are 1 to 64 letters, digits, '-', '_' and '.'"));
  return std::string(kSecrets) + "/" + name;
}

Status ServerHost::keep_secret(const std::string& name, SecretValue value) {
  TRY_ASSIGN(const std::string path, secret_path(name));
  json::Value body = json::Value::object();
  body.set("value", std::string(value.bytes()));
  const auto updated = call("POST", path, body);
  if (updated.has_value()) return {};
  if (updated.error().code() != Code::kNotFound) return fail(updated.error());
  body.set("name", name);
  TRY(call("POST", std::string(kSecrets), std::move(body)));
  return {};
}

Result<json::Value::Array> ServerHost::kept_secrets() {
  // All of them: a server keeps no more of one team's.
  TRY_ASSIGN(const json::Value page, call("GET", std::string(kSecrets) + "?limit=1000", {}));
  if (page.as_array() == nullptr) return fail(strange("secrets"));
  return *page.as_array();
}

Status ServerHost::forget_secret(const std::string& name) {
  TRY_ASSIGN(const std::string path, secret_path(name));
  TRY(call("DELETE", path, {}));
  return {};
}

Result<std::vector<SandboxInfo>> ServerHost::list() {
  std::vector<SandboxInfo> all;
  std::string after;
  for (int pages = 1;; ++pages) {
    if (pages > kMostPages)
      return fail(Error(Code::kDataLoss, "the server's list of sandboxes has more than " +
                                             std::to_string(kMostPages) + " pages"));
    TRY_ASSIGN(const json::Value page,
               call("GET", target_of(kSandboxes, {{"after", after}}), nullptr));
    const json::Value* sandboxes = page.find("sandboxes");
    if (sandboxes == nullptr || sandboxes->as_array() == nullptr) return fail(strange("sandboxes"));
    for (const json::Value& value : *sandboxes->as_array()) {
      TRY_ASSIGN(SandboxInfo info, parse_sandbox(value));
      all.push_back(std::move(info));
    }
    const json::Value* next = page.find("next");
    if (next == nullptr || next->as_string() == nullptr || next->as_string()->empty()) break;
    after = *next->as_string();
  }
  // As on this host: the oldest first.
  std::ranges::sort(all, {}, &SandboxInfo::created_ms);
  return all;
}

json::Value ServerHost::shown(const SandboxInfo& info) const {
  json::Value all = box::info_value(info);
  json::Value known = json::Value::object();
  for (const json::Member& member : *all.as_object()) {
    // What a server does not tell of.
    static constexpr std::string_view kUnknown[] = {"image_id", "owner_uid", "user",
                                                    "uid",      "gid",       "exposed_ports"};
    if (std::ranges::find(kUnknown, std::string_view(member.key)) == std::end(kUnknown))
      known.set(member.key, member.value);
  }
  return known;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string option_or(const Parsed& parsed, std::string_view option, const char* name) {
  return parsed.has(option) ? parsed.value(option) : variable(name);
}

Result<std::string> api_key(const Parsed& parsed) {
  std::string file = parsed.value("--server-key-file");
  if (file.empty()) {
    if (std::string key = variable("CAISSON_API_KEY"); !key.empty()) return key;
    file = variable("CAISSON_API_KEY_FILE");
  }
  if (file.empty())
    return fail(
        Error::invalid("no API key for the server: set CAISSON_API_KEY, or name a file "
                       "with --server-key-file; caisson key create makes one"));
  TRY_ASSIGN(std::string key, sys::read_file(AT_FDCWD, file, kMostKey));
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (key.empty()) return fail(Error::invalid("the key file '" + file + "' is empty"));
  return key;
}

}  // namespace

Result<SandboxInfo> parse_sandbox(const json::Value& value) {
  SandboxInfo info;
  info.wall = kWall;
  info.life = Life::kKept;
  TRY_ASSIGN(info.id, text_of(value, "id"));
  const bool plain = !info.id.empty() && std::ranges::all_of(info.id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
  // It becomes a part of paths.
  if (!plain) return fail(strange("id"));
  TRY_ASSIGN(info.image, text_of(value, "image"));
  TRY_ASSIGN(const std::string state, text_of(value, "state"));
  info.paused = state == "paused";
  TRY_ASSIGN(info.created_ms, time_of(value, "started"));
  TRY_ASSIGN(const std::int64_t ends, time_of(value, "ends"));
  // The time of a paused one does not go on.
  if (!info.paused) info.deadline_ms = ends;
  const json::Value* metadata = value.find("metadata");
  const json::Value* text = metadata == nullptr ? nullptr : metadata->find(kCommandKey);
  if (text == nullptr || text->as_string() == nullptr) return info;
  // Whoever made it wrote that; what is no command is left out.
  const auto command = json::parse(*text->as_string());
  if (!command.has_value() || command->as_array() == nullptr) return info;
  for (const json::Value& word : *command->as_array())
    if (word.as_string() != nullptr) info.command.push_back(*word.as_string());
  return info;
}

Result<json::Value> sandbox_body(const SandboxSpec& spec) {
  for (const policy::Grant& grant : spec->grants) {
    if (grant.mode == policy::GrantMode::kCopy) continue;
    const std::string option = grant.mode == policy::GrantMode::kReadOnly ? "--ro" : "--rw";
    return fail(Error::invalid(option + " " + grant.from +
                               ": a server does not see this host's files; --copy sends it a copy, "
                               "and --out brings results back"));
  }
  policy::SpecValues values = spec.values();
  values.grants.clear();
  values.outputs.clear();
  values.command.clear();
  values.entrypoint.reset();
  if (values.limits.timeout_ms.has_value())
    values.limits.timeout_ms =
        std::min(*values.limits.timeout_ms + kExtraTimeMs, policy::kMaxMilliseconds);
  TRY_ASSIGN(const SandboxSpec served, SandboxSpec::validate(std::move(values)));
  TRY_ASSIGN(json::Value document, json::parse(policy::print_spec(served, policy::Format::kJson)));
  json::Value body = json::Value::object();
  body.set("spec", std::move(document));
  json::Value command = json::Value::array();
  for (const std::string& word : spec->command) command.push(word);
  std::string text = json::serialize(command);
  if (spec->command.empty() || text.size() > kMostShownCommand) return body;
  json::Value metadata = json::Value::object();
  metadata.set(kCommandKey, std::move(text));
  body.set("metadata", std::move(metadata));
  return body;
}

Result<std::unique_ptr<Host>> make_server_host(std::span<char* const>, const Parsed& parsed) {
  const std::string url = server_url(parsed);
  if (url.empty())
    return fail(Error::invalid("no server is named: --server URL, or CAISSON_SERVER"));
  Api::Server server;
  TRY_ASSIGN(server.address, parse_server_address(url));
  const bool plain = server.address.scheme == ServerAddress::Scheme::kHttp;
  if (plain && !is_loopback(server.address) && !parsed.has("--insecure-http") &&
      variable("CAISSON_INSECURE_HTTP") != "1")
    return fail(Error::invalid(
        "--server: " + url +
        " would send the API key in the clear; use https://, or allow it by --insecure-http or "
        "CAISSON_INSECURE_HTTP=1"));
  TRY_ASSIGN(server.key, api_key(parsed));
  if (!plain) {
    TRY_ASSIGN(server.trust,
               io::TlsTrust::load(option_or(parsed, "--server-ca", "CAISSON_SERVER_CA")));
  }
  return std::make_unique<ServerHost>(std::move(server));
}

}  // namespace caisson::cli
