// The build-time compiler of policy.def: text to classic BPF.
//
// Used by generate_main.cpp and by the tests alone; no program that ships links it. The program is
// a binary search over ranges of numbers with the same answer, so that every number costs about ten
// instructions and the kernel's own analysis at install time stays short. libseccomp is not used:
// it cannot express several comparisons of one argument in one rule, a different answer for numbers
// newer than the table, or ranges.
//
// Grammar, line by line; `#` starts a comment:
//
//   unlisted allow             known and unknown numbers that no group names are allowed; without
//                              this line every known number must be named and unknown ones get
//                              ENOSYS
//   group NAME [in PROFILE…]   with profiles: replaces what was said before for those profiles
//   why TEXT                   required, before the group's first rule
//   define NAME NUMBER         decimal, 0x hexadecimal or 0 octal; valid to the file's end
//   ACTION CALL…               allow, deny, missing, report, succeed, errno N
//   call CALL                  then indented lines, tried in order:
//     ACTION if TERM and TERM… TERM: argN [& MASK] ==|!= V|V…   (low 32 bits, as the kernel reads
//     else ACTION                    int arguments), or argN.full ==|!= V   (all 64)
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/kernel_abi.h"

namespace caisson::guest::seccomp {

// One architecture's numbers (numbers_*.def).
struct Numbers {
  // Another way into the kernel, where only exit and exit_group are answered (with the call itself,
  // so that a program that came this way can end); everything else there is ENOSYS.
  struct Foreign {
    std::uint32_t architecture = 0;
    std::uint32_t exit = 0, exit_group = 0;
  };
  std::uint32_t architecture = 0;
  std::vector<Foreign> foreign;
  bool has_x32 = false;
  Foreign x32;  // numbers with bit 30 set
  std::map<std::uint32_t, std::string> name_of;
  std::map<std::string, std::uint32_t, std::less<>> number_of;
};
inline constexpr std::uint32_t kX32Bit = 0x40000000;

Result<Numbers> parse_numbers(std::string_view text);

enum class ActionKind : std::uint8_t { kAllow, kErrno, kReport };
struct Action {
  ActionKind kind = ActionKind::kAllow;
  std::uint16_t error_number = 0;  // kErrno and, without a listener, kReport
  bool operator==(const Action&) const = default;
  auto operator<=>(const Action&) const = default;
};

struct Term {
  unsigned argument = 0;
  bool full = false;  // all 64 bits; then there is no mask and one value
  bool equal = true;  // == any of the values, else != all of them
  std::uint32_t mask = 0xffffffff;
  std::vector<std::uint64_t> values;
};
struct Clause {
  Action action;
  std::vector<Term> terms;  // all must hold
};
struct Rule {
  std::vector<Clause> clauses;  // the first that holds decides
  Action otherwise;
};

struct Policy {
  bool allows_unlisted = false;
  // By number, for each profile of `profiles` in order.
  std::vector<std::map<std::uint32_t, Rule>> rules;
};

// The profiles in the order of the Profile enumeration.
inline constexpr std::string_view kProfileNames[] = {"default", "browser", "debug"};

// Errors name the line. A call that `numbers` does not know is an error unless one of `others` (the
// tables of other architectures) does; a number that nothing names is an error too.
Result<Policy> parse_policy(std::string_view text, const Numbers& numbers,
                            const std::vector<Numbers>& others);

// The program for one profile. Error: out_of_range when it has more instructions than the kernel
// takes.
Result<std::vector<sock_filter>> compile(const Policy& policy, const Numbers& numbers,
                                         std::size_t profile, bool with_listener);

// What the policy says about one call, without compiling: SECCOMP_RET_* with its data. The tests
// compare it with the program's own answer.
std::uint32_t evaluate(const Policy& policy, const Numbers& numbers, std::size_t profile,
                       bool with_listener, const seccomp_data& call);

}  // namespace caisson::guest::seccomp
