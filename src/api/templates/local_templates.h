// The templates of one server: the teams' own in its database, built by its queue, their images in
// the local store; and those of the operator (api/catalogue.h). A team's own goes before one of the
// operator's of the same name.
//
// The image of a build is called caisson-template/TEMPLATE:BUILD in the store, so that it stays;
// rows refer to it by its id. Images that no build and no sandbox refers to any more lose those
// names, and with them their place. Belongs to the loop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/catalogue.h"
#include "api/templates.h"
#include "api/templates/build_queue.h"
#include "api/templates/uploads.h"
#include "fleet/shared_database.h"
#include "policy/server_config.h"

namespace caisson::api {

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
  };
  explicit LocalTemplates(Parts parts);

  // Once, before anything else: what an earlier server had not finished has failed, and what it
  // left is removed.
  io::Async<Status> prepare();
  // Ends every build.
  io::Async<void> close();

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
  Result<db::BuildSize> size_of(const NewTemplate& wanted) const;
  fleet::Recipe recipe_of(const db::Build& build) const;
  io::Async<void> forget_name(std::string name);
  // Takes the names of these images away, but those of builds that still go on.
  io::Async<void> forget_images(std::vector<std::string> images);
  std::string token_of(const std::string& id, const std::string& hash, std::int64_t expires) const;

  Parts parts_;
  Catalogue catalogue_;
  Uploads uploads_;
  BuildQueue queue_;
  std::shared_ptr<std::atomic<std::size_t>> uploading_ =
      std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace caisson::api
