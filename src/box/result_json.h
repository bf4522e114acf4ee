// A result as JSON: what `--json` prints and `--verdict-file` writes. Pure functions.
//
//   {"verdict":{"kind":"exited","code":0},"usage":{…},"limits_hit":[…],"refusals":[…],
//    "stdout":"42\n","stderr":"","wall":"namespace","image":"host","held":{"memory":"cgroup",…}}
//
// Output that is not UTF-8 is given in base64, and then "stdout_encoding":"base64" stands beside
// it. Where our own output limit cut the output inside a character, that character's first bytes
// are left out, so that text stays text.
#pragma once

#include <caisson/result.h>
#include <caisson/sandbox.h>

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace caisson::box {

// Without the bytes of an unfinished character at the end.
std::string_view without_partial_character(std::string_view bytes);

struct ResultContext {
  std::string_view wall, image;
  // Whether the result has captured output to show.
  enum class Output { kShown, kElsewhere } output = Output::kShown;
  // Of a sandbox with a network; borrowed. Null: it had none.
  const policy::NetworkReport* network = nullptr;
};
// One line, without the line break.
std::string result_line(const RunResult& result, const ResultContext& context);
json::Value result_value(const RunResult& result, const ResultContext& context);
json::Value refusals_value(std::span<const Refusal> refusals);
json::Value network_value(const policy::NetworkReport& report);
// The outcome of a result_value() that a server gave. Error: data_loss, where it is none.
Result<Outcome> outcome_of(const json::Value& result);
// The same for a failure of our own before a command could run.
std::string error_line(const Error& error);

json::Value info_value(const SandboxInfo& info);
// At most `limit` bytes: long commands are cut.
std::string info_text(const SandboxInfo& info, std::size_t limit);
Result<SandboxInfo> parse_info(std::string_view text);

// What a person should know about an end that is no plain exit; empty for a plain one.
std::string verdict_sentence(const Outcome& outcome);

}  // namespace caisson::box
