// Writes seccomp_tables.h: every filter as a ready array.
//
//   generate_seccomp OUT POLICY NO_SETID NUMBERS [OTHER-NUMBERS…]
//
// Runs on the build machine alone. NUMBERS is the table of the architecture that is built for; the
// others only say which names of the policy exist elsewhere.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "guest/seccomp/compiler.h"

namespace caisson::guest::seccomp {
namespace {

Result<std::string> read_text(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(Error::not_found(std::string("cannot read ") + path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string array(const std::string& name, const std::vector<sock_filter>& program) {
  std::string text = "// " + std::to_string(program.size()) + " instructions.\n" +
                     "inline constexpr sock_filter " + name + "[] = {\n";
  char line[64];
  for (const sock_filter& instruction : program) {
    std::snprintf(line, sizeof line, "    {0x%02x, %u, %u, 0x%08x},\n", instruction.code,
                  instruction.jt, instruction.jf, instruction.k);
    text += line;
  }
  return text + "};\n\n";
}

Status generate(int count, char** arguments) {
  if (count < 5) {
    return fail(Error::invalid("usage: generate_seccomp OUT POLICY NO_SETID NUMBERS [OTHERS…]"));
  }
  std::vector<Numbers> tables;
  for (int i = 4; i < count; ++i) {
    TRY_ASSIGN(const std::string text, read_text(arguments[i]));
    Result<Numbers> numbers = parse_numbers(text);
    if (!numbers.has_value()) return fail(std::move(numbers).error().with(arguments[i]));
    tables.push_back(std::move(*numbers));
  }
  const Numbers numbers = tables.front();
  std::string out =
      "// Made by generate_seccomp from policy.def and no_setid.def; do not edit.\n"
      "#pragma once\n\n#include \"base/kernel_abi.h\"\n\n"
      "namespace caisson::guest::seccomp::tables {\n\n";
  TRY_ASSIGN(const std::string policy_text, read_text(arguments[2]));
  Result<Policy> policy = parse_policy(policy_text, numbers, tables);
  if (!policy.has_value()) return fail(std::move(policy).error().with(arguments[2]));
  const char* const names[] = {"kDefault", "kBrowser", "kDebug"};
  for (std::size_t i = 0; i < std::size(names); ++i) {
    TRY_ASSIGN(const std::vector<sock_filter> plain, compile(*policy, numbers, i, false));
    TRY_ASSIGN(const std::vector<sock_filter> listener, compile(*policy, numbers, i, true));
    out += array(names[i], plain) + array(std::string(names[i]) + "Listener", listener);
  }
  TRY_ASSIGN(const std::string no_setid_text, read_text(arguments[3]));
  Result<Policy> no_setid = parse_policy(no_setid_text, numbers, tables);
  if (!no_setid.has_value()) return fail(std::move(no_setid).error().with(arguments[3]));
  TRY_ASSIGN(const std::vector<sock_filter> program, compile(*no_setid, numbers, 0, false));
  out += array("kNoSetid", program) + "}  // namespace caisson::guest::seccomp::tables\n";
  std::ofstream file(arguments[1], std::ios::binary | std::ios::trunc);
  file << out;
  file.close();
  if (!file) return fail(Error::unavailable(std::string("cannot write ") + arguments[1]));
  return {};
}

}  // namespace
}  // namespace caisson::guest::seccomp

int main(int count, char** arguments) {
  const caisson::Status done = caisson::guest::seccomp::generate(count, arguments);
  if (done.has_value()) return 0;
  std::fprintf(stderr, "generate_seccomp: %s\n", done.error().message().c_str());
  return 1;
}
