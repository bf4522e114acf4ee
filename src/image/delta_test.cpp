// One layer alone as an overlay's lower directory, in both forms.
#include <gmock/gmock.h>

#include "image/flatten_for_test.h"

namespace caisson::image {
namespace {

using ::testing::ElementsAre;
using testing::Found;
using ::testing::HasSubstr;
using testing::Tar;
using testing::TarEntry;

class Delta : public testing::FlattenTest {
 protected:
  Delta() { kind_ = RootfsKind::kDelta; }

  void make(const Tar& layer) {
    begin();
    auto applied = apply(layer.bytes());
    ASSERT_TRUE(applied.has_value()) << applied.error().message();
    found_ = listing();
  }
  bool hidden(const std::string& name) const { return exists(name) && mode(name) == S_IFCHR; }
  bool opaque(const std::string& name) const { return exists(name) && found_.at(name).opaque; }
};

INSTANTIATE_TEST_SUITE_P(Forms, Delta, testing::kBothForms, testing::name_of_form);

TEST_P(Delta, HasTheLayersEntriesAndTheRootsModeThatItWasGiven) {
  make(Tar()
           .add({.name = "dir", .type = '5', .mode = 01777, .mtime = 7})
           .add({.name = "dir/file", .data = "text"})
           .add({.name = "dir/second", .type = '1', .link = "dir/file"})
           .add({.name = "link", .type = '2', .link = "/anywhere"})
           .add({.name = "pipe", .type = '6'}));
  EXPECT_THAT(names(), ElementsAre("dir", "dir/file", "dir/second", "link", "pipe"));
  EXPECT_EQ(mode(""), S_IFDIR | kDeltaRootMode);
  EXPECT_EQ(mode("dir"), unsigned{S_IFDIR | 01777});
  EXPECT_EQ(found_.at("dir").seconds, 7);
  EXPECT_EQ(text("dir/second"), "text");
  EXPECT_EQ(found_.at("dir/second").links, 2u);
  for (const auto& [name, found] : found_) EXPECT_FALSE(found.opaque) << name;
}

TEST_P(Delta, AWhiteoutIsADevice0Of0ThatIsNobodysInParticular) {
  make(
      Tar().add({.name = "dir", .type = '5'}).add({.name = "dir/.wh.gone"}).add({.name = ".wh.b"}));
  EXPECT_THAT(names(), ElementsAre("b", "dir", "dir/gone"));
  EXPECT_TRUE(hidden("b"));
  EXPECT_TRUE(hidden("dir/gone"));
  EXPECT_EQ(found_.at("b").links, 1u);
}

TEST_P(Delta, AnOpaqueDirectoryIsMarkedSmallLargeOrEmpty) {
  Tar layer;
  for (const std::string name : {"empty", "large", "plain", "small"}) {
    layer.add({.name = name, .type = '5'});
    if (name != "plain") layer.add({.name = name + "/.wh..wh..opq"});
  }
  layer.add({.name = "small/file", .data = "x"});
  for (int i = 0; i < 300; ++i)
    layer.add({.name = "large/" + std::to_string(i) + std::string(50, 'n')});
  make(layer);
  for (const char* name : {"empty", "large", "small"}) EXPECT_TRUE(opaque(name)) << name;
  EXPECT_FALSE(opaque("plain"));
  EXPECT_EQ(text("small/file"), "x");
}

TEST_P(Delta, AMarkMeansTheSameWhereverItIs) {
  make(Tar()
           .add({.name = "before", .type = '5'})
           .add({.name = "before/.wh..wh..opq"})
           .add({.name = "before", .type = '5', .mode = 0700})  // stays opaque
           .add({.name = "after", .type = '5'})
           .add({.name = "after/file"})
           .add({.name = "after/.wh..wh..opq"})
           .add({.name = ".wh.made"})
           .add({.name = "made", .type = '5'})
           .add({.name = "again", .type = '5'})
           .add({.name = ".wh.again"})
           .add({.name = "file"})
           .add({.name = ".wh.file"}));
  for (const char* name : {"before", "after", "made", "again"}) EXPECT_TRUE(opaque(name)) << name;
  EXPECT_EQ(mode("before"), unsigned{S_IFDIR | 0700});
  EXPECT_TRUE(exists("after/file"));
  EXPECT_EQ(mode("file"), unsigned{S_IFREG | 0644});
}

TEST_P(Delta, NothingIsMarkedInWhatIsOpaque) {
  make(Tar()
           .add({.name = "dir", .type = '5'})
           .add({.name = "dir/.wh.gone"})
           .add({.name = "dir/sub", .type = '5'})
           .add({.name = "dir/sub/.wh.gone"})
           .add({.name = "dir/.wh..wh..opq"})
           .add({.name = "dir/.wh.late"})
           .add({.name = "other", .type = '5'})
           .add({.name = "other/.wh.gone"}));
  EXPECT_THAT(names(), ElementsAre("dir", "dir/sub", "other", "other/gone"));
}

TEST_P(Delta, ADirectoryInTheFilesPlaceHidesWhatIsBelowToo) {
  make(Tar().add({.name = "name"}).add({.name = "name", .type = '5'}));
  EXPECT_TRUE(opaque("name"));
  make(Tar()
           .add({.name = "name", .type = '5'})
           .add({.name = "name/below"})
           .add({.name = "name", .type = '2', .link = "x"}));
  EXPECT_THAT(names(), ElementsAre("name"));
}

TEST_P(Delta, RefusesWhatMeansSomethingOnlyWithWhatIsBelow) {
  constexpr const char* kWay = "its directory must be an entry before it";
  EXPECT_THAT(refusal(Tar().add({.name = "dir/file"}).bytes()), HasSubstr(kWay));
  EXPECT_THAT(refusal(Tar().add({.name = "dir/.wh.file"}).bytes()), HasSubstr(kWay));
  EXPECT_THAT(refusal(Tar().add({.name = "dir/.wh..wh..opq"}).bytes()), HasSubstr(kWay));
  EXPECT_THAT(refusal(Tar()
                          .add({.name = "real", .type = '5'})
                          .add({.name = "link", .type = '2', .link = "real"})
                          .add({.name = "link/file"})
                          .bytes()),
              HasSubstr(kWay));
  EXPECT_THAT(refusal(Tar().add({.name = ".wh.dir"}).add({.name = "dir/file"}).bytes()),
              HasSubstr(kWay));
  EXPECT_THAT(refusal(Tar().add({.name = "file"}).add({.name = "file/below"}).bytes()),
              HasSubstr(kWay));
  EXPECT_THAT(refusal(Tar().add({.name = "./", .type = '5'}).bytes()),
              HasSubstr("cannot change the root"));
  EXPECT_THAT(refusal(Tar().add({.name = ".wh..wh..opq"}).bytes()),
              HasSubstr("cannot hide the whole root"));
}

TEST_P(Delta, RefusesHardLinksToWhatItHasNot) {
  auto link_to = [](const char* target) {
    return Tar()
        .add({.name = "dir", .type = '5'})
        .add({.name = ".wh.gone"})
        .add({.name = "link", .type = '1', .link = target})
        .bytes();
  };
  EXPECT_THAT(refusal(link_to("below")), HasSubstr("no earlier entry of the layer has made"));
  EXPECT_THAT(refusal(link_to("gone")), HasSubstr("no earlier entry of the layer has made"));
  EXPECT_THAT(refusal(link_to("dir")), HasSubstr("which is a directory"));
  EXPECT_THAT(refusal(Tar()
                          .add({.name = "dir", .type = '5'})
                          .add({.name = "dir/file"})
                          .add({.name = "dir", .type = '1', .link = "dir/file"})
                          .bytes()),
              HasSubstr("would be removed by it"));
}

TEST_P(Delta, LeavesDevicesOfTheArchiveOut) {
  begin();
  auto applied =
      apply(Tar().add({.name = "null", .type = '3'}).add({.name = "disk", .type = '4'}).bytes());
  ASSERT_TRUE(applied.has_value());
  EXPECT_EQ(applied->counts.dropped_devices, 2u);
  found_ = listing();
  EXPECT_TRUE(names().empty());
}

TEST_P(Delta, TakesOneLayer) {
  make(Tar().add({.name = "file"}));
  auto second = apply(Tar().add({.name = "second"}).bytes());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kInternal);
}

}  // namespace
}  // namespace caisson::image
