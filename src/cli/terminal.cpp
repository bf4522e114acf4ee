#include "cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cli/messages.h"

namespace caisson::cli {
namespace {

// A handler has no other way to find what it works on. Set before the handlers are installed and
// cleared after they are gone.
const Control* g_control = nullptr;
volatile sig_atomic_t g_interrupts = 0;

constexpr std::size_t kPipeAtom = 4096;  // a pipe that is writable at all takes that much
constexpr int kLookAgainMs = 100;

void on_stop(int) {
  g_interrupts = g_interrupts + 1;
  if (g_control != nullptr) g_control->cancel();
}

void on_window(int) {
  const int kept = errno;
  winsize size = {};
  if (g_control != nullptr && ::ioctl(0, TIOCGWINSZ, &size) == 0)
    g_control->resize(size.ws_col, size.ws_row);
  errno = kept;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

Result<Session> Session::create() {
  TRY_ASSIGN(Control control, Control::create());
  handle(SIGPIPE, SIG_IGN);
  g_interrupts = 0;
  Session session(std::move(control));
  return session;
}

Session::~Session() {
  if (control_.read_fd() < 0) return;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) handle(signal, SIG_DFL);
  g_control = nullptr;
}

void Session::listen() {
  g_control = &control_;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, on_stop);
}

int Session::interrupts() {
  return g_interrupts;
}

void Session::follow_window() {
  handle(SIGWINCH, on_window);
}

TerminalSize terminal_size(int fd) {
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  termios now = {};
  if (::tcgetattr(fd, &now) != 0) return;
  before_ = now;
  ::cfmakeraw(&now);
  ::tcsetattr(fd, TCSADRAIN, &now);
}

RawTerminal::~RawTerminal() {
  if (before_.has_value()) ::tcsetattr(fd_, TCSADRAIN, &*before_);
}

Output::Output(int fd, Escapes escapes) : fd_(fd) {
  struct stat info = {};
  regular_ = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (escapes == Escapes::kFilterOnTerminal && ::isatty(fd) == 1) filter_.emplace();
}

bool Output::write(std::string_view bytes) {
  if (!filter_.has_value()) return write_now(bytes);
  return write_now(filter_->filter(bytes));
}

void Output::finish() {
  if (filter_.has_value()) write_now(filter_->finish());
}

bool Output::write_now(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!regular_) {
      pollfd entry = {.fd = fd_, .events = POLLOUT, .revents = 0};
      const int ready = ::poll(&entry, 1, kLookAgainMs);
      if (ready <= 0 && g_interrupts > 0) return false;
      if (ready <= 0) continue;
    }
    const std::size_t most = regular_ ? bytes.size() : std::min(bytes.size(), kPipeAtom);
    const ssize_t count = ::write(fd_, bytes.data(), most);
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      if (errno == EPIPE) {
        reader_gone_ = true;
      } else {
        say(Error::syscall("write the command's output", errno).message());
      }
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace caisson::cli
