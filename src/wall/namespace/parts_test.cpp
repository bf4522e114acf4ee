#include "wall/namespace/parts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "image/mount.h"

namespace caisson::wall {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kGuest = 0x7ffc0fff, kBlock = 0x7ffb0000;
constexpr uid_t kOverflow = 65534;

Ids root_ids() {
  Ids ids;
  ids.mode = IdMode::kRoot;
  ids.outer_uids = ids.outer_gids = {{0, kGuest, 1}, {1, kBlock, 65536}};
  ids.inner_uids = ids.inner_gids = {{0, 1, 65536}};
  return ids;
}

// What one end of a pair says and the other makes of it.
class Words : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here_ = Fd(ends[0]);
    there_ = Fd(ends[1]);
  }
  Fd here_, there_;
};

TEST_F(Words, AStillbirthKeepsWhetherTheHostLacksSomething) {
  send_stillbirth(there_.get(), Error::precondition("gateway: no veth"));
  auto birth = receive_birth(here_.get());
  ASSERT_FALSE(birth.has_value());
  EXPECT_EQ(birth.error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(birth.error().message(), "in gateway: no veth");
  send_stillbirth(there_.get(), Error::invalid("etc: fault"));
  birth = receive_birth(here_.get());
  ASSERT_FALSE(birth.has_value());
  EXPECT_EQ(birth.error().code(), Code::kInternal);
  EXPECT_EQ(birth.error().message(), "in etc: fault");
  there_.reset();
  EXPECT_THAT(receive_birth(here_.get()).error().message(), HasSubstr("the setup child died"));
}

TEST_F(Words, SpacesComeWithAGatewayOrWithout) {
  ASSERT_TRUE(send_spaces(there_.get(), {}).has_value());
  EXPECT_FALSE(receive_spaces(here_.get())->valid());
  const auto file = [] { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); };
  ASSERT_TRUE(send_spaces(there_.get(), {file(), file(), file(), file()}).has_value());
  const auto spaces = receive_spaces(here_.get());
  ASSERT_TRUE(spaces.has_value());
  EXPECT_TRUE(spaces->tcp.valid() && spaces->dns_udp.valid() && spaces->dns_tcp.valid() &&
              spaces->namespace_fd.valid());
}

TEST_F(Words, SpacesThatWereNotMadeSayWhy) {
  send_stillbirth(there_.get(), Error::precondition("gateway: no nftables"));
  auto spaces = receive_spaces(here_.get());
  ASSERT_FALSE(spaces.has_value());
  EXPECT_EQ(spaces.error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(spaces.error().message(), "gateway: no nftables");
  const Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int one[] = {file.get()};
  ASSERT_TRUE(sys::send_message(there_.get(), "ok ", one).has_value());
  EXPECT_THAT(receive_spaces(here_.get()).error().message(), HasSubstr("did not arrive"));
  there_.reset();
  EXPECT_THAT(receive_spaces(here_.get()).error().message(), HasSubstr("maker died"));
}

// A program that says what its effective user is: its exit status, 0 for root, else 1.
constexpr const char* kWhoAmI = "#include <unistd.h>\nint main(void) { return geteuid() != 0; }\n";

// An image as an erofs file, with set-user-id programs of root and of an id that no image may have.
class ErofsImage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    char name[] = "/var/tmp/caisson-parts-XXXXXX";
    folder_ = ::mkdtemp(name);
    const Fd place(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!image::try_mounts(place.get()).mounts_erofs())
      GTEST_SKIP() << "this host mounts no erofs from a file";
    ::mkdir((folder_ + "/tree").c_str(), 0755);
    std::ofstream(folder_ + "/who.c") << kWhoAmI;
    run("cc -static -o " + folder_ + "/tree/root " + folder_ + "/who.c");
    run("cp " + folder_ + "/tree/root " + folder_ + "/tree/beyond");
    run("chown 70000:70000 " + folder_ + "/tree/beyond && chmod 6755 " + folder_ + "/tree/*");
    run("mkfs.erofs " + folder_ + "/rootfs.erofs " + folder_ + "/tree >/dev/null 2>&1");
    ::chmod(folder_.c_str(), 0755);
    file_ = Fd(::open((folder_ + "/rootfs.erofs").c_str(), O_RDONLY | O_CLOEXEC));
    auto mount = image::mount_erofs(file_.get(), image::ErofsMethod::kBuffered);
    ASSERT_TRUE(mount.has_value()) << mount.error().message();
    mount_ = std::move(*mount);
    plan_.image = PlanImage::kMount;
    plan_.descriptors = {mount_.get(), file_.get()};
    plan_.image_fd = 0;
    plan_.image_file_fd = 1;
  }
  void TearDown() override {
    mount_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  static void run(const std::string& command) {
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static struct stat facts(const Fd& mount, const char* name) {
    struct stat found{};
    EXPECT_EQ(::fstatat(mount.get(), name, &found, AT_SYMLINK_NOFOLLOW), 0) << name;
    return found;
  }
  // What an unprivileged process of the host becomes by running it, should it ever reach it.
  static int run_as_nobody(const Fd& mount, const char* name) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresgid(kOverflow, kOverflow, kOverflow) != 0 ||
          ::setresuid(kOverflow, kOverflow, kOverflow) != 0)
        ::_exit(99);
      char word[] = "who";
      char* arguments[] = {word, nullptr};
      char* nothing[] = {nullptr};
      ::syscall(SYS_execveat, mount.get(), name, arguments, nothing, 0);
      ::_exit(98);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string folder_;
  Fd file_, mount_;
  Plan plan_;
};

