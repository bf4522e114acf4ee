// Templates and snapshots, which are the same to who makes a sandbox of them: an id, perhaps names,
// and builds, of which tags say which one is meant. A snapshot is a template that knows the sandbox
// that it was taken of; its one build was ready from the start.
//
// Each function knows one team's rows alone, but for those at the end: another team's are
// not_found.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "db/database.h"
#include "db/template_name.h"

namespace caisson::db {

enum class BuildStatus : std::uint8_t { kWaiting, kBuilding, kReady, kError };
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError };

struct Template {
  std::string id;  // 20 of [a-z0-9]
  std::string team_id;
  std::vector<std::string> names;             // without the team's slug, in their order
  std::optional<std::string> source_sandbox;  // of a snapshot
  std::int64_t created_ms = 0;
  std::int64_t updated_ms = 0;
  bool operator==(const Template&) const = default;
};

struct Build {
  std::string id;  // a UUID
  std::string template_id;
  BuildStatus status = BuildStatus::kWaiting;
  std::vector<std::string> tags;  // what it is to be called when it is ready
  std::string image;              // of the local store; empty until it is ready
  std::uint64_t cpu_milli = 0, memory = 0, disk = 0;
  std::string start_command, ready_command;
  std::string failure;       // why, where the status is kError
  std::string failure_step;  // "base", "finalize" or a step's number
  std::int64_t created_ms = 0;
  std::optional<std::int64_t> finished_ms;
  bool operator==(const Build&) const = default;
};

struct BuildSize {
  std::uint64_t cpu_milli = 0, memory = 0, disk = 0;
};

struct LogEntry {
  std::int64_t time_ms = 0;
  LogLevel level = LogLevel::kInfo;
  std::string step;
  std::string message;
  bool operator==(const LogEntry&) const = default;
};

struct TagInfo {
  std::string tag;
  std::string build_id;
  std::int64_t set_ms = 0;
};

// Of a build's log so much is kept: what is beyond is left out, with one entry that says so.
inline constexpr std::int64_t kMaxLogEntries = 20'000;
inline constexpr std::size_t kMaxLogMessage = 8192;

enum class TemplateKind : std::uint8_t { kBuilt, kSnapshot };

struct TemplateCursor {
  std::int64_t created_ms = 0;
  std::string id;
};

// Newest first.
struct TemplateFilter {
  TemplateKind kind = TemplateKind::kBuilt;
  std::optional<std::string> source_sandbox;
  std::optional<std::string> name;
  std::optional<TemplateCursor> after;
  std::uint32_t limit = 100;
};

struct TemplatePage {
  std::vector<Template> rows;
  std::optional<TemplateCursor> next;
};

// What a sandbox is made of.
struct ResolvedTemplate {
  Template found;
  Build build;  // ready
};

class Templates {
 public:
  explicit Templates(Database& database) : sqlite_(database.sqlite()) {}

  // The team's template of that name, made where there is none. Errors: already_exists where the
  // name is a snapshot's.
  Result<Template> ensure(std::string_view team_id, std::string_view name, std::int64_t now_ms);
  Result<Template> find(std::string_view team_id, std::string_view id);
  // By name or id. Errors: not_found.
  Result<Template> find_reference(std::string_view team_id, const TemplateReference& reference);
  // The build that the reference's tag means. Errors: not_found, also where it has no such tag.
  Result<ResolvedTemplate> resolve(std::string_view team_id, const TemplateReference& reference);
  Result<TemplatePage> list(std::string_view team_id, const TemplateFilter& filter);
  // With its builds, names and tags. Returns the images that nothing refers to any more.
  Result<std::vector<std::string>> remove(std::string_view team_id, std::string_view id);

  // A snapshot with one ready build, tagged kDefaultTag. A name that another snapshot has moves to
  // this one, which keeps the other's id. Errors: already_exists where the name is a built
  // template's.
  struct Snapshot {
    std::string source_sandbox;
    std::string name;  // may be empty
    std::string image;
    BuildSize size;
    std::string start_command;
  };
  struct AddedSnapshot {
    Template added;
    std::vector<std::string> unused_images;
  };
  Result<AddedSnapshot> add_snapshot(std::string_view team_id, const Snapshot& snapshot,
                                     std::int64_t now_ms);

  // Builds go from waiting to building, and from either to ready or error; else
  // failed_precondition.
  Result<Build> add_build(std::string_view team_id, std::string_view template_id,
                          const std::vector<std::string>& tags, const BuildSize& size,
                          std::int64_t now_ms);
  Result<Build> find_build(std::string_view team_id, std::string_view template_id,
                           std::string_view build_id);
  // Newest first, the newest 100.
  Result<std::vector<Build>> list_builds(std::string_view team_id, std::string_view template_id);
  Status start_build(std::string_view build_id, std::string_view start_command,
                     std::string_view ready_command);
  // Its tags mean this build from now on.
  Status finish_build(std::string_view build_id, std::string_view image, std::int64_t now_ms);
  Status fail_build(std::string_view build_id, std::string_view step, std::string_view failure,
                    std::int64_t now_ms);

  Status append_logs(std::string_view build_id, std::span<const LogEntry> entries);
  // Of entries of at least that level, `limit` from the one with number `offset` on.
  Result<std::vector<LogEntry>> logs(std::string_view build_id, std::uint64_t offset,
                                     std::uint32_t limit, LogLevel least);

  Result<std::vector<TagInfo>> tags(std::string_view team_id, std::string_view template_id);
  // Errors: not_found (no such build of that template), failed_precondition (it is not ready).
  Status set_tags(std::string_view team_id, std::string_view template_id, std::string_view build_id,
                  const std::vector<std::string>& tags, std::int64_t now_ms);
  // Errors: not_found where the template has none of them.
  Status remove_tags(std::string_view team_id, std::string_view template_id,
                     const std::vector<std::string>& tags);

  // For the server's start: builds that nobody works on any more have failed.
  Status fail_unfinished(std::string_view failure, std::int64_t now_ms);
  // Images that a build or a sandbox refers to, of all teams: the store must keep them.
  Result<std::vector<std::string>> images_of_any_team();

 private:
  Sqlite& sqlite_;
};

}  // namespace caisson::db
