// For tests: a Service over fakes, whose requests are FakeExchanges.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/exchange_for_test.h"
#include "api/fleet_for_test.h"
#include "api/responses_for_test.h"
#include "api/service.h"
#include "base/fd.h"
#include "vault/engine.h"
#include "vault/secret_body.h"

namespace caisson::api {

class FakeKeys final : public Keys {
 public:
  std::map<std::string, std::string> teams = {{"e2b_01", "team-1"}, {"e2b_02", "team-2"}};
  io::Async<Result<std::string>> team_of(std::string key) override {
    const auto found = teams.find(key);
    if (found == teams.end()) {
      co_return fail({Code::kUnauthenticated, "the API key is not known or was revoked"});
    }
    co_return found->second;
  }
};

class FakeTemplates final : public Templates {
 public:
  std::vector<TemplateView> views;
  std::optional<Error> failure;
  io::Async<Result<TemplateView>> find(std::string, std::string name) override {
    if (failure.has_value()) co_return fail(*failure);
    for (const TemplateView& view : views) {
      if (view.id == name) co_return view;
    }
    co_return fail(Error::not_found("template '" + name + "' not found"));
  }
  io::Async<Result<std::vector<TemplateView>>> list(std::string) override {
    if (failure.has_value()) co_return fail(*failure);
    co_return views;
  }

  // Of the last call of each.
  NewTemplate wanted;
  BuildOrder order;
  LogQuery log_query;
  db::LogWindow log_window;
  std::string named;  // the template that was meant, or "ID/BUILD"
  std::vector<std::string> tags_given;
  std::optional<TemplateView::Access> access;
  // What the next call answers.
  BuildProgress progress_now;
  std::vector<db::Build> builds_now;
  std::vector<db::TagInfo> tags_now;
  UploadPlace place{.id = "t1", .expires = 4102444800, .token = "token"};
  std::string uploaded;  // what was kept
  std::size_t most_upload = 1000;

  io::Async<Result<NewBuild>> create(std::string, NewTemplate given) override {
    if (failure.has_value()) co_return fail(*failure);
    wanted = given;
    TemplateView view{.id = "t1", .names = {given.name}, .space = "ours", .build_id = "b1"};
    co_return NewBuild{.view = view, .tags = given.tags};
  }
  io::Async<Status> start_build(std::string, std::string id, std::string build,
                                BuildOrder given) override {
    if (failure.has_value()) co_return fail(*failure);
    named = id + "/" + build;
    order = std::move(given);
    co_return Status();
  }
  io::Async<Result<BuildProgress>> progress(std::string, std::string id, std::string build,
                                            LogQuery query) override {
    if (failure.has_value()) co_return fail(*failure);
    named = id + "/" + build;
    log_query = query;
    co_return progress_now;
  }
  io::Async<Result<std::vector<db::LogEntry>>> logs(std::string, std::string id, std::string build,
                                                    db::LogWindow window) override {
    if (failure.has_value()) co_return fail(*failure);
    named = id + "/" + build;
    log_window = window;
    co_return progress_now.entries;
  }
  io::Async<Result<Details>> details(std::string team, std::string name) override {
    CO_TRY_ASSIGN(TemplateView view, co_await find(std::move(team), std::move(name)));
    co_return Details{.view = std::move(view), .builds = builds_now};
  }
  io::Async<Status> remove(std::string team, std::string name) override {
    named = name;
    CO_TRY(co_await find(std::move(team), std::move(name)));
    co_return Status();
  }
  io::Async<Result<TemplateView>> set_access(std::string team, std::string name,
                                             TemplateView::Access given) override {
    access = given;
    co_return co_await find(std::move(team), std::move(name));
  }
  io::Async<Result<std::vector<db::TagInfo>>> tags(std::string, std::string name) override {
    if (failure.has_value()) co_return fail(*failure);
    named = name;
    co_return tags_now;
  }
  io::Async<Result<std::string>> set_tags(std::string, std::string target,
                                          std::vector<std::string> given) override {
    if (failure.has_value()) co_return fail(*failure);
    named = target;
    tags_given = std::move(given);
    co_return std::string("b1");
  }
  io::Async<Status> remove_tags(std::string, std::string name,
                                std::vector<std::string> given) override {
    if (failure.has_value()) co_return fail(*failure);
    named = name;
    tags_given = std::move(given);
    co_return Status();
  }
  io::Async<Result<UploadPlace>> upload_place(std::string, std::string id,
                                              std::string hash) override {
    if (failure.has_value()) co_return fail(*failure);
    named = id + "/" + hash;
    co_return place;
  }
  io::Async<Result<std::shared_ptr<Upload>>> begin_upload(std::string id, std::string hash,
                                                          std::int64_t expires,
                                                          std::string token) override {
    if (failure.has_value()) co_return fail(*failure);
    named = id + "/" + hash;
    if (expires != place.expires || token != place.token)
      co_return fail(Error(Code::kPermissionDenied, "this place is none of ours"));
    co_return std::make_shared<FakeUpload>(*this);
  }

