#include "image/worker/layer_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

using ::testing::HasSubstr;

TEST(LayerTree, FindsWhatWasAddedUntilItIsRemoved) {
  LayerTree tree(100);
  ASSERT_TRUE(tree.begin_layer().has_value());
  const NodeId etc = tree.add(kRootNode, "etc", NodeKind::kDirectory).value();
  const NodeId passwd = tree.add(etc, "passwd", NodeKind::kFile).value();
  EXPECT_EQ(tree.find(kRootNode, "etc"), etc);
  EXPECT_EQ(tree.find(etc, "passwd"), passwd);
  EXPECT_EQ(tree.find(kRootNode, "passwd"), std::nullopt);
  EXPECT_EQ(tree.path(passwd), "etc/passwd");
  tree.remove(etc);
  EXPECT_EQ(tree.find(kRootNode, "etc"), std::nullopt);
  const NodeId again = tree.add(kRootNode, "etc", NodeKind::kDirectory).value();
  EXPECT_EQ(tree.find(again, "passwd"), std::nullopt);
  EXPECT_EQ(tree.reachable(), (std::vector<bool>{true, false, false, true}));
}

TEST(LayerTree, AnOpaqueDirectoryHidesEarlierLayersAlone) {
  LayerTree tree(100);
  ASSERT_TRUE(tree.begin_layer().has_value());
  const NodeId d = tree.add(kRootNode, "d", NodeKind::kDirectory).value();
  const NodeId sub = tree.add(d, "sub", NodeKind::kDirectory).value();
  tree.add(d, "old", NodeKind::kFile).value();
  tree.add(sub, "old", NodeKind::kFile).value();
  ASSERT_TRUE(tree.begin_layer().has_value());
  const NodeId fresh = tree.add(d, "new", NodeKind::kFile).value();
  tree.touch(sub, false);
  tree.make_opaque(d);
  EXPECT_EQ(tree.find(kRootNode, "d"), d);
  EXPECT_EQ(tree.find(d, "new"), fresh);
  EXPECT_EQ(tree.find(d, "old"), std::nullopt);
  EXPECT_EQ(tree.find(d, "sub"), sub);
  EXPECT_EQ(tree.find(sub, "old"), std::nullopt);
  EXPECT_EQ(tree.renewed(), std::vector<NodeId>{sub});
  // What is hidden does not come back when its name does.
  const NodeId old = tree.add(d, "old", NodeKind::kDirectory).value();
  EXPECT_EQ(tree.find(d, "old"), old);
  ASSERT_TRUE(tree.begin_layer().has_value());
  EXPECT_EQ(tree.find(d, "old"), old);
  EXPECT_TRUE(tree.renewed().empty());
}

TEST(LayerTree, KeepsManyNamesInLittleMemory) {
  LayerTree tree(300'000);
  ASSERT_TRUE(tree.begin_layer().has_value());
  for (int i = 0; i < 200'000; ++i) {
    tree.add(kRootNode, "name" + std::to_string(i), NodeKind::kFile).value();
  }
  for (int i = 0; i < 200'000; ++i) {
    ASSERT_EQ(tree.find(kRootNode, "name" + std::to_string(i)), static_cast<NodeId>(i + 1));
  }
  EXPECT_EQ(tree.find(kRootNode, "name200000"), std::nullopt);
}

TEST(LayerTree, HoldsItsLimits) {
  LayerTree tree(2);
  ASSERT_TRUE(tree.begin_layer().has_value());
  tree.add(kRootNode, "a", NodeKind::kFile).value();
  // What was removed counts: its memory is not given back.
  tree.remove(*tree.find(kRootNode, "a"));
  tree.add(kRootNode, "b", NodeKind::kFile).value();
  EXPECT_THAT(tree.add(kRootNode, "c", NodeKind::kFile).error().message(),
              HasSubstr("more than 2 entries"));

  LayerTree deep(1000);
  ASSERT_TRUE(deep.begin_layer().has_value());
  NodeId at = kRootNode;
  for (int i = 0; i < 256; ++i) at = deep.add(at, "d", NodeKind::kDirectory).value();
  EXPECT_THAT(deep.add(at, "d", NodeKind::kFile).error().message(),
              HasSubstr("more than 256 directories deep"));

  LayerTree named(2'000'000);
  ASSERT_TRUE(named.begin_layer().has_value());
  std::string message;
  for (std::uint64_t i = 0; message.empty() && i < 2'000'000; ++i) {
    std::string name = std::to_string(i);
    name.resize(255, 'n');
    auto added = named.add(kRootNode, name, NodeKind::kFile);
    if (!added.has_value()) message = added.error().message();
  }
  EXPECT_THAT(message, HasSubstr("names have more than"));
  EXPECT_LE(named.name_bytes(), kMaxNameBytes);

  LayerTree layered(10);
  for (int i = 0; i < kMaxLayers; ++i) ASSERT_TRUE(layered.begin_layer().has_value());
  EXPECT_THAT(layered.begin_layer().error().message(), HasSubstr("more than 10000 layers"));
}

}  // namespace
}  // namespace caisson::image
