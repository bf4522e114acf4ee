#include "wall/namespace/layer_quota.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::wall {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kSetUpRoom = 32 * 4096;

// On a disk, if this host has one there.
class QuotaLayerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "a loop device is root's alone";
    if (::access("/dev/loop-control", R_OK | W_OK) != 0)
      GTEST_SKIP() << "this host has no loop devices";
    char name[] = "/var/tmp/caisson-quota-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    path_ = name;
    directory_ = Fd(::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct statfs facts{};
    ASSERT_EQ(::fstatfs(directory_.get(), &facts), 0);
    if (lies_in_memory(static_cast<std::uint32_t>(facts.f_type)))
      GTEST_SKIP() << "/var/tmp lies in memory on this host";
  }
  void TearDown() override {
    if (path_.empty()) return;
    EXPECT_TRUE(std::filesystem::is_empty(path_));
    EXPECT_TRUE(await_no_devices());
    std::filesystem::remove_all(path_);
  }

  QuotaWish wish(std::uint64_t bytes = 16 * kMiB, std::uint64_t inodes = 100) const {
    return {.directory_fd = directory_.get(), .bytes = bytes, .inodes = inodes};
  }
  // Loop devices over files of our directory.
  std::size_t devices() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/block")) {
      const auto file =
          sys::read_file(AT_FDCWD, entry.path().string() + "/loop/backing_file", 4096);
      if (file && file->starts_with(path_ + "/")) ++count;
    }
    return count;
  }
  // Somebody who looks at every new block device may hold one for a moment.
  bool await_no_devices() const {
    for (int i = 0; i < 200 && devices() != 0; ++i) ::usleep(10'000);
    return devices() == 0;
  }

  std::string path_;
  Fd directory_;
};

