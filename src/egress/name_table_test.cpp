#include "egress/name_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace caisson::egress {
namespace {

using policy::Cidr;
using policy::IpAddress;
using ::testing::HasSubstr;

std::unique_ptr<NameTable> table_of(std::size_t names, const char* v4 = "198.18.0.0/15",
                                    const char* v6 = "fd00:5a:d::/64") {
  return NameTable::create({*Cidr::parse(v4), *Cidr::parse(v6), names}).value();
}

std::string fault_of(std::size_t names, const char* v4, const char* v6) {
  const auto made = NameTable::create({*Cidr::parse(v4), *Cidr::parse(v6), names});
  EXPECT_FALSE(made.has_value());
  return made.has_value() ? "" : made.error().message();
}

IpAddress address(std::string_view text) {
  return IpAddress::parse(text).value();
}

std::string nth(int i) {
  return "n" + std::to_string(i) + ".example.com";
}

TEST(NameTable, GivesEachNameAddressesOfBothFamilies) {
  const auto table = NameTable::create(NameTableLimits::defaults()).value();
  const SyntheticAddresses first = table->addresses_of("a.example.com").value();
  EXPECT_EQ(first.v4.to_string(), "198.18.0.1");
  EXPECT_EQ(first.v6.to_string(), "fd00:5a:d::1");
  const SyntheticAddresses second = table->addresses_of("b.example.com").value();
  EXPECT_EQ(second.v4.to_string(), "198.18.0.2");
  EXPECT_EQ(second.v6.to_string(), "fd00:5a:d::2");
  EXPECT_EQ(table->addresses_of("a.example.com"), first);
  EXPECT_EQ(table->size(), 2u);
  EXPECT_EQ(table->capacity(), 4096u);
}

TEST(NameTable, KnowsTheNameOfAnAddress) {
  const auto table = table_of(16, "10.1.2.240/28", "2001:db8::ff00/120");
  const SyntheticAddresses given = table->addresses_of("a.example.com").value();
  EXPECT_EQ(given.v4.to_string(), "10.1.2.241");
  EXPECT_EQ(given.v6.to_string(), "2001:db8::ff01");
  EXPECT_EQ(table->name_of(given.v4), "a.example.com");
  EXPECT_EQ(table->name_of(given.v6), "a.example.com");
  for (const char* other :
       {"10.1.2.240", "10.1.2.242", "10.1.3.241", "9.1.2.241", "10.1.2.0", "2001:db8::ff00",
        "2001:db8::ff02", "2001:db8::1:ff01", "2001:db8::1", "fd00::ff01", "0.0.0.0", "::"}) {
    EXPECT_EQ(table->name_of(address(other)), std::nullopt) << other;
    EXPECT_FALSE(table->pin(address(other)).has_value()) << other;
  }
}

TEST(NameTable, SaysWhetherAnAddressLiesInItsBlocks) {
  const auto table = table_of(4096);
  for (const char* inside : {"198.18.0.0", "198.19.255.255", "fd00:5a:d::", "fd00:5a:d::ffff:0:1"})
    EXPECT_TRUE(table->is_synthetic(address(inside))) << inside;
  for (const char* outside : {"198.17.255.255", "198.20.0.0", "fd00:5a:d:1::", "fd00:5a:c::1"})
    EXPECT_FALSE(table->is_synthetic(address(outside))) << outside;
}

TEST(NameTable, RefusesBlocksThatItCannotUse) {
  EXPECT_THAT(fault_of(16, "fd00::/64", "fd00:1::/64"), HasSubstr("fd00::/64 must be IPv4"));
  EXPECT_THAT(fault_of(16, "10.0.0.0/8", "10.0.0.0/8"), HasSubstr("10.0.0.0/8 must be IPv6"));
  EXPECT_THAT(fault_of(16, "10.0.0.0/29", "fd00::/64"), HasSubstr("at most /28"));
  EXPECT_THAT(fault_of(16, "10.0.0.0/28", "fd00::/125"), HasSubstr("at most /124"));
  EXPECT_THAT(fault_of(0, "10.0.0.0/28", "fd00::/64"), HasSubstr("1 to 4096 names, not 0"));
  EXPECT_THAT(fault_of(4097, "10.0.0.0/8", "fd00::/64"), HasSubstr("not 4097"));
  // The largest blocks there are.
  EXPECT_EQ(table_of(4096, "0.0.0.0/0", "::/0")->capacity(), 4096u);
}

TEST(NameTable, ASmallBlockHoldsHalfAsManyNamesAsAddresses) {
  EXPECT_EQ(table_of(4096, "10.0.0.0/28")->capacity(), 7u);
  EXPECT_EQ(table_of(4096, "10.0.0.0/8", "fd00::/120")->capacity(), 127u);
  EXPECT_EQ(table_of(5, "10.0.0.0/28")->capacity(), 5u);
}

TEST(NameTable, TheNameUsedLongestAgoMakesRoom) {
  const auto table = table_of(3);
  const auto a = table->addresses_of("a.example.com").value();
  const auto b = table->addresses_of("b.example.com").value();
  const auto c = table->addresses_of("c.example.com").value();
  table->addresses_of("a.example.com").value();  // asked again
  ASSERT_TRUE(table->pin(b.v4).has_value());     // a connection, closed at once
  table->addresses_of("d.example.com").value();
  EXPECT_EQ(table->name_of(c.v4), std::nullopt);
  EXPECT_EQ(table->name_of(c.v6), std::nullopt);
  EXPECT_EQ(table->name_of(a.v4), "a.example.com");
  EXPECT_EQ(table->name_of(b.v4), "b.example.com");
  EXPECT_EQ(table->size(), 3u);
}

TEST(NameTable, LookingUpAnAddressDoesNotKeepItsName) {
  const auto table = table_of(2);
  const auto a = table->addresses_of("a.example.com").value();
  table->addresses_of("b.example.com").value();
  EXPECT_EQ(table->name_of(a.v4), "a.example.com");
  table->addresses_of("c.example.com").value();
  EXPECT_EQ(table->name_of(a.v4), std::nullopt);
}

TEST(NameTable, AnAddressComesIntoUseAgainLastOfAll) {
  // Fifteen addresses, three names at once.
  const auto table = table_of(3, "10.0.0.0/28");
  std::vector<IpAddress> given;
  for (int i = 0; i < 100; ++i) given.push_back(table->addresses_of(nth(i)).value().v4);
  for (std::size_t i = 0; i < given.size(); ++i) {
    for (std::size_t later = i + 1; later < std::min(given.size(), i + 15); ++later)
      EXPECT_NE(given[i], given[later]) << i << " " << later;
  }
  EXPECT_EQ(given[15], given[0]);
  EXPECT_EQ(table->size(), 3u);
}

TEST(NameTable, ANameThatComesBackHasOtherAddresses) {
  const auto table = table_of(1);
  const auto before = table->addresses_of("a.example.com").value();
  table->addresses_of("b.example.com").value();
  EXPECT_NE(table->addresses_of("a.example.com").value(), before);
}

TEST(NameTable, ANameWithOpenConnectionsNeverMakesRoom) {
  const auto table = table_of(4, "10.0.0.0/28");
  const auto held = table->addresses_of("held.example.com").value();
  auto first = table->pin(held.v4);
  auto second = table->pin(held.v6);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(second->name(), "held.example.com");
  EXPECT_EQ(table->pinned(), 1u);
  for (int i = 0; i < 1000; ++i) {
    const auto other = table->addresses_of(nth(i)).value();
    ASSERT_NE(other.v4, held.v4);
    ASSERT_EQ(table->name_of(held.v4), "held.example.com");
  }
  EXPECT_EQ(table->addresses_of("held.example.com"), held);

  first.reset();
  for (int i = 0; i < 10; ++i) table->addresses_of(nth(i)).value();
  EXPECT_EQ(table->name_of(held.v6), "held.example.com");

  second.reset();
  EXPECT_EQ(table->pinned(), 0u);
  for (int i = 0; i < 10; ++i) table->addresses_of(nth(i)).value();
  EXPECT_EQ(table->name_of(held.v6), std::nullopt);
}

TEST(NameTable, FullOfOpenConnectionsItTakesNoOtherName) {
  const auto table = table_of(3);
  std::vector<NameTable::Pin> pins;
  for (int i = 0; i < 3; ++i)
    pins.push_back(table->pin(table->addresses_of(nth(i)).value().v4).value());
  const auto refused = table->addresses_of("other.example.com");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("all 3 names"));
  // Those that are there still answer.
  EXPECT_EQ(table->name_of(table->addresses_of(nth(1)).value().v4), nth(1));

