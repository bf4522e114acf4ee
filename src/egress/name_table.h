// The addresses that names get in one sandbox, and back: a name asked for in DNS is answered with
// an address of our own (synthetic), by which the gateway later knows which name a connection is
// for. So no query has to leave the host, and a name never shares its address with another.
//
// A name has a number, and with it one IPv4 and one IPv6 address; it keeps them as long as it is in
// the table. The table is bounded: when it is full, the name that was used longest ago makes room.
// Two things keep a connection from being taken for another name's: a name with open connections is
// pinned and never makes room, and the addresses of a name that did come into use again last of all
// (there are at least twice as many as names), so that what a program remembers of an old answer
// leads to nothing rather than to somebody else.
//
// Deterministic: the same calls give the same addresses. One table a sandbox, owned by its gateway;
// no threads, no clock. The pins must be gone before the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "policy/ip_address.h"

namespace caisson::egress {

struct NameTableLimits {
  policy::Cidr v4;
  policy::Cidr v6;
  std::size_t names = kMostNames;

  static constexpr std::size_t kMostNames = 4096;
  // 198.18.0.0/15 (benchmarks, RFC 2544: nobody's on the Internet) and fd00:5a:d::/64.
  static NameTableLimits defaults();
};

struct SyntheticAddresses {
  policy::IpAddress v4;
  policy::IpAddress v6;
  bool operator==(const SyntheticAddresses&) const = default;
};

class NameTable {
 public:
  // The block's first address is given to nobody. Where the blocks have room for fewer than twice
  // as many names as `names`, the table holds half as many as they have room for. Error:
  // invalid_argument for a block of the wrong family or with fewer than 16 addresses, and for
  // `names` 0 or above kMostNames.
  static Result<std::unique_ptr<NameTable>> create(const NameTableLimits& limits);

  NameTable(const NameTable&) = delete;  // pins point to it
  NameTable& operator=(const NameTable&) = delete;
  ~NameTable();

  // The addresses of a canonical name, which now was used last. Error: resource_exhausted when the
  // table is full of names with open connections.
  Result<SyntheticAddresses> addresses_of(std::string_view name);

  // The name that has this address now. Changes nothing.
  std::optional<std::string> name_of(const policy::IpAddress& address) const;
  // Whether the address lies in one of the two blocks, given to a name or not.
  bool is_synthetic(const policy::IpAddress& address) const;

  // Holds a name in the table; one for each open connection.
  class Pin {
   public:
    Pin(Pin&& other) noexcept;
    Pin& operator=(Pin&& other) noexcept;
    ~Pin();
    // Canonical, as it was given to addresses_of().
    const std::string& name() const;

   private:
    friend class NameTable;
    Pin(NameTable& table, std::uint32_t number) : table_(&table), number_(number) {}
    void release();
    NameTable* table_;  // null: moved from
    std::uint32_t number_;
  };
  // nullopt: no name has this address now. A connection uses the name, so it now was used last.
  [[nodiscard]] std::optional<Pin> pin(const policy::IpAddress& address);

  std::size_t size() const { return by_name_.size(); }
  std::size_t capacity() const { return names_; }
  // Names with at least one pin.
  std::size_t pinned() const { return by_name_.size() - unpinned_.size(); }

 private:
  struct Entry {
    const std::string* name;  // the key in by_name_
    std::uint32_t pins = 0;
    std::list<std::uint32_t>::iterator place;  // in unpinned_, while pins is 0
  };

  NameTable(const NameTableLimits& limits, std::uint32_t numbers);
  SyntheticAddresses addresses(std::uint32_t number) const;
  std::optional<std::uint32_t> number_of(const policy::IpAddress& address) const;
  void evict();
  std::uint32_t unused_number();
  void unpin(std::uint32_t number);

  policy::Cidr v4_, v6_;
  std::uint32_t numbers_;  // how many there are: 0 to numbers_ - 1
  std::size_t names_;
  std::map<std::string, std::uint32_t, std::less<>> by_name_;
  std::unordered_map<std::uint32_t, Entry> by_number_;
  std::list<std::uint32_t> unpinned_;  // the one used last stands last
  std::uint32_t never_used_ = 0;       // the first number that nobody has had
  std::deque<std::uint32_t> rested_;   // numbers of names that made room, in that order
};

}  // namespace caisson::egress