 private:
  class FakeUpload final : public Upload {
   public:
    explicit FakeUpload(FakeTemplates& owner) : owner_(owner) {}
    Status append(std::string_view bytes) override {
      bytes_ += bytes;
      if (bytes_.size() <= owner_.most_upload) return {};
      return fail(Error(Code::kOutOfRange, "that is too much"));
    }
    Status keep() override {
      owner_.uploaded = bytes_;
      return {};
    }

   private:
    FakeTemplates& owner_;
    std::string bytes_;
  };
};

class FakeSnapshots final : public Snapshots {
 public:
  struct Kept {
    std::string team, sandbox, image;
    SnapshotView view;
  };
  std::vector<Kept> kept;
  std::optional<Error> failure, refusal;  // refusal: of check()
  SnapshotQuery query;                    // of the last list()
  std::string next_token;                 // of the next list()

  io::Async<Status> check(std::string, std::string) override {
    if (refusal.has_value()) co_return fail(*refusal);
    co_return Status();
  }
  io::Async<Result<SnapshotView>> add(std::string team, std::string sandbox, std::string name,
                                      fleet::Snapshot taken) override {
    if (failure.has_value()) co_return fail(*failure);
    SnapshotView view{.id = "s" + std::to_string(kept.size() + 1), .names = {}};
    if (!name.empty()) {
      view.names = {"slug/" + name};
      view.id = "slug/" + name + ":default";
    }
    kept.push_back({.team = team, .sandbox = sandbox, .image = taken.image, .view = view});
    co_return view;
  }
  io::Async<Result<SnapshotPage>> list(std::string team, SnapshotQuery asked) override {
    query = asked;
    if (failure.has_value()) co_return fail(*failure);
    SnapshotPage page;
    for (const Kept& one : kept) {
      if (one.team == team && asked.sandbox.value_or(one.sandbox) == one.sandbox)
        page.snapshots.push_back(one.view);
    }
    page.next_token = std::exchange(next_token, "");
    co_return page;
  }
  io::Async<Status> remove(std::string team, std::string name) override {
    if (failure.has_value()) co_return fail(*failure);
    const auto gone = std::erase_if(
        kept, [&](const Kept& one) { return one.team == team && one.view.id == name; });
    if (gone == 0) co_return fail(Error::not_found("snapshot " + name + " not found"));
    co_return Status();
  }
};

// Keeps everything but the values, of which a test may open the last one.
class FakeSecrets final : public Secrets {
 public:
  std::map<std::pair<std::string, std::string>, SecretView> kept;  // by team and name
  std::string id, value;                                           // the last, sealed for the id
  std::string next_token;                                          // of the next list()
  std::size_t limit = 0;                                           // of the last

