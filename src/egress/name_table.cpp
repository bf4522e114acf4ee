#include "egress/name_table.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/guards.h"

namespace caisson::egress {
namespace {

using policy::Cidr;
using policy::IpAddress;

constexpr unsigned kLeastHostBits = 4;
// For each name, so many numbers go round before one comes again.
constexpr std::size_t kNumbersForAName = 16;

unsigned host_bits(const Cidr& block) {
  return (block.network().is_v6() ? 128 : 32) - block.bits();
}

std::span<const std::uint8_t> bytes_of(const IpAddress& address) {
  return std::span(address.bytes()).first(address.is_v6() ? 16 : 4);
}

// The last four bytes as a number.
std::uint32_t tail_of(const IpAddress& address) {
  std::uint32_t tail = 0;
  for (const std::uint8_t byte : bytes_of(address).last(4)) tail = tail << 8 | byte;
  return tail;
}

// There are never more than fit into the tail: kMostNames * kNumbersForAName.
IpAddress nth_address(const Cidr& block, std::uint32_t number) {
  std::array<std::uint8_t, 16> bytes = block.network().bytes();
  const std::size_t size = bytes_of(block.network()).size();
  std::uint32_t tail = tail_of(block.network()) + 1 + number;
  for (std::size_t i = 0; i < 4; ++i, tail >>= 8) bytes[size - 1 - i] = tail & 0xff;
  if (size == 16) return IpAddress::v6(bytes);
  return IpAddress::v4({bytes[0], bytes[1], bytes[2], bytes[3]});
}

Status check_block(const Cidr& block, bool v6) {
  if (block.network().is_v6() == v6 && host_bits(block) >= kLeastHostBits) return {};
  return fail(Error::invalid("the block of synthetic addresses " + block.to_string() + " must be " +
                             (v6 ? "IPv6 with at most /124" : "IPv4 with at most /28")));
}

}  // namespace

NameTableLimits NameTableLimits::defaults() {
  return {Cidr::parse("198.18.0.0/15").value(), Cidr::parse("fd00:5a:d::/64").value()};
}

Result<std::unique_ptr<NameTable>> NameTable::create(const NameTableLimits& limits) {
  TRY(check_block(limits.v4, false));
  TRY(check_block(limits.v6, true));
  if (limits.names == 0 || limits.names > NameTableLimits::kMostNames)
    return fail(Error::invalid("a table of names holds 1 to " +
                               std::to_string(NameTableLimits::kMostNames) + " names, not " +
                               std::to_string(limits.names)));
  const unsigned bits = std::min({host_bits(limits.v4), host_bits(limits.v6), 31u});
  const std::size_t room = (std::size_t{1} << bits) - 1;
  const auto numbers = static_cast<std::uint32_t>(std::min(room, limits.names * kNumbersForAName));
  return std::unique_ptr<NameTable>(new NameTable(limits, numbers));
}

NameTable::NameTable(const NameTableLimits& limits, std::uint32_t numbers)
    : v4_(limits.v4),
      v6_(limits.v6),
      numbers_(numbers),
      names_(std::min<std::size_t>(limits.names, numbers / 2)) {}

NameTable::~NameTable() {
  VERIFY(pinned() == 0);
}

SyntheticAddresses NameTable::addresses(std::uint32_t number) const {
  return {nth_address(v4_, number), nth_address(v6_, number)};
}

Result<SyntheticAddresses> NameTable::addresses_of(std::string_view name) {
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    const Entry& entry = by_number_.at(found->second);
    if (entry.pins == 0) unpinned_.splice(unpinned_.end(), unpinned_, entry.place);
    return addresses(found->second);
  }
  if (by_name_.size() == names_) {
    if (unpinned_.empty())
      return fail(Error::exhausted("all " + std::to_string(names_) +
                                   " names of the sandbox have open connections"));
    evict();
  }
  const std::uint32_t number = unused_number();
  const auto added = by_name_.emplace(name, number).first;
  const auto place = unpinned_.insert(unpinned_.end(), number);
  by_number_.emplace(number, Entry{&added->first, 0, place});
  return addresses(number);
}

void NameTable::evict() {
  const std::uint32_t number = unpinned_.front();
  unpinned_.pop_front();
  const auto entry = by_number_.find(number);
  by_name_.erase(by_name_.find(*entry->second.name));
  by_number_.erase(entry);
  rested_.push_back(number);
}

// There always is one: there are twice as many as names.
std::uint32_t NameTable::unused_number() {
  if (never_used_ < numbers_) return never_used_++;
  const std::uint32_t number = rested_.front();
  rested_.pop_front();
  return number;
}

std::optional<std::uint32_t> NameTable::number_of(const IpAddress& address) const {
  if (address.is_v6() && guard_off(Guard::kSyntheticV6)) return std::nullopt;
  const IpAddress& network = (address.is_v6() ? v6_ : v4_).network();
  const auto bytes = bytes_of(address), start = bytes_of(network);
  const std::size_t head = bytes.size() - 4;
  if (!std::ranges::equal(bytes.first(head), start.first(head))) return std::nullopt;
  const std::uint32_t tail = tail_of(address), first = tail_of(network) + 1;
  if (tail < first || tail - first >= numbers_) return std::nullopt;
  return tail - first;
}

std::optional<std::string> NameTable::name_of(const IpAddress& address) const {
  const auto number = number_of(address);
  if (!number.has_value()) return std::nullopt;
  const auto entry = by_number_.find(*number);
  if (entry == by_number_.end()) return std::nullopt;
  return *entry->second.name;
}

bool NameTable::is_synthetic(const IpAddress& address) const {
  return v4_.contains(address) || v6_.contains(address);
}

std::optional<NameTable::Pin> NameTable::pin(const IpAddress& address) {
  const auto number = number_of(address);
  if (!number.has_value()) return std::nullopt;
  const auto entry = by_number_.find(*number);
  if (entry == by_number_.end()) return std::nullopt;
  if (entry->second.pins++ == 0) unpinned_.erase(entry->second.place);
  return Pin(*this, *number);
}

void NameTable::unpin(std::uint32_t number) {
  Entry& entry = by_number_.at(number);
  if (--entry.pins == 0) entry.place = unpinned_.insert(unpinned_.end(), number);
}

NameTable::Pin::Pin(Pin&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)), number_(other.number_) {}

NameTable::Pin& NameTable::Pin::operator=(Pin&& other) noexcept {
  if (this == &other) return *this;
  release();
  table_ = std::exchange(other.table_, nullptr);
  number_ = other.number_;
  return *this;
}

NameTable::Pin::~Pin() {
  release();
}

void NameTable::Pin::release() {
  if (table_ != nullptr) std::exchange(table_, nullptr)->unpin(number_);
}

const std::string& NameTable::Pin::name() const {
  VERIFY(table_ != nullptr);
  return *table_->by_number_.at(number_).name;
}

}  // namespace caisson::egress
