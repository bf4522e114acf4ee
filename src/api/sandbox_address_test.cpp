#include "api/sandbox_address.h"

#include <gtest/gtest.h>

namespace caisson::api {
namespace {

std::optional<SandboxAddress> address_of(const http::Headers& headers,
                                         std::string_view domain = "example.com:8443") {
  const auto address = sandbox_address(headers, domain);
  EXPECT_TRUE(address.has_value());
  return address.value_or(std::nullopt);
}

std::string refusal(const http::Headers& headers) {
  const auto address = sandbox_address(headers, "example.com");
  EXPECT_FALSE(address.has_value());
  return address.has_value() ? "" : address.error().message();
}

TEST(SandboxAddressTest, AHostBelowTheDomainNamesPortAndId) {
  const SandboxAddress wanted{"iabc1", 3000};
  EXPECT_EQ(address_of({{"Host", "3000-iabc1.example.com:8443"}}), wanted);
  EXPECT_EQ(address_of({{"Host", "3000-IABC1.Example.com"}}), wanted);
  EXPECT_EQ(address_of({{"Host", "3000-iabc1-client.example.com"}}), wanted);
  EXPECT_EQ(address_of({{"Host", "3000-iabc1.example.com"}}, "example.com"), wanted);
}

TEST(SandboxAddressTest, OtherHostsAreTheControlPlanes) {
  for (const char* host : {"api.example.com", "my-api.example.com", "example.com", "127.0.0.1:3000",
                           "[::1]:3000", "[::1]", "3000-i1.a.example.com", "3000-i1.example.org",
                           "3000-i1xexample.com", "sandbox.example.com"}) {
    EXPECT_EQ(address_of({{"Host", host}}), std::nullopt) << host;
  }
  EXPECT_EQ(address_of({{"Host", "3000-i1.example.com"}}, ""), std::nullopt);
  EXPECT_EQ(address_of({}), std::nullopt);
}

TEST(SandboxAddressTest, HeadersNameThemOnOtherHosts) {
  EXPECT_EQ(address_of({{"Host", "127.0.0.1"}, {"E2b-Sandbox-Id", "i1"}}),
            (SandboxAddress{"i1", kEnvdPort}));
  EXPECT_EQ(address_of({{"Host", "sandbox.example.com"},
                        {"E2b-Sandbox-Id", "i1-client"},
                        {"E2b-Sandbox-Port", "49999"}}),
            (SandboxAddress{"i1", 49999}));
}

TEST(SandboxAddressTest, TheHostGoesBeforeTheHeaders) {
  EXPECT_EQ(address_of({{"Host", "80-i1.example.com"}, {"E2b-Sandbox-Id", "i2"}}),
            (SandboxAddress{"i1", 80}));
}

TEST(SandboxAddressTest, MalformedNamesAreRefused) {
  EXPECT_EQ(refusal({{"Host", "0-i1.example.com"}}),
            "the host: found \"0-i1\"; allowed is PORT-ID with a port from 1 to 65535 and a "
            "sandbox's id");
  for (const char* host :
       {"65536-i1.example.com", "80-.example.com", "80-i_1.example.com", "8x-i1.example.com"}) {
    EXPECT_NE(refusal({{"Host", host}}), "") << host;
  }
  EXPECT_NE(refusal({{"E2b-Sandbox-Id", ""}}), "");
  EXPECT_NE(refusal({{"E2b-Sandbox-Id", std::string(65, 'a')}}), "");
  EXPECT_EQ(refusal({{"E2b-Sandbox-Id", "i1"}, {"E2b-Sandbox-Port", "-1"}}),
            "E2b-Sandbox-Port: found \"-1\"; allowed is a port from 1 to 65535");
}

}  // namespace
}  // namespace caisson::api
