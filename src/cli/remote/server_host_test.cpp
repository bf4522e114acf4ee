#include "cli/remote/server_host.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/remote/fake_server_for_test.h"

namespace caisson::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kSandbox =
    R"({"id":"abc","image":"base","state":"running","started":"2026-01-02T03:04:05.000000Z",)"
    R"("ends":"2026-01-02T03:05:05.000000Z","metadata":{"caisson.command":"[\"ls\",\"-l\"]"}})";
constexpr const char* kEnd =
    R"({"end":{"verdict":{"kind":"exited","code":3},"usage":{"elapsed_us":1,"user_us":0,)"
    R"("system_us":0,"memory_peak":0,"bytes_written":0,"pids_peak":1,"bytes_out":3,)"
    R"("io_read_bytes":0,"io_write_bytes":0},"limits_hit":[],"refusals":[],"held":{"cpus":"cgroup",)"
    R"("memory":"cgroup","pids":"cgroup","disk":"rlimit","inodes":"rlimit","open_files":"rlimit",)"
    R"("output":"watched","timeout":"watched","cpu_time":"watched","io_read":"none",)"
    R"("io_write":"none","io_read_ops":"none","io_write_ops":"none"}}})";

SandboxSpec spec(policy::SpecValues values) {
  auto valid = SandboxSpec::validate(std::move(values));
  VERIFY(valid.has_value());
  return *valid;
}

json::Value parsed_json(const std::string& text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value.has_value() ? *value : json::Value();
}

TEST(SandboxBody, ASpecGoesWithoutWhatIsThisHosts) {
  policy::SpecValues values;
  values.command = {"ls", "-l"};
  values.entrypoint = {{"env"}};
  values.limits.timeout_ms = 1000;
  values.grants = {{.from = "/tmp", .to = "/mnt", .mode = policy::GrantMode::kCopy}};
  const auto body = sandbox_body(spec(std::move(values)));
  ASSERT_TRUE(body.has_value());
  const json::Value& sent = *body->find("spec");
  EXPECT_EQ(sent.find("command")->as_array()->size(), 0U);
  EXPECT_EQ(sent.find("entrypoint"), nullptr);
  EXPECT_EQ(sent.find("files")->as_array()->size(), 0U);
  EXPECT_EQ(*sent.find("privileges"), json::Value("none"));
  EXPECT_EQ(*sent.find("limits")->find("timeout"), json::Value("301s"));
  EXPECT_EQ(*body->find("metadata")->find("caisson.command"), json::Value(R"(["ls","-l"])"));
}

TEST(SandboxBody, PathsOfThisHostAreRefusedByTheirOption) {
  for (const auto& [mode, option] : {std::pair{policy::GrantMode::kReadOnly, "--ro /tmp"},
                                     {policy::GrantMode::kReadWrite, "--rw /tmp"}}) {
    policy::SpecValues values;
    values.grants = {{.from = "/tmp", .to = "/mnt", .mode = mode}};
    const auto body = sandbox_body(spec(std::move(values)));
    ASSERT_FALSE(body.has_value());
    EXPECT_THAT(body.error().message(), StartsWith(option));
  }
}

TEST(ParseSandbox, WhatAServerTellsIsChecked) {
  const auto info = parse_sandbox(parsed_json(kSandbox));
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->id, "abc");
  EXPECT_EQ(info->created_ms, 1767323045000);
  EXPECT_EQ(info->deadline_ms, 1767323105000);
  EXPECT_THAT(info->command, ElementsAre("ls", "-l"));
  for (const char* text :
       {"{}", R"({"id":"../x"})", R"({"id":"abc","image":5})",
        R"({"id":"abc","image":"b","state":"running","started":"now","ends":"then"})"}) {
    const auto wrong = parse_sandbox(parsed_json(text));
    ASSERT_FALSE(wrong.has_value()) << text;
    EXPECT_EQ(wrong.error().code(), Code::kDataLoss);
  }
}

TEST(ParseSandbox, APausedOneHasNoDeadline) {
  std::string text = kSandbox;
  text.replace(text.find("running"), 7, "paused");
  EXPECT_FALSE(parse_sandbox(parsed_json(text))->deadline_ms.has_value());
}

