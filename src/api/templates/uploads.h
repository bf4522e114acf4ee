// Files that clients send for the builds of a template: one archive for each COPY, kept under the
// hash that the client gives it, for later builds of the same template too.
//
// FOLDER/TEAM/TEMPLATE/HASH. Nobody looks into them here: whoever unpacks one is confined. The
// files of each team are bounded, by bytes and by number, and all of them together: those go that
// were used longest ago, first of a team that has more than a team may, then of the team that has
// the most, so that no team pushes out what another one sent that has less.
//
// An upload looks at its own team's files alone, while what the others have is remembered; only
// where all together is too much are all looked at, and then some room is made for the next ones
// too. Thread-safe, for the loop's pool: every call blocks. Copies share what is remembered; beyond
// that the file system is all the state that there is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/templates.h"

namespace caisson::api {

class Uploads {
 public:
  struct Limits {
    std::uint64_t file = 1ull << 30;
    std::uint64_t team = 16ull << 30;
    std::uint64_t total = 64ull << 30;
    std::size_t team_files = 4096;
  };
  // However small a file is, it counts as so many bytes: it takes a block and an inode.
  static constexpr std::uint64_t kLeastCounted = 4096;
  // Whose they are: the ids of a team and of its template.
  struct Owner {
    std::string team, id;
    bool operator==(const Owner&) const = default;
  };
  Uploads(std::string folder, Limits limits)
      : folder_(std::move(folder)), limits_(limits), sums_(std::make_shared<Sums>()) {}

  // Makes the folder; what an earlier server was being sent is removed, and what a version kept
  // that did not know of teams.
  Status prepare() const;
  // The path of the files, if they are there; counts as use.
  std::optional<std::string> find(const Owner& owner, const std::string& hash) const;
  // `hash`: 64 hexadecimal digits.
  Result<std::unique_ptr<Upload>> begin(const Owner& owner, const std::string& hash) const;
  // All of the template's, and what it is being sent.
  void forget(const Owner& owner) const;
  // Whoever has files here.
  std::vector<Owner> owners() const;
  // Removes what is too much, where `team` has files that are new.
  void trim(const std::string& team) const;

 private:
  // What each team's files count, as they were last looked at.
  struct Sums {
    std::mutex mutex;
    std::map<std::string, std::uint64_t> by_team;
    std::uint64_t total = 0;
    void set(const std::string& team, std::uint64_t sum);
  };
  void trim_all() const;
  void count_again(const std::string& team) const;
  std::string path_of(const Owner& owner) const {
    return folder_ + "/" + owner.team + "/" + owner.id;
  }

  std::string folder_;
  Limits limits_;
  std::shared_ptr<Sums> sums_;
};

}  // namespace caisson::api
