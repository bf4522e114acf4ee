#include "wall/handouts.h"

#include <array>
#include <utility>

namespace caisson::wall {
namespace {

// A digit for each descriptor that may be there, one for the kind of attributes, then the maps with
// a NUL between them.
constexpr std::size_t kHead = 4;
// Before that where a gateway is there, whose descriptors are the last ones. Without it the text is
// what it was before there were gateways: kept sandboxes outlive a change of programs, and what
// they hand out (kHold) has none.
constexpr char kGatewayMark = 'g';

template <typename File, typename Given>
std::array<File*, 4> files_of(Given& gateway) {
  return {&gateway.tcp, &gateway.dns_udp, &gateway.dns_tcp, &gateway.namespace_fd};
}

}  // namespace

std::string encode_handouts(const Handouts& handouts) {
  std::string text;
  if (handouts.gateway.valid()) text += kGatewayMark;
  for (const bool there : {handouts.layer.valid(), handouts.record.valid(), handouts.egress.valid(),
                           handouts.trusted_attributes})
    text += there ? '1' : '0';
  return text + handouts.uid_lines + '\0' + handouts.gid_lines;
}

std::vector<int> descriptors_of(const Handouts& handouts) {
  std::vector<int> numbers;
  for (const Fd* file : {&handouts.layer, &handouts.record, &handouts.egress}) {
    if (file->valid()) numbers.push_back(file->get());
  }
  if (!handouts.gateway.valid()) return numbers;
  for (const Fd* file : files_of<const Fd>(handouts.gateway)) numbers.push_back(file->get());
  return numbers;
}

Result<Handouts> decode_handouts(std::string_view text, std::vector<Fd> descriptors) {
  const auto malformed = [] { return fail(Error::internal("what set-up hands out is malformed")); };
  const bool has_gateway = text.starts_with(kGatewayMark);
  if (has_gateway) text.remove_prefix(1);
  const std::size_t end = text.find('\0');
  if (end == std::string_view::npos || end < kHead || text.size() > kMostHandoutText)
    return malformed();
  for (const char digit : text.substr(0, kHead)) {
    if (digit != '0' && digit != '1') return malformed();
  }
  Handouts handouts;
  std::size_t next = 0;
  Fd* const places[] = {&handouts.layer, &handouts.record, &handouts.egress};
  for (std::size_t i = 0; i < std::size(places); ++i) {
    if (text[i] == '0') continue;
    if (next == descriptors.size()) return malformed();
    *places[i] = std::move(descriptors[next++]);
  }
  if (has_gateway && descriptors.size() - next >= 4) {
    for (Fd* const file : files_of<Fd>(handouts.gateway)) *file = std::move(descriptors[next++]);
  }
  if (next != descriptors.size() || has_gateway != handouts.gateway.valid() ||
      handouts.layer.valid() != handouts.record.valid())
    return malformed();
  handouts.trusted_attributes = text[kHead - 1] == '1';
  handouts.uid_lines = text.substr(kHead, end - kHead);
  handouts.gid_lines = text.substr(end + 1);
  return handouts;
}

}  // namespace caisson::wall
