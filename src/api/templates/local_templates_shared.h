// What the files of LocalTemplates share: local_templates.cpp (finding and changing),
// local_templates_building.cpp (builds, and what they leave) and local_templates_uploads.cpp (files
// that clients send). Nothing here is meant for others: they include local_templates.h. Pure but
// for the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/templates/local_templates.h"

namespace caisson::api {

// How an image's id begins where a name may stand too.
inline constexpr std::string_view kImageId = "sha256:";
// Why a build failed that a server's end interrupted.
inline constexpr std::string_view kInterrupted =
    "the server ended or was started again while this was being built";

inline std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// `newest`: its newest build; null: it has none. `builds`: how many there are.
TemplateView view_of(const db::Template& found, const db::Build* newest, std::size_t builds);
// What a sandbox of the build starts.
fleet::StartCommand start_of(const db::Build& build);

}  // namespace caisson::api
