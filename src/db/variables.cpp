#include "db/variables.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/encoding.h"
#include "base/json.h"
#include "base/secret.h"
#include "base/sys.h"
#include "db/private_file.h"
#include "db/text.h"

namespace caisson::db {
namespace {

constexpr std::size_t kMaxId = 64;

// An id is a file's name here, and must not lead anywhere else.
Status check_id(std::string_view id) {
  const bool right = !id.empty() && id.size() <= kMaxId && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
  if (right) return {};
  return fail(Error::invalid("sandbox: found " + quoted(id) + "; allowed are a-z and 0-9"));
}

Result<std::string> to_json(const Variables::Map& variables) {
  json::Value::Object members;
  for (const auto& [name, value] : variables) {
    if (!is_utf8(name) || !is_utf8(value)) {
      return fail(Error::invalid("variables: found " + quoted(name) +
                                 " with bytes that are not UTF-8; allowed is UTF-8"));
    }
    members.push_back({name, value});
  }
  std::string text = json::serialize(json::Value(std::move(members)));
  if (text.size() > kMaxVariablesBytes) {
    return fail(Error::invalid("variables: found " + std::to_string(text.size()) +
                               " bytes as JSON; allowed are " +
                               std::to_string(kMaxVariablesBytes)));
  }
  return text;
}

Result<Variables::Map> parse(std::string_view text) {
  TRY_ASSIGN(const json::Value value, json::parse(text, {.bytes = kMaxVariablesBytes}));
  const json::Value::Object* members = value.as_object();
  if (members == nullptr) return fail(Error(Code::kDataLoss, "not an object"));
  Variables::Map variables;
  for (const json::Member& member : *members) {
    const std::string* text_value = member.value.as_string();
    if (text_value == nullptr) return fail(Error(Code::kDataLoss, "a value that is no text"));
    variables.emplace(member.key, *text_value);
  }
  return variables;
}

}  // namespace

Result<Variables> Variables::open(const std::string& run_directory) {
  TRY_ASSIGN(Fd folder, open_private_directory(run_directory + "/served-env"));
  return Variables(std::move(folder));
}

Status Variables::check(const Map& variables) {
  TRY(to_json(variables));
  return {};
}

Status Variables::put(std::string_view sandbox_id, const Map& variables) {
  TRY(check_id(sandbox_id));
  TRY_ASSIGN(const std::string text, to_json(variables));
  const std::string name(sandbox_id);
  // Not a name that an id can have.
  const std::string beside = name + "." + random_hex(16);
  const Fd file(
      ::openat(folder_.get(), beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("make " + beside);
  const auto fill = [&]() -> Status {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t written = ::write(file.get(), text.data() + done, text.size() - done);
      if (written < 0) return fail_errno("write " + beside);
      done += static_cast<std::size_t>(written);
    }
    if (::renameat(folder_.get(), beside.c_str(), folder_.get(), name.c_str()) != 0) {
      return fail_errno("rename " + beside);
    }
    return {};
  };
  auto filled = fill();
  if (!filled.has_value()) ::unlinkat(folder_.get(), beside.c_str(), 0);
  return filled;
}

Result<Variables::Map> Variables::get(std::string_view sandbox_id) {
  TRY(check_id(sandbox_id));
  const std::string name(sandbox_id);
  auto text = sys::read_file(folder_.get(), name, kMaxVariablesBytes);
  if (!text.has_value() && text.error().code() == Code::kNotFound) return Map();
  if (!text.has_value()) return fail(std::move(text).error());
  auto variables = parse(*text);
  if (!variables.has_value()) return fail(std::move(variables).error().with(name));
  return variables;
}

Status Variables::remove(std::string_view sandbox_id) {
  TRY(check_id(sandbox_id));
  const std::string name(sandbox_id);
  if (::unlinkat(folder_.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
    return fail_errno("remove " + name);
  }
  return {};
}

Status Variables::keep_only(const std::vector<std::string>& sandbox_ids) {
  // A descriptor of its own, since reading moves it.
  Fd copy(::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copy.valid()) return fail_errno("open the folder of variables");
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::fdopendir(copy.get()), ::closedir);
  if (list == nullptr) return fail_errno("read the folder of variables");
  (void)copy.take();
  while (const dirent* entry = ::readdir(list.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || std::ranges::find(sandbox_ids, name) != sandbox_ids.end())
      continue;
    if (::unlinkat(folder_.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
      return fail_errno("remove " + name);
    }
  }
  return {};
}

}  // namespace caisson::db
