// What layers do to each other: whiteouts, opaque directories, replaced kinds, hard links and
// symbolic links across layers, in both forms.
#include <gmock/gmock.h>

#include "image/flatten_for_test.h"

namespace caisson::image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Tar;

using Layers = testing::FlattenTest;

INSTANTIATE_TEST_SUITE_P(Forms, Layers, testing::kBothForms, testing::name_of_form);

TEST_P(Layers, LaterOnesWin) {
  unpack_layers({Tar()
                     .add({.name = "d/", .type = '5', .mode = 0700})
                     .add({.name = "d/a", .data = "one"})
                     .add({.name = "d/b", .data = "one"}),
                 Tar()
                     .add({.name = "d/", .type = '5', .mode = 0711, .uid = 7, .mtime = 5})
                     .add({.name = "d/b", .data = "two"})
                     .add({.name = "d/c", .data = "two"})});
  EXPECT_THAT(names(), ElementsAre("d", "d/a", "d/b", "d/c"));
  EXPECT_EQ(text("d/a"), "one");
  EXPECT_EQ(text("d/b"), "two");
  EXPECT_EQ(mode("d"), S_IFDIR | 0711u);
  EXPECT_EQ(found_["d"].seconds, 5);
}

TEST_P(Layers, ADirectoryThatIsNotMentionedKeepsItsAttributes) {
  unpack_layers({Tar().add({.name = "d/", .type = '5', .mode = 0700, .mtime = 9}),
                 Tar().add({.name = "d/x"})});
  EXPECT_EQ(mode("d"), S_IFDIR | 0700u);
  EXPECT_EQ(found_["d"].seconds, 9);
}

TEST_P(Layers, AWhiteoutRemovesWhatLowerLayersHave) {
  unpack_layers({Tar()
                     .add({.name = "file"})
                     .add({.name = "d/x/y"})
                     .add({.name = "d/link", .type = '2', .link = "x"})
                     .add({.name = "kept"}),
                 Tar()
                     .add({.name = ".wh.file"})
                     .add({.name = "d/.wh.x"})
                     .add({.name = "d/.wh.link"})
                     .add({.name = "d/.wh.absent"})
                     .add({.name = "absent/.wh.x"})
                     .add({.name = "kept/.wh.x"})});
  EXPECT_THAT(names(), ElementsAre("d", "kept"));
}

TEST_P(Layers, AWhiteoutTouchesNothingOfItsOwnLayerWhateverTheOrder) {
  const Tar below = Tar()
                        .add({.name = "f", .data = "old"})
                        .add({.name = "d/", .type = '5', .mode = 0700})
                        .add({.name = "d/old"})
                        .add({.name = "i/", .type = '5', .mode = 0700})
                        .add({.name = "i/old"});
  const Tar marks_first = Tar()
                              .add({.name = ".wh.f"})
                              .add({.name = ".wh.d"})
                              .add({.name = ".wh.i"})
                              .add({.name = "f", .data = "new"})
                              .add({.name = "d/", .type = '5', .mode = 0711})
                              .add({.name = "d/new"})
                              .add({.name = "i/new"});
  const Tar marks_last = Tar()
                             .add({.name = "f", .data = "new"})
                             .add({.name = "d/", .type = '5', .mode = 0711})
                             .add({.name = "d/new"})
                             .add({.name = "i/new"})
                             .add({.name = ".wh.f"})
                             .add({.name = ".wh.d"})
                             .add({.name = ".wh.i"});
  for (const Tar& above : {marks_first, marks_last}) {
    unpack_layers({below, above});
    EXPECT_THAT(names(), ElementsAre("d", "d/new", "f", "i", "i/new"));
    EXPECT_EQ(text("f"), "new");
    EXPECT_EQ(mode("d"), S_IFDIR | 0711u);
    // The lower one's mode went with it.
    EXPECT_EQ(mode("i"), S_IFDIR | 0755u);
  }
}

TEST_P(Layers, AnOpaqueDirectoryHidesLowerLayersWhateverTheOrder) {
  const Tar below = Tar()
                        .add({.name = "d/", .type = '5', .mode = 0700})
                        .add({.name = "d/old"})
                        .add({.name = "d/sub/", .type = '5', .mode = 0700})
                        .add({.name = "d/sub/deep/old"});
  const Tar first =
      Tar().add({.name = "d/.wh..wh..opq"}).add({.name = "d/new"}).add({.name = "d/sub/deep/new"});
  const Tar last =
      Tar().add({.name = "d/new"}).add({.name = "d/sub/deep/new"}).add({.name = "d/.wh..wh..opq"});
  for (const Tar& above : {first, last}) {
    unpack_layers({below, above});
    EXPECT_THAT(names(), ElementsAre("d", "d/new", "d/sub", "d/sub/deep", "d/sub/deep/new"));
    EXPECT_EQ(mode("d"), S_IFDIR | 0700u);
    EXPECT_EQ(mode("d/sub"), S_IFDIR | 0755u);
  }
}

