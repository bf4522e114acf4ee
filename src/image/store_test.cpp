// Images of the store: names, adding, the build cache.
#include <signal.h>
#include <sys/resource.h>

#include "image/store_for_test.h"

namespace caisson::image::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Images = StoreTest;

TEST_F(Images, ResolveByNameByIdAndByItsBeginning) {
  const std::string id = add("base");
  Store store = open();
  for (const std::string& text : {std::string("base"), std::string("base:latest"), "sha256:" + id,
                                  id, id.substr(0, 6), "sha256:" + id.substr(0, 12)}) {
    auto image = store.resolve(text);
    ASSERT_TRUE(image.has_value()) << text << ": " << image.error().message();
    EXPECT_EQ(image->record.id, id);
    EXPECT_EQ(image->rootfs.chain, image->record.chain);
    EXPECT_EQ(image->config.diff_ids.size(), 1u);
    EXPECT_EQ(faccessat(image->root.fd.get(), "file", F_OK, 0), 0);
    EXPECT_EQ(store.find(text).value(), id);
  }
  EXPECT_EQ(store.resolve("base").value().name, "base:latest");
  EXPECT_EQ(store.resolve(id.substr(0, 6)).value().name, "sha256:" + id);
}

TEST_F(Images, UnknownNamesAreErrorsThatListWhatThereIs) {
  EXPECT_THAT(open().resolve("base").error().message(), HasSubstr("no images yet"));
  const std::string id = add("base");
  Store store = open();
  const std::string other = id[0] == 'a' ? "bbbbbb" : "aaaaaa";
  for (const std::string& text :
       {std::string("basse"), other, id.substr(0, 5), "sha256:" + sha256_of("")}) {
    auto image = store.resolve(text);
    ASSERT_FALSE(image.has_value()) << text;
    EXPECT_EQ(image.error().code(), Code::kNotFound) << image.error().message();
    EXPECT_THAT(image.error().message(), HasSubstr("there are: base:latest"));
  }
  EXPECT_EQ(store.resolve("/").error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(store.contains("base"));
  EXPECT_FALSE(store.contains("basse"));
  EXPECT_FALSE(store.contains("/"));
  EXPECT_EQ(store.info(sha256_of("")).error().code(), Code::kNotFound);
}

TEST_F(Images, ABeginningOfSeveralIdsIsAnError) {
  add("base");
  // Two more records whose ids differ in the last digit alone; what they say does not matter.
  const std::string common = "0123456789abcdef" + std::string(47, '0');
  replace("ids/" + common + "1", "x");
  replace("ids/" + common + "2", "x");
  auto found = open().find("012345");
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message(), HasSubstr("several images"));
}

TEST_F(Images, ANameWithADigestMeansTheImageOfThatManifest) {
  const std::string manifest = R"({"a":"manifest"})";
  Store store = open();
  ImageContent image = content({layer(store, "file")});
  image.manifest = manifest;
  const std::string id = store.add_image(image).value().record.id;
  ASSERT_TRUE(store.set_reference(parse_reference("team/tool:1").value(), id).has_value());
  const std::string digest = sha256_of(manifest);
  EXPECT_EQ(store.read_blob(digest).value(), manifest);
  EXPECT_EQ(store.find("team/tool@sha256:" + digest).value(), id);
  EXPECT_EQ(store.find("team/tool:2@sha256:" + digest).value(), id);
  EXPECT_EQ(store.find("team/tool@sha256:" + sha256_of("")).error().code(), Code::kNotFound);
  EXPECT_EQ(store.find("team/other@sha256:" + digest).error().code(), Code::kNotFound);
  // Removing it by that name removes the names that are it, no others of the image.
  ASSERT_TRUE(store.set_reference(parse_reference("other").value(), id).has_value());
  ASSERT_TRUE(store.remove("team/tool@sha256:" + digest).has_value());
  EXPECT_THAT(names("refs"), ElementsAre("other:latest"));
}

