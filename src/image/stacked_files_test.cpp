#include "image/stacked_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "image/archive_for_test.h"

namespace caisson::image {
namespace {

// Roots by hand, the uppermost first: "0/…", "1/…", "2/…".
class StackedFiles : public ::testing::Test {
 protected:
  StackedFiles() : directory_("/var/tmp") {
    for (const char* root : {"0", "1", "2"}) std::filesystem::create_directory(directory_ / root);
  }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(
        (directory_ / path).substr(0, (directory_ / path).rfind('/')));
    std::ofstream(directory_ / path) << text;
  }
  void link(const std::string& path, const std::string& target) {
    std::filesystem::create_symlink(target, directory_ / path);
  }
  void hide(const std::string& path) {
    ASSERT_EQ(::mknod((directory_ / path).c_str(), S_IFCHR, makedev(0, 0)), 0);
  }
  void make_opaque(const std::string& path) {
    std::filesystem::create_directories(directory_ / path);
    ASSERT_EQ(::setxattr((directory_ / path).c_str(), "user.overlay.opaque", "y", 1, 0), 0);
  }
  // A link of `names` names that come back to where they began, and then lead to `target`.
  void wind(const std::string& path, int names, const std::string& target) {
    std::string way;
    for (int i = 0; i < names / 2; ++i) way += "d/../";
    link(path, way + target);
  }
  // What is in the file, or the code of the error.
  std::string look(const std::string& path, std::size_t roots = 3) {
    std::vector<Fd> opened;
    std::vector<int> numbers;
    for (std::size_t i = 0; i < roots; ++i) {
      opened.emplace_back(
          ::open((directory_ / std::to_string(i)).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      numbers.push_back(opened.back().get());
    }
    auto file = open_stacked_file(numbers, path);
    if (!file.has_value()) return "(" + std::string(to_string(file.error().code())) + ")";
    char bytes[64];
    const ssize_t size = ::read(file->get(), bytes, sizeof bytes);
    return {bytes, static_cast<std::size_t>(size)};
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(StackedFiles, TheUppermostHasTheWord) {
  write("0/etc/passwd", "0");
  write("1/etc/passwd", "1");
  write("1/etc/group", "1");
  write("2/etc/shadow", "2");
  EXPECT_EQ(look("etc/passwd"), "0");
  EXPECT_EQ(look("/etc/./group"), "1");
  EXPECT_EQ(look("etc/shadow"), "2");
  EXPECT_EQ(look("etc/none"), "(not_found)");
  EXPECT_EQ(look("etc"), "(invalid_argument)");
  EXPECT_EQ(look("etc/passwd/x"), "(not_found)");
  EXPECT_EQ(look("etc/group", 1), "(not_found)");
}

TEST_F(StackedFiles, AWhiteoutHidesAnOpaqueDirectoryAndAFileToo) {
  for (const char* name : {"gone", "fresh", "file", "merged"})
    write("2/" + std::string(name) + "/x", "2");
  hide("0/gone");
  make_opaque("1/fresh");
  write("0/fresh/y", "0");
  write("1/file", "1");
  write("1/merged/y", "1");
  EXPECT_EQ(look("gone/x"), "(not_found)");
  EXPECT_EQ(look("fresh/x"), "(not_found)");
  EXPECT_EQ(look("fresh/y"), "0");
  EXPECT_EQ(look("file/x"), "(not_found)");
  EXPECT_EQ(look("file"), "1");
  EXPECT_EQ(look("merged/x"), "2");
  // A directory over a file is not merged with a directory below that.
  write("0/file/z", "0");
  EXPECT_EQ(look("file/z"), "0");
  EXPECT_EQ(look("file/x"), "(not_found)");
}

TEST_F(StackedFiles, LinksLeadThroughAllOfThemAndNowhereElse) {
  write("2/usr/lib/passwd", "2");
  write("0/usr/lib/group", "0");
  link("1/etc", "usr/lib");
  link("0/up", "../../../usr/lib/passwd");
  link("0/absolute", "/etc/passwd");
  link("0/out", "/proc/self/status");
  link("0/round", "round");
  EXPECT_EQ(look("etc/passwd"), "2");
  EXPECT_EQ(look("etc/group"), "0");
  EXPECT_EQ(look("up"), "2");
  EXPECT_EQ(look("absolute"), "2");
  EXPECT_EQ(look("out"), "(not_found)");
  EXPECT_EQ(look("../../etc/../../etc/group"), "0");
  EXPECT_EQ(look("round"), "(resource_exhausted)");
}

TEST_F(StackedFiles, NothingButARegularFileIsOpened) {
  ASSERT_EQ(::mkfifo((directory_ / "0/pipe").c_str(), 0644), 0);
  EXPECT_EQ(look("pipe"), "(invalid_argument)");
  EXPECT_EQ(look(""), "(invalid_argument)");
  std::string deep;
  for (int i = 0; i < 80; ++i) deep += "d/";
  std::filesystem::create_directories(directory_ / ("0/" + deep));
  EXPECT_EQ(look(deep + "x"), "(resource_exhausted)");
}

TEST_F(StackedFiles, LinksThatLeadToLongWaysAreBoundedTogether) {
  write("2/d/passwd", "2");
  wind("0/near", 200, "d/passwd");
  EXPECT_EQ(look("near"), "2");
  wind("0/far", 200, "near");
  EXPECT_EQ(look("far"), "(resource_exhausted)");
  // Two of 3000 bytes, in a name or two each.
  const std::string slashes(3000, '/');
  link("0/one", slashes + "d/passwd");
  link("0/two", slashes + "one");
  EXPECT_EQ(look("one"), "2");
  EXPECT_EQ(look("two"), "(resource_exhausted)");
  // As many links as there may be, and one more.
  link("0/l0", "d/passwd");
  for (int i = 1; i <= 40; ++i) link("0/l" + std::to_string(i), "l" + std::to_string(i - 1));
  EXPECT_EQ(look("l39"), "2");
  EXPECT_EQ(look("l40"), "(resource_exhausted)");
}

}  // namespace
}  // namespace caisson::image
