#include "guest/seccomp/compiler.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "guest/seccomp/emulator.h"

namespace caisson::guest::seccomp {
namespace {

std::string read_source(const std::string& name) {
  std::ifstream file(std::string(CAISSON_SECCOMP_FOLDER) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Numbers x86_numbers() {
  return parse_numbers(read_source("numbers_x86_64.def")).value();
}

constexpr std::string_view kTinyNumbers =
    "architecture 7\nforeign 8 1 2\nx32 5 6\n0 zero\n1 one\n2 two\n5 five\n6 six\n";

Result<Policy> parse_tiny(std::string_view text) {
  const Numbers numbers = parse_numbers(kTinyNumbers).value();
  return parse_policy(text, numbers, {numbers});
}

// Random calls, half of them with arguments that the policy speaks of.
std::vector<seccomp_data> random_calls(std::uint32_t seed, const Policy& policy,
                                       std::uint32_t architecture, int newest, int count) {
  std::vector<std::uint64_t> interesting = {0, ~0ull, 0xffffffff};
  for (const auto& [number, rule] : policy.rules[0]) {
    for (const Clause& clause : rule.clauses) {
      for (const Term& term : clause.terms) {
        for (const std::uint64_t value : term.values) {
          interesting.push_back(value);
          interesting.push_back(value | 1ull << 32);
          interesting.push_back(value | term.mask);
          interesting.push_back(value + 1);
        }
      }
    }
  }
  std::mt19937_64 random(seed);
  const std::uint32_t architectures[] = {architecture, 0x40000003, 8, 0, 0xc00000b7};
  std::vector<seccomp_data> calls;
  for (int i = 0; i < count; ++i) {
    seccomp_data call = {};
    call.nr = static_cast<int>(random() % static_cast<unsigned>(newest + 50));
    if (random() % 16 == 0) call.nr |= static_cast<int>(kX32Bit);
    if (random() % 64 == 0) call.nr = static_cast<int>(random());
    call.arch = architectures[random() % 8 == 0 ? random() % std::size(architectures) : 0];
    for (auto& argument : call.args) {
      argument = random() % 2 == 0 ? random() : interesting[random() % interesting.size()];
    }
    calls.push_back(call);
  }
  return calls;
}

void expect_program_says_what_the_policy_says(const Policy& policy, const Numbers& numbers) {
  constexpr std::uint32_t kSeed = 20240607;
  const int newest = static_cast<int>(numbers.name_of.rbegin()->first);
  const auto calls = random_calls(kSeed, policy, numbers.architecture, newest, 200'000);
  for (std::size_t profile = 0; profile < std::size(kProfileNames); ++profile) {
    for (const bool with_listener : {false, true}) {
      const auto program = compile(policy, numbers, profile, with_listener).value();
      for (const seccomp_data& call : calls) {
        const auto seen = emulate(program, call);
        ASSERT_TRUE(seen.has_value()) << "seed " << kSeed << " number " << call.nr;
        ASSERT_EQ(seen->answer, evaluate(policy, numbers, profile, with_listener, call))
            << "seed " << kSeed << " number " << call.nr << " architecture " << call.arch;
      }
    }
  }
}

TEST(Compiler, OurProgramsSayWhatThePoliciesSay) {
  const Numbers numbers = x86_numbers();
  for (const char* name : {"policy.def", "no_setid.def"}) {
    const Result<Policy> policy = parse_policy(read_source(name), numbers, {numbers});
    ASSERT_TRUE(policy.has_value()) << name << ": " << policy.error().message();
    expect_program_says_what_the_policy_says(*policy, numbers);
  }
}

TEST(Compiler, FarTargetsAreReached) {
  // Long lists of values between the search tree and the returns: more than 255 instructions apart.
  std::string text = "group g\nwhy w\n";
  int value = 1000;
  for (const char* name : {"zero", "one", "two", "five", "six"}) {
    text += "call " + std::string(name) + "\n";
    for (int clause = 0; clause < 3; ++clause) {
      text += "  errno " + std::to_string(10 + clause) + " if arg1 == ";
      for (int i = 0; i < 150; ++i) text += (i == 0 ? "" : "|") + std::to_string(value++);
      text += " and arg2.full != 0x100000002\n";
    }
    text += "  else report\n";
  }
  const Result<Policy> policy = parse_tiny(text);
  ASSERT_TRUE(policy.has_value()) << policy.error().message();
  const Numbers numbers = parse_numbers(kTinyNumbers).value();
  EXPECT_GT(compile(*policy, numbers, 0, false).value().size(), 2000u);
  expect_program_says_what_the_policy_says(*policy, numbers);
}

TEST(Compiler, AProgramThatTheKernelWouldRefuseIsAnError) {
  std::string text = "group g\nwhy w\nallow zero one two five\ncall six\n  deny if arg0 == 1";
  for (int i = 2; i < 5000; ++i) text += "|" + std::to_string(i);
  const Policy policy = parse_tiny(text + "\n  else allow\n").value();
  const auto program = compile(policy, parse_numbers(kTinyNumbers).value(), 0, false);
  ASSERT_FALSE(program.has_value());
  EXPECT_EQ(program.error().code(), Code::kOutOfRange);
  EXPECT_NE(program.error().message().find("4096"), std::string::npos);
}

TEST(Compiler, ThirtyTwoBitTermsIgnoreTheUpperHalf) {
  const Numbers numbers = parse_numbers(kTinyNumbers).value();
  const Policy policy =
      parse_tiny(
          "group g\nwhy w\nallow zero one two five\n"
          "call six\n  deny if arg1 == 5\n  errno 9 if arg2.full == 5\n  else allow\n")
          .value();
  const auto program = compile(policy, numbers, 0, false).value();
  const auto answer = [&](std::uint64_t one, std::uint64_t two) {
    return emulate(program, seccomp_data{6, 7, 0, {0, one, two, 0, 0, 0}})->answer;
  };
  EXPECT_EQ(answer(5, 0), SECCOMP_RET_ERRNO | EPERM);
  EXPECT_EQ(answer(5 | 1ull << 32, 0), SECCOMP_RET_ERRNO | EPERM);
  EXPECT_EQ(answer(0, 5), SECCOMP_RET_ERRNO | 9);
  EXPECT_EQ(answer(0, 5 | 1ull << 32), SECCOMP_RET_ALLOW);
}

TEST(Parser, AProfilesOwnGroupReplacesTheGeneralOneWhereverItStands) {
  const std::string special = "group s in debug\nwhy w\nmissing six\n";
  const std::string general = "group g\nwhy w\ndeny zero one two five six\n";
  const Numbers numbers = parse_numbers(kTinyNumbers).value();
  for (const std::string& text : {special + general, general + special}) {
    const Policy policy = parse_tiny(text).value();
    EXPECT_EQ(evaluate(policy, numbers, 0, false, {6, 7, 0, {}}), SECCOMP_RET_ERRNO | EPERM);
    EXPECT_EQ(evaluate(policy, numbers, 2, false, {6, 7, 0, {}}), SECCOMP_RET_ERRNO | ENOSYS);
  }
}

TEST(Parser, ANameOfAnotherArchitectureIsNoError) {
  const Numbers here = parse_numbers("architecture 7\n0 zero\n").value();
  const Numbers there = parse_numbers("architecture 9\n0 zero\n1 elsewhere\n").value();
  EXPECT_TRUE(
      parse_policy("group g\nwhy w\nallow zero elsewhere\n", here, {here, there}).has_value());
  EXPECT_FALSE(parse_policy("group g\nwhy w\nallow zero elsewhere\n", here, {here}).has_value());
}

struct BadText {
  const char* text;
  const char* line;     // where the error is said to be; "" for the whole file
  const char* message;  // part of the message
};

TEST(Parser, BadPoliciesAreRefusedWithThePlace) {
  const std::string all = "allow zero one two five six\n";
  const BadText cases[] = {
      {"allow zero\n", "line 1", "outside a group"},
      {"group\n", "line 1", "group NAME"},
      {"group g with debug\n", "line 1", "group NAME"},
      {"group g in\n", "line 1", "group NAME"},
      {"group g in wild\n", "line 1", "found \"wild\""},
      {"group g\nallow zero\n", "line 2", "why TEXT"},
      {"group g\nwhy\nallow zero\n", "line 3", "why TEXT"},
      {"group g\nwhy w\npermit zero\n", "line 3", "found \"permit\""},
      {"group g\nwhy w\nallow\n", "line 3", "names of system calls"},
      {"group g\nwhy w\nallow zero seven\n", "line 3", "found \"seven\""},
      {"group g\nwhy w\nallow zero zero\n", "line 3", "one group for each profile"},
      {"group g\nwhy w\nerrno\n", "line 3", "errno NUMBER"},
      {"group g\nwhy w\nerrno 0 zero\n", "line 3", "1 to 4095"},
      {"group g\nwhy w\nerrno E zero\n", "line 3", "found \"E\""},
      {"unlisted deny\n", "line 1", "found \"deny\""},
      {"define A\n", "line 1", "define NAME NUMBER"},
      {"define A 0x\n", "line 1", "a number"},
      {"define A 09\n", "line 1", "a number"},
      {"define A 1\ndefine A 2\n", "line 2", "one value"},
      {"group g\nwhy w\ncall\n", "line 3", "one name"},
      {"group g\nwhy w\n  else allow\n", "line 3", "only after call"},
      {"group g\nwhy w\ncall zero\nallow one\n", "line 4", "no else"},
      {"group g\nwhy w\ncall zero\n", "", "no else"},
      {"group g\nwhy w\ncall zero\n  else\n", "line 4", "else ACTION"},
      {"group g\nwhy w\ncall zero\n  else allow now\n", "line 4", "found \"now\""},
      {"group g\nwhy w\ncall zero\n  else allow\n  else allow\n", "line 5", "after else"},
      {"group g\nwhy w\ncall zero\n  allow\n", "line 4", "condition"},
      {"group g\nwhy w\ncall zero\n  allow if arg6 == 1\n", "line 4", "arg0 to arg5"},
      {"group g\nwhy w\ncall zero\n  allow if arg0 < 1\n", "line 4", "== or !="},
      {"group g\nwhy w\ncall zero\n  allow if arg0 & 0 == 0\n", "line 4", "mask"},
      {"group g\nwhy w\ncall zero\n  allow if arg0 & 1 == 2\n", "line 4", "bits of the mask"},
      {"group g\nwhy w\ncall zero\n  allow if arg0 == 0x100000000\n", "line 4", "bits of the mask"},
      {"group g\nwhy w\ncall zero\n  allow if arg0 ==\n", "line 4", "value"},
      {"group g\nwhy w\ncall zero\n  allow if arg0 == 1|\n", "", "no else"},
      {"group g\nwhy w\ncall zero\n  allow if arg0 == 1 or\n", "line 4", "found \"or\""},
      {"group g\nwhy w\ncall zero\n  allow if arg0.full == 1|2\n", "line 4", "several values"},
      {"group g\nwhy w\nallow zero one two five\n", "", "no group names six"},
  };
  for (const BadText& bad : cases) {
    const Result<Policy> policy = parse_tiny(bad.text);
    ASSERT_FALSE(policy.has_value()) << bad.text;
    EXPECT_EQ(policy.error().code(), Code::kInvalidArgument) << bad.text;
    EXPECT_TRUE(policy.error().message().starts_with(bad.line)) << policy.error().message();
    EXPECT_NE(policy.error().message().find(bad.message), std::string::npos)
        << bad.text << policy.error().message();
  }
}

TEST(Parser, BadNumberTablesAreRefused) {
  for (const char* text :
       {"", "architecture 1\n", "1 one\n", "architecture 1\n1 one\n1 two\n",
        "architecture 1\n1 one\n2 one\n", "architecture x\n", "architecture 1\n70000 far\n",
        "architecture 1\nforeign 1 2\n", "architecture 1\nx32 1\n", "architecture 1\nother 1\n",
        "architecture 1\n1 one two\n"}) {
    EXPECT_FALSE(parse_numbers(text).has_value()) << text;
  }
}

#if defined(__x86_64__)
TEST(Numbers, AgreeWithTheHeadersOfThisMachine) {
  const Numbers numbers = x86_numbers();
  std::ifstream header("/usr/include/x86_64-linux-gnu/asm/unistd_64.h");
  ASSERT_TRUE(header.good()) << "linux-libc-dev";
  std::string word, name;
  std::uint32_t number = 0;
  int compared = 0;
  while (header >> word) {
    if (word != "#define" || !(header >> name) || !name.starts_with("__NR_") ||
        !(header >> number)) {
      header.clear();
      continue;
    }
    if (number > numbers.name_of.rbegin()->first) continue;
    ++compared;
    ASSERT_TRUE(numbers.name_of.contains(number)) << name;
    EXPECT_EQ("__NR_" + numbers.name_of.at(number), name);
  }
  EXPECT_GT(compared, 300);
}
#endif

}  // namespace
}  // namespace caisson::guest::seccomp
