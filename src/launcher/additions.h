// What the supervisor puts beside what the guest tells, on the way to a client: counters that only
// control groups know, and the guest's reasons beside a verdict. Pure.
#pragma once

#include <string>
#include <string_view>

#include "wall/wall.h"

namespace caisson::launcher {

// The EVENT payload of a metrics stream with the box's counters behind the guest's values: of two
// values of a name the later counts. As it was where both would not fit into a frame.
std::string with_counters(std::string_view sample, const wall::Usage& usage);

// Fields for a verdict's CLOSE from the guest's own: what a command that did not start failed at,
// for clients that tell reasons apart. Empty where the guest's CLOSE says nothing of that.
std::string start_error(std::string_view close);

}  // namespace caisson::launcher
