#include "vault/secret_body.h"

#include <array>
#include <vector>

#include "egress/secrets/decoding.h"
#include "egress/secrets/json_span.h"

namespace caisson::vault {
namespace {

// Without a copy that nobody wipes.
SecretValue unescaped(std::string_view text) {
  SecretBytes bytes;
  bytes.reserve(text.size());
  egress::Decoder decoder(egress::Decoding::kJson);
  egress::Decoder::Output out;
  const auto keep = [&] {
    for (const egress::DecodedByte& one : out) bytes.push_back(static_cast<char>(one.byte));
    out.count = 0;
  };
  for (const char c : text) {
    decoder.push({.byte = static_cast<unsigned char>(c)}, out);
    keep();
  }
  decoder.finish(out);
  keep();
  SecretValue value(std::string_view(bytes.data(), bytes.size()));
  // What it held of an escape, too.
  wipe(&decoder, sizeof decoder);
  wipe(&out, sizeof out);
  return value;
}

}  // namespace

Result<SecretBody> take_value(std::string_view body) {
  if (body.empty()) return fail(Error::invalid("the body is empty; allowed is a JSON object"));
  if (body.size() > kMostSecretBody)
    return fail({Code::kOutOfRange, "the body is too long; allowed are " +
                                        std::to_string(kMostSecretBody) + " bytes"});
  const std::array<std::vector<std::string>, 1> pointers = {{{"value"}}};
  TRY_ASSIGN(const auto spans, egress::find_json_strings(body, pointers));
  // An array has no member of that name, so that what has one is an object.
  if (spans.size() != 1)
    return fail(
        Error::invalid("value: found nothing, or what is no string; allowed is the "
                       "secret's value as a string"));
  SecretBody taken{.value = unescaped(body.substr(spans[0].begin, spans[0].end - spans[0].begin)),
                   .rest = std::string(body.substr(0, spans[0].begin))};
  taken.rest += body.substr(spans[0].end);
  return taken;
}

}  // namespace caisson::vault
