#include "api/e2b/path.h"

#include <gtest/gtest.h>

namespace caisson::api::e2b {
namespace {

std::string resolved(std::string_view given, const PathBase& base = {"/home/user", ""}) {
  Result<std::string> path = resolve_path(given, base);
  return path ? *path : "error: " + path.error().message();
}

TEST(Path, AbsoluteStaysAndIsNormal) {
  EXPECT_EQ(resolved("/a/b"), "/a/b");
  EXPECT_EQ(resolved("//a///b/./c/"), "/a/b/c");
  EXPECT_EQ(resolved("/"), "/");
}

TEST(Path, DotDotGoesUpByNameAndNeverAboveTheRoot) {
  EXPECT_EQ(resolved("/a/../b"), "/b");
  EXPECT_EQ(resolved("/../../etc"), "/etc");
  EXPECT_EQ(resolved("../other", {"/srv/user", ""}), "/srv/other");
}

TEST(Path, RelativeStandsInTheHomeOrTheWorkingDirectory) {
  EXPECT_EQ(resolved("x.txt"), "/home/user/x.txt");
  EXPECT_EQ(resolved("x.txt", {"/home/user", "/code"}), "/code/x.txt");
  EXPECT_EQ(resolved(""), "/home/user");
  EXPECT_EQ(resolved("", {"/home/user", "/code"}), "/code");
}

TEST(Path, TildeIsTheHomeWhateverTheWorkingDirectory) {
  EXPECT_EQ(resolved("~"), "/home/user");
  EXPECT_EQ(resolved("~/a", {"/home/user", "/code"}), "/home/user/a");
  EXPECT_EQ(resolved("~", {"/", ""}), "/");
  EXPECT_EQ(resolved("/a/~"), "/a/~");
}

TEST(Path, AnotherUsersTildeIsRefused) {
  EXPECT_EQ(resolved("~root/x"),
            "error: cannot expand another user's home directory: '~root'; '~' alone is the "
            "caller's own");
}

TEST(Path, ZeroBytesAndLengthsAreRefused) {
  EXPECT_EQ(resolved(std::string_view("/a\0b", 4)), "error: a path has no zero bytes");
  EXPECT_EQ(resolved("/" + std::string(255, 'n')), "/" + std::string(255, 'n'));
  EXPECT_EQ(resolved("/" + std::string(256, 'n')),
            "error: a name in the path has 256 bytes; 255 are allowed");
  std::string deep;
  for (int i = 0; i < 2048; ++i) deep += "/x";
  EXPECT_EQ(resolved(deep), "error: the path is longer than 4095 bytes");
}

TEST(Path, TheHomeIsNeededOnlyWhereItIsUsed) {
  EXPECT_FALSE(needs_home("/x", ""));
  EXPECT_TRUE(needs_home("x", ""));
  EXPECT_FALSE(needs_home("x", "/code"));
  EXPECT_TRUE(needs_home("~/x", "/code"));
}

TEST(Path, BaseNames) {
  EXPECT_EQ(base_name("/a/b"), "b");
  EXPECT_EQ(base_name("/"), "/");
}

}  // namespace
}  // namespace caisson::api::e2b
