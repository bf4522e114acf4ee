#include "wall/namespace/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/sys.h"

namespace caisson::wall {
namespace {

// More processes than any limit of ours lets live; beyond it the picture is cut, not the loop.
constexpr std::size_t kMaxProcesses = 1 << 16;

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t start = text.find_first_not_of(" \n\t", at);
    if (start == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \n\t", start), text.size());
    words.push_back(text.substr(start, end - start));
    at = end;
  }
  return words;
}

std::uint64_t number_of(std::string_view text) {
  std::uint64_t value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The children of every thread of a process.
void add_children(const std::string& folder, std::vector<int>& pids) {
  const std::string tasks = folder + "/task";
  DIR* directory = ::opendir(tasks.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    const auto children =
        sys::read_file(AT_FDCWD, tasks + "/" + entry->d_name + "/children", 1 << 20);
    if (!children) continue;
    for (const std::string_view word : words_of(*children))
      pids.push_back(static_cast<int>(number_of(word)));
  }
  ::closedir(directory);
}

// Proportional memory where the kernel tells it, else resident.
std::uint64_t memory_of(const std::string& folder) {
  if (const auto rollup = sys::read_file(AT_FDCWD, folder + "/smaps_rollup", 8192)) {
    const std::size_t at = rollup->find("\nPss:");
    if (at != std::string::npos)
      return number_of(words_of(std::string_view(*rollup).substr(at + 5)).front()) * 1024;
  }
  const auto statm = sys::read_file(AT_FDCWD, folder + "/statm", 256);
  if (!statm) return 0;
  const auto words = words_of(*statm);
  return words.size() < 2
             ? 0
             : number_of(words[1]) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Status watch_processes(int guest_pid, std::uint64_t memory_limit, std::uint64_t pids_limit,
                       Usage& usage) {
  const auto tick_us = static_cast<std::uint64_t>(1'000'000 / ::sysconf(_SC_CLK_TCK));
  std::vector<int> pids;
  add_children("/proc/" + std::to_string(guest_pid), pids);
  std::uint64_t memory = 0, threads = 0, user = 0, system = 0;
  for (std::size_t i = 0; i < pids.size() && i < kMaxProcesses; ++i) {
    const std::string folder = "/proc/" + std::to_string(pids[i]);
    const auto stat = sys::read_file(AT_FDCWD, folder + "/stat", 4096);
    if (!stat) continue;  // gone already
    // The name may hold spaces and brackets; fields count from the last bracket.
    const std::size_t bracket = stat->rfind(')');
    if (bracket == std::string::npos) continue;
    const auto words = words_of(std::string_view(*stat).substr(bracket + 1));
    if (words.size() < 18) continue;
    user += number_of(words[11]) * tick_us;
    system += number_of(words[12]) * tick_us;
    threads += number_of(words[17]);
    memory += memory_of(folder);
    add_children(folder, pids);
  }
  usage.user_us += user;
  usage.system_us += system;
  usage.memory_now += memory;
  usage.pids_now += threads;
  if (memory_limit != 0 && memory + usage.disk_bytes > memory_limit) ++usage.memory_kills;
  if (pids_limit != 0 && threads >= pids_limit) ++usage.pids_refusals;
  return {};
}

}  // namespace caisson::wall