TEST_F(Images, SeveralNamesOfOneImage) {
  const std::string id = add("one");
  Store store = open();
  ASSERT_TRUE(store.set_reference(parse_reference("two:x").value(), id).has_value());
  ASSERT_TRUE(store.set_reference(parse_reference("three").value(), id).has_value());
  std::vector<std::string> texts;
  for (const Reference& name : store.names_of(id).value()) texts.push_back(name.text());
  EXPECT_THAT(texts, ElementsAre("one:latest", "three:latest", "two:x"));
  const auto list = store.list().value();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[2].named.image_id, id);
  EXPECT_EQ(list[2].image->rootfs->entries, 1u);
  ASSERT_TRUE(store.remove("one").has_value());
  EXPECT_TRUE(store.resolve("two:x").has_value());
  EXPECT_FALSE(store.contains("one"));
  ASSERT_TRUE(store.remove(id.substr(0, 12)).has_value());  // all that are left
  expect_nothing_left();
  EXPECT_EQ(store.remove("one").error().code(), Code::kNotFound);
}

TEST_F(Images, ANameOfNothingIsRefused) {
  Store store = open();
  auto named = store.set_reference(parse_reference("base").value(), sha256_of(""));
  ASSERT_FALSE(named.has_value());
  EXPECT_EQ(named.error().code(), Code::kNotFound);
  EXPECT_THAT(names("refs"), IsEmpty());
}

TEST_F(Images, DamagedFilesAreErrorsAndCanBeRemoved) {
  const std::string id = add("base");
  const std::string chain = open().info(id).value().record.chain;
  const std::string files[] = {"refs/base:latest", "ids/" + id, "rootfs/" + chain + "/info"};
  for (const std::string& file : files) {
    const std::string good = read_text(directory_ / ("images/" + file));
    for (const std::string& text : {std::string(), std::string("nonsense\n"), good + "x"}) {
      replace(file, text);
      auto image = open().resolve("base");
      ASSERT_FALSE(image.has_value()) << file << text;
      EXPECT_EQ(image.error().code(), Code::kDataLoss) << image.error().message();
    }
    replace(file, good);
  }
  replace("refs/base:latest", "nonsense");
  Store store = open();
  EXPECT_EQ(store.list().error().code(), Code::kDataLoss);
  // Nobody knows what the damaged name keeps, so nothing goes before it does.
  EXPECT_EQ(store.sweep().error().code(), Code::kDataLoss);
  EXPECT_TRUE(store.info(id).has_value());
  ASSERT_TRUE(store.remove("base").has_value());
  expect_nothing_left();
}

TEST_F(Images, ARecordUnderAnotherIdIsDamage) {
  const std::string id = add("base");
  const std::string other = sha256_of("other");
  std::filesystem::rename(directory_ / ("images/ids/" + id), directory_ / ("images/ids/" + other));
  EXPECT_EQ(open().info(other).error().code(), Code::kDataLoss);
}

TEST_F(Images, ADamagedConfigIsAnError) {
  const std::string id = add("base");
  append("blobs/" + id, "}");
  EXPECT_FALSE(open().resolve("base").has_value());
}

TEST_F(Images, ImagesOfOneChainShareItsRootFileSystem) {
  Store store = open();
  const LayerRef base = layer(store, "file");
  const ImageInfo first = store.add_image(content({base}, "one")).value();
  const ImageInfo second = store.add_image(content({base}, "two")).value();
  EXPECT_TRUE(first.flattened);
  EXPECT_FALSE(second.flattened);
  EXPECT_NE(first.record.id, second.record.id);
  EXPECT_EQ(first.record.chain, second.record.chain);
  EXPECT_EQ(names("rootfs").size(), 1u);
  EXPECT_EQ(names("ids").size(), 2u);
  ASSERT_TRUE(store.set_reference(parse_reference("two").value(), second.record.id).has_value());
  ASSERT_TRUE(store.sweep().has_value());
  EXPECT_THAT(names("ids"), ElementsAre(second.record.id));
  EXPECT_TRUE(store.resolve("two").has_value());
}

