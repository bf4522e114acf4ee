// filesystem.Filesystem and its watches, over a guest that a script plays.
#include "api/e2b/data_plane_for_test.h"
#include "api/e2b/messages.h"
#include "api/e2b/watch.h"

namespace caisson::api::e2b {
namespace {

using proto::FileOperation;
using proto::WatchEvent;

class Filesystem : public DataPlaneTest {
 protected:
  static proto::Frame expect_file(FakeSupervisor& at, FileOperation operation,
                                  std::string_view path) {
    proto::Frame open = at.next(FrameType::kOpen);
    EXPECT_EQ(fields(open).number_or_none(Tag::kOperation), static_cast<std::uint64_t>(operation));
    EXPECT_EQ(text(open, Tag::kPath), path);
    EXPECT_EQ(fields(open).number_or_none(Tag::kPrivileges), 1u);
    return open;
  }
  static void tell_stat(FakeSupervisor& at, std::string_view path) {
    const proto::Frame open = expect_file(at, FileOperation::kStat, path);
    EXPECT_EQ(fields(open).number_or_none(Tag::kFollow), 0u);
    EXPECT_EQ(text(open, Tag::kXattrPrefix), "user.e2b.");
    event(at, open, file_of(5));
    close(at, open);
  }
  static proto::Fields change(WatchEvent kind, std::string_view name) {
    proto::Fields told;
    told.put_u8(Tag::kWatchEvent, static_cast<std::uint8_t>(kind)).put(Tag::kName, name);
    return told.put(Tag::kPath, "/d/" + std::string(name));
  }
  static proto::Frame tell_armed(FakeSupervisor& at) {
    tell_user(at);
    proto::Frame open = at.next(FrameType::kOpen);
    EXPECT_EQ(text(open, Tag::kPath), "/d");
    event(at, open, change(WatchEvent::kArmed, ""));
    return open;
  }
};

TEST_F(Filesystem, AStatIsOfTheResolvedPath) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    tell_stat(at, "/home/user/x");
  });
  EXPECT_EQ(call("/filesystem.Filesystem/Stat", R"({"path":"~/a/../x"})")->answer,
            R"({"entry":{"name":"x","type":"FILE_TYPE_FILE","path":"/home/user/x","size":"5",)"
            R"("mode":420,"permissions":"-rw-r--r--","owner":"user","group":"user",)"
            R"("modifiedTime":"1970-01-01T00:00:00Z"}})");
}

TEST_F(Filesystem, AnUnknownUserIsUnauthenticated) {
  play([](FakeSupervisor& at) {
    fail_with(at, at.next(FrameType::kOpen), Error::not_found("user \"user\": no entry"));
  });
  const auto answer = call("/filesystem.Filesystem/Stat", R"({"path":"x"})");
  EXPECT_EQ(answer->status, 401);
  EXPECT_EQ(answer->answer, R"({"code":"unauthenticated","message":"invalid username: 'user'"})");
}

TEST_F(Filesystem, WhatIsMissingIsNotFound) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    fail_with(at, at.next(FrameType::kOpen), Error::syscall("stat /x", ENOENT));
  });
  const auto answer = call("/filesystem.Filesystem/Stat", R"({"path":"/x"})");
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(*answer->answer_json().find("code")->as_string(), "not_found");
}

TEST_F(Filesystem, ACallWhoseClientHasGoneIsGivenUpInsideToo) {
  client_leaves_after_ = std::chrono::milliseconds(50);
  play([](FakeSupervisor& at) {
    tell_user(at);
    const proto::Frame open = expect_file(at, FileOperation::kStat, "/x");
    EXPECT_EQ(at.next(FrameType::kClose).header.stream, open.header.stream);
  });
  const auto answer = call("/filesystem.Filesystem/Stat", R"({"path":"/x"})");
  EXPECT_EQ(answer->status, 0);
  finish_script();
}

TEST_F(Filesystem, WhatTheServerCannotHoldIsRefusedForNow) {
  may_hold_ = 5;
  play([](FakeSupervisor&) {});
  const auto unary = call("/filesystem.Filesystem/Stat", R"({"path":"/x"})");
  EXPECT_EQ(unary->status, 503);
  EXPECT_EQ(*unary->answer_json().find("code")->as_string(), "unavailable");
  const auto streamed = stream("/filesystem.Filesystem/WatchDir", R"({"path":"/x"})");
  EXPECT_THAT(messages(*streamed), ::testing::HasSubstr(R"("code":"unavailable")"));
}

TEST_F(Filesystem, ANewDirectoryIsItsUsers) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    const proto::Frame open = expect_file(at, FileOperation::kMakeDir, "/home/user/d");
    EXPECT_EQ(fields(open).number_or_none(Tag::kUid), 1000u);
    EXPECT_EQ(fields(open).number_or_none(Tag::kGid), 1001u);
    EXPECT_EQ(fields(open).number_or_none(Tag::kExclusive), 1u);
    close(at, open);
    tell_stat(at, "/home/user/d");
  });
  EXPECT_EQ(call("/filesystem.Filesystem/MakeDir", R"({"path":"d"})")->status, 200);
}

