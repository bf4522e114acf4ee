#include "maker/maker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sys.h"
#include "maker/make.h"
#include "maker/protocol.h"
#include "maker/snapshot.h"

namespace caisson::maker {
namespace {

void answer(int socket_fd, std::string_view bytes) {
  static_cast<void>(sys::send_message(socket_fd, bytes, {}));
}

void answer_list(int socket_fd, const Result<std::vector<std::string>>& list) {
  if (!list.has_value()) return answer(socket_fd, encode_error(list.error()));
  for (const std::string& part : encode_list(*list)) {
    if (!sys::send_message(socket_fd, part, {}).has_value()) return;
  }
  answer(socket_fd, encode_done());
}

void answer_status(int socket_fd, const Status& status) {
  answer(socket_fd, status.has_value() ? encode_done() : encode_error(status.error()));
}

void answer_make(int socket_fd, const Recipe& recipe, int keys_fd) {
  const auto made = make_sandbox(recipe, keys_fd);
  if (!made.has_value()) return answer(socket_fd, encode_error(made.error()));
  // Nobody is left to claim it.
  if (!sys::send_message(socket_fd, encode_made(*made), {}).has_value()) end_sandbox(made->id);
}

void answer_connect(int socket_fd, const std::string& id) {
  const auto connected = connect_sandbox(id);
  if (!connected.has_value()) return answer(socket_fd, encode_error(connected.error()));
  const int descriptors[] = {connected->get()};
  static_cast<void>(sys::send_message(socket_fd, encode_done(), descriptors));
}

// In a fork, which is the builder from then on, a child of the maker.
void become_builder(int socket_fd) {
  const auto refuse = [&](const Error& error) { answer(socket_fd, encode_error(error)); };
  const auto program = helper_binary("caisson-template-builder");
  if (!program.has_value()) return refuse(program.error());
  int talk[2], life[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk) != 0)
    return refuse(Error::syscall("socketpair", errno));
  const Fd ours(talk[0]), theirs(talk[1]);
  if (::pipe2(life, O_CLOEXEC) != 0) return refuse(Error::syscall("pipe2", errno));
  const Fd watched(life[0]), held(life[1]);
  // First out of each other's way, then to the numbers that it expects.
  const Fd moved_talk(::fcntl(theirs.get(), F_DUPFD_CLOEXEC, 64));
  const Fd moved_life(::fcntl(watched.get(), F_DUPFD_CLOEXEC, 64));
  const int descriptors[] = {ours.get(), held.get()};
  if (!sys::send_message(socket_fd, encode_done(), descriptors).has_value()) return;
  if (::dup2(moved_talk.get(), kBuilderSocketFd) < 0 ||
      ::dup2(moved_life.get(), kBuilderLifeFd) < 0)
    return;
  ::close_range(kBuilderLifeFd + 1, ~0u, 0);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::execl(program->c_str(), "caisson-template-builder", nullptr);
}

void answer_text(int socket_fd, const Result<std::string>& text) {
  if (!text.has_value()) return answer(socket_fd, encode_error(text.error()));
  answer_list(socket_fd, std::vector<std::string>{*text});
}

// In a fork.
void carry_out(const Request& request, int socket_fd, int keys_fd) {
  switch (request.operation) {
    case Operation::kMake:
      return answer_make(socket_fd, request.recipe, keys_fd);
    case Operation::kConnect:
      return answer_connect(socket_fd, request.name);
    case Operation::kKept:
      return answer_list(socket_fd, kept_sandboxes());
    case Operation::kFindImage:
      return answer_text(socket_fd, find_image(request.name, NamedBy::kOperator));
    case Operation::kFindClientsImage:
      return answer_text(socket_fd, find_image(request.name, NamedBy::kClient));
    case Operation::kTakeSnapshot:
      return answer_text(socket_fd, take_snapshot(request.name, request.image));
    case Operation::kOldSnapshots:
      return answer_list(socket_fd, old_snapshots());
    case Operation::kDropSnapshot:
      return answer_status(socket_fd, drop_snapshot(request.name));
    case Operation::kStartBuilder:
      return become_builder(socket_fd);
    case Operation::kTemplateImages:
      return answer_list(socket_fd, template_images());
    case Operation::kDropTemplateImage:
      return answer_status(socket_fd, drop_template_image(request.name));
    case Operation::kTrimCache:
      return answer_status(socket_fd, trim_cache(request.cache));
    case Operation::kCheckNetwork:
      return answer_status(socket_fd, check_network());
    case Operation::kImages:
      return answer_list(socket_fd, list_images());
  }
}

class Maker {
 public:
  Maker(int control_fd, const MakerBounds& bounds) : control_fd_(control_fd), bounds_(bounds) {}

