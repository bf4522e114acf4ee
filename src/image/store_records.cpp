#include <charconv>
#include <optional>
#include <utility>

#include "base/sha256.h"
#include "image/reference.h"
#include "image/store_types.h"

namespace caisson::image {
namespace {

constexpr std::string_view kRootfsHeader = "caisson-rootfs 1\n";
constexpr std::string_view kDeltaHeader = "caisson-rootfs 2\n";
constexpr std::string_view kRecordHeader = "caisson-image 2\n";
constexpr std::string_view kReferenceHeader = "caisson-image-reference 2\n";
constexpr std::string_view kFirstReferenceHeader = "caisson-image-reference 1\n";
constexpr std::string_view kFirstInfoHeader = "caisson-image 1\n";
constexpr std::string_view kCacheHeader = "caisson-build-cache 1\n";

Error damaged(std::string_view what, std::string_view why) {
  return Error(Code::kDataLoss, std::string(what) + std::string(why));
}

// "key value\n" lines behind a header line, in their order.
class Lines {
 public:
  static Result<Lines> parse(std::string_view text, std::string_view header,
                             std::string_view what) {
    if (!text.starts_with(header)) {
      const std::string first(header.substr(0, header.size() - 1));
      return fail(damaged(what, " does not begin with '" + first + "'"));
    }
    Lines lines(what);
    for (std::string_view rest = text.substr(header.size()); !rest.empty();) {
      const std::size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      const std::size_t space = line.find(' ');
      if (end == std::string_view::npos || space == std::string_view::npos) {
        return fail(damaged(what, ": malformed line '" + printable(line) + "'"));
      }
      lines.lines_.emplace_back(line.substr(0, space), line.substr(space + 1));
      rest.remove_prefix(end + 1);
    }
    return lines;
  }

  std::vector<std::string_view> all(std::string_view key) const {
    std::vector<std::string_view> found;
    for (const auto& [name, value] : lines_) {
      if (name == key) found.push_back(value);
    }
    return found;
  }
  // Empty where there is none.
  std::string text(std::string_view key) const {
    for (const auto& [name, value] : lines_) {
      if (name == key) return std::string(value);
    }
    return {};
  }
  Result<std::string> digest(std::string_view key) const {
    std::string value = text(key);
    if (!is_sha256(value)) {
      return fail(damaged(what_, ": '" + std::string(key) + "' is no SHA-256"));
    }
    return value;
  }
  template <typename Number>
  Result<Number> number(std::string_view key) const {
    std::optional<Number> number = number_of<Number>(text(key));
    if (!number) {
      return fail(damaged(what_, ": '" + std::string(key) + "' is missing or no number"));
    }
    return *number;
  }
  template <typename Number>
  static std::optional<Number> number_of(std::string_view text) {
    Number number = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
      return std::nullopt;
    }
    return number;
  }

 private:
  explicit Lines(std::string_view what) : what_(what) {}
  std::string_view what_;
  std::vector<std::pair<std::string_view, std::string_view>> lines_;
};

class Writer {
 public:
  explicit Writer(std::string_view header) : text_(header) {}
  Writer& line(std::string_view key, std::string_view value) {
    text_.append(key).append(" ").append(value).append("\n");
    return *this;
  }
  Writer& line(std::string_view key, std::uint64_t value) {
    return line(key, std::to_string(value));
  }
  std::string text() { return std::move(text_); }

 private:
  std::string text_;
};

// "DIGEST SIZE DIFF_ID MEDIA_TYPE"
std::optional<LayerRef> parse_layer(std::string_view text) {
  LayerRef layer;
  std::vector<std::string_view> words;
  for (int i = 0; i < 3; ++i) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    words.push_back(text.substr(0, space));
    text.remove_prefix(space + 1);
  }
  const auto size = Lines::number_of<std::uint64_t>(words[1]);
  if (!is_sha256(words[0]) || !size || !is_sha256(words[2]) || text.empty()) return std::nullopt;
  return LayerRef{
      .blob = {.media_type = std::string(text), .digest = std::string(words[0]), .size = *size},
      .diff_id = std::string(words[2])};
}

}  // namespace

std::string_view to_string(RootfsForm form) {
  return form == RootfsForm::kErofs ? "erofs" : "directory";
}

std::string chain_id(const std::vector<LayerRef>& layers) {
  if (layers.empty()) return Sha256().finish();
  std::string chain;
  for (const LayerRef& layer : layers) {
    if (chain.empty()) {
      chain = layer.diff_id;
      continue;
    }
    Sha256 hash;
    hash.update("sha256:" + chain + " sha256:" + layer.diff_id);
    chain = hash.finish();
  }
  return chain;
}

std::string RootfsInfo::encode() const {
  // Another header, since a caisson that knows no deltas must not take one for the whole.
  Writer writer(below.empty() ? kRootfsHeader : kDeltaHeader);
  writer.line("chain", chain);
  if (!below.empty()) writer.line("below", below);
  return writer.line("form", to_string(form))
      .line("layout", image::to_string(ids.layout))
      .line("uid-base", ids.uid_base)
      .line("gid-base", ids.gid_base)
      .line("own-uid", ids.own_uid)
      .line("own-gid", ids.own_gid)
      .line("entries", entries)
      .line("bytes", bytes)
      .line("disk-bytes", disk_bytes)
      .text();
}