TEST_F(Filesystem, ADirectoryThatExistsIsAConflict) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    fail_with(at, at.next(FrameType::kOpen), Error::syscall("mkdir /d", EEXIST));
  });
  const auto answer = call("/filesystem.Filesystem/MakeDir", R"({"path":"/d"})");
  EXPECT_EQ(answer->status, 409);
  EXPECT_EQ(*answer->answer_json().find("code")->as_string(), "already_exists");
}

TEST_F(Filesystem, AMoveTellsWhatIsThereNow) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    const proto::Frame open = expect_file(at, FileOperation::kRename, "/a");
    EXPECT_EQ(text(open, Tag::kTarget), "/b/c");
    close(at, open);
    tell_stat(at, "/b/c");
  });
  const auto answer =
      call("/filesystem.Filesystem/Move", R"({"source":"/a","destination":"/b/c"})");
  EXPECT_EQ(text_of(*answer->answer_json().find("entry"), "path"), "/b/c");
}

TEST_F(Filesystem, RemovingWhatIsNotThereIsNoError) {
  play([](FakeSupervisor& at) {
    for (const int number : {ENOENT, EBUSY}) {
      tell_user(at);
      const proto::Frame open = expect_file(at, FileOperation::kRemove, "/a");
      EXPECT_EQ(proto::FieldReader::parse(open.payload)->number(Tag::kUid), 1000u);
      fail_with(at, open, Error::syscall("remove /a", number));
    }
  });
  EXPECT_EQ(call("/filesystem.Filesystem/Remove", R"({"path":"/a"})")->answer, "{}");
  EXPECT_NE(call("/filesystem.Filesystem/Remove", R"({"path":"/a"})")->status, 200);
}

TEST_F(Filesystem, AListOfTooManyBytesIsRefused) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    const proto::Frame open = at.next(FrameType::kOpen);
    const std::string name(60'000, 'n');
    for (int i = 0; i < 290; ++i) event(at, open, file_of(1).put(Tag::kName, name));
  });
  const auto answer = call("/filesystem.Filesystem/ListDir", R"({"path":"/"})");
  EXPECT_EQ(*answer->answer_json().find("code")->as_string(), "resource_exhausted");
}

TEST_F(Filesystem, AListHasEntriesBelowThePath) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    const proto::Frame open = expect_file(at, FileOperation::kList, "/");
    EXPECT_EQ(fields(open).number_or_none(Tag::kDepth), 1u);
    for (const char* name : {"a", "b/c"}) event(at, open, file_of(1).put(Tag::kName, name));
    close(at, open);
  });
  const json::Value answer =
      call("/filesystem.Filesystem/ListDir", R"({"path":"/"})")->answer_json();
  const json::Value::Array& entries = *answer.find("entries")->as_array();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(text_of(entries[0], "path"), "/a");
  EXPECT_EQ(text_of(entries[1], "path"), "/b/c");
  EXPECT_EQ(text_of(entries[1], "name"), "c");
}

TEST_F(Filesystem, AWatchTellsChangesUntilItsDirectoryGoes) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = tell_armed(at);
    EXPECT_EQ(fields(open).number_or_none(Tag::kRecursive), 1u);
    event(at, open, change(WatchEvent::kCreated, "a"));
    event(at, open, change(WatchEvent::kRenamed, "a").put(Tag::kTargetName, "b"));
    close(at, open);
  });
  const auto answer =
      stream("/filesystem.Filesystem/WatchDir", R"({"path":"/d","recursive":true})");
  EXPECT_EQ(messages(*answer),
            "{\"start\":{}}\n"
            "{\"filesystem\":{\"name\":\"a\",\"type\":\"EVENT_TYPE_CREATE\"}}\n"
            "{\"filesystem\":{\"name\":\"a\",\"type\":\"EVENT_TYPE_RENAME\"}}\n"
            "{\"filesystem\":{\"name\":\"b\",\"type\":\"EVENT_TYPE_CREATE\"}}\n"
            "2 {}\n");
}

TEST_F(Filesystem, AWatchOfWhatIsNoDirectoryFails) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    fail_with(at, at.next(FrameType::kOpen), Error::invalid("watch /d: it is not a directory"));
  });
  EXPECT_EQ(messages(*stream("/filesystem.Filesystem/WatchDir", R"({"path":"/d"})")),
            "2 {\"error\":{\"code\":\"invalid_argument\",\"message\":\"watch /d: it is not a "
            "directory\"}}\n");
}

