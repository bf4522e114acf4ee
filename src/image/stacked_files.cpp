#include "image/stacked_files.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <vector>

namespace caisson::image {
namespace {

constexpr std::size_t kMostLinks = 40;
constexpr std::size_t kMostLinkBytes = PATH_MAX;  // of all links together
constexpr std::size_t kMostNames = 256;           // each is looked for from the root on
constexpr std::size_t kMostLevels = 64;

struct Entry {
  Fd fd;  // O_PATH, in the uppermost root that has it
  mode_t mode = 0;
};

bool is_opaque(int directory_fd) {
  const Fd opened(::openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  char value = 0;
  // What cannot be looked into might be: then nothing below it is shown.
  if (!opened.valid()) return true;
  return ::fgetxattr(opened.get(), "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

class Lookup {
 public:
  explicit Lookup(std::span<const int> roots) : roots_(roots) {}

  Result<Entry> find(std::string_view path) {
    add(path);
    Entry found;
    std::size_t links = 0, link_bytes = 0;
    for (std::size_t names = 0; !left_.empty();) {
      if (++names > kMostNames) return refuse("more names are on its way", kMostNames);
      const std::string part = std::move(left_.front());
      left_.pop_front();
      if (part == "..") {
        if (!way_.empty()) way_.pop_back();
        continue;
      }
      way_.push_back(part);
      if (way_.size() > kMostLevels) return refuse("it has more levels above it", kMostLevels);
      TRY_ASSIGN(found, walk());
      if (!S_ISLNK(found.mode)) continue;
      if (++links > kMostLinks) return refuse("more links are on its way", kMostLinks);
      char target[PATH_MAX];
      const ssize_t size = ::readlinkat(found.fd.get(), "", target, sizeof target);
      if (size < 0) return fail_errno("read a link of the image");
      link_bytes += static_cast<std::size_t>(size);
      if (link_bytes > kMostLinkBytes)
        return refuse("the links on its way have more bytes", kMostLinkBytes);
      way_.pop_back();
      if (size > 0 && target[0] == '/') way_.clear();
      add({target, static_cast<std::size_t>(size)});
    }
    return found;
  }

 private:
  std::unexpected<Error> refuse(const std::string& what, std::size_t most) const {
    return fail(Error::exhausted("a file of the image: " + what + " than the " +
                                 std::to_string(most) + " that are allowed"));
  }

  // In front of what is left.
  void add(std::string_view path) {
    std::vector<std::string> parts;
    for (std::string_view rest = path; !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find('/'));
      rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : rest.size());
      if (!part.empty() && part != ".") parts.emplace_back(part);
    }
    left_.insert(left_.begin(), parts.begin(), parts.end());
  }

  // What the way leads to, of which only the last name may be something else than a directory.
  Result<Entry> walk() const {
    std::vector<int> here(roots_.begin(), roots_.end());
    std::vector<Fd> directories;
    for (const std::string& name : way_) {
      std::vector<Fd> next;
      for (std::size_t i = 0; i < here.size(); ++i) {
        Entry entry{.fd = Fd(::openat(here[i], name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC))};
        struct stat facts = {};
        if (!entry.fd.valid()) {
          if (errno == ENOENT) continue;
          return fail(Error::not_found("a directory of the image cannot be looked into"));
        }
        if (::fstat(entry.fd.get(), &facts) != 0) return fail_errno("stat a file of the image");
        entry.mode = facts.st_mode;
        if (S_ISDIR(facts.st_mode)) {
          next.push_back(std::move(entry.fd));
          if (i + 1 < here.size() && is_opaque(next.back().get())) break;
          continue;
        }
        if (!next.empty() || (S_ISCHR(facts.st_mode) && facts.st_rdev == makedev(0, 0))) break;
        if (&name == &way_.back()) return entry;
        return fail(Error::not_found("no directory of the image on the way"));
      }
      if (next.empty()) return fail(Error::not_found("no such file in the image"));
      directories = std::move(next);
      here.clear();
      for (const Fd& fd : directories) here.push_back(fd.get());
    }
    return Entry{.fd = std::move(directories.front()), .mode = S_IFDIR};
  }

  std::span<const int> roots_;
  std::vector<std::string> way_;  // from the root on, without links
  std::deque<std::string> left_;  // what the way still has to take
};

}  // namespace

Result<Fd> open_stacked_file(std::span<const int> root_fds, std::string_view path) {
  TRY_ASSIGN(const Entry found, Lookup(root_fds).find(path));
  if (!S_ISREG(found.mode)) return fail(Error::invalid("a file of the image is no regular file"));
  // The same file, opened anew; nothing in an image's root file systems changes.
  const std::string again = "/proc/self/fd/" + std::to_string(found.fd.get());
  Fd file(::open(again.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail(Error::not_found("a file of the image cannot be read"));
  return file;
}

}  // namespace caisson::image
