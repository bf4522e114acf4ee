#include "image/worker/unpack.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <optional>
#include <string>

#include "image/ids.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

constexpr std::uint64_t kRatioFrom = 64ull << 20;
constexpr std::size_t kMaxLinkTarget = 4095;

struct FreeArchive {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, FreeArchive>;

// What libarchive's callback needs: the input, and where its error is kept.
struct InputState {
  ArchiveInput& input;
  std::optional<Error> error;
};

la_ssize_t read_input(archive* reader, void* data, const void** buffer) {
  auto& state = *static_cast<InputState*>(data);
  auto bytes = state.input.read();
  if (!bytes.has_value()) {
    archive_set_error(reader, EIO, "the archive cannot be read");
    state.error = std::move(bytes).error();
    return -1;
  }
  *buffer = bytes->data();
  return static_cast<la_ssize_t>(bytes->size());
}

class Unpacker {
 public:
  Unpacker(ArchiveInput& input, Destination& destination, const UnpackLimits& limits)
      : input_{input, std::nullopt}, destination_(destination), limits_(limits) {}

  Result<UnpackReport> run() {
    reader_ = Reader(archive_read_new());
    if (!reader_) return fail(Error::exhausted("no memory to read the archive"));
    archive* reader = reader_.get();
    archive_read_support_filter_gzip(reader);
    archive_read_support_filter_zstd(reader);
    archive_read_support_filter_xz(reader);
    archive_read_support_format_tar(reader);
    if (archive_read_open(reader, &input_, nullptr, read_input, nullptr) < ARCHIVE_WARN) {
      return fail(archive_error());
    }
    for (;;) {
      archive_entry* entry = nullptr;
      const int result = archive_read_next_header(reader, &entry);
      if (result == ARCHIVE_EOF) break;
      // A warning is about a name that is no text in some character set; names are bytes here.
      if (result == ARCHIVE_RETRY) continue;
      if (result < ARCHIVE_WARN) return fail(archive_error());
      TRY(take(entry));
    }
    if (report_.entries == 0) {
      return fail(
          Error::invalid("the archive has no entries; a tar file (plain, or compressed with "
                         "gzip, zstd or xz) of a root filesystem is needed"));
    }
    TRY(destination_.finish());
    return report_;
  }

 private:
  Error archive_error() {
    if (input_.error) return *input_.error;
    const char* text = archive_error_string(reader_.get());
    std::string message = "the archive is damaged or no tar file (plain, gzip, zstd or xz)";
    if (report_.entries > 0) {
      message = "the archive is damaged after entry " + std::to_string(report_.entries);
    }
    if (text != nullptr) message += std::string(": ") + text;
    return Error::invalid(std::move(message));
  }

  Status check_ratio() {
    const la_int64_t unpacked = archive_filter_bytes(reader_.get(), 0);
    const la_int64_t packed = archive_filter_bytes(reader_.get(), -1);
    if (unpacked <= 0 || static_cast<std::uint64_t>(unpacked) < kRatioFrom || packed <= 0)
      return {};
    if (static_cast<std::uint64_t>(unpacked / packed) <= limits_.ratio) return {};
    return fail(Error::invalid("the archive unpacks to more than " + std::to_string(limits_.ratio) +
                               " times its size, the most that is allowed"));
  }

  Status add_bytes(std::string_view name, std::uint64_t size) {
    if (size <= limits_.bytes && report_.bytes + size <= limits_.bytes) {
      report_.bytes += size;
      return {};
    }
    return fail(Error::invalid("entry '" + printable(name) + "' of " + std::to_string(size) +
                               " bytes makes the image larger than " +
                               std::to_string(limits_.bytes) + " bytes, the most that is allowed"));
  }

  Result<EntryAttributes> attributes_of(archive_entry* entry, std::string_view name) {
    EntryAttributes attributes;
    const la_int64_t uid = archive_entry_uid(entry), gid = archive_entry_gid(entry);
    if (uid < 0 || gid < 0 || uid >= kImageIds || gid >= kImageIds) {
      return fail(Error::invalid("entry '" + printable(name) + "' belongs to " +
                                 std::to_string(uid) + ":" + std::to_string(gid) +
                                 "; an image may use the ids 0 to 65535"));
    }
    attributes.uid = static_cast<std::uint32_t>(uid);
    attributes.gid = static_cast<std::uint32_t>(gid);
    attributes.mode = archive_entry_perm(entry) & 07777;
    if (archive_entry_mtime_is_set(entry) != 0) {
      const long nanoseconds = archive_entry_mtime_nsec(entry);
      attributes.modified.tv_sec = archive_entry_mtime(entry);
      attributes.modified.tv_nsec =
          nanoseconds >= 0 && nanoseconds < 1'000'000'000 ? nanoseconds : 0;
    }
    return attributes;
  }