TEST_P(Layers, AnOpaqueRootHidesEverythingBelow) {
  unpack_layers({Tar().add({.name = "a/b"}).add({.name = "c"}),
                 Tar().add({.name = "x"}).add({.name = ".wh..wh..opq"}).add({.name = "a/new"})});
  EXPECT_THAT(names(), ElementsAre("a", "a/new", "x"));
}

TEST_P(Layers, WhatIsHiddenNeverComesBack) {
  unpack_layers({Tar().add({.name = "d/old"}),
                 Tar().add({.name = "d/.wh..wh..opq"}).add({.name = "d/x"}),
                 Tar().add({.name = "d/", .type = '5', .mode = 0755}).add({.name = "d/y"}),
                 Tar().add({.name = ".wh.d"}), Tar().add({.name = "d/z"})});
  EXPECT_THAT(names(), ElementsAre("d", "d/z"));
}

TEST_P(Layers, MarksOfTheRootAreRefused) {
  for (const char* name : {".wh.", ".wh..", ".wh...", "d/.wh.", "d/.wh..", "d/.wh...", ".wh.d/x",
                           "a/.wh.d/x", ".wh.a/.wh.b"}) {
    begin();
    ASSERT_TRUE(apply(Tar().add({.name = "d/x", .data = "kept"}).bytes()).has_value());
    EXPECT_THAT(refusal_of_next(Tar().add({.name = name}).bytes()), HasSubstr("'.wh.' must be"))
        << name;
  }
}

TEST_P(Layers, BookkeepingOfOldFileSystemsIsLeftOut) {
  unpack_layers({Tar()
                     .add({.name = ".wh..wh.aufs"})
                     .add({.name = ".wh..wh.plnk/", .type = '5'})
                     .add({.name = ".wh..wh.plnk/12.34", .data = "x"})
                     .add({.name = "x"})});
  EXPECT_THAT(names(), ElementsAre("x"));
}

TEST_P(Layers, KindsReplaceEachOther) {
  const auto of_kind = [](char type, int number) {
    const std::string name = "x" + std::to_string(number);
    Tar tar;
    tar.add({.name = name, .type = type, .data = type == '0' ? "data" : "", .link = "target"});
    return tar;
  };
  const char kinds[] = {'0', '2', '5', '6'};
  for (char below : kinds) {
    for (char above : kinds) {
      unpack_layers({of_kind(below, 1), of_kind(above, 1)});
      EXPECT_THAT(names(), ElementsAre("x1"));
      const unsigned types[] = {S_IFREG, S_IFLNK, S_IFDIR, S_IFIFO};
      EXPECT_EQ(mode("x1") & S_IFMT, types[std::find(kinds, kinds + 4, above) - kinds]);
    }
  }
}

TEST_P(Layers, HardLinksReachAcrossLayers) {
  unpack_layers({Tar().add({.name = "a", .data = "one"}).add({.name = "gone", .data = "x"}),
                 Tar().add({.name = "b", .type = '1', .link = "a"}).add({.name = ".wh.gone"}),
                 Tar().add({.name = "a", .data = "two"})});
  EXPECT_EQ(text("b"), "one");
  EXPECT_EQ(text("a"), "two");
  EXPECT_EQ(found_["b"].links, 1u);
  EXPECT_THAT(refusal_of_next(Tar().add({.name = "c", .type = '1', .link = "gone"}).bytes()),
              HasSubstr("no earlier entry"));
  unpack_layers({Tar().add({.name = "a", .data = "one"}),
                 Tar().add({.name = "b", .type = '1', .link = "a"}),
                 Tar().add({.name = "c", .type = '1', .link = "b"}).add({.name = ".wh.a"})});
  EXPECT_EQ(found_["c"].links, 2u);
  EXPECT_EQ(found_["c"].first_name, "b");
}

