// libraries: guest base
// parser: src/guest/exec_request.cpp src/guest/users.cpp
//
// What the guest makes of a request to run a command: the payload of the OPEN frame, and the user
// that it names, looked up in files that the sandbox wrote. Nothing that comes out is beyond its
// bounds.
#include <cstdlib>

#include "guest/exec_child.h"
#include "guest/users.h"

using namespace caisson;

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

void resolve(std::string_view user, std::string_view passwd, std::string_view group) {
  const guest::AccountFiles files{[passwd] { return Result<std::string>(std::string(passwd)); },
                                  [group] { return Result<std::string>(std::string(group)); }};
  // Where the files cannot be read, numbers alone are users and groups.
  const auto unreadable = [] { return Result<std::string>(fail(Error::not_found("no file"))); };
  if (const auto numeric = guest::resolve_user(user, {unreadable, unreadable}); numeric.has_value())
    check(numeric->groups.empty() && numeric->name.empty());
  const guest::AccountNames names = guest::AccountNames::read(files);
  check(names.user(0).find_first_of(":\n") == std::string_view::npos);
  check(names.group(0).find_first_of(":\n") == std::string_view::npos);
  const Result<guest::Account> account = guest::resolve_user(user, files);
  if (!account.has_value()) return;
  check(account->groups.size() <= guest::kMaxSupplementaryGroups);
  check(account->uid != 0xffffffffu && account->gid != 0xffffffffu);
  check(account->home.starts_with('/') && account->shell.starts_with('/'));
  check(account->home.find('\0') == std::string::npos);
  check(account->name.find_first_of(":\n") == std::string::npos);
}

}  // namespace

// Up to three parts with 0xff 0xff between them: the payload, passwd, group.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  std::string_view parts[3];
  std::string_view rest = all;
  for (std::string_view& part : parts) {
    const std::size_t end = rest.find("\xff\xff");
    part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 2);
  }
  const Result<proto::FieldReader> fields = proto::FieldReader::parse(parts[0]);
  if (!fields.has_value()) return 0;
  const Result<guest::ExecRequest> request = guest::ExecRequest::parse(*fields);
  if (!request.has_value()) return 0;
  check(!request->arguments.empty());
  check(request->directory.empty() || request->directory.starts_with('/'));
  for (const std::string& setting : request->environment) check(setting.find('=') != 0);
  resolve(request->user, parts[1], parts[2]);
  return 0;
}
