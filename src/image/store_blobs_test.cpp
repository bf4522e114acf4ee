// Blobs of the store: whole or not there, made once, resumed.
#include <sys/stat.h>

#include "image/store_for_test.h"

namespace caisson::image::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Blobs = StoreTest;

void put(const PartialBlob& blob, std::string_view bytes) {
  ASSERT_EQ(write(blob.file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

TEST_F(Blobs, AreKeptByTheirDigest) {
  Store store = open();
  const std::string digest = store.put_blob("hello").value();
  EXPECT_EQ(digest, sha256_of("hello"));
  EXPECT_TRUE(store.has_blob(digest));
  EXPECT_EQ(store.read_blob(digest).value(), "hello");
  Fd file = store.open_blob(digest).value();
  char buffer[8] = {};
  EXPECT_EQ(read(file.get(), buffer, sizeof buffer), 5);
  EXPECT_THAT(names("blobs"), ElementsAre(digest));
  EXPECT_THAT(names("tmp"), IsEmpty());
  struct stat status = {};
  ASSERT_EQ(stat((directory_ / ("images/blobs/" + digest)).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(store.put_blob("hello").value(), digest);
  EXPECT_EQ(names("blobs").size(), 1u);
}

TEST_F(Blobs, MissingDamagedAndLargeOnesAreErrors) {
  Store store = open();
  const std::string absent = sha256_of("absent");
  EXPECT_FALSE(store.has_blob(absent));
  EXPECT_FALSE(store.has_blob("../lock"));
  EXPECT_EQ(store.open_blob(absent).error().code(), Code::kNotFound);
  EXPECT_EQ(store.read_blob(absent).error().code(), Code::kNotFound);
  EXPECT_EQ(store.open_blob("../lock").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(store.begin_blob("../lock").error().code(), Code::kInvalidArgument);
  const std::string digest = store.put_blob("hello").value();
  ASSERT_TRUE(append("blobs/" + digest, "x"));
  EXPECT_EQ(store.read_blob(digest).error().code(), Code::kDataLoss);
  const std::string large = store.put_blob(std::string(kMaxReadBlob + 1, 'x')).value();
  EXPECT_EQ(store.read_blob(large).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(store.open_blob(large).has_value());
}

TEST_F(Blobs, OfAKnownDigestTheBytesAreCompared) {
  Store store = open();
  const std::string digest = sha256_of("right");
  PartialBlob blob = store.begin_blob(digest).value();
  EXPECT_FALSE(blob.present);
  EXPECT_EQ(blob.size, 0u);
  put(blob, "wrong");
  auto committed = store.commit_blob(std::move(blob));
  ASSERT_FALSE(committed.has_value());
  EXPECT_EQ(committed.error().code(), Code::kDataLoss);
  EXPECT_THAT(committed.error().message(), HasSubstr(digest));
  EXPECT_THAT(names("partial"), IsEmpty());  // nobody goes on from wrong bytes
  EXPECT_THAT(names("blobs"), IsEmpty());
  blob = store.begin_blob(digest).value();
  put(blob, "right");
  EXPECT_EQ(store.commit_blob(std::move(blob)).value(), digest);
  EXPECT_TRUE(store.begin_blob(digest).value().present);
  EXPECT_EQ(store.commit_blob(store.begin_blob(digest).value()).value(), digest);
}

TEST_F(Blobs, ABrokenDownloadGoesOnWhereItWas) {
  const std::string digest = sha256_of("first second");
  {
    Store store = open();
    PartialBlob blob = store.begin_blob(digest).value();
    put(blob, "first ");
  }
  Store store = open();  // sweeps
  PartialBlob blob = store.begin_blob(digest).value();
  EXPECT_EQ(blob.size, 6u);
  put(blob, "second");  // behind what is there
  EXPECT_EQ(store.commit_blob(std::move(blob)).value(), digest);
}

TEST_F(Blobs, DiscardedBytesAreGone) {
  Store store = open();
  PartialBlob known = store.begin_blob(sha256_of("x")).value();
  PartialBlob unknown = store.begin_blob(std::nullopt).value();
  put(known, "a");
  put(unknown, "b");
  ASSERT_TRUE(store.discard_blob(std::move(known)).has_value());
  ASSERT_TRUE(store.discard_blob(std::move(unknown)).has_value());
  ASSERT_TRUE(store.sweep().has_value());
  expect_nothing_left();
}

TEST_F(Blobs, OfAnUnknownDigestDroppedBytesGoWithASweep) {
  {
    Store store = open();
    put(store.begin_blob(std::nullopt).value(), "bytes");
    EXPECT_EQ(names("tmp").size(), 1u);
  }
  open();
  expect_nothing_left();
}

TEST_F(Blobs, WhoeverWaitsFindsThemMade) {
  const std::string digest = sha256_of("bytes");
  Store store = open();
  Signal begun;
  const pid_t maker = in_child([&] {
    Store other = open();
    PartialBlob blob = other.begin_blob(digest).value();
    begun.give();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (write(blob.file.get(), "bytes", 5) != 5) return false;
    return other.commit_blob(std::move(blob)).has_value();
  });
  ASSERT_TRUE(begun.await());
  EXPECT_FALSE(store.has_blob(digest));
  EXPECT_TRUE(store.begin_blob(digest).value().present);
  EXPECT_EQ(wait_for(maker), 0);
  EXPECT_THAT(names("partial"), ElementsAre(digest + ".kept"));
}

TEST_F(Blobs, WhoeverWaitsForADeadProcessGoesOn) {
  const std::string digest = sha256_of("bytes");
  Store store = open();
  Signal begun;
  const pid_t maker = in_child([&] {
    Store other = open();
    PartialBlob blob = other.begin_blob(digest).value();
    if (write(blob.file.get(), "by", 2) != 2) return false;
    begun.give();
    pause();
    return false;
  });
  ASSERT_TRUE(begun.await());
  kill(maker, SIGKILL);
  PartialBlob blob = store.begin_blob(digest).value();
  EXPECT_FALSE(blob.present);
  EXPECT_EQ(blob.size, 2u);
  wait_for(maker);
}

TEST_F(Blobs, ThatCameWholeWaitForTheRestOfTheirImage) {
  const std::string digest = sha256_of("bytes");
  {
    Store store = open();
    PartialBlob blob = store.begin_blob(digest).value();
    put(blob, "bytes");
    ASSERT_TRUE(store.commit_blob(std::move(blob)).has_value());
  }
  Store store = open();
  ASSERT_TRUE(store.sweep().has_value());
  EXPECT_TRUE(store.has_blob(digest));
  EXPECT_FALSE(marked());  // and nobody looks at it with every command
  // But not for ever.
  const timespec old[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  const std::string mark = directory_ / ("images/partial/" + digest + ".kept");
  ASSERT_EQ(utimensat(AT_FDCWD, mark.c_str(), old, 0), 0);
  ASSERT_TRUE(store.sweep().has_value());
  expect_nothing_left();
}

TEST_F(Blobs, OfAnImageNeedNoMark) {
  Store store = open();
  const std::string tar = Tar().add({.name = "file", .data = "text"}).bytes();
  PartialBlob blob = store.begin_blob(sha256_of(tar)).value();
  put(blob, tar);
  ASSERT_TRUE(store.commit_blob(std::move(blob)).has_value());
  EXPECT_EQ(names("partial").size(), 1u);
  const ImageInfo info = store.add_image(content({layer_of(store, tar)})).value();
  EXPECT_THAT(names("partial"), IsEmpty());
  EXPECT_EQ(store.find_layer(sha256_of(tar)).value(), info.record.layers[0]);
  EXPECT_EQ(store.find_layer(sha256_of("else")).value(), std::nullopt);
  ASSERT_TRUE(store.sweep().has_value());
  expect_nothing_left();
}

}  // namespace
}  // namespace caisson::image::testing
