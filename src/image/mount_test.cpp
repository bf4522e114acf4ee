#include "image/mount.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "image/files.h"

namespace caisson::image {
namespace {

// A directory of its own as a chain of the store; on a disk, since a file in memory mounts from no
// file.
class Chain {
 public:
  Chain() {
    char name[] = "/var/tmp/caisson-mount-XXXXXX";
    path_ = ::mkdtemp(name);
    fd_ = Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ::setenv("CAISSON_RUN_DIR", (path_ + "/run").c_str(), 1);
  }
  ~Chain() {
    ::unsetenv("CAISSON_RUN_DIR");
    const Fd above(::open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    (void)remove_tree_at(above.get(), path_.substr(sizeof "/var/tmp/" - 1));
  }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

  // rootfs.erofs with one file, `hello`.
  void add_erofs() {
    ::mkdir((path_ + "/tree").c_str(), 0755);
    std::ofstream(path_ + "/tree/hello") << "from erofs\n";
    const std::string command =
        "mkfs.erofs " + path_ + "/rootfs.erofs " + path_ + "/tree >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command << " (Debian's package erofs-utils)";
  }
  void add_directory() {
    ::mkdir((path_ + "/rootfs").c_str(), 0755);
    std::ofstream(path_ + "/rootfs/hello") << "from a directory\n";
  }

 private:
  std::string path_;
  Fd fd_;
};

std::string hello_in(const Fd& root) {
  auto text = sys::read_file(root.get(), "hello", 64);
  return text.has_value() ? *text : text.error().message();
}

std::string mount_table() {
  std::ifstream file("/proc/self/mountinfo");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool works(ErofsMethod method) {
  Chain chain;
  return try_mounts(chain.fd())[method] == 0;
}

TEST(OpenRoot, ADirectoryIsOpened) {
  Chain chain;
  chain.add_directory();
  auto root = open_root(chain.fd());
  ASSERT_TRUE(root.has_value()) << root.error().message();
  EXPECT_FALSE(root->mounted);
  EXPECT_EQ(hello_in(root->fd), "from a directory\n");
}

TEST(OpenRoot, NeitherFormIsAnError) {
  Chain chain;
  auto root = open_root(chain.fd());
  ASSERT_FALSE(root.has_value());
  EXPECT_EQ(root.error().code(), Code::kDataLoss);
  EXPECT_NE(root.error().message().find("neither rootfs.erofs nor rootfs"), std::string::npos);
}

TEST(OpenRoot, ALinkIsNotFollowed) {
  Chain chain;
  ASSERT_EQ(::symlink("/etc/passwd", (chain.path() + "/rootfs.erofs").c_str()), 0);
  EXPECT_FALSE(open_root(chain.fd()).has_value());
  ASSERT_EQ(::unlink((chain.path() + "/rootfs.erofs").c_str()), 0);
  ASSERT_EQ(::symlink("/etc", (chain.path() + "/rootfs").c_str()), 0);
  EXPECT_FALSE(open_root(chain.fd()).has_value());
}

TEST(OpenRoot, AFileThatIsNoErofsSaysWhatEachWayMet) {
  Chain chain;
  std::ofstream(chain.path() + "/rootfs.erofs") << std::string(8192, 'x');
  auto root = open_root(chain.fd());
  ASSERT_FALSE(root.has_value());
  EXPECT_EQ(root.error().code(), Code::kFailedPrecondition);
  EXPECT_NE(root.error().message().find("buffered: "), std::string::npos);
  EXPECT_NE(root.error().message().find("loop: "), std::string::npos);
}

class EachMethod : public testing::TestWithParam<ErofsMethod> {};

TEST_P(EachMethod, MountsReadOnlyWithoutDevicesAndSetIdModesAndUnattached) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  if (!works(GetParam())) GTEST_SKIP() << "not on this host";
  Chain chain;
  chain.add_erofs();
  const Fd file(::open((chain.path() + "/rootfs.erofs").c_str(), O_RDONLY | O_CLOEXEC));
  const std::string before = mount_table();
  auto mount = mount_erofs(file.get(), GetParam());
  ASSERT_TRUE(mount.has_value()) << mount.error().message();
  EXPECT_EQ(mount_table(), before);
  EXPECT_EQ(hello_in(*mount), "from erofs\n");
  struct statfs facts{};
  ASSERT_EQ(::fstatfs(mount->get(), &facts), 0);
  const long wanted = MS_RDONLY | MS_NODEV | MS_NOSUID;
  EXPECT_EQ(facts.f_flags & wanted, wanted);
  EXPECT_EQ(::openat(mount->get(), "new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), -1);
  EXPECT_EQ(errno, EROFS);
}

INSTANTIATE_TEST_SUITE_P(Mount, EachMethod,
                         testing::Values(ErofsMethod::kBuffered, ErofsMethod::kLoop),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(OpenRoot, AnErofsFileIsMounted) {
  if (!works(ErofsMethod::kBuffered) && !works(ErofsMethod::kLoop))
    GTEST_SKIP() << "erofs cannot be mounted here";
  Chain chain;
  chain.add_erofs();
  auto root = open_root(chain.fd());
  ASSERT_TRUE(root.has_value()) << root.error().message();
  EXPECT_TRUE(root->mounted);
  EXPECT_EQ(hello_in(root->fd), "from erofs\n");
}

TEST(OpenRoot, WithoutRightsTheErrorSaysWhatIsAllowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  Chain chain;
  chain.add_erofs();
  ASSERT_EQ(::chmod(chain.path().c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    auto root = open_root(chain.fd());
    const bool said = !root.has_value() && root.error().code() == Code::kFailedPrecondition &&
                      root.error().message().find("caisson doctor") != std::string::npos;
    const MountSupport support = try_mounts(chain.fd());
    ::_exit(said && support[ErofsMethod::kBuffered] == EPERM && !support.mounts_erofs() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(MountSupport, AttributesShowWhereTheKernelHasThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  Chain chain;
  if (!works(ErofsMethod::kBuffered)) GTEST_SKIP() << "erofs cannot be mounted here";
  EXPECT_TRUE(erofs_shows_attributes(chain.fd()));
  EXPECT_FALSE(erofs_shows_attributes(-1));
}

TEST(MountSupport, ItsTextIsReadBackAndNothingElseIs) {
  MountSupport support{};
  support.error = {0, ENOENT};
  const std::string text = support.encode();
  EXPECT_EQ(text, "caisson-erofs-mounts 2\nbuffered 0\nloop 2\nattributes no\n");
  auto again = MountSupport::decode(text);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, support);
  support.attributes = true;
  again = MountSupport::decode(support.encode());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, support);
  for (const std::string bad :
       {"", "caisson-erofs-mounts 2\n", "caisson-erofs-mounts 2\nbuffered 0\n",
        "caisson-erofs-mounts 1\nbuffered 0\nloop 0\n",
        "caisson-erofs-mounts 2\nbuffered x\nloop 0\nattributes no\n",
        "caisson-erofs-mounts 2\nbuffered -1\nloop 0\nattributes no\n",
        "caisson-erofs-mounts 2\nbuffered 0\nloop 0\n",
        "caisson-erofs-mounts 2\nbuffered 0\nloop 0\nattributes maybe\n",
        "caisson-erofs-mounts 2\nbuffered 0\nloop 0\nattributes no"})
    EXPECT_FALSE(MountSupport::decode(bad).has_value()) << bad;
  EXPECT_FALSE(MountSupport::decode(text + "more\n").has_value());
}

TEST(MountSupport, IsRememberedForThisBootAndFileSystemAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "others can mount none";
  Chain chain;
  const MountSupport tried = known_mounts(chain.fd());
  EXPECT_EQ(tried, try_mounts(chain.fd()));
  const std::string path = chain.path() + "/run/erofs-mounts";
  auto kept = read_small_file(path);
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  // What stands there is believed …
  MountSupport other{};
  other.error.fill(ENOTBLK);
  const std::string head = kept->substr(0, kept->size() - tried.encode().size());
  std::ofstream(path) << head << other.encode();
  EXPECT_EQ(known_mounts(chain.fd()), other);
  // … of this boot, well-formed, and until somebody looks again.
  std::ofstream(path) << "boot another\n" << other.encode();
  EXPECT_EQ(known_mounts(chain.fd()), tried);
  std::ofstream(path) << head << "caisson-erofs-mounts 2\nbroken\n";
  EXPECT_EQ(known_mounts(chain.fd()), tried);
  std::ofstream(path) << head << other.encode();
  EXPECT_EQ(refresh_mounts(chain.fd()), tried);
  EXPECT_EQ(known_mounts(chain.fd()), tried);
}

}  // namespace
}  // namespace caisson::image
