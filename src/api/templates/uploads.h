// Files that clients send for the builds of a template: one archive for each COPY, kept under the
// hash that the client gives it, for later builds of the same template too.
//
// FOLDER/TEMPLATE/HASH. Nobody looks into them here: whoever unpacks one is confined. All files
// together are bounded; where they are more, those go that were used longest ago. Thread-safe, for
// the loop's pool: every call blocks, and the file system is all the state that there is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/templates.h"

namespace caisson::api {

class Uploads {
 public:
  struct Limits {
    std::uint64_t file = 1ull << 30;
    std::uint64_t total = 16ull << 30;
  };
  Uploads(std::string folder, Limits limits) : folder_(std::move(folder)), limits_(limits) {}

  // Makes the folder; what an earlier server was being sent is removed.
  Status prepare() const;
  // The path of the files, if they are there; counts as use.
  std::optional<std::string> find(const std::string& id, const std::string& hash) const;
  // `id` is a template's, `hash` 64 hexadecimal digits.
  Result<std::unique_ptr<Upload>> begin(const std::string& id, const std::string& hash) const;
  // All of the template's.
  void forget(const std::string& id) const;
  // Removes what was used longest ago until the rest is no more than `limits.total`.
  void trim() const;

 private:
  std::string folder_;
  Limits limits_;
};

}  // namespace caisson::api
