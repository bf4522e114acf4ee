// Watches, through the real guest.
#include <algorithm>

#include "guest/files.h"
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
  std::size_t count(std::uint32_t stream, WatchEvent event, const std::string& path) {
    const Seen& seen = guest_.seen(stream);
    std::size_t number = 0;
    for (std::size_t i = 0; i < seen.events.size(); ++i) {
      const proto::FieldReader fields = seen.event(i);
      if (fields.number(Tag::kWatchEvent).value() == static_cast<std::uint64_t>(event) &&
          fields.text(Tag::kPath).value() == path)
        ++number;
    }
    return number;
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

TEST_F(Watch, OverflowIsToldOnce) {
  for (int i = 0; i < 4200; ++i) std::filesystem::create_directory(root_ + "/" + std::to_string(i));
  const std::uint32_t stream = start(true);
  EXPECT_EQ(count(stream, WatchEvent::kOverflow, root_), 1u);
}

TEST_F(Watch, NamesAreBelowTheDirectory) {
  std::filesystem::create_directory(root_ + "/d");
  const std::uint32_t stream = start(true);
  std::ofstream(root_ + "/d/f") << "x";
  ASSERT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/d/f"));
  std::filesystem::rename(root_ + "/d/f", root_ + "/g");
  ASSERT_TRUE(wait_for(stream, WatchEvent::kRenamed, root_ + "/d/f", root_ + "/g"));
  const Seen& seen = guest_.seen(stream);
  EXPECT_EQ(seen.event(0).text(Tag::kName).value(), "");
  EXPECT_EQ(seen.event(1).text(Tag::kName).value(), "d/f");
  const proto::FieldReader renamed = seen.event(seen.events.size() - 1);
  EXPECT_EQ(renamed.text(Tag::kName).value(), "d/f");
  EXPECT_EQ(renamed.text(Tag::kTargetName).value(), "g");
}

TEST_F(Watch, WhatIsMadeTogetherWithItsDirectoryIsCreatedOnce) {
  const std::uint32_t stream = start(true);
  // Stopped meanwhile, the worker finds everything by looking alone.
  std::string child;
  std::ifstream("/proc/" + std::to_string(guest_.pid()) + "/task/" + std::to_string(guest_.pid()) +
                "/children") >>
      child;
  ASSERT_FALSE(child.empty());
  ASSERT_EQ(::kill(std::stoi(child), SIGSTOP), 0);
  std::filesystem::create_directories(root_ + "/new/deep");
  std::ofstream(root_ + "/new/f") << "x";
  std::ofstream(root_ + "/new/deep/g") << "x";
  ASSERT_EQ(::kill(std::stoi(child), SIGCONT), 0);
  for (const char* name : {"/new", "/new/f", "/new/deep", "/new/deep/g"})
    EXPECT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + name)) << name;
  std::ofstream(root_ + "/last") << "x";
  EXPECT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/last"));
  for (const char* name : {"/new", "/new/f", "/new/deep", "/new/deep/g"})
    EXPECT_EQ(count(stream, WatchEvent::kCreated, root_ + name), 1u) << name;
  // Each has its watch.
  std::ofstream(root_ + "/new/deep/g") << "y";
  EXPECT_TRUE(wait_for(stream, WatchEvent::kModified, root_ + "/new/deep/g"));
}

TEST_F(Watch, ManyTreesMadeAtOnceAreToldWhole) {
  const std::uint32_t stream = start(true);
  constexpr int kTrees = 40;
  for (int i = 0; i < kTrees; ++i) {
    const std::string tree = root_ + "/" + std::to_string(i) + "/a/b";
    std::filesystem::create_directories(tree);
    std::ofstream(tree + "/f") << "x";
  }
  for (int i = 0; i < kTrees; ++i)
    EXPECT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/" + std::to_string(i) + "/a/b/f"));
}