TEST_P(Layers, NamesGoThroughTheLinksOfLowerLayers) {
  unpack_layers({Tar()
                     .add({.name = "usr/lib/", .type = '5', .mode = 0755})
                     .add({.name = "lib", .type = '2', .link = "usr/lib"})
                     .add({.name = "usr/lib/old"})
                     .add({.name = "usr/lib/gone"}),
                 Tar()
                     .add({.name = "lib/new", .data = "x"})
                     .add({.name = "lib/.wh.gone"})
                     .add({.name = "hard", .type = '1', .link = "lib/new"})});
  EXPECT_THAT(names(), ElementsAre("hard", "lib", "usr", "usr/lib", "usr/lib/new", "usr/lib/old"));
  EXPECT_EQ(mode("lib") & S_IFMT, static_cast<unsigned>(S_IFLNK));
  EXPECT_EQ(found_["hard"].first_name, "hard");
  EXPECT_EQ(found_["usr/lib/new"].first_name, "hard");
}

TEST_P(Layers, LimitsHoldForAllOfThem) {
  limits_.entries = 3;
  begin();
  ASSERT_TRUE(apply(Tar().add({.name = "a"}).add({.name = "b"}).bytes()).has_value());
  EXPECT_THAT(refusal_of_next(Tar().add({.name = "c"}).add({.name = "d"}).bytes()),
              HasSubstr("more than 3 entries"));
  // Directories that are only implied count too.
  EXPECT_THAT(refusal(Tar().add({.name = "a/b/c/d"}).bytes()), HasSubstr("more than 3 entries"));
  limits_ = {};
  limits_.bytes = 10;
  begin();
  ASSERT_TRUE(apply(Tar().add({.name = "a", .data = "123456"}).bytes()).has_value());
  EXPECT_THAT(refusal_of_next(Tar().add({.name = "a", .data = "12345"}).bytes()),
              HasSubstr("larger than 10 bytes"));
}

TEST_P(Layers, MoreMayFollowAfterTheEnd) {
  begin();
  for (int i = 0; i < 20; ++i) {
    Tar tar;
    const std::string contents(5000, static_cast<char>('a' + i));
    tar.add({.name = "f" + std::to_string(i % 7), .data = contents});
    tar.add({.name = "d/" + std::to_string(i), .data = std::to_string(i)});
    if (i > 0) tar.add({.name = "d/.wh." + std::to_string(i / 2)});
    ASSERT_TRUE(apply(tar.bytes()).has_value());
    found_ = listing();
    EXPECT_EQ(text("f" + std::to_string(i % 7)), contents);
    EXPECT_EQ(text("d/" + std::to_string(i)), std::to_string(i));
  }
}

TEST_P(Layers, ManyNamesInOneDirectory) {
  // The names around "." and "..", and more than fit into a block.
  const std::string odd[] = {"!", "+", "-", "-.", ".!", ".-", ".a", "..a", "...", ".-x", "/"};
  Tar tar;
  for (const std::string& name : odd) {
    if (name != "/") tar.add({.name = "d/" + name, .data = name});
  }
  for (int i = 0; i < 3000; ++i) {
    tar.add({.name = "d/" + std::string(static_cast<std::size_t>(1 + i % 40), 'x') +
                     std::to_string(i)});
  }
  for (int i = 0; i < 100; ++i) tar.add({.name = "d/dir" + std::to_string(i), .type = '5'});
  unpack_layers({tar});
  EXPECT_EQ(found_.size(), 3112u);
  EXPECT_EQ(found_["d"].links, 102u);
  EXPECT_EQ(text("d/.-x"), ".-x");
}

TEST_P(Layers, EverySizeOfContents) {
  Tar tar;
  for (std::size_t size : {0, 1, 1023, 1024, 1025, 4031, 4032, 4033, 4095, 4096, 4097, 100'000}) {
    std::string data;
    for (std::size_t i = 0; i < size; ++i) data += static_cast<char>(i * 7 + size);
    tar.add({.name = "f" + std::to_string(size), .data = data});
    if (size == 0 || size > 4095) continue;
    tar.add_pax("linkpath", std::string(size, 'l'))
        .add({.name = "l" + std::to_string(size), .type = '2', .link = "x"});
  }
  unpack_layers({tar});
  for (const auto& [name, file] : found_) {
    if (name.empty()) continue;
    const std::size_t size = std::stoul(name.substr(1));
    ASSERT_EQ(file.contents.size(), size);
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(file.contents[i], name[0] == 'l' ? 'l' : static_cast<char>(i * 7 + size)) << name;
    }
  }
}

}  // namespace
}  // namespace caisson::image
