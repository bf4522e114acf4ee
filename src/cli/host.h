// Where the sandboxes of a command are: on this host, or on a server (cli/remote). Commands are
// written once for both, so that they say and return the same.
//
// Calls block; what a call promises stands with caisson::Sandbox, whose calls have the same names.
// One thread.
#pragma once

#include <caisson/sandbox.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/secret.h"

namespace caisson::cli {

class HostedSandbox {
 public:
  virtual ~HostedSandbox() = default;
  virtual const SandboxInfo& info() const = 0;
  virtual const std::vector<std::string>& notes() const = 0;
  virtual Result<RunResult> run(const Command& command, const RunOptions& options) = 0;
  virtual Result<std::optional<Outcome>> start(const Command& command) = 0;
  virtual Result<std::optional<Outcome>> attach(Sandbox::Follow follow,
                                                const RunOptions& options) = 0;
  virtual Status copy_in(const std::string& host_path, const std::string& inside_path) = 0;
  virtual Status copy_out(const std::string& inside_path, const std::string& host_path) = 0;
  virtual Status fetch_outputs() = 0;
  virtual Status pause() = 0;
  virtual Status resume() = 0;
  virtual Status set_network(const std::optional<policy::NetworkPolicy>& policy) = 0;
  virtual Status close() = 0;
  virtual Status end() = 0;
  // What its network's gateway did, once it is closed; null: it had none.
  virtual const policy::NetworkReport* network_report() const { return nullptr; }
};

class Host {
 public:
  virtual ~Host() = default;
  // Removes what sandboxes left behind that ended without anybody to do it.
  virtual void sweep() = 0;
  // A create() follows: what every sandbox needs may be claimed.
  virtual void begin() = 0;
  // `options`: but for `begun`, which is the host's own.
  virtual Result<std::unique_ptr<HostedSandbox>> create(const SandboxSpec& spec,
                                                        CreateOptions options) = 0;
  virtual Result<std::unique_ptr<HostedSandbox>> connect(const std::string& id) = 0;
  virtual Result<std::vector<SandboxInfo>> list() = 0;
  // One of list(), as --json has it: what is known of it here.
  virtual json::Value shown(const SandboxInfo& info) const = 0;
  // What the caller's team keeps with a server, as its API has it (/secrets). keep_secret() gives
  // one that is there another value. Errors: failed_precondition where this is no server; the
  // server's.
  virtual Status keep_secret(const std::string& name, SecretValue value) = 0;
  virtual Result<json::Value::Array> kept_secrets() = 0;
  virtual Status forget_secret(const std::string& name) = 0;
  // The option by which a file of the caller's is to be seen inside.
  virtual std::string_view grant_option() const = 0;
};

std::unique_ptr<Host> make_local_host();

}  // namespace caisson::cli
