#include "wall/namespace/call_search.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace caisson::wall {
namespace {

constexpr std::uint32_t kRefused = SECCOMP_RET_ERRNO | 1;

struct Answer {
  std::uint32_t value = 0;
  int steps = 0;
};

// As the kernel runs it, with this number loaded.
Answer run(const std::vector<sock_filter>& program, std::uint32_t number) {
  Answer answer;
  for (std::size_t at = 0; at < program.size(); ++at) {
    const sock_filter& instruction = program[at];
    ++answer.steps;
    if (instruction.code == (BPF_RET | BPF_K)) {
      answer.value = instruction.k;
      return answer;
    }
    EXPECT_EQ(instruction.code, BPF_JMP | BPF_JGE | BPF_K);
    at += number >= instruction.k ? instruction.jt : instruction.jf;
  }
  ADD_FAILURE() << "it runs beyond its end with " << number;
  return answer;
}

void expect_exactly(const std::vector<std::uint32_t>& numbers) {
  const auto program = search_calls(numbers, kRefused);
  const std::set<std::uint32_t> allowed(numbers.begin(), numbers.end());
  for (std::uint32_t number = 0; number < 1200; ++number) {
    const std::uint32_t expected = allowed.contains(number) ? SECCOMP_RET_ALLOW : kRefused;
    ASSERT_EQ(run(program, number).value, expected) << number;
  }
  // Those of the x32 ABI, and the largest.
  for (const std::uint32_t number : {0x40000000u, 0x40000001u, 0x7fffffffu, 0xffffffffu})
    ASSERT_EQ(run(program, number).value, kRefused) << number;
}

TEST(CallSearch, AllowsNothingWhereNothingIsNamed) {
  expect_exactly({});
}

TEST(CallSearch, AllowsWhatIsNamedInWhateverOrderAndHoweverOften) {
  expect_exactly({0});
  expect_exactly({7, 3, 3, 4, 9, 0, 1, 231, 435, 7});
  expect_exactly({5, 6, 7, 8});
}

TEST(CallSearch, TakesAsManyAsItSays) {
  std::vector<std::uint32_t> apart;
  for (std::uint32_t number = 0; apart.size() < 120; number += 3) apart.push_back(number);
  expect_exactly(apart);
  std::vector<std::uint32_t> together(120);
  std::iota(together.begin(), together.end(), 17);
  expect_exactly(together);
}

TEST(CallSearch, FindsAnAnswerInFewSteps) {
  std::vector<std::uint32_t> apart;
  for (std::uint32_t number = 1; apart.size() < 60; number += 7) apart.push_back(number);
  const auto program = search_calls(apart, kRefused);
  for (std::uint32_t number = 0; number < 500; ++number)
    ASSERT_LE(run(program, number).steps, 8) << number;  // of 121 answers
}

}  // namespace
}  // namespace caisson::wall