TEST_F(Images, OneWithoutAManifestReplacesNoWholeRecord) {
  Store store = open();
  ImageContent pulled = content({layer(store, "file")});
  pulled.manifest = R"({"a":"manifest"})";
  const ImageRecord first = store.add_image(pulled).value().record;
  ImageContent imported = pulled;
  imported.manifest.clear();
  EXPECT_EQ(store.add_image(imported).value().record.manifest, first.manifest);
  // But one that lacks a blob makes way.
  std::filesystem::remove(directory_ / ("images/blobs/" + first.manifest));
  EXPECT_EQ(store.add_image(imported).value().record.manifest, "");
  EXPECT_EQ(store.add_image(pulled).value().record.manifest, first.manifest);
}

// An archive of two images: the first flattens its own layer, the second claims that another blob
// is that layer too.
TEST_F(Images, ABlobCannotClaimAnothersDiffIdWhereTheChainIsThere) {
  Store store = open();
  const LayerRef evil = layer(store, "file", "evil\n");
  const LayerRef known = layer(store, "file", "known\n");
  ASSERT_TRUE(store.add_image(content({evil}, "a")).has_value());
  LayerRef lie = known;
  lie.diff_id = evil.diff_id;
  const ImageContent claim = content({lie}, "b");
  for (int round = 0; round < 2; ++round) {
    const auto added = store.add_image(claim);
    ASSERT_FALSE(added.has_value());
    EXPECT_EQ(added.error().code(), Code::kDataLoss) << added.error().message();
    EXPECT_THAT(added.error().message(), HasSubstr(known.blob.digest));
    EXPECT_FALSE(store.add_record(claim).has_value());
  }
  // The other way in: a root file system that somebody made of something.
  Workspace workspace = store.make_workspace().value();
  EXPECT_FALSE(store.add_image(claim, std::move(workspace), {}).has_value());
  EXPECT_EQ(store.find_layer(known.blob.digest).value(), std::nullopt);
  EXPECT_EQ(names("ids").size(), 1u);
}

TEST_F(Images, ARecordIsNotReplacedByOneOfOtherBytes) {
  Store store = open();
  const LayerRef good = layer(store, "file", "good\n");
  const ImageRecord first = store.add_image(content({good})).value().record;
  ImageContent garbage = content({good});
  garbage.manifest = R"({"a":"manifest"})";
  garbage.layers[0].blob.digest = store.put_blob("garbage").value();
  garbage.layers[0].blob.size = 7;
  EXPECT_FALSE(store.add_image(garbage).has_value());
  EXPECT_FALSE(store.add_record(garbage).has_value());
  EXPECT_EQ(store.info(first.id).value().record.layers, first.layers);
}

TEST_F(Images, AVerifiedBlobOfAKnownChainIsTaken) {
  Store store = open();
  const LayerRef base = layer(store, "file");
  // The limits hold for a layer that is only read, too.
  UnpackLimits limits;
  limits.entries = 0;
  ASSERT_TRUE(store.add_image(content({base}, "a")).has_value());
  Store other = open();
  EXPECT_TRUE(other.add_image(content({base}, "b"), limits).has_value());  // read once before
  const LayerRef upper = layer(other, "upper");
  EXPECT_TRUE(other.add_record(content({base, upper})).has_value());
  EXPECT_EQ(other.find_layer(upper.blob.digest).value(), upper);
}

