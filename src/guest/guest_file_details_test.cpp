// What listings and stats tell beyond the inode, and composing, through the real guest.
#include <sched.h>
#include <sys/mount.h>
#include <sys/xattr.h>

#include <algorithm>
#include <set>

#include "guest/guest_files_harness.h"

namespace caisson::guest::testing {
namespace {

using proto::FileType;

constexpr const char* kPrefix = "user.test.";

class Details : public Files {
 protected:
  static Fields detailed(FileOperation op, const std::string& path) {
    return operation(op, path).put_u8(Tag::kWantDetails, 1).put(Tag::kXattrPrefix, kPrefix);
  }
  // The attributes of an event, "name=value" each, in order of their names.
  static std::vector<std::string> attributes(const proto::FieldReader& event) {
    std::vector<std::string> out;
    const auto names = event.all(Tag::kXattrName), values = event.all(Tag::kXattrValue);
    EXPECT_EQ(names.size(), values.size());
    for (std::size_t i = 0; i < std::min(names.size(), values.size()); ++i)
      out.push_back(std::string(names[i]) + "=" + std::string(values[i]));
    std::ranges::sort(out);
    return out;
  }
  bool has_attributes() {
    std::ofstream(root_ + "/probe") << "";
    const bool has = ::setxattr((root_ + "/probe").c_str(), "user.test.a", "1", 1, 0) == 0;
    std::filesystem::remove(root_ + "/probe");
    return has;
  }
  static std::uint64_t code(const Seen& seen) {
    return seen.end().number_or_none(Tag::kErrorCode).value_or(0);
  }
  static constexpr auto kInvalid = static_cast<std::uint64_t>(Code::kInvalidArgument);
  static constexpr auto kNotFound = static_cast<std::uint64_t>(Code::kNotFound);
  static constexpr auto kExists = static_cast<std::uint64_t>(Code::kAlreadyExists);
};

TEST_F(Details, LinksTellWhereTheyLead) {
  std::filesystem::create_directories(root_ + "/d/e");
  std::filesystem::create_symlink("d", root_ + "/one");
  std::filesystem::create_symlink("one/e", root_ + "/two");
  std::filesystem::create_symlink("nothing", root_ + "/broken");
  const auto look = [&](const std::string& name) {
    return run(detailed(FileOperation::kStat, root_ + name).put_u8(Tag::kFollow, 0));
  };
  const Seen two = look("/two");
  EXPECT_EQ(two.event(0).number(Tag::kFileType).value(),
            static_cast<std::uint64_t>(FileType::kSymlink));
  EXPECT_EQ(two.event(0).text(Tag::kTarget).value(), "one/e");
  EXPECT_EQ(two.event(0).text(Tag::kResolved).value(),
            std::filesystem::canonical(root_).string() + "/d/e");
  EXPECT_EQ(two.event(0).number(Tag::kTargetType).value(),
            static_cast<std::uint64_t>(FileType::kDirectory));
  const Seen broken = look("/broken");
  EXPECT_EQ(broken.event(0).text(Tag::kTarget).value(), "nothing");
  EXPECT_FALSE(broken.event(0).has(Tag::kResolved));
  EXPECT_FALSE(broken.event(0).has(Tag::kTargetType));
  EXPECT_FALSE(look("/d").event(0).has(Tag::kResolved));
}

TEST_F(Details, ListingsTellOnlyWhatIsAskedFor) {
  write(root_ + "/f", "x");
  std::filesystem::create_symlink("f", root_ + "/link");
  const Seen plain = run(FileOperation::kList, root_);
  EXPECT_FALSE(plain.event(0).has(Tag::kUserName));
  EXPECT_FALSE(plain.event(1).has(Tag::kResolved));
  const Seen seen = run(detailed(FileOperation::kList, root_));
  ASSERT_EQ(seen.events.size(), 2u);
  EXPECT_EQ(seen.event(0).text(Tag::kUserName).value(), "root");
  EXPECT_EQ(seen.event(0).text(Tag::kGroupName).value(), "root");
  EXPECT_TRUE(seen.event(1).text(Tag::kResolved).value().ends_with("/f"));
}

TEST_F(Details, AListingIsInOrderDepthFirst) {
  for (const char* name : {"/b", "/a.d", "/a/z", "/a/b/c", "/A"})
    std::filesystem::create_directories(root_ + name);
  std::vector<std::string> names;
  const Seen seen = run(operation(FileOperation::kList, root_).put_u32(Tag::kDepth, 3));
  for (std::size_t i = 0; i < seen.events.size(); ++i)
    names.emplace_back(seen.event(i).text(Tag::kName).value());
  EXPECT_EQ(names, (std::vector<std::string>{"A", "a", "a/b", "a/b/c", "a/z", "a.d", "b"}));
}

TEST_F(Details, AListingLongerThanABatchIsInOrderAndWhole) {
  constexpr std::size_t kEntries = 16 * 1024 + 100;
  for (std::size_t i = 0; i < kEntries; ++i)
    ASSERT_EQ(::mknod((root_ + "/" + std::to_string(i)).c_str(), S_IFREG | 0600, 0), 0);
  const Seen seen = run(FileOperation::kList, root_);
  ASSERT_EQ(seen.events.size(), kEntries);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < seen.events.size(); ++i)
    names.emplace_back(seen.event(i).text(Tag::kName).value());
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), kEntries);
}

