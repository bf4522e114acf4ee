// A kept sandbox, for the tests: what no command does yet.
//
//   kept_tool make [LIFETIME]        makes one (host image, 60s), prints its id, and waits to be
//   killed kept_tool keep ID LABEL ARG...   starts a kept command; prints its number and pid
//   kept_tool list ID                a line for each: NUMBER PID LABEL running|exited CODE|…
//   kept_tool read ID NUMBER BYTES   joins from the oldest byte on and prints BYTES of output
//   kept_tool follow ID NUMBER       the same to its end, then its verdict
//   kept_tool deadline ID MS         moves the deadline
//   kept_tool usage ID               CPU-MICROSECONDS MEMORY PIDS DISK
#include <caisson/sandbox.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"

namespace caisson {
namespace {

using Arguments = std::vector<std::string>;

std::string ending(const std::optional<Outcome>& outcome) {
  if (!outcome) return "running";
  std::string text(to_string(outcome->verdict));
  if (outcome->verdict == Verdict::kExited) text += " " + std::to_string(outcome->exit_code);
  return text;
}

Status make(const Arguments& arguments) {
  policy::SpecValues values;
  values.image = "host";
  values.limits.timeout_ms =
      arguments.empty() ? 60'000 : std::strtoull(arguments[0].c_str(), nullptr, 10);
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(values));
  TRY_ASSIGN(const Sandbox sandbox, Sandbox::create(spec, {.life = Life::kKept}));
  std::printf("%s\n", sandbox.info().id.c_str());
  std::fflush(stdout);
  for (;;) ::pause();
}

Status keep(Sandbox& sandbox, const Arguments& arguments) {
  Command command;
  command.arguments.assign(arguments.begin() + 1, arguments.end());
  TRY_ASSIGN(const auto started, sandbox.keep(command, {.label = arguments[0]}));
  if (const auto* outcome = std::get_if<Outcome>(&started))
    return fail(Error::precondition(ending(*outcome) + ": " + outcome->detail));
  const auto& kept = std::get<KeptCommand>(started);
  std::printf("%u %u\n", kept.number, kept.pid);
  return {};
}

Status list(Sandbox& sandbox) {
  TRY_ASSIGN(const auto kept, sandbox.kept());
  for (const KeptCommand& command : kept)
    std::printf("%u %u %s %s\n", command.number, command.pid, command.label.c_str(),
                ending(command.outcome).c_str());
  return {};
}

Status read(Sandbox& sandbox, const Arguments& arguments, std::size_t most) {
  std::size_t seen = 0;
  RunOptions options;
  options.on_output = [&](OutputChannel, std::string_view bytes) {
    bytes = bytes.substr(0, most - seen);
    seen += bytes.size();
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    return seen < most;
  };
  const auto number = static_cast<std::uint32_t>(std::strtoul(arguments[0].c_str(), nullptr, 10));
  TRY_ASSIGN(const auto outcome, sandbox.attach(number, Sandbox::From::kOldest, options));
  if (outcome) std::printf("%s\n", ending(outcome).c_str());
  return {};
}

Status usage(Sandbox& sandbox) {
  TRY_ASSIGN(const SandboxUsage used, sandbox.usage());
  std::printf("%llu %llu %llu %llu\n",
              static_cast<unsigned long long>(used.user_us + used.system_us),
              static_cast<unsigned long long>(used.memory_now),
              static_cast<unsigned long long>(used.pids_now),
              static_cast<unsigned long long>(used.disk_bytes));
  return {};
}

Status act(const Arguments& all) {
  if (all.empty()) return fail(Error::invalid("which way?"));
  if (all[0] == "make") return make({all.begin() + 1, all.end()});
  if (all.size() < 2) return fail(Error::invalid("which sandbox?"));
  TRY_ASSIGN(Sandbox sandbox, Sandbox::connect(all[1]));
  const Arguments rest(all.begin() + 2, all.end());
  if (all[0] == "list") return list(sandbox);
  if (all[0] == "usage") return usage(sandbox);
  if (all[0] == "keep" && rest.size() >= 2) return keep(sandbox, rest);
  if (all[0] == "deadline" && rest.size() == 1)
    return sandbox.set_deadline(std::strtoull(rest[0].c_str(), nullptr, 10));
  if (all[0] == "follow" && rest.size() == 1) return read(sandbox, rest, ~std::size_t{0});
  if (all[0] == "read" && rest.size() == 2)
    return read(sandbox, rest, std::strtoull(rest[1].c_str(), nullptr, 10));
  return fail(Error::invalid("no such way: " + all[0]));
}

}  // namespace
}  // namespace caisson

int main(int count, char** arguments) {
  const auto done = caisson::act({arguments + 1, arguments + count});
  if (done.has_value()) return 0;
  std::fprintf(stderr, "kept_tool: %s\n", done.error().message().c_str());
  return 1;
}
