// Which entries of a layer the first and the second reading pass on.
#include "image/worker/portion.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "image/archive_for_test.h"
#include "image/flatten_for_test.h"

namespace caisson::image {
namespace {

using ::testing::ElementsAre;
using testing::Tar;
using testing::TextInput;

// What it is told, a line each.
class ListingSink final : public EntrySink {
 public:
  Status make_directory(const EntryName& name, const EntryAttributes&) override {
    return note("directory " + name.path);
  }
  Status make_symlink(const EntryName& name, std::string_view, const EntryAttributes&) override {
    return note("symlink " + name.path);
  }
  Status make_pipe(const EntryName& name, const EntryAttributes&) override {
    return note("pipe " + name.path);
  }
  Status make_hard_link(const EntryName& name, const EntryName&) override {
    return note("link " + name.path);
  }
  Status begin_file(const EntryName& name, std::uint64_t, const EntryAttributes&) override {
    return note("file " + name.path);
  }
  Status write_file(std::string_view bytes, std::uint64_t) override {
    lines.back() += " " + std::string(bytes);
    return {};
  }
  Status end_file() override {
    lines.back() += ".";
    return {};
  }
  Status white_out(const EntryName& name) override { return note("gone " + name.path); }
  Status make_opaque(const EntryName& directory) override {
    return note("opaque " + directory.path);
  }

  std::vector<std::string> lines;

 private:
  Status note(std::string line) {
    lines.push_back(std::move(line));
    return {};
  }
};

std::string layer() {
  return Tar()
      .add({.name = "d", .type = '5'})
      .add({.name = "a", .data = "12345"})
      .add({.name = "s", .type = '2', .link = "a"})
      .add({.name = "p", .type = '6'})
      .add({.name = "device", .type = '3'})
      .add({.name = "h", .type = '1', .link = "a"})
      .add({.name = "d/.wh..wh..opq"})
      .add({.name = ".wh.gone"})
      .add({.name = "b", .data = "67890"})
      .bytes();
}

struct Passed {
  std::vector<std::string> lines;
  std::uint64_t count = 0;
  bool full = false;
  int calls = 0;
};

Passed pass(std::uint64_t skipped, PortionBudget budget) {
  Passed passed;
  ListingSink sink;
  Portion portion(sink, skipped, budget, [&] { ++passed.calls; });
  const std::string bytes = layer();
  TextInput input(bytes);
  Uncompressed tar(input, 1000);
  const auto read = read_layer(tar, portion, {}, {});
  VERIFY(read.has_value() && read->counts.entries == 9);
  passed.lines = sink.lines;
  passed.count = portion.passed();
  passed.full = portion.full();
  return passed;
}

TEST(Portion, PassesEverythingOnWithoutABudget) {
  const Passed all = pass(0, {});
  EXPECT_THAT(all.lines, ElementsAre("directory d", "file a 12345.", "symlink s", "pipe p",
                                     "link h", "opaque d", "gone gone", "file b 67890."));
  EXPECT_EQ(all.count, 8u);
  EXPECT_FALSE(all.full);
  EXPECT_EQ(all.calls, 0);
}

TEST(Portion, TwoReadingsAreTheWholeWhateverTheBudget) {
  const std::vector<std::string> whole = pass(0, {}).lines;
  for (std::uint64_t entries = 0; entries <= whole.size(); ++entries) {
    const Passed first = pass(0, {.entries = entries});
    EXPECT_EQ(first.count, entries);
    EXPECT_EQ(first.full, entries < whole.size());
    EXPECT_EQ(first.calls, first.full ? 1 : 0);
    const Passed second = pass(first.count, {});
    EXPECT_FALSE(second.full);
    std::vector<std::string> both = first.lines;
    both.insert(both.end(), second.lines.begin(), second.lines.end());
    EXPECT_EQ(both, whole);
  }
}

TEST(Portion, AFileLargerThanWhatIsLeftIsNotBegun) {
  const Passed first = pass(0, {.bytes = 9});
  EXPECT_TRUE(first.full);
  EXPECT_EQ(first.lines.back(), "gone gone");
  EXPECT_FALSE(pass(0, {.bytes = 10}).full);
}

TEST(Portion, NothingFollowsOnceItIsFull) {
  EXPECT_THAT(pass(0, {.bytes = 0}).lines, ElementsAre("directory d"));
}

}  // namespace
}  // namespace caisson::image
