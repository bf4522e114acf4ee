// How an image's user and group ids (0 to 65535) are stored on this host's disk.
//
// shifted  as root: image id k is kImageIdBase + k on disk. No file of any image ever belongs to an
//          account of this host, and a set-uid-root file in an image is nobody's on the host; the
//          wall's idmapped mount takes the shift away again.
// subuid   an ordinary user with a range of subordinate ids: k is start + k, but the image's id
// 1000,
//          whose files the command must own, is the user.
// single   an ordinary user without a range: every file belongs to the user.
//
// The worker gets the mapping as the id map of its user namespace, so it never holds a right over
// any other id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::image {

inline constexpr std::uint32_t kImageIds = 65536;
inline constexpr std::uint32_t kImageIdBase = 0x7ffd0000;
inline constexpr std::uint32_t kUserId = 1000;  // the image's ordinary user

enum class IdLayout { kShifted, kSubuid, kSingle };
std::string_view to_string(IdLayout layout);
std::optional<IdLayout> parse_id_layout(std::string_view text);

struct IdMapping {
  IdLayout layout = IdLayout::kSingle;
  // On-disk id of the image's uid 0 and gid 0: kImageIdBase, the ranges' starts, or the caller's
  // own.
  std::uint32_t uid_base = 0, gid_base = 0;
  // The caller's own ids.
  std::uint32_t own_uid = 0, own_gid = 0;
  bool operator==(const IdMapping&) const = default;
};

// What this process would use: shifted as root, else subuid where /etc/subuid and /etc/subgid have
// a range of 65536 and newuidmap and newgidmap are installed, else single.
IdMapping mapping_of_caller();

// The lines of uid_map or gid_map: "inside outside count", each ended by a newline.
std::string map_lines(const IdMapping& mapping, bool groups);

// The first range of at least kImageIds that `text` (of /etc/subuid or /etc/subgid) gives to the
// account `name` or the number `uid`; nullopt when there is none. Malformed lines count as absent.
std::optional<std::uint32_t> find_range(std::string_view text, std::string_view name,
                                        std::uint32_t uid);

// The full path of newuidmap or newgidmap, empty where it is not installed.
std::string id_map_helper(bool groups);

}  // namespace caisson::image
