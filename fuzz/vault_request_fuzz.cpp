// libraries: vault
// parser: src/vault/protocol.cpp src/vault/secret_body.cpp
//
// A request to caisson-vault, the same bytes as an answer to its server, and as the body of a
// client's request that has a value.
#include "vault/protocol.h"
#include "vault/secret_body.h"

namespace {

using namespace caisson::vault;  // NOLINT: a program of one file

void check_answer(std::string_view bytes) {
  const auto texts = decode_answer(bytes);
  if (texts.has_value()) {
    VERIFY(encode_done(*texts) == bytes);
    return;
  }
  const auto again = decode_answer(encode_error(texts.error()));
  VERIFY(!again.has_value() && again.error().code() == texts.error().code());
}

// What is left has no value, and what has none is refused.
void check_body(std::string_view bytes) {
  const auto taken = take_value(bytes);
  if (!taken.has_value()) return;
  VERIFY(taken->rest.size() <= bytes.size());
  const auto rest = take_value(taken->rest);
  VERIFY(rest.has_value() && rest->value.bytes().empty() && rest->rest == taken->rest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_answer(bytes);
  check_body(bytes);
  const auto request = decode_request(bytes);
  if (!request.has_value()) {
    VERIFY(request.error().code() == caisson::Code::kInvalidArgument);
    return 0;
  }
  // One reading, one writing.
  const caisson::SecretBytes again = encode(*request);
  VERIFY(std::string_view(again.data(), again.size()) == bytes);
  return 0;
}