TEST_F(ErofsImage, BeforeItsIdsAreMappedASetUserIdModeMeansNothing) {
  EXPECT_EQ(facts(mount_, "root").st_uid, 0u);
  EXPECT_EQ(run_as_nobody(mount_, "root"), 1);
}

TEST_F(ErofsImage, ItsRootIsTheSandboxsAndWhatNoImageMayHaveIsNobodys) {
  for (const std::uint8_t privileges : {std::uint8_t{0}, std::uint8_t{1}}) {
    // Each sandbox has a mount of its own: a mapping is given once.
    auto again = image::mount_erofs(file_.get(), image::ErofsMethod::kBuffered);
    ASSERT_TRUE(again.has_value()) << again.error().message();
    plan_.descriptors[0] = again->get();
    plan_.privileges = privileges;
    Steps steps("");
    auto parts = make_parts(plan_, root_ids(), steps);
    ASSERT_TRUE(parts.has_value()) << parts.error().message();
    // Where tmpfs has no user attributes the image is under the overlay already.
    const Fd& image = parts->images[0].valid() ? parts->images[0] : parts->overlay;
    EXPECT_EQ(facts(image, "root").st_uid, kBlock);
    EXPECT_EQ(facts(image, "root").st_gid, kBlock);
    EXPECT_EQ(facts(image, "beyond").st_uid, kOverflow);
    struct statfs mounted{};
    ASSERT_EQ(::fstatfs(image.get(), &mounted), 0);
    EXPECT_TRUE(mounted.f_flags & MS_NODEV);
    EXPECT_EQ((mounted.f_flags & MS_NOSUID) != 0, privileges == 0);
    // With privileges: sudo set-id modes count inside; even then nothing makes root of the host.
    EXPECT_EQ(run_as_nobody(image, "root"), 1);
    EXPECT_EQ(run_as_nobody(image, "beyond"), 1);
  }
}

TEST_F(ErofsImage, AMountServesOneSandbox) {
  Steps steps("");
  ASSERT_TRUE(make_parts(plan_, root_ids(), steps).has_value());
  EXPECT_FALSE(make_parts(plan_, root_ids(), steps).has_value());
}

TEST_F(ErofsImage, OnlyRootsSandboxesHaveOne) {
  Steps steps("");
  Ids ids = root_ids();
  ids.mode = IdMode::kSingle;
  auto parts = make_parts(plan_, ids, steps);
  ASSERT_FALSE(parts.has_value());
  EXPECT_THAT(parts.error().message(), HasSubstr("only root's sandboxes"));
}

}  // namespace
}  // namespace caisson::wall
