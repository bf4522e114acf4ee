// The overlay that is made outside, for kernels whose tmpfs has no user attributes, over one root
// and over several.
#include "wall/namespace/layer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::wall {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kGuest = 0x7ffc0ffe, kBlock = 0x7ffa0000;

class OuterOverlayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    char name[] = "/var/tmp/caisson-layer-XXXXXX";
    folder_ = ::mkdtemp(name);
    ids_.mode = IdMode::kRoot;
    ids_.outer_uids = ids_.outer_gids = {{0, kGuest, 1}, {1, kBlock, 65536}};
    ids_.inner_uids = ids_.inner_gids = {{0, 1, 65536}};
    plan_.disk = 16 << 20;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(folder_ + "/" + path).parent_path());
    std::ofstream(folder_ + "/" + path) << text;
  }
  // The overlay over these directories, the uppermost first.
  Result<OuterOverlay> overlay(const std::vector<std::string>& roots) {
    std::vector<Fd> images;
    for (const std::string& root : roots) {
      TRY_ASSIGN(images.emplace_back(),
                 sys::open_tree(AT_FDCWD, folder_ + "/" + root, OPEN_TREE_CLONE));
    }
    return make_outer_overlay(plan_, ids_, 0, images);
  }
  static bool has(const OuterOverlay& made, const char* path) {
    return ::faccessat(made.overlay.get(), path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  }

  std::string folder_;
  Ids ids_;
  Plan plan_;
};

TEST_F(OuterOverlayTest, ShowsAndKeepsWhatChanges) {
  write("one/dir/file", "text");
  ASSERT_EQ(::chmod((folder_ + "/one").c_str(), 0711), 0);
  auto made = overlay({"one"});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_TRUE(has(*made, "dir/file"));
  struct stat root{};
  ASSERT_EQ(::fstat(made->overlay.get(), &root), 0);
  EXPECT_EQ(root.st_mode & 07777, 0711u);
  EXPECT_EQ(root.st_uid, kBlock);
  // What a tmpfs without user attributes cannot remember otherwise.
  ASSERT_EQ(::unlinkat(made->overlay.get(), "dir/file", 0), 0);
  ASSERT_EQ(::unlinkat(made->overlay.get(), "dir", AT_REMOVEDIR), 0);
  EXPECT_FALSE(has(*made, "dir"));
  EXPECT_TRUE(fs::exists(folder_ + "/one/dir/file"));
}

TEST_F(OuterOverlayTest, SeveralRootsHideByWhiteoutsAndUserAttributes) {
  for (const char* name : {"gone", "fresh/old", "merged/old"})
    write("lower/" + std::string(name), "lower");
  write("upper/fresh/new", "upper");
  write("upper/merged/new", "upper");
  ASSERT_EQ(::mknod((folder_ + "/upper/gone").c_str(), S_IFCHR, makedev(0, 0)), 0);
  ASSERT_EQ(::setxattr((folder_ + "/upper/fresh").c_str(), "user.overlay.opaque", "y", 1, 0), 0);
  ASSERT_EQ(::chmod((folder_ + "/upper").c_str(), 0700), 0);
  auto made = overlay({"upper", "lower"});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  for (const char* name : {"fresh/new", "merged/new", "merged/old"}) EXPECT_TRUE(has(*made, name));
  for (const char* name : {"gone", "fresh/old"}) EXPECT_FALSE(has(*made, name));
  struct stat root{};
  ASSERT_EQ(::fstat(made->overlay.get(), &root), 0);
  EXPECT_EQ(root.st_mode & 07777, 0700u);
  ASSERT_EQ(::unlinkat(made->overlay.get(), "merged/old", 0), 0);
  EXPECT_FALSE(has(*made, "merged/old"));
}

}  // namespace
}  // namespace caisson::wall
