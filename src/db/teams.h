// Teams: who owns sandboxes, keys and templates. What belongs to one team is never seen by another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "db/database.h"

namespace caisson::db {

// The team that is always there; its slug.
inline constexpr std::string_view kDefaultTeam = "default";

// The most that a team may have, nullopt: as much as the server's configuration allows.
struct Quota {
  std::optional<std::uint64_t> running;  // sandboxes at a time
  // Of one sandbox.
  std::optional<std::uint64_t> cpu_milli, memory, disk, lifetime_ms;
  bool operator==(const Quota&) const = default;
};

struct Team {
  std::string id;    // a UUID
  std::string slug;  // [a-z0-9-]: how people and the names of templates call it
  std::string name;
  std::int64_t created_ms = 0;
  Quota quota;
  bool operator==(const Team&) const = default;
};

class Teams {
 public:
  explicit Teams(Database& database) : sqlite_(database.sqlite()) {}

  // Errors: invalid_argument (the slug or the name is none), already_exists.
  Result<Team> create(std::string_view slug, std::string_view name, const Quota& quota,
                      std::int64_t now_ms);
  // Errors: not_found.
  Result<Team> find(std::string_view slug);
  Result<Team> find_id(std::string_view id);
  // By slug.
  Result<std::vector<Team>> list();
  // Errors: not_found.
  Status set_quota(std::string_view id, const Quota& quota);

 private:
  Sqlite& sqlite_;
};

}  // namespace caisson::db