  // False: the server has gone.
  bool take_request();
  // Whoever has ended: those who carried a request out, and the launchers that they left to us.
  void reap();

 private:
  void start(const Request& request, int socket_fd, int keys_fd);

  int control_fd_;
  const MakerBounds bounds_;
  std::vector<pid_t> at_work_, builders_;
};

bool Maker::take_request() {
  auto message = sys::recv_message(control_fd_, kMostRequest);
  // One that is cut belongs to no server of ours, but is no reason to leave it without a maker.
  if (!message.has_value()) return message.error().error_number() == 0;
  if (message->bytes.empty()) return false;
  if (message->descriptors.empty() || message->descriptors.size() > 2) return true;
  const int socket_fd = message->descriptors[0].get();
  const int keys_fd = message->descriptors.size() == 2 ? message->descriptors[1].get() : -1;
  const auto request = decode_request(message->bytes);
  if (!request.has_value()) {
    answer(socket_fd, encode_error(request.error()));
  } else if (request->operation == Operation::kConnect) {
    // Too short for a fork.
    answer_connect(socket_fd, request->name);
  } else if (request->operation == Operation::kStartBuilder &&
             builders_.size() >= bounds_.builders) {
    answer(socket_fd, encode_error(Error::exhausted(std::to_string(bounds_.builders) +
                                                    " builds are under way, which is as many as "
                                                    "caisson-maker starts")));
  } else if (request->operation != Operation::kStartBuilder &&
             at_work_.size() >= bounds_.requests) {
    answer(socket_fd, encode_error(Error::exhausted("too many requests to caisson-maker at once")));
  } else {
    start(*request, socket_fd, keys_fd);
  }
  return true;
}

void Maker::start(const Request& request, int socket_fd, int keys_fd) {
  const pid_t pid = ::fork();
  if (pid < 0)
    return answer(socket_fd, encode_error(Error::syscall("fork of caisson-maker", errno)));
  if (pid > 0) {
    auto& row = request.operation == Operation::kStartBuilder ? builders_ : at_work_;
    return row.push_back(pid);
  }
  ::close(control_fd_);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  carry_out(request, socket_fd, keys_fd);
  ::_exit(0);
}

void Maker::reap() {
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid <= 0) return;
    std::erase(at_work_, pid);
    std::erase(builders_, pid);
  }
}

}  // namespace

int run_maker(int control_fd, const MakerBounds& bounds) {
  // What a terminal or a service manager tells is for the server, whose end is ours.
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_IGN);
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  const Fd children(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!children.valid()) return 1;
  static_cast<void>(::prctl(PR_SET_CHILD_SUBREAPER, 1));
  Maker maker(control_fd, bounds);
  pollfd entries[] = {{control_fd, POLLIN, 0}, {children.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(entries, std::size(entries), -1) < 0) {
      if (errno == EINTR) continue;
      return 1;
    }
    if (entries[1].revents != 0) {
      signalfd_siginfo told{};
      static_cast<void>(!::read(children.get(), &told, sizeof told));
      maker.reap();
    }
    if (entries[0].revents != 0 && !maker.take_request()) return 0;
  }
}

}  // namespace caisson::maker
