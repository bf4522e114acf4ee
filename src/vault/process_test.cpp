// The vault as a process: a keeper in a fork of the test, and a client.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>

#include "base/sys.h"
#include "egress/gateway/keys.h"
#include "egress/keys_file.h"
#include "egress/secrets/sealed.h"
#include "vault/client.h"
#include "vault/keeper.h"

namespace caisson::vault {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

class VaultProcessTest : public ::testing::Test {
 protected:
  VaultProcessTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "vault-XXXXXX";
    VERIFY(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
  }
  ~VaultProcessTest() override {
    EXPECT_EQ(stop(), 0);
    std::filesystem::remove_all(directory_);
  }

  Result<Client> try_start() {
    int ends[2];
    VERIFY(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    Fd ours(ends[0]), theirs(ends[1]);
    keeper_ = ::fork();
    VERIFY(keeper_ >= 0);
    if (keeper_ == 0) {
      ours.reset();
      ::setenv("CAISSON_STATE_DIR", directory_.c_str(), 1);
      // It expects what a program is started with.
      if (theirs.get() != 3) ::dup2(theirs.get(), 3);
      ::close_range(4, ~0u, 0);
      ::_exit(run_keeper(3));
    }
    theirs.reset();
    return Client::greet(std::move(ours));
  }
  void start() {
    auto started = try_start();
    ASSERT_TRUE(started.has_value()) << started.error().message();
    client_.emplace(std::move(*started));
  }
  // The status of a keeper whose server has gone.
  int stop() {
    client_.reset();
    if (keeper_ < 0) return 0;
    int status = -1;
    VERIFY(::waitpid(keeper_, &status, 0) == keeper_);
    keeper_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t worker() const {
    const std::string children =
        "/proc/" + std::to_string(keeper_) + "/task/" + std::to_string(keeper_) + "/children";
    pid_t pid = 0;
    std::istringstream(text_of(children)) >> pid;
    return pid;
  }
  // A line of /proc/PID/status.
  static std::string status_of(pid_t pid, const std::string& field) {
    std::istringstream in(text_of("/proc/" + std::to_string(pid) + "/status"));
    for (std::string line; std::getline(in, line);)
      if (line.starts_with(field + ":")) return line.substr(field.size() + 2);
    return {};
  }
  static Fd body(std::string_view text) {
    int ends[2];
    VERIFY(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const Fd in(ends[1]);
    VERIFY(::write(in.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return Fd(ends[0]);
  }
  static policy::NetworkPolicy policy() {
    policy::SecretRule rule;
    rule.name = rule.env = "TOKEN";
    rule.source = {.kind = policy::SecretSource::Kind::kVault, .text = "one"};
    rule.hosts = {"api.example.com"};
    policy::NetworkPolicy made;
    made.secrets = {rule};
    return made;
  }
  // What a gateway with these keys finds.
  static std::string opened(const NetworkKeys& keys, const std::string& text) {
    const uid_t owner = ::geteuid() == 0 ? egress::kVaultId : ::geteuid();
    const auto file = egress::open_keys(keys.file->get(), owner);
    EXPECT_TRUE(file.has_value());
    const auto read = egress::read_keys(file->get());
    EXPECT_TRUE(read.has_value());
    const auto entries = egress::unseal(read->sealing.bytes(), egress::split_policy(text).sealed);
    EXPECT_TRUE(entries.has_value());
    return entries.has_value() ? std::string(entries->at(0).value->bytes()) : "";
  }

  std::string directory_;
  pid_t keeper_ = -1;
  std::optional<Client> client_;
};

TEST_F(VaultProcessTest, AValueGoesFromABodyToAGatewayAndNowhereElse) {
  start();
  const auto kept = client_->keep("sec_1", body(R"({"name":"n","value":"the value 1"})").get());
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  EXPECT_EQ(kept->rest, R"({"name":"n","value":""})");
  const std::vector<GivenSecret> given = {
      {.name = "one", .kept_id = "sec_1", .kept = kept->sealed}};
  const auto sealed = client_->seal(policy(), given, "");
  ASSERT_TRUE(sealed.has_value()) << sealed.error().message();
  EXPECT_EQ(sealed->variables.size(), 1u);
  const auto keys = client_->make_keys();
  ASSERT_TRUE(keys.has_value()) << keys.error().message();
  const auto text = client_->text_for(keys->number, "{}", sealed->text);
  ASSERT_TRUE(text.has_value()) << text.error().message();
  EXPECT_EQ(opened(*keys, *text), "the value 1");
  // What comes with the request that makes a sandbox; and again, when the process is another.
  const std::vector<GivenSecret> other = {
      {.name = "one", .value = std::make_shared<const SecretValue>("the value 2")}};
  const auto next = client_->seal(policy(), other, sealed->text);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->variables, sealed->variables);
  EXPECT_EQ(stop(), 0);
  start();
  EXPECT_EQ(opened(*keys, *client_->text_for(keys->number, "{}", next->text)), "the value 2");
}

TEST_F(VaultProcessTest, WhatIsWrongIsSaid) {
  start();
  const auto refused = client_->keep("sec_1", body(R"({"value":7})").get());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("value: found nothing"));
  EXPECT_THAT(client_->seal(policy(), {}, "").error().message(),
              HasSubstr("network.secrets.TOKEN: the vault has no secret one"));
  const std::string much(kMostRequest, 'a');
  const std::vector<GivenSecret> given = {
      {.name = "one", .value = std::make_shared<const SecretValue>(much)}};
  EXPECT_THAT(client_->seal(policy(), given, "").error().message(), HasSubstr("are too long"));
  // What is no request has no answer but an error, and ends nothing.
  for (const std::string_view bytes : {"nonsense", "CSNVLT01\x09", "CSNVLT01\x01"}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd ours(ends[0]);
    Fd theirs(ends[1]);
    const int descriptors[] = {theirs.get()};
    ASSERT_TRUE(sys::send_message(client_->control_fd(), bytes, descriptors).has_value());
    theirs.reset();
    const auto answer = sys::recv_message(ours.get(), kMostAnswer);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(decode_answer(answer->bytes).error().code(), Code::kInvalidArgument);
  }
  ASSERT_TRUE(sys::send_message(client_->control_fd(), "without a socket", {}).has_value());
  EXPECT_TRUE(client_->make_keys().has_value());
}

TEST_F(VaultProcessTest, IsShutIn) {
  start();
  const pid_t pid = worker();
  ASSERT_GT(pid, 0);
  EXPECT_EQ(status_of(pid, "Seccomp"), "2");
  EXPECT_EQ(status_of(pid, "NoNewPrivs"), "1");
  EXPECT_EQ(status_of(pid, "CapEff"), "0000000000000000");
  EXPECT_EQ(status_of(pid, "CapPrm"), "0000000000000000");
  EXPECT_THAT(text_of("/proc/" + std::to_string(pid) + "/limits"),
              ::testing::ContainsRegex("Max core file size +0 +0 +bytes"));
  // Not dumpable: what is its own in /proc is root's.
  struct stat facts{};
  ASSERT_EQ(::stat(("/proc/" + std::to_string(pid) + "/environ").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_uid, 0u);
  if (client_->not_locked().empty())
    EXPECT_NE(status_of(pid, "VmLck"), "       0 kB");
  else
    EXPECT_THAT(client_->not_locked(), HasSubstr("RLIMIT_MEMLOCK"));
  if (::geteuid() != 0) return;
  const std::string id = std::to_string(egress::kVaultId);
  EXPECT_EQ(status_of(pid, "Uid"), id + "\t" + id + "\t" + id + "\t" + id);
  EXPECT_EQ(status_of(pid, "Groups"), " ");
  // The sanitizer has a heap of its own, more than may be locked.
  if (!kSanitized) EXPECT_EQ(client_->not_locked(), "");
}

TEST_F(VaultProcessTest, WhatDiesIsStartedAgainAndWhoAskedIsTold) {
  start();
  const auto sealed = client_->seal(
      policy(),
      std::vector<GivenSecret>{
          {.name = "one", .value = std::make_shared<const SecretValue>("the value 1")}},
      "");
  ASSERT_TRUE(sealed.has_value());
  std::atomic<bool> over = false;
  std::atomic<int> answered = 0, told = 0, wrong = 0;
  std::vector<std::thread> askers;
  for (int i = 0; i < 4; ++i)
    askers.emplace_back([&] {
      while (!over) {
        const auto keys = client_->make_keys();
        if (keys.has_value())
          ++answered;
        else
          ++(keys.error().code() == Code::kUnavailable ? told : wrong);
      }
    });
  for (int deaths = 0; deaths < 2; ++deaths) {
    const pid_t pid = worker();
    const int before = answered;
    ::kill(pid, SIGKILL);
    for (int i = 0; i < 1000 && (worker() == pid || worker() == 0 || answered <= before + 10); ++i)
      ::usleep(10'000);
    EXPECT_NE(worker(), pid);
    EXPECT_GT(answered, before + 10);
  }
  over = true;
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(told, 8);
  EXPECT_TRUE(client_->seal(policy(), {}, sealed->text).has_value());
}

TEST_F(VaultProcessTest, TheKeeperEndsWhereNoWorkerCanStart) {
  start();
  const pid_t pid = worker();
  std::filesystem::remove_all(directory_ + "/vault");
  ::kill(pid, SIGKILL);
  int status = -1;
  ASSERT_EQ(::waitpid(keeper_, &status, 0), keeper_);
  keeper_ = -1;
  EXPECT_EQ(WEXITSTATUS(status), 125);
  // Nobody waits for an answer that does not come.
  const auto asked = client_->make_keys();
  ASSERT_FALSE(asked.has_value());
  EXPECT_EQ(asked.error().code(), Code::kUnavailable) << asked.error().message();
}

TEST_F(VaultProcessTest, TheWorkerEndsWithItsKeeper) {
  start();
  const pid_t pid = worker();
  ::kill(keeper_, SIGKILL);
  EXPECT_EQ(::waitpid(keeper_, nullptr, 0), keeper_);
  keeper_ = -1;
  for (int i = 0; i < 500 && ::kill(pid, 0) == 0 && !status_of(pid, "State").starts_with("Z"); ++i)
    ::usleep(10'000);
  const auto asked = client_->make_keys();
  ASSERT_FALSE(asked.has_value());
  EXPECT_EQ(asked.error().code(), Code::kUnavailable);
}

TEST_F(VaultProcessTest, AKeyThatOthersMayReadStartsNothing) {
  start();
  EXPECT_EQ(stop(), 0);
  const std::string key = directory_ + "/vault/key";
  struct stat facts{};
  ASSERT_EQ(::stat(key.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(facts.st_size, 32);
  ASSERT_EQ(::chmod(key.c_str(), 0644), 0);
  const auto started = try_start();
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().message(), HasSubstr("vault/key: others may read it"));
  EXPECT_NE(stop(), 0);
}

}  // namespace
}  // namespace caisson::vault
