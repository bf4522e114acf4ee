#include "build/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::build {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<BuildPlan> planned(std::string_view text, const PlanOptions& options = {}) {
  TRY_ASSIGN(const Dockerfile file, parse_dockerfile(text, "Dockerfile"));
  return plan_dockerfile(file, options);
}

std::string error_of(std::string_view text, const PlanOptions& options = {}) {
  auto plan = planned(text, options);
  return plan.has_value() ? "" : plan.error().message();
}

std::vector<bool> needed(const BuildPlan& plan) {
  std::vector<bool> marks;
  for (const Stage& stage : plan.stages) marks.push_back(stage.needed);
  return marks;
}

constexpr std::string_view kStages =
    "FROM base AS Build\n"
    "RUN make\n"
    "FROM base AS other\n"
    "FROM build AS test\n"
    "RUN check\n"
    "FROM scratch\n"
    "COPY --from=build /x /x\n"
    "COPY --from=1 /y /y\n"
    "COPY --from=example.com/tools:2 /z /z\n";

TEST(Plan, StagesByNameAndNumber) {
  auto plan = planned(kStages);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  ASSERT_EQ(plan->stages.size(), 4u);
  EXPECT_EQ(plan->stages[0].name, "build");
  EXPECT_EQ(plan->stages[2].base.kind, StageBase::Kind::kStage);
  EXPECT_EQ(plan->stages[2].base.stage, 0u);
  EXPECT_EQ(plan->stages[3].base.kind, StageBase::Kind::kScratch);
  const auto copy = [&](std::size_t at) {
    return std::get<CopyStep>(plan->stages[3].steps[at].what);
  };
  EXPECT_EQ(copy(0).from, CopyStep::From::kStage);
  EXPECT_EQ(copy(0).stage, 0u);
  EXPECT_EQ(copy(1).stage, 1u);
  EXPECT_EQ(copy(2).from, CopyStep::From::kImage);
  EXPECT_EQ(copy(2).image, "example.com/tools:2");
}

TEST(Plan, OnlyWhatTheTargetNeeds) {
  EXPECT_THAT(needed(*planned(kStages)), ElementsAre(true, true, false, true));
  EXPECT_THAT(needed(*planned(kStages, {.target = "test"})), ElementsAre(true, false, true, false));
  EXPECT_THAT(needed(*planned(kStages, {.target = "1"})), ElementsAre(false, true, false, false));
  EXPECT_EQ(error_of(kStages, {.target = "nope"}),
            "--target: Dockerfile has no stage 'nope'; there are build, other, test");
}

