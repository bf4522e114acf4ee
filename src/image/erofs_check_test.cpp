// The checker against images of our own writer: good ones are taken, and every field that is
// spoilt is refused for what it is.
#include "image/erofs_check.h"

#include <gmock/gmock.h>

#include "image/erofs_copy.h"
#include "image/flatten_for_test.h"

namespace caisson::image {
namespace {

using ::testing::HasSubstr;
using testing::memory_file;
using testing::Tar;
using testing::TarEntry;

class ErofsCheck : public testing::FlattenTest {
 protected:
  // A tree with everything that an image can hold.
  void make(const std::vector<TarEntry>& more = {}) {
    Tar tar;
    tar.add({.name = "dir", .type = '5', .mode = 0755});
    tar.add({.name = "dir/below", .type = '5', .mode = 0755});
    tar.add({.name = "dir/file", .data = "some text"});
    tar.add({.name = "big", .data = std::string(5000, 'b')});
    tar.add({.name = "empty"});
    tar.add({.name = "link", .type = '2', .link = "dir/file"});
    tar.add({.name = "pipe", .type = '6'});
    tar.add({.name = "second", .type = '1', .link = "big"});
    for (const TarEntry& entry : more) tar.add(entry);
    begin();
    ASSERT_TRUE(apply(tar.bytes()).has_value());
    // Too long to follow its inode.
    ASSERT_TRUE(flattener_->begin_layer().has_value());
    ASSERT_TRUE(flattener_->make_symlink({.path = "long"}, std::string(4095, 'l'), {}).has_value());
    ASSERT_TRUE(flattener_->end_layer().has_value());
    (void)listing();
    bytes_ = testing::read_whole(image_path());
    metadata_ = std::uint64_t{erofs::get32(super() + 40)} * erofs::kBlock;
  }
  // A delta with what it alone can hold.
  void make_delta() {
    kind_ = RootfsKind::kDelta;
    Tar tar;
    tar.add({.name = ".wh.gone"});
    tar.add({.name = "file", .data = "text"});
    for (const std::string name : {"large", "opaque", "plain"})
      tar.add({.name = name, .type = '5', .mode = 0755});
    tar.add({.name = "opaque/.wh..wh..opq"});
    tar.add({.name = "opaque/file", .data = "text"});
    tar.add({.name = "large/.wh..wh..opq"});
    for (int i = 0; i < 50; ++i)
      tar.add({.name = "large/" + std::to_string(i) + std::string(50, 'n')});
    begin();
    ASSERT_TRUE(apply(tar.bytes()).has_value());
    (void)listing();
    bytes_ = testing::read_whole(image_path());
    metadata_ = std::uint64_t{erofs::get32(super() + 40)} * erofs::kBlock;
  }
  char* super() { return bytes_.data() + erofs::kSuperOffset; }
  char* inode(std::uint64_t number) { return bytes_.data() + metadata_ + number * 32; }
  char* root() { return inode(erofs::get16(super() + 14)); }
  char* entries(char* directory) {
    if (directory[0] == 5) return directory + erofs::kInodeSize;
    return bytes_.data() + std::uint64_t{erofs::get32(directory + 16)} * erofs::kBlock;
  }
  // The entry of that name in a directory of one block.
  char* entry(char* directory, std::string_view name) {
    char* block = entries(directory);
    const std::size_t count = erofs::get16(block + 8) / erofs::kEntrySize;
    for (std::size_t i = 0; i < count; ++i) {
      char* at = block + i * erofs::kEntrySize;
      const std::size_t begin = erofs::get16(at + 8);
      const std::size_t end = i + 1 < count ? erofs::get16(at + erofs::kEntrySize + 8)
                                            : begin + std::strlen(block + begin);
      if (std::string_view(block + begin, end - begin) == name) return at;
    }
    VERIFY(false);
    return nullptr;
  }
  char* at(std::string_view name) { return inode(erofs::get64(entry(root(), name))); }
  std::uint64_t number(std::string_view name) { return erofs::get64(entry(root(), name)); }
  char* name_of(char* directory, std::string_view name) {
    return entries(directory) + erofs::get16(entry(directory, name) + 8);
  }

