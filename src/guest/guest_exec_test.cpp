// Commands, through the real guest.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "guest/guest_harness.h"

namespace caisson::guest::testing {
namespace {

std::string lines_of(const std::string& text, const std::string& prefix) {
  std::string found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (line.starts_with(prefix)) found += line + "\n";
    at = end + 1;
  }
  return found;
}

TEST(Exec, OutputErrorAndExitCode) {
  GuestProcess guest;
  const Seen seen = guest.run("echo out; echo err >&2; exit 3");
  EXPECT_TRUE(seen.started);
  EXPECT_EQ(seen.output, "out\n");
  EXPECT_EQ(seen.error_output, "err\n");
  EXPECT_EQ(seen.exit_code(), 3u);
  EXPECT_EQ(seen.exit_signal(), std::nullopt);
  EXPECT_TRUE(seen.end().has(Tag::kUserMicros));
  EXPECT_GT(seen.end().number(Tag::kPeakRss).value(), 100'000u);
}

// As much as Linux takes of a program's arguments: 128 KiB of one, 2 MiB of all.
TEST(Exec, TakesAsManyArgumentsAsLinux) {
  GuestProcess guest;
  const auto run = [&](std::size_t count, std::size_t size) {
    std::vector<std::string> command = {"sh", "-c", "echo $# ${#1}", "x"};
    for (std::size_t i = 0; i < count; ++i) command.emplace_back(size, 'a');
    return guest.finish_stream(guest.open(Kind::kExec, GuestProcess::command(command)));
  };
  EXPECT_EQ(run(1, 131'071).output, "1 131071\n");
  EXPECT_EQ(run(15, 131'071).output, "15 131071\n");
  const Seen too_long = run(1, 131'072);
  EXPECT_FALSE(too_long.started);
  EXPECT_EQ(too_long.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(E2BIG));
  const Seen too_many = run(17, 131'071);
  EXPECT_FALSE(too_many.started);
  EXPECT_EQ(too_many.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(E2BIG));
}

TEST(Exec, WorksOverPipes) {
  GuestProcess guest(Transport::kPipes);
  const std::uint32_t stream =
      guest.open(Kind::kExec, GuestProcess::command({"cat"}).put_u8(Tag::kStdin, 1));
  guest.data(stream, "hello");
  guest.finish(stream);
  EXPECT_EQ(guest.finish_stream(stream).output, "hello");
  guest.hang_up();
  EXPECT_EQ(guest.wait(), 0);
}

TEST(Exec, AListenerCannotTravelOverPipes) {
  GuestProcess guest(Transport::kPipes);
  const Seen seen = guest.finish_stream(
      guest.open(Kind::kExec, GuestProcess::command({"true"}).put_u8(Tag::kWantListener, 1)));
  EXPECT_NE(seen.error_text().find("no descriptor can travel"), std::string::npos);
}

TEST(Exec, TheListenerComesWithTheStartedEvent) {
  GuestProcess guest;
  const Seen seen = guest.finish_stream(
      guest.open(Kind::kExec, GuestProcess::command({"true"}).put_u8(Tag::kWantListener, 1)));
  EXPECT_EQ(seen.exit_code(), 0u);
  ASSERT_EQ(seen.events.size(), 1u);
  EXPECT_EQ(seen.event(0).number(Tag::kListener).value(), 1u);
  ASSERT_EQ(guest.descriptors().size(), 1u);
  char target[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(guest.descriptors()[0].get());
  ASSERT_GT(::readlink(link.c_str(), target, sizeof(target) - 1), 0);
  EXPECT_STREQ(target, "anon_inode:seccomp notify");
}

TEST(Exec, EnvironmentIsBuiltFromNothing) {
  ::setenv("CAISSON_TEST_SECRET", "leak", 1);
  GuestProcess guest;
  Fields fields = GuestProcess::command({"env"});
  fields.put(Tag::kDefaultEnv, "A=image").put(Tag::kDefaultEnv, "B=image");
  fields.put(Tag::kEnv, "B=caller").put(Tag::kEnv, "C=a=b").put(Tag::kEnv, "D=");
  const Seen seen = guest.finish_stream(guest.open(Kind::kExec, fields));
  EXPECT_EQ(seen.output.find("SECRET"), std::string::npos);
  EXPECT_EQ(seen.output.find("ASAN"), std::string::npos);
  EXPECT_EQ(lines_of(seen.output, "A="), "A=image\n");
  EXPECT_EQ(lines_of(seen.output, "B="), "B=caller\n");
  EXPECT_EQ(lines_of(seen.output, "C="), "C=a=b\n");
  EXPECT_EQ(lines_of(seen.output, "D="), "D=\n");
  EXPECT_EQ(lines_of(seen.output, "LANG="), "LANG=C.UTF-8\n");
  EXPECT_EQ(lines_of(seen.output, "PATH="),
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
  EXPECT_EQ(lines_of(seen.output, "HOME="), "HOME=/root\n");
  EXPECT_EQ(lines_of(seen.output, "TERM="), "");
  EXPECT_EQ(std::count(seen.output.begin(), seen.output.end(), '\n'), 10);
}

TEST(Exec, UserIsResolvedInside) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has more than one id to give";
  GuestProcess guest;
  const auto run_as = [&](const std::string& user) {
    return guest.finish_stream(guest.open(
        Kind::kExec, GuestProcess::command({"/bin/sh", "-c", "id -u; id -g; id -G; echo $USER"})
                         .put(Tag::kUser, user)));
  };
  EXPECT_EQ(run_as("nobody").output, "65534\n65534\n65534\nnobody\n");
  EXPECT_EQ(run_as("4711:4712").output, "4711\n4712\n4712\n4711\n");
  const Seen ghost = run_as("no-such-user");
  EXPECT_EQ(ghost.error_text(), "user 'no-such-user': no such entry in /etc/passwd");
  EXPECT_EQ(ghost.exit_code(), std::nullopt);
  EXPECT_FALSE(ghost.started);
}

TEST(Exec, HasNoRightsLeft) {
  GuestProcess guest;
  const Seen seen = guest.run(
      "grep -E '^(CapEff|CapPrm|CapBnd|CapAmb|NoNewPrivs|Seccomp):' "
      "/proc/self/status | tr -d '\\t'");
  EXPECT_EQ(seen.output,
            "CapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\n"
            "CapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n");
}

TEST(Exec, HasThreeDescriptorsNoSignalsBlockedAndAUmask) {
  GuestProcess guest;
  const Seen seen = guest.run(
      "ls /proc/self/fd | wc -l; umask; "
      "grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t'");
  // ls opens the directory itself as a fourth.
  EXPECT_EQ(seen.output, "4\n0022\nSigBlk:0000000000000000\nSigIgn:0000000000000000\n");
}

TEST(Exec, OwnDescriptorsCanBeOpenedAgain) {
  GuestProcess guest;
  Fields fields = GuestProcess::command(
      {"/bin/sh", "-c", "cat /dev/stdin; echo a > /dev/stdout; echo b > /dev/stderr"});
  if (::geteuid() == 0) fields.put(Tag::kUser, "1234:1234");
  const std::uint32_t stream = guest.open(Kind::kExec, fields.put_u8(Tag::kStdin, 1));
  guest.data(stream, "in\n");
  guest.finish(stream);
  const Seen seen = guest.finish_stream(stream);
  EXPECT_EQ(seen.output, "in\na\n");
  EXPECT_EQ(seen.error_output, "b\n");
}

TEST(Exec, NotFoundIs127AndNotExecutable126) {
  GuestProcess guest;
  const Seen absent = guest.finish_stream(guest.exec({"no-such-program-here"}));
  EXPECT_EQ(absent.exit_code(), 127u);
  EXPECT_EQ(absent.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(ENOENT));
  EXPECT_EQ(absent.error_text(),
            "no-such-program-here: not found in PATH: No such file or directory");
  EXPECT_FALSE(absent.started);
  const Seen plain = guest.finish_stream(guest.exec({"/etc/passwd"}));
  EXPECT_EQ(plain.exit_code(), 126u);
  EXPECT_EQ(plain.end().number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(EACCES));
  const Seen directory = guest.finish_stream(guest.exec({"/etc"}));
  EXPECT_EQ(directory.exit_code(), 126u);
}

TEST(Exec, MissingInterpreterIsNamed) {
  char name[] = "/tmp/caisson-script-XXXXXX";
  Fd script(::mkstemp(name));
  const std::string text = "#!/no/such/interpreter\n";
  ASSERT_EQ(::write(script.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::fchmod(script.get(), 0755);
  script.reset();
  GuestProcess guest;
  const Seen seen = guest.finish_stream(guest.exec({name}));
  ::unlink(name);
  EXPECT_EQ(seen.exit_code(), 127u);
  EXPECT_EQ(seen.error_text(), std::string(name) + ": its interpreter: No such file or directory");
}

TEST(Exec, PathOfTheCommandIsSearchedInItsDirectory) {
  GuestProcess guest;
  const Seen seen = guest.finish_stream(guest.open(
      Kind::kExec,
      GuestProcess::command({"true"}).put(Tag::kEnv, "PATH=/nowhere:bin").put(Tag::kCwd, "/usr")));
  EXPECT_EQ(seen.exit_code(), 0u);
  const Seen none = guest.finish_stream(
      guest.open(Kind::kExec, GuestProcess::command({"true"}).put(Tag::kEnv, "PATH=/nowhere")));
  EXPECT_EQ(none.exit_code(), 127u);
}

TEST(Exec, WorkingDirectory) {
  GuestProcess guest;
  const auto in = [&](const std::string& directory) {
    return guest.finish_stream(
        guest.open(Kind::kExec, GuestProcess::command({"pwd"}).put(Tag::kCwd, directory)));
  };
  EXPECT_EQ(in("/usr/bin").output, "/usr/bin\n");
  const Seen absent = in("/no/such/place");
  EXPECT_EQ(absent.error_text(), "working directory /no/such/place: No such file or directory");
  EXPECT_EQ(absent.exit_code(), std::nullopt);
  EXPECT_EQ(in("relative").error_text(), "exec: the working directory is not an absolute path");
}

TEST(Exec, WithoutItsHomeACommandStartsAtTheRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has more than one id to give";
  GuestProcess guest;
  EXPECT_EQ(guest
                .finish_stream(guest.open(Kind::kExec,
                                          GuestProcess::command({"pwd"}).put(Tag::kUser, "nobody")))
                .output,
            "/\n");
}

TEST(Exec, BadRequestsAreRefusedByName) {
  GuestProcess guest;
  const auto refusal = [&](const Fields& fields) {
    return guest.finish_stream(guest.open(Kind::kExec, fields)).error_text();
  };
  const auto command = [] { return GuestProcess::command({"true"}); };
  EXPECT_EQ(refusal(Fields()), "exec: no command");
  EXPECT_EQ(refusal(Fields().put(Tag::kArg, std::string_view("a\0b", 3))),
            "exec: an argument contains a zero byte");
  EXPECT_EQ(refusal(command().put(Tag::kEnv, "novalue")),
            "exec: an environment setting is not NAME=VALUE");
  EXPECT_EQ(refusal(command().put(Tag::kEnv, "=x")),
            "exec: an environment setting is not NAME=VALUE");
  EXPECT_EQ(refusal(command().put(Tag::kRlimit, "short")),
            "exec: an rlimit has 5 bytes, it is u32 resource, u64 soft, u64 hard");
  EXPECT_EQ(refusal(command().put_u8(Tag::kSyscallProfile, 3)),
            "exec: field 23 is 3, at most 2 is allowed");
  EXPECT_EQ(refusal(command().put_u8(Tag::kStdin, 2)), "exec: field 29 is 2, at most 1 is allowed");
  EXPECT_EQ(refusal(command().put(Tag::kPty, "xx")),
            "terminal size: 2 bytes, it is u16 columns, u16 rows");
  EXPECT_EQ(refusal(command().put(static_cast<Tag>(proto::kCritical | 1), "")),
            "fields: tag 1 is marked critical and not known here");
  EXPECT_EQ(guest.run("echo still here").output, "still here\n");
}

std::string rlimit(std::uint32_t resource, std::uint64_t soft, std::uint64_t hard) {
  std::string bytes(20, '\0');
  std::memcpy(bytes.data(), &resource, 4);
  std::memcpy(bytes.data() + 4, &soft, 8);
  std::memcpy(bytes.data() + 12, &hard, 8);
  return bytes;
}

TEST(Exec, RlimitsAreTheCommands) {
  GuestProcess guest;
  const Seen seen = guest.finish_stream(guest.open(
      Kind::kExec, GuestProcess::command({"/bin/sh", "-c", "ulimit -Sn; ulimit -Hn; ulimit -c"})
                       .put(Tag::kRlimit, rlimit(RLIMIT_NOFILE, 50, 60))
                       .put(Tag::kRlimit, rlimit(RLIMIT_CORE, 0, 0))));
  EXPECT_EQ(seen.output, "50\n60\n0\n");
  const Seen wrong = guest.finish_stream(guest.open(
      Kind::kExec, GuestProcess::command({"true"}).put(Tag::kRlimit, rlimit(999, 1, 1))));
  EXPECT_EQ(wrong.error_text(), "setrlimit 999: Invalid argument");
}

TEST(Exec, EntersEachControlGroup) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  GuestProcess guest;
  const Seen seen = guest.finish_stream(guest.open(
      Kind::kExec, GuestProcess::command({"true"}).put_u8(Tag::kCgroup, 2), {ends[1], ends[1]}));
  EXPECT_EQ(seen.exit_code(), 0u);
  char bytes[8] = {};
  EXPECT_EQ(::read(ends[0], bytes, sizeof(bytes)), 2);
  EXPECT_STREQ(bytes, "00");
  const Fd closed(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Seen refused = guest.finish_stream(guest.open(
      Kind::kExec, GuestProcess::command({"true"}).put_u8(Tag::kCgroup, 1), {closed.get()}));
  EXPECT_EQ(refused.error_text(), "entering the command's control group: Bad file descriptor");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Exec, IsBornInItsControlGroup) {
  const Fd wrong(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  GuestProcess guest;
  const Seen refused = guest.finish_stream(guest.open(
      Kind::kExec, GuestProcess::command({"true"}).put_u8(Tag::kBirthCgroup, 1), {wrong.get()}));
  EXPECT_EQ(refused.error_text(), "entering the command's control group: Bad file descriptor");

  std::string mount;
  for (const char* path : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    struct statfs facts{};
    if (::statfs(path, &facts) == 0 && facts.f_type == CGROUP2_SUPER_MAGIC) mount = path;
  }
  const std::string name = "caisson-test-" + std::to_string(::getpid());
  const std::string group = mount + "/" + name;
  if (mount.empty() || ::mkdir(group.c_str(), 0755) != 0)
    GTEST_SKIP() << "only where a v2 control group can be made";
  const Fd directory(::open(group.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const Seen seen = guest.finish_stream(
      guest.open(Kind::kExec,
                 GuestProcess::command({"sh", "-c", "grep ^0:: /proc/self/cgroup"})
                     .put_u8(Tag::kBirthCgroup, 1),
                 {directory.get()}));
  // No way to the directory is left where the command's own working directory is entered.
  for (int fd = 3; fd < 32; ++fd) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const Seen elsewhere = guest.finish_stream(guest.open(
        Kind::kExec,
        GuestProcess::command({"true"}).put_u8(Tag::kBirthCgroup, 1).put(Tag::kCwd, path),
        {directory.get()}));
    EXPECT_TRUE(elsewhere.error_text().starts_with("working directory " + path + ": "))
        << elsewhere.error_text();
  }
  EXPECT_EQ(::rmdir(group.c_str()), 0);
  EXPECT_TRUE(seen.output.ends_with("/" + name + "\n")) << seen.output << seen.error_text();
}

TEST(Exec, ARefusedFrameTakesItsDescriptorsAlong) {
  int wrong[2], right[2];
  ASSERT_EQ(::pipe2(wrong, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(right, O_CLOEXEC), 0);
  GuestProcess guest;
  const std::uint32_t refused =
      guest.open(Kind::kExec, Fields().put_u8(Tag::kCgroup, 1), {wrong[1]});
  const std::uint32_t critical = guest.open(
      Kind::kExec, Fields().put_u8(Tag::kCgroup, 1).put(static_cast<Tag>(proto::kCritical | 9), ""),
      {wrong[1]});
  const std::uint32_t good =
      guest.open(Kind::kExec, GuestProcess::command({"true"}).put_u8(Tag::kCgroup, 1), {right[1]});
  EXPECT_EQ(guest.finish_stream(refused).error_text(), "exec: no command");
  EXPECT_NE(guest.finish_stream(critical).error_text(), "");
  EXPECT_EQ(guest.finish_stream(good).exit_code(), 0u);
  char byte = 0;
  EXPECT_EQ(::read(right[0], &byte, 1), 1);
  for (const int fd : {wrong[0], wrong[1], right[0], right[1]}) ::close(fd);
}

TEST(Exec, SignalDeathIsTold) {
  GuestProcess guest;
  const Seen killed = guest.run("kill -9 $$");
  EXPECT_EQ(killed.exit_signal(), static_cast<std::uint64_t>(SIGKILL));
  EXPECT_EQ(killed.exit_code(), std::nullopt);
  EXPECT_EQ(guest.run("kill -TERM $$").exit_signal(), static_cast<std::uint64_t>(SIGTERM));
}

TEST(Exec, SignalsReachTheWholeGroup) {
  GuestProcess guest;
  const std::uint32_t stream =
      guest.shell("trap 'echo got; exit 5' TERM; echo ready; sleep 100 & wait");
  ASSERT_TRUE(guest.until([&] { return guest.seen(stream).output == "ready\n"; }));
  guest.control(stream, Fields().put_u32(Tag::kSignal, SIGTERM));
  const Seen seen = guest.finish_stream(stream);
  EXPECT_EQ(seen.output, "ready\ngot\n");
  EXPECT_EQ(seen.exit_code(), 5u);
}

TEST(Exec, KillReachesWhatLeftTheGroup) {
  GuestProcess guest;
  // An interactive shell gives each job a process group of its own.
  const std::uint32_t stream = guest.shell("set -m; sleep 1000 & echo $!; wait");
  ASSERT_TRUE(guest.until([&] { return guest.seen(stream).output.ends_with('\n'); }));
  const pid_t job = std::stoi(guest.seen(stream).output);
  guest.control(stream, Fields().put_u32(Tag::kSignal, SIGKILL));
  EXPECT_EQ(guest.finish_stream(stream).exit_signal(), static_cast<std::uint64_t>(SIGKILL));
  EXPECT_TRUE(ends(job));
}

TEST(Exec, ASignalThatDoesNotExistEndsTheStream) {
  GuestProcess guest;
  const std::uint32_t stream = guest.exec({"sleep", "100"});
  guest.control(stream, Fields().put_u32(Tag::kSignal, 99));
  EXPECT_EQ(guest.finish_stream(stream).error_text(), "exec: signal 99, allowed are 1 to 64");
}

TEST(Exec, OutputIsCutAnywhereAndStillWhole) {
  // 3-byte characters in writes of one byte: whatever the frames cut, the bytes are the same.
  GuestProcess guest;
  const Seen seen = guest.run(
      "i=0; while [ $i -lt 50 ]; do printf '\\342'; printf '\\202'; printf '\\254'; "
      "i=$((i+1)); done");
  std::string expected;
  for (int i = 0; i < 50; ++i) expected += "\xe2\x82\xac";
  EXPECT_EQ(seen.output, expected);
}

TEST(Exec, MuchOutputWaitsForCredit) {
  GuestProcess guest;
  guest.keep_credit(true);
  const std::uint32_t stream = guest.shell("head -c 10485760 /dev/zero; echo done >&2");
  ASSERT_TRUE(
      guest.until([&] { return guest.seen(stream).output.size() == proto::kInitialCredit; }));
  // Without credit no byte more; another stream is not held up by it.
  EXPECT_EQ(guest.run("echo other").output, "other\n");
  EXPECT_EQ(guest.seen(stream).output.size(), proto::kInitialCredit);
  guest.keep_credit(false);
  guest.grant(stream, proto::Channel::kOut, proto::kInitialCredit);
  const Seen seen = guest.finish_stream(stream);
  EXPECT_EQ(seen.output.size(), 10'485'760u);
  EXPECT_EQ(seen.error_output, "done\n");
}

TEST(Exec, WhatWasWrittenBeforeTheExitIsNotLostToASlowReader) {
  GuestProcess guest;
  guest.keep_credit(true);
  const std::uint32_t stream = guest.shell("head -c 300000 /dev/zero");
  ASSERT_TRUE(
      guest.until([&] { return guest.seen(stream).output.size() == proto::kInitialCredit; }));
  // The rest, less than a pipe holds, is in the pipe; far longer than the grace passes.
  EXPECT_FALSE(guest.until([&] { return guest.seen(stream).close.has_value(); },
                           std::chrono::milliseconds(500)));
  guest.grant(stream, proto::Channel::kOut, proto::kInitialCredit);
  EXPECT_EQ(guest.finish_stream(stream).output.size(), 300'000u);
}

TEST(Exec, InputReachesTheCommandAndCreditComesBack) {
  GuestProcess guest;
  const std::uint32_t stream = guest.open(
      Kind::kExec, GuestProcess::command({"/bin/sh", "-c", "wc -c"}).put_u8(Tag::kStdin, 1));
  std::uint64_t sent = 0;
  const std::string chunk(32 * 1024, 'x');
  while (sent < 5'000'000) {
    ASSERT_TRUE(guest.until([&] {
      return sent + chunk.size() <= proto::kInitialCredit + guest.seen(stream).input_granted;
    }));
    guest.data(stream, chunk);
    sent += chunk.size();
  }
  guest.finish(stream);
  EXPECT_EQ(guest.finish_stream(stream).output, std::to_string(sent) + "\n");
}

TEST(Exec, InputThatIsNeverReadBlocksNothing) {
  GuestProcess guest;
  const std::uint32_t stream =
      guest.open(Kind::kExec, GuestProcess::command({"sleep", "100"}).put_u8(Tag::kStdin, 1));
  const std::string chunk(proto::kMaxPayload, 'x');
  for (std::size_t sent = 0; sent < proto::kInitialCredit; sent += chunk.size())
    guest.data(stream, chunk);
  EXPECT_EQ(guest.run("echo other").output, "other\n");
  guest.control(stream, Fields().put_u32(Tag::kSignal, SIGTERM));
  EXPECT_EQ(guest.finish_stream(stream).exit_signal(), static_cast<std::uint64_t>(SIGTERM));
}

TEST(Exec, InputThatTheCommandClosedIsDropped) {
  GuestProcess guest;
  const std::uint32_t stream = guest.open(
      Kind::kExec,
      GuestProcess::command({"/bin/sh", "-c", "exec <&-; echo closed; sleep 0.2; echo end"})
          .put_u8(Tag::kStdin, 1));
  ASSERT_TRUE(guest.until([&] { return guest.seen(stream).output == "closed\n"; }));
  guest.data(stream, std::string(1000, 'x'));
  guest.data(stream, std::string(1000, 'x'));
  guest.finish(stream);
  const Seen seen = guest.finish_stream(stream);
  EXPECT_EQ(seen.output, "closed\nend\n");
  EXPECT_EQ(seen.exit_code(), 0u);
}

TEST(Exec, WithoutInputItIsEmpty) {
  GuestProcess guest;
  EXPECT_EQ(guest.finish_stream(guest.exec({"cat"})).exit_code(), 0u);
}

TEST(Exec, ADaemonThatKeepsThePipesDoesNotKeepTheStream) {
  GuestProcess guest;
  const auto begin = std::chrono::steady_clock::now();
  const Seen seen = guest.run("(setsid sleep 30 &) ; echo parent");
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(seen.output, "parent\n");
  EXPECT_EQ(seen.exit_code(), 0u);
  EXPECT_GE(took, std::chrono::milliseconds(190));
  EXPECT_LT(took, std::chrono::seconds(10));
}

TEST(Exec, AWriterThatOutlivesTheCommandDoesNotKeepTheStream) {
  GuestProcess guest;
  const Seen seen = guest.run("(setsid yes &) ; exit 4");
  EXPECT_EQ(seen.exit_code(), 4u);
}

TEST(Exec, OrphansAreReaped) {
  GuestProcess guest;
  const Seen seen = guest.run("(sh -c 'sleep 0.05' & echo $!) ");
  const pid_t orphan = std::stoi(seen.output);
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (::kill(orphan, 0) == 0 && std::chrono::steady_clock::now() < end) ::usleep(1000);
  EXPECT_EQ(::kill(orphan, 0), -1);
}

TEST(Exec, CancellingEndsTheCommand) {
  GuestProcess guest;
  const std::uint32_t stream = guest.shell("trap '' TERM; yes");
  ASSERT_TRUE(guest.wait_started(stream));
  guest.cancel(stream);
  EXPECT_EQ(guest.finish_stream(stream).exit_signal(), static_cast<std::uint64_t>(SIGKILL));
}

TEST(Exec, TheEndOfTheChannelEndsCommands) {
  GuestProcess guest;
  const std::uint32_t stream = guest.shell("echo $$; exec sleep 1000");
  ASSERT_TRUE(guest.until([&] { return guest.seen(stream).output.ends_with('\n'); }));
  const pid_t pid = std::stoi(guest.seen(stream).output);
  guest.hang_up();
  EXPECT_EQ(guest.wait(), 0);
  EXPECT_TRUE(ends(pid));
}

TEST(Exec, ManyAtOnce) {
  GuestProcess guest;
  std::vector<std::uint32_t> streams;
  for (int i = 0; i < 100; ++i) streams.push_back(guest.shell("echo " + std::to_string(i)));
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(guest.finish_stream(streams[i]).output, std::to_string(i) + "\n");
}

TEST(Exec, MoreStreamsThanAllowedAreRefused) {
  GuestProcess guest;
  std::vector<std::uint32_t> streams;
  for (std::uint32_t i = 0; i < proto::kMaxStreams; ++i)
    streams.push_back(guest.exec({"sleep", "100"}));
  const Seen refused = guest.finish_stream(guest.exec({"true"}));
  EXPECT_EQ(refused.error_text(), "channel: 256 streams are open, at most 256 are allowed");
  EXPECT_EQ(refused.end().number(Tag::kErrorCode).value(),
            static_cast<std::uint64_t>(Code::kResourceExhausted));
  guest.cancel(streams.front());
  guest.finish_stream(streams.front());
  EXPECT_EQ(guest.run("echo room").output, "room\n");
}

std::string window(std::uint16_t columns, std::uint16_t rows) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &columns, 2);
  std::memcpy(bytes.data() + 2, &rows, 2);
  return bytes;
}

TEST(Terminal, HasItsSizeAndIsTheCommands) {
  GuestProcess guest;
  Fields fields =
      GuestProcess::command({"/bin/sh", "-c",
                             "stty size; test -t 0 && echo tty; echo $TERM; : > /dev/tty && "
                             "test -O $(tty) && echo mine"});
  fields.put(Tag::kPty, window(100, 40));
  const Seen seen = guest.finish_stream(guest.open(Kind::kExec, fields));
  EXPECT_EQ(seen.output, "40 100\r\ntty\r\nxterm-256color\r\nmine\r\n");
}

TEST(Terminal, Resizes) {
  GuestProcess guest;
  const std::uint32_t stream =
      guest.open(Kind::kExec, GuestProcess::command({"/bin/sh", "-c",
                                                     "trap 'stty size; exit' WINCH; echo ready; "
                                                     "while :; do sleep 0.05; done"})
                                  .put(Tag::kPty, window(80, 24)));
  ASSERT_TRUE(guest.until([&] { return guest.seen(stream).output == "ready\r\n"; }));
  guest.control(stream, Fields().put(Tag::kResize, window(33, 44)));
  EXPECT_EQ(guest.finish_stream(stream).output, "ready\r\n44 33\r\n");
}

TEST(Terminal, ResizeNeedsOne) {
  GuestProcess guest;
  const std::uint32_t stream = guest.exec({"sleep", "100"});
  guest.control(stream, Fields().put(Tag::kResize, window(33, 44)));
  EXPECT_EQ(guest.finish_stream(stream).error_text(),
            "exec: a resize, but the command has no terminal");
}

TEST(Terminal, TheEndOfInputIsTyped) {
  GuestProcess guest;
  const auto cat = [&](const std::string& input) {
    const std::uint32_t stream = guest.open(
        Kind::kExec, GuestProcess::command({"/bin/sh", "-c", "stty -echo; echo; cat; echo end"})
                         .put(Tag::kPty, window(80, 24)));
    EXPECT_TRUE(guest.until([&] { return guest.seen(stream).output == "\r\n"; }));
    if (!input.empty()) guest.data(stream, input);
    guest.finish(stream);
    return guest.finish_stream(stream).output;
  };
  EXPECT_EQ(cat("line\n"), "\r\nline\r\nend\r\n");
  EXPECT_EQ(cat("part"), "\r\npartend\r\n");
  EXPECT_EQ(cat(""), "\r\nend\r\n");
}

TEST(Terminal, ControlCharactersAreSignals) {
  GuestProcess guest;
  const std::uint32_t stream =
      guest.open(Kind::kExec, GuestProcess::command({"/bin/sh", "-c", "echo ready; exec sleep 100"})
                                  .put(Tag::kPty, window(80, 24)));
  ASSERT_TRUE(guest.until([&] { return guest.seen(stream).output == "ready\r\n"; }));
  guest.data(stream, "\x03");
  EXPECT_EQ(guest.finish_stream(stream).exit_signal(), static_cast<std::uint64_t>(SIGINT));
}

}  // namespace
}  // namespace caisson::guest::testing
