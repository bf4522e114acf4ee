// "add --ro .": what to say to somebody whose program failed and whose arguments name a host file
// that the sandbox could not see.
#pragma once

#include <caisson/spec.h>

#include <string>
#include <string_view>

namespace caisson::cli {

// Empty where no argument does. Looks at names alone, opens nothing.
// `option`: the one that it advises.
std::string invisible_file_hint(const policy::SpecValues& spec, std::string_view option);

}  // namespace caisson::cli