  Status take(archive_entry* entry) {
    if (report_.entries >= limits_.entries) {
      return fail(Error::invalid("the archive has more than " + std::to_string(limits_.entries) +
                                 " entries, the most that is allowed"));
    }
    ++report_.entries;
    TRY(check_ratio());
    const char* raw = archive_entry_pathname(entry);
    TRY_ASSIGN(EntryName name, parse_entry_name(raw == nullptr ? "" : raw));
    if (name.absolute) ++report_.absolute_names;
    if (archive_entry_xattr_count(entry) > 0 || archive_entry_acl_types(entry) != 0) {
      // None is kept: the overlay filesystem would obey some of them, file capabilities are what a
      // sandbox must not have, and ordinary programs need none.
      ++report_.dropped_attributes;
    }
    TRY_ASSIGN(EntryAttributes attributes, attributes_of(entry, raw));
    if (const char* target = archive_entry_hardlink(entry); target != nullptr) {
      return take_hard_link(name, target);
    }
    const auto type = archive_entry_filetype(entry);
    if (name.is_root() && type != AE_IFDIR) {
      return fail(Error::invalid("entry '" + printable(raw) + "': the root must be a directory"));
    }
    switch (type) {
      case AE_IFDIR:
        return destination_.make_directory(name, attributes);
      case AE_IFREG:
        return take_file(entry, name, attributes);
      case AE_IFLNK: {
        const char* target = archive_entry_symlink(entry);
        const std::string_view text = target == nullptr ? "" : target;
        if (text.empty() || text.size() > kMaxLinkTarget) {
          return fail(Error::invalid("entry '" + printable(raw) +
                                     "': a symbolic link's target has " +
                                     std::to_string(text.size()) + " bytes; allowed are 1 to " +
                                     std::to_string(kMaxLinkTarget)));
        }
        return destination_.make_symlink(name, text, attributes);
      }
      case AE_IFIFO:
        return destination_.make_fifo(name, attributes);
      case AE_IFCHR:
      case AE_IFBLK:
        ++report_.dropped_devices;
        return {};
      default:
        return fail(Error::invalid("entry '" + printable(raw) +
                                   "' is of a kind that an image cannot have (allowed are files, "
                                   "directories, links and pipes)"));
    }
  }

  Status take_hard_link(const EntryName& name, std::string_view raw_target) {
    auto target = parse_entry_name(raw_target);
    if (!target.has_value()) {
      return fail(std::move(target).error().with("hard link '" + printable(name.path) + "'"));
    }
    if (name.is_root() || target->is_root()) {
      return fail(Error::invalid("hard link '" + printable(name.path) + "' to '" +
                                 printable(raw_target) + "': the root cannot be linked"));
    }
    if (name.path == target->path) return {};
    return destination_.make_hard_link(name, *target);
  }

  Status take_file(archive_entry* entry, const EntryName& name, const EntryAttributes& attributes) {
    const la_int64_t declared = archive_entry_size(entry);
    const auto size = static_cast<std::uint64_t>(declared < 0 ? 0 : declared);
    TRY(add_bytes(name.path, size));
    TRY(destination_.begin_file(name));
    std::uint64_t position = 0;
    for (;;) {
      const void* data = nullptr;
      std::size_t length = 0;
      la_int64_t offset = 0;
      const int result = archive_read_data_block(reader_.get(), &data, &length, &offset);
      if (result == ARCHIVE_EOF) break;
      if (result == ARCHIVE_RETRY) continue;
      if (result < ARCHIVE_WARN) return fail(archive_error());
      const auto at = static_cast<std::uint64_t>(offset);
      if (offset < 0 || at < position || at > size || length > size - at) {
        return fail(Error::invalid("entry '" + printable(name.path) +
                                   "' has data outside of its size of " + std::to_string(size) +
                                   " bytes"));
      }
      if (length > 0) {
        TRY(destination_.write_file({static_cast<const char*>(data), length}, at));
      }
      position = at + length;
      TRY(check_ratio());
    }
    return destination_.end_file(size, attributes);
  }

  InputState input_;
  Destination& destination_;
  const UnpackLimits& limits_;
  Reader reader_;
  UnpackReport report_;
};

}  // namespace

Result<UnpackReport> unpack(ArchiveInput& input, Destination& destination,
                            const UnpackLimits& limits) {
  return Unpacker(input, destination, limits).run();
}

}  // namespace caisson::image