TEST_F(Details, AListingOfSomethingElseIsInvalid) {
  write(root_ + "/f", "x");
  const Seen file = run(FileOperation::kList, root_ + "/f");
  EXPECT_EQ(code(file), kInvalid);
  EXPECT_EQ(file.error_text(), "list " + root_ + "/f: it is not a directory");
  EXPECT_EQ(code(run(FileOperation::kList, root_ + "/absent")), kNotFound);
  EXPECT_EQ(code(run(FileOperation::kList, root_ + "/f/below")), kNotFound);
}

TEST_F(Details, AWriteReplacesTheAttributesOfAPrefix) {
  if (!has_attributes()) GTEST_SKIP() << "this file system has no attributes of users";
  for (const std::uint8_t atomic : {std::uint8_t{0}, std::uint8_t{1}}) {
    const std::string path = root_ + "/f" + std::to_string(atomic);
    const auto put = [&](const std::vector<std::pair<std::string, std::string>>& values) {
      Fields fields = operation(FileOperation::kWrite, path)
                          .put_u8(Tag::kAtomic, atomic)
                          .put(Tag::kXattrPrefix, kPrefix);
      for (const auto& [name, value] : values)
        fields.put(Tag::kXattrName, name).put(Tag::kXattrValue, value);
      return write(fields, "x");
    };
    const auto now = [&] { return attributes(run(detailed(FileOperation::kStat, path)).event(0)); };
    EXPECT_EQ(put({{"user.test.a", "1"}, {"user.test.b", ""}}).error_text(), "");
    EXPECT_EQ(now(), (std::vector<std::string>{"user.test.a=1", "user.test.b="}));
    EXPECT_EQ(put({{"user.test.b", "2"}}).error_text(), "");
    EXPECT_EQ(now(), (std::vector<std::string>{"user.test.b=2"}));
    EXPECT_EQ(put({}).error_text(), "");
    EXPECT_EQ(now(), std::vector<std::string>());
  }
}

TEST_F(Details, AttributesOfOtherNamesAreLeftAlone) {
  if (!has_attributes()) GTEST_SKIP() << "this file system has no attributes of users";
  write(root_ + "/f", "x");
  ASSERT_EQ(::setxattr((root_ + "/f").c_str(), "user.other", "o", 1, 0), 0);
  write(operation(FileOperation::kWrite, root_ + "/f").put(Tag::kXattrPrefix, kPrefix), "y");
  EXPECT_GT(::getxattr((root_ + "/f").c_str(), "user.other", nullptr, 0), 0);
  EXPECT_EQ(attributes(run(detailed(FileOperation::kStat, root_ + "/f")).event(0)),
            std::vector<std::string>());
  const Seen list = run(operation(FileOperation::kList, root_)
                            .put_u8(Tag::kWantDetails, 1)
                            .put(Tag::kXattrPrefix, "user."));
  EXPECT_EQ(attributes(list.event(0)), (std::vector<std::string>{"user.other=o"}));
}

