// How a build's progress is shown: plain lines, one line on a terminal that is written over, or
// JSON lines.
//
//   plain  "#3 [app 2/5] RUN make", "#3 0.4 cc -c x.c", "#3 DONE 1.2s, 3.1 MiB", "#3 CACHED"
//   tty    the same without the output, whose last line stands behind the step while it runs
//   json   an object a line: {"event":"output","number":3,"channel":"stdout","text":"…"}
//
// Output of a build's commands is hostile: on a terminal it goes through an EscapeFilter, and it is
// cut into lines of a bounded length.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "build/builder.h"
#include "cli/escape_filter.h"

namespace caisson::cli {

enum class ProgressStyle : unsigned char { kQuiet, kPlain, kTerminal, kJson };

class BuildProgress {
 public:
  // Plain and terminal lines go to stderr, JSON to stdout. `filtered`: stderr is a terminal.
  BuildProgress(ProgressStyle style, bool filtered) : style_(style), filtered_(filtered) {}

  void show(const build::BuildEvent& event);
  // The end: JSON has a last line, the others say what was built or what failed.
  void conclude(const build::BuildReport& report, std::string_view names);
  // An error will be said: the line that is to be written over goes.
  void interrupt() { clear_line(); }

 private:
  static constexpr std::size_t kChannels = 2;
  void show_json(const build::BuildEvent& event);
  void take_output(const build::BuildEvent& event);
  // What is left of a line that had no end.
  void flush_output(const build::BuildEvent& event);
  void output_line(const build::BuildEvent& event, std::string_view line);
  void print(std::string_view line);
  void clear_line();
  void status_line(std::string_view last);

  ProgressStyle style_;
  bool filtered_;
  bool shown_ = false;  // a line that is to be written over
  std::string step_;    // of the step under way
  std::array<std::string, kChannels> partial_;
};

}  // namespace caisson::cli
