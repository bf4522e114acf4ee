// Columns of text for people. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace caisson::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  // As many cells as the head has.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Each row a line; the last column is not padded.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "850ms", "12s", "3m20s", "2h05m", "4d03h"; negative counts as none.
std::string duration_text(std::int64_t milliseconds);
// "512 B", "1.5 MiB".
std::string size_text(std::uint64_t bytes);

}  // namespace caisson::cli
