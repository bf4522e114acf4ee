#include "build/stage_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::build {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A plan's first stage, applied over a configuration.
class Stages {
 public:
  explicit Stages(std::string_view text, Variables arguments = {}, image::ImageConfig base = {}) {
    auto file = parse_dockerfile(text, "Dockerfile");
    EXPECT_TRUE(file.has_value()) << file.error().message();
    auto plan = plan_dockerfile(*file, {.build_args = std::move(arguments)});
    EXPECT_TRUE(plan.has_value()) << plan.error().message();
    plan_ = std::move(*plan);
    StageState state(plan_, std::move(base));
    for (const Step& step : plan_.stages[0].steps) {
      auto applied = state.apply(step);
      if (!applied.has_value()) {
        error = applied.error().message();
        break;
      }
      all.push_back(std::move(*applied));
    }
    config = state.config();
  }
  template <typename T>
  const T& action(std::size_t at) const {
    return std::get<T>(all[at].action);
  }

  std::vector<Applied> all;
  image::ImageConfig config;
  std::string error;

 private:
  BuildPlan plan_;
};

TEST(StageState, EnvSeesTheImageAndWinsOverArg) {
  const Stages made(
      "FROM a\nARG V=1\nARG W=$V.2\nENV PATH=$PATH:/x A=$V B=$W\nENV A=3 C=${A}\nENV \"Q R\"='$A'\n"
      "RUN x\n",
      {}, {.env = {"PATH=/bin", "OLD=1"}});
  EXPECT_EQ(made.error, "");
  EXPECT_THAT(made.config.env,
              ElementsAre("PATH=/bin:/x", "OLD=1", "A=3", "B=1.2", "C=1", "Q R=$A"));
  const RunAction& run = made.action<RunAction>(5);
  EXPECT_EQ(run.env.at("V"), "1");
  EXPECT_EQ(run.env.at("A"), "3");
  EXPECT_THAT(run.command, ElementsAre("/bin/sh", "-c", "x"));
  EXPECT_EQ(run.workdir, "/");
  EXPECT_EQ(made.all[5].created_by, "RUN |2 V=1 W=1.2 /bin/sh -c x");
}

TEST(StageState, ArgumentsOfTheCaller) {
  const Stages made("ARG G=g\nARG H=h\nFROM a\nARG G\nARG V=1\nARG TARGETARCH\nARG NONE\nRUN x\n",
                    {{"V", "2"}, {"H", "9"}, {"http_proxy", "p"}});
  const RunAction& run = made.action<RunAction>(4);
  EXPECT_THAT(run.env, UnorderedElementsAre(Pair("G", "g"), Pair("V", "2"),
                                            Pair("TARGETARCH", "amd64"), Pair("http_proxy", "p")));
}

TEST(StageState, KeysTellStepsApart) {
  const auto key = [](std::string_view text, Variables arguments = {}) {
    return Stages(text, std::move(arguments)).all.back().key;
  };
  EXPECT_EQ(key("FROM a\nRUN x"), key("FROM b\n# comment\nRUN   x"));
  EXPECT_NE(key("FROM a\nRUN x"), key("FROM a\nRUN y"));
  EXPECT_NE(key("FROM a\nRUN [\"x\", \"y\"]"), key("FROM a\nRUN [\"x y\"]"));
  EXPECT_NE(key("FROM a\nRUN x"), key("FROM a\nENV A=1\nRUN x"));
  EXPECT_NE(key("FROM a\nRUN x"), key("FROM a\nUSER u\nRUN x"));
  EXPECT_NE(key("FROM a\nRUN x"), key("FROM a\nSHELL [\"/bin/bash\", \"-c\"]\nRUN x"));
  EXPECT_NE(key("FROM a\nARG V\nRUN x", {{"V", "1"}}), key("FROM a\nARG V\nRUN x", {{"V", "2"}}));
  EXPECT_EQ(key("FROM a\nRUN x", {{"https_proxy", "1"}}), key("FROM a\nRUN x"));
  EXPECT_NE(key("FROM a\nLABEL a=1"), key("FROM a\nLABEL a=2"));
  EXPECT_NE(key("FROM a\nCOPY a /b"), key("FROM a\nCOPY a /b/"));
  EXPECT_NE(key("FROM a\nCOPY --chmod=1 a /b"), key("FROM a\nCOPY a /b"));
}

TEST(StageState, WorkdirAndRelativePaths) {
  const Stages made(
      "FROM a\nENV D=d\nWORKDIR x/../$D\nWORKDIR e\nCOPY ./a//b ../c/\nCOPY a .\nRUN [\"x\"]\n");
  EXPECT_EQ(made.error, "");
  EXPECT_EQ(made.config.workdir, "/d/e");
  EXPECT_EQ(made.action<DirectoryAction>(1).path, "/d");
  const CopyAction& copy = made.action<CopyAction>(3);
  EXPECT_THAT(copy.sources, ElementsAre("a/b"));
  EXPECT_EQ(copy.destination, "/d/c");
  EXPECT_TRUE(copy.into_directory);
  EXPECT_EQ(made.action<CopyAction>(4).destination, "/d/e");
  EXPECT_TRUE(made.action<CopyAction>(4).into_directory);
  EXPECT_EQ(made.action<RunAction>(5).workdir, "/d/e");
}

