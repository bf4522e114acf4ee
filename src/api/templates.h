// What the APIs know of templates: which there are, and what they are called.
//
// An interface, so that handlers are tested without a database. Belongs to the loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time_text.h"
#include "io/async.h"

namespace caisson::api {

struct TemplateView {
  std::string id;
  std::vector<std::string> names;  // the first is its alias
  enum class Access : std::uint8_t { kTeam, kPublic } access = Access::kTeam;
  std::string build_id;
  enum class Status : std::uint8_t { kWaiting, kBuilding, kReady, kError } status = Status::kReady;
  std::uint32_t cpus = 1, builds = 1;
  std::uint64_t memory_mib = 0, disk_mib = 0;
  WallTime created, updated;
};

class Templates {
 public:
  virtual ~Templates() = default;
  // By id or name. Errors: not_found; permission_denied where it is another team's;
  // invalid_argument where that cannot be a name.
  virtual io::Async<Result<TemplateView>> find(std::string team, std::string name) = 0;
  // Those of the team and those that are public.
  virtual io::Async<Result<std::vector<TemplateView>>> list(std::string team) = 0;
};

}  // namespace caisson::api
