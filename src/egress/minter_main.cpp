// caisson-minter: runs the commands that make a sandbox's secrets, when their values are about to
// end; see minter_process.h.
//
//   caisson-minter                     its socket is descriptor 3
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/sys.h"
#include "egress/minted.h"
#include "egress/minter_process.h"
#include "egress/secret_command.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT
using std::chrono::seconds;

constexpr int kControlFd = 3;
constexpr int kStatusOfOurError = 125;
constexpr seconds kFirstPause{1}, kLongestPause{60};
// A clock that was set is seen so soon.
constexpr int kLongestWaitMs = 10'000;

WallTime now() {
  return std::chrono::system_clock::now();
}

// One secret: at most one run of its command at a time.
struct Kept {
  std::string name;
  std::vector<std::string> command;
  std::optional<std::uint64_t> ttl_ms;
  std::optional<Minted> value;
  std::optional<WallTime> next;  // of its command; nullopt: it has no end
  seconds pause = kFirstPause;   // after a failure
  std::optional<SecretCommand> running;
};

class Minter {
 public:
  Status begin() {
    TRY_ASSIGN(sys::Message first, sys::recv_message(kControlFd, kMostMinterMessage));
    if (first.descriptors.size() != 1) return fail(Error::internal("a start without its file"));
    TRY_ASSIGN(const std::string text,
               sys::read_again(first.descriptors[0].get(), kMostMinterMessage));
    TRY_ASSIGN(const json::Value start, json::parse(text));
    const json::Value* const secrets = start.find("secrets");
    environment_ = texts_in(start.find("env"));
    if (secrets == nullptr || secrets->as_array() == nullptr)
      return fail(Error::internal("a start without secrets"));
    for (const json::Value& one : *secrets->as_array()) {
      const json::Value* const name = one.find("name");
      const json::Value* const ttl = one.find("ttl_ms");
      Kept kept{.name = name != nullptr && name->as_string() != nullptr ? *name->as_string() : "",
                .command = texts_in(one.find("command"))};
      if (ttl != nullptr && ttl->as_integer() != nullptr)
        kept.ttl_ms = static_cast<std::uint64_t>(*ttl->as_integer());
      kept_.push_back(std::move(kept));
    }
    for (Kept& kept : kept_) {
      TRY_ASSIGN(sys::Message message, sys::recv_message(kControlFd, kMostMintedWord));
      const SecretValue bytes = SecretValue::take(message.bytes);
      TRY_ASSIGN(MintedWord word, decode_minted(bytes.bytes()));
      take_value(kept, std::move(word.minted));
    }
    return {};
  }

  // Until whoever started us, or whom that gave the socket, has gone.
  void run() {
    while (turn()) {
    }
  }

 private:
  static std::vector<std::string> texts_in(const json::Value* list) {
    std::vector<std::string> texts;
    if (list == nullptr || list->as_array() == nullptr) return texts;
    for (const json::Value& text : *list->as_array())
      if (text.as_string() != nullptr) texts.push_back(*text.as_string());
    return texts;
  }

  void take_value(Kept& kept, Minted minted) {
    kept.next.reset();
    if (minted.expires) kept.next = refresh_time(now(), *minted.expires);
    kept.pause = kFirstPause;
    kept.value = std::move(minted);
  }

  // False: nobody is there any more.
  bool tell(int gateway_fd, const Kept& kept) const {
    MintedWord word{.kind = MintedWord::Kind::kNone, .secret = kept.name};
    if (kept.value && (!kept.value->expires || *kept.value->expires > now())) {
      word.kind = MintedWord::Kind::kValue;
      word.minted = {.value = SecretValue(kept.value->value.bytes()),
                     .expires = kept.value->expires};
    }
    return say(gateway_fd, word);
  }
  static bool say(int gateway_fd, const MintedWord& word) {
    const SecretBytes bytes = encode_minted(word);
    return sys::send_part(gateway_fd, {bytes.data(), bytes.size()}, {}, MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
  }

  void take_gateway(Fd gateway) {
    bool told = true;
    for (const Kept& kept : kept_) told = told && tell(gateway.get(), kept);
    if (!told || !say(gateway.get(), {.kind = MintedWord::Kind::kEnd})) return;
    // A sandbox has one at a time.
    gateway_ = std::move(gateway);
  }

  void fail_once(Kept& kept) {
    kept.next = now() + kept.pause;
    kept.pause = std::min(2 * kept.pause, kLongestPause);
  }

  void finish(Kept& kept, Result<SecretBytes> output) {
    kept.running.reset();
    if (!output.has_value()) return fail_once(kept);
    auto minted = read_minted({output->data(), output->size()}, kept.ttl_ms, now());
    if (!minted.has_value()) return fail_once(kept);
    take_value(kept, std::move(*minted));
    if (gateway_.valid() && !tell(gateway_.get(), kept)) gateway_.reset();
  }

  void start_due() {
    for (Kept& kept : kept_) {
      if (kept.running || !kept.next || *kept.next > now()) continue;
      auto started = SecretCommand::start(kept.command, environment_, -1);
      if (started.has_value())
        kept.running.emplace(std::move(*started));
      else
        fail_once(kept);
    }
  }

  int wait_ms() const {
    std::int64_t least = kLongestWaitMs;
    for (const Kept& kept : kept_) {
      std::int64_t left = kLongestWaitMs;
      if (kept.running)
        left = (static_cast<std::int64_t>(kept.running->end_by_us()) -
                static_cast<std::int64_t>(sys::monotonic_us()) + 999) /
               1000;
      else if (kept.next)
        left = std::chrono::ceil<std::chrono::milliseconds>(*kept.next - now()).count();
      least = std::min(least, left);
    }
    return static_cast<int>(std::max<std::int64_t>(least, 0));
  }

  bool turn() {
    start_due();
    std::vector<pollfd> entries = {{kControlFd, POLLIN, 0}};
    for (const Kept& kept : kept_)
      entries.push_back({kept.running ? kept.running->fd() : -1, POLLIN, 0});
    if (::poll(entries.data(), entries.size(), wait_ms()) < 0 && errno != EINTR) return false;
    if (entries[0].revents != 0) {
      auto message = sys::recv_message(kControlFd, kMostMintedWord);
      if (!message.has_value() || message->bytes.empty()) return false;
      if (message->descriptors.size() == 1) take_gateway(std::move(message->descriptors[0]));
    }
    for (Kept& kept : kept_) {
      if (!kept.running) continue;
      if (auto taken = kept.running->take()) finish(kept, std::move(*taken));
    }
    return true;
  }

  std::vector<std::string> environment_;
  std::vector<Kept> kept_;
  Fd gateway_;
};

}  // namespace

int main(int argc, char**) {
  if (argc != 1 || ::fcntl(kControlFd, F_GETFD) < 0) {
    std::fputs("caisson-minter: started by caisson alone\n", stderr);
    return kStatusOfOurError;
  }
  // A terminal's signals are not for us, and nobody but root looks into our memory.
  (void)::fcntl(kControlFd, F_SETFD, FD_CLOEXEC);
  (void)::prctl(PR_SET_DUMPABLE, 0);
  Minter minter;
  if (!minter.begin().has_value()) return kStatusOfOurError;
  const pid_t stays = ::fork();
  if (stays != 0) ::_exit(stays < 0 ? kStatusOfOurError : 0);
  (void)::setsid();
  (void)::prctl(PR_SET_DUMPABLE, 0);
  minter.run();
  return 0;
}
