// What a sandbox that is made of a snapshot gets of its source, beside the files: all that its
// recipe says (user, working directory, privileges, limits, profile and the like) and what its
// template starts. As text, for the database. Pure.
//
// Not the variables of the source: its client gave them to that sandbox, they may be secrets, and a
// snapshot outlives the boot.
#pragma once

#include <string>
#include <string_view>

#include "fleet/host.h"
#include "fleet/start_command.h"

namespace caisson::fleet {

struct Shape {
  Recipe recipe;  // its image is the snapshot's own, and not kept
  StartCommand start;
};

// Error: invalid_argument, of a recipe that no spec can say.
Result<std::string> encode_shape(const Shape& shape);
// Error: invalid_argument, for what is none of this version's. Whoever made a sandbox without it
// might give it more than its source had.
Result<Shape> decode_shape(std::string_view text);

}  // namespace caisson::fleet
