#include "api/templates/uploads.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/fd.h"
#include "base/secret.h"

namespace caisson::api {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".part";
// One in so many bytes of all is made free beyond what is too much.
constexpr std::uint64_t kSpare = 16;

class UploadFile final : public Upload {
 public:
  UploadFile(Fd file, std::string partial, std::string path, std::uint64_t most, Uploads all,
             std::string team)
      : file_(std::move(file)),
        partial_(std::move(partial)),
        path_(std::move(path)),
        most_(most),
        all_(std::move(all)),
        team_(std::move(team)) {}
  ~UploadFile() override {
    if (!kept_) ::unlink(partial_.c_str());
  }

  Status append(std::string_view bytes) override {
    size_ += bytes.size();
    if (size_ > most_)
      return fail(Error(Code::kOutOfRange, "the files are more than " + std::to_string(most_) +
                                               " bytes, which is as many as one COPY may have"));
    while (!bytes.empty()) {
      const ssize_t count = TEMP_FAILURE_RETRY(::write(file_.get(), bytes.data(), bytes.size()));
      if (count < 0) return fail_errno("write the files of a build");
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
  }
  Status keep() override {
    if (::rename(partial_.c_str(), path_.c_str()) != 0) {
      // Its folder went with the template.
      if (errno == ENOENT) return fail(Error::not_found("the template was removed meanwhile"));
      return fail_errno("keep " + path_);
    }
    kept_ = true;
    all_.trim(team_);
    return {};
  }

 private:
  Fd file_;
  std::string partial_, path_;
  std::uint64_t most_, size_ = 0;
  Uploads all_;
  std::string team_;
  bool kept_ = false;
};

// What a folder has; nothing where it goes meanwhile, as with its template.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> found;
  std::error_code error;
  for (fs::directory_iterator next(folder, error); !error && next != fs::directory_iterator();
       next.increment(error))
    found.push_back(*next);
  return found;
}

// The files of one team, to be dropped in the order in which they were used.
class TeamFiles {
 public:
  static TeamFiles of(const std::string& folder, const std::string& team) {
    TeamFiles found;
    found.team_ = team;
    for (const auto& owner : entries_of(folder + "/" + team))
      for (const auto& entry : entries_of(owner.path())) found.add(entry);
    std::ranges::sort(found.files_, {}, &Kept::used);
    return found;
  }

  void hold(const Uploads::Limits& limits) {
    while (!empty() && (sum_ > limits.team || files_.size() > limits.team_files)) drop_oldest();
  }
  // What it counted.
  std::uint64_t drop_oldest() {
    const Kept oldest = std::move(files_.front());
    files_.pop_front();
    sum_ -= oldest.counts;
    std::error_code ignored;
    fs::remove(oldest.path, ignored);
    return oldest.counts;
  }
  const std::string& team() const { return team_; }
  std::uint64_t sum() const { return sum_; }
  bool empty() const { return files_.empty(); }

 private:
  void add(const fs::directory_entry& entry) {
    std::error_code gone;
    if (!entry.is_regular_file(gone) || entry.path().extension() == kPartial) return;
    const Kept one{entry.last_write_time(gone),
                   std::max<std::uint64_t>(entry.file_size(gone), Uploads::kLeastCounted),
                   entry.path()};
    if (gone) return;
    sum_ += one.counts;
    files_.push_back(one);
  }

  struct Kept {
    fs::file_time_type used;
    std::uint64_t counts;
    fs::path path;
  };
  std::string team_;
  std::deque<Kept> files_;  // that was used longest ago in front
  std::uint64_t sum_ = 0;
};

}  // namespace

Status Uploads::prepare() const {
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("mkdir " + folder_);
  std::error_code ignored;
  for (const auto& team : fs::directory_iterator(folder_, ignored)) {
    for (const auto& entry : fs::directory_iterator(team.path(), ignored)) {
      // FOLDER/TEMPLATE/HASH, of a version before: clients send it again when they are asked to.
      if (!entry.is_directory(ignored)) fs::remove(entry.path(), ignored);
    }
    fs::remove(team.path(), ignored);  // where it is empty
  }
  for (const auto& entry : fs::recursive_directory_iterator(folder_, ignored)) {
    const fs::path path = entry.path();
    if (path.extension() == kPartial) fs::remove(path, ignored);
  }
  const std::lock_guard lock(sums_->mutex);
  trim_all();
  return {};
}

std::optional<std::string> Uploads::find(const Owner& owner, const std::string& hash) const {
  std::string path = path_of(owner) + "/" + hash;
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return path;
}

Result<std::unique_ptr<Upload>> Uploads::begin(const Owner& owner, const std::string& hash) const {
  const std::string folder = path_of(owner);
  for (const std::string& made : {folder_ + "/" + owner.team, folder})
    if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("mkdir " + made);
  const std::string path = folder + "/" + hash;
  std::string partial = path + "." + random_hex(16) + std::string(kPartial);
  Fd file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("open " + partial);
  return std::make_unique<UploadFile>(std::move(file), std::move(partial), path, limits_.file,
                                      *this, owner.team);
}

void Uploads::forget(const Owner& owner) const {
  std::error_code ignored;
  fs::remove_all(path_of(owner), ignored);
  count_again(owner.team);
}

std::vector<Uploads::Owner> Uploads::owners() const {
  std::vector<Owner> all;
  for (const auto& team : entries_of(folder_))
    for (const auto& entry : entries_of(team.path()))
      all.push_back({.team = team.path().filename(), .id = entry.path().filename()});
  return all;
}

void Uploads::Sums::set(const std::string& team, std::uint64_t sum) {
  const auto known = by_team.find(team);
  if (known != by_team.end()) total -= known->second;
  total += sum;
  if (sum == 0)
    by_team.erase(team);
  else
    by_team[team] = sum;
}

void Uploads::count_again(const std::string& team) const {
  const std::lock_guard lock(sums_->mutex);
  sums_->set(team, TeamFiles::of(folder_, team).sum());
}

void Uploads::trim(const std::string& team) const {
  const std::lock_guard lock(sums_->mutex);
  TeamFiles files = TeamFiles::of(folder_, team);
  files.hold(limits_);
  sums_->set(team, files.sum());
  if (sums_->total > limits_.total) trim_all();
}

// With the lock of the sums.
void Uploads::trim_all() const {
  std::vector<TeamFiles> teams;
  std::uint64_t total = 0;
  for (const auto& folder : entries_of(folder_)) {
    TeamFiles files = TeamFiles::of(folder_, folder.path().filename());
    files.hold(limits_);
    total += files.sum();
    teams.push_back(std::move(files));
  }
  // A little more than must be, so that not every file that comes has all looked at again.
  const std::uint64_t aim =
      total > limits_.total ? limits_.total - limits_.total / kSpare : limits_.total;
  std::ranges::make_heap(teams, {}, &TeamFiles::sum);
  while (total > aim && !teams.empty() && !teams.front().empty()) {
    std::ranges::pop_heap(teams, {}, &TeamFiles::sum);
    total -= teams.back().drop_oldest();
    std::ranges::push_heap(teams, {}, &TeamFiles::sum);
  }
  sums_->by_team.clear();
  sums_->total = 0;
  for (const TeamFiles& files : teams) sums_->set(files.team(), files.sum());
}

}  // namespace caisson::api
