#include "box/accounts.h"

#include <charconv>

#include "base/error.h"
#include "base/sys.h"
#include "image/stacked_files.h"

namespace caisson::box {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;
constexpr std::string_view kHostPasswd =
    "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n";
constexpr std::string_view kHostGroup = "root:x:0:\nuser:x:1000:\n";

// Empty where there is nothing to read.
Result<std::string> read_in_image(std::span<const int> root_fds, const char* path) {
  const auto refuse = [&](const std::string& why) {
    return fail(Error::exhausted("the image's /" + std::string(path) + ": " + why));
  };
  auto file = image::open_stacked_file(root_fds, path);
  if (!file.has_value() && file.error().code() == Code::kResourceExhausted)
    return refuse(file.error().message());
  if (!file.has_value()) return std::string();
  auto text = sys::read_again(file->get(), kMostBytes + 1);
  if (!text.has_value()) return std::string();
  if (text->size() > kMostBytes) return refuse("it is longer than the 1 MiB that is allowed");
  return std::move(*text);
}

// Who is a number is that one, whatever the files say.
bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string_view field(std::string_view line, std::size_t index) {
  for (; index > 0; --index) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return {};
    line.remove_prefix(colon + 1);
  }
  return line.substr(0, line.find(':'));
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// The first line whose field `index` is `value`.
std::string_view find_line(std::string_view text, std::size_t index, std::string_view value) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (field(line, index) == value && !value.empty()) return line;
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
  }
  return {};
}

}  // namespace

Account find_account_in(std::string_view passwd, std::string_view group, std::string_view user) {
  Account account;
  if (user.empty()) {
    const std::string_view line = find_line(passwd, 2, "1000");
    if (line.empty()) return {.uid = 0, .gid = 0, .user = "0"};
    account.gid = number(field(line, 3)).value_or(1000);
    account.user = field(line, 0);
    return account;
  }
  account.user = user;
  const std::size_t colon = user.find(':');
  const std::string_view name = user.substr(0, colon);
  const auto uid = number(name);
  const std::string_view line =
      uid.has_value() ? find_line(passwd, 2, name) : find_line(passwd, 0, name);
  const auto named = uid.has_value() ? uid : number(field(line, 2));
  account.uid = named.value_or(1000);
  if (!named.has_value()) account.unknown = "user " + std::string(name);
  account.gid = number(field(line, 3)).value_or(account.uid);
  if (colon == std::string_view::npos) return account;
  const std::string_view group_name = user.substr(colon + 1);
  auto gid = number(group_name);
  if (!gid.has_value()) gid = number(field(find_line(group, 0, group_name), 2));
  if (!gid.has_value() && account.unknown.empty())
    account.unknown = "group " + std::string(group_name);
  account.gid = gid.value_or(account.gid);
  return account;
}

Result<Account> find_account(std::span<const int> image_root_fds, const std::string& user) {
  if (image_root_fds.empty()) return find_account_in(kHostPasswd, kHostGroup, user);
  const std::size_t colon = user.find(':');
  Result<std::string> passwd = read_in_image(image_root_fds, "etc/passwd");
  if (!passwd.has_value() && !is_number(user.substr(0, colon))) return fail(passwd.error());
  std::string group;
  if (colon != std::string::npos && !is_number(user.substr(colon + 1))) {
    TRY_ASSIGN(group, read_in_image(image_root_fds, "etc/group"));
  }
  return find_account_in(passwd.value_or(""), group, user);
}

}  // namespace caisson::box
