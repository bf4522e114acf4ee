// The words of a spec's enumerations, in one table each, and the limits' rules: what validation,
// documents, flags and the launch plan's reader share. Constants alone.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "policy/spec.h"

namespace caisson::policy {

// Indexed by the enumerator's value.
inline constexpr std::array<std::string_view, 4> kWallNames = {"auto", "namespace", "gvisor",
                                                               "microvm"};
inline constexpr std::array<std::string_view, 2> kPrivilegesNames = {"none", "sudo"};
inline constexpr std::array<std::string_view, 3> kProfileNames = {"default", "browser", "debug"};
inline constexpr std::array<std::string_view, 2> kOnRefusalNames = {"continue", "kill"};
inline constexpr std::array<std::string_view, 2> kLayerNames = {"tmpfs", "quota"};
inline constexpr std::array<std::string_view, 3> kGrantModeNames = {"ro", "rw", "copy"};
inline constexpr std::array<std::string_view, 2> kNetworkDefaultNames = {"deny", "allow-public"};
inline constexpr std::array<std::string_view, 3> kAuditSyncNames = {"none", "interval", "each"};
inline constexpr std::array<std::string_view, 2> kFloorNames = {"liftable", "fixed"};
inline constexpr std::array<std::string_view, 2> kRuleActionNames = {"allow", "deny"};
inline constexpr std::array<std::string_view, 2> kRuleProtocolNames = {"http", "tcp"};
inline constexpr std::array<std::string_view, 3> kTlsModeNames = {"splice", "plaintext", "inspect"};
inline constexpr std::array<std::string_view, 3> kUnmatchedNameNames = {"synthetic", "nodata",
                                                                        "refused"};
inline constexpr std::array<std::string_view, 2> kEmulationNames = {"deny", "allow"};

constexpr std::string_view to_string(WallKind v) {
  return kWallNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(Privileges v) {
  return kPrivilegesNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(SyscallProfile v) {
  return kProfileNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(OnRefusal v) {
  return kOnRefusalNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(LayerKind v) {
  return kLayerNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(GrantMode v) {
  return kGrantModeNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(NetworkDefault v) {
  return kNetworkDefaultNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(Floor v) {
  return kFloorNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(RuleAction v) {
  return kRuleActionNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(RuleProtocol v) {
  return kRuleProtocolNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(TlsMode v) {
  return kTlsModeNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(AuditSync v) {
  return kAuditSyncNames[static_cast<size_t>(v)];
}
constexpr std::string_view to_string(UnmatchedName v) {
  return kUnmatchedNameNames[static_cast<size_t>(v)];
}

template <std::size_t N>
constexpr std::optional<std::size_t> index_of(const std::array<std::string_view, N>& names,
                                              std::string_view word) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == word) return i;
  }
  return std::nullopt;
}

}  // namespace caisson::policy
