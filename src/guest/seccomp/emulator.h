// Runs a seccomp filter on paper, for the tests: what the kernel's interpreter would answer for one
// call. It knows only the instructions that a seccomp program of ours may contain and says nullopt
// for anything else (also for a jump past the end), so that a bad program fails a test and is never
// guessed at.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/kernel_abi.h"

namespace caisson::guest::seccomp {

struct Emulated {
  std::uint32_t answer = 0;  // SECCOMP_RET_* and its data
  unsigned steps = 0;        // instructions executed
};

inline std::optional<Emulated> emulate(std::span<const sock_filter> program,
                                       const seccomp_data& call) {
  std::uint32_t accumulator = 0;
  unsigned steps = 0;
  for (std::size_t at = 0; at < program.size(); ++at) {
    const sock_filter& instruction = program[at];
    ++steps;
    switch (instruction.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (instruction.k % 4 != 0 || instruction.k + 4 > sizeof call) return std::nullopt;
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&call) + instruction.k, 4);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= instruction.k;
        break;
      case BPF_JMP | BPF_JA:
        at += instruction.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        at += accumulator == instruction.k ? instruction.jt : instruction.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        at += accumulator >= instruction.k ? instruction.jt : instruction.jf;
        break;
      case BPF_RET | BPF_K:
        return Emulated{instruction.k, steps};
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace caisson::guest::seccomp
