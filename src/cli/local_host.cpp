#include "box/registry.h"
#include "box/result_json.h"
#include "box/secrets.h"
#include "cli/host.h"

namespace caisson::cli {
namespace {

class LocalSandbox final : public HostedSandbox {
 public:
  explicit LocalSandbox(Sandbox sandbox) : sandbox_(std::move(sandbox)) {}

  const SandboxInfo& info() const override { return sandbox_.info(); }
  const std::vector<std::string>& notes() const override { return sandbox_.notes(); }
  Result<RunResult> run(const Command& command, const RunOptions& options) override {
    return sandbox_.run(command, options);
  }
  Result<std::optional<Outcome>> start(const Command& command) override {
    return sandbox_.start(command);
  }
  Result<std::optional<Outcome>> attach(Sandbox::Follow follow,
                                        const RunOptions& options) override {
    return sandbox_.attach(follow, options);
  }
  Status copy_in(const std::string& host_path, const std::string& inside_path) override {
    return sandbox_.copy_in(host_path, inside_path);
  }
  Status copy_out(const std::string& inside_path, const std::string& host_path) override {
    return sandbox_.copy_out(inside_path, host_path);
  }
  Status fetch_outputs() override { return sandbox_.fetch_outputs(); }
  Status pause() override { return sandbox_.pause(); }
  Status resume() override { return sandbox_.resume(); }
  Status set_network(const std::optional<policy::NetworkPolicy>& policy) override {
    return sandbox_.set_network(policy);
  }
  Status close() override { return sandbox_.close(); }
  Status end() override { return sandbox_.end(); }
  const policy::NetworkReport* network_report() const override {
    const auto& report = sandbox_.network_report();
    return report.has_value() ? &*report : nullptr;
  }

 private:
  Sandbox sandbox_;
};

class LocalHost final : public Host {
 public:
  void sweep() override { box::sweep_dead(); }
  void begin() override {
    // Where it fails, create() fails in the same way later and says so.
    if (auto started = Sandbox::begin(); started.has_value()) begun_ = std::move(*started);
  }
  Result<std::unique_ptr<HostedSandbox>> create(const SandboxSpec& spec,
                                                CreateOptions options) override {
    options.begun = &begun_;
    auto created = Sandbox::create(spec, options);
    // This program makes one sandbox, and passes its own environment to nobody.
    if (spec->network.has_value()) box::forget_variables(*spec->network);
    return held(std::move(created));
  }
  Result<std::unique_ptr<HostedSandbox>> connect(const std::string& id) override {
    return held(Sandbox::connect(id));
  }
  Result<std::vector<SandboxInfo>> list() override { return Sandbox::list(); }
  json::Value shown(const SandboxInfo& info) const override { return box::info_value(info); }
  Status keep_secret(const std::string&, SecretValue) override { return no_server(); }
  Result<json::Value::Array> kept_secrets() override { return fail(no_server().error()); }
  Status forget_secret(const std::string&) override { return no_server(); }
  std::string_view grant_option() const override { return "--ro"; }

 private:
  static Status no_server() {
    return fail(Error::precondition(
        "secrets are kept by a server: say which by --server URL or $CAISSON_SERVER; a sandbox of "
        "this host is given them by caisson run --secret NAME=SOURCE@HOST"));
  }
  static Result<std::unique_ptr<HostedSandbox>> held(Result<Sandbox> sandbox) {
    if (!sandbox.has_value()) return fail(std::move(sandbox).error());
    return std::make_unique<LocalSandbox>(std::move(*sandbox));
  }

  Sandbox::Begun begun_;
};

}  // namespace

std::unique_ptr<Host> make_local_host() {
  return std::make_unique<LocalHost>();
}

}  // namespace caisson::cli