TEST(Plan, ArgumentsBeforeFrom) {
  constexpr std::string_view kText =
      "ARG V=12\nARG NAME=base:${V}\nFROM ${NAME} AS a\nFROM --platform=$BUILDPLATFORM b$V\n";
  auto plan = planned(kText);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_EQ(plan->stages[0].base.image, "base:12");
  EXPECT_EQ(plan->stages[1].base.image, "b12");
  plan = planned(kText, {.build_args = {{"V", "13"}, {"UNUSED", "1"}, {"https_proxy", "p"}}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->stages[0].base.image, "base:13");
  EXPECT_THAT(plan->notes, ElementsAre("--build-arg UNUSED: no ARG of Dockerfile has this name"));
}

TEST(Plan, RunInItsForms) {
  auto plan = planned(
      "FROM a\n"
      "RUN --network=none a b\n"
      "RUN [\"a\", \"b c\"]\n"
      "RUN <<EOF\nx\ny\nEOF\n"
      "RUN cat <<A && cat <<B\n1\nA\n2\nB\n"
      "RUN <<S\n#!/usr/bin/env python3\nprint(1)\nS\n");
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  const auto run = [&](std::size_t at) {
    return std::get<RunStep>(plan->stages[0].steps[at].what);
  };
  EXPECT_EQ(run(0), (RunStep{.command = {"a b"}}));
  EXPECT_EQ(run(1), (RunStep{.command = {"a", "b c"}, .shell_form = false}));
  EXPECT_EQ(run(2), (RunStep{.command = {"x\ny\n"}}));
  EXPECT_EQ(run(3), (RunStep{.command = {"cat <<A && cat <<B\n1\nA\n2\nB"}}));
  EXPECT_EQ(run(4), (RunStep{.command = {"/usr/bin/env", "python3"},
                             .shell_form = false,
                             .script = "#!/usr/bin/env python3\nprint(1)\n"}));
}

TEST(Plan, CopyAndItsFlags) {
  auto plan = planned(
      "FROM a\nCOPY --chown=u:g --chmod=755 --link a b /c/\nADD x.tar <<here /d/\nh\nhere\n");
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  const auto& copy = std::get<CopyStep>(plan->stages[0].steps[0].what);
  EXPECT_THAT(copy.sources, ElementsAre("a", "b"));
  EXPECT_EQ(copy.destination, "/c/");
  EXPECT_EQ(copy.owner, "u:g");
  EXPECT_EQ(copy.mode, "755");
  EXPECT_FALSE(copy.add);
  const auto& add = std::get<CopyStep>(plan->stages[0].steps[1].what);
  EXPECT_TRUE(add.add);
  ASSERT_EQ(add.documents.size(), 1u);
  EXPECT_EQ(add.documents[0].content, "h\n");
}

TEST(Plan, OldFormsOfEnvAndLabel) {
  auto plan = planned("FROM a\nENV A b  c \nENV A=1 B=\"2 3\"\nLABEL one two\n");
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(std::get<EnvStep>(plan->stages[0].steps[0].what).variables,
              ElementsAre(std::pair("A", "b  c")));
  EXPECT_THAT(std::get<EnvStep>(plan->stages[0].steps[1].what).variables,
              ElementsAre(std::pair("A", "1"), std::pair("B", "\"2 3\"")));
}

TEST(Plan, RefusesWithTheLine) {
  const std::pair<const char*, const char*> kCases[] = {
      {"RUN a\nFROM b", "Dockerfile:1: RUN before FROM; allowed there is ARG"},
      {"FROM a b", "Dockerfile:1: FROM takes IMAGE, or IMAGE AS NAME"},
      {"FROM a AS 1b", "cannot be the name of a stage"},
      {"FROM a AS b\nFROM c AS B", "Dockerfile:2: FROM: there is a stage 'b' already"},
      {"FROM $X", "'$X' is empty; only ARGs before the first FROM"},
      {"FROM UPPER/x", "Dockerfile:1: "},
      {"FROM --platform=linux/s390x a", "images are built for this machine alone"},
      {"FROM --x=1 a", "FROM --x is not supported; allowed are --platform=PLATFORM"},
      {"FROM a\nCOPY --from=0 x y", "only stages above this one"},
      {"FROM a\nCOPY --from=7 x y", "only stages above this one"},
      {"FROM a\nCOPY --parents x y", "COPY --parents is not supported; allowed are --from"},
      {"FROM a\nCOPY x", "COPY needs a source and a destination"},
      {"FROM a\nCOPY --chown x y", "COPY --chown needs a value"},
      {"FROM a\nADD --from=b x y", "ADD --from is not supported"},
      {"FROM a\nADD https://example.com/x /y", "ADD of an address is not supported"},
      {"FROM a\nADD git@example.com:x/y /y", "ADD of a git repository is not supported"},
      {"FROM a\n\nRUN --mount=type=secret,id=x y", "Dockerfile:3: RUN --mount is not supported"},
      {"FROM a\nRUN --network=host y", "RUN --network=host is not supported"},
      {"FROM a\nRUN []", "RUN [] has no program"},
      {"FROM a\nRUN <<E\nE\n", "RUN with an empty here-document"},
      {"FROM a\nRUN <<E\n#!sh\nE\n", "without an absolute path"},
      {"FROM a\nSHELL /bin/sh", "SHELL needs the JSON form"},
      {"FROM a\nENV X", "ENV X: allowed is NAME=VALUE"},
      {"FROM a\nENV A=1 B", "ENV: 'B' is not of the form NAME=VALUE"},
      {"FROM a\nENV A=\"1", "a double quote is not closed"},
      {"FROM a\nARG 1X", "ARG: '1X' is no name"},
      {"FROM a\nHEALTHCHECK --every=1s CMD x", "HEALTHCHECK --every is not supported"},
      {"FROM a\nHEALTHCHECK x", "HEALTHCHECK takes CMD and a command, or NONE"},
      {"FROM a\nVOLUME []", "VOLUME needs a path"},
      {"ARG X=1\n", "there is no FROM in it"},
  };
  for (const auto& [text, words] : kCases) {
    EXPECT_THAT(error_of(text), HasSubstr(words)) << text;
    EXPECT_THAT(error_of(text), StartsWith("Dockerfile")) << text;
  }
}

TEST(Plan, NotesWhatHasNoEffect) {
  auto plan = planned("FROM a\nHEALTHCHECK --interval=1s CMD x\n");
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(plan->notes, Contains("Dockerfile:2: HEALTHCHECK has no effect here"));
}

}  // namespace
}  // namespace caisson::build
