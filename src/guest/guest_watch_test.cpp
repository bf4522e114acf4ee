// Watches, through the real guest.
#include <algorithm>

#include "guest/guest_files_harness.h"

namespace caisson::guest::testing {
namespace {

using proto::FileType;
using proto::WatchEvent;

class Watch : public Files {
 protected:
  std::uint32_t start(bool recursive) {
    Fields fields;
    fields.put(Tag::kPath, root_).put_u8(Tag::kRecursive, recursive ? 1 : 0);
    const std::uint32_t stream = guest_.open(Kind::kWatch, fields);
    EXPECT_TRUE(wait_for(stream, WatchEvent::kArmed, root_));
    return stream;
  }
  bool has(std::uint32_t stream, WatchEvent event, const std::string& path,
           const std::string& target) {
    const Seen& seen = guest_.seen(stream);
    for (std::size_t i = 0; i < seen.events.size(); ++i) {
      const proto::FieldReader fields = seen.event(i);
      if (fields.number(Tag::kWatchEvent).value() == static_cast<std::uint64_t>(event) &&
          fields.text(Tag::kPath).value() == path &&
          (target.empty() || fields.text(Tag::kTarget).value() == target))
        return true;
    }
    return false;
  }
  bool wait_for(std::uint32_t stream, WatchEvent event, const std::string& path,
                const std::string& target = {}) {
    return guest_.until([&] { return has(stream, event, path, target); });
  }
};

TEST_F(Watch, TellsWhatHappensInATree) {
  std::filesystem::create_directories(root_ + "/old");
  const std::uint32_t stream = start(true);
  std::ofstream(root_ + "/old/f") << "x";
  EXPECT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/old/f"));
  EXPECT_TRUE(wait_for(stream, WatchEvent::kModified, root_ + "/old/f"));
  ::chmod((root_ + "/old/f").c_str(), 0600);
  EXPECT_TRUE(wait_for(stream, WatchEvent::kAttributes, root_ + "/old/f"));
  std::filesystem::create_directories(root_ + "/new/deep");
  EXPECT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/new/deep"));
  std::filesystem::rename(root_ + "/new", root_ + "/moved");
  EXPECT_TRUE(wait_for(stream, WatchEvent::kRenamed, root_ + "/new", root_ + "/moved"));
  std::ofstream(root_ + "/moved/deep/g") << "x";
  EXPECT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/moved/deep/g"));
  std::filesystem::remove(root_ + "/moved/deep/g");
  EXPECT_TRUE(wait_for(stream, WatchEvent::kRemoved, root_ + "/moved/deep/g"));
  guest_.cancel(stream);
  EXPECT_EQ(guest_.finish_stream(stream).error_text(), "cancelled by the peer");
}

TEST_F(Watch, EndsWithItsDirectory) {
  std::filesystem::create_directories(root_ + "/w");
  Fields fields;
  fields.put(Tag::kPath, root_ + "/w");
  const std::uint32_t stream = guest_.open(Kind::kWatch, fields);
  ASSERT_TRUE(wait_for(stream, WatchEvent::kArmed, root_ + "/w"));
  std::filesystem::remove(root_ + "/w");
  EXPECT_EQ(guest_.finish_stream(stream).error_text(), "");
  EXPECT_TRUE(has(stream, WatchEvent::kRemoved, root_ + "/w", {}));
}

TEST_F(Watch, OverflowIsTold) {
  for (int i = 0; i < 4200; ++i) std::filesystem::create_directory(root_ + "/" + std::to_string(i));
  const std::uint32_t stream = start(true);
  bool overflow = false;
  for (std::size_t i = 0; i < guest_.seen(stream).events.size(); ++i)
    overflow |= guest_.seen(stream).event(i).number(Tag::kWatchEvent).value() ==
                static_cast<std::uint64_t>(WatchEvent::kOverflow);
  EXPECT_TRUE(overflow);
}

TEST_F(Watch, NeedsADirectory) {
  write(root_ + "/f", "x");
  const auto error = [&](const std::string& path) {
    return guest_.finish_stream(guest_.open(Kind::kWatch, Fields().put(Tag::kPath, path)))
        .error_text();
  };
  EXPECT_EQ(error(root_ + "/f"), "watch " + root_ + "/f: Not a directory");
  EXPECT_EQ(error(root_ + "/g"), "watch " + root_ + "/g: No such file or directory");
}

}  // namespace
}  // namespace caisson::guest::testing
