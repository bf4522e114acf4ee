// The server's sandboxes: what a client may ask about one after the server has been started again.
//
// Whether a sandbox lives is its supervisor's to say; a row without one is removed when the server
// starts. Not here, because they may be secret: the sandbox's variables (db/variables.h) and its
// tokens (db/server_secret.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "db/database.h"

namespace caisson::db {

enum class SandboxState : std::uint8_t { kRunning, kPaused };

using Metadata = std::map<std::string, std::string>;

struct SandboxRow {
  std::string id;  // [a-z0-9]: new_sandbox_id()
  std::string team_id;
  std::string template_id;    // as clients are told; the template may be gone
  std::string alias;          // the name by which the template was asked for; may be empty
  std::string image;          // of the local store
  std::string host_id;        // of the supervisor: RUN/sandboxes/HOST_ID; empty where it has none
  std::string user, workdir;  // of commands that name none; the workdir may be empty
  bool secure = true;         // a token is asked for
  SandboxState state = SandboxState::kRunning;
  std::int64_t started_ns = 0;   // its first start: a resume does not move it
  std::int64_t end_at_ms = 0;    // its deadline; of a paused one, when it was paused
  std::uint64_t timeout_ms = 0;  // what it is given when a request resumes it
  std::uint64_t cpu_milli = 0, memory = 0, disk = 0;
  Metadata metadata;
  // JSON objects that belong to who serves it: how its life goes on at its deadline, and its
  // network. Passwords and values of headers must be left out of them.
  std::string lifecycle = "{}";
  std::string network = "{}";
  bool operator==(const SandboxRow&) const = default;
};

// Of metadata and network each; of the lifecycle, which may have commands of a template.
inline constexpr std::size_t kMaxSandboxJson = 64 << 10;
inline constexpr std::size_t kMaxLifecycleJson = 512 << 10;

enum class Order : std::uint8_t { kNewestFirst, kOldestFirst };

// A place in a listing: the row after which the next page begins.
struct SandboxCursor {
  std::int64_t started_ns = 0;
  std::string id;
  bool operator==(const SandboxCursor&) const = default;
};

struct SandboxFilter {
  std::optional<SandboxState> state;  // nullopt: both
  Metadata metadata;                  // all of these pairs, and perhaps more
  std::optional<std::int64_t> started_from_ns;
  std::optional<std::string> template_id;
  Order order = Order::kNewestFirst;
  std::optional<SandboxCursor> after;
  std::uint32_t limit = 100;
};

struct SandboxPage {
  std::vector<SandboxRow> rows;
  std::optional<SandboxCursor> next;  // nullopt: there are no more
};

// A row that is there and cannot be understood.
struct DamagedSandbox {
  std::string id, team_id, host_id;
  std::string why;
};
struct AllSandboxes {
  std::vector<SandboxRow> rows;
  std::vector<DamagedSandbox> damaged;
};

// "i" and 20 of [a-z0-9].
std::string new_sandbox_id();

// Each function but the last four knows one team's rows alone: another's are not_found.
class Sandboxes {
 public:
  explicit Sandboxes(Database& database) : sqlite_(database.sqlite()) {}

  // Error: invalid_argument (metadata that is not UTF-8 or has NULs, or more than kMaxSandboxJson).
  static Status check(const SandboxRow& row);
  // Errors: those of check(); resource_exhausted where the team has `most_running` running
  // sandboxes already (counted with the same lock that writes the row), already_exists,
  // failed_precondition (no such team).
  Status insert(const SandboxRow& row, std::optional<std::uint64_t> most_running);
  Result<SandboxRow> find(std::string_view team_id, std::string_view id);
  Result<SandboxPage> list(std::string_view team_id, const SandboxFilter& filter);
  Result<std::uint64_t> count_running(std::string_view team_id);

  Status set_end_at(std::string_view team_id, std::string_view id, std::int64_t end_at_ms);
  Status set_network(std::string_view team_id, std::string_view id, std::string_view network);
  // From running to paused; `host_id` is what is left of it on the host, empty where nothing runs.
  // Errors: not_found, failed_precondition (it is not running).
  Status pause(std::string_view team_id, std::string_view id, std::string_view host_id,
               std::int64_t now_ms);
  // From paused to running. Errors: not_found, failed_precondition (it is not paused),
  // resource_exhausted as of insert().
  Status resume(std::string_view team_id, std::string_view id, std::string_view host_id,
                std::int64_t end_at_ms, std::optional<std::uint64_t> most_running);
  Status remove(std::string_view team_id, std::string_view id);

  // For who shows a sandbox's own token and no API key.
  Result<SandboxRow> find_of_any_team(std::string_view id);
  // For a server that counts and finds by itself, and keeps here what it must find again: the row
  // as it is now, in place of one with the same id and team (already_exists where it is another
  // team's); its removal, also where there is none; all rows, by id.
  Status put(const SandboxRow& row);
  Status remove_of_any_team(std::string_view id);
  // One that is damaged does not hide the others.
  Result<AllSandboxes> all_of_any_team();

 private:
  Status write(const SandboxRow& row, Sql statement);
  Status allow_one_more(std::string_view team_id, std::optional<std::uint64_t> most_running);
  Sqlite& sqlite_;
};

}  // namespace caisson::db
