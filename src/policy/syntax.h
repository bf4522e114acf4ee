// The small grammars of a spec's words: users, host names, images and environment names. Each
// function returns an empty text where the word is right, else what is allowed. Pure functions; the
// launch plan's reader uses hostname_fault() too.
#pragma once

#include <string_view>

namespace caisson::policy {

// Letters, digits and dashes in labels joined by dots; at most 63 bytes.
std::string_view hostname_fault(std::string_view hostname);
// NAME or UID, then perhaps :GROUP or :GID.
std::string_view user_fault(std::string_view user);
// host, NAME[:TAG], or a registry's reference (HOST[:PORT]/NAME[:TAG][@sha256:…]).
std::string_view image_fault(std::string_view image);
// HOST or HOST:PORT of a registry.
std::string_view registry_fault(std::string_view registry);
std::string_view env_name_fault(std::string_view name);

}  // namespace caisson::policy
