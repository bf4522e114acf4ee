#include "image/transfer/tar_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

using ::testing::HasSubstr;

ReadAt reader(const std::string& bytes) {
  return [&bytes](std::uint64_t offset, std::size_t size) -> Result<std::string> {
    return offset >= bytes.size() ? std::string() : bytes.substr(offset, size);
  };
}

std::string file(std::string_view name, const std::string& content) {
  return saved_tar_header(name, content.size()) + content + saved_tar_padding(content.size());
}

// The header with another type, link and name, and its checksum made right.
std::string special(char type, std::string_view name, std::string_view link,
                    const std::string& content = "") {
  std::string block = saved_tar_header(name, content.size());
  block[156] = type;
  link.copy(block.data() + 157, 100);
  for (int i = 148; i < 156; ++i) block[i] = ' ';
  unsigned sum = 0;
  for (char c : block) sum += static_cast<unsigned char>(c);
  for (int i = 153; i >= 148; --i, sum >>= 3) block[i] = static_cast<char>('0' + (sum & 7));
  block[154] = '\0';
  return block + content + saved_tar_padding(content.size());
}

TEST(TarMembers, AreFoundByName) {
  const std::string bytes = file("./a", "hello") + special('5', "d/", "") +
                            file("d/b", std::string(1000, 'x')) + saved_tar_end();
  const auto members = read_tar_members(reader(bytes));
  ASSERT_TRUE(members.has_value()) << members.error().message();
  EXPECT_EQ(members->size(), 2u);
  const TarMember a = find_member(*members, "a").value();
  EXPECT_EQ(bytes.substr(a.offset, a.size), "hello");
  EXPECT_EQ(find_member(*members, "d/b").value().size, 1000u);
  EXPECT_EQ(find_member(*members, "c").error().code(), Code::kNotFound);
}

TEST(TarMembers, LinksStayInTheArchive) {
  const std::string bytes = file("x/layer", "1") + special('2', "y/layer", "../x/layer") +
                            special('1', "z", "x/layer") + special('2', "out", "../../etc/passwd") +
                            special('2', "abs", "/x/layer") + special('2', "loop", "loop") +
                            saved_tar_end();
  const auto members = read_tar_members(reader(bytes)).value();
  EXPECT_EQ(find_member(members, "y/layer").value().size, 1u);
  EXPECT_EQ(find_member(members, "z").value().size, 1u);
  for (const char* name : {"out", "loop"}) EXPECT_FALSE(find_member(members, name).has_value());
}

TEST(TarMembers, LongNamesComeFromTheirExtensions) {
  const std::string name = std::string(150, 'n');
  const std::string pax = "168 path=" + name.substr(0, 0) + name + "\n";
  const std::string record = std::to_string(pax.size()) + pax.substr(3);
  const std::string gnu = std::string(120, 'g');
  const std::string bytes = special('x', "ext", "", record) + file("short", "p") +
                            special('L', "ext", "", gnu + std::string(1, '\0')) +
                            file("short", "q") + saved_tar_end();
  const auto members = read_tar_members(reader(bytes));
  ASSERT_TRUE(members.has_value()) << members.error().message();
  EXPECT_TRUE(find_member(*members, name).has_value());
  EXPECT_TRUE(find_member(*members, gnu).has_value());
  EXPECT_FALSE(find_member(*members, "short").has_value());
}

TEST(TarMembers, RefuseWhatIsNoTar) {
  std::string wrong_sum = file("a", "x");
  wrong_sum[0] = 'b';
  for (const std::string& bytes :
       {std::string(), std::string("\x1f\x8b") + std::string(1000, 'x'), std::string(100, 'x'),
        wrong_sum, special('x', "e", "", "nonsense") + saved_tar_end(),
        special('x', "e", "", "9999 path=x\n") + saved_tar_end()}) {
    const auto members = read_tar_members(reader(bytes));
    ASSERT_FALSE(members.has_value());
    EXPECT_EQ(members.error().code(), Code::kInvalidArgument);
  }
}

TEST(TarMembers, AreBounded) {
  std::string bytes;
  for (std::size_t i = 0; i <= kMaxTarMembers; ++i) bytes += file(std::to_string(i), "");
  bytes += saved_tar_end();
  const auto members = read_tar_members(reader(bytes));
  ASSERT_FALSE(members.has_value());
  EXPECT_THAT(members.error().message(), HasSubstr("most"));
}

TEST(TarMembers, SizesOfManyGigabytesAreWrittenAndRead) {
  const std::uint64_t size = 10ull << 30;
  const std::string bytes = saved_tar_header("big", size);
  const auto members = read_tar_members(reader(bytes));
  ASSERT_TRUE(members.has_value()) << members.error().message();
  EXPECT_EQ(find_member(*members, "big").value().size, size);
}

}  // namespace
}  // namespace caisson::image