TEST_F(Details, AttributesAreBounded) {
  if (!has_attributes()) GTEST_SKIP() << "this file system has no attributes of users";
  write(root_ + "/f", "x");
  for (int i = 0; i < 70; ++i)
    ASSERT_EQ(
        ::setxattr((root_ + "/f").c_str(), ("user.test." + std::to_string(i)).c_str(), "v", 1, 0),
        0);
  EXPECT_EQ(attributes(run(detailed(FileOperation::kStat, root_ + "/f")).event(0)).size(), 64u);
}

TEST_F(Details, AttributesThatAreNotWellFormedAreRefused) {
  const auto error = [&](const Fields& more) {
    const std::string head = operation(FileOperation::kWrite, root_ + "/f").bytes();
    const std::uint32_t stream = guest_.open_raw(Kind::kFile, head + more.bytes());
    return guest_.finish_stream(stream).error_text();
  };
  const auto named = [](const std::string& name) {
    return Fields()
        .put(Tag::kXattrPrefix, kPrefix)
        .put(Tag::kXattrName, name)
        .put(Tag::kXattrValue, "v");
  };
  const std::string kNames =
      "extended attribute: allowed are names that begin with user. and have at most 255 bytes";
  EXPECT_EQ(error(Fields().put(Tag::kXattrPrefix, "trusted.")), kNames);
  EXPECT_EQ(error(named("user.test." + std::string(255, 'x'))), kNames);
  EXPECT_EQ(error(named("user.else")),
            "extended attribute: a name does not begin with the prefix user.test.");
  EXPECT_EQ(error(named("user.test.a").put(Tag::kXattrName, "user.test.b")),
            "extended attributes: 2 names and 1 values");
  EXPECT_EQ(error(named("user.test.a")
                      .put(Tag::kXattrName, "user.test.b")
                      .put(Tag::kXattrValue, std::string(9000, 'v'))),
            "extended attributes: 2 of 9023 bytes, at most 64 of 8192 bytes are allowed");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/f"));
}

TEST_F(Details, MakingADirectoryThatIsThere) {
  const auto make = [&](const std::string& path, std::uint8_t exclusive) {
    return run(operation(FileOperation::kMakeDir, root_ + path)
                   .put_u8(Tag::kRecursive, 1)
                   .put_u8(Tag::kExclusive, exclusive));
  };
  EXPECT_EQ(make("/a/b", 1).error_text(), "");
  EXPECT_EQ(code(make("/a/b", 1)), kExists);
  EXPECT_EQ(make("/a/b", 0).error_text(), "");
  EXPECT_EQ(code(run(FileOperation::kMakeDir, root_ + "/a/b")), kExists);
  write(root_ + "/f", "x");
  EXPECT_EQ(code(make("/f", 1)), kInvalid);
  EXPECT_EQ(make("/f/below", 1).error_text(),
            "mkdir " + root_ + "/f: it exists and is not a directory");
}

TEST_F(Details, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(
      code(run(operation(FileOperation::kRemove, root_ + "/none").put_u8(Tag::kRecursive, 1))),
      kNotFound);
  EXPECT_EQ(code(run(operation(FileOperation::kRename, root_ + "/none")
                         .put(Tag::kTarget, root_ + "/made/x")
                         .put_u8(Tag::kRecursive, 1))),
            kNotFound);
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

class Compose : public Details {
 protected:
  Fields compose(const std::vector<std::string>& sources, const std::string& to) {
    Fields fields = operation(FileOperation::kCompose, root_ + to);
    for (const std::string& source : sources) fields.put(Tag::kSource, root_ + source);
    return fields;
  }
};

TEST_F(Compose, PutsSourcesTogetherAndRemovesThem) {
  std::string large(100'000, 'l');
  write(root_ + "/a", large);
  write(root_ + "/b", "");
  write(root_ + "/c", "end");
  write(root_ + "/to", "old");
  ASSERT_EQ(::chmod((root_ + "/to").c_str(), 0640), 0);
  const Seen seen = run(compose({"/a", "/b", "/c"}, "/to").put_u8(Tag::kWantDetails, 1));
  EXPECT_EQ(seen.error_text(), "");
  EXPECT_EQ(contents(root_ + "/to"), large + "end");
  EXPECT_EQ(seen.event(0).number(Tag::kSize).value(), large.size() + 3);
  EXPECT_EQ(seen.event(0).number(Tag::kMode).value(), 0640u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_), {}), 1);
}