Result<RootfsInfo> RootfsInfo::decode(std::string_view text) {
  constexpr std::string_view kWhat = "the root file system's info file";
  const bool delta = text.starts_with(kDeltaHeader);
  TRY_ASSIGN(const Lines lines, Lines::parse(text, delta ? kDeltaHeader : kRootfsHeader, kWhat));
  RootfsInfo info;
  TRY_ASSIGN(info.chain, lines.digest("chain"));
  if (delta) {
    TRY_ASSIGN(info.below, lines.digest("below"));
  }
  const std::string form = lines.text("form");
  const std::optional<IdLayout> layout = parse_id_layout(lines.text("layout"));
  if ((form != "directory" && form != "erofs") || !layout) {
    return fail(damaged(kWhat, ": 'form' or 'layout' is wrong"));
  }
  info.form = form == "erofs" ? RootfsForm::kErofs : RootfsForm::kDirectory;
  info.ids.layout = *layout;
  TRY_ASSIGN(info.ids.uid_base, lines.number<std::uint32_t>("uid-base"));
  TRY_ASSIGN(info.ids.gid_base, lines.number<std::uint32_t>("gid-base"));
  TRY_ASSIGN(info.ids.own_uid, lines.number<std::uint32_t>("own-uid"));
  TRY_ASSIGN(info.ids.own_gid, lines.number<std::uint32_t>("own-gid"));
  TRY_ASSIGN(info.entries, lines.number<std::uint64_t>("entries"));
  TRY_ASSIGN(info.bytes, lines.number<std::uint64_t>("bytes"));
  TRY_ASSIGN(info.disk_bytes, lines.number<std::uint64_t>("disk-bytes"));
  return info;
}

std::uint64_t ImageRecord::layer_bytes() const {
  std::uint64_t bytes = 0;
  for (const LayerRef& layer : layers) bytes += layer.blob.size;
  return bytes;
}

std::string ImageRecord::encode() const {
  Writer writer(kRecordHeader);
  writer.line("id", id).line("chain", chain).line("config-size", config_size);
  if (!manifest.empty()) writer.line("manifest", manifest);
  for (const LayerRef& layer : layers) {
    writer.line("layer", layer.blob.digest + " " + std::to_string(layer.blob.size) + " " +
                             layer.diff_id + " " + layer.blob.media_type);
  }
  return writer.text();
}

Result<ImageRecord> ImageRecord::decode(std::string_view text) {
  constexpr std::string_view kWhat = "the image's record";
  TRY_ASSIGN(const Lines lines, Lines::parse(text, kRecordHeader, kWhat));
  ImageRecord record;
  TRY_ASSIGN(record.id, lines.digest("id"));
  TRY_ASSIGN(record.chain, lines.digest("chain"));
  TRY_ASSIGN(record.config_size, lines.number<std::uint64_t>("config-size"));
  if (!lines.text("manifest").empty()) {
    TRY_ASSIGN(record.manifest, lines.digest("manifest"));
  }
  for (const std::string_view line : lines.all("layer")) {
    std::optional<LayerRef> layer = parse_layer(line);
    if (!layer) return fail(damaged(kWhat, ": malformed layer '" + printable(line) + "'"));
    record.layers.push_back(std::move(*layer));
  }
  if (chain_id(record.layers) != record.chain) {
    return fail(damaged(kWhat, ": 'chain' is not that of its layers"));
  }
  return record;
}

std::string ReferenceRecord::encode() const {
  return Writer(kReferenceHeader)
      .line("image", image_id)
      .line("set", std::to_string(set_at))
      .text();
}

Result<ReferenceRecord> ReferenceRecord::decode(std::string_view text) {
  constexpr std::string_view kWhat = "the file of the name";
  if (text.starts_with(kFirstReferenceHeader)) {
    return fail(Error::precondition(
        "an older caisson imported it, in a form that is not used any more; import it again"));
  }
  TRY_ASSIGN(const Lines lines, Lines::parse(text, kReferenceHeader, kWhat));
  ReferenceRecord record;
  TRY_ASSIGN(record.image_id, lines.digest("image"));
  TRY_ASSIGN(record.set_at, lines.number<std::int64_t>("set"));
  return record;
}

std::string first_format_digest(std::string_view reference_text) {
  const auto lines = Lines::parse(reference_text, kFirstReferenceHeader, "");
  return lines.has_value() ? lines->text("digest") : std::string();
}

std::uint64_t first_format_bytes(std::string_view info_text) {
  const auto lines = Lines::parse(info_text, kFirstInfoHeader, "");
  return lines.has_value() ? lines->number<std::uint64_t>("bytes").value_or(0) : 0;
}

std::string CacheRecord::encode() const {
  return Writer(kCacheHeader).line("image", image_id).text();
}

Result<CacheRecord> CacheRecord::decode(std::string_view text) {
  TRY_ASSIGN(const Lines lines, Lines::parse(text, kCacheHeader, "the build cache's entry"));
  CacheRecord record;
  TRY_ASSIGN(record.image_id, lines.digest("image"));
  return record;
}

}  // namespace caisson::image
