#include "api/instruments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::api {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(InstrumentsTest, RequestsAreCountedByPlaneAndClass) {
  Instruments instruments;
  for (const int status : {200, 204, 404, 0}) {
    instruments.begin(Plane::kControl);
    instruments.end(Plane::kControl, status, milliseconds(1));
  }
  const std::string text = instruments.text({});
  EXPECT_THAT(text, HasSubstr("caisson_requests_total{plane=\"control\",status=\"2xx\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("caisson_requests_total{plane=\"control\",status=\"4xx\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("caisson_requests_total{plane=\"control\",status=\"none\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("caisson_requests_total{plane=\"sandbox\",status=\"2xx\"} 0\n"));
}

TEST(InstrumentsTest, WhatIsUnderWayIsShown) {
  Instruments instruments;
  instruments.begin(Plane::kPort);
  EXPECT_THAT(instruments.text({}), HasSubstr("caisson_requests_under_way{plane=\"port\"} 1\n"));
  instruments.end(Plane::kPort, 502, milliseconds(1));
  EXPECT_THAT(instruments.text({}), HasSubstr("caisson_requests_under_way{plane=\"port\"} 0\n"));
}

TEST(InstrumentsTest, BucketsAreCumulative) {
  Instruments instruments;
  instruments.begin(Plane::kControl);
  instruments.end(Plane::kControl, 200, milliseconds(4));
  instruments.begin(Plane::kControl);
  instruments.end(Plane::kControl, 200, milliseconds(40));
  const std::string text = instruments.text({});
  EXPECT_THAT(text, HasSubstr("_bucket{plane=\"control\",le=\"0.0025\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("_bucket{plane=\"control\",le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("_bucket{plane=\"control\",le=\"0.05\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("_bucket{plane=\"control\",le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("caisson_request_seconds_count{plane=\"control\"} 2\n"));
}

TEST(InstrumentsTest, WhatOthersCountIsShown) {
  Instruments::Gauges gauges;
  gauges.fleet = {.running = 3,
                  .paused = 1,
                  .refused_by_quota = 6,
                  .refused_full = 7,
                  .pool_ready = 8,
                  .pool_wanted = 9,
                  .pool_taken = 10,
                  .pool_missed = 11,
                  .events_lost = 12};
  gauges.log_lines_lost = 13;
  gauges.server.connections = 4;
  gauges.server.refused_total = 5;
  const std::string text = Instruments().text(gauges);
  EXPECT_THAT(text, HasSubstr("caisson_sandboxes_running 3\n"));
  EXPECT_THAT(text, HasSubstr("caisson_sandboxes_paused 1\n"));
  EXPECT_THAT(text, HasSubstr("caisson_sandboxes_refused_total{limit=\"team\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("caisson_sandboxes_refused_total{limit=\"server\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("caisson_pool_ready 8\n"));
  EXPECT_THAT(text, HasSubstr("caisson_pool_wanted 9\n"));
  EXPECT_THAT(text, HasSubstr("caisson_pool_taken_total 10\n"));
  EXPECT_THAT(text, HasSubstr("caisson_pool_missed_total 11\n"));
  EXPECT_THAT(text, HasSubstr("caisson_sandbox_log_entries_lost_total 12\n"));
  EXPECT_THAT(text, HasSubstr("caisson_server_log_lines_lost_total 13\n"));
  EXPECT_THAT(text, HasSubstr("caisson_connections 4\n"));
  EXPECT_THAT(text, HasSubstr("caisson_refused_total 5\n"));
}

}  // namespace
}  // namespace caisson::api
