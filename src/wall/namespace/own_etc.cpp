#include "wall/namespace/own_etc.h"

#include "base/secret.h"
#include "image/host_etc_cache.h"
#include "wall/handouts.h"

namespace caisson::wall {
namespace {

bool has_name_server(const Plan& plan) {
  return plan.network == PlanNetwork::kGateway;
}

}  // namespace

std::vector<image::GeneratedFile> own_etc_files(const Plan& plan) {
  return image::sandbox_files(plan.hostname, random_hex(32),
                              has_name_server(plan) ? kGatewayAddress : "");
}

std::vector<image::GeneratedFile> files_over_kept_etc(const Plan& plan) {
  std::vector<image::GeneratedFile> files = own_etc_files(plan);
  std::erase_if(files, [&](const image::GeneratedFile& file) {
    const std::string_view name = etc_name(file);
    if (name == "machine-id") return false;
    if (name == "resolv.conf") return !has_name_server(plan);
    return plan.hostname == image::kDefaultHostname;
  });
  if (has_name_server(plan)) files.push_back(image::nsswitch_with_dns());
  return files;
}

std::string_view etc_name(const image::GeneratedFile& file) {
  return std::string_view(file.path).substr(sizeof "/etc/" - 1);
}

}  // namespace caisson::wall
