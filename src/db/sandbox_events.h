// What has happened to sandboxes, for who owns them: the log of each one's life.
//
// Bounded twice: the newest kMaxSandboxEvents of each sandbox, and kMaxEvents of all together, so
// that neither a busy sandbox nor many short ones fill the disk. A sandbox that has ended keeps its
// log until newer entries take its place. Whoever writes keeps secrets out: no output, no arguments
// and no variables.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "db/builds.h"
#include "db/database.h"

namespace caisson::db {

inline constexpr std::int64_t kMaxSandboxEvents = 1000;
inline constexpr std::int64_t kMaxEvents = 200'000;
// Longer ones are cut.
inline constexpr std::size_t kMaxEventText = 1024;

struct SandboxEvent {
  std::string sandbox_id, team_id;
  std::int64_t time_ms = 0;
  LogLevel level = LogLevel::kInfo;
  std::string message;
  std::map<std::string, std::string> fields;
  bool operator==(const SandboxEvent&) const = default;
};

struct EventFilter {
  std::int64_t from_ms = 0, to_ms = INT64_MAX;  // both inclusive
  LogLevel least = LogLevel::kDebug;
  std::string text;  // that the message holds
  enum class Order : std::uint8_t { kOldestFirst, kNewestFirst } order = Order::kOldestFirst;
  std::uint32_t limit = 1000;
};

class SandboxEvents {
 public:
  explicit SandboxEvents(Database& database) : sqlite_(database.sqlite()) {}

  // All or none of them. Error: failed_precondition (no such team).
  Status append(std::span<const SandboxEvent> events);
  // Error: not_found where nothing is known of such a sandbox of the team.
  Result<std::vector<SandboxEvent>> list(std::string_view team_id, std::string_view sandbox_id,
                                         const EventFilter& filter);

 private:
  Sqlite& sqlite_;
};

}  // namespace caisson::db