TEST_F(Filesystem, AWatchEndsAtItsDeadline) {
  play([](FakeSupervisor& at) {
    tell_armed(at);
    at.next(FrameType::kClose);
  });
  const auto answer =
      stream("/filesystem.Filesystem/WatchDir", R"({"path":"/d"})", {{"Connect-Timeout-Ms", "50"}});
  EXPECT_NE(messages(*answer).find("deadline_exceeded"), std::string::npos);
}

TEST_F(Filesystem, AWatcherKeepsEventsUntilTheyAreAskedFor) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = tell_armed(at);
    event(at, open, change(WatchEvent::kModified, "a"));
    // Another call, so that the event has come before it is asked for.
    const proto::Frame other = at.next(FrameType::kOpen);
    close(at, other);
    at.next(FrameType::kClose);
  });
  const json::Value made =
      call("/filesystem.Filesystem/CreateWatcher", R"({"path":"/d"})")->answer_json();
  const std::string id(text_of(made, "watcherId"));
  EXPECT_EQ(id.size(), 20u);
  ask("GET", "/metrics");
  const std::string named = R"({"watcherId":")" + id + R"("})";
  EXPECT_EQ(call("/filesystem.Filesystem/GetWatcherEvents", named)->answer,
            R"({"events":[{"name":"a","type":"EVENT_TYPE_WRITE"}]})");
  EXPECT_EQ(call("/filesystem.Filesystem/GetWatcherEvents", named)->answer, R"({"events":[]})");
  EXPECT_EQ(call("/filesystem.Filesystem/RemoveWatcher", named)->answer, "{}");
  EXPECT_EQ(call("/filesystem.Filesystem/GetWatcherEvents", named)->status, 404);
  EXPECT_EQ(call("/filesystem.Filesystem/RemoveWatcher", named)->status, 404);
}

TEST_F(Filesystem, WatchersOfAnEndedSandboxAreForgottenWhenOneIsLookedFor) {
  Watchers watchers;
  Watcher watcher;
  watcher.sandbox = sandbox_;
  const std::string id = watchers.add(std::move(watcher));
  EXPECT_NE(watchers.find(*sandbox_, id), nullptr);
  sandbox_->has_ended = true;
  EXPECT_EQ(watchers.find(*sandbox_, "another"), nullptr);
  EXPECT_EQ(watchers.size(), 0u);
}

TEST_F(Filesystem, WatchersOfASandboxAreCountedAndGoWithIt) {
  Watchers watchers;
  for (std::size_t i = 0; i < Watchers::kMostEach; ++i) {
    ASSERT_TRUE(watchers.check_room(sandbox_).has_value());
    Watcher watcher;
    watcher.sandbox = sandbox_;
    watchers.add(std::move(watcher));
  }
  EXPECT_EQ(watchers.check_room(sandbox_).error().code(), Code::kResourceExhausted);
  sandbox_->has_ended = true;
  EXPECT_TRUE(watchers.check_room(sandbox_).has_value());
  EXPECT_EQ(watchers.size(), 0u);
}

std::vector<json::Value> told(const proto::Fields& event, Entries entries) {
  return watched_changes(FieldReader::parse(event.bytes()).value(), entries).value();
}

TEST_F(Filesystem, EveryKindOfChange) {
  const auto type = [](WatchEvent kind) {
    return number_of(told(change(kind, "n"), Entries::kLeaveOut).at(0), "type");
  };
  EXPECT_EQ(type(WatchEvent::kCreated), 1);
  EXPECT_EQ(type(WatchEvent::kModified), 2);
  EXPECT_EQ(type(WatchEvent::kRemoved), 3);
  EXPECT_EQ(type(WatchEvent::kRenamed), 4);
  EXPECT_EQ(type(WatchEvent::kAttributes), 5);
  EXPECT_TRUE(told(change(WatchEvent::kRemoved, ""), Entries::kLeaveOut).empty());
}

TEST_F(Filesystem, EntriesComeOnlyWhereTheyAreWantedAndKnown) {
  proto::Fields event = change(WatchEvent::kCreated, "n");
  event.put_u8(Tag::kFileType, 1).put_u32(Tag::kMode, 0644).put_u64(Tag::kSize, 1);
  EXPECT_EQ(told(event, Entries::kLeaveOut)[0].find("entry"), nullptr);
  const json::Value with_entry = told(event, Entries::kInclude)[0];
  EXPECT_EQ(text_of(*with_entry.find("entry"), "path"), "/d/n");
  EXPECT_EQ(told(change(WatchEvent::kCreated, "n"), Entries::kInclude)[0].find("entry"), nullptr);
}

TEST_F(Filesystem, WhatTheGuestMissedIsAnError) {
  const auto changes = watched_changes(
      FieldReader::parse(change(WatchEvent::kOverflow, "").bytes()).value(), Entries::kLeaveOut);
  EXPECT_EQ(changes.error().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace caisson::api::e2b
