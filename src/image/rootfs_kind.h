// What a root file system that was made of layers is: the whole of them, or a delta, which is one
// layer alone in the form of an overlay's lower directory. A delta means nothing without the root
// file systems that it lies over: a whiteout (a device 0:0) hides a name of theirs, and what a
// directory with the attribute `user.overlay.opaque` has in it is all that is there.
#pragma once

#include <cstdint>

namespace caisson::image {

enum class RootfsKind : std::uint8_t { kWhole, kDelta };

// Root file systems that lie over one another, the whole one at the bottom included: more cost
// every look-up of a name in a sandbox.
inline constexpr unsigned kMostStacked = 8;

}  // namespace caisson::image
