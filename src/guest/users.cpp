#include "guest/users.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace caisson::guest {
namespace {

constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxHome = 4095;

std::optional<std::uint32_t> parse_id(std::string_view text) {
  std::uint32_t id = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  // The all-ones id means "leave as it is" to the kernel.
  if (error != std::errc() || end != text.data() + text.size() || id == 0xffffffffu)
    return std::nullopt;
  return id;
}

// The lines of an account file, split at the colons; lines with another number of fields are left
// out.
template <std::size_t kFields, typename Visit>
void for_each_entry(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find('\0') != std::string_view::npos) continue;
    std::array<std::string_view, kFields> fields;
    std::size_t count = 0;
    for (;; ++count) {
      const std::size_t colon = line.find(':');
      if (count < kFields) fields[count] = line.substr(0, colon);
      if (colon == std::string_view::npos) break;
      line.remove_prefix(colon + 1);
    }
    if (count + 1 != kFields || fields[0].empty() || fields[0].size() > kMaxName) continue;
    if (!visit(fields)) return;
  }
}

// Fills `account` from the entry of that name, or of that uid where the name is empty.
bool find_account(std::string_view passwd, std::string_view name, uid_t uid, Account& account) {
  bool found = false;
  for_each_entry<7>(passwd, [&](const std::array<std::string_view, 7>& fields) {
    const std::optional<std::uint32_t> entry_uid = parse_id(fields[2]);
    const std::optional<std::uint32_t> entry_gid = parse_id(fields[3]);
    if (!entry_uid || !entry_gid) return true;
    if (name.empty() ? *entry_uid != uid : fields[0] != name) return true;
    found = true;
    account.uid = *entry_uid;
    account.gid = *entry_gid;
    account.name = fields[0];
    if (fields[5].starts_with('/') && fields[5].size() <= kMaxHome) account.home = fields[5];
    if (fields[6].starts_with('/') && fields[6].size() <= kMaxHome) account.shell = fields[6];
    return false;
  });
  return found;
}

bool is_member(std::string_view members, std::string_view name) {
  while (!members.empty()) {
    const std::size_t comma = members.find(',');
    if (members.substr(0, comma) == name) return true;
    if (comma == std::string_view::npos) return false;
    members.remove_prefix(comma + 1);
  }
  return false;
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, kMaxName))
    out += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  return out + "'";
}

}  // namespace

Result<Account> resolve_user(std::string_view user, const AccountFiles& files) {
  const std::size_t colon = user.find(':');
  std::string_view name = user.substr(0, colon);
  const std::string_view group =
      colon == std::string_view::npos ? std::string_view() : user.substr(colon + 1);
  if (user.empty()) name = "0";
  if (name.empty() || (colon != std::string_view::npos && group.empty()) ||
      group.find(':') != std::string_view::npos)
    return fail(
        Error::invalid("user " + quoted(user) + ": allowed are NAME, UID, NAME:GROUP and UID:GID"));

  Account account;
  const std::optional<std::uint32_t> uid = parse_id(name);
  Result<std::string> passwd = files.passwd();
  if (uid) {
    account.uid = *uid;
    account.gid = *uid;
    if (passwd) find_account(*passwd, {}, *uid, account);
  } else {
    if (!passwd) return fail(std::move(passwd).error().with("user " + quoted(name)));
    if (!find_account(*passwd, name, 0, account))
      return fail(Error::not_found("user " + quoted(name) + ": no such entry in /etc/passwd"));
  }

  const std::optional<std::uint32_t> gid = group.empty() ? std::nullopt : parse_id(group);
  if (gid) account.gid = *gid;
  const bool group_by_name = !group.empty() && !gid;
  // A number that has a name is that user, but who names a group as well wants that one.
  const bool memberships = !uid || (group.empty() && !account.name.empty());
  if (!group_by_name && !memberships) return account;

  Result<std::string> groups = files.group();
  if (!groups) {
    if (group_by_name) return fail(std::move(groups).error().with("group " + quoted(group)));
    return account;  // a user who is in no group
  }
  bool group_found = false;
  for_each_entry<4>(*groups, [&](const std::array<std::string_view, 4>& fields) {
    const std::optional<std::uint32_t> id = parse_id(fields[2]);
    if (!id) return true;
    if (group_by_name && !group_found && fields[0] == group) {
      account.gid = *id;
      group_found = true;
    }
    if (memberships && account.groups.size() < kMaxSupplementaryGroups &&
        is_member(fields[3], account.name))
      account.groups.push_back(*id);
    return true;
  });
  if (group_by_name && !group_found)
    return fail(Error::not_found("group " + quoted(group) + ": no such entry in /etc/group"));
  return account;
}

AccountNames AccountNames::read(const AccountFiles& files) {
  AccountNames names;
  // The first entry of an id is the one that counts.
  if (const Result<std::string> passwd = files.passwd(); passwd)
    for_each_entry<7>(*passwd, [&](const std::array<std::string_view, 7>& fields) {
      if (const auto id = parse_id(fields[2])) names.users_.try_emplace(*id, fields[0]);
      return true;
    });
  if (const Result<std::string> groups = files.group(); groups)
    for_each_entry<4>(*groups, [&](const std::array<std::string_view, 4>& fields) {
      if (const auto id = parse_id(fields[2])) names.groups_.try_emplace(*id, fields[0]);
      return true;
    });
  return names;
}

}  // namespace caisson::guest
