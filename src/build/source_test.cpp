#include "build/source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "build/copy.h"

namespace caisson::build {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Sources : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-source-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    write("a.c", "a");
    write("b.c", "b");
    write("d/x", "x");
    write("d/e/y", "y");
    write("node_modules/z", "z");
    std::filesystem::create_symlink("../a.c", root_ / "d/link");
    std::filesystem::create_symlink("/etc", root_ / "out");
    std::filesystem::create_symlink("d/e", root_ / "inner");
    fd_ = Fd(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  Source source(std::string_view rules = "", Source::Links links = Source::Links::kBeneath) {
    rules_ = *IgnoreRules::parse(rules, ".dockerignore");
    return Source(fd_.get(), links, rules_, "the context");
  }
  static std::vector<std::string> paths(const SourceTree& tree) {
    std::vector<std::string> all;
    for (const SourceEntry& entry : tree.entries) all.push_back(entry.path);
    return all;
  }
  std::string digest(std::string_view rules = "") {
    const Source from = source(rules);
    std::vector<SourceTree> trees;
    trees.push_back(*from.look(""));
    return *digest_trees(from, trees);
  }

  std::filesystem::path root_;
  Fd fd_;
  IgnoreRules rules_;
};

TEST_F(Sources, WildcardsMeanWhatIsThere) {
  const Source from = source("b.c\n");
  EXPECT_THAT(*from.match("*.c"), ElementsAre("a.c"));
  EXPECT_THAT(*from.match("*/x"), ElementsAre("d/x"));
  EXPECT_THAT(*from.match("[ab].c"), ElementsAre("a.c"));
  EXPECT_THAT(*from.match("*.h"), ElementsAre());
  EXPECT_THAT(*from.match("none"), ElementsAre("none"));
  EXPECT_THAT(*from.match(""), ElementsAre(""));
  EXPECT_FALSE(from.match("[").has_value());
}

TEST_F(Sources, ATreeWithoutWhatIsIgnored) {
  EXPECT_THAT(paths(*source("node_modules\n").look("")),
              ElementsAre("", "a.c", "b.c", "d", "d/e", "d/e/y", "d/link", "d/x", "inner", "out"));
  EXPECT_THAT(paths(*source("*\n!d/e\n").look("")), ElementsAre("", "d", "d/e", "d/e/y"));
  auto ignored = source("a.c\n").look("a.c");
  ASSERT_FALSE(ignored.has_value());
  EXPECT_EQ(ignored.error().message(), "'a.c' is left out of the context by .dockerignore");
}

TEST_F(Sources, LinksNeverLeadOut) {
  const Source from = source();
  EXPECT_THAT(from.look("out").error().message(),
              HasSubstr("leads out of the context through a link"));
  EXPECT_THAT(from.look("out/passwd").error().message(), HasSubstr("leads out of the context"));
  EXPECT_THAT(from.look("../x").error().message(), HasSubstr("leads out of the context"));
  // What is named is followed, what lies below is copied as a link.
  EXPECT_THAT(paths(*from.look("inner")), ElementsAre("", "y"));
  const SourceTree tree = *from.look("d");
  EXPECT_EQ(tree.entries[3].type, SourceType::kLink);
  EXPECT_EQ(tree.entries[3].target, "../a.c");
  // In an image an absolute link begins at its root.
  EXPECT_EQ(source("", Source::Links::kInRoot).look("out").error().code(), Code::kNotFound);
  // Of what was sent as it is, a link that is named is the link.
  EXPECT_EQ(source("", Source::Links::kAsTheyAre).look("out")->entries[0].type, SourceType::kLink);
}

TEST_F(Sources, WhatIsLeftOutIsSoByItsPlace) {
  std::filesystem::create_symlink("node_modules/z", root_ / "zlink");
  std::filesystem::create_symlink("d", root_ / "dlink");
  std::filesystem::create_symlink(".", root_ / "self");
  const auto words = [&](const Result<SourceTree>& tree) {
    return tree.has_value() ? std::string("found") : tree.error().message();
  };
  EXPECT_THAT(words(source("node_modules\n").look("zlink")), HasSubstr("is left out"));
  EXPECT_THAT(words(source("node_modules\n").look("self/node_modules/z")),
              HasSubstr("is left out"));
  EXPECT_THAT(paths(*source("d/e\n").look("dlink")), ElementsAre("", "link", "x"));
  EXPECT_THAT(paths(*source("*\n!d/x\n!self\n").look("self")), ElementsAre("", "d", "d/x", "self"));
  // A link that is left out itself leads nowhere, and what only its name would hide is there.
  EXPECT_THAT(words(source("dlink\n").look("dlink")), HasSubstr("'dlink' is left out"));
  EXPECT_THAT(paths(*source("dlink/x\n").look("dlink")), ElementsAre("", "e", "e/y", "link", "x"));
  EXPECT_EQ(source().look("dlink")->name, "dlink");
}

TEST_F(Sources, ALinkThatAppearsAfterTheLookIsNotFollowed) {
  const Source from = source("node_modules\n");
  const SourceTree file = *from.look("a.c"), folder = *from.look("d");
  std::filesystem::remove(root_ / "a.c");
  std::filesystem::create_symlink("node_modules/z", root_ / "a.c");
  EXPECT_THAT(from.open(file, file.entries[0]).error().message(), HasSubstr("changed"));
  std::filesystem::rename(root_ / "d", root_ / "away");
  std::filesystem::create_symlink("node_modules", root_ / "d");
  std::filesystem::create_symlink("z", root_ / "node_modules/x");
  EXPECT_THAT(from.open(folder, folder.entries.back()).error().message(), HasSubstr("changed"));
}

TEST_F(Sources, RefusesWhatIsNoFile) {
  ASSERT_EQ(::mkfifo((root_ / "d/pipe").c_str(), 0600), 0);
  EXPECT_THAT(source().look("d").error().message(),
              HasSubstr("'d/pipe' of the context is neither file"));
  EXPECT_THAT(source().look("nope").error().message(), HasSubstr("the context has no 'nope'"));
  std::string deep;
  for (int i = 0; i < 70; ++i) deep += "f/";
  std::filesystem::create_directories(root_ / deep);
  EXPECT_THAT(source().look("f").error().message(), HasSubstr("nested more than 60 deep"));
}

TEST_F(Sources, TheDigestIsOfContents) {
  const std::string first = digest();
  EXPECT_EQ(digest(), first);
  const timespec times[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(fd_.get(), "a.c", times, 0), 0);
  EXPECT_EQ(digest(), first);
  ASSERT_EQ(::fchmodat(fd_.get(), "a.c", 0700, 0), 0);
  const std::string mode = digest();
  EXPECT_NE(mode, first);
  write("a.c", "b");
  const std::string bytes = digest();
  EXPECT_NE(bytes, mode);
  EXPECT_NE(digest("b.c\n"), bytes);
}

TEST_F(Sources, ArchivesByNameAndContents) {
  const Fd file(::openat(fd_.get(), "a.c", O_RDONLY | O_CLOEXEC));
  for (const char* name : {"x.tar.gz", "x.tgz", "x.tar.zst", "x.txz"})
    EXPECT_TRUE(*is_archive(name, file.get())) << name;
  EXPECT_FALSE(*is_archive("x.gz", file.get()));
  EXPECT_FALSE(is_archive("x.tar.bz2", file.get()).has_value());
  write("t", std::string(257, '\0') + "ustar" + std::string(250, '\0'));
  const Fd tar(::openat(fd_.get(), "t", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(*is_archive("t", tar.get()));
}

TEST(FindOwner, ByNamesAndNumbers) {
  constexpr std::string_view kPasswd =
      "root:x:0:0:root:/root:/bin/sh\nme:x:1000:100::/:/bin/sh\nbad\n";
  constexpr std::string_view kGroup = "root:x:0:\nstaff:x:50:me\n";
  const auto owner = [&](const std::string& text) {
    auto found = find_owner_in(kPasswd, kGroup, text);
    return found.has_value() ? std::to_string(found->uid) + ":" + std::to_string(found->gid)
                             : found.error().message();
  };
  EXPECT_EQ(owner("me"), "1000:100");
  EXPECT_EQ(owner("me:staff"), "1000:50");
  EXPECT_EQ(owner("7"), "7:7");
  EXPECT_EQ(owner("7:staff"), "7:50");
  EXPECT_EQ(owner("root:9"), "0:9");
  EXPECT_EQ(owner("you"), "there is no user 'you' in the image's /etc/passwd");
  EXPECT_EQ(owner("bad"), "there is no user 'bad' in the image's /etc/passwd");
  EXPECT_EQ(owner("me:none"), "there is no group 'none' in the image's /etc/group");
  EXPECT_EQ(owner("70000"), "there is no user '70000' in the image's /etc/passwd");
  EXPECT_EQ(owner(":staff"), "there is no user '' in the image's /etc/passwd");
  EXPECT_EQ(owner("me:"), "there is no group '' in the image's /etc/group");
}

}  // namespace
}  // namespace caisson::build