// A host whose server a test plays.
class ServerHostTest : public testing::Test {
 protected:
  ServerHostTest() {
    ::unsetenv("CAISSON_API_KEY_FILE");
    ::setenv("CAISSON_API_KEY", "e2b_01", 1);
    ::setenv("CAISSON_SERVER", server_.url().c_str(), 1);
    VERIFY(::mkdtemp(folder_) != nullptr);
  }
  ~ServerHostTest() override {
    ::unsetenv("CAISSON_API_KEY");
    ::unsetenv("CAISSON_SERVER");
    std::filesystem::remove_all(folder_);
  }
  Host& host() {
    if (host_ == nullptr) {
      auto made = make_server_host({}, {});
      VERIFY(made.has_value());
      host_ = std::move(*made);
    }
    return *host_;
  }
  // Sandbox abc, as it is found.
  std::unique_ptr<HostedSandbox> sandbox() {
    server_.answer("GET /v1/sandboxes",
                   {.body = std::string("{\"sandboxes\":[") + kSandbox + "]}"});
    auto found = host().connect("abc");
    VERIFY(found.has_value());
    return std::move(*found);
  }
  // `after`: the request before which it does not end.
  void answer_command(const std::string& output, const std::string& after = "") {
    server_.answer("POST /v1/sandboxes/abc/commands",
                   {.status = 201, .body = R"({"number":4,"pid":7})"});
    server_.answer("GET /v1/sandboxes/abc/commands/4/output?from=oldest&ends_with_client=true",
                   {.body = output, .after = after});
  }
  std::string file(const std::string& name, const std::string& text) {
    std::string path = std::string(folder_) + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  static std::string contents(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  FakeServer server_;
  char folder_[32] = "/tmp/caisson-remote-XXXXXX";

 private:
  std::unique_ptr<Host> host_;
};

TEST_F(ServerHostTest, WithoutAServerOrAKeyThereIsNone) {
  ::unsetenv("CAISSON_API_KEY");
  EXPECT_THAT(make_server_host({}, {}).error().message(), HasSubstr("no API key"));
  ::unsetenv("CAISSON_SERVER");
  EXPECT_THAT(make_server_host({}, {}).error().message(), HasSubstr("no server is named"));
}

TEST_F(ServerHostTest, AKeyMayBeInAFile) {
  ::unsetenv("CAISSON_API_KEY");
  ::setenv("CAISSON_API_KEY_FILE", file("key", "e2b_02\n").c_str(), 1);
  server_.answer("GET /v1/sandboxes", {.body = R"({"sandboxes":[]})"});
  EXPECT_TRUE(host().list()->empty());
  EXPECT_EQ(server_.requests().at(0).key, "e2b_02");
  ::setenv("CAISSON_API_KEY_FILE", file("key", "\n").c_str(), 1);
  EXPECT_THAT(make_server_host({}, {}).error().message(), HasSubstr("is empty"));
  ::setenv("CAISSON_API_KEY_FILE", "/nowhere", 1);
  EXPECT_FALSE(make_server_host({}, {}).has_value());
  ::unsetenv("CAISSON_API_KEY_FILE");
}

TEST_F(ServerHostTest, AListHasAllPages) {
  server_.answer("GET /v1/sandboxes",
                 {.body = std::string("{\"sandboxes\":[") + kSandbox + R"(],"next":"a b"})"});
  server_.answer("GET /v1/sandboxes?after=a%20b", {.body = R"({"sandboxes":[]})"});
  const auto all = host().list();
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->size(), 1U);
  EXPECT_EQ(json::serialize(host().shown(all->front())),
            R"({"id":"abc","wall":"namespace","image":"base","command":["ls","-l"],)"
            R"("created_ms":1767323045000,"deadline_ms":1767323105000,"paused":false,)"
            R"("detached":true,"life":"kept"})");
}

TEST_F(ServerHostTest, AListWithoutEndIsAnError) {
  server_.answer("GET /v1/sandboxes", {.body = R"({"sandboxes":[],"next":"a"})"});
  server_.answer("GET /v1/sandboxes?after=a", {.body = R"({"sandboxes":[],"next":"a"})"});
  const auto all = host().list();
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().code(), Code::kDataLoss);
  EXPECT_EQ(server_.requests().size(), 1000U);
}

TEST_F(ServerHostTest, AKeyGoesInTheClearOnlyWhereThatIsAllowed) {
  ::setenv("CAISSON_SERVER", "http://server.example.com", 1);
  const auto refused = make_server_host({}, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("in the clear; use https://"));
  ::setenv("CAISSON_INSECURE_HTTP", "1", 1);
  EXPECT_TRUE(make_server_host({}, {}).has_value());
  ::unsetenv("CAISSON_INSECURE_HTTP");
}

TEST_F(ServerHostTest, AnIdMayBeShortened) {
  EXPECT_EQ(sandbox()->info().id, "abc");
  EXPECT_EQ((*host().connect("a"))->info().id, "abc");
  EXPECT_EQ(host().connect("b").error().code(), Code::kNotFound);
  EXPECT_EQ(host().connect("").error().code(), Code::kNotFound);
}

