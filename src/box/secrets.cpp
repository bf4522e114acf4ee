#include "box/secrets.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "egress/minter_process.h"
#include "egress/secret_command.h"
#include "policy/upstream_proxy.h"

namespace caisson::box {
namespace {

// With the end of a line that an editor leaves, and one byte to see that there is more.
constexpr std::size_t kMostRead = 4096 + 3;

using policy::SecretSource;

Result<SecretValue> read_value(int fd) {
  std::array<char, kMostRead> bytes;
  std::size_t size = 0;
  SecretValue value;
  Status status;
  while (size < bytes.size()) {
    const ssize_t count = ::read(fd, bytes.data() + size, bytes.size() - size);
    if (count > 0) {
      size += static_cast<std::size_t>(count);
      continue;
    }
    if (count == 0) break;
    if (errno == EINTR) continue;
    pollfd ready{fd, POLLIN, 0};
    if (errno == EAGAIN && ::poll(&ready, 1, -1) >= 0) continue;
    status = fail_errno("read");
    break;
  }
  std::string_view text(bytes.data(), size);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  value = SecretValue(text);
  wipe(bytes.data(), bytes.size());
  if (!status.has_value()) return fail(std::move(status).error());
  return value;
}

}  // namespace

Result<SecretValue> fetch_secret(const SecretSource& source) {
  switch (source.kind) {
    case SecretSource::Kind::kEnv: {
      const char* const value = ::getenv(source.text.c_str());
      if (value == nullptr)
        return fail(Error::not_found("the variable " + source.text + " is not set"));
      return SecretValue(value);
    }
    case SecretSource::Kind::kFile: {
      const Fd file(::open(source.text.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
      if (!file.valid()) return fail_errno("open " + source.text);
      return read_value(file.get());
    }
    case SecretSource::Kind::kFd:
      return read_value(source.descriptor);
    case SecretSource::Kind::kVault:
      return fail(Error::invalid(
          "what a vault keeps is a server's, for its own sandboxes; allowed are env, file, fd and "
          "command"));
    case SecretSource::Kind::kCommand: {
      TRY_ASSIGN(egress::Minted minted, egress::mint(source.command, source.ttl_ms));
      return std::move(minted.value);
    }
  }
  return fail(Error::invalid("a source of another kind"));
}

Result<FetchedSecrets> fetch_secrets(const policy::NetworkPolicy& policy) {
  FetchedSecrets fetched;
  for (const policy::SecretRule& rule : policy::rules_with_values(policy)) {
    const std::string name = policy::key_of(rule);
    fetched.ends.emplace_back();
    if (rule.source.kind == SecretSource::Kind::kCommand) {
      auto minted = egress::mint(rule.source.command, rule.source.ttl_ms);
      if (!minted.has_value()) return fail(std::move(minted).error().with(name));
      fetched.values.push_back(std::move(minted->value));
      fetched.ends.back() = minted->expires;
      continue;
    }
    auto value = fetch_secret(rule.source);
    if (!value.has_value()) return fail(std::move(value).error().with(name));
    fetched.values.push_back(std::move(*value));
  }
  return fetched;
}

Result<Fd> start_minter(const policy::NetworkPolicy& policy, const FetchedSecrets& secrets) {
  std::vector<egress::MintedSecret> minted;
  const std::vector<policy::SecretRule> rules = policy::rules_with_values(policy);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (!secrets.ends[i]) continue;
    const policy::SecretRule& rule = rules[i];
    minted.push_back({.name = rule.name,
                      .command = rule.source.command,
                      .ttl_ms = rule.source.ttl_ms,
                      .value = secrets.values[i].bytes(),
                      .expires = secrets.ends[i]});
  }
  if (minted.empty()) return Fd();
  auto started = egress::start_minter(minted);
  if (!started.has_value()) return fail(std::move(started).error().with("network.secrets"));
  return started;
}

void forget_variables(const policy::NetworkPolicy& policy) {
  for (const policy::SecretRule& rule : policy::rules_with_values(policy)) {
    if (rule.source.kind != SecretSource::Kind::kEnv) continue;
    char* const value = ::getenv(rule.source.text.c_str());
    if (value == nullptr) continue;
    wipe(value, std::strlen(value));
    ::unsetenv(rule.source.text.c_str());
  }
}

void add_placeholders(std::vector<std::string>& environment, const policy::NetworkPolicy& policy,
                      const std::vector<std::string>& placeholders) {
  for (std::size_t i = 0; i < policy.secrets.size(); ++i) {
    if (policy.secrets[i].env.empty()) continue;
    const std::string begin = policy.secrets[i].env + "=";
    std::erase_if(environment,
                  [&](const std::string& setting) { return setting.starts_with(begin); });
    environment.push_back(begin + placeholders[i]);
  }
}

Status check_variables(const policy::NetworkPolicy& policy,
                       const std::map<std::string, std::string>& env) {
  for (const policy::SecretRule& rule : policy.secrets) {
    if (rule.env.empty() || !env.contains(rule.env)) continue;
    return fail(Error::invalid("env." + rule.env + ": found a value beside network.secrets." +
                               rule.name +
                               ", whose placeholder stands there; allowed is one of "
                               "the two"));
  }
  return {};
}

}  // namespace caisson::box
