// libraries: api remote
// parser: src/box/inside_entry.cpp src/api/e2b/entry.cpp src/api/exec_lines.cpp
// parser: src/cli/remote/output_lines.cpp src/launcher/additions.cpp
//
// What comes out of a sandbox about files and commands, as its client takes it: frames, whose
// payloads are an entry of a listing, an error, a command's output and end. What becomes a name on
// this host stays in the folder that it is copied to; what a server passes on as lines is read from
// them as what was said.
#include <algorithm>

#include "api/e2b/entry.h"
#include "api/exec_lines.h"
#include "base/error.h"
#include "box/inside_entry.h"
#include "cli/remote/output_lines.h"
#include "launcher/additions.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using Message = fleet::BoxStream::Message;

// Where a link at `from` leads, taken part by part as the kernel does where no part is a link.
void check_link(std::string_view target, std::size_t depth) {
  if (!box::link_stays_inside(target, depth)) return;
  VERIFY(!target.starts_with('/') && !target.contains('\0'));
  std::size_t at = depth;
  for (std::size_t begin = 0; begin <= target.size();) {
    const std::size_t end = std::min(target.find('/', begin), target.size());
    const std::string_view part = target.substr(begin, end - begin);
    begin = end + 1;
    if (part == "..") {
      VERIFY(at > 0);
      --at;
    } else if (!part.empty() && part != ".") {
      ++at;
    }
  }
}

void check_entry(const proto::FieldReader& fields) {
  if (const auto entry = box::inside_entry(fields); entry.has_value()) {
    VERIFY(entry->mode <= 0777 && entry->all_mode <= 07777);
    if (box::is_relative_path(entry->name)) {
      const std::string path = "/" + entry->name + "/";
      VERIFY(!path.contains("/../") && !path.contains("/./") && !path.contains("//"));
      VERIFY(!path.contains('\0'));
      const auto depth = static_cast<std::size_t>(std::ranges::count(entry->name, '/'));
      VERIFY(depth < box::kMostDepth);
      check_link(entry->target, depth);
    }
  }
  VERIFY(!box::inside_error(fields, "stat").message().empty());
  const auto info = api::e2b::entry_info(fields, "/a/b");
  if (info.has_value()) VERIFY(info->find("permissions")->as_string()->size() >= 10);
}

// Where it would not be a line, the client would take it for the server's.
void check_lines(cli::OutputLines& client, const std::string& lines, std::string& output) {
  if (lines.empty()) return;
  VERIFY(lines.ends_with('\n'));
  client.feed(lines);
  for (;;) {
    const auto line = client.next();
    if (!line.has_value()) continue;  // a command that was refused, or a number beyond JSON's
    if (!line->has_value()) return;
    output += (*line)->bytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  proto::Decoder decoder;
  decoder.feed({reinterpret_cast<const char*>(data), size});
  api::ExecLines lines("base");
  cli::OutputLines client;
  std::string sent[3], received;
  while (!lines.ended()) {
    const auto frame = decoder.next();
    if (!frame.has_value() || !frame->has_value()) break;
    const proto::Frame& got = **frame;
    if (const auto fields = proto::FieldReader::parse(got.payload); fields.has_value())
      check_entry(*fields);
    VERIFY(launcher::start_error(got.payload).size() <= 32);
    const wall::Usage usage{.user_us = 1, .memory_now = size};
    VERIFY(launcher::with_counters(got.payload, usage).starts_with(got.payload));
    Message message{.kind = Message::Kind::kEvent,
                    .channel = static_cast<proto::Channel>(got.header.detail % 3),
                    .bytes = got.payload};
    using Type = proto::FrameType;
    if (got.header.type == Type::kData) message.kind = Message::Kind::kData;
    if (got.header.type == Type::kFinish) message.kind = Message::Kind::kFinish;
    if (got.header.type == Type::kClose) message.kind = Message::Kind::kClose;
    if (message.kind == Message::Kind::kData) sent[got.header.detail % 3] += got.payload;
    const auto said = lines.take(message);
    if (!said.has_value()) return 0;
    check_lines(client, *said, received);
  }
  // All that was output came through, but for the beginning of a last character.
  const std::size_t all = sent[0].size() + sent[1].size() + sent[2].size();
  VERIFY(received.size() <= all && all - received.size() <= 9);
  return 0;
}
