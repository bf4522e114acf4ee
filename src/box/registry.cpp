#include "box/registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/paths.h"
#include "base/sys.h"
#include "box/result_json.h"
#include "launcher/registry.h"
#include "wall/namespace/namespace_wall.h"

namespace caisson::box {
namespace {

constexpr std::size_t kMostInfo = 16 * 1024;

std::string folder_path() {
  return run_directory() + "/sandboxes";
}

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= 32 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
}

std::vector<std::string> registered_ids() {
  std::vector<std::string> ids;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder_path().c_str()), ::closedir);
  if (directory == nullptr) return ids;
  // In a place that others can write too (/tmp) somebody else may have made it.
  struct stat facts{};
  if (::fstat(::dirfd(directory.get()), &facts) != 0 || facts.st_uid != ::geteuid()) return ids;
  while (const dirent* entry = ::readdir(directory.get()))
    if (is_id(entry->d_name)) ids.emplace_back(entry->d_name);
  std::ranges::sort(ids);
  return ids;
}

// Connected where somebody listens; `flags` are SOCK_NONBLOCK or none.
Result<Fd> connect_to(const std::string& id, int flags) {
  // By way of a descriptor: sun_path has room for 107 bytes only.
  const Fd folder(
      ::open((folder_path() + "/" + id).c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return fail_errno("sandbox " + id);
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!socket.valid()) return fail_errno("socket");
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = "/proc/self/fd/" + std::to_string(folder.get()) + "/socket";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("connect to sandbox " + id);
  return socket;
}

Result<SandboxInfo> read_info(const std::string& id) {
  const Fd folder(
      ::open((folder_path() + "/" + id).c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return fail_errno("sandbox " + id);
  TRY_ASSIGN(const std::string text, sys::read_file(folder.get(), "info", kMostInfo));
  TRY_ASSIGN(SandboxInfo info, parse_info(text));
  // What has changed since it was made.
  TRY_ASSIGN(const auto state, launcher::read_state(folder.get()));
  if (!state.has_value()) return info;
  if (info.life == Life::kKept) {
    info.deadline_ms.reset();
    if (state->deadline_ms != 0) info.deadline_ms = static_cast<std::int64_t>(state->deadline_ms);
  }
  info.paused = state->frozen == launcher::Frozen::kYes;
  return info;
}

}  // namespace

void sweep_dead() {
  const Fd run(::open(run_directory().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts = {};
  // Somebody else's directory says nothing that we may act on.
  if (!run.valid() || ::fstat(run.get(), &facts) != 0 || facts.st_uid != ::geteuid() ||
      (facts.st_mode & 022) != 0)
    return;
  const auto wall = wall::make_namespace_wall();
  static_cast<void>(launcher::sweep(run.get(), *wall, launcher::Looks::kAll));
}

Result<RegisteredSandbox> connect_registered(const std::string& id) {
  if (!is_id(id))
    return fail(Error::invalid("'" + id + "' is not a sandbox id: one has 1 to 32 letters a to z " +
                               "and digits; 'caisson ps' lists them"));
  const std::vector<std::string> ids = registered_ids();
  std::vector<std::string> matches;
  for (const std::string& candidate : ids) {
    if (candidate == id) matches = {candidate};
    if (candidate == id) break;
    if (candidate.starts_with(id)) matches.push_back(candidate);
  }
  if (matches.size() > 1)
    return fail(Error::invalid("'" + id + "' begins the ids of " + std::to_string(matches.size()) +
                               " sandboxes; give more of it"));
  const auto gone = [&] {
    return fail(Error::not_found("there is no sandbox '" + id +
                                 "'; 'caisson ps' lists those that " + "run"));
  };
  if (matches.empty()) return gone();
  auto socket = connect_to(matches[0], 0);
  if (!socket.has_value()) return gone();
  auto info = read_info(matches[0]);
  if (!info.has_value()) return gone();
  return RegisteredSandbox{.info = std::move(*info), .socket = std::move(*socket)};
}

Result<Fd> connect_socket(const std::string& id) {
  if (!is_id(id)) return fail(Error::invalid("'" + id + "' is not a sandbox id"));
  auto socket = connect_to(id, SOCK_NONBLOCK);
  if (socket.has_value()) return socket;
  const int error_number = socket.error().error_number();
  if (error_number == ENOENT || error_number == ECONNREFUSED)
    return fail(Error::not_found("there is no sandbox '" + id + "'"));
  return fail(Error::unavailable(socket.error().message()));
}

Result<std::vector<SandboxInfo>> list_registered() {
  std::vector<SandboxInfo> list;
  for (const std::string& id : registered_ids()) {
    auto info = read_info(id);
    if (info.has_value() && connect_to(id, 0).has_value()) list.push_back(std::move(*info));
  }
  std::ranges::sort(list, {}, &SandboxInfo::created_ms);
  return list;
}

}  // namespace caisson::box
