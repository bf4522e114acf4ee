// Writes DNS queries byte by byte, right ones and wrong ones, and reads the answers that our stub
// server writes: a small reader that shares nothing with the code it checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::egress::for_test {

inline std::string two(unsigned value) {
  return {static_cast<char>(value >> 8 & 0xff), static_cast<char>(value & 0xff)};
}

// "www.example.com" on the wire. Whatever stands between dots is a label.
inline std::string wire(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const std::string_view label = name.substr(0, name.find('.'));
    out += static_cast<char>(label.size());
    out += label;
    name.remove_prefix(std::min(name.size(), label.size() + 1));
  }
  return out + '\0';
}

struct QueryParts {
  unsigned id = 0x1234;
  unsigned flags = 0x0100;  // the wish for recursion
  unsigned questions = 1, answers = 0, authorities = 0, additional = 0;
  std::string name = wire("www.example.com");
  unsigned type = 1;
  unsigned query_class = 1;
  std::string rest;

  std::string bytes() const {
    return two(id) + two(flags) + two(questions) + two(answers) + two(authorities) +
           two(additional) + name + two(type) + two(query_class) + rest;
  }
};

// An OPT record.
inline std::string opt(unsigned udp_size, std::string_view options = "", unsigned version = 0) {
  return std::string(1, '\0') + two(41) + two(udp_size) + two(version) + two(0x8000) +
         two(static_cast<unsigned>(options.size())) + std::string(options);
}

inline std::string query(std::string_view name, unsigned type) {
  return QueryParts{.name = wire(name), .type = type}.bytes();
}

inline std::string edns_query(std::string_view name, unsigned type, unsigned udp_size = 1232,
                              std::string_view options = "") {
  return QueryParts{
      .additional = 1, .name = wire(name), .type = type, .rest = opt(udp_size, options)}
      .bytes();
}

struct ReadRecord {
  std::string owner;  // on the wire, pointers followed
  unsigned type = 0, record_class = 0;
  std::uint32_t ttl = 0;
  std::string data;
};

struct ReadAnswer {
  unsigned id = 0, flags = 0;
  std::string question;  // its bytes
  std::vector<ReadRecord> answers, authorities, additional;

  unsigned rcode() const { return flags & 0xf; }
  bool truncated() const { return (flags & 0x0200) != 0; }
};

// Throws std::out_of_range or std::runtime_error where it is malformed.
class AnswerReader {
 public:
  explicit AnswerReader(std::string_view bytes) : bytes_(bytes) {}

  ReadAnswer read() {
    ReadAnswer answer;
    answer.id = number();
    answer.flags = number();
    const unsigned questions = number(), answers = number(), authorities = number(),
                   additional = number();
    if (questions > 1) throw std::runtime_error("more than one question");
    const std::size_t start = at_;
    if (questions == 1) {
      name();
      at_ += 4;
    }
    answer.question = std::string(bytes_.substr(start, at_ - start));
    for (unsigned i = 0; i < answers; ++i) answer.answers.push_back(record());
    for (unsigned i = 0; i < authorities; ++i) answer.authorities.push_back(record());
    for (unsigned i = 0; i < additional; ++i) answer.additional.push_back(record());
    if (at_ != bytes_.size()) throw std::runtime_error("bytes behind the last record");
    return answer;
  }

 private:
  unsigned byte() { return static_cast<unsigned char>(bytes_.at(at_++)); }
  unsigned number() {
    const unsigned high = byte();
    return high << 8 | byte();
  }
  std::string name() {
    std::string out;
    while (true) {
      const unsigned size = byte();
      if (size >= 0xc0) {
        const std::size_t target = (size & 0x3f) << 8 | byte(), back = at_;
        if (target + 2 >= back) throw std::runtime_error("a pointer forward");
        at_ = target;
        out += name();
        at_ = back;
        return out;
      }
      out += static_cast<char>(size);
      if (size == 0) return out;
      for (unsigned i = 0; i < size; ++i) out += static_cast<char>(byte());
    }
  }
  ReadRecord record() {
    ReadRecord record;
    record.owner = name();
    record.type = number();
    record.record_class = number();
    const std::uint32_t high = number();
    record.ttl = high << 16 | number();
    const unsigned size = number();
    if (bytes_.size() - at_ < size) throw std::runtime_error("a record ends too early");
    record.data = std::string(bytes_.substr(at_, size));
    at_ += size;
    return record;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

inline ReadAnswer read_answer(std::string_view bytes) {
  return AnswerReader(bytes).read();
}

}  // namespace caisson::egress::for_test
