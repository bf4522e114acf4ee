// A Dockerfile as a list of instructions: lines joined, comments dropped, here-documents attached,
// flags and JSON forms recognised. Nothing is expanded here and nothing is looked up; plan.h gives
// the instructions their meaning.
//
//   TRY_ASSIGN(Dockerfile file, parse_dockerfile(text, "Dockerfile"));
//
// Every error names the file and the line: "Dockerfile:12: unknown instruction 'FRM'; allowed are
// …". A pure function of hostile bytes, with bounds on everything; fuzzed (fuzz/dockerfile_fuzz).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace caisson::build {

inline constexpr std::size_t kMaxDockerfile = 1 << 20;
inline constexpr std::size_t kMaxInstructions = 4096;
inline constexpr std::size_t kMaxInstructionBytes = 256 * 1024;  // one, its lines joined
inline constexpr std::size_t kMaxWords = 4096;                   // of one instruction
inline constexpr std::size_t kMaxHereDocuments = 32;             // of one instruction

enum class InstructionKind : std::uint8_t {
  kAdd,
  kArg,
  kCmd,
  kCopy,
  kEntrypoint,
  kEnv,
  kExpose,
  kFrom,
  kHealthcheck,
  kLabel,
  kMaintainer,
  kRun,
  kShell,
  kStopsignal,
  kUser,
  kVolume,
  kWorkdir,
};
// "ADD", "ARG", …
std::string_view to_string(InstructionKind kind);

struct HereDocument {
  std::string name;     // the word behind <<, without its quotes
  bool expand = true;   // false: the word was quoted
  bool strip = false;   // <<-: tabs at the beginnings of lines are gone already
  std::string content;  // with the line break of its last line
  bool operator==(const HereDocument&) const = default;
};

// `--name=value`; a flag without '=' has an empty value and `given` false.
struct Flag {
  std::string name;
  std::string value;
  bool given = true;
  bool operator==(const Flag&) const = default;
};

struct Instruction {
  InstructionKind kind = InstructionKind::kRun;
  std::uint32_t line = 0;  // the first of its lines, from 1
  // As written, joined to one line without comments: for progress and history.
  std::string text;
  std::vector<Flag> flags;
  // Behind the keyword and the flags. Empty only where the instruction may be empty.
  std::string rest;
  // The rest is a JSON list of strings: these.
  bool exec_form = false;
  std::vector<std::string> list;
  std::vector<HereDocument> documents;
  bool operator==(const Instruction&) const = default;
};

struct Dockerfile {
  std::string name;  // for messages
  char escape = '\\';
  std::vector<Instruction> instructions;
  // What a person should know and is no error: an old form, a directive that has no effect.
  std::vector<std::string> notes;
};

// `name` stands before the line in every message. Error: invalid, exhausted; unimplemented for
// instructions that are Docker's but not ours (ONBUILD).
Result<Dockerfile> parse_dockerfile(std::string_view text, std::string_view name);

// The error with "NAME:LINE: " before its message.
Error at_line(std::string_view name, std::uint32_t line, Error error);

}  // namespace caisson::build
