// The files of /etc that are a sandbox's own, as its plan wants them.
#pragma once

#include <string_view>
#include <vector>

#include "image/host_etc.h"
#include "wall/plan.h"

namespace caisson::wall {

// What goes over the /etc of any image; the machine id is another one each time.
std::vector<image::GeneratedFile> own_etc_files(const Plan& plan);
// Those of them, and of the host image's, that are not in the kept /etc of the host image as this
// sandbox needs them: that is one of a sandbox with the default host name and without a name
// server.
std::vector<image::GeneratedFile> files_over_kept_etc(const Plan& plan);

// "hosts" of /etc/hosts.
std::string_view etc_name(const image::GeneratedFile& file);

}  // namespace caisson::wall