TEST_F(Watch, WhatIsMovedOutIsNotWatchedAnyMore) {
  std::filesystem::create_directories(root_ + "/w/d");
  std::filesystem::create_directory(root_ + "/elsewhere");
  const std::uint32_t stream =
      guest_.open(Kind::kWatch, Fields().put(Tag::kPath, root_ + "/w/").put_u8(Tag::kRecursive, 1));
  ASSERT_TRUE(wait_for(stream, WatchEvent::kArmed, root_ + "/w"));
  std::filesystem::rename(root_ + "/w/d", root_ + "/elsewhere/d");
  ASSERT_TRUE(wait_for(stream, WatchEvent::kRenamed, root_ + "/w/d"));
  std::ofstream(root_ + "/elsewhere/d/f") << "x";
  std::filesystem::rename(root_ + "/elsewhere/d", root_ + "/w/back");
  ASSERT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/w/back/f"));
  const Seen& seen = guest_.seen(stream);
  for (std::size_t i = 0; i < seen.events.size(); ++i) {
    EXPECT_FALSE(seen.event(i).has(Tag::kTarget));
    EXPECT_NE(seen.event(i).text(Tag::kPath).value(), root_ + "/w/d/f");
  }
}

TEST_F(Watch, ADirectorysModeIsToldOnce) {
  std::filesystem::create_directory(root_ + "/d");
  const std::uint32_t stream = start(true);
  ::chmod((root_ + "/d").c_str(), 0700);
  std::ofstream(root_ + "/last") << "x";
  EXPECT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/last"));
  EXPECT_EQ(count(stream, WatchEvent::kAttributes, root_ + "/d"), 1u);
}

TEST_F(Watch, DetailsAreThoseOfTheFile) {
  const std::uint32_t stream =
      guest_.open(Kind::kWatch, Fields().put(Tag::kPath, root_).put_u8(Tag::kWantDetails, 1));
  ASSERT_TRUE(wait_for(stream, WatchEvent::kArmed, root_));
  std::filesystem::create_symlink("/", root_ + "/link");
  ASSERT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/link"));
  const proto::FieldReader created = guest_.seen(stream).event(1);
  EXPECT_EQ(created.number(Tag::kFileType).value(), static_cast<std::uint64_t>(FileType::kSymlink));
  EXPECT_EQ(created.text(Tag::kResolved).value(), "/");
  EXPECT_EQ(created.text(Tag::kUserName).value(), "root");
  std::filesystem::remove(root_ + "/link");
  ASSERT_TRUE(wait_for(stream, WatchEvent::kRemoved, root_ + "/link"));
  EXPECT_FALSE(guest_.seen(stream).event(2).has(Tag::kMode));
}

TEST_F(Watch, ALinkToADirectoryIsFollowed) {
  std::filesystem::create_directory(root_ + "/d");
  std::filesystem::create_symlink("d", root_ + "/link");
  const std::uint32_t stream = guest_.open(
      Kind::kWatch, Fields().put(Tag::kPath, root_ + "/link").put_u8(Tag::kRecursive, 1));
  ASSERT_TRUE(wait_for(stream, WatchEvent::kArmed, root_ + "/link"));
  std::ofstream(root_ + "/d/f") << "x";
  EXPECT_TRUE(wait_for(stream, WatchEvent::kCreated, root_ + "/link/f"));
}

TEST_F(Watch, NeedsADirectory) {
  write(root_ + "/f", "x");
  const auto watch = [&](const std::string& path) {
    return guest_.finish_stream(guest_.open(Kind::kWatch, Fields().put(Tag::kPath, path)));
  };
  const Seen file = watch(root_ + "/f");
  EXPECT_EQ(file.error_text(), "watch " + root_ + "/f: it is not a directory");
  EXPECT_EQ(file.end().number(Tag::kErrorCode).value(),
            static_cast<std::uint64_t>(Code::kInvalidArgument));
  const Seen missing = watch(root_ + "/g");
  EXPECT_EQ(missing.error_text(), "watch " + root_ + "/g: No such file or directory");
  EXPECT_EQ(missing.end().number(Tag::kErrorCode).value(),
            static_cast<std::uint64_t>(Code::kNotFound));
}

TEST(WatchedFileSystems, ThoseOfTheNetworkAreKnown) {
  for (const std::uint64_t type : {0x6969u, 0xff534d42u, 0x65735546u, 0x01021997u})
    EXPECT_TRUE(is_network_file_system(type)) << type;
  // ext4, tmpfs, overlay
  for (const std::uint64_t type : {0xef53u, 0x01021994u, 0x794c7630u})
    EXPECT_FALSE(is_network_file_system(type)) << type;
}

}  // namespace
}  // namespace caisson::guest::testing
