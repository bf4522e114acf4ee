#include "image/ids.h"

#include <unistd.h>

#include <charconv>

#include "image/files.h"

namespace caisson::image {
namespace {

std::optional<std::uint32_t> parse_id(std::string_view text) {
  std::uint32_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string_view cut(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view first = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return first;
}

// The account's name, from /etc/passwd itself: a static program cannot load the name services.
std::string account_name(std::uint32_t uid) {
  auto passwd = read_small_file("/etc/passwd");
  if (!passwd.has_value()) return {};
  for (std::string_view rest = *passwd; !rest.empty();) {
    std::string_view line = cut(rest, '\n');
    const std::string_view name = cut(line, ':');
    cut(line, ':');
    if (parse_id(cut(line, ':')) == uid) return std::string(name);
  }
  return {};
}

}  // namespace

std::string_view to_string(IdLayout layout) {
  switch (layout) {
    case IdLayout::kShifted:
      return "shifted";
    case IdLayout::kSubuid:
      return "subuid";
    case IdLayout::kSingle:
      break;
  }
  return "single";
}

std::optional<IdLayout> parse_id_layout(std::string_view text) {
  for (IdLayout layout : {IdLayout::kShifted, IdLayout::kSubuid, IdLayout::kSingle}) {
    if (text == to_string(layout)) return layout;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> find_range(std::string_view text, std::string_view name,
                                        std::uint32_t uid) {
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = cut(rest, '\n');
    const std::string_view owner = cut(line, ':');
    const std::optional<std::uint32_t> start = parse_id(cut(line, ':'));
    const std::optional<std::uint32_t> count = parse_id(line);
    const bool ours = (!name.empty() && owner == name) || parse_id(owner) == uid;
    if (ours && start && count && *count >= kImageIds && *start > 0 &&
        *start <= UINT32_MAX - *count) {
      return start;
    }
  }
  return std::nullopt;
}

std::string id_map_helper(bool groups) {
  for (const char* directory : {"/usr/bin/", "/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/"}) {
    std::string path = std::string(directory) + (groups ? "newgidmap" : "newuidmap");
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

IdMapping mapping_of_caller() {
  IdMapping mapping;
  mapping.own_uid = geteuid();
  mapping.own_gid = getegid();
  if (mapping.own_uid == 0) {
    mapping.own_gid = 0;  // whatever group root happens to be in
    mapping.layout = IdLayout::kShifted;
    mapping.uid_base = mapping.gid_base = kImageIdBase;
    return mapping;
  }
  mapping.uid_base = mapping.own_uid;
  mapping.gid_base = mapping.own_gid;
  if (id_map_helper(false).empty() || id_map_helper(true).empty()) return mapping;
  auto subuid = read_small_file("/etc/subuid");
  auto subgid = read_small_file("/etc/subgid");
  if (!subuid.has_value() || !subgid.has_value()) return mapping;
  const std::string name = account_name(mapping.own_uid);
  auto uids = find_range(*subuid, name, mapping.own_uid);
  auto gids = find_range(*subgid, name, mapping.own_uid);
  if (!uids || !gids) return mapping;
  mapping.layout = IdLayout::kSubuid;
  mapping.uid_base = *uids;
  mapping.gid_base = *gids;
  return mapping;
}

std::string map_lines(const IdMapping& mapping, bool groups) {
  const std::uint32_t base = groups ? mapping.gid_base : mapping.uid_base;
  const std::uint32_t own = groups ? mapping.own_gid : mapping.own_uid;
  auto line = [](std::uint32_t inside, std::uint32_t outside, std::uint32_t count) {
    return std::to_string(inside) + " " + std::to_string(outside) + " " + std::to_string(count) +
           "\n";
  };
  switch (mapping.layout) {
    case IdLayout::kShifted:
      return line(0, base, kImageIds);
    case IdLayout::kSubuid:
      return line(0, base, kUserId) + line(kUserId, own, 1) +
             line(kUserId + 1, base + kUserId + 1, kImageIds - kUserId - 1);
    case IdLayout::kSingle:
      break;
  }
  return line(0, own, 1);
}

}  // namespace caisson::image
