#include "wall/handouts.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace caisson::wall {
namespace {

Fd some_file() {
  return Fd(::eventfd(0, EFD_CLOEXEC));
}

// As if they had travelled.
std::vector<Fd> copies(const std::vector<int>& numbers) {
  std::vector<Fd> made;
  for (const int number : numbers) made.emplace_back(::dup(number));
  return made;
}

TEST(Handouts, ComeBackAsTheyWere) {
  Handouts handouts;
  handouts.layer = some_file();
  handouts.record = some_file();
  handouts.uid_lines = "0 1879048192 65536\n";
  handouts.gid_lines = "0 100 1\n1 200 65535\n";
  handouts.trusted_attributes = true;
  auto again = decode_handouts(encode_handouts(handouts), copies(descriptors_of(handouts)));
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->layer.valid() && again->record.valid());
  EXPECT_FALSE(again->egress.valid());
  EXPECT_EQ(again->uid_lines, handouts.uid_lines);
  EXPECT_EQ(again->gid_lines, handouts.gid_lines);
  EXPECT_TRUE(again->trusted_attributes);

  Handouts listener;
  listener.egress = some_file();
  again = decode_handouts(encode_handouts(listener), copies(descriptors_of(listener)));
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->egress.valid());
  EXPECT_FALSE(again->layer.valid());
  EXPECT_FALSE(again->gateway.valid());
  EXPECT_TRUE(decode_handouts(encode_handouts({}), {}).has_value());
}

TEST(Handouts, AGatewayComesBackWholeAndInOrder) {
  Handouts handouts;
  Gateway& gateway = handouts.gateway;
  Fd* const files[] = {&gateway.tcp, &gateway.dns_udp, &gateway.dns_tcp, &gateway.namespace_fd};
  // Each is known again by what it counts.
  std::uint64_t count = 0;
  for (Fd* const file : files) *file = Fd(::eventfd(static_cast<unsigned>(++count), EFD_CLOEXEC));
  auto again = decode_handouts(encode_handouts(handouts), copies(descriptors_of(handouts)));
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->gateway.valid());
  std::uint64_t expected = 0;
  for (const Fd* file : {&again->gateway.tcp, &again->gateway.dns_udp, &again->gateway.dns_tcp,
                         &again->gateway.namespace_fd}) {
    ASSERT_EQ(::read(file->get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
    EXPECT_EQ(count, ++expected);
  }
}

TEST(Handouts, RefuseWhatDoesNotBelongTogether) {
  const auto decode = [](std::string_view text, int count) {
    std::vector<Fd> files;
    for (int i = 0; i < count; ++i) files.push_back(some_file());
    return decode_handouts(text, std::move(files)).has_value();
  };
  using namespace std::string_view_literals;
  EXPECT_TRUE(decode("1100\0"sv, 2));
  EXPECT_FALSE(decode(""sv, 0));
  EXPECT_FALSE(decode("1100"sv, 2));
  EXPECT_FALSE(decode("110\0"sv, 2));
  EXPECT_FALSE(decode("2100\0"sv, 2));
  EXPECT_FALSE(decode("1100\0"sv, 1));
  EXPECT_FALSE(decode("1100\0"sv, 3));
  EXPECT_FALSE(decode("1000\0"sv, 1));
  EXPECT_FALSE(decode("0100\0"sv, 1));
  // A part of a gateway, and one that nobody speaks of.
  EXPECT_TRUE(decode("g0000\0"sv, 4));
  EXPECT_TRUE(decode("g1100\0"sv, 6));
  for (const int count : {0, 1, 2, 3, 5}) EXPECT_FALSE(decode("g0000\0"sv, count));
  EXPECT_FALSE(decode("0000\0"sv, 4));
  EXPECT_FALSE(decode("gg0000\0"sv, 8));
  EXPECT_FALSE(decode(std::string("0000") + std::string(kMostHandoutText, '1') + '\0', 0));
}

}  // namespace
}  // namespace caisson::wall
