#include "api/e2b/entry.h"

#include <optional>
#include <vector>

#include "api/e2b/messages.h"
#include "api/e2b/path.h"

namespace caisson::api::e2b {

using proto::FileType;
using proto::Tag;

namespace {

constexpr std::uint32_t kSetUid = 04000, kSetGid = 02000, kSticky = 01000;

EntryType entry_type(std::optional<FileType> type) {
  if (type == FileType::kRegular) return EntryType::kFile;
  if (type == FileType::kDirectory) return EntryType::kDirectory;
  return EntryType::kUnspecified;
}

std::optional<FileType> type_of(const proto::FieldReader& event, Tag tag) {
  const auto number = event.number_or_none(tag);
  if (!number.has_value() || *number < 1 || *number > 7) return std::nullopt;
  return static_cast<FileType>(*number);
}

// A name where there is one, else the number.
std::string owner(const proto::FieldReader& event, Tag name, Tag number) {
  if (const auto text = event.text(name); text.has_value() && !text->empty())
    return std::string(*text);
  return std::to_string(event.number_or_none(number).value_or(0));
}

}  // namespace

void want_details(proto::Fields& fields) {
  fields.put_u8(Tag::kWantDetails, 1).put(Tag::kXattrPrefix, kMetadataPrefix);
}

std::string permissions(FileType type, std::uint32_t mode) {
  std::string text;
  if (type == FileType::kDirectory) text += 'd';
  if (type == FileType::kSymlink) text += 'L';
  if (type == FileType::kCharacterDevice || type == FileType::kBlockDevice) text += 'D';
  if (type == FileType::kFifo) text += 'p';
  if (type == FileType::kSocket) text += 'S';
  if ((mode & kSetUid) != 0) text += 'u';
  if ((mode & kSetGid) != 0) text += 'g';
  if (type == FileType::kCharacterDevice) text += 'c';
  if ((mode & kSticky) != 0) text += 't';
  if (text.empty()) text = "-";
  constexpr std::string_view kLetters = "rwxrwxrwx";
  for (std::size_t i = 0; i < kLetters.size(); ++i)
    text += (mode & (0400u >> i)) != 0 ? kLetters[i] : '-';
  return text;
}

json::Value metadata_of(const proto::FieldReader& event) {
  const std::vector<std::string_view> names = event.all(Tag::kXattrName);
  const std::vector<std::string_view> values = event.all(Tag::kXattrValue);
  json::Value metadata = json::Value::object();
  for (std::size_t i = 0; i < names.size() && i < values.size(); ++i) {
    if (names[i].starts_with(kMetadataPrefix))
      metadata.set(names[i].substr(kMetadataPrefix.size()), values[i]);
  }
  return metadata;
}

Result<json::Value> entry_info(const proto::FieldReader& event, std::string_view path) {
  const std::optional<FileType> type = type_of(event, Tag::kFileType);
  const auto mode = event.number_or_none(Tag::kMode);
  const auto size = event.number_or_none(Tag::kSize);
  if (!type.has_value() || !mode.has_value() || !size.has_value())
    return fail(Error::internal("the guest told too little of " + std::string(path)));
  const auto bits = static_cast<std::uint32_t>(*mode & 07777);
  // A link is what it leads to, and nothing where it leads nowhere.
  const EntryType shown =
      entry_type(type == FileType::kSymlink ? type_of(event, Tag::kTargetType) : type);
  json::Value entry = json::Value::object();
  entry.set("name", base_name(path))
      .set("type", static_cast<std::uint8_t>(shown))
      .set("path", path)
      .set("size", static_cast<std::int64_t>(*size))
      .set("mode", bits & 0777)
      .set("permissions", permissions(*type, bits))
      .set("owner", owner(event, Tag::kUserName, Tag::kUid))
      .set("group", owner(event, Tag::kGroupName, Tag::kGid))
      .set("modifiedTime",
           static_cast<std::int64_t>(event.number_or_none(Tag::kMtimeNs).value_or(0)));
  if (type == FileType::kSymlink) {
    // Of a broken link its own text is all that there is.
    const auto resolved = event.text(Tag::kResolved);
    const auto target = event.text(Tag::kTarget);
    if (resolved.has_value()) {
      entry.set("symlinkTarget", *resolved);
    } else if (target.has_value()) {
      entry.set("symlinkTarget", *target);
    }
  }
  if (json::Value metadata = metadata_of(event); !metadata.as_object()->empty())
    entry.set("metadata", std::move(metadata));
  return entry;
}

}  // namespace caisson::api::e2b