TEST_F(ServerHostTest, WhatTheServerRefusesIsSaidInItsWords) {
  server_.answer("GET /v1/sandboxes",
                 {.status = 401, .body = R"({"code":401,"message":"the key is not known"})"});
  const auto refused = host().list();
  EXPECT_EQ(refused.error().code(), Code::kUnauthenticated);
  EXPECT_THAT(refused.error().message(), StartsWith("the key is not known; the key is $CAISSON"));
  server_.answer("POST /v1/sandboxes", {.status = 502, .body = "<html>"});
  EXPECT_THAT(host().create(spec({.command = {"ls"}}), {}).error().message(),
              HasSubstr("the server answers 502"));
}

TEST_F(ServerHostTest, AnAnswerOfAnotherKindIsAnError) {
  server_.answer("GET /v1/sandboxes", {.body = "<html>"});
  EXPECT_EQ(host().list().error().code(), Code::kDataLoss);
  server_.answer("GET /v1/sandboxes", {.body = "{}"});
  EXPECT_EQ(host().list().error().code(), Code::kDataLoss);
}

TEST_F(ServerHostTest, NobodyAtTheAddressIsSaid) {
  ::setenv("CAISSON_SERVER", "http://127.0.0.1:1", 1);
  EXPECT_THAT(host().list().error().message(),
              HasSubstr("the server 127.0.0.1:1 cannot be reached"));
}

TEST_F(ServerHostTest, ACommandIsRunToItsEnd) {
  auto found = sandbox();
  answer_command(
      std::string("{\"started\":{\"pid\":7}}\n{\"stdout\":\"out\"}\n{\"stderr\":\"err\"}\n") +
      kEnd + "\n");
  const auto result = found->run({.arguments = {"ls"}, .env = {{"A", "b"}}}, {});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->standard_output, "out");
  EXPECT_EQ(result->standard_error, "err");
  EXPECT_EQ(result->outcome.exit_code, 3U);
  EXPECT_THAT(server_.told(),
              Contains(R"(POST /v1/sandboxes/abc/commands {"command":["ls"],"env":{"A":"b"}})"));
}

TEST_F(ServerHostTest, OneThatCannotBeStartedHasItsOutcome) {
  auto found = sandbox();
  const std::string end(kEnd);
  server_.answer("POST /v1/sandboxes/abc/commands",
                 {.body = "{\"result\":" + end.substr(7, end.size() - 8) + "}"});
  const auto result = found->run({.arguments = {"x"}}, {});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->outcome.exit_code, 3U);
}

TEST_F(ServerHostTest, OutputThatIsLostIsNotPassedOverInSilence) {
  auto found = sandbox();
  answer_command(std::string("{\"missed\":7}\n") + kEnd + "\n");
  const auto result = found->run({.arguments = {"ls"}}, {});
  EXPECT_THAT(result.error().message(), HasSubstr("7 bytes of output are lost"));
}

TEST_F(ServerHostTest, AnAnswerThatIsCutOffIsAnError) {
  auto found = sandbox();
  answer_command("{\"stdout\":\"out\"}\n");
  EXPECT_THAT(found->run({.arguments = {"ls"}}, {}).error().message(),
              HasSubstr("ended before the command did"));
  server_.answer("GET /v1/sandboxes/abc/commands/1/output?from=oldest",
                 {.body = "{\"stdout\":\"out\"}\n", .cut_off = true});
  EXPECT_FALSE(found->attach(Sandbox::Follow::kYes, {}).has_value());
}

TEST_F(ServerHostTest, InputIsSentAndEnded) {
  auto found = sandbox();
  const std::string input = "POST /v1/sandboxes/abc/commands/4/input?end=true";
  server_.answer(input, {.status = 204});
  answer_command(std::string(kEnd) + "\n", input);
  ASSERT_TRUE(found->run({.arguments = {"cat"}, .input = "hello"}, {}).has_value());
  EXPECT_THAT(server_.told(),
              Contains(R"(POST /v1/sandboxes/abc/commands {"command":["cat"],"input":true})"));
  EXPECT_THAT(server_.told(), Contains(input + " hello"));
}

TEST_F(ServerHostTest, WhoWantsNoMoreOutputCancels) {
  auto found = sandbox();
  answer_command(std::string("{\"stdout\":\"one\"}\n{\"stdout\":\"two\"}\n") + kEnd + "\n");
  server_.answer("DELETE /v1/sandboxes/abc/commands/4", {.status = 204});
  std::string seen;
  RunOptions options;
  options.on_output = [&](OutputChannel, std::string_view bytes) {
    seen += bytes;
    return false;
  };
  ASSERT_TRUE(found->run({.arguments = {"yes"}}, options).has_value());
  EXPECT_EQ(seen, "one");
  EXPECT_THAT(server_.told(), Contains("DELETE /v1/sandboxes/abc/commands/4"));
}

