// Watches of directories that clients come back to: they ask now and then for what has happened
// since (the form of those who cannot read a stream).
//
// A watch is a stream of the guest's whose events wait in it until they are asked for, within the
// bound of a BoxStream. It ends with its sandbox, or when its client removes it. Belongs to the
// loop.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/proto.h"
#include "fleet/fleet.h"

namespace caisson::api::e2b {

// Whether clients want an EntryInfo with what was created or changed.
enum class Entries : std::uint8_t { kLeaveOut, kInclude };

// FilesystemEvents (messages.h) of one EVENT of a watch: none, one, or two of a rename, which is
// told as what left and what came. What came has its entry only where the EVENT says enough of it.
// Error: resource_exhausted where the guest missed something.
Result<std::vector<json::Value>> watched_changes(const proto::FieldReader& event, Entries entries);

struct Watcher {
  std::weak_ptr<fleet::Served> sandbox;
  std::unique_ptr<fleet::BoxStream> stream;
  Entries entries = Entries::kLeaveOut;
};

class Watchers {
 public:
  static constexpr std::size_t kMostEach = 64;  // of one sandbox

  // Error: resource_exhausted with kMostEach of that sandbox already.
  Status check_room(const std::shared_ptr<fleet::Served>& sandbox);
  std::string add(Watcher watcher);
  // Of that sandbox; nullptr: there is none of that name.
  std::shared_ptr<Watcher> find(const fleet::Served& sandbox, std::string_view id);
  void remove(std::string_view id);
  std::size_t size() const { return all_.size(); }

 private:
  // Those whose sandbox has ended.
  void forget_ended();

  std::map<std::string, std::shared_ptr<Watcher>, std::less<>> all_;
};

}  // namespace caisson::api::e2b
