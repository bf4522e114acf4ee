// Whose what is made, written, moved and removed with root's rights is, and that nobody's links
// lead those rights astray, through the real guest.
#include <sys/stat.h>
#include <unistd.h>

#include "guest/guest_files_harness.h"

namespace caisson::guest::testing {
namespace {

class Owners : public Files {
 protected:
  void SetUp() override {
    Files::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  }
  static Fields owned(FileOperation op, const std::string& path) {
    return operation(op, path)
        .put_u8(Tag::kPrivileges, 1)
        .put_u32(Tag::kUid, 4321)
        .put_u32(Tag::kGid, 8765)
        .put_u8(Tag::kRecursive, 1);
  }
  std::string owner(const std::string& path) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) return "none";
    return std::to_string(status.st_uid) + ":" + std::to_string(status.st_gid);
  }
};

TEST_F(Owners, WhatAWriteCreatesIsTheirs) {
  std::filesystem::create_directory(root_ + "/old");
  for (const std::uint8_t atomic : {std::uint8_t{0}, std::uint8_t{1}}) {
    const std::string top = root_ + "/old/" + std::to_string(atomic);
    EXPECT_EQ(write(owned(FileOperation::kWrite, top + "/b/f").put_u8(Tag::kAtomic, atomic), "x")
                  .error_text(),
              "");
    for (const char* path : {"", "/b", "/b/f"}) EXPECT_EQ(owner(top + path), "4321:8765") << path;
  }
  EXPECT_EQ(owner(root_ + "/old"), "0:0");
}

TEST_F(Owners, WhatIsWrittenAnewIsTheirsToo) {
  for (const std::uint8_t atomic : {std::uint8_t{0}, std::uint8_t{1}}) {
    write(root_ + "/f", "old");
    ASSERT_EQ(::chown((root_ + "/f").c_str(), 7, 8), 0);
    ASSERT_EQ(::chmod((root_ + "/f").c_str(), 0640), 0);
    EXPECT_EQ(write(owned(FileOperation::kWrite, root_ + "/f").put_u8(Tag::kAtomic, atomic), "new")
                  .error_text(),
              "");
    EXPECT_EQ(owner(root_ + "/f"), "4321:8765");
    EXPECT_EQ(contents(root_ + "/f"), "new");
    EXPECT_EQ(run(FileOperation::kStat, root_ + "/f").event(0).number(Tag::kMode).value(), 0640u);
  }
}

TEST_F(Owners, AFileWithSeveralNamesIsGivenToNobody) {
  write(root_ + "/f", "old");
  std::filesystem::create_hard_link(root_ + "/f", root_ + "/planted");
  EXPECT_EQ(write(owned(FileOperation::kWrite, root_ + "/planted"), "new").error_text(), "");
  EXPECT_EQ(owner(root_ + "/f"), "0:0");
  EXPECT_EQ(contents(root_ + "/f"), "new");
}

// A user's links, below a directory of his, lead root's rights no further than he could go.
class Planted : public Owners {
 protected:
  void SetUp() override {
    Owners::SetUp();
    if (::testing::Test::IsSkipped()) return;
    ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
    for (const char* name : {"/own", "/secret", "/shared"})
      std::filesystem::create_directory(root_ + name);
    ASSERT_EQ(::chown((root_ + "/own").c_str(), kUser, kUser), 0);
    ASSERT_EQ(::chmod((root_ + "/shared").c_str(), 01777), 0);
    write(root_ + "/secret/f", "secret");
  }
  void plant(const std::string& target, const std::string& at) {
    std::filesystem::create_symlink(target, root_ + at);
    ASSERT_EQ(::lchown((root_ + at).c_str(), kUser, kUser), 0);
  }
  std::string put(const std::string& path, std::uint8_t atomic = 0) {
    return write(owned(FileOperation::kWrite, root_ + path).put_u8(Tag::kAtomic, atomic), "new")
        .error_text();
  }
  static constexpr uid_t kUser = 4321;
  const std::string refusal_ =
      ": a link of user 4321 is on the way, who may not do this where it leads";
};