TEST_F(ServerHostTest, ACancelASignalAndASizeAreSent) {
  auto found = sandbox();
  auto control = Control::create();
  ASSERT_TRUE(control.has_value());
  control->signal(15);
  control->resize(80, 24);
  control->cancel();
  control->cancel();
  const std::string one = "/v1/sandboxes/abc/commands/4", last = "DELETE /v1/sandboxes/abc";
  answer_command(std::string(kEnd) + "\n", last);
  RunOptions options;
  options.control = &*control;
  ASSERT_TRUE(found->run({.arguments = {"sleep"}}, options).has_value());
  EXPECT_THAT(server_.told(),
              testing::IsSupersetOf({"POST " + one + R"(/signal {"signal":15})",
                                     "PUT " + one + R"(/terminal {"columns":80,"rows":24})",
                                     "DELETE " + one, last}));
}

TEST_F(ServerHostTest, TextThatIsNoneIsRefused) {
  auto found = sandbox();
  EXPECT_THAT(found->run({.arguments = {"a\xff"}}, {}).error().message(), HasSubstr("not UTF-8"));
}

TEST_F(ServerHostTest, ALogOfWhatGoesOnHasNoOutcome) {
  auto found = sandbox();
  server_.answer("GET /v1/sandboxes/abc/commands/1/output?from=kept",
                 {.body = "{\"stdout\":\"a\"}\n{\"missed\":3}\n{\"goes_on\":true}\n"});
  std::string seen;
  RunOptions options;
  options.on_output = [&](OutputChannel, std::string_view bytes) {
    seen += bytes;
    return true;
  };
  options.on_missed = [&](std::uint64_t bytes) { seen += " -" + std::to_string(bytes); };
  const auto outcome = found->attach(Sandbox::Follow::kNo, options);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_FALSE(outcome->has_value());
  EXPECT_EQ(seen, "a -3");
}

TEST_F(ServerHostTest, ASandboxWithoutAMainCommandHasNoLog) {
  EXPECT_THAT(sandbox()->attach(Sandbox::Follow::kNo, {}).error().message(),
              HasSubstr("has no main command"));
}

TEST_F(ServerHostTest, OneForACommandIsEndedWithIt) {
  server_.answer("POST /v1/sandboxes", {.status = 201, .body = kSandbox});
  server_.answer("DELETE /v1/sandboxes/abc", {.status = 204});
  answer_command(std::string(kEnd) + "\n");
  {
    auto made = host().create(spec({.command = {"ls"}, .limits = {.timeout_ms = 5000}}), {});
    ASSERT_TRUE(made.has_value()) << made.error().message();
    ASSERT_TRUE((*made)->run({.arguments = {"ls"}}, {}).has_value());
    EXPECT_TRUE((*made)->close().has_value());
  }
  EXPECT_THAT(server_.told().at(1),
              HasSubstr(R"({"command":["ls"],"timeout_ms":5000,"output_bytes":16777216})"));
  EXPECT_EQ(server_.told().back(), "DELETE /v1/sandboxes/abc");
  EXPECT_EQ(server_.told().size(), 4U);
}

TEST_F(ServerHostTest, FilesAreCopiedInAndResultsOut) {
  server_.answer("POST /v1/sandboxes", {.status = 201, .body = kSandbox});
  server_.answer("DELETE /v1/sandboxes/abc", {.status = 204});
  const std::string source = file("in", "hello"), target = std::string(folder_) + "/out";
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 7, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, source.c_str(), times, 0), 0);
  ASSERT_EQ(::chmod(source.c_str(), 0640), 0);
  const std::string below = "/v1/sandboxes/abc/files";
  server_.answer("PUT " + below + "/directory?mode=493&parents=true&path=/srv", {.status = 204});
  const std::string write = "PUT " + below + "?mode=416&modified_ns=7000000000&path=/srv/in";
  server_.answer(write, {.status = 204});
  server_.answer("GET " + below + "/stat?path=/srv/out",
                 {.body = R"({"name":"out","type":"file","mode":420,"size":5})"});
  server_.answer("GET " + below + "?path=/srv/out", {.body = "world"});
  policy::SpecValues values{.command = {"ls"}};
  values.grants = {{.from = source, .to = "/srv/in", .mode = policy::GrantMode::kCopy}};
  values.outputs = {{.path = "/srv/out", .to = target}};
  auto made = host().create(spec(values), {});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(server_.told().back(), write + " hello");
  const auto fetched = (*made)->fetch_outputs();
  ASSERT_TRUE(fetched.has_value()) << fetched.error().message();
  EXPECT_EQ(contents(target), "world");
}