TEST_F(Images, LayersLieOnEachOther) {
  Store store = open();
  const LayerRef lower = layer_of(store, Tar()
                                             .add({.name = "kept", .data = "lower"})
                                             .add({.name = "changed", .data = "lower"})
                                             .bytes());
  const LayerRef upper = layer_of(store, Tar()
                                             .add({.name = "changed", .data = "upper"})
                                             .add({.name = "new", .data = "upper"})
                                             .bytes());
  const std::string id = store.add_image(content({lower, upper})).value().record.id;
  const ImageRef image = store.resolve("sha256:" + id).value();
  Fd root(openat(image.root.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(read_small_file_at(root.get(), "kept").value(), "lower");
  EXPECT_EQ(read_small_file_at(root.get(), "changed").value(), "upper");
  EXPECT_EQ(read_small_file_at(root.get(), "new").value(), "upper");
}

TEST_F(Images, AnImageWithoutLayersIsAnEmptyDirectory) {
  Store store = open();
  const std::string id = store.add_image(content({})).value().record.id;
  const ImageRef image = store.resolve("sha256:" + id).value();
  EXPECT_THAT(list_directory(image.root.fd.get()).value(), IsEmpty());
}

TEST_F(Images, WhatDoesNotFitTogetherIsRefusedAndLeavesNothing) {
  Store store = open();
  const LayerRef good = layer(store, "file");
  auto expect = [&](const ImageContent& wrong, Code code, const char* text) {
    auto added = store.add_image(wrong);
    ASSERT_FALSE(added.has_value()) << text;
    EXPECT_EQ(added.error().code(), code) << added.error().message();
    EXPECT_THAT(added.error().message(), HasSubstr(text));
    EXPECT_THAT(names("ids"), IsEmpty());
    EXPECT_THAT(names("rootfs"), IsEmpty());
    EXPECT_FALSE(store.add_record(wrong).has_value());
  };
  ImageContent wrong = content({good});
  wrong.config = "{";
  expect(wrong, Code::kInvalidArgument, "");
  wrong = content({good});
  wrong.layers.push_back(good);
  expect(wrong, Code::kInvalidArgument, "lists 1 layers, and there are 2");
  wrong = content({good});
  wrong.layers[0].diff_id = sha256_of("else");
  expect(wrong, Code::kInvalidArgument, "layer 1 is sha256:");
  wrong = content({good});
  wrong.layers[0].blob.digest = sha256_of("else");
  expect(wrong, Code::kNotFound, "no blob");
  wrong.layers[0].blob.digest = "../lock";
  expect(wrong, Code::kNotFound, "no blob");
  wrong = content({good});
  wrong.layers[0].blob.size += 1;
  expect(wrong, Code::kInvalidArgument, "its descriptor says");
  ASSERT_TRUE(store.sweep().has_value());
  expect_nothing_left();
}

TEST_F(Images, ABadLayerIsNamedAndLeavesNothing) {
  Store store = open();
  const LayerRef good = layer(store, "file");
  const LayerRef bad = layer_of(store, Tar().add({.name = "../out", .data = "evil"}).bytes());
  auto added = store.add_image(content({good, bad}));
  ASSERT_FALSE(added.has_value());
  EXPECT_THAT(added.error().message(), HasSubstr("layer 2: "));
  UnpackLimits limits;
  limits.entries = 1;
  const LayerRef two = layer_of(store, Tar().add({.name = "a"}).add({.name = "b"}).bytes());
  EXPECT_THAT(store.add_image(content({two}), limits).error().message(),
              HasSubstr("more than 1 entries"));
  EXPECT_THAT(names("ids"), IsEmpty());
  EXPECT_THAT(names("rootfs"), IsEmpty());
  ASSERT_TRUE(store.sweep().has_value());
  expect_nothing_left();
}

TEST_F(Images, ProgressCountsAllLayers) {
  Store store = open();
  const LayerRef one = layer(store, "one"), two = layer(store, "two");
  std::uint64_t last = 0;
  ASSERT_TRUE(store
                  .add_image(content({one, two}), {},
                             [&](std::uint64_t done, std::uint64_t total) {
                               EXPECT_GE(done, last);
                               last = done;
                               EXPECT_EQ(total, one.blob.size + two.blob.size);
                             })
                  .has_value());
  EXPECT_GT(last, one.blob.size);
}

TEST_F(Images, ARecordAloneIsNoImageToRun) {
  Store store = open();
  const ImageContent step = content({layer(store, "file")});
  const ImageInfo info = store.add_record(step).value();
  EXPECT_FALSE(info.rootfs.has_value());
  auto image = store.resolve("sha256:" + info.record.id);
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(image.error().message(), HasSubstr("step of a build"));
  EXPECT_TRUE(store.add_image(step).value().flattened);
  EXPECT_TRUE(store.resolve("sha256:" + info.record.id).has_value());
}

TEST_F(Images, AnErofsFileThatIsNotOursIsNotTaken) {
  Store store = open();
  const LayerRef base = layer(store, "file");
  Workspace workspace = store.make_workspace().value();
  {
    RootfsWorker worker = RootfsWorker::start(RootfsForm::kErofs, workspace.directory_fd(),
                                              workspace.lock_fd(), mapping_of_caller(), {})
                              .value();
    Fd blob = store.open_blob(base.blob.digest).value();
    VERIFY(worker.apply(blob.get(), base).has_value() && worker.finish().has_value());
  }
  {
    const Fd file(openat(workspace.directory_fd(), kErofsName, O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(pwrite(file.get(), "x", 1, 1024 + 80), 1);
  }
  auto taken = store.add_image(content({base}), std::move(workspace),
                               {.form = RootfsForm::kErofs, .ids = mapping_of_caller()});
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code(), Code::kDataLoss);
  EXPECT_THAT(taken.error().message(), HasSubstr("not as the unpacker writes it"));
  EXPECT_FALSE(store.has_rootfs(chain_id({base})));
}

TEST_F(Images, ARootFileSystemThatIsMadeAlreadyIsTaken) {
  Store store = open();
  const LayerRef base = layer(store, "file");
  auto made = [&] {
    Workspace workspace = store.make_workspace().value();
    RootfsWorker worker =
        RootfsWorker::start(store.preferred_form().value(), workspace.directory_fd(),
                            workspace.lock_fd(), mapping_of_caller(), {})
            .value();
    Fd blob = store.open_blob(base.blob.digest).value();
    VERIFY(worker.apply(blob.get(), base).has_value());
    VERIFY(worker.finish().has_value());
    return workspace;
  };
  const RootfsInfo rootfs{
      .form = store.preferred_form().value(), .ids = mapping_of_caller(), .entries = 1, .bytes = 5};
  EXPECT_TRUE(store.add_image(content({base}), made(), rootfs).value().flattened);
  const ImageInfo again = store.add_image(content({base}, "other"), made(), rootfs).value();
  EXPECT_FALSE(again.flattened);  // the second one was not needed
  EXPECT_EQ(again.rootfs->chain, base.diff_id);
  const ImageRef image = store.resolve("sha256:" + again.record.id).value();
  EXPECT_EQ(faccessat(image.root.fd.get(), "file", F_OK, 0), 0);
}

TEST_F(Images, TheBuildCacheRemembersImages) {
  const std::string key = sha256_of("step"), id = add("base");
  Store store = open();
  EXPECT_EQ(store.cache_get(key).value(), std::nullopt);
  ASSERT_TRUE(store.cache_put(key, id).has_value());
  EXPECT_EQ(store.cache_get(key).value(), id);
  EXPECT_EQ(store.cache_get("../lock").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(store.cache_put("../lock", id).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(store.cache_put(key, sha256_of("")).error().code(), Code::kNotFound);
  // An entry keeps its image without a name, and means nothing once that is gone.
  ASSERT_TRUE(store.remove("base").has_value());
  EXPECT_TRUE(store.resolve(id).has_value());
  EXPECT_EQ(store.remove(id).error().code(), Code::kFailedPrecondition);
  std::filesystem::remove(directory_ / ("images/ids/" + id));
  EXPECT_EQ(store.cache_get(key).value(), std::nullopt);
  replace("cache/" + key, "rubbish");
  EXPECT_EQ(store.cache_get(key).value(), std::nullopt);
  ASSERT_TRUE(store.sweep().has_value());
  expect_nothing_left();
}

TEST_F(Images, OfTheFirstFormatHaveToBeImportedAgain) {
  add("new");
  const std::string digest = sha256_of("old");
  const std::string folder = directory_ / ("images/by-digest/" + digest);
  std::filesystem::create_directories(folder + "/rootfs/etc");
  replace("by-digest/" + digest + "/info", "caisson-image 1\ndigest " + digest + "\nbytes 5\n");
  replace("refs/old:latest", "caisson-image-reference 1\ndigest " + digest + "\nimported 1\n");
  Store store = open();
  auto image = store.resolve("old");
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(image.error().message(), HasSubstr("image 'old:latest': "));
  EXPECT_THAT(image.error().message(), HasSubstr("import it again"));
  const auto list = store.list().value();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].named.image_id, "");
  EXPECT_FALSE(list[1].image.has_value());
  ASSERT_TRUE(store.sweep().has_value());
  EXPECT_TRUE(std::filesystem::exists(folder));  // an older caisson still reads it
  EXPECT_EQ(store.gc(GcScope::kAll, GcMode::kDryRun).value().rootfs, 0u);
  {
    Fd opened = open_directory_at(AT_FDCWD, folder).value();
    Fd used =
        std::move(*lock_file_at(opened.get(), "use", LockKind::kShared, LockWait::kTry).value());
    ASSERT_TRUE(store.remove("old").has_value());
    EXPECT_TRUE(std::filesystem::exists(folder));  // a sandbox runs on it
  }
  open();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "images/by-digest"));
  EXPECT_TRUE(store.resolve("new").has_value());
  EXPECT_FALSE(marked());
}

TEST_F(Images, AStoreSaysOfWhichFormatItIs) {
  open();
  const std::string ours = std::to_string(kStoreFormat) + "\n";
  const std::string path = directory_ / "images/format";
  EXPECT_EQ(read_small_file(path).value(), ours);
  // One of an older program, which wrote none or a lower one, becomes ours.
  std::filesystem::remove(path);
  open();
  EXPECT_EQ(read_small_file(path).value(), ours);
  replace("format", "1\n");
  open();
  EXPECT_EQ(read_small_file(path).value(), ours);
}

// While it lives no file can get a byte, as on a full disk.
class NoRoom {
 public:
  NoRoom() {
    VERIFY(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    VERIFY(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  }
  ~NoRoom() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

TEST_F(Images, AStoreWithoutRoomForItsFormatIsReadAndSaysItBeforeAnythingIsAdded) {
  const std::string id = add("base");
  const std::string ours = std::to_string(kStoreFormat) + "\n";
  const std::string path = directory_ / "images/format";
  for (const bool had_one : {false, true}) {
    if (had_one)
      replace("format", "1\n");
    else
      std::filesystem::remove(path);
    std::optional<Store> store;
    {
      const NoRoom full;
      auto opened = Store::open_at(directory_ / "images");
      ASSERT_TRUE(opened.has_value()) << opened.error().message();
      store = std::move(*opened);
      EXPECT_TRUE(store->resolve("base").has_value());
      EXPECT_FALSE(store->set_reference(parse_reference("other").value(), id).has_value());
    }
    EXPECT_NE(read_small_file(path).value_or(""), ours);
    EXPECT_TRUE(store->set_reference(parse_reference("other").value(), id).has_value());
    EXPECT_EQ(read_small_file(path).value(), ours);
  }
}

TEST_F(Images, AStoreOfANewerProgramIsLeftAsItIs) {
  add("base");
  // What the next to open it would sweep.
  std::filesystem::create_directory(directory_ / "images/tmp/rubbish");
  replace("work", "");
  replace("format", std::to_string(kStoreFormat + 1) + "\n");
  const auto refused = Store::open_at(directory_ / "images");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("it is of format " + std::to_string(kStoreFormat + 1) +
                        ", which a newer caisson made; this one knows formats up to " +
                        std::to_string(kStoreFormat)));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "images/tmp/rubbish"));
  replace("format", std::to_string(kStoreFormat) + "\n");
  EXPECT_TRUE(open().resolve("base").has_value());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "images/tmp/rubbish"));
}

TEST_F(Images, ADamagedFormatIsAnError) {
  open();
  for (const char* text : {"", "3", "x\n", "0\n", "-1\n", "3\n3\n", "99999999999\n"}) {
    replace("format", text);
    const auto refused = Store::open_at(directory_ / "images");
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().code(), Code::kDataLoss) << text;
  }
}

TEST_F(Images, OfTheFirstFormatMakeWayForOnesOfTheSameName) {
  const std::string digest = sha256_of("old");
  open();
  std::filesystem::create_directories(directory_ / ("images/by-digest/" + digest + "/rootfs"));
  std::filesystem::create_directories(directory_ / "images/refs");
  replace("refs/base:latest", "caisson-image-reference 1\ndigest " + digest + "\nimported 1\n");
  add("base");
  EXPECT_TRUE(open().resolve("base").has_value());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "images/by-digest"));
}

}  // namespace
}  // namespace caisson::image::testing
