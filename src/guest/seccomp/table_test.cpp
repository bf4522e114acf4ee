// The tables that ship, on paper: every number against the committed golden.txt, and the rules that
// look at arguments one by one. `ninja update_seccomp_golden` rewrites golden.txt, so that a change
// of the policy shows as a difference to review.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "guest/seccomp/compiler.h"
#include "guest/seccomp/emulator.h"
#include "guest/seccomp/filters.h"

namespace caisson::guest::seccomp {
namespace {

constexpr std::uint32_t kPerm = SECCOMP_RET_ERRNO | EPERM;
constexpr std::uint32_t kNoSys = SECCOMP_RET_ERRNO | ENOSYS;
constexpr std::uint32_t kInvalid = SECCOMP_RET_ERRNO | EINVAL;
constexpr std::uint32_t kNotify = SECCOMP_RET_USER_NOTIF;
constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr std::uint64_t kHigh = 1ull << 32;

struct Named {
  const char* name;
  std::span<const sock_filter> program;
};

std::vector<Named> all_tables() {
  return {{"default", table(Profile::kDefault, Reporting::kNone)},
          {"default+listener", table(Profile::kDefault, Reporting::kListener)},
          {"browser", table(Profile::kBrowser, Reporting::kNone)},
          {"browser+listener", table(Profile::kBrowser, Reporting::kListener)},
          {"debug", table(Profile::kDebug, Reporting::kNone)},
          {"debug+listener", table(Profile::kDebug, Reporting::kListener)},
          {"no_setid", no_setid_table()}};
}

std::uint32_t ask(std::span<const sock_filter> program, int number,
                  std::initializer_list<std::uint64_t> arguments = {},
                  std::uint32_t architecture = AUDIT_ARCH_X86_64) {
  seccomp_data call = {};
  call.nr = number;
  call.arch = architecture;
  std::size_t i = 0;
  for (const std::uint64_t argument : arguments) call.args[i++] = argument;
  const auto seen = emulate(program, call);
  EXPECT_TRUE(seen.has_value()) << "number " << number;
  return seen.has_value() ? seen->answer : 0;
}

std::uint32_t ask(int number, std::initializer_list<std::uint64_t> arguments = {}) {
  return ask(table(Profile::kDefault, Reporting::kNone), number, arguments);
}
std::uint32_t ask_listener(int number, std::initializer_list<std::uint64_t> arguments = {}) {
  return ask(table(Profile::kDefault, Reporting::kListener), number, arguments);
}
std::uint32_t ask_browser(int number, std::initializer_list<std::uint64_t> arguments = {}) {
  return ask(table(Profile::kBrowser, Reporting::kNone), number, arguments);
}
std::uint32_t ask_debug(int number, std::initializer_list<std::uint64_t> arguments = {}) {
  return ask(table(Profile::kDebug, Reporting::kNone), number, arguments);
}

std::string word_for(std::uint32_t answer) {
  if (answer == kAllow) return "allow";
  if (answer == kPerm) return "eperm";
  if (answer == kNoSys) return "enosys";
  if (answer == kNotify) return "notify";
  if (answer == SECCOMP_RET_ERRNO) return "succeed";
  return "errno:" + std::to_string(answer & SECCOMP_RET_DATA);
}

// Every answer that some arguments get, e.g. "allow/eperm".
std::string answers(std::span<const sock_filter> program, int number, std::uint32_t architecture) {
  const std::uint64_t values[] = {1,      2,      3,      4,          8,          16,
                                  0x1000, 0x2000, 0x5412, 0x40000,    0x00020000, 0x10000000,
                                  0x800,  0x400,  0100,   0x06000000, 5,          28};
  std::set<std::uint32_t> seen = {
      ask(program, number, {}, architecture),
      ask(program, number, {~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull}, architecture)};
  for (std::size_t argument = 0; argument < 6; ++argument) {
    for (const std::uint64_t value : values) {
      for (const std::uint64_t rest : {0ull, ~0ull, 2ull}) {
        std::uint64_t all[6] = {rest, rest, rest, rest, rest, rest};
        all[argument] = value;
        seen.insert(
            ask(program, number, {all[0], all[1], all[2], all[3], all[4], all[5]}, architecture));
      }
    }
  }
  std::string text;
  for (const std::uint32_t answer : seen) text += (text.empty() ? "" : "/") + word_for(answer);
  return text;
}

std::string golden() {
  std::ifstream file(std::string(CAISSON_SECCOMP_FOLDER) + "/numbers_x86_64.def");
  const Numbers numbers =
      parse_numbers(std::string(std::istreambuf_iterator<char>(file), {})).value();
  std::string text =
      "# What each table answers, by number: made by the target update_seccomp_golden, compared "
      "by\n"
      "# the tests. Several answers: it depends on the arguments. Equal columns are written "
      "once.\n";
  const std::vector<Named> tables = all_tables();
  for (int number = 0; number <= 600; ++number) {
    const auto known = numbers.name_of.find(static_cast<std::uint32_t>(number));
    text += std::to_string(number) + " " + (known == numbers.name_of.end() ? "-" : known->second);
    std::string previous;
    for (const Named& one : tables) {
      const std::string now = answers(one.program, number, AUDIT_ARCH_X86_64);
      if (now != previous) text += std::string(" ") + one.name + "=" + now;
      previous = now;
    }
    text += "\n";
  }
  const auto side_door = [&](const char* name, std::uint32_t bit, std::uint32_t architecture) {
    for (const Named& one : tables) {
      text += std::string(name) + " " + one.name + ":";
      for (int number = 0; number <= 600; ++number) {
        const std::string now = answers(
            one.program, static_cast<int>(static_cast<std::uint32_t>(number) | bit), architecture);
        if (now != "enosys") text += " " + std::to_string(number) + "=" + now;
      }
      text += "\n";
    }
  };
  side_door("i386", 0, AUDIT_ARCH_I386);
  side_door("x32", kX32Bit, AUDIT_ARCH_X86_64);
  side_door("arm64", 0, AUDIT_ARCH_AARCH64);
  return text;
}

TEST(Golden, TheTablesAnswerWhatGoldenTxtSays) {
  const std::string path = std::string(CAISSON_SECCOMP_FOLDER) + "/golden.txt";
  const std::string now = golden();
  if (std::getenv("CAISSON_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << now;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::istringstream seen(now);
  std::string expected_line, seen_line;
  for (int line = 1; std::getline(seen, seen_line); ++line) {
    ASSERT_TRUE(std::getline(file, expected_line)) << "golden.txt ends before line " << line;
    EXPECT_EQ(seen_line, expected_line) << "line " << line << "; ninja update_seccomp_golden";
  }
  EXPECT_FALSE(std::getline(file, expected_line)) << expected_line;
}

TEST(Table, NoCallTakesMoreThanFortyInstructions) {
  for (const Named& one : all_tables()) {
    for (int number = 0; number <= 600; ++number) {
      if (number == SYS_prctl) continue;  // a list of 60 operations
      const auto seen =
          emulate(one.program, {number, AUDIT_ARCH_X86_64, 0, {~0ull, ~0ull, ~0ull, ~0ull}});
      ASSERT_TRUE(seen.has_value());
      EXPECT_LE(seen->steps, 40u) << one.name << " " << number;
    }
  }
}

TEST(Table, TerminalIoctlsAreComparedOnTheirLowHalf) {
  for (const std::uint64_t command : {0x5412, 0x541c, 0x541d, 0x541f, 0x5423}) {
    for (const std::uint64_t high : {std::uint64_t{0}, kHigh, ~std::uint64_t{0} << 32}) {
      EXPECT_EQ(ask(SYS_ioctl, {1, command | high}), kPerm) << command;
      EXPECT_EQ(ask_listener(SYS_ioctl, {1, command | high}), kNotify) << command;
    }
  }
  for (const std::uint64_t command : {0x5401, 0x5413, 0x540e, 0x5411, 0x5424}) {
    EXPECT_EQ(ask(SYS_ioctl, {1, command}), kAllow) << command;
  }
}

TEST(Table, CloneAndUnshareTakeNoNamespaceFlag) {
  const std::uint64_t flags[] = {0x00020000, 0x02000000, 0x04000000, 0x08000000,
                                 0x10000000, 0x20000000, 0x40000000};
  for (const std::uint64_t flag : flags) {
    EXPECT_EQ(ask(SYS_clone, {flag | 17}), kPerm) << flag;
    EXPECT_EQ(ask_listener(SYS_clone, {flag | 17}), kNotify) << flag;
    EXPECT_EQ(ask(SYS_unshare, {flag}), kPerm) << flag;
    EXPECT_EQ(ask_debug(SYS_clone, {flag}), kPerm) << flag;
    const bool browsers = flag >= 0x08000000;
    EXPECT_EQ(ask_browser(SYS_clone, {flag | 17}), browsers ? kAllow : kPerm) << flag;
    EXPECT_EQ(ask_browser(SYS_unshare, {flag}), browsers ? kAllow : kPerm) << flag;
  }
  EXPECT_EQ(ask(SYS_unshare, {0x80}), kPerm);  // CLONE_NEWTIME
  EXPECT_EQ(ask_browser(SYS_unshare, {0x10000080}), kPerm);
  EXPECT_EQ(ask_browser(SYS_clone, {0x10020000}), kPerm);  // with a mount namespace
  EXPECT_EQ(ask(SYS_unshare, {0x400}), kAllow);            // CLONE_FILES
  EXPECT_EQ(ask(SYS_clone, {0x3d0f00}), kAllow);           // a thread
  EXPECT_EQ(ask(SYS_clone, {0x01200011}), kAllow);         // fork
  EXPECT_EQ(ask(SYS_clone3), kNoSys);
  EXPECT_EQ(ask_browser(SYS_clone3), kNoSys);
}

TEST(Table, SocketFamilies) {
  constexpr std::uint32_t kNoProtocol = SECCOMP_RET_ERRNO | EPROTONOSUPPORT;
  for (std::uint64_t family = 0; family <= 50; ++family) {
    for (const std::uint64_t high : {std::uint64_t{0}, kHigh}) {
      const bool usual = family == 1 || family == 2 || family == 10 || family == 16;
      EXPECT_EQ(ask(SYS_socket, {family | high, 1 | 02000000, 0}), usual ? kAllow : kPerm)
          << family;
      EXPECT_EQ(ask_listener(SYS_socket, {family | high, 1, 0}), usual ? kAllow : kNotify);
      EXPECT_EQ(ask(SYS_socketpair, {family | high, 1, 0}), family == 1 ? kAllow : kPerm);
    }
  }
  for (const std::uint64_t family : {2, 10}) {
    EXPECT_EQ(ask(SYS_socket, {family, 3, 1}), kPerm);               // raw
    EXPECT_EQ(ask(SYS_socket, {family, 3 | 02000000, 255}), kPerm);  // raw, close-on-exec
    EXPECT_EQ(ask(SYS_socket, {family, 10, 0x300}), kPerm);          // becomes a packet socket
    EXPECT_EQ(ask(SYS_socket, {family, 5, 132}), kPerm);             // SCTP
    for (const std::uint64_t protocol : {33, 132, 136, 256, 262}) {
      EXPECT_EQ(ask(SYS_socket, {family, 1, protocol}), kNoProtocol) << protocol;
    }
    for (const std::uint64_t protocol : {0, 1, 6, 17, 58}) {
      EXPECT_EQ(ask(SYS_socket, {family, 2, protocol}), kAllow) << protocol;
    }
  }
  for (std::uint64_t protocol = 1; protocol < 32; ++protocol) {
    EXPECT_EQ(ask(SYS_socket, {16, 3, protocol}), kNoProtocol) << protocol;
  }
  EXPECT_EQ(ask(SYS_socket, {16, 3, 0}), kAllow);
}

TEST(Table, Personality) {
  for (const std::uint64_t value : {0ull, 8ull, 0x20000ull, 0x20008ull, 0xffffffffull}) {
    EXPECT_EQ(ask(SYS_personality, {value}), kAllow) << value;
  }
  for (const std::uint64_t value : {0x40000ull, 0x400000ull, 0x200000ull, 1ull, 0x100000ull}) {
    EXPECT_EQ(ask(SYS_personality, {value}), kPerm) << value;
    EXPECT_EQ(ask(SYS_personality, {value | kHigh}), kPerm) << value;
  }
  EXPECT_EQ(ask_debug(SYS_personality, {0x40000}), kAllow);
  EXPECT_EQ(ask_debug(SYS_personality, {0x440000}), kPerm);
}

TEST(Table, LimitsOfOtherProcessesCanOnlyBeRead) {
  EXPECT_EQ(ask(SYS_prlimit64, {0, 7, 0x1000, 0}), kAllow);
  EXPECT_EQ(ask(SYS_prlimit64, {kHigh, 7, 0x1000, 0}), kAllow);  // the kernel's pid is an int
  EXPECT_EQ(ask(SYS_prlimit64, {1, 7, 0, 0x1000}), kAllow);
  EXPECT_EQ(ask(SYS_prlimit64, {1, 7, 0x1000, 0}), kPerm);
  EXPECT_EQ(ask(SYS_prlimit64, {1, 7, kHigh, 0}), kPerm);  // a pointer whose low half is zero
}

TEST(Table, NodesAreNeverDevices) {
  for (const std::uint64_t type : {0010000, 0100000, 0140000, 0}) {
    EXPECT_EQ(ask(SYS_mknod, {0, type | 0644, 0}), kAllow);
    EXPECT_EQ(ask(SYS_mknodat, {0, 0, type | 0644, 0}), kAllow);
  }
  for (const std::uint64_t type : {0020000, 0060000, 0040000, 0120000}) {
    EXPECT_EQ(ask(SYS_mknod, {0, type | 0644, 0}), kPerm);
    EXPECT_EQ(ask(SYS_mknod, {0, type | 0644 | 1 << 16, 0}),
              kPerm);  // the kernel's mode has 16 bits
    EXPECT_EQ(ask(SYS_mknodat, {0, 0, type | 0644, 0}), kPerm);
  }
}

TEST(Table, HugePagesAreTheHosts) {
  constexpr std::uint32_t kNoMemory = SECCOMP_RET_ERRNO | ENOMEM;
  EXPECT_EQ(ask(SYS_mmap, {0, 4096, 3, 0x22, ~0ull, 0}), kAllow);
  EXPECT_EQ(ask(SYS_mmap, {0, 4096, 3, 0x22 | 0x40000, ~0ull, 0}), kNoMemory);
  EXPECT_EQ(ask(SYS_memfd_create, {0x1000, 1}), kAllow);
  EXPECT_EQ(ask(SYS_memfd_create, {0x1000, 5}), kNoMemory);
  EXPECT_EQ(ask(SYS_shmget, {0, 4096, 04000}), kNoMemory);
}

TEST(Table, FiltersOfTheProgramsOwnGetNoListener) {
  EXPECT_EQ(ask(SYS_seccomp, {1, 0}), kAllow);
  EXPECT_EQ(ask(SYS_seccomp, {1, 1}), kAllow);
  EXPECT_EQ(ask(SYS_seccomp, {1, 8}), kPerm);
  EXPECT_EQ(ask(SYS_seccomp, {1 | kHigh, 8 | kHigh}), kPerm);
  EXPECT_EQ(ask(SYS_seccomp, {1, 0x29}), kPerm);
}

TEST(Table, ProcessControlIsAList) {
  for (const std::uint64_t operation : {28, 31, 32, 33, 35, 57, 59, 62, 67}) {
    EXPECT_EQ(ask(SYS_prctl, {operation}), kPerm) << operation;
  }
  for (const std::uint64_t operation : {15, 22, 38, 4, 36, 47, 0x53564d41}) {
    EXPECT_EQ(ask(SYS_prctl, {operation}), kAllow) << operation;
  }
  EXPECT_EQ(ask(SYS_prctl, {12345}), kInvalid);
  EXPECT_EQ(ask(SYS_arch_prctl, {0x1002}), kAllow);
  EXPECT_EQ(ask(SYS_arch_prctl, {0x1012}), kInvalid);  // CPUID faulting
  EXPECT_EQ(ask(SYS_fcntl, {3, 1024}), kPerm);
  EXPECT_EQ(ask(SYS_fcntl, {3, 1030}), kAllow);
}

TEST(Table, RealTimeClassesAreRefused) {
  for (const std::uint64_t policy : {1, 2, 6, 0x40000001}) {
    EXPECT_EQ(ask(SYS_sched_setscheduler, {0, policy, 0}), kPerm) << policy;
  }
  for (const std::uint64_t policy : {0, 3, 5}) {
    EXPECT_EQ(ask(SYS_sched_setscheduler, {0, policy, 0}), kAllow) << policy;
  }
}

TEST(Table, TracingBelongsToTwoProfiles) {
  EXPECT_EQ(ask(SYS_ptrace), kPerm);
  EXPECT_EQ(ask_listener(SYS_ptrace), kNotify);
  EXPECT_EQ(ask_debug(SYS_ptrace), kAllow);
  EXPECT_EQ(ask_browser(SYS_ptrace), kAllow);
  EXPECT_EQ(ask_debug(SYS_process_vm_readv), kPerm);
}

TEST(Table, NoSetidLooksAtModes) {
  const auto table = no_setid_table();
  for (const std::uint64_t bits : {04755, 02755, 06755}) {
    EXPECT_EQ(ask(table, SYS_chmod, {0, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_fchmod, {0, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_fchmodat, {0, 0, bits}), kPerm);
    EXPECT_EQ(ask(table, __NR_fchmodat2, {0, 0, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_mknod, {0, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_mknodat, {0, 0, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_creat, {0, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_open, {0, 0101, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_open, {0, 020200002, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_openat, {0, 0, 0101, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_openat, {0, 0, 020200002, bits}), kPerm);
    EXPECT_EQ(ask(table, SYS_open, {0, 1, bits}), kAllow);  // makes nothing
    EXPECT_EQ(ask(table, SYS_openat, {0, 0, 1, bits}), kAllow);
  }
  EXPECT_EQ(ask(table, SYS_chmod, {0, 01777}), kAllow);
  EXPECT_EQ(ask(table, SYS_openat2), kNoSys);
  EXPECT_EQ(ask(table, 9999), kAllow);  // the profile above it answers those
}

}  // namespace
}  // namespace caisson::guest::seccomp
