// Bounding the build cache: what goes, what stays, and that nobody who works with it notices.
#include <sys/stat.h>

#include "image/store_for_test.h"

namespace caisson::image::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kBig = 200'000;
constexpr std::int64_t kDay = 86'400;

class CacheTrim : public StoreTest {
 protected:
  // An image of these layers and a big one of its own, kept by the cache alone; used so many
  // seconds ago. Its key.
  std::string step(const std::string& name, std::int64_t seconds_ago,
                   std::vector<LayerRef> below = {}, ImageInfo* made = nullptr) {
    const std::string key = sha256_of("step " + name);
    {
      Store store = open();
      below.push_back(layer(store, name, name + std::string(kBig, 'x')));
      const ImageInfo info = store.add_record(content(below)).value();
      EXPECT_TRUE(store.cache_put(key, info.record.id).has_value());
      if (made != nullptr) *made = info;
    }
    use(key, seconds_ago);
    return key;
  }
  void use(const std::string& key, std::int64_t seconds_ago) {
    const timespec at = {.tv_sec = std::time(nullptr) - seconds_ago, .tv_nsec = 0};
    const timespec times[2] = {at, at};
    ASSERT_EQ(utimensat(AT_FDCWD, (directory_ / ("images/cache/" + key)).c_str(), times, 0), 0);
  }
};

TEST_F(CacheTrim, WhatWasUsedLongestAgoGoesFirst) {
  const std::string oldest = step("a", 300), middle = step("b", 200), newest = step("c", 100);
  const CacheReport report = open().trim_cache({.bytes = 5 * kBig / 2, .seconds = {}}).value();
  EXPECT_THAT(names("cache"), UnorderedElementsAre(middle, newest));
  EXPECT_EQ(report.kept, 2u);
  EXPECT_EQ(report.dropped, 1u);
  EXPECT_GE(report.bytes, 2 * kBig);
  EXPECT_LE(report.bytes, 5 * kBig / 2);
  // With it goes what it alone kept.
  EXPECT_EQ(names("ids").size(), 2u);
  EXPECT_EQ(names("blobs").size(), 4u);
  EXPECT_FALSE(marked());
}

TEST_F(CacheTrim, AUseCounts) {
  const std::string oldest = step("a", 300), middle = step("b", 200);
  EXPECT_TRUE(open().cache_get(oldest).value().has_value());
  ASSERT_TRUE(open().trim_cache({.bytes = 3 * kBig / 2, .seconds = {}}).has_value());
  EXPECT_THAT(names("cache"), ElementsAre(oldest));
}

TEST_F(CacheTrim, WithinTheBoundNothingGoes) {
  step("a", 300);
  step("b", 200);
  const CacheReport report = open().trim_cache({.bytes = 3 * kBig, .seconds = kDay}).value();
  EXPECT_EQ(report.dropped, 0u);
  EXPECT_EQ(open().trim_cache({.bytes = {}, .seconds = {}}).value().dropped, 0u);
  EXPECT_EQ(names("cache").size(), 2u);
}

TEST_F(CacheTrim, WhatWasNotUsedForSoLongGoes) {
  const std::string old = step("a", 2 * kDay), young = step("b", kDay / 2);
  ASSERT_TRUE(open().trim_cache({.bytes = {}, .seconds = kDay}).has_value());
  EXPECT_THAT(names("cache"), ElementsAre(young));
  ASSERT_TRUE(open().trim_cache({.bytes = 0, .seconds = {}}).has_value());
  expect_nothing_left();
}

TEST_F(CacheTrim, WhatNamesAndLaterStepsKeepCostsNothing) {
  ImageInfo first;
  const std::string below = step("a", 300, {}, &first);
  const std::string above = step("b", 200, first.record.layers);
  {
    Store store = open();
    ASSERT_TRUE(store.add_image(content(first.record.layers)).has_value());
    ASSERT_TRUE(store.set_reference(parse_reference("named").value(), first.record.id).has_value());
    ASSERT_TRUE(store.sweep().has_value());
  }
  // Of both steps only the second's own layer is the cache's.
  const CacheReport report = open().trim_cache({.bytes = 3 * kBig / 2, .seconds = {}}).value();
  EXPECT_THAT(names("cache"), UnorderedElementsAre(below, above));
  EXPECT_LE(report.bytes, 3 * kBig / 2);
  ASSERT_TRUE(open().trim_cache({.bytes = 0, .seconds = {}}).has_value());
  EXPECT_THAT(names("ids"), ElementsAre(first.record.id));
  EXPECT_TRUE(open().resolve("named").has_value());
}

TEST_F(CacheTrim, ABuildThatGoesOnKeepsWhatItWasGiven) {
  ImageInfo info;
  const std::string key = step("a", 300, {}, &info);
  {
    Store building = open();
    ASSERT_EQ(building.cache_get(key).value(), info.record.id);
    const CacheReport report = open().trim_cache({.bytes = 0, .seconds = {}}).value();
    EXPECT_EQ(report.dropped, 1u);
    EXPECT_THAT(names("cache"), IsEmpty());
    // It builds on it, and makes an image of it.
    EXPECT_TRUE(building.open_blob(info.record.layers.front().blob.digest).has_value());
    EXPECT_TRUE(building.add_image(content(info.record.layers)).has_value());
    EXPECT_FALSE(building.cache_get(key).value().has_value());
    EXPECT_TRUE(building.cache_put(key, info.record.id).has_value());
  }
  // What it left goes once it has ended.
  ASSERT_TRUE(open().trim_cache({.bytes = 0, .seconds = {}}).has_value());
  expect_nothing_left();
}

TEST_F(CacheTrim, EntriesThatMeanNothingCostNothing) {
  const std::string key = step("a", 100);
  const std::string damaged = sha256_of("damaged"), lost = sha256_of("lost");
  replace("cache/" + damaged, "nonsense");
  replace("cache/" + lost, CacheRecord{.image_id = sha256_of("no image")}.encode());
  const CacheReport report = open().trim_cache({.bytes = 2 * kBig, .seconds = {}}).value();
  EXPECT_EQ(report.dropped, 0u);
  EXPECT_THAT(names("cache"), ElementsAre(key));  // the sweep's work
}

}  // namespace
}  // namespace caisson::image::testing
