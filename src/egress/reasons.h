// The words by which audit records, refusals and a sandbox's report say why something was decided
// so, each with a sentence for people. The policy's own come first, in the order of
// policy::NetworkReason; the gateway's follow. Constants; docs/network.md has them as a table.
#pragma once

#include <span>
#include <string_view>

namespace caisson::egress {

struct Reason {
  std::string_view word;
  std::string_view meaning;  // the rest of a sentence, without a full stop
};

std::span<const Reason> reasons();
// Empty: no reason of ours.
std::string_view meaning_of(std::string_view word);

}  // namespace caisson::egress