  // As the vault does.
  io::Async<Result<SealedSecret>> seal(std::string team, std::string secret, Fd body) override {
    if (!secret.empty() && !kept.contains({team, secret}))
      co_return fail(Error::not_found("secret not found"));
    id = secret.empty() ? "sec_new" : secret;
    CO_TRY_ASSIGN(const vault::Kept sealed, vault::Engine("key").keep(id, body.get()));
    co_return SealedSecret{.id = id, .sealed = sealed.sealed, .rest = sealed.rest};
  }
  io::Async<Result<SecretView>> create(std::string team, std::string name, Metadata metadata,
                                       SealedSecret given) override {
    value = given.sealed;
    SecretView view{.id = "sec_" + name, .name = name, .metadata = std::move(metadata)};
    const bool fresh = kept.emplace(std::pair(team, name), view).second;
    if (!fresh) co_return fail(Error(Code::kAlreadyExists, "there is a secret " + name));
    co_return view;
  }
  io::Async<Result<SecretView>> update(std::string team, std::optional<Metadata> metadata,
                                       SealedSecret given) override {
    const auto found = kept.find({team, given.id});
    if (found == kept.end()) co_return fail(Error::not_found("secret not found"));
    value = given.sealed;
    ++found->second.version;
    if (metadata.has_value()) found->second.metadata = std::move(*metadata);
    co_return found->second;
  }
  io::Async<Result<SecretView>> find(std::string team, std::string secret) override {
    const auto found = kept.find({team, secret});
    if (found == kept.end()) co_return fail(Error::not_found("secret not found"));
    co_return found->second;
  }
  io::Async<Result<SecretViews>> list(std::string team, std::size_t most, std::string) override {
    limit = most;
    SecretViews views{.secrets = {}, .next_token = std::exchange(next_token, "")};
    for (const auto& [key, view] : kept)
      if (key.first == team) views.secrets.push_back(view);
    co_return views;
  }
  io::Async<Status> remove(std::string team, std::string secret) override {
    if (kept.erase({team, secret}) == 0) co_return fail(Error::not_found("secret not found"));
    co_return Status();
  }
};

class ServiceFixture {
 public:
  io::Loop loop{1};
  FakeFleet fleet;
  FakeKeys keys;
  FakeTemplates templates;
  FakeSnapshots snapshots;
  FakeSecrets secrets;
  std::vector<std::pair<SandboxAddress, std::string>> to_sandboxes;  // with the request's path

  ServiceFixture() {
    int ends[2];
    VERIFY(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    log_out_ = Fd(ends[0]);
    log_in_ = Fd(ends[1]);
    log_.emplace(log_in_.get(), io::Log::Level::kDebug);
    service_.emplace(Service::Parts{
        .backend = {loop, fleet, templates, snapshots, secrets, "example.com", {.exists = true}},
        .keys = keys,
        .log = *log_,
        .sandbox = [this](http::Exchange& exchange,
                          SandboxAddress address) { return sandbox(exchange, std::move(address)); },
        .server_counts = [] { return http::Server::Counts{.connections = 7}; },
    });
  }
  Service& service() { return *service_; }

  // Handles it; what came of it is in the exchange.
  void handle(FakeExchange& exchange) { run(loop, answer(exchange)); }
  io::Async<void> answer(FakeExchange& exchange) {
    co_await service_->handle(exchange);
    note_response(service_->routes(), exchange.request().method, exchange.target().segments,
                  exchange.status);
  }

  // A request of team 1.
  FakeExchange call(std::string_view method, std::string_view target, std::string body = "") {
    FakeExchange exchange(method, target, {{"X-API-KEY", "e2b_01"}}, std::move(body));
    handle(exchange);
    return exchange;
  }
  // What the log has got since the last call.
  std::string log() {
    EXPECT_TRUE(log_->flush(std::chrono::seconds(10)));
    std::string text(65536, '\0');
    const ssize_t count = ::read(log_out_.get(), text.data(), text.size());
    text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return text;
  }

 private:
  io::Async<void> sandbox(http::Exchange& exchange, SandboxAddress address) {
    to_sandboxes.emplace_back(std::move(address), exchange.target().path);
    [[maybe_unused]] const Status sent =
        co_await exchange.respond({.status = 204, .reason = "", .headers = {}}, "");
  }

  Fd log_out_, log_in_;
  std::optional<io::Log> log_;
  std::optional<Service> service_;
};

// The sentence of an error; empty where it is none of the status.
inline std::string refusal(const FakeExchange& exchange, int status) {
  EXPECT_EQ(exchange.status, status) << exchange.answer;
  const json::Value body = exchange.answer_json();
  const json::Value* code = body.find("code");
  EXPECT_TRUE(code != nullptr && *code == json::Value(status)) << exchange.answer;
  const json::Value* message = body.find("message");
  if (message == nullptr || message->as_string() == nullptr) return "";
  return *message->as_string();
}

}  // namespace caisson::api
