// What the set-up of a sandbox hands out on request: descriptors that travel from the setup child
// to the supervisor with the word that the guest is born, and from there to whoever asked for the
// sandbox with the word that it is up. Nobody keeps a copy on the way, and the guest, which closes
// what it was not given, never has one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::wall {

// 127.0.0.1 and this port in the sandbox's network namespace.
inline constexpr unsigned short kEgressPort = 3128;

struct Handouts {
  // image::KeptLayer's; both or none.
  Fd layer, record;
  // The ids of the image as host ids, lines of uid_map(5); filled by the supervisor.
  std::string uid_lines, gid_lines;
  bool trusted_attributes = false;
  // TCP, listening. Non-blocking.
  Fd egress;
};

// At most so many bytes of text.
inline constexpr std::size_t kMostHandoutText = 4096;

// The text and the descriptors of one message.
std::string encode_handouts(const Handouts& handouts);
std::vector<int> descriptors_of(const Handouts& handouts);
// Error: internal where the two do not belong together.
Result<Handouts> decode_handouts(std::string_view text, std::vector<Fd> descriptors);

}  // namespace caisson::wall
