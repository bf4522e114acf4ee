#include "box/inside_entry.h"

#include <string>

namespace caisson::box {

using proto::Tag;

namespace {

constexpr std::size_t kMostLink = 4095;

}  // namespace

Error broken_protocol(std::string_view what) {
  return Error(Code::kDataLoss, "the sandbox broke the protocol: " + std::string(what));
}

Result<InsideEntry> inside_entry(const proto::FieldReader& fields) {
  InsideEntry entry;
  TRY_ASSIGN(const std::uint64_t type, fields.number(Tag::kFileType));
  if (type < static_cast<std::uint64_t>(proto::FileType::kRegular) ||
      type > static_cast<std::uint64_t>(proto::FileType::kBlockDevice))
    return fail(broken_protocol("a file of unknown type"));
  entry.type = static_cast<proto::FileType>(type);
  entry.all_mode =
      static_cast<std::uint32_t>(fields.number_or_none(Tag::kMode).value_or(0) & 07777);
  entry.mode = entry.all_mode & 0777;
  entry.uid = static_cast<std::uint32_t>(fields.number_or_none(Tag::kUid).value_or(0));
  entry.gid = static_cast<std::uint32_t>(fields.number_or_none(Tag::kGid).value_or(0));
  entry.size = fields.number_or_none(Tag::kSize).value_or(0);
  entry.modified = fields.number_or_none(Tag::kMtimeNs);
  if (fields.has(Tag::kTarget)) {
    TRY_ASSIGN(const std::string_view target, fields.text(Tag::kTarget));
    entry.target = target;
  }
  if (fields.has(Tag::kName)) {
    TRY_ASSIGN(const std::string_view name, fields.text(Tag::kName));
    entry.name = name;
  }
  return entry;
}

Error inside_error(const proto::FieldReader& fields, std::string_view what) {
  const std::uint64_t code = fields.number_or_none(Tag::kErrorCode).value_or(0);
  const bool known = code >= static_cast<std::uint64_t>(Code::kCancelled) &&
                     code <= static_cast<std::uint64_t>(Code::kUnauthenticated);
  const auto message = fields.text(Tag::kErrorMessage);
  return Error(known ? static_cast<Code>(code) : Code::kUnknown,
               message.has_value() ? "inside: " + std::string(*message)
                                   : std::string(what) + " failed inside");
}

bool is_entry_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool is_relative_path(std::string_view path) {
  for (std::size_t depth = 0; depth < kMostDepth; ++depth) {
    const std::size_t slash = path.find('/');
    if (!is_entry_name(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
  return false;
}

bool link_stays_inside(std::string_view target, std::size_t depth) {
  if (target.empty() || target.size() > kMostLink || target[0] == '/' ||
      target.find('\0') != std::string_view::npos)
    return false;
  // ".." may only lead: behind a name it would start from where that name, perhaps a link, points.
  bool named = false;
  for (;;) {
    const std::size_t slash = target.find('/');
    const std::string_view part = target.substr(0, slash);
    if (part == "..") {
      if (named || depth == 0) return false;
      --depth;
    } else if (!part.empty() && part != ".") {
      named = true;
    }
    if (slash == std::string_view::npos) return true;
    target.remove_prefix(slash + 1);
  }
}

}  // namespace caisson::box
