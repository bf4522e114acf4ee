// Images whose root file system is one layer over that of another image.
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

#include "image/stacked_files.h"
#include "image/store_for_test.h"

namespace caisson::image::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class Stack : public StoreTest, public ::testing::WithParamInterface<RootfsForm> {
 protected:
  // On a disk: no erofs file is mounted from one in memory.
  Stack() : StoreTest("/var/tmp") {}
  void SetUp() override {
    setenv("CAISSON_RUN_DIR", (directory_ / "run").c_str(), 1);
    setenv("CAISSON_IMAGE_FORM", std::string(to_string(GetParam())).c_str(), 1);
    const auto form = open().preferred_form();
    if (!form.has_value()) GTEST_SKIP() << form.error().message();
  }
  void TearDown() override {
    unsetenv("CAISSON_IMAGE_FORM");
    unsetenv("CAISSON_RUN_DIR");
  }

  static LayerRef base_layer(Store& store) {
    return layer_of(store, Tar()
                               .add({.name = "./", .type = '5', .mode = 0711})
                               .add({.name = "dir", .type = '5', .mode = 0755})
                               .add({.name = "dir/below", .data = "base"})
                               .add({.name = "gone", .data = "base"})
                               .add({.name = "kept", .data = "base"})
                               .bytes());
  }
  static LayerRef changes(Store& store, const std::string& text = "top") {
    return layer_of(store, Tar()
                               .add({.name = "dir", .type = '5', .mode = 0700})
                               .add({.name = "dir/.wh..wh..opq"})
                               .add({.name = "dir/new", .data = text})
                               .add({.name = ".wh.gone"})
                               .bytes());
  }
  // "base" and, over it, "top".
  ImageInfo add_both() {
    Store store = open();
    const LayerRef lower = base_layer(store);
    const ImageRecord base = store.add_image(content({lower})).value().record;
    VERIFY(store.set_reference(parse_reference("base").value(), base.id).has_value());
    auto top = store.add_image_over(base.id, content({lower, changes(store)}));
    VERIFY(top.has_value());
    VERIFY(store.set_reference(parse_reference("top").value(), top->record.id).has_value());
    VERIFY(store.sweep().has_value());
    return std::move(*top);
  }
  static std::vector<int> roots_of(const ImageRef& image) {
    std::vector<int> roots = {image.root.fd.get()};
    for (const OpenRootfs& lower : image.below) roots.push_back(lower.root.fd.get());
    return roots;
  }
  static std::string text(const ImageRef& image, const char* path) {
    auto file = open_stacked_file(roots_of(image), path);
    if (!file.has_value()) return "(" + std::string(to_string(file.error().code())) + ")";
    char bytes[64];
    const ssize_t size = read(file->get(), bytes, sizeof bytes);
    return {bytes, static_cast<std::size_t>(size)};
  }
};

INSTANTIATE_TEST_SUITE_P(Forms, Stack,
                         ::testing::Values(RootfsForm::kDirectory, RootfsForm::kErofs),
                         [](const auto& form) {
                           return form.param == RootfsForm::kErofs ? "Erofs" : "Directory";
                         });

