// What every route of /v1 answers alike; and that the tests of this program have produced every
// response that docs/api.yaml has, and no other.

#include <algorithm>

#include "api/body.h"
#include "api/documents_for_test.h"
#include "api/v1/routes.h"
#include "api/v1/scene_for_test.h"

namespace caisson::api::v1 {
namespace {

// A request that each route takes, but for what the test is about.
struct Operation {
  std::string method, target;
  std::string body;
  bool reads_json = false;
};

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t place = text.find(from);
  return place == std::string::npos ? text : text.replace(place, from.size(), to);
}

std::vector<Operation> operations() {
  const std::vector<std::tuple<std::string, std::string, std::string>> bodies = {
      {"PUT", "/deadline", R"({"seconds":1})"},
      {"PUT", "/network", R"({"network":"deny"})"},
      {"POST", "/resume", R"({"seconds":1})"},
      {"POST", "/exec", R"({"command":["a"]})"},
      {"POST", "/commands", R"({"command":["a"]})"},
      {"POST", "/signal", R"({"signal":1})"},
      {"PUT", "/terminal", R"({"columns":1,"rows":1})"},
      {"PATCH", "/files", R"({"mode":1})"},
      {"PUT", "/link", R"({"target":"y"})"},
      {"POST", "/move", R"({"to":"/y"})"},
      {"POST", "/v1/sandboxes", R"({"spec":{"image":"base"}})"}};
  std::vector<Operation> all;
  for (const auto routes : {sandbox_routes(), command_routes(), file_routes(), fact_routes()}) {
    for (const Route& route : routes) {
      Operation operation{std::string(route.method), std::string(route.pattern), ""};
      const std::string pattern(route.pattern);
      for (const auto& [method, end, body] : bodies) {
        if (operation.method != method || !pattern.ends_with(end)) continue;
        operation.body = body;
        operation.reads_json = true;
      }
      operation.target = replaced(replaced(pattern, "{id}", "i1"), "{number}", "3");
      if (pattern.contains("/files")) operation.target += "?path=/x";
      all.push_back(std::move(operation));
    }
  }
  return all;
}

bool is_below_a_sandbox(const Operation& operation) {
  return operation.target.starts_with("/v1/sandboxes/");
}

// Those that ask the sandbox itself.
bool goes_inside(const Operation& operation) {
  const std::string& target = operation.target;
  return is_below_a_sandbox(operation) && target != "/v1/sandboxes/i1" &&
         !target.ends_with("/deadline") && !target.ends_with("/network") &&
         !target.ends_with("/pause") && !target.ends_with("/resume");
}

using V1Responses = Scene;

TEST_F(V1Responses, WithoutAKeyNothingIsAnswered) {
  for (const Operation& operation : operations()) {
    FakeExchange exchange(operation.method, operation.target, {}, operation.body);
    handle(exchange);
    EXPECT_EQ(exchange.status, 401) << operation.method << " " << operation.target;
  }
}

TEST_F(V1Responses, ASandboxThatIsNotThereIsNotFound) {
  for (const Operation& operation : operations()) {
    if (!is_below_a_sandbox(operation)) continue;
    refusal(call(operation.method, operation.target, operation.body), 404);
  }
}

TEST_F(V1Responses, APausedSandboxTakesNoRequests) {
  sandbox().view_now.state = fleet::State::kPaused;
  for (const Operation& operation : operations()) {
    if (!goes_inside(operation) && !operation.target.ends_with("/deadline")) continue;
    refusal(call(operation.method, operation.target, operation.body), 409);
  }
}

TEST_F(V1Responses, ASandboxWithoutAConnectionIsUnavailable) {
  sandbox();
  for (const Operation& operation : operations()) {
    if (!goes_inside(operation)) continue;
    refusal(call(operation.method, operation.target, operation.body), 503);
  }
}

TEST_F(V1Responses, ABodyIsBoundedAndJson) {
  sandbox();
  for (const Operation& operation : operations()) {
    if (!operation.reads_json) continue;
    refusal(call(operation.method, operation.target, std::string(kMostBody + 1, ' ')), 413);
    refusal(call(operation.method, operation.target, "[]"), 400);
  }
}

// ---- the document

bool runs_whole() {
  const testing::UnitTest& test = *testing::UnitTest::GetInstance();
  return test.test_to_run_count() == test.total_test_count();
}

class DocumentCheck final : public testing::Environment {
 public:
  void TearDown() override {
    // A part of the tests produces a part of the responses.
    if (!runs_whole()) return;
    std::set<std::string> seen;
    // Any operation may answer 500; the document says so once. 0: cut off before its head.
    std::ranges::copy_if(responses_seen(), std::inserter(seen, seen.end()),
                         [](const std::string& response) {
                           return !response.ends_with(" 500") && !response.ends_with(" 0");
                         });
    const std::set<std::string> documented = documented_v1().responses;
    std::string unproduced, undocumented;
    for (const std::string& one : documented) unproduced += seen.contains(one) ? "" : "\n" + one;
    for (const std::string& one : seen) undocumented += documented.contains(one) ? "" : "\n" + one;
    EXPECT_EQ(unproduced, "") << "is in docs/api.yaml, and no test produces it";
    EXPECT_EQ(undocumented, "") << "was answered, and is not in docs/api.yaml";
  }
};

// GoogleTest owns it.
[[maybe_unused]] testing::Environment* const kDocumentCheck =
    testing::AddGlobalTestEnvironment(new DocumentCheck);

}  // namespace
}  // namespace caisson::api::v1
