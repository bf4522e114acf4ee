// How the host's side does what a server asks of it (host.h), with the rights of this process.
//
// Blocks; no state but the host's. caisson-maker alone calls it.
#pragma once

#include <string>
#include <vector>

#include "maker/host.h"

namespace caisson::maker {

// As Host::make().
Result<Made> make_sandbox(const Recipe& recipe, int keys_fd);
// Ends a sandbox of this host, if it is there.
void end_sandbox(const std::string& id);
Result<Fd> connect_sandbox(const std::string& id);
Result<std::vector<std::string>> kept_sandboxes();
Result<std::string> find_image(const std::string& name, NamedBy who);
Result<std::vector<std::string>> list_images();
// Names below kTemplateNames, each followed by the image that it means.
Result<std::vector<std::string>> template_images();
Status drop_template_image(const std::string& name);
// Nothing is made where there is no store yet.
Status trim_cache(const CacheBound& bound);
Status check_network();

}  // namespace caisson::maker