// The store was made on a kernel that shows them; the one that runs now is played.
TEST_P(Stack, OfErofsFilesIsRefusedWhereAttributesAreNotSeen) {
  add_both();
  const std::string path = directory_ / "run/erofs-mounts";
  auto kept = read_small_file(path);
  if (GetParam() == RootfsForm::kDirectory) {
    EXPECT_TRUE(open().resolve("top").has_value());
    return;
  }
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  const std::size_t at = kept->find("attributes yes\n");
  ASSERT_NE(at, std::string::npos) << *kept;
  std::ofstream(path) << kept->substr(0, at) << "attributes no\n";
  const auto top = open().resolve("top");
  ASSERT_FALSE(top.has_value());
  EXPECT_EQ(top.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(top.error().message(), HasSubstr("CONFIG_EROFS_FS_XATTR"));
  // What needs no marks is there.
  EXPECT_TRUE(open().resolve("base").has_value());
}

TEST_P(Stack, OnlyTheLayerIsMadeAndBothAreOpened) {
  const ImageInfo info = add_both();
  EXPECT_TRUE(info.flattened);
  EXPECT_EQ(info.rootfs->entries, 3u);  // dir, dir/new and the mark on gone
  EXPECT_EQ(info.rootfs->bytes, 3u);
  EXPECT_EQ(info.rootfs->form, GetParam());
  ASSERT_EQ(info.below.size(), 1u);
  EXPECT_EQ(info.rootfs->below, info.below[0].chain);
  EXPECT_EQ(info.rootfs_bytes(), 3u + 12u);
  Store store = open();
  const ImageRef image = store.resolve("top").value();
  ASSERT_EQ(image.below.size(), 1u);
  EXPECT_EQ(image.below[0].info.chain, info.rootfs->below);
  EXPECT_TRUE(image.below[0].in_use.valid());
  EXPECT_EQ(text(image, "dir/new"), "top");
  EXPECT_EQ(text(image, "kept"), "base");
  EXPECT_EQ(text(image, "gone"), "(not_found)");
  EXPECT_EQ(text(image, "dir/below"), "(not_found)");
  // The layer says nothing of the root, so it is as in what it lies over.
  struct stat root = {};
  ASSERT_EQ(fstat(image.root.fd.get(), &root), 0);
  EXPECT_EQ(root.st_mode & 07777, 0711u);
  EXPECT_TRUE(store.resolve("base").value().below.empty());
  EXPECT_TRUE(store.has_rootfs(info.record.chain));
  EXPECT_FALSE(store.has_whole_rootfs(info.record.chain));
  EXPECT_TRUE(store.has_whole_rootfs(info.rootfs->below));
}

TEST_P(Stack, WhatItLiesOverStaysAsLongAsItDoes) {
  const ImageInfo info = add_both();
  Store store = open();
  ASSERT_TRUE(store.remove("base").has_value());
  EXPECT_THAT(names("rootfs"), UnorderedElementsAre(info.rootfs->chain, info.rootfs->below));
  EXPECT_EQ(store.gc(GcScope::kAll, GcMode::kDryRun).value().rootfs, 0u);
  EXPECT_EQ(store.gc(GcScope::kAll, GcMode::kRemove).value().rootfs, 0u);
  EXPECT_EQ(text(store.resolve("top").value(), "kept"), "base");
  ASSERT_TRUE(store.remove("top").has_value());
  expect_nothing_left();
}

// Nobody knows what lies below one that cannot be read.
TEST_P(Stack, OneThatCannotBeReadKeepsAll) {
  const ImageInfo info = add_both();
  const std::string facts = "rootfs/" + info.rootfs->chain + "/info";
  const std::string good = read_text(directory_ / ("images/" + facts));
  Store store = open();
  replace(facts, "nonsense\n");
  // The name goes; what may have to stay is not cleaned away.
  EXPECT_EQ(store.remove("base").error().code(), Code::kDataLoss);
  EXPECT_EQ(store.sweep().error().code(), Code::kDataLoss);
  EXPECT_EQ(store.gc(GcScope::kAll, GcMode::kRemove).error().code(), Code::kDataLoss);
  EXPECT_THAT(names("rootfs"), UnorderedElementsAre(info.rootfs->chain, info.rootfs->below));
  replace(facts, good);
  EXPECT_EQ(text(store.resolve("top").value(), "kept"), "base");
  ASSERT_TRUE(store.remove("top").has_value());
  expect_nothing_left();
}

TEST_P(Stack, ASandboxKeepsAllOfThem) {
  const ImageInfo info = add_both();
  Store store = open();
  {
    const ImageRef image = store.resolve("top").value();
    EXPECT_TRUE(store.in_use(info.rootfs->chain));
    EXPECT_TRUE(store.in_use(info.rootfs->below));
    ASSERT_TRUE(store.remove("top").has_value());
    ASSERT_TRUE(store.remove("base").has_value());
    EXPECT_THAT(names("rootfs"), UnorderedElementsAre(info.rootfs->chain, info.rootfs->below));
    EXPECT_EQ(text(image, "kept"), "base");
  }
  open();
  expect_nothing_left();
}

TEST_P(Stack, TheNinthIsFlattened) {
  Store store = open();
  std::vector<LayerRef> layers = {base_layer(store)};
  ImageInfo info = store.add_image(content(layers)).value();
  for (unsigned roots = 2; roots <= kMostStacked; ++roots) {
    layers.push_back(changes(store, std::to_string(roots)));
    info = store.add_image_over(info.record.id, content(layers)).value();
    EXPECT_EQ(info.below.size() + 1, roots);
  }
  ImageRef image = store.resolve("sha256:" + info.record.id).value();
  EXPECT_EQ(image.below.size() + 1, kMostStacked);
  EXPECT_EQ(text(image, "dir/new"), "8");
  layers.push_back(changes(store, "9"));
  info = store.add_image_over(info.record.id, content(layers)).value();
  EXPECT_THAT(info.below, IsEmpty());
  EXPECT_EQ(info.rootfs->below, "");
  image = store.resolve("sha256:" + info.record.id).value();
  EXPECT_EQ(text(image, "dir/new"), "9");
  EXPECT_EQ(text(image, "kept"), "base");
  // From there it begins again.
  layers.push_back(changes(store, "10"));
  EXPECT_EQ(store.add_image_over(info.record.id, content(layers)).value().below.size(), 1u);
}

TEST_P(Stack, ALayerThatIsNoDeltaIsFlattened) {
  Store store = open();
  const LayerRef lower = base_layer(store);
  const std::string base = store.add_image(content({lower})).value().record.id;
  const LayerRef upper = layer_of(store, Tar().add({.name = "dir/new", .data = "top"}).bytes());
  const ImageInfo info = store.add_image_over(base, content({lower, upper})).value();
  EXPECT_EQ(info.rootfs->below, "");
  const ImageRef image = store.resolve("sha256:" + info.record.id).value();
  EXPECT_EQ(text(image, "dir/new"), "top");
  EXPECT_EQ(text(image, "dir/below"), "base");
}

TEST_P(Stack, ABadLayerIsRefusedAndLeavesNothing) {
  Store store = open();
  const LayerRef lower = base_layer(store);
  const std::string base = store.add_image(content({lower})).value().record.id;
  const LayerRef bad = layer_of(store, "no tar at all");
  auto added = store.add_image_over(base, content({lower, bad}));
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(added.error().message(), HasSubstr("layer 2"));
  // A blob of another tar than the config says.
  LayerRef other = changes(store);
  other.diff_id = sha256_of("another one");
  added = store.add_image_over(base, content({lower, other}));
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code(), Code::kDataLoss);
  EXPECT_THAT(names("rootfs"), ElementsAre(chain_id({lower})));
  EXPECT_THAT(names("ids"), ElementsAre(base));
}

