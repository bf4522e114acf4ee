// What the commands share that look after the server's database: which one is meant, and times and
// amounts as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/args.h"
#include "db/database.h"
#include "db/teams.h"

namespace caisson::cli {

inline constexpr Option kStateDirectoryOption = {
    .name = "--state-dir",
    .value = "DIRECTORY",
    .help = "The server's state directory, where it is not caisson's own.",
    .complete = Complete::kDirectory};
inline constexpr Option kTeamOption = {
    .name = "--team", .value = "TEAM", .help = "The team, where it is not the one named default."};

// Opens the database of --state-dir. The server may run meanwhile.
Result<db::Database> open_server_database(const Parsed& parsed);

// The team of --team. Error: not_found, naming the teams that there are.
Result<db::Team> team_of(const Parsed& parsed, db::Database& database);

std::int64_t now_ms();
// How long ago; "never" for none.
std::string age_text(std::optional<std::int64_t> time_ms, std::int64_t now_ms);

}  // namespace caisson::cli
