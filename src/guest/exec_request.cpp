#include <cstring>

#include "guest/exec_child.h"

namespace caisson::guest {
namespace {

using proto::Tag;

constexpr std::size_t kRlimitBytes = 4 + 8 + 8;
constexpr std::uint64_t kMaxCgroups = 16;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = (value << 8) | static_cast<std::uint8_t>(bytes[i]);
  return value;
}

bool has_nul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

Result<std::vector<std::string>> settings(const proto::FieldReader& fields, Tag tag) {
  std::vector<std::string> out;
  for (const std::string_view value : fields.all(tag)) {
    const std::size_t equals = value.find('=');
    if (equals == std::string_view::npos || equals == 0 || has_nul(value))
      return fail(Error::invalid("exec: an environment setting is not NAME=VALUE"));
    out.emplace_back(value);
  }
  return out;
}

// An optional number of at most `limit`; 0 where it is absent.
Result<std::uint64_t> small_number(const proto::FieldReader& fields, Tag tag, std::uint64_t limit) {
  if (!fields.has(tag)) return std::uint64_t{0};
  TRY_ASSIGN(const std::uint64_t value, fields.number(tag));
  if (value > limit)
    return fail(Error::invalid("exec: field " + std::to_string(static_cast<int>(tag)) + " is " +
                               std::to_string(value) + ", at most " + std::to_string(limit) +
                               " is allowed"));
  return value;
}

}  // namespace

Result<ExecRequest> ExecRequest::parse(const proto::FieldReader& fields) {
  ExecRequest request;
  for (const std::string_view argument : fields.all(Tag::kArg)) {
    if (has_nul(argument)) return fail(Error::invalid("exec: an argument contains a zero byte"));
    request.arguments.emplace_back(argument);
  }
  if (request.arguments.empty()) return fail(Error::invalid("exec: no command"));
  TRY_ASSIGN(request.environment, settings(fields, Tag::kEnv));
  TRY_ASSIGN(request.default_environment, settings(fields, Tag::kDefaultEnv));
  if (fields.has(Tag::kCwd)) {
    TRY_ASSIGN(request.directory, fields.text(Tag::kCwd));
    if (!request.directory.starts_with('/') || has_nul(request.directory))
      return fail(Error::invalid("exec: the working directory is not an absolute path"));
  }
  if (fields.has(Tag::kUser)) {
    TRY_ASSIGN(request.user, fields.text(Tag::kUser));
  }
  if (fields.has(Tag::kPty)) {
    TRY_ASSIGN(const std::string_view size, fields.text(Tag::kPty));
    TRY_ASSIGN(request.terminal, parse_window_size(size));
  }
  for (const std::string_view value : fields.all(Tag::kRlimit)) {
    if (value.size() != kRlimitBytes)
      return fail(Error::invalid("exec: an rlimit has " + std::to_string(value.size()) +
                                 " bytes, it is u32 resource, u64 soft, u64 hard"));
    request.limits.push_back({static_cast<std::uint32_t>(little_endian(value.substr(0, 4))),
                              little_endian(value.substr(4, 8)),
                              little_endian(value.substr(12, 8))});
  }
  TRY_ASSIGN(const std::uint64_t cgroups, small_number(fields, Tag::kCgroup, kMaxCgroups));
  TRY_ASSIGN(const std::uint64_t birth, small_number(fields, Tag::kBirthCgroup, 1));
  TRY_ASSIGN(const std::uint64_t profile,
             small_number(fields, Tag::kSyscallProfile, seccomp::kProfileCount - 1));
  TRY_ASSIGN(const std::uint64_t listener, small_number(fields, Tag::kWantListener, 1));
  TRY_ASSIGN(const std::uint64_t privileges, small_number(fields, Tag::kPrivileges, 1));
  TRY_ASSIGN(const std::uint64_t input, small_number(fields, Tag::kStdin, 1));
  TRY_ASSIGN(const std::uint64_t no_setid, small_number(fields, Tag::kNoSetid, 1));
  request.no_setid = no_setid == 1;
  request.cgroup_count = static_cast<std::uint32_t>(cgroups);
  request.birth_cgroup = birth == 1;
  request.profile = static_cast<seccomp::Profile>(profile);
  request.want_listener = listener == 1;
  request.sudo = privileges == 1;
  request.has_input = input == 1;
  return request;
}

Result<ExecRequest::WindowSize> parse_window_size(std::string_view bytes) {
  if (bytes.size() != 4)
    return fail(Error::invalid("terminal size: " + std::to_string(bytes.size()) +
                               " bytes, it is u16 columns, u16 rows"));
  return ExecRequest::WindowSize{static_cast<std::uint16_t>(little_endian(bytes.substr(0, 2))),
                                 static_cast<std::uint16_t>(little_endian(bytes.substr(2, 2)))};
}

}  // namespace caisson::guest
