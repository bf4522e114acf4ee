// libraries: maker
// parser: src/maker/protocol.cpp
//
// A request to caisson-maker, and the same bytes as an answer to its server. What an answer says is
// written again as answers that say the same.
#include "maker/protocol.h"

namespace {

using namespace caisson::maker;  // NOLINT: a program of one file

void check_answer(std::string_view bytes) {
  const auto answer = decode_answer(bytes);
  if (!answer.has_value()) {
    const auto again = decode_answer(encode_error(answer.error()));
    VERIFY(!again.has_value() && again.error().code() == answer.error().code());
    VERIFY(answer.error().message().starts_with(again.error().message()));
    return;
  }
  for (const std::string& text : answer->texts) VERIFY(!text.contains('\0'));
  std::vector<std::string> texts;
  for (const std::string& part : encode_list(answer->texts)) {
    VERIFY(part.size() <= kMostAnswer);
    const auto again = decode_answer(part);
    VERIFY(again.has_value() && again->kind == Answer::Kind::kPart);
    texts.insert(texts.end(), again->texts.begin(), again->texts.end());
  }
  std::vector<std::string> expected = answer->texts;
  std::erase_if(expected, [](const std::string& text) { return text.size() > kMostName; });
  VERIFY(texts == expected);
  VERIFY(decode_answer(encode_done())->texts.empty());
  if (answer->texts.size() != 4) return;
  const Made made{.id = answer->texts[0],
                  .user = answer->texts[1],
                  .workdir = answer->texts[2],
                  .image = answer->texts[3]};
  VERIFY(decode_answer(encode_made(made))->texts == answer->texts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_answer(bytes);
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
