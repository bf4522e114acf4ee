#include "image/worker/tar_writer.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace caisson::image {
namespace {

// Offsets and sizes of ustar's fields.
struct Field {
  std::size_t at, size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kType{156, 1}, kLink{157, 100}, kMagic{257, 8};
constexpr std::uint64_t kMostOctal12 = 077777777777;
// What pax headers are called themselves; nobody makes a file of it.
constexpr const char* kPaxName = "PaxHeader";
constexpr char kHeaderType = 'x';

class Block {
 public:
  void text(Field field, std::string_view value) {
    std::memcpy(bytes_.data() + field.at, value.data(), std::min(value.size(), field.size));
  }
  // With a NUL behind the last digit.
  void octal(Field field, std::uint64_t value) {
    for (std::size_t i = field.size - 1; i-- > 0; value >>= 3)
      bytes_[field.at + i] = static_cast<char>('0' + (value & 7));
  }
  std::string finish() {
    text(kMagic, std::string_view("ustar\00000", 8));
    std::fill_n(bytes_.data() + kSum.at, kSum.size, ' ');
    std::uint64_t sum = 0;
    for (const char c : bytes_) sum += static_cast<unsigned char>(c);
    octal({kSum.at, kSum.size - 1}, sum);
    return std::move(bytes_);
  }

 private:
  std::string bytes_ = std::string(kPaxBlock, '\0');
};

// "LENGTH key=value\n", whose length counts itself.
std::string pax_record(std::string_view key, std::string_view value) {
  const std::size_t rest = 1 + key.size() + 1 + value.size() + 1;
  std::size_t length = rest;
  while (std::to_string(length).size() + rest != length)
    length = std::to_string(length).size() + rest;
  std::string record = std::to_string(length) + " ";
  return record.append(key).append("=").append(value).append("\n");
}

// Seconds with nine digits behind the point.
std::string decimal(const timespec& time) {
  // Unsigned, since the least time_t has no positive counterpart.
  auto seconds = static_cast<std::uint64_t>(time.tv_sec);
  std::int64_t nanoseconds = time.tv_nsec;
  std::string sign;
  if (time.tv_sec < 0) {
    sign = "-";
    seconds = 0 - seconds;
    if (nanoseconds > 0) {
      --seconds;
      nanoseconds = 1'000'000'000 - nanoseconds;
    }
  }
  const std::string digits = std::to_string(nanoseconds);
  return sign + std::to_string(seconds) + "." + std::string(9 - digits.size(), '0') + digits;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string pax_records(const PaxEntry& entry, std::string_view path) {
  std::string records;
  const bool long_path = path.size() > kName.size, long_link = entry.link.size() > kLink.size;
  // Names are bytes; without this they would be taken for UTF-8.
  if ((long_path && !is_ascii(path)) || (long_link && !is_ascii(entry.link)))
    records += pax_record("hdrcharset", "BINARY");
  if (long_path) records += pax_record("path", path);
  if (long_link) records += pax_record("linkpath", entry.link);
  if (entry.size > kMostOctal12) records += pax_record("size", std::to_string(entry.size));
  const std::int64_t seconds = entry.modified.tv_sec;
  if (entry.modified.tv_nsec != 0 || seconds < 0 ||
      seconds > static_cast<std::int64_t>(kMostOctal12))
    records += pax_record("mtime", decimal(entry.modified));
  return records;
}

std::string padded(std::string bytes) {
  bytes.resize(bytes.size() + pax_padding(bytes.size()));
  return bytes;
}

}  // namespace

std::string pax_header(const PaxEntry& entry) {
  std::string path = entry.path;
  if (entry.type == PaxType::kDirectory) path += '/';
  std::string bytes;
  if (const std::string records = pax_records(entry, path); !records.empty()) {
    Block pax;
    pax.text(kName, kPaxName);
    pax.octal(kMode, 0644);
    pax.octal(kUid, 0);
    pax.octal(kGid, 0);
    pax.octal(kSize, records.size());
    pax.octal(kTime, 0);
    pax.text(kType, std::string_view(&kHeaderType, 1));
    bytes = pax.finish() + padded(records);
  }
  Block block;
  block.text(kName, path);
  block.octal(kMode, entry.mode);
  block.octal(kUid, entry.uid);
  block.octal(kGid, entry.gid);
  block.octal(kSize, std::min(entry.size, kMostOctal12));
  const std::int64_t seconds = entry.modified.tv_sec;
  block.octal(kTime, std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(seconds, 0)),
                              kMostOctal12));
  const char type = static_cast<char>(entry.type);
  block.text(kType, std::string_view(&type, 1));
  block.text(kLink, entry.link);
  return bytes + block.finish();
}

std::size_t pax_padding(std::uint64_t size) {
  return static_cast<std::size_t>((kPaxBlock - size % kPaxBlock) % kPaxBlock);
}

std::string pax_end() {
  return std::string(2 * kPaxBlock, '\0');
}

}  // namespace caisson::image
