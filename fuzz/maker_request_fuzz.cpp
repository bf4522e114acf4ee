// libraries: maker
//
// A request to caisson-maker, and the same bytes as an answer to its server.
#include "maker/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  using namespace caisson::maker;
  if (const auto answer = decode_answer(bytes); answer.has_value()) {
    for (const std::string& text : answer->texts) VERIFY(!text.contains('\0'));
  }
  const auto request = decode_request(bytes);
  if (!request.has_value()) {
    VERIFY(request.error().code() == caisson::Code::kInvalidArgument);
    return 0;
  }
  // What becomes part of a path leads nowhere else.
  if (request->operation == Operation::kConnect || request->operation == Operation::kTakeSnapshot)
    VERIFY(!request->name.empty() && !request->name.contains('/') && !request->name.contains('.'));
  // One reading, one writing.
  VERIFY(encode(*request) == bytes);
  return 0;
}
