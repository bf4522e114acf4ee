// libraries: wall
//
// What the kernel answers over netlink: the pieces of any bytes lie within them, and no bytes but
// those of the rules themselves are taken for the gateway's rules.
#include "base/error.h"
#include "wall/namespace/nft_ruleset.h"

namespace {

using namespace caisson::wall;

bool within(std::string_view whole, std::string_view part) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void walk(std::string_view bytes, int depth) {
  const auto attributes = netlink::split_attributes(bytes);
  if (!attributes.has_value()) return;
  for (const netlink::Attribute& attribute : *attributes) {
    VERIFY(within(bytes, attribute.value));
    if (depth < 8) walk(attribute.value, depth + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const NftRuleset ruleset = gateway_ruleset();
  walk(bytes, 0);
  (void)compare_chains(ruleset, bytes);
  const bool taken = compare_rules(ruleset, bytes).has_value();
  VERIFY(!taken || bytes.size() >= ruleset.rules.size() * 40);
  const auto answers = netlink::split_answers(bytes);
  if (!answers.has_value()) return 0;
  for (const netlink::Answer& answer : *answers) {
    VERIFY(within(bytes, answer.payload));
    (void)netlink::read_verdict(answer);
  }
  return 0;
}
