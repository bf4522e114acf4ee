// What the OPEN frame of a file operation asks for, as far as several operations have it alike:
// paths, numbers, owners, extended attributes. Pure.
#include <climits>

#include "guest/file_details.h"
#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::Tag;

Result<std::uint32_t> id_field(const proto::FieldReader& fields, Tag tag, std::uint32_t fallback) {
  TRY_ASSIGN(const std::uint64_t id, number_field(fields, tag, fallback));
  if (id > fallback) return fail(Error::invalid("file: an owner's id has more than 32 bits"));
  return static_cast<std::uint32_t>(id);
}

Status check_attribute_name(std::string_view name) {
  if (!name.starts_with("user.") || name.size() > 255 || name.find('\0') != std::string_view::npos)
    return fail(
        Error::invalid("extended attribute: allowed are names that begin with user. and "
                       "have at most 255 bytes"));
  return {};
}

}  // namespace

Result<std::string> checked_path(std::string_view path) {
  if (!path.starts_with('/') || path.size() >= PATH_MAX ||
      path.find('\0') != std::string_view::npos)
    return fail(
        Error::invalid("file: a path is absolute, shorter than 4096 bytes and has no zero "
                       "byte"));
  return std::string(path);
}

Result<std::string> path_field(const proto::FieldReader& fields, Tag tag) {
  TRY_ASSIGN(const std::string_view path, fields.text(tag));
  return checked_path(path);
}

Result<std::uint64_t> number_field(const proto::FieldReader& fields, Tag tag,
                                   std::uint64_t fallback) {
  if (!fields.has(tag)) return fallback;
  return fields.number(tag);
}

Result<Owner> Owner::wanted(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::uint32_t uid, id_field(fields, Tag::kUid, kUnchanged));
  TRY_ASSIGN(const std::uint32_t gid, id_field(fields, Tag::kGid, kUnchanged));
  return Owner(uid, gid);
}

Result<std::string> attribute_name(const proto::FieldReader& fields, Tag tag) {
  TRY_ASSIGN(const std::string_view name, fields.text(tag));
  TRY(check_attribute_name(name));
  return std::string(name);
}

Result<std::optional<Attributes>> Attributes::wanted(const proto::FieldReader& fields) {
  if (!fields.has(Tag::kXattrPrefix)) return std::optional<Attributes>();
  Attributes attributes;
  TRY_ASSIGN(attributes.prefix, attribute_name(fields, Tag::kXattrPrefix));
  const std::vector<std::string_view> names = fields.all(Tag::kXattrName);
  const std::vector<std::string_view> values = fields.all(Tag::kXattrValue);
  if (names.size() != values.size())
    return fail(Error::invalid("extended attributes: " + std::to_string(names.size()) +
                               " names and " + std::to_string(values.size()) + " values"));
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    TRY(check_attribute_name(names[i]));
    if (!names[i].starts_with(attributes.prefix))
      return fail(Error::invalid("extended attribute: a name does not begin with the prefix " +
                                 attributes.prefix));
    bytes += names[i].size() + values[i].size();
    attributes.values.emplace_back(names[i], values[i]);
  }
  if (names.size() > kMaxAttributes || bytes > kMaxAttributeBytes)
    return fail(Error::invalid("extended attributes: " + std::to_string(names.size()) + " of " +
                               std::to_string(bytes) + " bytes, at most " +
                               std::to_string(kMaxAttributes) + " of " +
                               std::to_string(kMaxAttributeBytes) + " bytes are allowed"));
  return attributes;
}

}  // namespace caisson::guest
