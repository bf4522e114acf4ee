#include "egress/served_domain.h"

#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

const ServedDomain kServed{.domain = "e2b.example.com",
                           .port = 8443,
                           .address = "127.0.0.1:18443",
                           .authority = "-----BEGIN"};

policy::Host host(std::string_view text) {
  return policy::canonical_host(text).value();
}

TEST(ServedDomain, HasTheNamesOfSandboxesPortsAlone) {
  for (const char* name : {"8080-abc.e2b.example.com", "49983-i1.e2b.example.com",
                           "8080-abc-0badc0de.e2b.example.com", "8080-ABC.E2B.example.com."})
    EXPECT_TRUE(kServed.has(host(name), 8443)) << name;
  for (const char* name :
       {"e2b.example.com", "api.e2b.example.com", "abc.e2b.example.com", "-abc.e2b.example.com",
        "8080-.e2b.example.com", "x8080-abc.e2b.example.com", "808080-abc.e2b.example.com",
        "8080-abc.api.e2b.example.com", "8080-abce2b.example.com",
        "8080-abc.e2b.example.com.evil.test", "8080-abc.xe2b.example.com", "127.0.0.1"})
    EXPECT_FALSE(kServed.has(host(name), 8443)) << name;
  EXPECT_FALSE(kServed.has(host("8080-abc.e2b.example.com"), 443));
  EXPECT_FALSE(ServedDomain().has(host("8080-abc.e2b.example.com"), 0));
}

TEST(ServedDomain, IsReadAsItWasWritten) {
  const auto read = parse_served_domain(encode(kServed));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(*read, kServed);
}

TEST(ServedDomain, AnythingElseIsRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"domain":"a.example.com","port":0,"address":"x","authority":""})",
        R"({"domain":"a.example.com","port":65536,"address":"x","authority":""})",
        R"({"domain":"A.example.com","port":1,"address":"x","authority":""})",
        R"({"domain":"1.2.3.4","port":1,"address":"x","authority":""})",
        R"({"domain":"a.example.com","port":1,"address":"x"})"})
    EXPECT_FALSE(parse_served_domain(text).has_value()) << text;
}

}  // namespace
}  // namespace caisson::egress