TEST_F(Planted, ALinkToAnothersFileIsNotWrittenThrough) {
  plant("../secret/f", "/own/file");
  plant("../secret", "/own/directory");
  for (const std::uint8_t atomic : {std::uint8_t{0}, std::uint8_t{1}}) {
    EXPECT_EQ(put("/own/file", atomic), root_ + "/own/file" + refusal_);
    EXPECT_EQ(put("/own/directory/f", atomic), root_ + "/own/directory/f" + refusal_);
    EXPECT_EQ(put("/own/directory/new", atomic), root_ + "/own/directory/new" + refusal_);
    EXPECT_EQ(put("/own/directory/a/b", atomic), root_ + "/own/directory/a/b" + refusal_);
  }
  EXPECT_EQ(contents(root_ + "/secret/f"), "secret");
  EXPECT_EQ(owner(root_ + "/secret/f"), "0:0");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_ + "/secret"), {}), 1);
}

TEST_F(Planted, ADanglingLinkMakesNothing) {
  plant("../secret/none", "/own/file");
  EXPECT_EQ(put("/own/file"), root_ + "/own/file" + refusal_);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/secret/none"));
}

TEST_F(Planted, WhereTheirUserMayNotSearchTheyLeadNowhere) {
  std::filesystem::create_directories(root_ + "/secret/open");
  ASSERT_EQ(::chmod((root_ + "/secret/open").c_str(), 0777), 0);
  ASSERT_EQ(::chmod((root_ + "/secret").c_str(), 0700), 0);
  plant("../secret/open", "/own/way");
  EXPECT_EQ(put("/own/way/f"), root_ + "/own/way/f" + refusal_);
}

TEST_F(Planted, DirectoriesAreNotMadeThroughThem) {
  plant("../secret", "/own/directory");
  for (const char* path : {"/own/directory/a", "/own/directory/a/b"})
    EXPECT_EQ(run(owned(FileOperation::kMakeDir, root_ + path)).error_text(),
              root_ + path + refusal_);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/secret/a"));
}

TEST_F(Planted, TheirUsersOwnPlacesAndSharedOnesAreReached) {
  std::filesystem::create_directory(root_ + "/own/data");
  ASSERT_EQ(::chown((root_ + "/own/data").c_str(), kUser, kUser), 0);
  plant("data", "/own/mine");
  plant("../shared", "/own/all");
  for (const char* path : {"/own/mine/f", "/own/mine/f", "/own/mine/a/b", "/own/all/f"}) {
    EXPECT_EQ(put(path), "");
    EXPECT_EQ(owner(root_ + path), "4321:8765");
  }
}

TEST_F(Planted, AnothersFileThatAllMayWriteIsWrittenAndNotGivenAway) {
  ASSERT_EQ(::chmod((root_ + "/secret/f").c_str(), 0666), 0);
  plant("../secret/f", "/own/file");
  EXPECT_EQ(put("/own/file"), "");
  EXPECT_EQ(contents(root_ + "/secret/f"), "new");
  EXPECT_EQ(owner(root_ + "/secret/f"), "0:0");
}

TEST_F(Planted, RootsLinkInAUsersDirectoryCountsAsTheUsers) {
  std::filesystem::create_symlink("../secret/f", root_ + "/own/file");
  EXPECT_EQ(put("/own/file"), root_ + "/own/file" + refusal_);
  std::filesystem::create_symlink("secret/f", root_ + "/file");
  EXPECT_EQ(put("/file"), "");
  EXPECT_EQ(contents(root_ + "/secret/f"), "new");
}

TEST_F(Planted, LinksInACircleEnd) {
  plant("b", "/own/a");
  plant("a", "/own/b");
  EXPECT_EQ(put("/own/a"), "open " + root_ + "/own/a: Too many levels of symbolic links");
}

