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

class UploadFile final : public Upload {
 public:
  UploadFile(Fd file, std::string partial, std::string path, std::uint64_t most, Uploads owner)
      : file_(std::move(file)),
        partial_(std::move(partial)),
        path_(std::move(path)),
        most_(most),
        owner_(std::move(owner)) {}
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
    owner_.trim();
    return {};
  }

 private:
  Fd file_;
  std::string partial_, path_;
  std::uint64_t most_, size_ = 0;
  Uploads owner_;
  bool kept_ = false;
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
  trim();
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
                                      *this);
}

void Uploads::forget(const Owner& owner) const {
  std::error_code ignored;
  fs::remove_all(path_of(owner), ignored);
}

std::vector<Uploads::Owner> Uploads::owners() const {
  std::vector<Owner> all;
  std::error_code ignored;
  for (const auto& team : fs::directory_iterator(folder_, ignored))
    for (const auto& entry : fs::directory_iterator(team.path(), ignored))
      all.push_back({.team = team.path().filename(), .id = entry.path().filename()});
  return all;
}

void Uploads::trim() const {
  struct Kept {
    fs::file_time_type used;
    std::uint64_t size;
    fs::path path;
  };
  struct Team {
    std::deque<Kept> files;  // that was used longest ago in front
    std::uint64_t total = 0;
  };
  std::error_code ignored;
  std::uint64_t total = 0;
  const auto drop_oldest = [&](Team& from) {
    fs::remove(from.files.front().path, ignored);
    from.total -= from.files.front().size;
    total -= from.files.front().size;
    from.files.pop_front();
  };
  std::vector<Team> teams;
  for (const auto& folder : fs::directory_iterator(folder_, ignored)) {
    Team team;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path(), ignored)) {
      if (!entry.is_regular_file(ignored) || entry.path().extension() == kPartial) continue;
      std::error_code gone;
      const Kept one{entry.last_write_time(gone), entry.file_size(gone), entry.path()};
      if (gone) continue;
      team.total += one.size;
      team.files.push_back(one);
    }
    total += team.total;
    std::ranges::sort(team.files, {}, &Kept::used);
    while (team.total > limits_.team && !team.files.empty()) drop_oldest(team);
    if (!team.files.empty()) teams.push_back(std::move(team));
  }
  while (total > limits_.total && !teams.empty()) {
    const auto most = std::ranges::max_element(teams, {}, &Team::total);
    drop_oldest(*most);
    if (most->files.empty()) teams.erase(most);
  }
}

}  // namespace caisson::api
