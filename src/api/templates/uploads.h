// Files that clients send for the builds of a template: one archive for each COPY, kept under the
// hash that the client gives it, for later builds of the same template too.
//
// FOLDER/TEAM/TEMPLATE/HASH. Nobody looks into them here: whoever unpacks one is confined. The
// files of each team are bounded, and all of them together: those go that were used longest ago,
// first of a team that has more than a team may, then of the team that has the most, so that no
// team pushes out what another one sent that has less. Thread-safe, for the loop's pool: every call
// blocks, and the file system is all the state that there is.
#pragma once

#include <cstdint>
#include <memory>
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
  };
  // Whose they are: the ids of a team and of its template.
  struct Owner {
    std::string team, id;
    bool operator==(const Owner&) const = default;
  };
  Uploads(std::string folder, Limits limits) : folder_(std::move(folder)), limits_(limits) {}

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
  // Removes what is too much.
  void trim() const;

 private:
  std::string path_of(const Owner& owner) const {
    return folder_ + "/" + owner.team + "/" + owner.id;
  }

  std::string folder_;
  Limits limits_;
};

}  // namespace caisson::api
