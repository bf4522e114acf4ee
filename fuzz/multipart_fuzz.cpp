// libraries: api
// parser: src/api/e2b/multipart.cpp
//
// multipart/form-data: whatever pieces a body comes in, the same parts come out, and nothing grows
// beyond what was fed. The input is a Content-Type, a line's end, and the body.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "api/e2b/multipart.h"

namespace {

using caisson::api::e2b::MultipartReader;

std::string parse(const std::string& boundary, std::string_view body, std::size_t piece) {
  using Kind = MultipartReader::Event::Kind;
  MultipartReader reader(boundary);
  std::string all;
  for (;;) {
    caisson::Result<MultipartReader::Event> event = reader.next();
    if (!event) return all + "\nerror " + event.error().message();
    if (event->kind == Kind::kMore) {
      if (body.empty()) return all + "\nmore";
      reader.feed(body.substr(0, piece));
      body.remove_prefix(std::min(piece, body.size()));
    } else if (event->kind == Kind::kPart) {
      all += "\npart " + event->part.name + "/" + event->part.file_name.value_or("-") + "\n";
    } else if (event->kind == Kind::kData) {
      if (event->data.empty()) std::abort();
      all += event->data;
    } else if (event->kind == Kind::kPartEnd) {
      all += "\nend of part";
    } else {
      return all + "\nend";
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line = input.find('\n');
  if (line == input.npos) return 0;
  const auto boundary = caisson::api::e2b::multipart_boundary(input.substr(0, line));
  if (!boundary) return 0;
  const std::string_view body = input.substr(line + 1);
  // Where the head of a part is too long depends on how much of it has come; all else must not.
  if (body.size() > MultipartReader::kMaxPartHead) return 0;
  const std::string whole = parse(*boundary, body, body.size() + 1);
  if (parse(*boundary, body, 1) != whole || parse(*boundary, body, 5) != whole) std::abort();
  return 0;
}
