#include "image/worker/unpack.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "image/ids.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

constexpr std::size_t kMaxLinkTarget = 4095;
constexpr std::string_view kWhiteout = ".wh.", kOpaque = ".wh..wh..opq", kAufs = ".wh..wh.";

struct FreeArchive {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, FreeArchive>;

// What libarchive's callback needs: the bytes, and where their error is kept.
struct TarState {
  TarBytes& bytes;
  std::optional<Error> error;
};

la_ssize_t read_tar(archive* reader, void* data, const void** buffer) {
  auto& state = *static_cast<TarState*>(data);
  auto bytes = state.bytes.read();
  if (!bytes.has_value()) {
    archive_set_error(reader, EIO, "the archive cannot be read");
    state.error = std::move(bytes).error();
    return -1;
  }
  *buffer = bytes->data();
  return static_cast<la_ssize_t>(bytes->size());
}

enum class NameUse { kEntry, kWhiteout, kOpaque, kAufs };

// What the marks of image layers make of a name.
NameUse use_of(const EntryName& name) {
  for (std::string_view rest = name.path; !rest.empty();) {
    const std::string_view component = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), component.size() + 1));
    if (!component.starts_with(kWhiteout)) continue;
    if (rest.empty() && component == kOpaque) return NameUse::kOpaque;
    if (component.starts_with(kAufs)) return NameUse::kAufs;
    return NameUse::kWhiteout;
  }
  return NameUse::kEntry;
}

class LayerReader {
 public:
  LayerReader(TarBytes& bytes, EntrySink& sink, const UnpackLimits& limits,
              const UnpackReport& before)
      : bytes_(bytes), tar_{bytes_, std::nullopt}, sink_(sink), limits_(limits), before_(before) {}

  Result<LayerCounts> run() {
    reader_ = Reader(archive_read_new());
    if (!reader_) return fail(Error::exhausted("no memory to read the archive"));
    archive* reader = reader_.get();
    archive_read_support_format_tar(reader);
    if (archive_read_open(reader, &tar_, nullptr, read_tar, nullptr) < ARCHIVE_WARN) {
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
    TRY(read_rest());
    result_.diff_id = bytes_.digest();
    return result_;
  }

 private:
  Error archive_error() {
    // What is wrong with this host, or is a sentence of its own, stands for itself.
    if (tar_.error && (tar_.error->code() != Code::kInvalidArgument ||
                       tar_.error->message().starts_with("the archive "))) {
      return *tar_.error;
    }
    const char* text = archive_error_string(reader_.get());
    std::string message = "the archive is damaged or no tar file (plain, gzip, zstd or xz)";
    if (result_.counts.entries > 0) {
      message = "the archive is damaged after entry " + std::to_string(result_.counts.entries);
    }
    if (tar_.error) {
      message += ": " + tar_.error->message();
    } else if (text != nullptr) {
      message += std::string(": ") + text;
    }
    return Error::invalid(std::move(message));
  }

  // What is behind the archive's end belongs to the digest all the same.
  Status read_rest() {
    for (;;) {
      auto bytes = bytes_.read();
      if (!bytes.has_value()) {
        tar_.error = std::move(bytes).error();
        return fail(archive_error());
      }
      if (bytes->empty()) return {};
    }
  }

  Status add_bytes(std::string_view name, std::uint64_t size) {
    const std::uint64_t room =
        limits_.bytes - std::min(limits_.bytes, before_.bytes + counts().bytes);
    if (size <= room) {
      counts().bytes += size;
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
    if (before_.entries + counts().entries >= limits_.entries) {
      return fail(Error::invalid("the image has more than " + std::to_string(limits_.entries) +
                                 " entries, the most that is allowed"));
    }
    ++counts().entries;
    const char* raw = archive_entry_pathname(entry);
    TRY_ASSIGN(EntryName name, parse_entry_name(raw == nullptr ? "" : raw));
    if (name.absolute) ++counts().absolute_names;
    if (const NameUse use = use_of(name); use != NameUse::kEntry) return take_mark(name, use);
    if (archive_entry_xattr_count(entry) > 0 || archive_entry_acl_types(entry) != 0) {
      // None is kept: the overlay filesystem would obey some of them, file capabilities are what a
      // sandbox must not have, and ordinary programs need none.
      ++counts().dropped_attributes;
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
        return sink_.make_directory(name, attributes);
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
        return sink_.make_symlink(name, text, attributes);
      }
      case AE_IFIFO:
        return sink_.make_pipe(name, attributes);
      case AE_IFCHR:
      case AE_IFBLK:
      case AE_IFSOCK:
        ++counts().dropped_devices;
        return {};
      default:
        return fail(Error::invalid("entry '" + printable(raw) +
                                   "' is of a kind that an image cannot have (allowed are files, "
                                   "directories, links and pipes)"));
    }
  }

  // `.wh.NAME` and `.wh..wh..opq`; what else begins with `.wh..wh.` is the bookkeeping of a file
  // system that few remember, and is left out.
  Status take_mark(const EntryName& name, NameUse use) {
    if (use == NameUse::kAufs) return {};
    ++result_.whiteouts;
    const std::string parent(name.parent());
    if (use == NameUse::kOpaque) return sink_.make_opaque({.path = parent});
    const std::string_view last = name.last();
    const std::string_view gone = last.substr(std::min(kWhiteout.size(), last.size()));
    if (!last.starts_with(kWhiteout) || gone.empty() || gone == "." || gone == ".." ||
        parent.find("/.wh.") != std::string::npos || parent.starts_with(kWhiteout)) {
      return fail(Error::invalid("entry '" + printable(name.path) +
                                 "': '.wh.' must be the beginning of the last part of a name and "
                                 "be followed by the name of what is gone, which can be neither "
                                 "the root nor its own directory"));
    }
    return sink_.white_out(
        {.path = parent.empty() ? std::string(gone) : parent + "/" + std::string(gone)});
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
    return sink_.make_hard_link(name, *target);
  }

  Status take_file(archive_entry* entry, const EntryName& name, const EntryAttributes& attributes) {
    const la_int64_t declared = archive_entry_size(entry);
    const auto size = static_cast<std::uint64_t>(declared < 0 ? 0 : declared);
    TRY(add_bytes(name.path, size));
    TRY(sink_.begin_file(name, size, attributes));
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
        TRY(sink_.write_file({static_cast<const char*>(data), length}, at));
      }
      position = at + length;
    }
    return sink_.end_file();
  }

  UnpackReport& counts() { return result_.counts; }

  TarBytes& bytes_;
  TarState tar_;
  EntrySink& sink_;
  const UnpackLimits& limits_;
  const UnpackReport& before_;
  Reader reader_;
  LayerCounts result_;
};

}  // namespace

Result<LayerCounts> read_layer(TarBytes& bytes, EntrySink& sink, const UnpackLimits& limits,
                               const UnpackReport& before) {
  return LayerReader(bytes, sink, limits, before).run();
}

}  // namespace caisson::image
