// libraries: wall
// parser: src/wall/namespace/netlink.cpp src/wall/namespace/nft_ruleset.cpp
//
// What the kernel answers over netlink: the pieces of any bytes lie within them, and no bytes but
// those of the rules themselves are taken for the gateway's rules. What is read is written again as
// what holds the same.
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
    VERIFY(!netlink::find(*attributes, attribute.type).empty() || attribute.value.empty() ||
           attributes->size() > 1);
    if (depth < 8) walk(attribute.value, depth + 1);
  }
  netlink::Attributes again;
  for (const auto& [type, nested, value] : *attributes) again.bytes(type, value);
  if (!again.fits()) return;
  const auto read = netlink::split_attributes(again.encoded());
  VERIFY(read.has_value() && read->size() == attributes->size());
  for (std::size_t i = 0; i < read->size(); ++i) VERIFY((*read)[i].value == (*attributes)[i].value);
  const auto held = netlink::holds(again.encoded(), again.encoded());
  VERIFY(held.has_value());
  // What is nested need not be well-formed.
  (void)netlink::holds(bytes, bytes);
}

// The messages of the answers, sent on.
void send_on(const std::vector<netlink::Answer>& answers) {
  netlink::Batch batch;
  for (const netlink::Answer& answer : answers)
    batch.add(answer.type, answer.flags, answer.payload, {}, "message");
  if (!batch.fits()) return;
  const auto again = netlink::split_answers(batch.encoded());
  VERIFY(again.has_value() && again->size() == answers.size() && batch.size() == answers.size());
  for (std::size_t i = 0; i < again->size(); ++i) {
    VERIFY((*again)[i].payload.starts_with(answers[i].payload) && (*again)[i].number == i + 1);
    VERIFY(batch.what(i + 1) == std::string_view("message"));
    VERIFY(batch.wants_answer(i + 1) == (((*again)[i].flags & 4u) != 0));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const NftRuleset ruleset = gateway_ruleset();
  static const std::string sent = encode_ruleset(ruleset).encoded();
  VERIFY(netlink::split_answers(sent).has_value());
  walk(bytes, 0);
  (void)compare_chains(ruleset, bytes);
  const bool taken = compare_rules(ruleset, bytes).has_value();
  VERIFY(!taken || bytes.size() >= ruleset.rules.size() * 40);
  const auto answers = netlink::split_answers(bytes);
  if (!answers.has_value()) return 0;
  send_on(*answers);
  for (const netlink::Answer& answer : *answers) {
    VERIFY(within(bytes, answer.payload));
    (void)netlink::read_verdict(answer);
  }
  return 0;
}
