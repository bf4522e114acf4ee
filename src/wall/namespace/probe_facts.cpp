#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <memory>

#include "base/sys.h"
#include "wall/namespace/probe.h"

namespace caisson::wall {
namespace {

constexpr std::size_t kFileLimit = 1u << 20;

// The file's contents, or nothing.
std::string read_or_empty(const std::string& path) {
  Result<std::string> text = sys::read_file(AT_FDCWD, path, kFileLimit);
  return text.has_value() ? std::move(*text) : std::string();
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  T value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_executable(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         (status.st_mode & 0111) != 0;
}

// newuidmap and newgidmap work through the setuid bit or through file capabilities.
bool is_privileged_helper(const std::string& path) {
  struct stat status;
  if (!is_executable(path) || stat(path.c_str(), &status) != 0) return false;
  return (status.st_mode & S_ISUID) != 0 ||
         getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

void read_status(const std::string& root, HostFacts& facts) {
  std::string text = read_or_empty(root + "/proc/self/status");
  for (std::string_view line : split(text, '\n')) {
    std::vector<std::string_view> words = split(line, '\t');
    // Uid: real, effective, saved, filesystem
    if (words[0] == "Uid:" && words.size() >= 3)
      facts.uid = parse_number<uid_t>(words[2]).value_or(facts.uid);
    if (words[0] == "Seccomp:" && words.size() >= 2) facts.filtered = words[1] == "2";
  }
}

std::string user_name(const std::string& root, uid_t uid) {
  std::string text = read_or_empty(root + "/etc/passwd");
  for (std::string_view line : split(text, '\n')) {
    std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() >= 3 && parse_number<uid_t>(fields[2]) == uid) return std::string(fields[0]);
  }
  return "";
}

// Lines `NAME:START:COUNT`, where NAME may be the number.
std::uint64_t largest_range(const std::string& path, const HostFacts& facts) {
  std::string text = read_or_empty(path);
  std::uint64_t largest = 0;
  for (std::string_view line : split(text, '\n')) {
    std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() != 3) continue;
    bool ours = (!facts.user.empty() && fields[0] == facts.user) ||
                parse_number<uid_t>(fields[0]) == facts.uid;
    if (ours) largest = std::max(largest, parse_number<std::uint64_t>(fields[2]).value_or(0));
  }
  return largest;
}

// Whether a group below the v2 mount has cgroup.kill.
std::optional<bool> finds_cgroup_kill(const std::string& mount) {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(mount.c_str()), closedir);
  if (!folder) return std::nullopt;
  if (access((mount + "/cgroup.kill").c_str(), F_OK) == 0) return true;
  while (dirent* entry = readdir(folder.get())) {
    const std::string group = mount + "/" + entry->d_name;
    if (entry->d_name[0] == '.' || access((group + "/cgroup.procs").c_str(), F_OK) != 0) continue;
    return access((group + "/cgroup.kill").c_str(), F_OK) == 0;
  }
  return std::nullopt;
}

// The host's own namespace maps every id: "0 0 4294967295".
bool maps_all_ids(const std::string& root) {
  std::string text = read_or_empty(root + "/proc/self/uid_map");
  return text.empty() || text.find("4294967295") != std::string::npos;
}

// Lines `id parent dev root MOUNTPOINT options … - TYPE source options`.
void read_mounts(const std::string& root, HostFacts& facts) {
  std::string text = read_or_empty(root + "/proc/self/mountinfo");
  for (std::string_view line : split(text, '\n')) {
    std::size_t separator = line.find(" - ");
    if (separator == std::string_view::npos) continue;
    std::vector<std::string_view> left = split(line.substr(0, separator), ' ');
    std::string_view type = split(line.substr(separator + 3), ' ')[0];
    if (left.size() < 5) continue;
    std::string_view point = left[4];
    if (type == "cgroup") facts.cgroup1_mounted = true;
    if (type == "cgroup2") {
      facts.cgroup2_mounted = true;
      facts.cgroup_kill = finds_cgroup_kill(root + std::string(point));
    }
    // binfmt_misc is where a host mounts it itself.
    if (point.starts_with("/proc/") && !point.starts_with("/proc/sys/fs/binfmt_misc"))
      facts.masked_proc.emplace_back(point);
  }
}

void read_filesystems(const std::string& root, HostFacts& facts) {
  std::string text = read_or_empty(root + "/proc/filesystems");
  for (std::string_view line : split(text, '\n')) {
    std::string_view name = split(line, '\t').back();
    if (name == "overlay") facts.has_overlay = true;
    if (name == "erofs") facts.has_erofs = true;
  }
}

std::string find_on_path(const std::string& root, const std::string& name) {
  const char* path = std::getenv("PATH");
  for (std::string_view folder : split(path ? path : "/usr/bin:/bin", ':')) {
    if (folder.empty() || folder[0] != '/') continue;
    std::string candidate = root + std::string(folder) + "/" + name;
    if (is_executable(candidate)) return candidate;
  }
  return "";
}

}  // namespace

HostFacts read_host_facts(const std::string& root_path) {
  // "/" and "/fake/" alike: names below begin with a slash.
  std::string root = root_path;
  while (!root.empty() && root.back() == '/') root.pop_back();
  HostFacts facts;
  facts.uid = geteuid();
  read_status(root, facts);
  facts.user = user_name(root, facts.uid);
  facts.release = read_or_empty(root + "/proc/sys/kernel/osrelease");
  while (!facts.release.empty() && facts.release.back() == '\n') facts.release.pop_back();
  auto sysctl = [&root](const char* name) {
    return parse_number<std::int64_t>(read_or_empty(root + "/proc/sys/" + name));
  };
  facts.apparmor_restrict_userns = sysctl("kernel/apparmor_restrict_unprivileged_userns");
  facts.unprivileged_userns_clone = sysctl("kernel/unprivileged_userns_clone");
  facts.max_user_namespaces = sysctl("user/max_user_namespaces");
  facts.whole_id_map = maps_all_ids(root);
  facts.subuid_count = largest_range(root + "/etc/subuid", facts);
  facts.subgid_count = largest_range(root + "/etc/subgid", facts);
  facts.has_newuidmap = is_privileged_helper(root + "/usr/bin/newuidmap");
  facts.has_newgidmap = is_privileged_helper(root + "/usr/bin/newgidmap");
  read_mounts(root, facts);
  read_filesystems(root, facts);
  facts.has_kvm = access((root + "/dev/kvm").c_str(), F_OK) == 0;
  facts.runsc = find_on_path(root, "runsc");
  return facts;
}

}  // namespace caisson::wall
