#include "wall/namespace/ids.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "image/ids.h"

namespace caisson::wall {
namespace {

using ::testing::HasSubstr;

TEST(HostIds, LieWhereNobodyElseTakesAny) {
  constexpr std::uint32_t kContainersEnd = 0x70000000, kForeign = 0x7ffe0000;
  const std::uint32_t parts[][2] = {{kBlockBase, kSlotCount * kRange},
                                    {kGuestBase, kSlotCount},
                                    {kSupervisorBase, kSlotCount},
                                    {image::kImageIdBase, image::kImageIds}};
  std::uint32_t end = kContainersEnd;
  for (const auto& [first, count] : parts) {  // in this order, without overlap
    EXPECT_GE(first, end);
    end = first + count;
  }
  EXPECT_LE(end, kForeign);
}

class Slots : public ::testing::Test {
 protected:
  Slots() {
    char name[] = "/tmp/caisson-ids-XXXXXX";
    folder_ = ::mkdtemp(name);
    for (const char* run : {"/a", "/b"}) std::filesystem::create_directory(folder_ + run);
    a_ = Fd(::open((folder_ + "/a").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    b_ = Fd(::open((folder_ + "/b").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    host_ = folder_ + "/host";
  }
  ~Slots() override { std::filesystem::remove_all(folder_); }

  // Takes slots until none is left; their locks.
  std::vector<Slot> take_all(int run_directory_fd, const std::string& host) {
    std::vector<Slot> taken;
    std::vector<bool> seen(kSlotCount);
    // Descriptors are few: all but two slots are locked at once.
    Fd rest(::open(host.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_start = 2;
    lock.l_len = kSlotCount - 2;
    EXPECT_EQ(::fcntl(rest.get(), F_OFD_SETLK, &lock), 0);
    rest_.push_back(std::move(rest));
    for (int i = 0; i < 2; ++i) {
      auto slot = take_slot(host_.c_str(), run_directory_fd);
      if (!slot) {
        ADD_FAILURE() << slot.error().message();
        return taken;
      }
      EXPECT_LT(slot->number, 2u);
      EXPECT_FALSE(seen[slot->number]);
      seen[slot->number] = true;
      taken.push_back(std::move(*slot));
    }
    return taken;
  }

  std::string folder_, host_;
  Fd a_, b_;
  std::vector<Fd> rest_;
};

TEST_F(Slots, TwoRunDirectoriesShareNoSlot) {
  std::vector<Slot> taken = take_all(a_.get(), host_);
  ASSERT_EQ(taken.size(), 2u);
  const auto none = take_slot(host_.c_str(), b_.get());
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(std::string(none.error().message()), HasSubstr("all 4092 id blocks"));
  const std::uint32_t freed = taken.back().number;
  taken.pop_back();
  const auto again = take_slot(host_.c_str(), b_.get());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->number, freed);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a/slots"));
}

TEST_F(Slots, WithoutAWritableRunTheRunDirectoryKeepsThemApart) {
  host_ = folder_ + "/none/host";
  const std::vector<Slot> taken = take_all(a_.get(), folder_ + "/a/slots");
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_FALSE(take_slot(host_.c_str(), a_.get()).has_value());
  EXPECT_TRUE(take_slot(host_.c_str(), b_.get()).has_value());
}

TEST_F(Slots, AFileThatOthersCouldLockIsRefused) {
  ASSERT_GE(Fd(::open(host_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)).get(), 0);
  ASSERT_EQ(::chmod(host_.c_str(), 0644), 0);
  const auto refused = take_slot(host_.c_str(), a_.get());
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("mode 0600"));
  ASSERT_EQ(::unlink(host_.c_str()), 0);
  ASSERT_EQ(::mkfifo(host_.c_str(), 0600), 0);
  EXPECT_FALSE(take_slot(host_.c_str(), a_.get()).has_value());
  ASSERT_EQ(::unlink(host_.c_str()), 0);
  ASSERT_EQ(::symlink("elsewhere", host_.c_str()), 0);
  EXPECT_FALSE(take_slot(host_.c_str(), a_.get()).has_value());
}

}  // namespace
}  // namespace caisson::wall
