#include "api/rights.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "api/server_calls.h"
#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::api {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string pattern = fs::temp_directory_path() / "rights-XXXXXX";
    VERIFY(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const {
    std::ofstream(path_ / name) << "x";
    return path_ / name;
  }
  fs::path path() const { return path_; }

 private:
  fs::path path_;
};

struct stat facts_of(const std::string& path) {
  struct stat facts{};
  EXPECT_EQ(::lstat(path.c_str(), &facts), 0) << path;
  return facts;
}

// What a process of its own returns: a filter is for good.
int in_a_process(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(ServerUser, NumbersAreTakenAsTheyAre) {
  const auto user = find_server_user("990:991");
  ASSERT_TRUE(user.has_value());
  EXPECT_EQ(user->uid, 990u);
  EXPECT_EQ(user->gid, 991u);
  EXPECT_EQ(find_server_user("990")->gid, 990u);
}

TEST(ServerUser, ANameIsLookedUp) {
  const auto user = find_server_user("nobody");
  ASSERT_TRUE(user.has_value()) << user.error().message();
  EXPECT_NE(user->uid, 0u);
}

TEST(ServerUser, RootAndStrangersAreRefused) {
  for (const char* name : {"root", "0", "0:5", "no-such-user-here", "12:x"}) {
    const auto user = find_server_user(name);
    ASSERT_FALSE(user.has_value()) << name;
    EXPECT_TRUE(user.error().message().contains(name)) << user.error().message();
  }
}

class GiveFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  }
  const ServerUser user_{.uid = 990, .gid = 991, .groups = {}};
};

TEST_F(GiveFolder, IsMadeForTheUserAlone) {
  const Folder folder;
  const std::string path = folder.path() / "new";
  ASSERT_TRUE(give_folder(path, user_).has_value());
  EXPECT_EQ(facts_of(path).st_uid, 990u);
  EXPECT_EQ(facts_of(path).st_gid, 991u);
  EXPECT_EQ(facts_of(path).st_mode & 07777, 0700u);
}

TEST_F(GiveFolder, ItsFilesGoAlongAndNothingElse) {
  const Folder folder, other;
  const std::string own = folder.file("own"), linked = folder.file("linked");
  const std::string elsewhere = other.file("elsewhere");
  fs::create_symlink(elsewhere, folder.path() / "link");
  fs::create_hard_link(linked, other.path() / "second name");
  const std::string foreign = folder.file("foreign");
  ASSERT_EQ(::chown(foreign.c_str(), 1234, 1234), 0);
  ASSERT_TRUE(give_folder(folder.path(), user_).has_value());
  EXPECT_EQ(facts_of(own).st_uid, 990u);
  EXPECT_EQ(facts_of(linked).st_uid, 0u);
  EXPECT_EQ(facts_of(elsewhere).st_uid, 0u);
  EXPECT_EQ(facts_of(foreign).st_uid, 1234u);
}

TEST_F(GiveFolder, WhatIsTheUsersAlreadyIsLeftAsItIs) {
  const Folder folder;
  ASSERT_TRUE(give_folder(folder.path(), user_).has_value());
  const std::string later = folder.file("root's");
  ASSERT_TRUE(give_folder(folder.path(), user_).has_value());
  EXPECT_EQ(facts_of(later).st_uid, 0u);
}

TEST_F(GiveFolder, OneThatOthersMayWriteToIsRefused) {
  const Folder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  const auto given = give_folder(folder.path(), user_);
  ASSERT_FALSE(given.has_value());
  EXPECT_TRUE(given.error().message().contains("chmod 0700")) << given.error().message();
}

TEST(MakePassable, OthersMayGoThroughAndNotLookAround) {
  const Folder folder;
  const std::string path = folder.path() / "new";
  ASSERT_TRUE(make_passable(path).has_value());
  EXPECT_EQ(facts_of(path).st_mode & 07777, 0711u);
  ASSERT_TRUE(make_passable(path).has_value());
  EXPECT_FALSE(make_passable(folder.file("file")).has_value());
}

TEST(ConfineServer, LeavesNoRightAndNoWayToGetOne) {
  const int status = in_a_process([] {
    if (::geteuid() == 0 && !become({.uid = 990, .gid = 990, .groups = {}}).has_value()) return 1;
    if (!confine_server().has_value()) return 2;
    const auto text = sys::read_file(AT_FDCWD, "/proc/thread-self/status", 1 << 16);
    if (!text.has_value()) return 3;
    for (const char* line : {"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
                             "CapInh:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"})
      if (!text->contains(line)) return 4;
    if (::getuid() == 990 && !text->contains("CapBnd:\t0000000000000000")) return 5;
    if (::setresuid(0, 0, 0) == 0) return 6;
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(ServerCalls, NoProgramProcessOrConnectionIsMade) {
  const int status = in_a_process([] {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
    if (!filter_server_calls().has_value()) return 2;
    const auto refused = [](long result) { return result == -1 && errno == EPERM; };
    char name[] = "true";
    char* const arguments[] = {name, nullptr};
    if (!refused(::execv("/bin/true", arguments))) return 3;
    if (!refused(::fork())) return 4;
    if (!refused(::socket(AF_INET, SOCK_STREAM, 0))) return 5;
    if (!refused(::socket(AF_UNIX, SOCK_STREAM, 0))) return 6;
    if (!refused(::unshare(CLONE_NEWUSER))) return 7;
    if (!refused(::kill(::getppid(), SIGUSR1))) return 8;
    if (!refused(::mount("x", "/", "tmpfs", 0, nullptr))) return 9;
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(ServerCalls, ThreadsAndPairsAreMade) {
  const int status = in_a_process([] {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
    if (!filter_server_calls().has_value()) return 2;
    pthread_t thread;
    const auto body = [](void*) -> void* { return nullptr; };
    if (::pthread_create(&thread, nullptr, body, nullptr) != 0) return 3;
    if (::pthread_join(thread, nullptr) != 0) return 4;
    int ends[2];
    return ::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 ? 0 : 5;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace caisson::api
