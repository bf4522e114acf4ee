#include "api/v1/listening.h"

#include <gtest/gtest.h>

namespace caisson::api::v1 {
namespace {

TEST(Listening, OnlySocketsThatListenAreFound) {
  const auto found = listening_ports(
      "  sl  local_address rem_address   st tx_queue\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n"
      "   1: 00000000:0016 00000000:0000 0A 00000000:00000000\n"
      "   2: 0100007F:9C40 0100007F:1F90 01 00000000:00000000\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], (ListeningPort{8080, "127.0.0.1"}));
  EXPECT_EQ(found[1], (ListeningPort{22, "0.0.0.0"}));
}

TEST(Listening, AddressesOfVersionSixAreRead) {
  const auto found = listening_ports(
      "   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A\n"
      "   1: 00000000000000000000000000000000:0051 00000000000000000000000000000000:0000 0A");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], (ListeningPort{80, "::1"}));
  EXPECT_EQ(found[1], (ListeningPort{81, "::"}));
}

TEST(Listening, WhatIsMalformedIsLeftOut) {
  for (const char* text :
       {"", "\n\n", "x", "0: 0100007F 0 0A", "0: 0100007F: 0 0A", "0: 0100007F:0000 0 0A",
        "0: 0100007F:12345 0 0A", "0: 0100007G:0050 0 0A", "0: 01:0050 0 0A", "0: :0050 0 0A",
        "0: 0100007F:0050 0", "0: 0100007F:0050 0 0A0"})
    EXPECT_TRUE(listening_ports(text).empty()) << text;
}

TEST(Listening, ThereAreNoMoreThanAThousand) {
  std::string table;
  for (int at = 0; at < 2000; ++at) table += "0: 0100007F:0050 0 0A\n";
  EXPECT_EQ(listening_ports(table).size(), 1000U);
}

}  // namespace
}  // namespace caisson::api::v1
