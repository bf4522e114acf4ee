// Real groups of this host, as v2 and as v1 alone; left out where this user may make none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/sys.h"
#include "wall/namespace/cgroup.h"
#include "wall/namespace/split.h"

namespace caisson::wall {
namespace {

constexpr int kPatienceMs = 2000;

// What finds this host's groups reads from here; without version 2 if it is to look like v1 alone.
class ProcCopy {
 public:
  enum class Versions { kAll, kFirst };
  explicit ProcCopy(Versions versions) {
    std::string name = ::testing::TempDir() + "freeze-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    std::filesystem::create_directory(root_ / "self");
    std::ifstream mounts("/proc/self/mountinfo");
    std::ofstream kept(root_ / "self/mountinfo");
    for (std::string line; std::getline(mounts, line);)
      if (versions == Versions::kAll || line.find(" - cgroup2 ") == std::string::npos)
        kept << line << "\n";
    std::ofstream(root_ / "self/cgroup") << std::ifstream("/proc/self/cgroup").rdbuf();
  }
  ~ProcCopy() { std::filesystem::remove_all(root_); }
  std::string path() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

// A process that starts others without end, in the place of a sandbox's first command.
class Busy {
 public:
  explicit Busy(const SlotFiles& place) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      for (int i = 0; i < SlotFiles::kEnterCount; ++i) {
        const Fd& file = place.file[static_cast<std::size_t>(i)];
        if (file.valid() && i != SlotFiles::kBirthUnified && ::write(file.get(), "0", 1) != 1)
          ::_exit(9);
      }
      ::execl("/bin/sh", "sh", "-c", "while :; do /bin/true; done", nullptr);
      ::_exit(9);
    }
    ::setpgid(pid_, pid_);
  }
  ~Busy() {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  // Clock ticks of it and of its children.
  std::uint64_t used() const {
    const auto stat = sys::read_file(AT_FDCWD, "/proc/" + std::to_string(pid_) + "/stat", 4096);
    if (!stat) return 0;
    const auto words = split(std::string_view(*stat).substr(stat->rfind(')') + 1), ' ');
    std::uint64_t sum = 0;
    for (int i = 11; i <= 14; ++i)
      sum += std::stoull(std::string(words[static_cast<std::size_t>(i)]));
    return sum;
  }
  bool works_on(int ms) const {
    const std::uint64_t before = used();
    for (int i = 0; i < ms / 10 && used() == before; ++i) ::usleep(10'000);
    return used() != before;
  }
  bool dies() const {
    for (int i = 0; i < 200; ++i) {
      siginfo_t ended{};
      if (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          ended.si_pid == pid_)
        return true;
      ::usleep(10'000);
    }
    return false;
  }

 private:
  pid_t pid_ = -1;
};

class Freeze : public ::testing::TestWithParam<ProcCopy::Versions> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "an ordinary user's commands are born in their group";
    host_ = find_cgroups(proc_.path());
    const bool can = host_.mode == CgroupMode::kHybrid || host_.mode == CgroupMode::kUnified ||
                     !host_.freezer.path.empty();
    if (!can) GTEST_SKIP() << "no freezer here";
    plan_.id = "freeze";
    std::random_device random;
    for (int i = 0; i < 8; ++i) plan_.id += static_cast<char>('a' + random() % 26);
    // Our own id: the command then enters by cgroup.procs, as the test's does.
    auto tree = CgroupTree::create(host_, plan_, ::geteuid());
    ASSERT_TRUE(tree.has_value()) << tree.error().message();
    tree_ = std::move(*tree);
    ASSERT_TRUE(tree_.complete(plan_).has_value());
    auto place = tree_.make_slot(kFirstSlot);
    ASSERT_TRUE(place.has_value()) << place.error().message();
    place_ = std::move(*place);
  }
  void TearDown() override {
    tree_.kill();
    const Status removed = tree_.remove(kPatienceMs);
    EXPECT_TRUE(removed.has_value()) << removed.error().message();
  }

  ProcCopy proc_{GetParam()};
  CgroupHost host_;
  Plan plan_;
  CgroupTree tree_;
  SlotFiles place_;
};

TEST_P(Freeze, StopsWhatStartsOthersAndLetsItGoOn) {
  const Busy busy(place_);
  ASSERT_TRUE(busy.works_on(2000));
  for (int i = 0; i < 2; ++i) {
    const Status frozen = tree_.freeze(host_.freezer, plan_, kPatienceMs);
    ASSERT_TRUE(frozen.has_value()) << frozen.error().message();
    EXPECT_FALSE(busy.works_on(200));
    ASSERT_TRUE(tree_.thaw().has_value());
    EXPECT_TRUE(busy.works_on(2000));
  }
}

TEST_P(Freeze, WhatIsFrozenIsKilled) {
  const Busy busy(place_);
  ASSERT_TRUE(busy.works_on(2000));
  ASSERT_TRUE(tree_.freeze(host_.freezer, plan_, kPatienceMs).has_value());
  tree_.kill();
  EXPECT_TRUE(busy.dies());
}

TEST_P(Freeze, AnEmptySandboxIsFrozenToo) {
  EXPECT_TRUE(tree_.freeze(host_.freezer, plan_, kPatienceMs).has_value());
  EXPECT_TRUE(tree_.thaw().has_value());
}

INSTANTIATE_TEST_SUITE_P(Hosts, Freeze,
                         ::testing::Values(ProcCopy::Versions::kAll, ProcCopy::Versions::kFirst));

TEST(FreezeWithoutGroups, IsRefused) {
  CgroupTree tree;
  const Status frozen = tree.freeze({}, {}, 0);
  ASSERT_FALSE(frozen.has_value());
  EXPECT_EQ(frozen.error().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace caisson::wall
