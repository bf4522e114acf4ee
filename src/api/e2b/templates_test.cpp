#include "api/e2b/templates.h"

#include <gtest/gtest.h>

#include "api/service_for_test.h"

namespace caisson::api {
namespace {

class TemplatesTest : public testing::Test, public ServiceFixture {
 protected:
  TemplatesTest() {
    TemplateView view;
    view.id = "base";
    view.names = {"base"};
    view.access = TemplateView::Access::kPublic;
    view.build_id = "b1";
    view.memory_mib = 512;
    view.created = view.updated = FakeFleet::start();
    templates.views = {view};
  }
};

TEST_F(TemplatesTest, AnAliasThatIsThereSaysWhose) {
  const FakeExchange exchange = call("GET", "/templates/aliases/base");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer, R"({"templateID":"base","public":true})");
}

TEST_F(TemplatesTest, AnAliasThatIsNotThereIsNotFound) {
  EXPECT_NE(refusal(call("GET", "/templates/aliases/nope"), 404), "");
}

TEST_F(TemplatesTest, AnotherTeamsAliasIsForbidden) {
  templates.failure = Error(Code::kPermissionDenied, "the name is another team's");
  EXPECT_EQ(refusal(call("GET", "/templates/aliases/base"), 403), "the name is another team's");
}

TEST_F(TemplatesTest, TheListShowsAll) {
  for (const char* path : {"/templates", "/v2/templates"}) {
    const FakeExchange exchange = call("GET", path);
    EXPECT_EQ(exchange.status, 200);
    EXPECT_EQ(exchange.answer,
              R"([{"templateID":"base","buildID":"b1","cpuCount":1,"memoryMB":512,"diskSizeMB":0,)"
              R"("public":true,"aliases":["base"],"names":["base"],)"
              R"("createdAt":"2026-01-02T03:04:05.678000Z",)"
              R"("updatedAt":"2026-01-02T03:04:05.678000Z","createdBy":null,)"
              R"("lastSpawnedAt":null,"spawnCount":0,"buildCount":1,"envdVersion":"0.6.13",)"
              R"("buildStatus":"ready"}])");
  }
}

TEST_F(TemplatesTest, ANewOneIsABuildThatWaits) {
  const FakeExchange exchange =
      call("POST", "/v3/templates",
           R"({"name":"tools:v1","tags":["a"],"cpuCount":2,"memoryMB":1024,"other":1})");
  EXPECT_EQ(exchange.status, 202);
  EXPECT_EQ(exchange.answer,
            R"({"templateID":"t1","buildID":"b1","public":false,"aliases":["tools:v1"],)"
            R"("names":["ours/tools:v1"],"tags":["a"]})");
  EXPECT_EQ(templates.wanted.cpus, 2u);
  EXPECT_EQ(templates.wanted.memory_mib, 1024u);
  EXPECT_EQ(call("POST", "/v3/templates", R"({"alias":"old"})").status, 202);
  EXPECT_EQ(templates.wanted.name, "old");
  EXPECT_EQ(call("POST", "/v2/templates", R"({"alias":"older"})").status, 202);
  EXPECT_EQ(templates.wanted.name, "older");
}

TEST_F(TemplatesTest, ANewOneThatCannotBeIsRefused) {
  for (const char* body : {"", "[]", "{}", R"({"name":""})", R"({"name":1})",
                           R"({"name":"a","cpuCount":0})", R"({"name":"a","memoryMB":127})",
                           R"({"name":"a","tags":"b"})", R"({"name":"a","tags":[1]})"}) {
    EXPECT_NE(refusal(call("POST", "/v3/templates", body), 400), "") << body;
  }
  templates.failure = Error::exhausted("too many");
  EXPECT_EQ(refusal(call("POST", "/v3/templates", R"({"name":"a"})"), 429), "too many");
}

TEST_F(TemplatesTest, OneIsShownWithItsBuilds) {
  templates.builds_now = {{.id = "b1",
                           .status = db::BuildStatus::kReady,
                           .size = {.cpu_milli = 1500, .memory = 512ull << 20, .disk = 0},
                           .created_ms = 1,
                           .finished_ms = 2}};
  const FakeExchange exchange = call("GET", "/templates/base");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(
      exchange.answer,
      R"({"templateID":"base","public":true,"aliases":["base"],"names":["base"],)"
      R"("createdAt":"2026-01-02T03:04:05.678000Z",)"
      R"("updatedAt":"2026-01-02T03:04:05.678000Z","lastSpawnedAt":null,"spawnCount":0,)"
      R"("builds":[{"buildID":"b1","status":"ready",)"
      R"("createdAt":"1970-01-01T00:00:00.001000Z","updatedAt":"1970-01-01T00:00:00.002000Z",)"
      R"("finishedAt":"1970-01-01T00:00:00.002000Z","cpuCount":2,"memoryMB":512,)"
      R"("envdVersion":"0.6.13"}]})");
  EXPECT_EQ(call("GET", "/templates/none").status, 404);
}

TEST_F(TemplatesTest, OneIsRemoved) {
  EXPECT_EQ(call("DELETE", "/templates/base").status, 204);
  EXPECT_EQ(call("DELETE", "/templates/ours%2Ftools:default").status, 404);
  EXPECT_EQ(templates.named, "ours/tools:default");
  templates.failure = Error(Code::kPermissionDenied, "it is the server's");
  EXPECT_EQ(refusal(call("DELETE", "/templates/base"), 403), "it is the server's");
}

TEST_F(TemplatesTest, OneIsMadePublic) {
  EXPECT_EQ(call("PATCH", "/templates/base", R"({"public":true})").answer, "{}");
  EXPECT_EQ(templates.access, TemplateView::Access::kPublic);
  EXPECT_EQ(call("PATCH", "/v2/templates/base", R"({"public":false})").answer,
            R"({"aliases":["base"],"names":["base"]})");
  EXPECT_EQ(templates.access, TemplateView::Access::kTeam);
  templates.access.reset();
  EXPECT_EQ(call("PATCH", "/v2/templates/base", "{}").status, 200);
  EXPECT_EQ(templates.access, std::nullopt);
  EXPECT_NE(refusal(call("PATCH", "/v2/templates/base", R"({"public":1})"), 400), "");
}

TEST_F(TemplatesTest, AListThatFailsIsAnError) {
  templates.failure = Error::internal("the database is locked");
  EXPECT_EQ(call("GET", "/templates").status, 500);
}

}  // namespace
}  // namespace caisson::api
