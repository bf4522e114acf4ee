#include "build/template_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build/stage_state.h"

namespace caisson::build {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kHash(64, 'a');

std::vector<TemplateStep> parsed(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value.has_value());
  auto steps = parse_template_steps(*value);
  EXPECT_TRUE(steps.has_value()) << steps.error().message();
  return steps.has_value() ? *steps : std::vector<TemplateStep>();
}

std::string error_of(std::string_view text) {
  auto value = json::parse(text);
  auto steps = parse_template_steps(*value);
  if (!steps.has_value()) return steps.error().message();
  auto plan = plan_template({.image = "base", .steps = std::move(*steps)});
  return plan.has_value() ? "" : plan.error().message();
}

TEST(TemplateSteps, CompileIntoAPlan) {
  auto plan = plan_template({.image = "base",
                             .steps = parsed(R"([{"type":"RUN","args":["make $X"]},
                           {"type":"RUN","args":["id","root"],"force":true},
                           {"type":"ENV","args":["A","it's $HOME/x","B","2"]},
                           {"type":"WORKDIR","args":["/app$"]},
                           {"type":"USER","args":["me"]},
                           {"type":"COPY","args":["src","dst","","644"],"filesHash":")" +
                                             kHash + R"("}])"),
                             .start_command = "serve",
                             .ready_command = "curl",
                             .provision = Provision::kNo});
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_THAT(plan->labels,
              ElementsAre(Pair(kReadyCommandLabel, "curl"), Pair(kStartCommandLabel, "serve")));
  EXPECT_TRUE(plan->stages[0].needed);
  StageState state(*plan, {.env = {"HOME=/root"}});
  std::vector<Applied> all;
  for (const Step& step : plan->stages[0].steps) {
    auto applied = state.apply(step);
    ASSERT_TRUE(applied.has_value()) << applied.error().message();
    all.push_back(std::move(*applied));
  }
  ASSERT_EQ(all.size(), 8u);
  const auto& home = std::get<DirectoryAction>(all[1].action);
  EXPECT_EQ(home.path, "/home/user");
  EXPECT_EQ(home.owner, "user");
  const auto& make = std::get<RunAction>(all[2].action);
  EXPECT_THAT(make.command, ElementsAre("/bin/bash", "-l", "-c", "make $X"));
  EXPECT_EQ(make.user, "user");
  EXPECT_EQ(make.workdir, "/home/user");
  EXPECT_EQ(std::get<RunAction>(all[3].action).user, "root");
  EXPECT_TRUE(plan->stages[0].steps[3].force);
  EXPECT_THAT(state.config().env, ElementsAre("HOME=/root", "A=it's /root/x", "B=2"));
  EXPECT_EQ(std::get<DirectoryAction>(all[5].action).path, "/app$");
  EXPECT_EQ(std::get<RunAction>(all[6].action).user, "0");  // makes the user
  const auto& copy = std::get<CopyAction>(all[7].action);
  EXPECT_EQ(copy.archive, kHash);
  EXPECT_EQ(copy.destination, "/app$/dst");
  EXPECT_EQ(copy.owner, "me");
  EXPECT_EQ(copy.mode, 0644u);
  EXPECT_EQ(state.config().user, "me");
}

TEST(TemplateSteps, ForceOfTheWholeBuildAndProvision) {
  auto plan = plan_template({.image = "base", .force = true});
  ASSERT_TRUE(plan.has_value());
  EXPECT_TRUE(plan->stages[0].steps[0].force);
  EXPECT_EQ(std::get<RunStep>(plan->stages[0].steps[0].what).user, "0");
}

TEST(TemplateSteps, SayWhatIsWrong) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{}", "steps: allowed is a list"},
      {"[1]", "steps[0]: type: allowed are RUN"},
      {R"([{"type":"FROM"}])", "steps[0]: type: found 'FROM'; allowed are RUN, COPY"},
      {R"([{"type":"RUN","args":"x"}])", "steps[0]: args: allowed is a list of strings"},
      {R"([{"type":"RUN","args":[1]}])", "args: allowed are strings"},
      {R"([{"type":"RUN"}])", "RUN needs a command"},
      {R"([{"type":"ENV","args":["A"]}])", "ENV needs names, each with a value"},
      {R"([{"type":"USER","args":[]}])", "USER needs a name"},
      {R"([{"type":"WORKDIR"}])", "WORKDIR needs a path"},
      {R"([{"type":"COPY","args":["a"]}])", "COPY needs a source and a destination"},
      {R"([{"type":"COPY","args":["a","b"]}])", "filesHash: allowed are 64"},
      {R"([{"type":"COPY","args":["a","b"],"filesHash":1}])", "filesHash: allowed is a string"},
      {R"([{"type":"RUN","args":["a"],"force":1}])", "force: allowed are true and false"},
  };
  for (const auto& [text, words] : kCases) EXPECT_THAT(error_of(text), HasSubstr(words)) << text;
  EXPECT_FALSE(plan_template({.image = "UPPER CASE"}).has_value());
  std::vector<TemplateStep> many(kMaxTemplateSteps + 1, TemplateStep{.type = "RUN", .args = {"x"}});
  EXPECT_EQ(plan_template({.image = "base", .steps = many}).error().code(),
            Code::kResourceExhausted);
}

TEST(TemplateSteps, FailuresReadAsTheClientsExpect) {
  StepFailure failure;
  failure.step = "RUN make all";
  failure.reason = "exit status 2";
  EXPECT_EQ(template_error(failure), "failed to run command 'make all': exit status 2");
  failure.step = "RUN whoami";
  failure.unknown_user = "root123";
  EXPECT_EQ(template_error(failure),
            "failed to run command 'whoami': command failed: unauthenticated: invalid username: "
            "'root123'");
  StepFailure copy;
  copy.step = "COPY a b";
  copy.reason = "the archive has no 'a'";
  EXPECT_EQ(template_error(copy), "COPY a b: the archive has no 'a'");
}

}  // namespace
}  // namespace caisson::build
