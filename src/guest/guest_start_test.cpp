// How commands begin, or why they do not, through the real guest.
#include <algorithm>
#include <fstream>

#include "guest/guest_harness.h"

namespace caisson::guest::testing {
namespace {

TEST(Start, WhatAStartFailedAtIsTold) {
  using proto::ErrorSubject;
  GuestProcess guest;
  const auto run = [&](const Fields& fields) {
    return guest.finish_stream(guest.open(Kind::kExec, fields));
  };
  const auto subject = [](const Seen& seen) {
    return static_cast<ErrorSubject>(seen.end().number_or_none(Tag::kErrorSubject).value_or(0));
  };
  const Seen user = run(GuestProcess::command({"true"}).put(Tag::kUser, "no-such-user"));
  EXPECT_EQ(subject(user), ErrorSubject::kUser);
  const Seen missing = run(GuestProcess::command({"true"}).put(Tag::kCwd, "/no/such"));
  EXPECT_EQ(subject(missing), ErrorSubject::kDirectory);
  EXPECT_EQ(missing.error_text(), "working directory /no/such: No such file or directory");
  EXPECT_EQ(missing.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(ENOENT));
  EXPECT_EQ(missing.exit_code(), std::nullopt);
  const Seen file = run(GuestProcess::command({"true"}).put(Tag::kCwd, "/etc/passwd"));
  EXPECT_EQ(subject(file), ErrorSubject::kDirectory);
  EXPECT_EQ(file.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(ENOTDIR));
  const Seen program = run(GuestProcess::command({"no-such-program"}));
  EXPECT_EQ(subject(program), ErrorSubject::kProgram);
  EXPECT_EQ(program.exit_code(), 127u);
  EXPECT_FALSE(guest.run("exit 127").end().has(Tag::kErrorSubject));
}

TEST(Start, CommandsGoBeforeTheGuestWhereMemoryIsShort) {
  const auto score = [](const std::string& process) {
    int value = -1;
    std::ifstream("/proc/" + process + "/oom_score_adj") >> value;
    return value;
  };
  const int own = score("self");
  GuestProcess guest;
  EXPECT_EQ(guest.run("cat /proc/self/oom_score_adj").output,
            std::to_string(std::min(own + 100, 1000)) + "\n");
  EXPECT_EQ(score(std::to_string(guest.pid())), own);
}

}  // namespace
}  // namespace caisson::guest::testing
