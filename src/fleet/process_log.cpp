#include "fleet/process_log.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/verdict.h"

namespace caisson::fleet {
namespace {

constexpr std::string_view kStarted = "a process started", kEnded = "a process ended";
constexpr const char* kNumber = "command";  // the field

std::optional<std::uint32_t> number_of(const Event& event) {
  const auto found = event.fields.find(kNumber);
  if (found == event.fields.end()) return std::nullopt;
  const std::string& text = found->second;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

Event ProcessLog::started(std::uint32_t command, Fields fields) {
  fields[kNumber] = std::to_string(command);
  open_[command] = fields;
  return {.time = WallClock::now(),
          .level = Event::Level::kInfo,
          .message = std::string(kStarted),
          .fields = std::move(fields)};
}

std::optional<Event> ProcessLog::close(std::uint32_t command) {
  const auto found = open_.find(command);
  if (found == open_.end()) return std::nullopt;
  Event event{.time = WallClock::now(),
              .level = Event::Level::kInfo,
              .message = std::string(kEnded),
              .fields = std::move(found->second)};
  open_.erase(found);
  return event;
}

std::optional<Event> ProcessLog::ended(std::uint32_t command, WallClock::time_point when,
                                       const Outcome& outcome) {
  auto event = close(command);
  if (!event.has_value()) return event;
  event->time = when;
  Fields& fields = event->fields;
  fields["verdict"] = to_string(outcome.verdict);
  if (!outcome.cause.empty()) fields["cause"] = outcome.cause;
  if (outcome.verdict == Verdict::kExited) fields["exit_code"] = std::to_string(outcome.exit_code);
  if (outcome.verdict == Verdict::kSignaled) fields["signal"] = signal_text(outcome.signal);
  const bool usual = outcome.verdict == Verdict::kExited || outcome.verdict == Verdict::kSignaled ||
                     outcome.verdict == Verdict::kCancelled;
  if (!usual) event->level = Event::Level::kWarn;
  return event;
}

std::optional<Event> ProcessLog::lost(std::uint32_t command) {
  auto event = close(command);
  if (event.has_value()) event->fields["verdict"] = "not known any more";
  return event;
}

std::set<std::uint32_t> ProcessLog::open() const {
  std::set<std::uint32_t> numbers;
  for (const auto& [number, fields] : open_) numbers.insert(number);
  return numbers;
}

void ProcessLog::restore(const std::vector<Event>& log) {
  for (const Event& event : log) {
    const auto number = number_of(event);
    if (!number.has_value()) continue;
    if (event.message == kStarted) open_[*number] = event.fields;
    if (event.message == kEnded) open_.erase(*number);
  }
}

std::string signal_text(std::uint32_t number) {
  constexpr std::array<std::string_view, 16> kNames = {"",
                                                       "hangup",
                                                       "interrupt",
                                                       "quit",
                                                       "illegal instruction",
                                                       "trace/breakpoint trap",
                                                       "aborted",
                                                       "bus error",
                                                       "floating point exception",
                                                       "killed",
                                                       "user defined signal 1",
                                                       "segmentation fault",
                                                       "user defined signal 2",
                                                       "broken pipe",
                                                       "alarm clock",
                                                       "terminated"};
  if (number > 0 && number < kNames.size()) return std::string(kNames[number]);
  return "signal " + std::to_string(number);
}

}  // namespace caisson::fleet