  pins.erase(pins.begin());
  EXPECT_TRUE(table->addresses_of("other.example.com").has_value());
}

TEST(NameTable, APinIsMovedAndReleasedOnce) {
  const auto table = table_of(3);
  auto a = table->pin(table->addresses_of("a.example.com").value().v4).value();
  auto b = table->pin(table->addresses_of("b.example.com").value().v4).value();
  EXPECT_EQ(table->pinned(), 2u);
  NameTable::Pin moved = std::move(a);
  EXPECT_EQ(moved.name(), "a.example.com");
  EXPECT_EQ(table->pinned(), 2u);
  moved = std::move(b);
  EXPECT_EQ(moved.name(), "b.example.com");
  EXPECT_EQ(table->pinned(), 1u);
  NameTable::Pin& itself = moved;
  moved = std::move(itself);
  EXPECT_EQ(moved.name(), "b.example.com");
  EXPECT_EQ(table->pinned(), 1u);
}

TEST(NameTable, IsDeterministic) {
  const auto one = table_of(8, "10.0.0.0/27"), other = table_of(8, "10.0.0.0/27");
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const std::string name = nth(static_cast<int>(random() % 20));
    ASSERT_EQ(one->addresses_of(name).value(), other->addresses_of(name).value());
  }
}

// Whatever happens, a connection's address means the name it was opened for.
TEST(NameTable, NoAddressWithAnOpenConnectionChangesItsName) {
  struct Open {
    IpAddress address;
    std::string name;
    NameTable::Pin pin;
  };
  const auto table = table_of(10, "10.0.0.0/27", "fd00::/120");
  std::mt19937 random(11);
  std::vector<Open> open;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = nth(static_cast<int>(random() % 60));
    const auto given = table->addresses_of(name);
    if (!given) {
      ++refused;
      ASSERT_EQ(table->pinned(), table->capacity());
    } else if (random() % 3 == 0) {
      const IpAddress& used = random() % 2 == 0 ? given->v4 : given->v6;
      open.push_back({used, name, table->pin(used).value()});
    }
    if (!open.empty() && (open.size() > 14 || random() % 4 == 0))
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(random() % open.size()));
    ASSERT_LE(table->size(), table->capacity());
    for (const Open& one : open) {
      ASSERT_EQ(table->name_of(one.address), one.name);
      ASSERT_EQ(one.pin.name(), one.name);
    }
  }
  EXPECT_GT(refused, 0);
  open.clear();
}

TEST(NameTable, FourThousandNamesAndMoreHaveAddressesOfTheirOwn) {
  const auto table = NameTable::create(NameTableLimits::defaults()).value();
  std::set<IpAddress> seen;
  for (int i = 0; i < 20'000; ++i) {
    const auto given = table->addresses_of(nth(i)).value();
    ASSERT_TRUE(table->is_synthetic(given.v4) && table->is_synthetic(given.v6));
    ASSERT_TRUE(seen.insert(given.v4).second && seen.insert(given.v6).second);
  }
  EXPECT_EQ(table->size(), 4096u);
}

using NameTableDeath = ::testing::Test;

TEST(NameTableDeath, ATableDoesNotGoBeforeItsPins) {
  EXPECT_DEATH(
      {
        auto table = table_of(3);
        auto pin = table->pin(table->addresses_of("a.example.com").value().v4).value();
        table.reset();
      },
      "pinned\\(\\) == 0");
}

}  // namespace
}  // namespace caisson::egress