TEST_F(ServerHostTest, OneThatCannotBeFilledIsEnded) {
  server_.answer("POST /v1/sandboxes", {.status = 201, .body = kSandbox});
  server_.answer("DELETE /v1/sandboxes/abc", {.status = 204});
  policy::SpecValues values{.command = {"ls"}};
  values.grants = {{.from = file("in", "x"), .to = "/srv/in", .mode = policy::GrantMode::kCopy}};
  EXPECT_FALSE(host().create(spec(values), {}).has_value());
  EXPECT_EQ(server_.told().back(), "DELETE /v1/sandboxes/abc");
}

TEST_F(ServerHostTest, AFileIsCopiedOutWhole) {
  auto found = sandbox();
  server_.answer("GET /v1/sandboxes/abc/files/stat?path=/srv/out",
                 {.body = R"({"name":"out","type":"file","mode":420,"size":5,"modified_ns":7})"});
  server_.answer("GET /v1/sandboxes/abc/files?path=/srv/out", {.body = "hello"});
  const std::string target = std::string(folder_) + "/out";
  const auto copied = found->copy_out("/srv/out", target);
  ASSERT_TRUE(copied.has_value()) << copied.error().message();
  EXPECT_EQ(contents(target), "hello");
  EXPECT_EQ(found->copy_out("/srv/none", target).error().code(), Code::kNotFound);
  EXPECT_EQ(contents(target), "hello") << "replaced as a whole or not at all";
}

TEST_F(ServerHostTest, ATreeIsCopiedOut) {
  auto found = sandbox();
  server_.answer("GET /v1/sandboxes/abc/files/stat?path=/d",
                 {.body = R"({"name":"d","type":"directory","mode":493,"size":0})"});
  server_.answer("GET /v1/sandboxes/abc/files/list?depth=64&path=/d", {.body = R"({"entries":[
      {"name":"a","type":"directory","mode":493,"size":0},
      {"name":"a/f","type":"file","mode":493,"size":1},
      {"name":"a/l","type":"link","mode":511,"size":1,"target":"f"}]})"});
  server_.answer("GET /v1/sandboxes/abc/files?path=/d/a/f", {.body = "x"});
  const std::string target = std::string(folder_) + "/d";
  const auto copied = found->copy_out("/d", target);
  ASSERT_TRUE(copied.has_value()) << copied.error().message();
  EXPECT_EQ(contents(target + "/a/f"), "x");
  EXPECT_EQ(std::filesystem::read_symlink(target + "/a/l"), "f");
}

TEST_F(ServerHostTest, AnEntryThatCannotBeIsRefused) {
  auto found = sandbox();
  server_.answer("GET /v1/sandboxes/abc/files/stat?path=/d",
                 {.body = R"({"name":"d","type":"directory","mode":493,"size":0})"});
  for (const char* entry :
       {R"({"name":"../x","type":"file","mode":420,"size":1})",
        R"({"name":"x","type":"odd","mode":420,"size":1})", R"({"type":"file"})",
        R"({"name":"x","type":"file","mode":99999,"size":1})",
        R"({"name_base64":"%","type":"file","mode":420,"size":1})"}) {
    FakeServer::Answer list{.body = std::string("{\"entries\":[") + entry + "]}"};
    server_.answer("GET /v1/sandboxes/abc/files/list?depth=64&path=/d", list);
    EXPECT_FALSE(found->copy_out("/d", std::string(folder_) + "/d").has_value()) << entry;
  }
}

TEST_F(ServerHostTest, OneIsPausedResumedAndEnded) {
  auto found = sandbox();
  server_.answer("POST /v1/sandboxes/abc/pause", {.body = kSandbox});
  server_.answer("POST /v1/sandboxes/abc/resume", {.body = kSandbox});
  server_.answer("DELETE /v1/sandboxes/abc", {.status = 204});
  EXPECT_TRUE(found->pause().has_value());
  EXPECT_TRUE(found->resume().has_value());
  EXPECT_TRUE(found->end().has_value());
}

TEST_F(ServerHostTest, WithoutAProgramNothingIsMade) {
  Command command;
  const auto made = host().create(spec({}), {.first_command = &command});
  EXPECT_THAT(made.error().message(), HasSubstr("no program to run"));
  EXPECT_TRUE(server_.requests().empty());
}

}  // namespace
}  // namespace caisson::cli
