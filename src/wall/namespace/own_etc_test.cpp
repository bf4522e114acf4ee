#include "wall/namespace/own_etc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace caisson::wall {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> names(const std::vector<image::GeneratedFile>& files) {
  std::vector<std::string> all;
  for (const image::GeneratedFile& file : files) all.emplace_back(etc_name(file));
  return all;
}

TEST(OwnEtc, OverTheKeptOneLiesWhatDiffers) {
  Plan plan;
  EXPECT_THAT(names(files_over_kept_etc(plan)), UnorderedElementsAre("machine-id"));
  plan.hostname = "other";
  EXPECT_THAT(names(files_over_kept_etc(plan)),
              UnorderedElementsAre("machine-id", "hosts", "hostname"));
  plan.network = PlanNetwork::kGateway;
  EXPECT_THAT(
      names(files_over_kept_etc(plan)),
      UnorderedElementsAre("machine-id", "hosts", "hostname", "resolv.conf", "nsswitch.conf"));
  plan.hostname = Plan().hostname;
  EXPECT_THAT(names(files_over_kept_etc(plan)),
              UnorderedElementsAre("machine-id", "resolv.conf", "nsswitch.conf"));
}

TEST(OwnEtc, AGatewayIsTheNameServer) {
  Plan plan;
  const auto resolver = [&] {
    for (const image::GeneratedFile& file : own_etc_files(plan))
      if (etc_name(file) == "resolv.conf") return file.contents;
    return std::string("absent");
  };
  EXPECT_EQ(resolver().find("nameserver"), std::string::npos);
  plan.network = PlanNetwork::kGateway;
  EXPECT_THAT(resolver(), HasSubstr("nameserver 10.200.0.1\n"));
}

}  // namespace
}  // namespace caisson::wall
