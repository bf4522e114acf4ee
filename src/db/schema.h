// The tables of the server's database, as the steps that make them.
//
// A database says in its user_version how many steps it has had. Steps are only ever added: one
// that has been part of a release stays as it is, since databases exist that had it.
#pragma once

#include <span>
#include <string_view>

#include "db/sqlite.h"

namespace caisson::db {

std::span<const std::string_view> schema_steps();

// Brings a database to the last of `steps`: all that it lacks, or none of them. Error:
// failed_precondition where it has had more steps than there are, which a newer program did.
Status migrate(Sqlite& sqlite, std::span<const std::string_view> steps);

}  // namespace caisson::db
