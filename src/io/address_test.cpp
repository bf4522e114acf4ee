#include "io/address.h"

#include <gtest/gtest.h>

namespace caisson::io {
namespace {

TEST(Address, ReadsAndWritesBothFamilies) {
  for (const char* text : {"127.0.0.1:0", "10.1.2.3:65535", "[::1]:80", "[2001:db8::7]:443"}) {
    const auto address = parse_address(text);
    EXPECT_TRUE(address.has_value()) << text;
    if (address.has_value()) EXPECT_EQ(address->text(), text);
  }
}

TEST(Address, RefusesWhatIsNoAddressAndSaysWhatIsAllowed) {
  for (const char* text :
       {"", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80x",
        "localhost:80", "::1:80", "[::1]80", "[]:80", "[127.0.0.1]:80", "1.2.3:80"}) {
    const auto address = parse_address(text);
    ASSERT_FALSE(address.has_value()) << text;
    EXPECT_EQ(address.error().code(), Code::kInvalidArgument);
    EXPECT_NE(address.error().message().find("HOST:PORT"), std::string::npos);
  }
}

TEST(Address, OfAUnixSocketIsEmpty) {
  SocketAddress address;
  EXPECT_EQ(address.text(), "");
  EXPECT_EQ(address.port(), 0);
}

}  // namespace
}  // namespace caisson::io
