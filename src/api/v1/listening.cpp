#include "api/v1/listening.h"

#include <arpa/inet.h>

#include <charconv>
#include <cstring>
#include <optional>

namespace caisson::api::v1 {
namespace {

constexpr std::size_t kMost = 1000;
constexpr std::string_view kListen = "0A";

std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

std::optional<std::uint32_t> hex(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The kernel prints each word of an address in the processor's own order.
std::optional<std::string> address_text(std::string_view digits) {
  if (digits.size() != 8 && digits.size() != 32) return std::nullopt;
  std::uint8_t bytes[16] = {};
  for (std::size_t at = 0; at < digits.size(); at += 8) {
    const auto word = hex(digits.substr(at, 8));
    if (!word.has_value()) return std::nullopt;
    std::memcpy(bytes + at / 2, &*word, sizeof *word);
  }
  char text[INET6_ADDRSTRLEN];
  const int family = digits.size() == 8 ? AF_INET : AF_INET6;
  if (::inet_ntop(family, bytes, text, sizeof text) == nullptr) return std::nullopt;
  return text;
}

std::optional<ListeningPort> port_of(std::string_view line) {
  next_word(line);  // the entry's number
  const std::string_view local = next_word(line);
  next_word(line);  // the other side
  const std::size_t colon = local.find(':');
  if (next_word(line) != kListen || colon == std::string_view::npos) return std::nullopt;
  const auto address = address_text(local.substr(0, colon));
  const auto port = hex(local.substr(colon + 1));
  if (!address.has_value() || !port.has_value() || *port == 0 || *port > 0xffff)
    return std::nullopt;
  return ListeningPort{.port = static_cast<std::uint16_t>(*port), .address = *address};
}

}  // namespace

std::vector<ListeningPort> listening_ports(std::string_view table) {
  std::vector<ListeningPort> found;
  while (!table.empty() && found.size() < kMost) {
    const std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(std::min(table.size(), line.size() + 1));
    if (auto port = port_of(line); port.has_value()) found.push_back(std::move(*port));
  }
  return found;
}

}  // namespace caisson::api::v1
