// File operations of the guest, one stream each: the requests and their answers.
//
// Small writes and other short operations are sent without waiting for the answer of the one before
// (at most kWindow at once); the first error is kept and returned by whatever comes next. Borrows
// the connection, which nothing else may use meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/proto.h"
#include "box/connection.h"
#include "box/file_access.h"

namespace caisson::box {

// What a client does files with: the user's own rights or, as root of a sandbox with `privileges:
// sudo`, those that a command of root's has there.
enum class FileRights : std::uint8_t { kUser, kSudo };
enum class Follow : std::uint8_t { kNo, kYes };
// How a file that exists is written: into it, or beside it and then in its place, a link's too.
enum class Replace : std::uint8_t { kInPlace, kWhole };

class FileClient final : public FileAccess {
 public:
  FileClient(Connection& connection, std::string user, FileRights rights = FileRights::kUser)
      : connection_(connection), user_(std::move(user)), rights_(rights) {}

  void set_user(std::string user) override { user_ = std::move(user); }

  Result<std::optional<InsideEntry>> look(const std::string& path) override {
    return look(path, Follow::kNo);
  }
  Result<std::optional<InsideEntry>> look(const std::string& path, Follow follow);
  Result<std::vector<InsideEntry>> list(const std::string& path, std::size_t most_entries) override;
  Status read(const std::string& path,
              const std::function<Status(std::string_view)>& take) override;

  Status make_directory(const std::string& path, std::uint32_t mode) override;
  Status change_mode(const std::string& path, std::uint32_t mode) override;
  // Of the path itself, where it is a link. Not waited for: it must be settled before.
  Status change_owner(const std::string& path, std::uint32_t uid, std::uint32_t gid);
  Status remove(const std::string& path);
  Status symlink(const std::string& path, std::string_view target) override;
  Status set_modified(const std::string& path, std::uint64_t modified) override;
  Status write(const std::string& path, std::uint32_t mode, std::uint64_t modified,
               const Source& source) override {
    return write(path, mode, modified, source, Replace::kInPlace);
  }
  Status write(const std::string& path, std::uint32_t mode, std::uint64_t modified,
               const Source& source, Replace replace);
  Status settle() override;

 private:
  static constexpr std::size_t kWindow = 32;

  struct Request {
    std::string what;  // for messages
    Credit credit;
    bool closed = false;
    bool may_fail = false;
    std::optional<Error> error;
    std::function<Status(std::string_view)> on_data;
    std::function<Status(const proto::FieldReader&)> on_event;
  };

  proto::Fields fields(proto::FileOperation operation, const std::string& path) const;
  Result<std::uint32_t> open(const proto::Fields& fields, Request request);
  // Handles one frame.
  Status step();
  Status take(const proto::Frame& frame);
  // Waits for this request alone and removes it.
  Status finish(std::uint32_t stream);
  // Makes room in the window; the first error of requests that ended.
  Status collect(std::size_t most_open);

  Connection& connection_;
  std::string user_;
  FileRights rights_;
  std::map<std::uint32_t, Request> open_;
};

}  // namespace caisson::box
