#include <utility>

#include "api/templates/local_templates_shared.h"
#include "base/secret.h"
#include "base/sha256.h"
#include "policy/complain.h"

namespace caisson::api {
namespace {

constexpr std::size_t kMostUploads = 64;        // at a time
constexpr std::size_t kMostUploadsOfTeam = 16;  // of these
constexpr std::chrono::seconds kUploadTime = std::chrono::hours(1);

class CountedUpload final : public Upload {
 public:
  CountedUpload(std::unique_ptr<Upload> inner, UploadCounts::Place place)
      : place_(std::move(place)), inner_(std::move(inner)) {}
  Status append(std::string_view bytes) override { return inner_->append(bytes); }
  Status keep() override { return inner_->keep(); }

 private:
  UploadCounts::Place place_;
  std::unique_ptr<Upload> inner_;
};

}  // namespace

std::string LocalTemplates::token_of(const std::string& id, const std::string& hash,
                                     std::int64_t expires) const {
  return parts_.upload_token(id + "/" + hash + "/" + std::to_string(expires));
}

io::Async<Result<UploadPlace>> LocalTemplates::upload_place(std::string team, std::string id,
                                                            std::string hash) {
  if (!is_sha256(hash))
    co_return fail(policy::wrong("hash", policy::quote(hash), "64 hexadecimal digits"));
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, id));
  const Uploads::Owner owner{.team = team, .id = found.id};
  auto look = [uploads = uploads_, owner, hash] { return uploads.find(owner, hash).has_value(); };
  UploadPlace place{.id = found.id};
  place.present = co_await parts_.loop.in_pool(std::move(look));
  place.expires = now_ms() / 1000 + kUploadTime.count();
  place.token = token_of(found.id, hash, place.expires);
  co_return place;
}

io::Async<Result<std::shared_ptr<Upload>>> LocalTemplates::begin_upload(std::string id,
                                                                        std::string hash,
                                                                        std::int64_t expires,
                                                                        std::string token) {
  // The token first: it is what makes the rest ours.
  if (!same_secret(token_of(id, hash, expires), token) || !is_sha256(hash))
    co_return fail(
        Error(Code::kPermissionDenied, "this place to upload to is none of the server's"));
  if (expires < now_ms() / 1000)
    co_return fail(Error(Code::kPermissionDenied, "the time to upload is over; ask for a new URL"));
  // The token outlives its template.
  auto look = [id](db::Database& database) { return db::Templates(database).team_of(id); };
  const auto team = co_await parts_.database->with(std::move(look));
  if (!team.has_value() && team.error().code() == Code::kNotFound)
    co_return fail(
        Error(Code::kPermissionDenied, "the template of this place to upload to was removed"));
  CO_TRY(team);
  CO_TRY_ASSIGN(UploadCounts::Place place, UploadCounts::take(uploading_, *team));
  const Uploads::Owner owner{.team = *team, .id = id};
  auto begin = [uploads = uploads_, owner, hash] { return uploads.begin(owner, hash); };
  CO_TRY_ASSIGN(auto begun, co_await parts_.loop.in_pool(std::move(begin)));
  co_return std::make_shared<CountedUpload>(std::move(begun), std::move(place));
}

// Between the question whether there is the template and the first byte it may have been removed:
// its folder is made again then, and goes here.
io::Async<Status> LocalTemplates::forget_lost_uploads() {
  auto list = [uploads = uploads_] { return uploads.owners(); };
  std::vector<Uploads::Owner> owners = co_await parts_.loop.in_pool(std::move(list));
  auto look =
      [owners = std::move(owners)](db::Database& database) -> Result<std::vector<Uploads::Owner>> {
    std::vector<Uploads::Owner> lost;
    db::Templates templates(database);
    for (const Uploads::Owner& owner : owners) {
      const auto team = templates.team_of(owner.id);
      if (!team.has_value() && team.error().code() != Code::kNotFound) return fail(team.error());
      if (!team.has_value() || *team != owner.team) lost.push_back(owner);
    }
    return lost;
  };
  CO_TRY_ASSIGN(std::vector<Uploads::Owner> lost, co_await parts_.database->with(std::move(look)));
  auto forget = [uploads = uploads_, lost = std::move(lost)] {
    for (const Uploads::Owner& owner : lost) uploads.forget(owner);
    return true;
  };
  co_await parts_.loop.in_pool(std::move(forget));
  co_return Status();
}

Result<UploadCounts::Place> UploadCounts::take(std::shared_ptr<UploadCounts> counts,
                                               std::string team) {
  const std::lock_guard lock(counts->mutex_);
  const auto known = counts->by_team_.find(team);
  if (known != counts->by_team_.end() && known->second >= kMostUploadsOfTeam)
    return fail(Error::exhausted("you have " + std::to_string(kMostUploadsOfTeam) +
                                 " uploads under way, which is as many as a team may have; try "
                                 "again later"));
  if (counts->all_ >= kMostUploads)
    return fail(
        Error::exhausted(std::to_string(kMostUploads) + " uploads are under way; try again later"));
  ++counts->by_team_[team];
  ++counts->all_;
  return Place(new Taken(std::move(counts), std::move(team)));
}

UploadCounts::Taken::~Taken() {
  const std::lock_guard lock(counts_->mutex_);
  const auto known = counts_->by_team_.find(team_);
  if (--known->second == 0) counts_->by_team_.erase(known);
  --counts_->all_;
}

}  // namespace caisson::api
