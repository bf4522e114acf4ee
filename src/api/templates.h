// What the APIs know of templates: which there are, what they are called, how they are built.
//
// An interface, so that handlers are tested without a database; over the database and the image
// store in api/templates/local_templates.h. A template of the operator's configuration, or an image
// of the store by its name, is public and nobody's to change. Belongs to the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/time_text.h"
#include "build/template_steps.h"
#include "db/builds.h"
#include "db/templates.h"
#include "image/registry/credentials.h"
#include "io/async.h"

namespace caisson::api {

struct TemplateView {
  std::string id;
  std::vector<std::string> names;  // the first is its alias
  std::string space;               // the namespace of the names; empty: none
  enum class Access : std::uint8_t { kTeam, kPublic } access = Access::kTeam;
  std::string build_id;
  enum class Status : std::uint8_t { kWaiting, kBuilding, kReady, kError } status = Status::kReady;
  std::uint32_t cpus = 1, builds = 1;
  std::uint64_t memory_mib = 0, disk_mib = 0;
  WallTime created, updated;
};

struct NewTemplate {
  std::string name;  // [NAMESPACE/]NAME[:TAG]
  std::vector<std::string> tags;
  std::optional<std::uint32_t> cpus;
  std::optional<std::uint64_t> memory_mib;
};
struct NewBuild {
  TemplateView view;
  std::vector<std::string> tags;
};

// Bytes of a start command, and of a ready command: what sandboxes and snapshots are written down
// with has room for both.
inline constexpr std::size_t kMostCommand = 16 * 1024;

// What a build is to do.
struct BuildOrder {
  std::string from_image, from_template;  // one of them
  std::optional<image::Credentials> login;
  std::vector<build::TemplateStep> steps;
  std::string start_command, ready_command;
  bool force = false;
};

struct LogQuery {
  std::uint32_t offset = 0, limit = 100;
  db::LogLevel least = db::LogLevel::kDebug;
};
struct BuildProgress {
  db::Build build;
  std::vector<db::LogEntry> entries;
};

// A file that a client sends for a build. Dropped before keep(), nothing of it is left. Both calls
// block: they are for the loop's pool, one at a time, and whoever calls holds it meanwhile.
class Upload {
 public:
  virtual ~Upload() = default;
  // Error: out_of_range where it is longer than allowed.
  virtual Status append(std::string_view bytes) = 0;
  virtual Status keep() = 0;
};

// Where files are sent to, and until when that holds.
struct UploadPlace {
  bool present = false;
  std::string id;            // the template's
  std::int64_t expires = 0;  // seconds since 1970
  std::string token;
};

// Names of templates are [NAMESPACE/]NAME[:TAG] or ids. Errors of all: invalid_argument for what
// cannot be a name; not_found; permission_denied for what is there and may not be changed, because
// it is another team's or the operator's.
class Templates {
 public:
  virtual ~Templates() = default;
  // permission_denied where it is another team's and may not be used.
  virtual io::Async<Result<TemplateView>> find(std::string team, std::string name) = 0;
  // Those of the team and those that are public.
  virtual io::Async<Result<std::vector<TemplateView>>> list(std::string team) = 0;

  // A build that waits for its order; makes the template where there is none of that name. Error:
  // resource_exhausted where the team has as many of them, or of builds that are not finished, as
  // it may.
  virtual io::Async<Result<NewBuild>> create(std::string team, NewTemplate wanted) = 0;
  // Errors: failed_precondition where the build has begun already, resource_exhausted where too
  // many wait.
  virtual io::Async<Status> start_build(std::string team, std::string id, std::string build,
                                        BuildOrder order) = 0;
  virtual io::Async<Result<BuildProgress>> progress(std::string team, std::string id,
                                                    std::string build, LogQuery query) = 0;
  virtual io::Async<Result<std::vector<db::LogEntry>>> logs(std::string team, std::string id,
                                                            std::string build,
                                                            db::LogWindow window) = 0;
  struct Details {
    TemplateView view;
    std::vector<db::Build> builds;  // the newest first
  };
  virtual io::Async<Result<Details>> details(std::string team, std::string name) = 0;
  virtual io::Async<Status> remove(std::string team, std::string name) = 0;
  virtual io::Async<Result<TemplateView>> set_access(std::string team, std::string name,
                                                     TemplateView::Access access) = 0;

  virtual io::Async<Result<std::vector<db::TagInfo>>> tags(std::string team, std::string name) = 0;
  // Gives the build of `target` these tags too. Its id.
  virtual io::Async<Result<std::string>> set_tags(std::string team, std::string target,
                                                  std::vector<std::string> tags) = 0;
  virtual io::Async<Status> remove_tags(std::string team, std::string name,
                                        std::vector<std::string> tags) = 0;

  // Files of a COPY, by the hash that the client gives them.
  virtual io::Async<Result<UploadPlace>> upload_place(std::string team, std::string id,
                                                      std::string hash) = 0;
  // Without a team: the token is the right to it. Errors: permission_denied, resource_exhausted
  // where too many are under way.
  virtual io::Async<Result<std::shared_ptr<Upload>>> begin_upload(std::string id, std::string hash,
                                                                  std::int64_t expires,
                                                                  std::string token) = 0;
};

}  // namespace caisson::api
