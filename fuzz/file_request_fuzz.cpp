// libraries: guest base
// parser: src/guest/file_request.cpp src/guest/process_stat.cpp
//
// What the guest makes of a request for files: the fields of the OPEN frame that say what is to be
// created, for whom, and with which attributes; and a line of /proc that a process wrote its name
// into. Nothing that comes out is beyond its bounds.
#include <cstdlib>

#include "guest/file_details.h"
#include "guest/files.h"
#include "guest/process_stat.h"

using namespace caisson;

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

void check_path(const Result<std::string>& path) {
  if (!path.has_value()) return;
  check(path->starts_with('/') && path->size() < 4096);
  check(path->find('\0') == std::string::npos);
}

void read_fields(const proto::FieldReader& fields) {
  check_path(guest::path_field(fields, proto::Tag::kPath));
  check_path(guest::path_field(fields, proto::Tag::kTarget));
  for (const std::string_view source : fields.all(proto::Tag::kSource))
    check_path(guest::checked_path(source));
  if (const auto owner = guest::Owner::wanted(fields); owner.has_value())
    check(owner->given() || !fields.has(proto::Tag::kUid) ||
          fields.number(proto::Tag::kUid).value() == 0xffffffffu);
  const auto attributes = guest::Attributes::wanted(fields);
  if (!attributes.has_value() || !attributes->has_value()) return;
  std::size_t bytes = 0;
  for (const auto& [name, value] : (*attributes)->values) {
    check(name.starts_with((*attributes)->prefix) && name.starts_with("user."));
    check(name.size() <= 255 && name.find('\0') == std::string::npos);
    bytes += name.size() + value.size();
  }
  check((*attributes)->values.size() <= guest::kMaxAttributes);
  check(bytes <= guest::kMaxAttributeBytes);
}

}  // namespace

// Two parts with 0xff 0xff between them: the payload, the line.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = all.find("\xff\xff");
  if (const auto fields = proto::FieldReader::parse(all.substr(0, end)); fields.has_value())
    read_fields(*fields);
  if (end == std::string_view::npos) return 0;
  if (const auto stat = guest::parse_process_stat(all.substr(end + 2)); stat.has_value())
    check(stat->name.size() < size);
  return 0;
}
