// Freezing a sandbox's commands, on v2 and on v1.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/sys.h"
#include "wall/namespace/cgroup.h"
#include "wall/namespace/split.h"

namespace caisson::wall {
namespace {

constexpr std::size_t kMaxMembers = 1 << 20;
constexpr int kLookMs = 1;
// More than stopping takes where nothing is in its way.
constexpr std::uint64_t kStuckUs = 20'000;

// The commands' groups below a v2 group: x and a number each.
std::vector<std::string> slots_of(const std::string& path) {
  std::vector<std::string> slots;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return slots;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_type == DT_DIR && entry->d_name[0] == 'x')
      slots.push_back(path + "/" + entry->d_name);
  }
  ::closedir(directory);
  return slots;
}

bool file_has(const std::string& path, std::string_view line) {
  const auto contents = sys::read_file(AT_FDCWD, path, 4096);
  if (!contents) return false;
  const auto lines = split(*contents, '\n');
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

// Looks until it holds; false at the deadline.
bool wait_until(std::uint64_t deadline_us, const auto& holds) {
  while (!holds()) {
    if (sys::monotonic_us() >= deadline_us) return false;
    ::poll(nullptr, 0, kLookMs);
  }
  return true;
}

Error not_in_time() {
  return Error(Code::kDeadlineExceeded,
               "not everything in the sandbox could be stopped in time; it goes on");
}

Status freeze_slots(const std::string& path, std::uint64_t deadline_us) {
  const std::vector<std::string> slots = slots_of(path);
  for (const std::string& slot : slots) {
    // One that is removed meanwhile has nothing to hold.
    const auto written = sys::write_file(AT_FDCWD, slot + "/cgroup.freeze", "1");
    if (!written && written.error().error_number() != ENOENT &&
        written.error().error_number() != ENODEV)
      return written;
  }
  const bool frozen = wait_until(deadline_us, [&] {
    return std::ranges::all_of(slots, [](const std::string& slot) {
      struct stat facts{};
      return file_has(slot + "/cgroup.events", "frozen 1") || ::stat(slot.c_str(), &facts) != 0;
    });
  });
  if (!frozen) return fail(not_in_time());
  return {};
}

}  // namespace

Status CgroupTree::freeze(const CgroupPlace& freezer, const Plan& plan, int patience_ms) {
  const std::uint64_t deadline =
      sys::monotonic_us() + static_cast<std::uint64_t>(patience_ms) * 1000;
  const auto unified =
      std::find_if(groups_.begin(), groups_.end(), [](const Group& group) { return group.v2; });
  if (unified != groups_.end()) {
    auto frozen = freeze_slots(unified->path, deadline);
    if (!frozen) (void)thaw();
    return frozen;
  }
  if (groups_.empty() || freezer.path.empty())
    return fail(Error::precondition(
        "no control group can hold this sandbox's processes here: pausing needs cgroup v2, or "
        "the freezer of version 1, and the right to make groups in it"));
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [](const Group& group) { return group.freezes; });
  if (found == groups_.end()) {
    const std::string path = freezer.path + "/caisson-" + plan.id;
    if (::mkdir(path.c_str(), 0700) != 0) return fail_errno("mkdir " + path);
    groups_.push_back({.path = path, .freezes = true});
  }
  const Group& group = found == groups_.end() ? groups_.back() : *found;
  auto frozen = gather(group, deadline);
  if (!frozen) (void)thaw();
  return frozen;
}

// The group is frozen first, so that whoever is brought into it stops and starts nothing more.
Status CgroupTree::gather(const Group& freezer, std::uint64_t deadline_us) const {
  TRY(sys::write_file(AT_FDCWD, freezer.path + "/freezer.state", "FROZEN"));
  const auto bring_in = [&] {
    const auto members = sys::read_file(AT_FDCWD, freezer.path + "/tasks", kMaxMembers);
    if (!members) return false;
    std::vector<std::string_view> inside = split(*members, '\n');
    std::ranges::sort(inside);
    bool complete = true;
    for (const Group& group : groups_) {
      if (group.freezes) continue;
      std::vector<std::string> folders = slots_of(group.path);
      folders.push_back(group.path);
      for (const std::string& folder : folders) {
        const auto tasks = sys::read_file(AT_FDCWD, folder + "/tasks", kMaxMembers);
        if (!tasks) continue;
        for (const std::string_view task : split(*tasks, '\n')) {
          if (std::ranges::binary_search(inside, task)) continue;
          // One that has ended meanwhile is looked for once more, and is not there.
          (void)sys::write_file(AT_FDCWD, freezer.path + "/tasks", std::string(task));
          complete = false;
        }
      }
    }
    return complete;
  };
  // Whoever waits for its vfork(2) child cannot be stopped, and the child, which has been, never
  // gets to its exec: both are let go on for a moment, and stopped again.
  std::uint64_t try_again_us = sys::monotonic_us() + kStuckUs;
  const bool frozen = wait_until(deadline_us, [&] {
    if (bring_in() && file_has(freezer.path + "/freezer.state", "FROZEN")) return true;
    if (sys::monotonic_us() < try_again_us) return false;
    (void)sys::write_file(AT_FDCWD, freezer.path + "/freezer.state", "THAWED");
    ::poll(nullptr, 0, kLookMs);
    (void)sys::write_file(AT_FDCWD, freezer.path + "/freezer.state", "FROZEN");
    try_again_us = sys::monotonic_us() + kStuckUs;
    return false;
  });
  if (!frozen) return fail(not_in_time());
  return {};
}

void CgroupTree::thaw_freezers() const {
  for (const Group& group : groups_) {
    // Of a tree of a journal nobody knows which group it is.
    if (group.freezes) (void)sys::write_file(AT_FDCWD, group.path + "/freezer.state", "THAWED");
  }
}

Status CgroupTree::thaw() const {
  thaw_freezers();
  Status thawed;
  for (const Group& group : groups_) {
    for (const std::string& slot : slots_of(group.path)) {
      const auto written = sys::write_file(AT_FDCWD, slot + "/cgroup.freeze", "0");
      const int why = written ? 0 : written.error().error_number();
      if (why != 0 && why != ENOENT && why != ENODEV) thawed = written;
    }
  }
  return thawed;
}

}  // namespace caisson::wall
