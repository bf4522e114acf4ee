#include "io/log.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/encoding.h"
#include "base/time_text.h"

namespace caisson::io {
namespace {

constexpr std::array<std::string_view, 4> kLevels = {"debug", "info", "warning", "error"};
constexpr std::size_t kMostText = 512;
constexpr std::chrono::seconds kLastPatience{1};

json::Value cut(json::Value value) {
  const std::string* text = value.as_string();
  if (text == nullptr || text->size() <= kMostText) return value;
  const std::string_view front = std::string_view(*text).substr(0, kMostText);
  // Without the beginning of a character that does not fit; what is no UTF-8 is cut anywhere.
  const std::size_t whole = utf8_prefix(front);
  return std::string(front.substr(0, front.size() - whole < 4 ? whole : front.size())) + "…";
}

std::string line_of(Log::Level level, std::string_view message,
                    std::initializer_list<Log::Field> fields) {
  json::Value line = json::Value::object();
  line.set("time", time_text(std::chrono::system_clock::now()));
  line.set("level", kLevels[static_cast<std::size_t>(level)]);
  line.set("message", cut(message));
  for (const Log::Field& field : fields) line.set(field.key, cut(field.value));
  return json::serialize(line) + "\n";
}

}  // namespace

// What the callers and the thread share.
struct Log::Queue {
  explicit Queue(int fd) : descriptor(fd) {}

  const int descriptor;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> lines;
  std::size_t bytes = 0;
  std::uint64_t lost = 0, lost_told = 0;
  bool writing = false;
  bool ends = false;       // when all is written
  bool abandoned = false;  // nobody waits for the rest
  bool ended = false;

  // The next line to write; empty where there is none.
  std::string take() {
    if (!lines.empty()) {
      std::string line = std::move(lines.front());
      lines.pop_front();
      bytes -= line.size();
      return line;
    }
    const std::uint64_t untold = lost - std::exchange(lost_told, lost);
    if (untold == 0) return {};
    return line_of(Level::kWarning, "the log was not read, and lines of it are lost",
                   {{"lines", static_cast<std::int64_t>(untold)}});
  }
  bool idle() const { return lines.empty() && lost == lost_told && !writing; }

  static void run(const std::shared_ptr<Queue>& self) {
    std::unique_lock lock(self->mutex);
    while (!self->abandoned) {
      const std::string line = self->take();
      if (line.empty()) {
        if (self->ends) break;
        self->changed.wait(lock);
        continue;
      }
      self->writing = true;
      lock.unlock();
      // A log that cannot be written is nothing that a request could be refused for.
      while (::write(self->descriptor, line.data(), line.size()) < 0 && errno == EINTR) {
      }
      lock.lock();
      self->writing = false;
      self->changed.notify_all();
    }
    self->ended = true;
    self->changed.notify_all();
  }
};

Log::Log(int descriptor, Level least, std::size_t most_queued)
    : queue_(std::make_shared<Queue>(descriptor)), least_(least), most_queued_(most_queued) {
  // Signals are for others; a reader that has gone is an error of write() there.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([queue = queue_] { Queue::run(queue); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Log::~Log() {
  std::unique_lock lock(queue_->mutex);
  queue_->ends = true;
  queue_->changed.notify_all();
  queue_->changed.wait_for(lock, kLastPatience, [this] { return queue_->ended; });
  queue_->abandoned = true;
}

void Log::write(Level level, std::string_view message, std::initializer_list<Field> fields) const {
  if (!writes(level)) return;
  std::string line = line_of(level, message, fields);
  const std::lock_guard lock(queue_->mutex);
  if (queue_->bytes + line.size() > most_queued_) {
    ++queue_->lost;
    return;
  }
  queue_->bytes += line.size();
  queue_->lines.push_back(std::move(line));
  queue_->changed.notify_all();
}

bool Log::flush(std::chrono::milliseconds patience) const {
  std::unique_lock lock(queue_->mutex);
  return queue_->changed.wait_for(lock, patience, [this] { return queue_->idle(); });
}

std::uint64_t Log::lost() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->lost;
}

std::optional<Log::Level> parse_level(std::string_view text) {
  for (std::size_t index = 0; index < kLevels.size(); ++index) {
    if (kLevels[index] == text) return static_cast<Log::Level>(index);
  }
  return std::nullopt;
}

}  // namespace caisson::io
