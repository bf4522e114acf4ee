// What the library can do and no command does yet, for the tests: a sandbox whose layer is kept and
// packed, and one with an egress proxy.
//
//   layer_tool [--image NAME] [--quota] [--user USER] [--as USER] [--sudo] [--keep FILE] [--wait]
//
//              [--disk BYTES] [--entries N] [--bytes N] [--egress] [--allow HOST[:PORT]]…
//              -- SCRIPT
//
// Runs SCRIPT by `sh -c` and passes its output on; then one line of JSON on stderr. With --wait it
// says "kept" on stderr when the sandbox has ended and "dropped" when the layer is closed, and
// waits for a line each time.
#include <caisson/sandbox.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "egress/proxy.h"
#include "image/kept_layer.h"
#include "image/pack.h"

namespace caisson {
namespace {

struct Arguments {
  policy::SpecValues spec;
  std::string keep;
  bool wait = false;
  image::PackLimits limits;
  std::vector<std::string> allowed;
  bool egress = false;
  std::string as;  // the command's user, where it is not the sandbox's
  std::string script;
};

Arguments parse(int count, char** words) {
  Arguments arguments;
  arguments.spec.image = "host";
  arguments.spec.limits.timeout_ms = 120'000;
  arguments.spec.limits.cpu_time_ms = 120'000;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&] { return std::string(++i < count ? words[i] : ""); };
    if (word == "--image") arguments.spec.image = value();
    if (word == "--quota") arguments.spec.layer = policy::LayerKind::kQuota;
    if (word == "--user") arguments.spec.user = value();
    if (word == "--as") arguments.as = value();
    if (word == "--sudo") arguments.spec.privileges = policy::Privileges::kSudo;
    if (word == "--keep") arguments.keep = value();
    if (word == "--wait") arguments.wait = true;
    if (word == "--disk") arguments.spec.limits.disk = std::stoull(value());
    if (word == "--entries") arguments.limits.entries = std::stoull(value());
    if (word == "--bytes") arguments.limits.bytes = std::stoull(value());
    if (word == "--egress") arguments.egress = true;
    if (word == "--allow") {
      arguments.allowed.push_back(value());
      arguments.egress = true;
    }
    if (word == "--") arguments.script = value();
  }
  return arguments;
}

void pause_at(const Arguments& arguments, const std::string& word) {
  if (!arguments.wait) return;
  std::fprintf(stderr, "%s\n", word.c_str());
  char line[16];
  if (std::fgets(line, sizeof line, stdin) == nullptr) std::exit(3);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

// Whoever has the descriptor sees the upper directory, nothing above it, and cannot change it.
Status check(const image::KeptLayer& layer) {
  const Fd above(::openat(layer.directory.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat top{}, there{};
  if (!above.valid() || ::fstat(above.get(), &there) != 0 ||
      ::fstat(layer.directory.get(), &top) != 0)
    return fail_errno("open .. of the layer");
  if (top.st_dev != there.st_dev || top.st_ino != there.st_ino)
    return fail(Error::internal("the layer's directory has something above it"));
  const Fd made(::openat(layer.directory.get(), "made", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (made.valid() || errno != EROFS) return fail(Error::internal("the layer can be written to"));
  return {};
}

Status keep(const Arguments& arguments, image::KeptLayer layer) {
  TRY(check(layer));
  pause_at(arguments, "kept");
  const Fd file(::open(arguments.keep.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) return fail_errno("create " + arguments.keep);
  TRY_ASSIGN(const image::PackedFile packed,
             image::pack_layer_to(file.get(), layer, arguments.limits, {}));
  std::fprintf(stderr,
               "{\"digest\":\"%s\",\"diff_id\":\"%s\",\"size\":%llu,\"entries\":%llu,"
               "\"bytes\":%llu}\n",
               packed.digest.c_str(), packed.diff_id.c_str(),
               static_cast<unsigned long long>(packed.size),
               static_cast<unsigned long long>(packed.entries),
               static_cast<unsigned long long>(packed.bytes));
  layer = {};
  pause_at(arguments, "dropped");
  return {};
}

void tell(const egress::Report& report) {
  std::string refusals;
  for (const egress::Refusal& refusal : report.refusals) {
    refusals += (refusals.empty() ? "" : ",") + std::string("{\"target\":") +
                quoted(refusal.target) + ",\"reason\":" + quoted(refusal.reason) +
                ",\"count\":" + std::to_string(refusal.count) + "}";
  }
  std::fprintf(stderr,
               "{\"connections\":%llu,\"out\":%llu,\"in\":%llu,\"refused\":%llu,"
               "\"refusals\":[%s]}\n",
               static_cast<unsigned long long>(report.connections),
               static_cast<unsigned long long>(report.bytes_out),
               static_cast<unsigned long long>(report.bytes_in),
               static_cast<unsigned long long>(report.refused), refusals.c_str());
}

// Which file a descriptor is of.
std::string identity(const Fd& file) {
  struct stat facts{};
  if (::fstat(file.get(), &facts) != 0) return " ?";
  return " " + std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
}

Status run_tool(const Arguments& arguments) {
  Command command;
  command.arguments = {"sh", "-c", arguments.script};
  command.user = arguments.as;
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(arguments.spec));
  TRY_ASSIGN(Sandbox sandbox, Sandbox::create(spec, {.keep_layer = !arguments.keep.empty(),
                                                     .egress_listener = arguments.egress}));
  std::string handed_out;
  std::optional<image::KeptLayer> layer;
  if (!arguments.keep.empty()) {
    TRY_ASSIGN(layer, sandbox.take_layer());
    handed_out += identity(layer->directory) + identity(layer->record);
  }
  std::optional<egress::EgressProxy> proxy;
  if (arguments.egress) {
    TRY_ASSIGN(Fd listener, sandbox.take_egress_listener());
    handed_out += identity(listener);
    TRY_ASSIGN(egress::AllowList allowed, egress::AllowList::parse(arguments.allowed));
    for (const std::string& variable : egress::EgressProxy::environment(allowed)) {
      const std::size_t at = variable.find('=');
      command.env.emplace(variable.substr(0, at), variable.substr(at + 1));
    }
    TRY_ASSIGN(proxy, egress::EgressProxy::start(std::move(listener), std::move(allowed)));
  }
  pause_at(arguments, "up" + handed_out);
  TRY_ASSIGN(const RunResult result, sandbox.run(command));
  std::fwrite(result.standard_output.data(), 1, result.standard_output.size(), stdout);
  std::fwrite(result.standard_error.data(), 1, result.standard_error.size(), stdout);
  std::fflush(stdout);
  if (proxy) tell(proxy->stop());
  if (result.outcome.verdict != Verdict::kExited || result.outcome.exit_code != 0)
    return fail(
        Error::internal("the script ended with " + std::to_string(result.outcome.exit_code)));
  TRY(sandbox.close());
  if (layer) TRY(keep(arguments, std::move(*layer)));
  return {};
}

}  // namespace
}  // namespace caisson

int main(int count, char** words) {
  const auto done = caisson::run_tool(caisson::parse(count, words));
  if (done.has_value()) return 0;
  std::fprintf(stderr, "layer_tool: %s\n", done.error().message().c_str());
  return 1;
}