  // With the checksum made right.
  std::string verdict() {
    erofs::put32(super() + 4, 0);
    erofs::put32(super() + 4, erofs::crc32c({super(), erofs::kBlock - erofs::kSuperOffset}));
    return verdict_as_it_is();
  }
  std::string verdict_as_it_is() {
    auto checked = check_erofs(memory_file(bytes_).get(), kind_);
    if (checked.has_value()) return "good";
    EXPECT_EQ(checked.error().code(), Code::kDataLoss);
    return checked.error().message();
  }
  // What is said of a fresh image after the change.
  template <typename Change>
  std::string after(Change change) {
    make();
    change();
    return verdict();
  }

  std::string bytes_;
  std::uint64_t metadata_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Form, ErofsCheck, ::testing::Values(RootfsForm::kErofs));

TEST_P(ErofsCheck, TakesWhatTheWriterMakes) {
  make();
  EXPECT_EQ(verdict_as_it_is(), "good");
  std::vector<TarEntry> many;
  for (int i = 0; i < 1000; ++i) {
    many.push_back({.name = "dir/" + std::to_string(i) + std::string(100, 'n')});
  }
  make(many);
  EXPECT_EQ(verdict_as_it_is(), "good");
}

TEST_P(ErofsCheck, RefusesASpoiltSuperblock) {
  make();
  super()[4] ^= 1;
  EXPECT_THAT(verdict_as_it_is(), HasSubstr("checksum"));
  EXPECT_THAT(after([&] { super()[0] ^= 1; }), HasSubstr("magic"));
  EXPECT_THAT(after([&] { super()[12] = 9; }), HasSubstr("4 KiB"));
  EXPECT_THAT(after([&] { super()[8] |= 4; }), HasSubstr("compatible features"));
  EXPECT_THAT(after([&] { super()[80] = 1; }), HasSubstr("incompatible features"));
  EXPECT_THAT(after([&] { super()[14] = 4; }), HasSubstr("root has another number"));
  EXPECT_THAT(after([&] { ++super()[16]; }), HasSubstr("inodes and says"));
  EXPECT_THAT(after([&] { ++super()[36]; }), HasSubstr("blocks, the file has"));
  EXPECT_THAT(after([&] { erofs::put32(super() + 40, 0); }), HasSubstr("metadata lies outside"));
  EXPECT_THAT(after([&] { erofs::put32(super() + 40, erofs::get32(super() + 36)); }),
              HasSubstr("metadata lies outside"));
  EXPECT_THAT(after([&] { bytes_ += 'x'; }), HasSubstr("whole blocks"));
  EXPECT_THAT(after([&] { bytes_.resize(erofs::kBlock); }), HasSubstr("whole blocks"));
  // Everything else in the block: times, identity, devices, compression, extended attributes.
  for (std::size_t i = 0; i < erofs::kBlock; ++i) {
    const std::size_t field = i - erofs::kSuperOffset;
    const bool ours = i >= erofs::kSuperOffset &&
                      (field < 13 || (field >= 14 && field < 24) || (field >= 36 && field < 44));
    if (ours || (i > 1200 && i % 97 != 0)) continue;
    EXPECT_NE(after([&] { bytes_[i] ^= 1; }), "good") << i;
  }
}

TEST_P(ErofsCheck, RefusesSpoiltInodes) {
  auto field = [&](const char* name, int offset, std::uint32_t value) {
    return after([&] { erofs::put16(at(name) + offset, value); });
  };
  for (const std::uint32_t format : {0u, 3u, 4u, 7u, 9u, 17u, 0x8001u}) {
    EXPECT_THAT(field("big", 0, format), HasSubstr("neither plain nor inline")) << format;
  }
  EXPECT_THAT(field("big", 2, 1), HasSubstr("extended attributes"));
  EXPECT_THAT(field("big", 6, 1), HasSubstr("must be zero"));
  EXPECT_THAT(field("big", 48, 1), HasSubstr("must be zero"));
  EXPECT_THAT(field("big", 62, 1), HasSubstr("must be zero"));
  for (const std::uint32_t type : {0u, 0020000u, 0060000u, 0140000u}) {
    EXPECT_THAT(field("big", 4, type | 0644), HasSubstr("neither directory, file"));
  }
  EXPECT_THAT(field("big", 26, 1), HasSubstr("id above"));
  EXPECT_THAT(field("big", 30, 1), HasSubstr("id above"));
  EXPECT_THAT(field("big", 20, 0xffff), HasSubstr("another number"));
  EXPECT_THAT(field("big", 42, 0xffff), HasSubstr("a time that is none"));
  EXPECT_THAT(field("big", 44, 0), HasSubstr("no links"));
  EXPECT_THAT(field("big", 44, 1), HasSubstr("second name"));
  EXPECT_THAT(field("big", 44, 3), HasSubstr("fewer names"));
  EXPECT_THAT(field("empty", 44, 2), HasSubstr("fewer names"));
  EXPECT_THAT(field("big", 14, 1), HasSubstr("outside of the image"));
  EXPECT_THAT(field("big", 18, 1), HasSubstr("outside of the image"));
  EXPECT_THAT(field("big", 16, 0), HasSubstr("outside of the image"));
  EXPECT_THAT(field("big", 8, 5), HasSubstr("not where something of its size"));
  EXPECT_THAT(field("empty", 16, 1), HasSubstr("names a block"));
  EXPECT_THAT(field("pipe", 8, 1), HasSubstr("holds something"));
  EXPECT_THAT(field("pipe", 4, S_IFIFO | 04644), HasSubstr("special mode"));
  EXPECT_THAT(field("link", 4, S_IFLNK | 0644), HasSubstr("not 0777"));
  EXPECT_THAT(field("link", 8, 0), HasSubstr("1 to 4095"));
  EXPECT_THAT(field("link", 8, 4096), HasSubstr("1 to 4095"));
  EXPECT_THAT(field("long", 8, 4096), HasSubstr("1 to 4095"));
  EXPECT_THAT(field("dir", 44, 9), HasSubstr("links are not"));
  EXPECT_THAT(after([&] { at("link")[erofs::kInodeSize + 2] = '\0'; }), HasSubstr("zero byte"));
  EXPECT_THAT(after([&] { erofs::put32(at("long") + 16, erofs::get32(at("big") + 16)); }),
              HasSubstr("share block"));
  EXPECT_THAT(after([&] { erofs::put16(root() + 4, S_IFREG | 0644); }), HasSubstr("not where"));
  EXPECT_THAT(after([&] { erofs::put32(root() + 16, 1); }), HasSubstr("outside of the image"));
  EXPECT_THAT(after([&] { erofs::put32(root() + 16, erofs::get32(super() + 40)); }),
              HasSubstr("overlap"));
}

TEST_P(ErofsCheck, TakesADeltasMarksOfADeltaAlone) {
  make_delta();
  EXPECT_EQ(verdict_as_it_is(), "good");
  kind_ = RootfsKind::kWhole;
  EXPECT_THAT(verdict_as_it_is(), HasSubstr("neither directory, file"));
  make_delta();
  entry(root(), "gone")[10] = 1;
  erofs::put16(at("gone") + 4, S_IFREG);  // an empty file
  kind_ = RootfsKind::kWhole;
  EXPECT_THAT(verdict(), HasSubstr("extended attributes"));
}

TEST_P(ErofsCheck, RefusesMarksOfADeltaThatAreNotOurs) {
  const auto spoilt = [&](auto change) {
    make_delta();
    change();
    return verdict();
  };
  const auto field = [&](const char* name, int offset, std::uint32_t value) {
    return spoilt([&] { erofs::put16(at(name) + offset, value); });
  };
  // Other devices, and whiteouts that are somebody's, have a mode or several names.
  EXPECT_THAT(field("gone", 16, 0x0103), HasSubstr("no whiteout"));
  EXPECT_THAT(field("gone", 18, 1), HasSubstr("no whiteout"));
  EXPECT_THAT(field("gone", 4, S_IFCHR | 0666), HasSubstr("no whiteout"));
  EXPECT_THAT(field("gone", 24, 1), HasSubstr("no whiteout"));
  EXPECT_THAT(field("gone", 28, 1), HasSubstr("no whiteout"));
  EXPECT_THAT(field("gone", 8, 1), HasSubstr("no whiteout"));
  EXPECT_THAT(field("gone", 44, 2), HasSubstr("no whiteout"));
  for (const std::uint32_t type : {0u, unsigned{S_IFBLK}, unsigned{S_IFSOCK}})
    EXPECT_THAT(field("gone", 4, type), HasSubstr("neither directory, file"));
  // Attributes of anything else, of the root, of another size or with another byte.
  EXPECT_THAT(field("gone", 2, 6), HasSubstr("other attributes"));
  EXPECT_THAT(field("file", 2, 6), HasSubstr("other attributes"));
  EXPECT_THAT(field("plain", 2, 6), HasSubstr("other attributes"));
  EXPECT_THAT(spoilt([&] {
                erofs::put16(root() + 2, 6);
                std::memcpy(root() + erofs::kInodeSize, erofs::kOpaqueAttribute.data(), 32);
              }),
              HasSubstr("other attributes"));
  for (const std::uint32_t count : {1u, 5u, 7u, 0xffffu})
    EXPECT_THAT(field("opaque", 2, count), HasSubstr("other attributes")) << count;
  for (std::size_t i = 0; i < erofs::kOpaqueAttribute.size(); ++i)
    EXPECT_THAT(spoilt([&] { at("opaque")[erofs::kInodeSize + i] ^= 1; }),
                HasSubstr("other attributes"))
        << i;
}

TEST_P(ErofsCheck, RefusesSpoiltDirectories) {
  auto offset = [&](const char* name, std::uint32_t value) {
    return after([&] { erofs::put16(entry(root(), name) + 8, value); });
  };
  EXPECT_THAT(offset(".", 0), HasSubstr("whole entries"));
  EXPECT_THAT(offset(".", 13), HasSubstr("whole entries"));
  EXPECT_THAT(offset(".", 0xfffc), HasSubstr("whole entries"));
  EXPECT_THAT(offset("..", 1), HasSubstr("behind the one before"));
  EXPECT_THAT(offset("big", 4095), HasSubstr("behind the one before"));
  EXPECT_THAT(offset("second", 0xffff), HasSubstr("behind the one before"));
  auto rename = [&](const char* name, std::string_view to) {
    return after([&] { std::memcpy(name_of(root(), name), to.data(), to.size()); });
  };
  EXPECT_THAT(rename("dir", "d/r"), HasSubstr("cannot be a name"));
  EXPECT_THAT(rename("dir", {"d\0r", 3}), HasSubstr("cannot be a name"));
  EXPECT_THAT(rename("second", {"\0", 1}), HasSubstr("behind the last name"));
  EXPECT_THAT(rename("second", {"s\0c", 3}), HasSubstr("behind the last name"));
  EXPECT_THAT(rename("dir", "zzz"), HasSubstr("out of order"));
  EXPECT_THAT(rename("second", "s\xff"), "good");
  EXPECT_THAT(rename("long", "link"), HasSubstr("out of order"));
  EXPECT_THAT(after([&] { *name_of(at("dir"), ".") = '!'; }), HasSubstr("second name"));
  EXPECT_THAT(after([&] {
                *name_of(root(), ".") = '!';
                erofs::put64(entry(root(), "!"), number("pipe"));
                entry(root(), "!")[10] = 5;
                erofs::put64(entry(root(), "pipe"), number("empty"));
                entry(root(), "pipe")[10] = 1;
                erofs::put16(at("empty") + 44, 2);
              }),
              HasSubstr("no '.'"));
  auto lead = [&](const char* name, auto to) {
    return after([&] { erofs::put64(entry(root(), name), to()); });
  };
  EXPECT_THAT(lead(".", [&] { return number("dir"); }), HasSubstr("'.' leads elsewhere"));
  EXPECT_THAT(lead("..", [&] { return number("dir"); }), HasSubstr("'..' leads elsewhere"));
  EXPECT_THAT(lead("big", [&] { return number("big") + 1; }), HasSubstr("between inodes"));
  EXPECT_THAT(lead("big", [] { return std::uint64_t{0}; }), HasSubstr("outside of the metadata"));
  EXPECT_THAT(lead("big", [] { return ~std::uint64_t{1}; }), HasSubstr("outside of the metadata"));
  EXPECT_THAT(lead("empty", [&] { return number("dir"); }), HasSubstr("second name"));
  EXPECT_THAT(lead("empty", [&] { return number("big"); }), HasSubstr("more names than links"));
  EXPECT_THAT(lead("pipe", [&] { return number("empty"); }), HasSubstr("second name"));
  EXPECT_THAT(after([&] { entry(root(), "big")[10] = 2; }), HasSubstr("another kind"));
  EXPECT_THAT(after([&] { entry(root(), "big")[10] = 3; }), HasSubstr("another kind"));
  EXPECT_THAT(after([&] { entry(root(), ".")[10] = 1; }), HasSubstr("leads elsewhere"));
  EXPECT_THAT(after([&] { entry(root(), "big")[11] = 1; }), HasSubstr("must be zero"));
  EXPECT_THAT(after([&] { erofs::put64(entry(at("dir"), "below"), erofs::get64(root())); }),
              HasSubstr("inode"));
  // A directory that holds itself or has two parents.
  EXPECT_THAT(after([&] { erofs::put64(entry(at("dir"), "below"), number("dir")); }),
              HasSubstr("second name"));
  EXPECT_THAT(after([&] { erofs::put64(entry(at("dir"), ".."), number("dir")); }),
              HasSubstr("'..' leads elsewhere"));
  EXPECT_THAT(after([&] { erofs::put16(at("dir") + 8, 5); }), HasSubstr("too small"));
  EXPECT_THAT(after([&] { erofs::put16(at("dir") + 8, 0); }), HasSubstr("inode"));
}

TEST_P(ErofsCheck, NoByteOfTheMetadataCrashesIt) {
  make();
  const std::string good = bytes_;
  for (std::size_t i = metadata_; i < good.size(); ++i) {
    bytes_ = good;
    bytes_[i] ^= i % 3 == 0 ? '\x01' : i % 3 == 1 ? '\x80' : '\xff';
    // What is taken is what a strict reader takes too (it ends the program otherwise).
    if (verdict_as_it_is() == "good") (void)testing::ErofsReader(bytes_).list();
  }
}

TEST_P(ErofsCheck, ACopyFollowsTheImageAndNothingElse) {
  make();
  const std::string path = directory_ / "root/rootfs.erofs";
  auto place = [&] {
    bytes_ = testing::read_whole(image_path());
    std::ofstream(path, std::ios::binary | std::ios::in | std::ios::out | std::ios::ate).seekp(0)
        << bytes_;
  };
  auto contents = [](const Fd& file) {
    return testing::read_whole("/proc/self/fd/" + std::to_string(file.get()));
  };
  std::ofstream(path, std::ios::binary) << "";
  ErofsCopy copy;
  EXPECT_FALSE(copy.update(root_.get()).has_value());  // too short
  place();
  EXPECT_EQ(contents(copy.update(root_.get()).value()), bytes_);
  const std::uint64_t first = std::uint64_t{erofs::get32(at("big") + 16)} * erofs::kBlock;

  ASSERT_TRUE(apply(Tar().add({.name = "more", .data = std::string(9000, 'm')}).bytes()));
  const testing::Listing expected = listing();
  place();
  // What was copied once is not looked at again.
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
          .seekp(static_cast<std::streamoff>(first))
      << "spoilt";
  const Fd again = copy.update(root_.get()).value();
  EXPECT_EQ(testing::ErofsReader(contents(again)).list(), expected);
  EXPECT_EQ(fcntl(again.get(), F_GETFL) & O_ACCMODE, O_RDONLY);

  // A worker that has been taken over.
  std::filesystem::resize_file(path, bytes_.size() - erofs::kBlock);
  auto refused = copy.update(root_.get());
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("became shorter"));
  bytes_[erofs::kSuperOffset + 14] ^= 4;
  std::ofstream(path, std::ios::binary) << bytes_;
  refused = copy.update(root_.get());
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("not as the unpacker writes it"));
}

TEST_P(ErofsCheck, SeesWhoCouldStillWrite) {
  const std::string path = directory_ / "root/file";
  Fd writer(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const Fd reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  auto refused = expect_no_writer(reader.get(), {});
  if (refused.has_value()) GTEST_SKIP() << "this file system has no leases";
  EXPECT_THAT(refused.error().message(), HasSubstr("still open for writing"));
  ASSERT_EQ(ftruncate(writer.get(), 4096), 0);
  void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writer.get(), 0);
  writer.reset();
  EXPECT_FALSE(expect_no_writer(reader.get(), {}).has_value());
  munmap(mapped, 4096);
  EXPECT_TRUE(expect_no_writer(reader.get()).has_value());
}

}  // namespace
}  // namespace caisson::image