TEST(StageState, CopyExpandsItsParts) {
  const Stages made(
      "FROM a\nARG F=x.c\nARG O=me\nARG M=640\nCOPY --chown=$O:staff --chmod=$M $F <<a <<'b' "
      "/d/\n$F\na\n$F\nb\n");
  EXPECT_EQ(made.error, "");
  const CopyAction& copy = made.action<CopyAction>(3);
  EXPECT_THAT(copy.sources, ElementsAre("x.c"));
  EXPECT_THAT(copy.texts, ElementsAre(Pair("a", "x.c\n"), Pair("b", "$F\n")));
  EXPECT_EQ(copy.owner, "me:staff");
  EXPECT_EQ(copy.mode, 0640u);
}

TEST(StageState, TheImagesConfiguration) {
  const Stages made(
      "FROM a\nENV P=1\nUSER $P:2\nEXPOSE 80 70-71/udp $P\nVOLUME /a b\nSTOPSIGNAL SIGINT\n"
      "LABEL x=$P \"y z\"=\"w\"\nMAINTAINER me\nCMD a $P\nHEALTHCHECK NONE\n",
      {}, {.entrypoint = {"old"}, .cmd = {"cmd"}, .exposed_ports = {"80/tcp"}});
  EXPECT_EQ(made.error, "");
  EXPECT_EQ(made.config.user, "1:2");
  EXPECT_THAT(made.config.exposed_ports, ElementsAre("80/tcp", "70/udp", "71/udp", "1/tcp"));
  EXPECT_THAT(made.config.volumes, ElementsAre("/a", "/b"));
  EXPECT_EQ(made.config.stop_signal, "SIGINT");
  EXPECT_THAT(made.config.labels, ElementsAre(Pair("x", "1"), Pair("y z", "w")));
  EXPECT_EQ(made.config.author, "me");
  EXPECT_THAT(made.config.cmd, ElementsAre("/bin/sh", "-c", "a $P"));
  EXPECT_THAT(made.config.entrypoint, ElementsAre("old"));
}

TEST(StageState, AnEntrypointForgetsTheOldCommand) {
  const image::ImageConfig base = {.cmd = {"old"}};
  EXPECT_THAT(Stages("FROM a\nENTRYPOINT [\"e\"]\n", {}, base).config.cmd, ElementsAre());
  const Stages made("FROM a\nCMD [\"new\"]\nENTRYPOINT e f\n", {}, base);
  EXPECT_THAT(made.config.cmd, ElementsAre("new"));
  EXPECT_THAT(made.config.entrypoint, ElementsAre("/bin/sh", "-c", "e f"));
}

TEST(StageState, SaysWhatIsWrong) {
  const auto many = [](const std::string& start, const std::string& end) {
    std::string words;
    for (int i = 0; i < 1025; ++i) words += " " + start + std::to_string(i) + end;
    return words;
  };
  const std::pair<std::string, const char*> kCases[] = {
      {"COPY ../x /y", "leads out of the context"},
      {"COPY a/../../x /y", "leads out of the context"},
      {"COPY $X /y", "a source is empty"},
      {"COPY a $X", "the destination is empty"},
      {"COPY a b /c", "several sources need a directory"},
      {"COPY --chmod=u+x a /c", "allowed are octal numbers up to 7777"},
      {"COPY --chmod=10000 a /c", "allowed are octal numbers"},
      {"COPY <<a/b /c\nx\na/b", "cannot be the name of a file"},
      {"WORKDIR $X", "WORKDIR is empty"},
      {"USER $X", "USER ''; allowed is NAME"},
      {"USER a b", "USER 'a b'"},
      {"EXPOSE 0", "EXPOSE '0'; allowed is PORT"},
      {"EXPOSE 80/icmp", "EXPOSE '80/icmp'"},
      {"EXPOSE 90-80", "EXPOSE '90-80'"},
      {"EXPOSE 65536", "EXPOSE '65536'"},
      {"EXPOSE 1-1024 1024-1025", "makes more than 1024 ports"},
      {"ENV" + many("V", "=1"), "ENV makes more than 1024 variables"},
      {"VOLUME" + many("/v", ""), "VOLUME makes more than 1024 volumes"},
      {"STOPSIGNAL 65", "STOPSIGNAL '65'"},
      {"STOPSIGNAL term", "STOPSIGNAL 'term'"},
      {"VOLUME $X", "VOLUME with an empty path"},
      {"ENV $X=1", "cannot be a name"},
      {"LABEL \"\"=1", "LABEL without a name"},
      {"ENV A=${X:?needed}", "X is not set: needed"},
  };
  for (const auto& [step, words] : kCases)
    EXPECT_THAT(Stages("FROM a\n" + step + "\n").error, HasSubstr(words)) << step;
}

TEST(ResolvePath, IsAbsolute) {
  EXPECT_EQ(resolve_path("", "."), "/");
  EXPECT_EQ(resolve_path("/a", "b"), "/a/b");
  EXPECT_EQ(resolve_path("/a", "../../.."), "/");
  EXPECT_EQ(resolve_path("/a", "/b/"), "/b");
}

}  // namespace
}  // namespace caisson::build
