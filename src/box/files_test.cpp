#include "box/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file_time.h"
#include "box/fake_supervisor.h"

namespace caisson::box {
namespace {

using proto::FrameType;
using proto::Tag;

// A guest that answers stat, list and read with what a test wants.
struct FakeEntry {
  std::string name;
  proto::FileType type = proto::FileType::kRegular;
  std::string content;  // or a link's target
  std::uint32_t mode = 0644;
  std::optional<std::uint64_t> modified = {};
};

std::string entry_fields(const FakeEntry& entry) {
  proto::Fields fields;
  fields.put(Tag::kName, entry.name)
      .put_u8(Tag::kFileType, static_cast<std::uint8_t>(entry.type))
      .put_u32(Tag::kMode, entry.mode);
  if (entry.modified) fields.put_u64(Tag::kMtimeNs, *entry.modified);
  if (entry.type == proto::FileType::kSymlink) fields.put(Tag::kTarget, entry.content);
  return fields.bytes();
}

class CopyOutTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-copy-out-XXXXXX";
    folder_ = ::mkdtemp(name);
    ASSERT_EQ(::mkdir((folder_ + "/to").c_str(), 0755), 0);
    ASSERT_EQ(::mkdir((folder_ + "/elsewhere").c_str(), 0755), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Copies /r, which is `top` with `entries` in it, to folder_/`to`.
  Status copy(FakeEntry top, std::vector<FakeEntry> entries, const std::string& to,
              std::uint64_t most = 1 << 20) {
    FakeSupervisor supervisor([top, entries](FakeSupervisor& peer) {
      peer.hello();
      for (;;) {
        const proto::Frame open = peer.next(FrameType::kOpen);
        if (open.header.stream == 0) return;
        const auto fields = proto::FieldReader::parse(open.payload);
        const std::string path(*fields->text(Tag::kPath));
        const auto operation = static_cast<proto::FileOperation>(*fields->number(Tag::kOperation));
        const std::uint32_t stream = open.header.stream;
        if (operation == proto::FileOperation::kStat) {
          peer.send(stream, FrameType::kEvent, 0, entry_fields(top));
        } else if (operation == proto::FileOperation::kList) {
          for (const FakeEntry& entry : entries)
            peer.send(stream, FrameType::kEvent, 0, entry_fields(entry));
        } else if (path == "/r") {
          peer.out(stream, top.content);
        } else {
          for (const FakeEntry& entry : entries)
            if ("/r/" + entry.name == path) peer.out(stream, entry.content);
        }
        peer.send(stream, FrameType::kClose, 0, {});
      }
    });
    Connection connection(supervisor.take_client());
    TRY_ASSIGN(const HostTarget target, open_host_target(folder_ + "/" + to));
    return copy_out(connection, "/r", target, "user", Existing::kMerge, most);
  }
  std::string text(const std::string& path) const {
    std::ifstream file(folder_ + "/" + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t count(const std::string& path) const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_ + "/" + path), {}));
  }
  std::string folder_;
};

constexpr auto kDirectory = proto::FileType::kDirectory;
constexpr auto kSymlink = proto::FileType::kSymlink;

