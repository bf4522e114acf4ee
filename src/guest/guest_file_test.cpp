// Files, through the real guest.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "guest/file_place.h"
#include "guest/guest_files_harness.h"

namespace caisson::guest::testing {
namespace {

using proto::FileOperation;
using proto::FileType;

TEST_F(Files, WriteAndReadBack) {
  std::string bytes(3'000'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 1000);
  const Seen written = write(root_ + "/big", bytes);
  EXPECT_EQ(written.error_text(), "");
  EXPECT_EQ(written.event(0).number(Tag::kSize).value(), bytes.size());
  EXPECT_EQ(contents(root_ + "/big"), bytes);
  const Seen read = run(FileOperation::kRead, root_ + "/big");
  EXPECT_EQ(read.output, bytes);
  EXPECT_EQ(read.event(0).number(Tag::kSize).value(), bytes.size());
  const Seen part = run(operation(FileOperation::kRead, root_ + "/big")
                            .put_u64(Tag::kOffset, 1000)
                            .put_u64(Tag::kSize, 50'000));
  EXPECT_EQ(part.output, bytes.substr(1000, 50'000));
}

TEST_F(Files, SudosRightsAreRootsAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  write(root_ + "/f", "x");
  ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);  // another user gets to the file, and no further
  const auto give = [&](std::uint32_t uid) {
    return operation(FileOperation::kChown, root_ + "/f").put_u32(Tag::kUid, uid);
  };
  constexpr std::uint64_t kRefused = EPERM;
  EXPECT_EQ(run(give(4321)).end().number(Tag::kErrorErrno).value(), kRefused);
  EXPECT_EQ(run(give(4321).put_u8(Tag::kPrivileges, 1)).error_text(), "");
  struct stat status{};
  ASSERT_EQ(::stat((root_ + "/f").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 4321u);
  EXPECT_EQ(run(give(1).put_u8(Tag::kPrivileges, 1).put(Tag::kUser, "4321"))
                .end()
                .number(Tag::kErrorErrno)
                .value(),
            kRefused);
  // Set-id bits, too, are for whoever has those rights.
  const auto mode = [&] {
    return operation(FileOperation::kChmod, root_ + "/f").put_u32(Tag::kMode, 04755);
  };
  EXPECT_EQ(run(mode()).end().number(Tag::kErrorErrno).value(), kRefused);
  EXPECT_EQ(run(mode().put_u8(Tag::kPrivileges, 1)).error_text(), "");
  // But not where the supervisor says that a grant is writable.
  EXPECT_EQ(run(mode().put_u8(Tag::kPrivileges, 1).put_u8(Tag::kNoSetid, 1))
                .end()
                .number(Tag::kErrorErrno)
                .value(),
            kRefused);
  EXPECT_EQ(run(operation(FileOperation::kChmod, root_ + "/f")
                    .put_u32(Tag::kMode, 0755)
                    .put_u8(Tag::kPrivileges, 1)
                    .put_u8(Tag::kNoSetid, 1))
                .error_text(),
            "");
}

TEST_F(Files, WriteTruncatesAppendsOrRefuses) {
  write(root_ + "/f", "long contents");
  write(root_ + "/f", "ab");
  EXPECT_EQ(contents(root_ + "/f"), "ab");
  write(operation(FileOperation::kWrite, root_ + "/f").put_u8(Tag::kAppend, 1), "cd");
  EXPECT_EQ(contents(root_ + "/f"), "abcd");
  const Seen refused =
      write(operation(FileOperation::kWrite, root_ + "/f").put_u8(Tag::kExclusive, 1), "x");
  EXPECT_EQ(refused.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(EEXIST));
  EXPECT_EQ(contents(root_ + "/f"), "abcd");
}

TEST_F(Files, WriteSetsTheModeAndMakesParents) {
  write(operation(FileOperation::kWrite, root_ + "/a/b/f")
            .put_u32(Tag::kMode, 0751)
            .put_u8(Tag::kRecursive, 1),
        "x");
  struct stat status{};
  ASSERT_EQ(::stat((root_ + "/a/b/f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0751u);
  EXPECT_EQ(write(operation(FileOperation::kWrite, root_ + "/g").put_u32(Tag::kMode, 04755), "x")
                .error_text(),
            "write " + root_ + "/g: the mode is above 0777");
}

TEST_F(Files, AtomicWriteReplacesAtTheEndAlone) {
  write(root_ + "/f", "old");
  ::chmod((root_ + "/f").c_str(), 0640);
  const std::uint32_t stream = guest_.open(
      Kind::kFile, operation(FileOperation::kWrite, root_ + "/f").put_u8(Tag::kAtomic, 1));
  guest_.data(stream, "new");
  EXPECT_EQ(run(FileOperation::kRead, root_ + "/f").output, "old");
  guest_.finish(stream);
  EXPECT_EQ(guest_.finish_stream(stream).error_text(), "");
  EXPECT_EQ(contents(root_ + "/f"), "new");
  struct stat status{};
  ASSERT_EQ(::stat((root_ + "/f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST_F(Files, WriteSetsTheTimeAfterTheLastByte) {
  for (const std::uint8_t atomic : {std::uint8_t{0}, std::uint8_t{1}}) {
    const Seen seen = write(operation(FileOperation::kWrite, root_ + "/f")
                                .put_u8(Tag::kAtomic, atomic)
                                .put_u64(Tag::kMtimeNs, 1'600'000'000'123'456'789),
                            "bytes");
    EXPECT_EQ(seen.error_text(), "");
    struct stat status{};
    ASSERT_EQ(::stat((root_ + "/f").c_str(), &status), 0);
    EXPECT_EQ(status.st_mtim.tv_sec, 1'600'000'000);
    EXPECT_EQ(status.st_mtim.tv_nsec, 123'456'789);
    ASSERT_EQ(::unlink((root_ + "/f").c_str()), 0);
  }
}

TEST_F(Files, ACancelledAtomicWriteLeavesNothing) {
  write(root_ + "/f", "old");
  const std::uint32_t stream = guest_.open(
      Kind::kFile, operation(FileOperation::kWrite, root_ + "/f").put_u8(Tag::kAtomic, 1));
  guest_.data(stream, "half");
  guest_.cancel(stream);
  EXPECT_EQ(guest_.finish_stream(stream).error_text(), "cancelled by the peer");
  EXPECT_EQ(contents(root_ + "/f"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_), {}), 1);
}

TEST_F(Files, AppendAndAtomicExcludeEachOther) {
  EXPECT_EQ(write(operation(FileOperation::kWrite, root_ + "/f")
                      .put_u8(Tag::kAtomic, 1)
                      .put_u8(Tag::kAppend, 1),
                  "x")
                .error_text(),
            "write " + root_ + "/f: append and atomic exclude each other");
}

TEST_F(Files, OnlyRegularFilesAreOpened) {
  ASSERT_EQ(::mkfifo((root_ + "/fifo").c_str(), 0666), 0);
  EXPECT_EQ(run(FileOperation::kRead, root_ + "/fifo").error_text(),
            root_ + "/fifo is not a regular file");
  EXPECT_EQ(run(FileOperation::kRead, "/dev/zero").error_text(), "/dev/zero is not a regular file");
  EXPECT_EQ(run(FileOperation::kRead, root_).error_text(), root_ + " is not a regular file");
  EXPECT_NE(write(root_ + "/fifo", "x").error_text(), "");
  EXPECT_NE(write(operation(FileOperation::kWrite, root_ + "/fifo").put_u8(Tag::kAtomic, 1), "x")
                .error_text(),
            "");
}

TEST_F(Files, PathsAreChecked) {
  for (const std::string& path :
       {std::string("relative"), std::string(), std::string(5000, '/'), std::string("/a\0b", 4)})
    EXPECT_EQ(run(FileOperation::kStat, path).error_text(),
              "file: a path is absolute, shorter than 4096 bytes and has no zero byte");
  EXPECT_EQ(run(Fields().put_u8(Tag::kOperation, 99).put(Tag::kPath, "/")).error_text(),
            "file: operation 99, allowed are 1 to 17");
  EXPECT_EQ(run(Fields().put(Tag::kPath, "/")).error_text(), "fields: tag 64 is missing");
}

TEST_F(Files, Stat) {
  write(root_ + "/f", "12345");
  ASSERT_EQ(::symlink("f", (root_ + "/link").c_str()), 0);
  const Seen file = run(FileOperation::kStat, root_ + "/link");
  EXPECT_EQ(file.event(0).number(Tag::kFileType).value(),
            static_cast<std::uint64_t>(FileType::kRegular));
  EXPECT_EQ(file.event(0).number(Tag::kSize).value(), 5u);
  EXPECT_EQ(file.event(0).number(Tag::kMode).value(), 0644u);
  EXPECT_EQ(file.event(0).text(Tag::kUserName).value(), "root");
  const Seen link = run(operation(FileOperation::kStat, root_ + "/link").put_u8(Tag::kFollow, 0));
  EXPECT_EQ(link.event(0).number(Tag::kFileType).value(),
            static_cast<std::uint64_t>(FileType::kSymlink));
  EXPECT_EQ(link.event(0).text(Tag::kTarget).value(), "f");
  EXPECT_EQ(run(FileOperation::kStat, root_ + "/absent").end().number(Tag::kErrorErrno).value(),
            static_cast<std::uint64_t>(ENOENT));
  EXPECT_EQ(run(FileOperation::kExists, root_ + "/f").error_text(), "");
  EXPECT_NE(run(FileOperation::kExists, root_ + "/absent").error_text(), "");
}

TEST_F(Files, ListGoesAsDeepAsAsked) {
  std::filesystem::create_directories(root_ + "/a/b/c");
  write(root_ + "/a/f", "1");
  const auto names = [&](std::uint32_t depth) {
    std::vector<std::string> out;
    const Seen seen = run(operation(FileOperation::kList, root_).put_u32(Tag::kDepth, depth));
    for (std::size_t i = 0; i < seen.events.size(); ++i)
      out.emplace_back(seen.event(i).text(Tag::kName).value());
    std::ranges::sort(out);
    return out;
  };
  EXPECT_EQ(names(1), (std::vector<std::string>{"a"}));
  EXPECT_EQ(names(2), (std::vector<std::string>{"a", "a/b", "a/f"}));
  EXPECT_EQ(names(64), (std::vector<std::string>{"a", "a/b", "a/b/c", "a/f"}));
  EXPECT_EQ(run(operation(FileOperation::kList, root_).put_u32(Tag::kDepth, 0)).error_text(),
            "list " + root_ + ": depth 0, allowed are 1 to 64");
}

TEST_F(Files, AListingOfManyEntriesDoesNotHoldUpACommand) {
  for (int i = 0; i < 5000; ++i) std::ofstream(root_ + "/" + std::to_string(i));
  const std::uint32_t list = guest_.open(Kind::kFile, operation(FileOperation::kList, root_));
  EXPECT_EQ(guest_.run("echo ok").output, "ok\n");
  EXPECT_EQ(guest_.finish_stream(list).events.size(), 5000u);
}

TEST_F(Files, ManyMakeTheSameDirectoriesAtTheSameTime) {
  const Owner owner(::geteuid(), ::getegid());
  std::atomic<int> failed = 0;
  for (int round = 0; round < 50; ++round) {
    const std::string path = root_ + "/" + std::to_string(round) + "/a/b/c";
    std::barrier start(4);
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < 4; ++writer)
      writers.emplace_back([&] {
        start.arrive_and_wait();
        if (!Place::find(path, Place::Missing::kMake, owner)) ++failed;
      });
  }
  EXPECT_EQ(failed, 0);
}

TEST_F(Files, RemoveTakesDeepTrees) {
  // Deeper than descriptors or a path's length allow.
  std::string step = std::string(200, 'd');
  {
    Fd current(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ::mkdirat(current.get(), "top", 0755);
    current = Fd(::openat(current.get(), "top", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int i = 0; i < 1500; ++i) {
      ASSERT_EQ(::mkdirat(current.get(), step.c_str(), 0755), 0);
      Fd file(::openat(current.get(), "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
      current = Fd(::openat(current.get(), step.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
  }
  EXPECT_EQ(run(FileOperation::kRemove, root_ + "/top").end().number(Tag::kErrorErrno).value(),
            static_cast<std::uint64_t>(ENOTEMPTY));
  const Seen removed =
      run(operation(FileOperation::kRemove, root_ + "/top").put_u8(Tag::kRecursive, 1));
  EXPECT_EQ(removed.error_text(), "");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/top"));
}

TEST_F(Files, RemoveDoesNotFollowLinks) {
  std::filesystem::create_directories(root_ + "/kept");
  write(root_ + "/kept/f", "x");
  std::filesystem::create_directories(root_ + "/tree");
  ASSERT_EQ(::symlink("../kept", (root_ + "/tree/link").c_str()), 0);
  EXPECT_EQ(run(operation(FileOperation::kRemove, root_ + "/tree").put_u8(Tag::kRecursive, 1))
                .error_text(),
            "");
  EXPECT_TRUE(std::filesystem::exists(root_ + "/kept/f"));
  EXPECT_NE(run(FileOperation::kRemove, root_ + "/tree").error_text(), "");
}

TEST_F(Files, DirectoriesLinksAndNames) {
  EXPECT_NE(run(FileOperation::kMakeDir, root_ + "/x/y").error_text(), "");
  EXPECT_EQ(run(operation(FileOperation::kMakeDir, root_ + "/x/y").put_u8(Tag::kRecursive, 1))
                .error_text(),
            "");
  EXPECT_EQ(run(operation(FileOperation::kMakeDir, root_ + "/x/y").put_u8(Tag::kRecursive, 1))
                .error_text(),
            "");
  EXPECT_NE(run(FileOperation::kMakeDir, root_ + "/x").error_text(), "");
  EXPECT_EQ(
      run(operation(FileOperation::kSymlink, root_ + "/l").put(Tag::kTarget, "x")).error_text(),
      "");
  EXPECT_EQ(run(FileOperation::kReadlink, root_ + "/l").event(0).text(Tag::kTarget).value(), "x");
  EXPECT_NE(run(FileOperation::kReadlink, root_ + "/x").error_text(), "");
  EXPECT_EQ(run(operation(FileOperation::kSymlink, root_ + "/m").put(Tag::kTarget, ""))
                .end()
                .number(Tag::kErrorCode)
                .value(),
            static_cast<std::uint64_t>(Code::kInvalidArgument));
  EXPECT_EQ(run(operation(FileOperation::kRename, root_ + "/l").put(Tag::kTarget, root_ + "/n"))
                .error_text(),
            "");
  const Seen refused = run(operation(FileOperation::kRename, root_ + "/n")
                               .put(Tag::kTarget, root_ + "/x")
                               .put_u8(Tag::kExclusive, 1));
  EXPECT_EQ(refused.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(EEXIST));
}

TEST_F(Files, ModeOwnerTimesAndAttributes) {
  const std::string path = root_ + "/f";
  write(path, "x");
  EXPECT_EQ(run(operation(FileOperation::kChmod, path).put_u32(Tag::kMode, 0600)).error_text(), "");
  EXPECT_EQ(run(operation(FileOperation::kChmod, path).put_u32(Tag::kMode, 010000)).error_text(),
            "chmod " + path + ": the mode is above 07777");
  // No set-id bits through here, whoever asks.
  EXPECT_NE(run(operation(FileOperation::kChmod, path).put_u32(Tag::kMode, 04755)).error_text(),
            "");
  EXPECT_EQ(run(operation(FileOperation::kChown, path).put_u32(Tag::kGid, 0)).error_text(), "");
  EXPECT_NE(run(operation(FileOperation::kChown, path).put_u32(Tag::kUid, 12345)).error_text(), "");
  EXPECT_EQ(run(operation(FileOperation::kSetTimes, path)
                    .put_u64(Tag::kMtimeNs, 1'700'000'000'123'456'789))
                .error_text(),
            "");
  const Seen seen = run(FileOperation::kStat, path);
  EXPECT_EQ(seen.event(0).number(Tag::kMtimeNs).value(), 1'700'000'000'123'456'789u);
  EXPECT_EQ(seen.event(0).number(Tag::kMode).value(), 0600u);
  EXPECT_EQ(run(operation(FileOperation::kSetXattr, path)
                    .put(Tag::kXattrName, "trusted.x")
                    .put(Tag::kXattrValue, "v"))
                .end()
                .number(Tag::kErrorCode)
                .value(),
            static_cast<std::uint64_t>(Code::kInvalidArgument));
  const Seen set = run(operation(FileOperation::kSetXattr, path)
                           .put(Tag::kXattrName, "user.x")
                           .put(Tag::kXattrValue, std::string("v\0w", 3)));
  const Seen get = run(operation(FileOperation::kGetXattr, path).put(Tag::kXattrName, "user.x"));
  if (set.error_text().empty()) {
    EXPECT_EQ(get.event(0).text(Tag::kXattrValue).value(), std::string("v\0w", 3));
  } else {  // this file system has none
    EXPECT_EQ(set.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(EOPNOTSUPP));
    EXPECT_NE(get.error_text(), "");
  }
}

TEST_F(Files, PermissionsAreThoseOfTheUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has more than one id to give";
  ::chmod(root_.c_str(), 0755);
  write(root_ + "/secret", "x");
  ::chmod((root_ + "/secret").c_str(), 0600);
  const auto denied = [&](Fields fields) {
    return run(fields.put(Tag::kUser, "nobody")).end().number_or_none(Tag::kErrorErrno);
  };
  EXPECT_EQ(denied(operation(FileOperation::kRead, root_ + "/secret")),
            static_cast<std::uint64_t>(EACCES));
  EXPECT_EQ(denied(operation(FileOperation::kRemove, root_ + "/secret")),
            static_cast<std::uint64_t>(EACCES));
  EXPECT_EQ(denied(operation(FileOperation::kWrite, root_ + "/new")),
            static_cast<std::uint64_t>(EACCES));
  EXPECT_EQ(denied(operation(FileOperation::kRead, "/etc/shadow")),
            static_cast<std::uint64_t>(EACCES));
}

TEST_F(Files, InputBeyondTheCreditEndsTheStream) {
  const std::uint32_t stream = guest_.open(Kind::kFile, operation(FileOperation::kStat, "/"));
  for (int i = 0; i < 5; ++i) guest_.data(stream, std::string(proto::kMaxPayload, 'x'));
  const std::string error = guest_.finish_stream(stream).error_text();
  EXPECT_TRUE(error.empty() || error == "stream: 65536 bytes of input, the credit is 0") << error;
  EXPECT_EQ(guest_.run("echo ok").output, "ok\n");
}

TEST_F(Files, AWorkerThatIsKilledIsTold) {
  const std::uint32_t stream =
      guest_.open(Kind::kFile, operation(FileOperation::kWrite, root_ + "/f"));
  guest_.data(stream, "x");
  // The worker is the guest's only child.
  std::string child;
  const std::string list = "/proc/" + std::to_string(guest_.pid()) + "/task/" +
                           std::to_string(guest_.pid()) + "/children";
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (child.empty() && std::chrono::steady_clock::now() < end) {
    std::ifstream(list) >> child;
    ::usleep(1000);
  }
  ASSERT_FALSE(child.empty());
  ASSERT_EQ(::kill(std::stoi(child), SIGKILL), 0);
  EXPECT_EQ(guest_.finish_stream(stream).error_text(), "the worker ended early, by signal 9");
}

}  // namespace
}  // namespace caisson::guest::testing
