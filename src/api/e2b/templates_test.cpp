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

TEST_F(TemplatesTest, AListThatFailsIsAnError) {
  templates.failure = Error::internal("the database is locked");
  EXPECT_EQ(call("GET", "/templates").status, 500);
}

}  // namespace
}  // namespace caisson::api
