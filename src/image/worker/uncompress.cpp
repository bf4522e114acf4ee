#include "image/worker/uncompress.h"

#include <archive.h>
#include <archive_entry.h>

namespace caisson::image {
namespace {

constexpr std::uint64_t kRatioFrom = 64ull << 20;

}  // namespace

void Uncompressed::Free::operator()(archive* reader) const {
  archive_read_free(reader);
}

Uncompressed::Uncompressed(ArchiveInput& input, std::uint64_t max_ratio)
    : input_(input), max_ratio_(max_ratio) {}

Uncompressed::~Uncompressed() = default;

long Uncompressed::feed(archive* reader, void* data, const void** buffer) {
  auto& self = *static_cast<Uncompressed*>(data);
  auto bytes = self.input_.read();
  if (!bytes.has_value()) {
    archive_set_error(reader, EIO, "the archive cannot be read");
    self.input_error_ = std::move(bytes).error();
    return -1;
  }
  self.packed_ += bytes->size();
  *buffer = bytes->data();
  return static_cast<long>(bytes->size());
}

Error Uncompressed::error() const {
  if (input_error_) return *input_error_;
  const char* text = archive_error_string(reader_.get());
  return Error::invalid(text == nullptr ? "its compression is damaged" : text);
}

// libarchive's raw format: one entry whose contents are whatever the filters give.
Status Uncompressed::open() {
  opened_ = true;
  reader_.reset(archive_read_new());
  if (!reader_) return fail(Error::exhausted("no memory to read the archive"));
  archive_read_support_filter_gzip(reader_.get());
  archive_read_support_filter_zstd(reader_.get());
  archive_read_support_filter_xz(reader_.get());
  archive_read_support_format_raw(reader_.get());
  archive_read_support_format_empty(reader_.get());
  if (archive_read_open(reader_.get(), this, nullptr, feed, nullptr) < ARCHIVE_WARN) {
    return fail(error());
  }
  archive_entry* entry = nullptr;
  const int result = archive_read_next_header(reader_.get(), &entry);
  ended_ = result == ARCHIVE_EOF;
  if (!ended_ && result < ARCHIVE_WARN) return fail(error());
  return {};
}

Result<std::string_view> Uncompressed::read() {
  if (!opened_) TRY(open());
  while (!ended_) {
    const void* data = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int result = archive_read_data_block(reader_.get(), &data, &size, &offset);
    if (result == ARCHIVE_RETRY) continue;
    if (result != ARCHIVE_EOF && result < ARCHIVE_WARN) return fail(error());
    ended_ = result == ARCHIVE_EOF;
    if (size == 0) continue;
    unpacked_ += size;
    if (unpacked_ >= kRatioFrom && packed_ > 0 && unpacked_ / packed_ > max_ratio_) {
      return fail(Error::invalid("the archive unpacks to more than " + std::to_string(max_ratio_) +
                                 " times its size, the most that is allowed"));
    }
    const std::string_view bytes(static_cast<const char*>(data), size);
    hash_.update(bytes);
    return bytes;
  }
  return std::string_view();
}

}  // namespace caisson::image
