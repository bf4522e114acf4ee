// libraries: api
// parser: src/api/e2b/wire.cpp src/api/e2b/wire_json.cpp
// parser: src/api/e2b/wire_binary.cpp
//
// Messages of the data plane: what one form takes the other says too, and gives back the same. The
// first byte chooses the message, the second the form of the rest.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/e2b/messages.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson;
  using namespace caisson::api::e2b;
  static const std::array kMessages = {&kStartRequest,  &kProcessStream,    &kListResponse,
                                       &kUpdateRequest, &kSendInputRequest, &kSendSignalRequest,
                                       &kEntryInfo,     &kListDirResponse,  &kStreamInputRequest,
                                       &kWatchStream,   &kWatchRequest,     &kWatcherEvents};
  if (size < 2) return 0;
  const WireMessage& message = *kMessages[data[0] % kMessages.size()];
  const Encoding from = data[1] % 2 == 0 ? Encoding::kJson : Encoding::kBinary;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Result<json::Value> value = decode_message(message, from, bytes);
  if (!value.has_value()) {
    VERIFY(value.error().code() == Code::kInvalidArgument);
    return 0;
  }
  for (const Encoding to : {Encoding::kJson, Encoding::kBinary}) {
    const std::string encoded = encode_message(message, to, *value);
    const Result<json::Value> again = decode_message(message, to, encoded);
    // What JSON cannot say: times outside of its years.
    if (to == Encoding::kJson && !again.has_value()) continue;
    VERIFY(again.has_value());
    // Encoded once, the order of fields is the table's.
    VERIFY(encode_message(message, to, *again) == encoded);
  }
  return 0;
}
