#include "egress/keys_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/sys.h"

namespace caisson::egress {
namespace {

TEST(KeysFileTest, IsPassedOnAsAPlaceAndOpenedByWhoMay) {
  const auto file = sys::memory_file("keys", "the keys");
  ASSERT_TRUE(file.has_value());
  const auto place = hide_keys(file->get());
  ASSERT_TRUE(place.has_value()) << place.error().message();
  char byte = 0;
  EXPECT_EQ(::read(place->get(), &byte, 1), -1);
  EXPECT_EQ(errno, EBADF);
  struct stat facts{};
  ASSERT_EQ(::fstat(place->get(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0400u);
  const auto opened = open_keys(place->get(), ::geteuid());
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ(sys::read_again(opened->get(), 100).value(), "the keys");
  EXPECT_EQ(::fcntl(opened->get(), F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST(KeysFileTest, WhatIsNotTheVaultsIsNotOpened) {
  const auto file = sys::memory_file("keys", "the keys");
  EXPECT_FALSE(open_keys(file->get(), ::geteuid() + 1).has_value());
  // What has a name, what can be changed, and what is no file.
  const Fd named(::open("/proc/self/exe", O_PATH | O_CLOEXEC));
  const Fd open_file(::memfd_create("keys", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const Fd device(::open("/dev/null", O_PATH | O_CLOEXEC));
  for (const Fd* fd : {&named, &open_file, &device}) {
    struct stat facts{};
    ASSERT_EQ(::fstat(fd->get(), &facts), 0);
    const auto opened = open_keys(fd->get(), facts.st_uid);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code(), Code::kInvalidArgument);
  }
}

TEST(KeysFileTest, WhoseOwnerSomebodyElseIsCannotOpenIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto file = sys::memory_file("keys", "the keys");
  ASSERT_EQ(::fchown(file->get(), kVaultId, kVaultId), 0);
  const auto place = hide_keys(file->get());
  ASSERT_TRUE(place.has_value());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(1234, 1234, 1234) != 0) ::_exit(2);
    const std::string path = "/proc/self/fd/" + std::to_string(place->get());
    ::_exit(::open(path.c_str(), O_RDONLY) < 0 && errno == EACCES ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(open_keys(place->get(), kVaultId).has_value());
}

}  // namespace
}  // namespace caisson::egress