TEST_F(CopyOutTest, AFileReplacesAFileWhole) {
  ASSERT_TRUE(copy({.content = "new", .mode = 06755}, {}, "to/file").has_value());
  EXPECT_EQ(text("to/file"), "new");
  struct stat info = {};
  ASSERT_EQ(::stat((folder_ + "/to/file").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07000, 0u);  // no set-id bit of the sandbox's
  EXPECT_NE(info.st_mode & 0100, 0u);
  ASSERT_TRUE(copy({.content = "newer"}, {}, "to/file").has_value());
  EXPECT_EQ(text("to/file"), "newer");
  EXPECT_EQ(count("to"), 1u);
}

TEST_F(CopyOutTest, AFileGoesIntoAnExistingFolder) {
  ASSERT_TRUE(copy({.content = "x"}, {}, "to").has_value());
  EXPECT_EQ(text("to/r"), "x");
}

TEST_F(CopyOutTest, ATreeIsMergedIntoAFolder) {
  const std::vector<FakeEntry> entries = {{.name = "d", .type = kDirectory},
                                          {.name = "d/f", .content = "inner"},
                                          {.name = "d/l", .type = kSymlink, .content = "../g"},
                                          {.name = "g", .content = std::string(10'000, 'g')}};
  ASSERT_TRUE(copy({.type = kDirectory}, entries, "to/new").has_value());
  EXPECT_EQ(text("to/new/d/f"), "inner");
  EXPECT_EQ(text("to/new/d/l"), std::string(10'000, 'g'));
  ASSERT_TRUE(copy({.type = kDirectory}, entries, "to/new").has_value());  // again, into itself
  EXPECT_EQ(count("to/new"), 2u);
}

TEST_F(CopyOutTest, FilesAndFoldersKeepTheirTime) {
  constexpr std::uint64_t kThen = 1'600'000'000'123'456'789;
  const std::vector<FakeEntry> entries = {
      {.name = "d", .type = kDirectory, .modified = kThen + 1},
      {.name = "d/f", .content = "inner", .modified = kThen + 2},
      {.name = "d/e", .type = kDirectory, .modified = static_cast<std::uint64_t>(INT64_MIN)},
      {.name = "d/e/g", .content = "g"}};  // without a time: now
  ASSERT_TRUE(copy({.type = kDirectory, .modified = kThen}, entries, "to/new").has_value());
  const auto modified = [&](const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat((folder_ + "/to/new" + path).c_str(), &info), 0) << path;
    return to_nanoseconds(info.st_mtim);
  };
  EXPECT_EQ(modified(""), kThen);
  EXPECT_EQ(modified("/d"), kThen + 1);
  EXPECT_EQ(modified("/d/f"), kThen + 2);
  EXPECT_GT(modified("/d/e/g"), kThen + 2);
}

TEST_F(CopyOutTest, ALinkOfTheHostIsReplacedAndNeverFollowed) {
  std::ofstream(folder_ + "/elsewhere/victim") << "safe";
  ASSERT_EQ(::symlink("../elsewhere/victim", (folder_ + "/to/file").c_str()), 0);
  ASSERT_TRUE(copy({.content = "x"}, {}, "to/file").has_value());
  EXPECT_FALSE(std::filesystem::is_symlink(folder_ + "/to/file"));
  EXPECT_EQ(text("to/file"), "x");
  EXPECT_EQ(text("elsewhere/victim"), "safe");
  ASSERT_EQ(::symlink("../elsewhere", (folder_ + "/to/d").c_str()), 0);
  EXPECT_FALSE(copy({.type = kDirectory},
                    {{.name = "d", .type = kDirectory}, {.name = "d/victim", .content = "bad"}},
                    "to")
                   .has_value());
  EXPECT_EQ(text("elsewhere/victim"), "safe");
}

TEST_F(CopyOutTest, AListingThatLeadsThroughItsOwnLinkWritesNowhereElse) {
  const auto copied = copy({.type = kDirectory},
                           {{.name = "in", .type = kDirectory},
                            {.name = "l", .type = kSymlink, .content = "in"},
                            {.name = "l/f", .content = "x"}},
                           "to/new");
  EXPECT_FALSE(copied.has_value());
  EXPECT_EQ(count("to/new/in"), 0u);
}

TEST_F(CopyOutTest, LinksThatLeadOutAreLeftOutAndNamed) {
  const auto copied = copy({.type = kDirectory},
                           {{.name = "a", .type = kSymlink, .content = "/etc/passwd"},
                            {.name = "b", .type = kSymlink, .content = "../elsewhere"},
                            {.name = "c", .content = "x"}},
                           "to/new");
  ASSERT_FALSE(copied.has_value());
  EXPECT_NE(copied.error().message().find("a, b"), std::string::npos) << copied.error().message();
  EXPECT_EQ(count("to/new"), 1u);
  EXPECT_EQ(text("to/new/c"), "x");
}

TEST_F(CopyOutTest, NamesThatAreNoPathBelowEndIt) {
  for (const char* name : {"../x", "/x", "a/../../x", "", "a//b", "."}) {
    const auto copied = copy({.type = kDirectory}, {{.name = name, .content = "x"}}, "to/new");
    ASSERT_FALSE(copied.has_value()) << name;
    EXPECT_EQ(copied.error().code(), Code::kDataLoss);
  }
  EXPECT_EQ(count("elsewhere"), 0u);
  EXPECT_EQ(count("to"), 1u);
}

TEST_F(CopyOutTest, DevicesPipesAndTopLinksAreRefused) {
  for (const auto type : {proto::FileType::kFifo, proto::FileType::kCharacterDevice, kSymlink})
    EXPECT_FALSE(copy({.type = type, .content = "/etc"}, {}, "to/x").has_value());
  EXPECT_FALSE(copy({.type = kDirectory}, {{.name = "p", .type = proto::FileType::kFifo}}, "to/x")
                   .has_value());
}

TEST_F(CopyOutTest, TooManyBytesEndItAndLeaveNoPart) {
  const auto copied = copy({.content = std::string(2000, 'x')}, {}, "to/file", 1000);
  ASSERT_FALSE(copied.has_value());
  EXPECT_EQ(copied.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(count("to"), 0u);
}

TEST_F(CopyOutTest, ZeroBlocksBecomeHoles) {
  std::string content(60'000, '\0');
  content += "end";
  ASSERT_TRUE(copy({.content = content}, {}, "to/file").has_value());
  EXPECT_EQ(text("to/file"), content);
  struct stat info = {};
  ASSERT_EQ(::stat((folder_ + "/to/file").c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 32'768);
}

}  // namespace
}  // namespace caisson::box