TEST_P(Stack, TheLayersMustBeTheOthersAndOneMore) {
  Store store = open();
  const LayerRef lower = base_layer(store), upper = changes(store);
  const std::string base = store.add_image(content({lower})).value().record.id;
  for (const std::vector<LayerRef>& layers : std::vector<std::vector<LayerRef>>{
           {}, {lower}, {upper}, {upper, lower}, {lower, upper, upper}}) {
    auto added = store.add_image_over(base, content(layers));
    ASSERT_FALSE(added.has_value());
    EXPECT_EQ(added.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(added.error().message(), HasSubstr("and one more"));
  }
  EXPECT_EQ(store.add_image_over(sha256_of("x"), content({lower, upper})).error().code(),
            Code::kNotFound);
}

TEST_P(Stack, WithoutAUsableRootBelowItIsFlattened) {
  Store store = open();
  const LayerRef lower = base_layer(store);
  const std::string base = store.add_record(content({lower})).value().record.id;
  const ImageInfo info = store.add_image_over(base, content({lower, changes(store)})).value();
  EXPECT_EQ(info.rootfs->below, "");
  EXPECT_EQ(text(store.resolve("sha256:" + info.record.id).value(), "kept"), "base");
}

TEST_P(Stack, OneWhoseLowerRootIsGoneIsMadeAnew) {
  const ImageInfo info = add_both();
  std::filesystem::remove_all(directory_ / ("images/rootfs/" + info.rootfs->below));
  Store store = open();
  ASSERT_FALSE(store.resolve("top").has_value());
  const ImageInfo again = store
                              .add_image({.config = store.read_blob(info.record.id).value(),
                                          .layers = info.record.layers,
                                          .manifest = {}})
                              .value();
  EXPECT_TRUE(again.flattened);
  EXPECT_EQ(again.rootfs->below, "");
  EXPECT_EQ(text(store.resolve("top").value(), "kept"), "base");
}

TEST_P(Stack, AStackThatGoesRoundIsRefused) {
  const ImageInfo info = add_both();
  RootfsInfo round = info.below[0];
  round.below = info.rootfs->chain;
  replace("rootfs/" + round.chain + "/info", round.encode());
  Store store = open();
  auto image = store.resolve("top");
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code(), Code::kDataLoss);
  EXPECT_TRUE(store.sweep().has_value());
}

TEST_P(Stack, TheSameAgainIsFoundDone) {
  const ImageInfo info = add_both();
  Store store = open();
  ImageContent same{.config = store.read_blob(info.record.id).value(),
                    .layers = info.record.layers,
                    .manifest = {}};
  const std::string base = store.find("base").value();
  EXPECT_FALSE(store.add_image_over(base, same).value().flattened);
  const ImageInfo again = store.add_image(same).value();
  EXPECT_FALSE(again.flattened);
  EXPECT_EQ(again.below.size(), 1u);
}

}  // namespace
}  // namespace caisson::image::testing