TEST_F(Planted, ACompositionRemovesNothingThroughThem) {
  plant("../secret", "/own/directory");
  const Seen seen = run(owned(FileOperation::kCompose, root_ + "/own/to")
                            .put(Tag::kSource, root_ + "/own/directory/f"));
  EXPECT_EQ(seen.error_text(), root_ + "/own/directory/f" + refusal_);
  EXPECT_TRUE(std::filesystem::exists(root_ + "/secret/f"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/own/to"));
}

TEST_F(Owners, AWriteThroughALinkToNothingCreatesItsTarget) {
  std::filesystem::create_symlink("target", root_ + "/link");
  EXPECT_EQ(write(owned(FileOperation::kWrite, root_ + "/link"), "x").error_text(), "");
  EXPECT_EQ(owner(root_ + "/target"), "4321:8765");
  EXPECT_EQ(owner(root_ + "/link"), "0:0");
}

TEST_F(Owners, DirectoriesAndParentsOfARenameAreTheirs) {
  EXPECT_EQ(run(owned(FileOperation::kMakeDir, root_ + "/a/b/")).error_text(), "");
  EXPECT_EQ(owner(root_ + "/a"), "4321:8765");
  EXPECT_EQ(owner(root_ + "/a/b"), "4321:8765");
  write(root_ + "/f", "x");
  EXPECT_EQ(run(owned(FileOperation::kRename, root_ + "/f").put(Tag::kTarget, root_ + "/c/d/f"))
                .error_text(),
            "");
  EXPECT_EQ(owner(root_ + "/c/d"), "4321:8765");
  EXPECT_EQ(owner(root_ + "/c/d/f"), "0:0");
}

TEST_F(Owners, WithoutTheRightNothingIsLeft) {
  const auto fields = [&](FileOperation op, const std::string& path) {
    return operation(op, path).put_u32(Tag::kUid, 4321);
  };
  EXPECT_EQ(write(fields(FileOperation::kWrite, root_ + "/f"), "x").error_text(),
            "chown " + root_ + "/f: Operation not permitted");
  EXPECT_EQ(run(fields(FileOperation::kMakeDir, root_ + "/d")).error_text(),
            "chown " + root_ + "/d: Operation not permitted");
  EXPECT_TRUE(std::filesystem::is_empty(root_));
  EXPECT_EQ(
      write(operation(FileOperation::kWrite, root_ + "/f").put_u64(Tag::kUid, 1ull << 32), "x")
          .error_text(),
      "file: an owner's id has more than 32 bits");
}

TEST_F(Planted, NothingIsRemovedThroughThem) {
  std::filesystem::create_directories(root_ + "/secret/d/below");
  plant("../secret", "/own/directory");
  for (const char* path : {"/own/directory/f", "/own/directory/d"})
    EXPECT_EQ(run(owned(FileOperation::kRemove, root_ + path)).error_text(),
              root_ + path + refusal_);
  EXPECT_EQ(contents(root_ + "/secret/f"), "secret");
  EXPECT_TRUE(std::filesystem::exists(root_ + "/secret/d/below"));
}

TEST_F(Planted, ALinkItselfIsRemovedAndNotWhereItLeads) {
  plant("../secret", "/own/directory");
  EXPECT_EQ(run(owned(FileOperation::kRemove, root_ + "/own/directory/")).error_text(),
            "open " + root_ + "/own/directory/: Not a directory");
  EXPECT_EQ(run(owned(FileOperation::kRemove, root_ + "/own/directory")).error_text(), "");
  EXPECT_FALSE(std::filesystem::is_symlink(root_ + "/own/directory"));
  EXPECT_EQ(contents(root_ + "/secret/f"), "secret");
}

TEST_F(Planted, WhereTheirUserMayWriteHeMayRemove) {
  std::filesystem::create_directories(root_ + "/own/data/d/below");
  write(root_ + "/shared/f", "x");
  write(root_ + "/own/data/d/f", "x");
  for (const char* path : {"/own/data", "/own/data/d", "/own/data/d/below", "/shared/f"})
    ASSERT_EQ(::chown((root_ + path).c_str(), kUser, kUser), 0);
  plant("data", "/own/mine");
  plant("../shared", "/own/all");
  for (const char* path : {"/own/mine/d", "/own/all/f"})
    EXPECT_EQ(run(owned(FileOperation::kRemove, root_ + path)).error_text(), "") << path;
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/own/data"));
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/shared"));
}

TEST_F(Planted, AnothersFileInAStickyDirectoryStays) {
  write(root_ + "/shared/f", "root's");
  plant("../shared", "/own/all");
  ASSERT_EQ(put("/own/f"), "");
  const std::string path = root_ + "/own/all/f";
  EXPECT_EQ(run(owned(FileOperation::kRemove, path)).error_text(), path + refusal_);
  EXPECT_EQ(
      run(owned(FileOperation::kRename, path).put(Tag::kTarget, root_ + "/own/taken")).error_text(),
      path + refusal_);
  EXPECT_EQ(
      run(owned(FileOperation::kRename, root_ + "/own/f").put(Tag::kTarget, path)).error_text(),
      path + refusal_);
  EXPECT_EQ(contents(root_ + "/shared/f"), "root's");
}

TEST_F(Planted, AnothersFileInAStickyDirectoryIsNotReplacedThoughAllMayWriteIt) {
  write(root_ + "/shared/f", "root's");
  ASSERT_EQ(::chmod((root_ + "/shared/f").c_str(), 0666), 0);
  plant("../shared", "/own/all");
  plant("../shared/f", "/own/file");
  for (const char* path : {"/own/all/f", "/own/file"})
    EXPECT_EQ(put(path, 1), root_ + path + refusal_);
  ASSERT_EQ(put("/own/part"), "");
  EXPECT_EQ(run(owned(FileOperation::kCompose, root_ + "/own/all/f")
                    .put(Tag::kSource, root_ + "/own/part"))
                .error_text(),
            root_ + "/own/all/f" + refusal_);
  EXPECT_EQ(contents(root_ + "/shared/f"), "root's");
  EXPECT_EQ(owner(root_ + "/shared/f"), "0:0");
  // His own there he may replace, and make new ones.
  write(root_ + "/shared/his", "old");
  ASSERT_EQ(::chown((root_ + "/shared/his").c_str(), kUser, kUser), 0);
  for (const char* name : {"his", "new"}) {
    EXPECT_EQ(put("/own/all/" + std::string(name), 1), "");
    EXPECT_EQ(contents(root_ + "/shared/" + name), "new");
  }
}

TEST_F(Planted, NothingIsReplacedWhereNothingMayBe) {
  plant("../shared", "/own/all");
  write(root_ + "/shared/his", "old");
  ASSERT_EQ(::chown((root_ + "/shared/his").c_str(), kUser, kUser), 0);
  ASSERT_EQ(put("/own/f"), "");
  const auto move = [&](const std::string& to) {
    return run(owned(FileOperation::kRename, root_ + "/own/f")
                   .put(Tag::kTarget, to)
                   .put_u8(Tag::kExclusive, 1))
        .error_text();
  };
  const std::string taken = root_ + "/own/all/his";
  EXPECT_EQ(move(taken), "rename " + root_ + "/own/f to " + taken + ": File exists");
  EXPECT_EQ(contents(root_ + "/shared/his"), "old");
  EXPECT_EQ(move(root_ + "/own/all/new"), "");
  EXPECT_EQ(contents(root_ + "/shared/new"), "new");
}

TEST_F(Planted, AnothersDirectoryIsNotEmptiedWhereTheirUserCouldNot) {
  // He may write to the directory that it is in, and could remove it, were it empty.
  ASSERT_EQ(::chmod((root_ + "/shared").c_str(), 0777), 0);
  std::filesystem::create_directories(root_ + "/shared/roots/below");
  std::filesystem::create_directories(root_ + "/shared/his/roots/below");
  ASSERT_EQ(::chown((root_ + "/shared/his").c_str(), kUser, kUser), 0);
  plant("../shared", "/own/all");
  for (const char* name : {"roots", "his"}) {
    const std::string path = root_ + "/own/all/" + name;
    EXPECT_TRUE(run(owned(FileOperation::kRemove, path)).error_text().ends_with(path + refusal_));
  }
  EXPECT_TRUE(std::filesystem::exists(root_ + "/shared/roots/below"));
  EXPECT_TRUE(std::filesystem::exists(root_ + "/shared/his/roots/below"));
}

TEST_F(Planted, NothingIsMovedThroughThem) {
  plant("../secret", "/own/directory");
  ASSERT_EQ(put("/own/f"), "");
  const auto move = [&](const std::string& from, const std::string& to) {
    return run(owned(FileOperation::kRename, root_ + from).put(Tag::kTarget, root_ + to))
        .error_text();
  };
  EXPECT_EQ(move("/own/directory/f", "/own/taken"), root_ + "/own/directory/f" + refusal_);
  EXPECT_EQ(move("/own/f", "/own/directory/f"), root_ + "/own/directory/f" + refusal_);
  EXPECT_EQ(move("/own/f", "/own/directory/new"), root_ + "/own/directory/new" + refusal_);
  EXPECT_EQ(move("/own/f", "/own/directory/a/b"), root_ + "/own/directory/a/b" + refusal_);
  EXPECT_EQ(contents(root_ + "/secret/f"), "secret");
  EXPECT_EQ(contents(root_ + "/own/f"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_ + "/secret"), {}), 1);
}

TEST_F(Planted, AnothersDirectoryIsNotMovedAway) {
  ASSERT_EQ(::chmod((root_ + "/shared").c_str(), 0777), 0);
  std::filesystem::create_directory(root_ + "/shared/roots");
  plant("../shared", "/own/all");
  const auto move = [&](const std::string& to) {
    return run(owned(FileOperation::kRename, root_ + "/own/all/roots").put(Tag::kTarget, to))
        .error_text();
  };
  EXPECT_EQ(move(root_ + "/own/taken"), root_ + "/own/all/roots" + refusal_);
  // Another name in the same directory is the directory's owner's or everybody's to give.
  EXPECT_EQ(move(root_ + "/own/all/renamed"), "");
  EXPECT_TRUE(std::filesystem::is_directory(root_ + "/shared/renamed"));
}

TEST_F(Planted, ALinkItselfIsMoved) {
  plant("../secret/f", "/own/link");
  ASSERT_EQ(put("/own/f"), "");
  plant("../secret", "/own/replaced");
  const auto move = [&](const std::string& from, const std::string& to) {
    return run(owned(FileOperation::kRename, root_ + from).put(Tag::kTarget, root_ + to))
        .error_text();
  };
  EXPECT_EQ(move("/own/link", "/own/moved"), "");
  EXPECT_EQ(std::filesystem::read_symlink(root_ + "/own/moved"), "../secret/f");
  EXPECT_EQ(move("/own/f", "/own/replaced"), "");
  EXPECT_EQ(contents(root_ + "/own/replaced"), "new");
  EXPECT_EQ(contents(root_ + "/secret/f"), "secret");
}

TEST_F(Owners, ADirectoryIsMovedToANameWithASlash) {
  std::filesystem::create_directory(root_ + "/d");
  write(root_ + "/f", "x");
  const auto move = [&](const std::string& from, const std::string& to) {
    return run(owned(FileOperation::kRename, root_ + from).put(Tag::kTarget, root_ + to))
        .error_text();
  };
  EXPECT_EQ(move("/d/", "/e/"), "");
  EXPECT_TRUE(std::filesystem::is_directory(root_ + "/e"));
  EXPECT_EQ(move("/f/", "/g"), "open " + root_ + "/f/: Not a directory");
  EXPECT_EQ(move("/none", "/made/x"), "rename " + root_ + "/none: No such file or directory");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/made"));
}

TEST_F(Owners, TheRootIsNeitherMovedNorRemoved) {
  EXPECT_NE(run(owned(FileOperation::kRename, "/").put(Tag::kTarget, root_ + "/x")).error_text(),
            "");
  EXPECT_NE(run(owned(FileOperation::kRename, root_ + "/..").put(Tag::kTarget, root_ + "/x"))
                .error_text(),
            "");
}

// Composing reads with the rights of the user who gets the file.
class Readers : public Planted {
 protected:
  std::string compose(const std::string& source) {
    return run(owned(FileOperation::kCompose, root_ + "/own/to").put(Tag::kSource, root_ + source))
        .error_text();
  }
};

TEST_F(Readers, WhatTheUserMayNotReadIsNotComposed) {
  ASSERT_EQ(::chmod((root_ + "/secret/f").c_str(), 0600), 0);
  EXPECT_EQ(compose("/secret/f"), "open " + root_ + "/secret/f: Permission denied");
  ASSERT_EQ(::chmod((root_ + "/secret/f").c_str(), 0644), 0);
  ASSERT_EQ(::chmod((root_ + "/secret").c_str(), 0700), 0);
  EXPECT_EQ(compose("/secret/f"), "open " + root_ + "/secret/f: Permission denied");
  EXPECT_EQ(contents(root_ + "/secret/f"), "secret");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/own/to"));
}

TEST_F(Readers, WhatTheirGroupMayReadIs) {
  ASSERT_EQ(::chown((root_ + "/secret/f").c_str(), 0, 8765), 0);
  ASSERT_EQ(::chmod((root_ + "/secret/f").c_str(), 0640), 0);
  EXPECT_EQ(compose("/secret/f"), "");
  EXPECT_EQ(contents(root_ + "/own/to"), "secret");
  EXPECT_EQ(owner(root_ + "/own/to"), "4321:8765");
  // Read as the user, and then written and removed with root's rights again.
  EXPECT_FALSE(std::filesystem::exists(root_ + "/secret/f"));
}

TEST_F(Readers, RootReadsAll) {
  ASSERT_EQ(::chmod((root_ + "/secret/f").c_str(), 0600), 0);
  EXPECT_EQ(run(operation(FileOperation::kCompose, root_ + "/secret/to")
                    .put_u8(Tag::kPrivileges, 1)
                    .put_u32(Tag::kUid, 0)
                    .put_u32(Tag::kGid, 0)
                    .put(Tag::kSource, root_ + "/secret/f"))
                .error_text(),
            "");
  EXPECT_EQ(contents(root_ + "/secret/to"), "secret");
}

}  // namespace
}  // namespace caisson::guest::testing