TEST_F(Compose, MakesParents) {
  write(root_ + "/a", "1");
  EXPECT_EQ(run(compose({"/a"}, "/new/to").put_u8(Tag::kRecursive, 1)).error_text(), "");
  EXPECT_EQ(contents(root_ + "/new/to"), "1");
}

TEST_F(Compose, ARefusalLeavesEverything) {
  write(root_ + "/a", "1");
  std::filesystem::create_directory(root_ + "/d");
  std::filesystem::create_hard_link(root_ + "/a", root_ + "/same");
  EXPECT_EQ(code(run(compose({"/a", "/a"}, "/to"))), kInvalid);
  EXPECT_EQ(code(run(compose({"/a", "/d/../a"}, "/to"))), kInvalid);
  EXPECT_EQ(code(run(compose({"/a", "/same"}, "/to"))), kInvalid);
  const Seen itself = run(compose({"/a"}, "/a"));
  EXPECT_EQ(code(itself), kInvalid);
  EXPECT_EQ(itself.error_text(),
            "compose " + root_ + "/a: " + root_ + "/a is the destination or given twice");
  EXPECT_EQ(code(run(compose({}, "/to"))), kInvalid);
  EXPECT_EQ(code(run(compose({"/a", "/none"}, "/to"))), kNotFound);
  EXPECT_EQ(run(compose({"/a", "/d"}, "/to")).error_text(), root_ + "/d is not a regular file");
  EXPECT_EQ(run(compose({"/a"}, "/d")).error_text(), root_ + "/d is not a regular file");
  EXPECT_EQ(
      run(operation(FileOperation::kCompose, root_ + "/to").put(Tag::kSource, "a")).error_text(),
      "file: a path is absolute, shorter than 4096 bytes and has no zero byte");
  EXPECT_EQ(contents(root_ + "/a"), "1");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/to"));
}

TEST_F(Details, LookupUser) {
  const auto look = [&](const std::string& user) {
    return run(Fields()
                   .put_u8(Tag::kOperation, static_cast<std::uint8_t>(FileOperation::kLookupUser))
                   .put(Tag::kUserName, user));
  };
  const Seen root = look("root");
  EXPECT_EQ(root.error_text(), "");
  EXPECT_EQ(root.event(0).number(Tag::kUid).value(), 0u);
  EXPECT_EQ(root.event(0).text(Tag::kHome).value(), "/root");
  EXPECT_TRUE(root.event(0).text(Tag::kShell).value().starts_with('/'));
  EXPECT_EQ(root.event(0).text(Tag::kUserName).value(), "root");
  const Seen number = look("3000000000");
  EXPECT_EQ(number.event(0).number(Tag::kUid).value(), 3000000000u);
  EXPECT_FALSE(number.event(0).has(Tag::kUserName));
  EXPECT_EQ(code(look("no-such-user")), kNotFound);
  EXPECT_FALSE(look("no-such-user").end().has(Tag::kErrorSubject));
}

TEST_F(Details, AnUnknownUserIsTold) {
  const Seen seen = run(operation(FileOperation::kStat, root_).put(Tag::kUser, "no-such-user"));
  EXPECT_EQ(seen.end().number(Tag::kErrorSubject).value(),
            static_cast<std::uint64_t>(proto::ErrorSubject::kUser));
  EXPECT_EQ(seen.error_text(), "user 'no-such-user': no such entry in /etc/passwd");
  EXPECT_FALSE(run(FileOperation::kStat, root_ + "/none").end().has(Tag::kErrorSubject));
}

TEST_F(Details, AFullFileSystemIsTold) {
  if (::geteuid() != 0 || ::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", root_.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "nothing can be mounted here";
  {
    GuestProcess inside;  // one that sees the mount
    const std::uint32_t stream =
        inside.open(Kind::kFile, operation(FileOperation::kWrite, root_ + "/f"));
    inside.data(stream, std::string(proto::kMaxPayload, 'x'));
    inside.data(stream, std::string(proto::kMaxPayload, 'x'));
    inside.finish(stream);
    const Seen seen = inside.finish_stream(stream);
    EXPECT_EQ(seen.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(ENOSPC));
    EXPECT_EQ(code(seen), static_cast<std::uint64_t>(Code::kResourceExhausted));
  }
  ::umount2(root_.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace caisson::guest::testing
