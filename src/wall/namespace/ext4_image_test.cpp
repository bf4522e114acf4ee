#include "wall/namespace/ext4_image.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/fd.h"

namespace caisson::wall {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr const char* kChecker = "/sbin/e2fsck";

// What the kernel lets nobody use (ext4_calculate_resv_clusters).
std::uint64_t kept_back(const Ext4Layout& layout) {
  return std::min<std::uint64_t>(layout.blocks / 50, 4096);
}

class TemporaryFile {
 public:
  TemporaryFile() {
    char name[] = "/tmp/caisson-ext4-XXXXXX";
    fd_ = Fd(::mkostemp(name, O_CLOEXEC));
    path_ = name;
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  Fd fd_;
  std::string path_;
};

TEST(Ext4Image, GivesWhatWasAskedForAndLessThanABlockMore) {
  for (const std::uint64_t bytes :
       {std::uint64_t{1}, 64 * std::uint64_t{1024}, 16 * kMiB + 1, 128 * kMiB, 256 * kMiB,
        1024 * kMiB + 4095, 64 * 1024 * kMiB, 1024 * 1024 * kMiB, kMostExt4Bytes}) {
    for (const std::uint64_t inodes :
         {1ull, 16ull, 500ull, 32'758ull, 32'759ull, 100'000ull, 1'000'000ull, 1'000'000'000ull}) {
      const Ext4Layout layout = plan_ext4(bytes, inodes);
      const std::string what = std::to_string(bytes) + " bytes, " + std::to_string(inodes);
      const std::uint64_t free = layout.end_free - layout.first_free - kept_back(layout);
      EXPECT_EQ(free, (bytes + 4095) / 4096) << what;
      EXPECT_EQ(layout.inodes, inodes) << what;
      EXPECT_GE(std::uint64_t{layout.groups} * layout.inodes_per_group, inodes + 10) << what;
      // What the kernel insists on.
      const std::uint64_t size = layout.blocks_per_group;
      EXPECT_EQ((layout.blocks + size - 1) / size, layout.groups) << what;
      EXPECT_LE(size, 32768u) << what;
      EXPECT_EQ(size % 8, 0u) << what;
      EXPECT_LE(layout.inodes_per_group, 32768u) << what;
      EXPECT_EQ(layout.inodes_per_group, layout.table_blocks * 16) << what;
      EXPECT_GT(layout.first_free, layout.root_block()) << what;
      EXPECT_LE(layout.end_free, layout.blocks) << what;
    }
  }
}

TEST(Ext4Image, KeepsAProgramsBytesAwayFromBothEndsOfTheDevice) {
  const Ext4Layout layout = plan_ext4(64 * 1024, 16);
  EXPECT_EQ(layout.first_free * kExt4Block, kMiB);
  EXPECT_EQ(layout.image_bytes() - layout.blocks * kExt4Block, kMiB);
}

// Another implementation reads it as a clean file system. Where inodes are held back, or blocks at
// either end, it would count other numbers than we wrote: these have none.
TEST(Ext4Image, IsCleanToTheFileSystemChecker) {
  if (::access(kChecker, X_OK) != 0) GTEST_SKIP() << kChecker << " is not on this host";
  constexpr std::pair<std::uint64_t, std::uint64_t> kSizes[] = {
      {64 * kMiB, 32'758},           // one group, as many inodes as it can have
      {1024 * kMiB, 9 * 2048 - 10},  // several groups
      {16 * kMiB, 4 * 32768 - 10},   // smaller groups for the inodes' sake
  };
  for (auto [bytes, inodes] : kSizes) {
    const TemporaryFile file;
    Ext4Layout layout = plan_ext4(bytes, inodes);
    while (layout.end_free != layout.blocks) layout = plan_ext4(bytes += kExt4Block, inodes);
    ASSERT_EQ(::ftruncate(file.fd(), static_cast<off_t>(layout.image_bytes())), 0);
    const Ext4Identity identity = {
        .root_uid = 0x6ffe0003, .root_gid = 0x6ffe0004, .uuid = {1, 2, 3}, .hash_seed = {4}};
    const auto written = write_ext4(file.fd(), layout, identity);
    ASSERT_TRUE(written) << written.error().message();
    const std::string command = std::string(kChecker) + " -fn " + file.path() + " >&2";
    EXPECT_EQ(std::system(command.c_str()), 0) << bytes << " bytes, " << inodes << " inodes";
  }
}

TEST(Ext4Image, WritesAFewBlocksWhateverItsSize) {
  const TemporaryFile file;
  const Ext4Layout layout = plan_ext4(4096 * kMiB, 100'000);
  ASSERT_EQ(::ftruncate(file.fd(), static_cast<off_t>(layout.image_bytes())), 0);
  ASSERT_TRUE(write_ext4(file.fd(), layout, {}));
  struct stat facts{};
  ASSERT_EQ(::fstat(file.fd(), &facts), 0);
  EXPECT_LE(facts.st_blocks, 64 * 8);
}

TEST(Ext4Image, SaysWhichBlockCannotBeWritten) {
  const TemporaryFile file;
  const Fd reader(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
  const auto written = write_ext4(reader.get(), plan_ext4(kMiB, 100), {});
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message(), HasSubstr("write block 0 of the layer"));
}

}  // namespace
}  // namespace caisson::wall
