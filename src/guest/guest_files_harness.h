// What the tests of file operations share: a directory, and how an operation is asked for.
#pragma once

#include <fstream>
#include <string>

#include "guest/guest_harness.h"

namespace caisson::guest::testing {

using proto::FileOperation;

class Files : public WithDirectory {
 protected:
  static Fields operation(FileOperation operation, const std::string& path) {
    return Fields()
        .put_u8(Tag::kOperation, static_cast<std::uint8_t>(operation))
        .put(Tag::kPath, path);
  }
  Seen run(const Fields& fields) { return guest_.finish_stream(guest_.open(Kind::kFile, fields)); }
  Seen run(FileOperation op, const std::string& path) { return run(operation(op, path)); }
  Seen write(const Fields& fields, const std::string& bytes) {
    const std::uint32_t stream = guest_.open(Kind::kFile, fields);
    std::uint64_t sent = 0;
    while (sent < bytes.size()) {
      const std::string_view chunk = std::string_view(bytes).substr(sent, 32 * 1024);
      if (!guest_.until([&] {
            return guest_.seen(stream).close ||
                   sent + chunk.size() <= proto::kInitialCredit + guest_.seen(stream).input_granted;
          }))
        break;
      if (guest_.seen(stream).close) break;
      guest_.data(stream, chunk);
      sent += chunk.size();
    }
    guest_.finish(stream);
    return guest_.finish_stream(stream);
  }
  Seen write(const std::string& path, const std::string& bytes) {
    return write(operation(FileOperation::kWrite, path), bytes);
  }
  std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

}  // namespace caisson::guest::testing
