// Archives made byte by byte, so that tests can write what no archiver would. Test code only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::image::testing {

struct TarEntry {
  std::string name;
  char type = '0';  // '0' file, '1' hard link, '2' symlink, '3' char, '4' block, '5' dir, '6' fifo
  std::string data = {};
  std::string link = {};
  unsigned mode = 0644;
  std::uint64_t uid = 0, gid = 0;
  std::uint64_t mtime = 1'700'000'000;
  // The size that the header claims; by default that of data.
  std::int64_t size = -1;
};

class Tar {
 public:
  Tar& add(const TarEntry& entry) {
    char header[512] = {};
    auto octal = [&](std::size_t at, int width, std::uint64_t value) {
      std::snprintf(header + at, static_cast<std::size_t>(width), "%0*llo", width - 1,
                    static_cast<unsigned long long>(value));
    };
    std::memcpy(header, entry.name.data(), std::min<std::size_t>(100, entry.name.size()));
    octal(100, 8, entry.mode);
    octal(108, 8, entry.uid);
    octal(116, 8, entry.gid);
    octal(124, 12, entry.size >= 0 ? static_cast<std::uint64_t>(entry.size) : entry.data.size());
    octal(136, 12, entry.mtime);
    std::memset(header + 148, ' ', 8);
    header[156] = entry.type;
    std::memcpy(header + 157, entry.link.data(), std::min<std::size_t>(100, entry.link.size()));
    std::memcpy(header + 257, "ustar\00000", 8);
    unsigned sum = 0;
    for (char c : header) sum += static_cast<unsigned char>(c);
    std::snprintf(header + 148, 8, "%06o", sum);
    bytes_.append(header, sizeof header);
    bytes_ += entry.data;
    bytes_.append((512 - entry.data.size() % 512) % 512, '\0');
    return *this;
  }
  // GNU's way to a long name of the next entry.
  Tar& add_long_name(const std::string& name) {
    return add({.name = "././@LongLink", .type = 'L', .data = name + std::string(1, '\0')});
  }
  // A pax header of one record for the next entry.
  Tar& add_pax(const std::string& key, const std::string& value) {
    return add({.name = "pax", .type = 'x', .data = pax_record(key, value)});
  }
  // A file of nothing but a hole, as GNU tar writes it (sparse 1.0: a map of one empty region).
  Tar& add_hole(const std::string& name, std::uint64_t size) {
    add({.name = "pax",
         .type = 'x',
         .data = pax_record("GNU.sparse.major", "1") + pax_record("GNU.sparse.minor", "0") +
                 pax_record("GNU.sparse.name", name) +
                 pax_record("GNU.sparse.realsize", std::to_string(size))});
    const std::string map = "1\n0\n0\n";
    return add({.name = "x", .data = map + std::string(512 - map.size(), '\0')});
  }
  std::string unfinished() const { return bytes_; }
  std::string bytes() const { return bytes_ + std::string(1024, '\0'); }

 private:
  static std::string pax_record(const std::string& key, const std::string& value) {
    const std::string rest = " " + key + "=" + value + "\n";
    std::size_t size = rest.size() + 1;
    while (std::to_string(size).size() + rest.size() != size) ++size;
    return std::to_string(size) + rest;
  }

  std::string bytes_;
};

inline Fd memory_file(std::string_view bytes) {
  Fd fd(memfd_create("archive", MFD_CLOEXEC));
  VERIFY(fd.valid());
  VERIFY(write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  VERIFY(lseek(fd.get(), 0, SEEK_SET) == 0);
  return fd;
}

// A directory that goes with the test.
class TemporaryDirectory {
 public:
  // In memory where that is possible: the store syncs what it writes, and a disk may be busy.
  TemporaryDirectory() : TemporaryDirectory(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") {}
  explicit TemporaryDirectory(const char* parent) {
    std::string pattern = std::string(parent) + "/caisson-image-XXXXXX";
    VERIFY(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline std::string read_text(const std::string& path) {
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    char buffer[4096];
    for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
      text.append(buffer, got);
    }
    std::fclose(file);
  }
  return text;
}

// The names in a directory; none where there is no directory.
inline std::vector<std::string> entries_of(const std::string& path) {
  std::vector<std::string> names;
  std::error_code gone;
  for (std::filesystem::directory_iterator at(path, gone), end; !gone && at != end;
       at.increment(gone)) {
    names.push_back(at->path().filename());
  }
  return names;
}

}  // namespace caisson::image::testing
