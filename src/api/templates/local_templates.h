// The templates of one server: the teams' own in its database, built by its queue, their images in
// the local store; and those of the operator (api/catalogue.h). A team's own goes before one of the
// operator's of the same name.
//
// The image of a build is called caisson-template/TEMPLATE:BUILD in the store, so that it stays;
// rows refer to it by its id. Images that no build and no sandbox refers to any more lose those
// names, and with them their place: at once where a build or a template lets go of them, and at the
// next sweep where it was a sandbox. Belongs to the loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/catalogue.h"
#include "api/templates.h"
#include "api/templates/build_queue.h"
#include "api/templates/uploads.h"
#include "fleet/quota.h"
#include "fleet/shared_database.h"
#include "policy/server_config.h"

namespace caisson::api {

// Uploads under way, by team. Thread-safe: one may end on any thread.
class UploadCounts {
 public:
  class Taken;
  using Place = std::unique_ptr<Taken>;  // gives the place back with its end
  // Error: resource_exhausted.
  static Result<Place> take(std::shared_ptr<UploadCounts> counts, std::string team);

 private:
  std::mutex mutex_;
  std::map<std::string, std::size_t> by_team_;
  std::size_t all_ = 0;
};

class UploadCounts::Taken {
 public:
  Taken(std::shared_ptr<UploadCounts> counts, std::string team)
      : counts_(std::move(counts)), team_(std::move(team)) {}
  ~Taken();
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

 private:
  std::shared_ptr<UploadCounts> counts_;
  std::string team_;
};

class LocalTemplates final : public Templates, private BuildBook {
 public:
  struct Parts {
    io::Loop& loop;
    const policy::ServerConfig& config;
    std::shared_ptr<fleet::SharedDatabase> database;
    maker::Host& host;
    std::string uploads;  // the folder of what clients send
    // The token of a place and a time to send files to, the same at every call.
    std::function<std::string(std::string_view what)> upload_token;
    // What a team may have; null: what the configuration gives to everybody.
    std::function<io::Async<Result<fleet::Quota>>(std::string team)> quota;
    // As BuildQueue::Options has it.
    std::function<io::Async<Status>(std::string team)> room;
  };
  explicit LocalTemplates(Parts parts);

  // Once, before anything else: what an earlier server had not finished has failed, and what it
  // left is removed.
  io::Async<Status> prepare();
  // Ends every build.
  io::Async<void> close();
  // What nothing needs any more goes: images that the last sandbox used, builds and logs that are
  // kept no longer, what the cache of steps has too much of. Builds whose end could not be written
  // down have failed. The first error; whatever can be done is done all the same.
  io::Async<Status> sweep();
  // Sweeps after builds and every few minutes, for as long as the loop runs.
  io::Async<void> keep_house(std::function<void(const Error&)> report);
  // Builds that go on, of a team or (nullopt) of all.
  std::size_t building(std::optional<std::string_view> team) const { return queue_.running(team); }
  // The ids of all builds that wait or go on, sorted.
  std::vector<std::string> unfinished() const { return queue_.builds(); }

  // For making a sandbox. An empty name: the configuration's default.
  io::Async<Result<fleet::Template>> to_make(std::string team, std::string name);

  io::Async<Result<TemplateView>> find(std::string team, std::string name) override;
  io::Async<Result<std::vector<TemplateView>>> list(std::string team) override;
  io::Async<Result<NewBuild>> create(std::string team, NewTemplate wanted) override;
  io::Async<Status> start_build(std::string team, std::string id, std::string build,
                                BuildOrder order) override;
  io::Async<Result<BuildProgress>> progress(std::string team, std::string id, std::string build,
                                            LogQuery query) override;
  io::Async<Result<std::vector<db::LogEntry>>> logs(std::string team, std::string id,
                                                    std::string build,
                                                    db::LogWindow window) override;
  io::Async<Result<Details>> details(std::string team, std::string name) override;
  io::Async<Status> remove(std::string team, std::string name) override;
  io::Async<Result<TemplateView>> set_access(std::string team, std::string name,
                                             TemplateView::Access access) override;
  io::Async<Result<std::vector<db::TagInfo>>> tags(std::string team, std::string name) override;
  io::Async<Result<std::string>> set_tags(std::string team, std::string target,
                                          std::vector<std::string> tags) override;
  io::Async<Status> remove_tags(std::string team, std::string name,
                                std::vector<std::string> tags) override;
  io::Async<Result<UploadPlace>> upload_place(std::string team, std::string id,
                                              std::string hash) override;
  io::Async<Result<std::shared_ptr<Upload>>> begin_upload(std::string id, std::string hash,
                                                          std::int64_t expires,
                                                          std::string token) override;

 private:
  io::Async<void> log(std::string build_id, std::vector<db::LogEntry> entries) override;
  io::Async<void> finished(BuildTask task, std::string image) override;
  io::Async<void> failed(BuildTask task, std::string step, std::string reason) override;

  // The team's own, for a change of it.
  io::Async<Result<db::Template>> own(std::string team, std::string name);
  // What a build begins with: the image, and whether it is a template that was built.
  struct Base {
    std::string image, called;
    build::Provision provision = build::Provision::kYes;
  };
  io::Async<Result<Base>> base_of(std::string team, const BuildOrder& order);
  // Fills in what the task's steps copy.
  io::Async<Status> find_archives(BuildTask& task);
  io::Async<Result<fleet::Quota>> quota_of(std::string team);
  Result<db::BuildSize> size_of(const NewTemplate& wanted, const fleet::Quota& quota) const;
  fleet::Recipe recipe_of(const db::Build& build) const;
  // The build has failed, unless its row says that it is ready; then it stays whole.
  io::Async<void> fail_unless_ready(BuildTask task, std::string step, std::string reason);
  void note_end();
  // Parts of sweep(): builds that nobody works on, though the database says so, have failed, and
  // those that no tag means let go of their images; images that nothing refers to lose their names;
  // builds and logs that are kept no longer go, what is too much of the cache of steps, and files
  // that were sent for templates that are gone.
  io::Async<Status> settle();
  io::Async<Status> forget_unused_images();
  io::Async<Status> prune();
  io::Async<Status> trim_cache();
  io::Async<Status> forget_lost_uploads();
  io::Async<void> forget_name(std::string name);
  // Takes the names of these images away, which nothing referred to a moment ago.
  io::Async<void> forget_images(std::vector<std::string> images);
  // The names in the store that `is_meant` wants and nothing needs; takes them away.
  io::Async<Status> forget_unneeded(std::function<bool(const maker::NamedImage& one)> is_meant);
  std::string token_of(const std::string& id, const std::string& hash, std::int64_t expires) const;

  // Ids of builds between the database and the queue.
  class Starting {
   public:
    using All = std::shared_ptr<std::multiset<std::string>>;  // also of coroutines that outlive us
    Starting(All all, std::string id) : all_(std::move(all)), id_(std::move(id)) {
      all_->insert(id_);
    }
    ~Starting() { all_->erase(all_->find(id_)); }
    Starting(const Starting&) = delete;
    Starting& operator=(const Starting&) = delete;

   private:
    All all_;
    std::string id_;
  };

  Parts parts_;
  Catalogue catalogue_;
  Uploads uploads_;
  BuildQueue queue_;
  Starting::All starting_ = std::make_shared<std::multiset<std::string>>();
  bool has_ended_ = false;
  io::Event ended_;
  const std::shared_ptr<UploadCounts> uploading_ = std::make_shared<UploadCounts>();
};

}  // namespace caisson::api
