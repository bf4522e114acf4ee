#include "image/transfer/tar_members.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "image/reference.h"

namespace caisson::image {
namespace {

constexpr std::size_t kMaxExtension = 64 << 10;  // of a long name or a pax header
constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxHeaders = 4 * kMaxTarMembers;
constexpr int kMaxLinks = 8;

struct Part {
  std::size_t at, size;
};
constexpr Part kName = {0, 100}, kMode = {100, 8}, kUid = {108, 8}, kGid = {116, 8},
               kSize = {124, 12}, kTime = {136, 12}, kSum = {148, 8}, kType = {156, 1},
               kLink = {157, 100}, kMagic = {257, 8}, kPrefix = {345, 155};

std::string_view part(std::string_view block, Part where) {
  return block.substr(where.at, where.size);
}
std::string_view text(std::string_view block, Part where) {
  const std::string_view bytes = part(block, where);
  return bytes.substr(0, bytes.find('\0'));
}

// Octal digits between spaces and NULs, or base 256 with the first bit set.
std::optional<std::uint64_t> number(std::string_view bytes) {
  if (!bytes.empty() && static_cast<unsigned char>(bytes.front()) == 0x80) {
    std::uint64_t value = 0;
    for (char c : bytes.substr(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  std::uint64_t value = 0;
  const std::size_t first = bytes.find_first_not_of(' ');
  if (first == std::string_view::npos) return 0;
  for (char c : bytes.substr(first)) {
    if (c == ' ' || c == '\0') break;
    if (c < '0' || c > '7' || value >> 60 != 0) return std::nullopt;
    value = value << 3 | static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

std::uint64_t checksum(std::string_view block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool in_sum = i >= kSum.at && i < kSum.at + kSum.size;
    sum += in_sum ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

Error malformed(std::uint64_t offset, std::string_view what) {
  return Error::invalid("archive: " + std::string(what) + " at byte " + std::to_string(offset));
}

std::uint64_t whole_blocks(std::uint64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

// "LENGTH KEY=VALUE\n"…: those that matter here.
struct Extension {
  std::optional<std::string> path, link;
  std::optional<std::uint64_t> size;
};
bool read_pax(std::string_view records, Extension& extension) {
  while (!records.empty()) {
    std::size_t length = 0;
    auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<std::size_t>(end - records.data());
    if (error != std::errc() || length > records.size() || length < digits + 3 || *end != ' ' ||
        records[length - 1] != '\n') {
      return false;
    }
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") extension.path = std::string(value);
    if (key == "linkpath") extension.link = std::string(value);
    if (key == "size") {
      std::uint64_t size = 0;
      auto [last, bad] = std::from_chars(value.data(), value.data() + value.size(), size);
      if (bad != std::errc() || last != value.data() + value.size()) return false;
      extension.size = size;
    }
    records.remove_prefix(length);
  }
  return true;
}

std::string without_dot(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  return std::string(name);
}

// `link` as seen from the folder of `name`; empty where it leads out.
std::string joined(std::string_view name, std::string_view link) {
  std::vector<std::string_view> parts;
  const auto walk = [&](std::string_view path) {
    for (;;) {
      const std::size_t slash = path.find('/');
      const std::string_view component = path.substr(0, slash);
      if (component == "..") {
        if (parts.empty()) return false;
        parts.pop_back();
      } else if (!component.empty() && component != ".") {
        parts.push_back(component);
      }
      if (slash == std::string_view::npos) return true;
      path.remove_prefix(slash + 1);
    }
  };
  const std::size_t folder = name.rfind('/');
  if (folder != std::string_view::npos && !walk(name.substr(0, folder))) return "";
  if (link.starts_with('/') || !walk(link)) return "";
  std::string path;
  for (std::string_view component : parts) {
    path += (path.empty() ? "" : "/") + std::string(component);
  }
  return path;
}

void octal(std::string& block, Part where, std::uint64_t value) {
  std::size_t at = where.at + where.size - 1;
  block[at] = '\0';
  while (at > where.at) {
    block[--at] = static_cast<char>('0' + (value & 7));
    value >>= 3;
  }
}

}  // namespace

Result<TarMembers> read_tar_members(const ReadAt& read) {
  TarMembers members;
  Extension extension;
  std::uint64_t offset = 0;
  for (std::size_t headers = 0;; ++headers) {
    if (headers == kMaxHeaders || members.size() > kMaxTarMembers) {
      return fail(Error::invalid("archive: more than " + std::to_string(kMaxTarMembers) +
                                 " members, the most that a saved image may have"));
    }
    TRY_ASSIGN(const std::string block, read(offset, kTarBlock));
    // Some writers leave out the two empty blocks.
    if (block.empty() && headers > 0) return members;
    if (block.size() != kTarBlock) return fail(malformed(offset, "a header that is cut off"));
    if (block.find_first_not_of('\0') == std::string::npos) return members;
    if (number(part(block, kSum)) != checksum(block)) {
      return fail(malformed(offset, "a header whose checksum is wrong"));
    }
    const auto size = number(part(block, kSize));
    if (!size || *size > (1ull << 60)) return fail(malformed(offset, "a size that is no number"));
    const char type = block[kType.at];
    offset += kTarBlock;
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K') {
      if (*size > kMaxExtension) return fail(malformed(offset, "a header that is too long"));
      TRY_ASSIGN(std::string bytes, read(offset, *size));
      if (bytes.size() != *size) return fail(malformed(offset, "a header that is cut off"));
      offset += whole_blocks(*size);
      if (type == 'x' && !read_pax(bytes, extension)) {
        return fail(malformed(offset, "a malformed pax header"));
      }
      if (type == 'L') extension.path = bytes.substr(0, bytes.find('\0'));
      if (type == 'K') extension.link = bytes.substr(0, bytes.find('\0'));
      continue;
    }
    std::string name(text(block, kName));
    if (part(block, kMagic).starts_with("ustar") && !text(block, kPrefix).empty()) {
      name = std::string(text(block, kPrefix)) + "/" + name;
    }
    if (extension.path) name = *extension.path;
    if (name.size() > kMaxName) return fail(malformed(offset, "a name that is too long"));
    TarMember member;
    member.offset = offset;
    member.size = extension.size.value_or(*size);
    if (member.size > (1ull << 60)) return fail(malformed(offset, "a size that is no number"));
    const bool is_link = type == '1' || type == '2';
    if (is_link) {
      member.link = extension.link.value_or(std::string(text(block, kLink)));
      // A hard link's is a name of the archive, a symbolic one's is seen from its folder.
      member.link = joined(type == '2' ? std::string_view(name) : std::string_view(), member.link);
      // Out of the archive: no member has that name.
      if (member.link.empty()) member.link = "/";
      member.size = 0;
    }
    if (type == '0' || type == '\0' || type == '7' || is_link) {
      members[without_dot(name)] = member;
    } else if (type != '5') {
      member.size = type >= '3' && type <= '6' ? 0 : member.size;
    }
    offset += whole_blocks(member.size);
    extension = Extension();
  }
}

Result<TarMember> find_member(const TarMembers& members, const std::string& name) {
  std::string now = name;
  for (int links = 0; links <= kMaxLinks; ++links) {
    const auto found = members.find(now);
    if (found == members.end()) break;
    if (found->second.link.empty()) return found->second;
    now = found->second.link;
  }
  return fail(Error::not_found("the archive has no file '" + printable(name) + "'"));
}

std::string saved_tar_header(std::string_view name, std::uint64_t size) {
  VERIFY(name.size() <= kName.size);
  std::string block(kTarBlock, '\0');
  name.copy(block.data(), kName.size);
  octal(block, kMode, 0644);
  octal(block, kUid, 0);
  octal(block, kGid, 0);
  octal(block, kTime, 0);
  if (size < 1ull << 33) {
    octal(block, kSize, size);
  } else {  // eleven octal digits are not enough
    block[kSize.at] = static_cast<char>(0x80);
    for (std::size_t i = 0; i < 8; ++i) {
      block[kSize.at + kSize.size - 1 - i] = static_cast<char>(size >> (8 * i) & 0xff);
    }
  }
  block[kType.at] = '0';
  std::memcpy(block.data() + kMagic.at, "ustar\00000", kMagic.size);
  const std::uint64_t sum = checksum(block);
  octal(block, {kSum.at, kSum.size - 1}, sum);
  block[kSum.at + kSum.size - 1] = ' ';
  return block;
}

std::string saved_tar_padding(std::uint64_t size) {
  return std::string(static_cast<std::size_t>(whole_blocks(size) - size), '\0');
}

std::string saved_tar_end() {
  return std::string(2 * kTarBlock, '\0');
}

}  // namespace caisson::image
