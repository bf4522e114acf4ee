// COPY and ADD into a running sandbox: Docker's rules of what goes where, done through the guest's
// file operations, so that every path and link of the destination is resolved inside.
//
// A file goes to the destination, or into it where that is a directory or ends with '/'; of a
// directory the contents go into the destination. What is there is merged with and replaced: a file
// takes the place of a file or link, a directory keeps what it has. Missing directories above are
// made. Everything belongs to `owner`, or to whom it belongs in the source.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "box/file_client.h"
#include "build/source.h"

namespace caisson::build {

struct Owner {
  std::uint32_t uid = 0, gid = 0;
  bool operator==(const Owner&) const = default;
};

struct CopyPlace {
  std::string destination;      // absolute
  bool into_directory = false;  // it is a directory, there or not
  std::optional<Owner> owner;
  std::optional<std::uint32_t> mode;
};

class Copier {
 public:
  // As root of the sandbox with sudo's rights. Both are borrowed.
  Copier(box::FileClient& files, const CopyPlace& place) : files_(files), place_(place) {}

  // Error: what stands in the way inside; aborted where a file is not any more what its digest
  // says.
  Status copy(const Source& source, const std::vector<SourceTree>& trees);
  // A file of these contents.
  Status write(const std::string& name, std::string_view text, bool several);
  // Waits for everything; directories get their times.
  Status finish();

 private:
  struct Attributes {
    std::string path;
    Owner owner;
    std::uint32_t mode = 0;
    bool link = false;
  };
  Result<bool> into_directory(bool several);
  Status make_parents(const std::string& path);
  Status one(const Source& source, const SourceTree& tree, const SourceEntry& entry,
             const std::string& path, bool top);
  Status make_directory(const SourceEntry& entry, const std::string& path, bool top);
  Status put_file(const std::string& path, const SourceEntry& entry,
                  const box::FileClient::Source& bytes);
  Attributes attributes(const SourceEntry& entry, const std::string& path) const;
  Status later(Attributes attributes);
  // Owners and modes of what was made so far.
  Status apply();

  box::FileClient& files_;
  const CopyPlace& place_;
  std::vector<Attributes> pending_;
  std::vector<std::pair<std::string, std::uint64_t>> times_;
};

// The directory and those above it that are missing, the new ones belonging to `owner`.
Status ensure_directory(box::FileClient& files, const std::string& path, const Owner& owner);

// USER[:GROUP], names or numbers, by the /etc/passwd and /etc/group of the sandbox. Error:
// invalid, with the name that is not there.
Result<Owner> find_owner(box::FileClient& files, const std::string& text);
// The pure part.
Result<Owner> find_owner_in(std::string_view passwd, std::string_view group,
                            const std::string& text);

}  // namespace caisson::build
