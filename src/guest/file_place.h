// Where a path leads: an open directory and a name in it, for operations that make, move or remove
// files.
//
// Plain: as any program of the worker's own rights goes. Guarded, for a worker that works with
// root's rights for somebody else (the OPEN frame names an owner): the path is walked step by step,
// and a link takes it no further than whoever planted the link could go and write himself. A link
// counts as its owner's, or where it is root's as its directory's; root's own are followed as they
// are. What was found stays what it is: no name is resolved twice.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "guest/files.h"

namespace caisson::guest {

class Place {
 public:
  enum class Missing : std::uint8_t { kFail, kMake };  // directories on the way
  enum class Last : std::uint8_t { kFollow, kKeep };   // a link that the path ends with

  // Guarded where `owner` is given; `owner` gets what is made on the way. Where the last link is
  // kept, a path that ends with a slash means a directory, as it does to the kernel.
  static Result<Place> find(const std::string& path, Missing missing, const Owner& owner,
                            Last last = Last::kFollow);

  // For openat() and its like, with flags() added; names are without links where it is guarded.
  int directory() const { return guarded_ ? directory_.get() : AT_FDCWD; }
  const char* name() const { return name_.c_str(); }
  int open_flags() const { return guarded_ ? O_NOFOLLOW : 0; }
  int stat_flags() const { return guarded_ ? AT_SYMLINK_NOFOLLOW : 0; }
  bool guarded() const { return guarded_; }
  // As it was given, for errors.
  const std::string& path() const { return path_; }

  // Whether whoever planted the links on the way may make files there, and may write to what is
  // there. Error: permission_denied.
  Status check_new() const;
  Status check_existing(const struct stat& status) const;
  // Whether they may remove or replace the entry `status` there: in a directory with the sticky bit
  // it takes more than the right to write.
  Status check_removal(const struct stat& status) const;
  // Renames `from` to the place. What is there is replaced, where they may remove it and `existing`
  // says so; what somebody makes there meanwhile is looked at too. `what`: for errors, of which
  // EEXIST is one.
  enum class Existing : std::uint8_t { kReplace, kKeep };
  Status take_name(int from_directory, const char* from, Existing existing,
                   const std::string& what) const;
  // Whether they may remove whatever that directory, in or below the place, has in it.
  Status check_emptying(const struct stat& directory) const;
  // Whether that file may be given to somebody else: it is reached by one name alone, and through
  // nobody's links but its owner's.
  bool may_give(const struct stat& status) const;

  // Regular files alone, without waiting.
  Result<Fd> open_regular(int flags, mode_t mode = 0) const;

 private:
  explicit Place(std::string path) : path_(path), name_(std::move(path)) {}
  Status walk(Missing missing, const Owner& owner, Last last);
  Status enter(const std::string& name, Missing missing, const Owner& owner);
  Status follow(const std::string& name, const struct stat& link);
  Status check(const struct stat& status, mode_t for_all) const;
  std::unexpected<Error> refuse(uid_t planter) const;

  std::string path_, name_;
  bool guarded_ = false;
  Fd directory_;
  std::vector<std::string> left_;  // of the walk, the next one last
  std::vector<uid_t> planters_;    // of the links that were followed, but root
};

}  // namespace caisson::guest
