#include "wall/handouts.h"

#include <array>
#include <utility>

namespace caisson::wall {
namespace {

// A digit for each descriptor that may be there, one for the kind of attributes, then the maps with
// a NUL between them.
constexpr std::size_t kFiles = 7;
constexpr std::size_t kHead = kFiles + 1;

template <typename File, typename Given>
std::array<File*, kFiles> files_of(Given& handouts) {
  return {&handouts.layer,
          &handouts.record,
          &handouts.egress,
          &handouts.gateway.tcp,
          &handouts.gateway.dns_udp,
          &handouts.gateway.dns_tcp,
          &handouts.gateway.namespace_fd};
}

}  // namespace

std::string encode_handouts(const Handouts& handouts) {
  std::string text;
  for (const Fd* file : files_of<const Fd>(handouts)) text += file->valid() ? '1' : '0';
  text += handouts.trusted_attributes ? '1' : '0';
  return text + handouts.uid_lines + '\0' + handouts.gid_lines;
}

std::vector<int> descriptors_of(const Handouts& handouts) {
  std::vector<int> numbers;
  for (const Fd* file : files_of<const Fd>(handouts)) {
    if (file->valid()) numbers.push_back(file->get());
  }
  return numbers;
}

Result<Handouts> decode_handouts(std::string_view text, std::vector<Fd> descriptors) {
  const auto malformed = [] { return fail(Error::internal("what set-up hands out is malformed")); };
  const std::size_t end = text.find('\0');
  if (end == std::string_view::npos || end < kHead || text.size() > kMostHandoutText)
    return malformed();
  for (const char digit : text.substr(0, kHead)) {
    if (digit != '0' && digit != '1') return malformed();
  }
  Handouts handouts;
  std::size_t next = 0;
  const auto places = files_of<Fd>(handouts);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (text[i] == '0') continue;
    if (next == descriptors.size()) return malformed();
    *places[i] = std::move(descriptors[next++]);
  }
  const Gateway& gateway = handouts.gateway;
  const bool whole_gateway = gateway.dns_udp.valid() == gateway.valid() &&
                             gateway.dns_tcp.valid() == gateway.valid() &&
                             gateway.namespace_fd.valid() == gateway.valid();
  if (next != descriptors.size() || handouts.layer.valid() != handouts.record.valid() ||
      !whole_gateway)
    return malformed();
  handouts.trusted_attributes = text[kHead - 1] == '1';
  handouts.uid_lines = text.substr(kHead, end - kHead);
  handouts.gid_lines = text.substr(end + 1);
  return handouts;
}

}  // namespace caisson::wall
