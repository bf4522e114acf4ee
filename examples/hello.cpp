// The library in one page: run code that nobody vouches for, look at the result, stream output, set
// limits, and use one sandbox for several commands.
#include <caisson/sandbox.h>

#include <cstdio>
#include <string>

namespace {

int complain(const caisson::Error& error) {
  std::fprintf(stderr, "hello: %s\n", error.message().c_str());
  return 1;
}

std::string name(const caisson::Outcome& outcome) {
  return std::string(caisson::to_string(outcome.verdict));
}

// One command in a sandbox of its own.
int run_once() {
  auto spec = caisson::SandboxSpec::validate(
      {.image = "host", .command = {"python3", "-c", "print(6 * 7)"}});
  if (!spec.has_value()) return complain(spec.error());
  auto run = caisson::run(*spec);
  if (!run.has_value()) return complain(run.error());
  std::printf("%s with %u: %s", name(run->outcome).c_str(), run->outcome.exit_code,
              run->standard_output.c_str());
  return 0;
}

// Several commands in one sandbox that may last half a second each, the second one streamed.
int run_several() {
  caisson::policy::SpecValues values;
  values.image = "host";
  values.limits.timeout_ms = 500;
  auto spec = caisson::SandboxSpec::validate(values);
  if (!spec.has_value()) return complain(spec.error());
  caisson::Command write;
  write.arguments = {"sh", "-c", "cat > note"};
  write.input = "kept while the sandbox lives\n";
  // The first command may be told at once; it then starts while the sandbox is still being made.
  auto sandbox = caisson::Sandbox::create(*spec, {.first_command = &write});
  if (!sandbox.has_value()) return complain(sandbox.error());
  if (auto run = sandbox->run(write); !run.has_value()) return complain(run.error());

  caisson::RunOptions streamed;
  streamed.on_output = [](caisson::OutputChannel, std::string_view bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    return true;
  };
  caisson::Command read;
  read.arguments = {"sh", "-c", "cat note; sleep 100"};
  auto run = sandbox->run(read, streamed);
  if (!run.has_value()) return complain(run.error());
  std::printf("%s after %llu ms\n", name(run->outcome).c_str(),
              static_cast<unsigned long long>(run->outcome.usage.elapsed_us / 1000));
  if (auto closed = sandbox->close(); !closed.has_value()) return complain(closed.error());
  return 0;
}

}  // namespace

int main() {
  if (const int failed = run_once(); failed != 0) return failed;
  return run_several();
}
