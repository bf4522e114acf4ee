// Builds of templates, and what they say while they run.
//
// A build goes from waiting to building, and from either to ready or error. Functions that take a
// team know that team's rows alone: another's are not_found. The others are for who runs the build.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "db/database.h"

namespace caisson::db {

enum class BuildStatus : std::uint8_t { kWaiting, kBuilding, kReady, kError };
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError };

// What a sandbox of it gets.
struct BuildSize {
  std::uint64_t cpu_milli = 0, memory = 0, disk = 0;
  bool operator==(const BuildSize&) const = default;
};

struct Build {
  std::string id;  // a UUID
  std::string template_id;
  BuildStatus status = BuildStatus::kWaiting;
  std::vector<std::string> tags;  // what it is called from the moment when it is ready
  std::string image;              // of the local store; empty until it is ready
  BuildSize size;
  std::string start_command, ready_command;
  std::string failure;       // why, where the status is kError
  std::string failure_step;  // "base", "finalize" or a step's number
  std::int64_t created_ms = 0;
  std::optional<std::int64_t> finished_ms;
  bool operator==(const Build&) const = default;
};

struct LogEntry {
  std::int64_t time_ms = 0;
  LogLevel level = LogLevel::kInfo;
  std::string step;
  std::string message;
  bool operator==(const LogEntry&) const = default;
};

struct LogWindow {
  std::optional<std::int64_t> time_ms;  // nullopt: the beginning, or the end
  std::uint32_t limit = 100;
  LogLevel least = LogLevel::kDebug;
  enum class Direction : std::uint8_t { kForward, kBackward } direction = Direction::kForward;
};

// Of a build's log so many entries and bytes of messages are kept, then one that says that the rest
// is left out; of each message so many bytes.
inline constexpr std::int64_t kMaxLogEntries = 20'000;
inline constexpr std::int64_t kMaxLogBytes = 8 << 20;
inline constexpr std::size_t kMaxLogMessage = 8192;

// How much is kept of what no tag means.
struct BuildRetention {
  std::uint32_t per_template = 50;      // builds that have ended, the newest
  std::optional<std::int64_t> kept_ms;  // and these and all logs for so long; nullopt: for ever
};

// A build that is kept no longer, or whose log is.
struct OutdatedBuild {
  std::string id;
  enum class What : std::uint8_t { kAll, kLog } what = What::kAll;
  bool operator==(const OutdatedBuild&) const = default;
};

class Builds {
 public:
  explicit Builds(Database& database) : sqlite_(database.sqlite()) {}
  explicit Builds(Sqlite& sqlite) : sqlite_(sqlite) {}

  // Waiting. Errors: not_found (no such template), invalid_argument (a tag that is none).
  Result<Build> add(std::string_view team_id, std::string_view template_id,
                    const std::vector<std::string>& tags, const BuildSize& size,
                    std::int64_t now_ms);
  Result<Build> find(std::string_view team_id, std::string_view template_id, std::string_view id);
  // Newest first, `limit` of them.
  Result<std::vector<Build>> list(std::string_view team_id, std::string_view template_id,
                                  std::uint32_t limit);

  // Those of all the team's templates that are being built, or wait and were made since then: who
  // has not ordered a build for long has forgotten it.
  Result<std::uint64_t> count_unfinished(std::string_view team_id, std::int64_t waiting_since_ms);

  // Of any team. Error: not_found.
  Result<BuildStatus> status(std::string_view id);
  // The ids of all that are being built, of any team, sorted.
  Result<std::vector<std::string>> building();

  // Errors of these: not_found, failed_precondition (its status does not allow it).
  Status start(std::string_view id, std::string_view start_command, std::string_view ready_command);
  // Its tags mean this build from now on.
  Status finish(std::string_view id, std::string_view image, std::int64_t now_ms);
  Status set_failed(std::string_view id, std::string_view step, std::string_view failure,
                    std::int64_t now_ms);
  // For the server's start: builds that nobody works on any more have failed.
  Status fail_unfinished(std::string_view failure, std::int64_t now_ms);

  // Errors: failed_precondition (no such build).
  Status append_logs(std::string_view id, std::span<const LogEntry> entries);
  // The oldest that are not kept, of any team, `limit` at most. Builds that wait for their order
  // are kept like those that have ended, from a day on.
  Result<std::vector<OutdatedBuild>> outdated(const BuildRetention& retention, std::int64_t now_ms,
                                              std::uint32_t limit);
  // Removes as many entries of its log, and with the last the build, unless it has come to be
  // tagged or built since. In one transaction; true: it is done.
  Result<bool> remove_some(const OutdatedBuild& outdated, std::uint32_t entries);

  // Of the entries of at least that level in their order, `limit` behind the first `offset`.
  Result<std::vector<LogEntry>> logs(std::string_view id, std::uint32_t offset, std::uint32_t limit,
                                     LogLevel least);
  // The same by time: from `window.time_ms` on, or back from there with the newest first.
  Result<std::vector<LogEntry>> logs(std::string_view id, const LogWindow& window);

 private:
  Sqlite& sqlite_;
};

}  // namespace caisson::db
