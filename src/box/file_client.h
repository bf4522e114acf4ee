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

namespace caisson::box {

// What is known about one path inside. Hostile: only the type was checked.
struct InsideEntry {
  std::string name;  // of a listing: below the listed directory
  proto::FileType type = proto::FileType::kRegular;
  std::uint32_t mode = 0;      // permissions alone
  std::uint32_t all_mode = 0;  // set-id and sticky bits too
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t size = 0;
  std::optional<std::uint64_t> modified;  // nanoseconds, base/file_time.h
  std::string target;                     // of a link
};

// What a client does files with: the user's own rights or, as root of a sandbox with `privileges:
// sudo`, those that a command of root's has there.
enum class FileRights : std::uint8_t { kUser, kSudo };
enum class Follow : std::uint8_t { kNo, kYes };
// How a file that exists is written: into it, or beside it and then in its place, a link's too.
enum class Replace : std::uint8_t { kInPlace, kWhole };

class FileClient {
 public:
  FileClient(Connection& connection, std::string user, FileRights rights = FileRights::kUser)
      : connection_(connection), user_(std::move(user)), rights_(rights) {}

  void set_user(std::string user) { user_ = std::move(user); }

  // nullopt: there is nothing of that name.
  Result<std::optional<InsideEntry>> look(const std::string& path, Follow follow = Follow::kNo);
  // Everything below `path`, directories before what is in them.
  Result<std::vector<InsideEntry>> list(const std::string& path, std::size_t most_entries);
  // The file's bytes, piece by piece. An error of `take` ends it.
  Status read(const std::string& path, const std::function<Status(std::string_view)>& take);

  Status make_directory(const std::string& path, std::uint32_t mode);
  Status change_mode(const std::string& path, std::uint32_t mode);
  // Of the path itself, where it is a link. Not waited for: it must be settled before.
  Status change_owner(const std::string& path, std::uint32_t uid, std::uint32_t gid);
  Status remove(const std::string& path);
  Status symlink(const std::string& path, std::string_view target);
  // Of a directory that is filled. One that was there already may be somebody else's and then keeps
  // its time: no error.
  Status set_modified(const std::string& path, std::uint64_t modified);
  // The next piece of a file that is being written; empty at its end.
  using Source = std::function<Result<std::string>()>;
  // `modified` as in base/file_time.h.
  Status write(const std::string& path, std::uint32_t mode, std::uint64_t modified,
               const Source& source, Replace replace = Replace::kInPlace);
  // Waits until every request is answered.
  Status settle();

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
