#include "api/templates/uploads.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
    if (::rename(partial_.c_str(), path_.c_str()) != 0) return fail_errno("keep " + path_);
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
  for (const auto& entry : fs::recursive_directory_iterator(folder_, ignored)) {
    const fs::path path = entry.path();
    if (path.extension() == kPartial) fs::remove(path, ignored);
  }
  trim();
  return {};
}

std::optional<std::string> Uploads::find(const std::string& id, const std::string& hash) const {
  std::string path = folder_ + "/" + id + "/" + hash;
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return path;
}

Result<std::unique_ptr<Upload>> Uploads::begin(const std::string& id,
                                               const std::string& hash) const {
  const std::string folder = folder_ + "/" + id;
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("mkdir " + folder);
  const std::string path = folder + "/" + hash;
  std::string partial = path + "." + random_hex(16) + std::string(kPartial);
  Fd file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("open " + partial);
  return std::make_unique<UploadFile>(std::move(file), std::move(partial), path, limits_.file,
                                      *this);
}

void Uploads::forget(const std::string& id) const {
  std::error_code ignored;
  fs::remove_all(folder_ + "/" + id, ignored);
}

void Uploads::trim() const {
  struct Kept {
    fs::file_time_type used;
    std::uint64_t size;
    fs::path path;
  };
  std::vector<Kept> all;
  std::uint64_t total = 0;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder_, ignored)) {
    if (!entry.is_regular_file(ignored) || entry.path().extension() == kPartial) continue;
    all.push_back({entry.last_write_time(ignored), entry.file_size(ignored), entry.path()});
    total += all.back().size;
  }
  std::ranges::sort(all, {}, &Kept::used);
  for (const Kept& one : all) {
    if (total <= limits_.total) return;
    fs::remove(one.path, ignored);
    total -= one.size;
  }
}

}  // namespace caisson::api