// Bytes that can be written to one file before the error, which is returned.
std::pair<std::uint64_t, int> fill(int root_fd) {
  const Fd file(::openat(root_fd, "full", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const std::string block(kMiB, 'x');
  std::uint64_t total = 0;
  for (;;) {
    const ssize_t wrote = ::write(file.get(), block.data(), block.size());
    if (wrote <= 0) return {total, errno};
    total += static_cast<std::uint64_t>(wrote);
  }
}

TEST_F(QuotaLayerTest, HoldsTheBytesAndLooksFullThen) {
  auto layer = make_quota_layer(wish(5 * kMiB));
  ASSERT_TRUE(layer) << layer.error().message();
  const auto [bytes, error] = fill(layer->root.get());
  EXPECT_EQ(error, ENOSPC);
  EXPECT_GE(bytes, 5 * kMiB);
  EXPECT_LE(bytes, 5 * kMiB + kSetUpRoom);
  const auto use = use_of_layer(layer->root.get());
  ASSERT_TRUE(use);
  EXPECT_EQ(use->bytes_left, 0u);
  EXPECT_GE(use->bytes - layer->before.bytes, bytes);
}

TEST_F(QuotaLayerTest, HoldsTheInodesAndGivesThemBack) {
  auto layer = make_quota_layer(wish(kMiB, 50));
  ASSERT_TRUE(layer) << layer.error().message();
  const auto make = [&](int number) {
    return ::mknodat(layer->root.get(), std::to_string(number).c_str(), S_IFREG | 0600, 0) == 0;
  };
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(make(i)) << i;
  EXPECT_FALSE(make(50));
  EXPECT_EQ(errno, ENOSPC);
  const auto use = use_of_layer(layer->root.get());
  ASSERT_TRUE(use);
  EXPECT_EQ(use->inodes_left, 0u);
  EXPECT_EQ(use->inodes - layer->before.inodes, 50u);
  ASSERT_EQ(::unlinkat(layer->root.get(), "7", 0), 0);
  EXPECT_TRUE(make(50));
  EXPECT_FALSE(make(51));
}

TEST_F(QuotaLayerTest, BelongsToWhomItIsMadeForAndHasItsFlags) {
  QuotaWish wanted = wish();
  wanted.root_uid = 0x6ffe0007;
  wanted.root_gid = 0x6ffe0009;
  wanted.attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  auto layer = make_quota_layer(wanted);
  ASSERT_TRUE(layer) << layer.error().message();
  struct stat facts{};
  ASSERT_EQ(::fstat(layer->root.get(), &facts), 0);
  EXPECT_EQ(facts.st_uid, 0x6ffe0007u);
  EXPECT_EQ(facts.st_gid, 0x6ffe0009u);
  EXPECT_EQ(facts.st_mode, S_IFDIR | 0755u);
  struct statvfs mount{};
  ASSERT_EQ(::fstatvfs(layer->root.get(), &mount), 0);
  EXPECT_EQ(mount.f_flag & (ST_NOSUID | ST_NODEV | ST_RDONLY), ST_NOSUID | ST_NODEV);
}

TEST_F(QuotaLayerTest, WithoutLimitsIsAsLargeAsTheDiskHasRoom) {
  struct statvfs disk{};
  ASSERT_EQ(::fstatvfs(directory_.get(), &disk), 0);
  auto layer = make_quota_layer(wish(0, 0));
  ASSERT_TRUE(layer) << layer.error().message();
  const auto use = use_of_layer(layer->root.get());
  ASSERT_TRUE(use);
  EXPECT_GE(use->bytes_left, disk.f_bavail * disk.f_frsize / 2);
  EXPECT_GE(use->inodes_left, 1024u);
}

TEST_F(QuotaLayerTest, IsGoneWithItsLastDescriptor) {
  {
    auto layer = make_quota_layer(wish());
    ASSERT_TRUE(layer) << layer.error().message();
    EXPECT_EQ(devices(), 1u);
    EXPECT_TRUE(std::filesystem::is_empty(path_));
  }
  EXPECT_TRUE(await_no_devices());
}

TEST_F(QuotaLayerTest, IsGoneWithAMakerThatIsKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto layer = make_quota_layer(wish());
    if (!layer || fill(layer->root.get()).second != ENOSPC) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(await_no_devices());
}

TEST_F(QuotaLayerTest, AbandonedTakesNothingMore) {
  auto layer = make_quota_layer(wish());
  ASSERT_TRUE(layer) << layer.error().message();
  const Fd file(::openat(layer->root.get(), "x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(file.get(), "x", 1), 1);
  abandon_layer(*layer);
  EXPECT_FALSE(layer->root.valid() || layer->mount.valid());
  EXPECT_EQ(::fsync(file.get()), -1);
  EXPECT_EQ(errno, EIO);
  abandon_layer(*layer);  // as when the set-up failed before there was one
}

TEST_F(QuotaLayerTest, ManyAtOnceGetADeviceEach) {
  std::vector<pid_t> children;
  for (int i = 0; i < 12; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int round = 0; round < 5; ++round) {
        auto layer = make_quota_layer(wish(kMiB, 20));
        if (!layer) ::_exit(1);
        if (::mkdirat(layer->root.get(), "mine", 0700) != 0) ::_exit(2);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(QuotaLayerTest, RefusesADirectoryInMemory) {
  const Fd memory(::open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct statfs facts{};
  if (!memory.valid() || ::fstatfs(memory.get(), &facts) != 0 || facts.f_type != TMPFS_MAGIC)
    GTEST_SKIP() << "/dev/shm is no tmpfs on this host";
  QuotaWish wanted = wish();
  wanted.directory_fd = memory.get();
  const auto layer = make_quota_layer(wanted);
  ASSERT_FALSE(layer);
  EXPECT_THAT(layer.error().message(), HasSubstr("/dev/shm lies in memory; allowed are"));
}

TEST_F(QuotaLayerTest, RefusesAFileSystemWithoutNamelessFiles) {
  const Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  QuotaWish wanted = wish();
  wanted.directory_fd = proc.get();
  const auto layer = make_quota_layer(wanted);
  ASSERT_FALSE(layer);
  EXPECT_THAT(layer.error().message(), HasSubstr("a file without a name in /proc"));
  EXPECT_THAT(layer.error().message(), HasSubstr("allowed is layer: tmpfs"));
}

TEST_F(QuotaLayerTest, RefusesMoreThanItCanCount) {
  const auto layer = make_quota_layer(wish(16ull << 40));
  ASSERT_FALSE(layer);
  EXPECT_THAT(layer.error().message(), HasSubstr("limits.disk: found 17592186044416 bytes"));
  EXPECT_THAT(layer.error().message(), HasSubstr("allowed is at most 15TiB"));
}

TEST_F(QuotaLayerTest, RefusesAHostWithoutLoopDevices) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/dev", "tmpfs", 0, "size=64k") != 0)
      ::_exit(1);
    const auto layer = make_quota_layer(wish());
    const bool refused =
        !layer && layer.error().message().find("open /dev/loop-control") != std::string::npos &&
        layer.error().message().find("allowed is layer: tmpfs") != std::string::npos;
    ::_exit(refused ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace caisson::wall
