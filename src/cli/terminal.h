// The caller's terminal and signals while a command runs.
//
// A Session turns signals into requests of a Control: Ctrl-C, SIGTERM and SIGHUP cancel (the second
// time the whole sandbox), a window's new size resizes. RawTerminal puts the terminal into raw mode
// and back. Output writes a stream of the command to one of our own descriptors: as it is, or,
// where that is a terminal and the caller wants it, through an EscapeFilter. One Session at a time,
// since signal handlers are the process's.
#pragma once

#include <caisson/sandbox.h>
#include <termios.h>

#include <optional>
#include <string_view>

#include "base/error.h"
#include "cli/escape_filter.h"

namespace caisson::cli {

class Session {
 public:
  // SIGPIPE is ignored from here on.
  static Result<Session> create();
  Session(Session&&) noexcept = default;
  // Restores the default actions.
  ~Session();

  // Installs the handlers; the Session must not be moved after it.
  void listen();

  const Control& control() const { return control_; }
  // How often the caller asked to stop.
  static int interrupts();
  // From now on a changed window is the command's to know, too.
  void follow_window();

 private:
  explicit Session(Control control) : control_(std::move(control)) {}
  Control control_;
};

// The size of the terminal behind `fd`; 80x24 where it is none.
TerminalSize terminal_size(int fd);

class RawTerminal {
 public:
  // Nothing happens where `fd` is no terminal.
  explicit RawTerminal(int fd);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  int fd_;
  std::optional<termios> before_;
};

enum class Escapes { kFilterOnTerminal, kPass };

class Output {
 public:
  Output(int fd, Escapes escapes);
  // False where nothing more can be written, or the caller wants to stop while it would block.
  bool write(std::string_view bytes);
  // What ends the stream (undoes colours). Call once.
  void finish();
  // The reader has gone (`| head`).
  bool reader_gone() const { return reader_gone_; }

 private:
  bool write_now(std::string_view bytes);

  int fd_;
  bool regular_ = false;
  bool reader_gone_ = false;
  std::optional<EscapeFilter> filter_;
};

}  // namespace caisson::cli
