// Files of a sandbox on a server, for copying (box/files.h): each call is one of the API's.
#pragma once

#include "box/file_access.h"
#include "cli/remote/api.h"

namespace caisson::cli {

class RemoteFiles final : public box::FileAccess {
 public:
  // `sandbox`: its path in the API. Borrows the API.
  RemoteFiles(Api& api, std::string sandbox) : api_(api), sandbox_(std::move(sandbox)) {}

  void set_user(std::string user) override { user_ = std::move(user); }
  Result<std::optional<box::InsideEntry>> look(const std::string& path) override;
  Result<std::vector<box::InsideEntry>> list(const std::string& path,
                                             std::size_t most_entries) override;
  Status read(const std::string& path,
              const std::function<Status(std::string_view)>& take) override;
  Status make_directory(const std::string& path, std::uint32_t mode) override;
  Status change_mode(const std::string& path, std::uint32_t mode) override;
  Status symlink(const std::string& path, std::string_view target) override;
  Status set_modified(const std::string& path, std::uint64_t modified) override;
  Status write(const std::string& path, std::uint32_t mode, std::uint64_t modified,
               const Source& source) override;
  // Nothing is left to wait for.
  Status settle() override { return {}; }

 private:
  using Query = std::vector<std::pair<std::string_view, std::string>>;
  std::string target(std::string_view below, const std::string& path, Query more) const;
  Result<json::Value> call(std::string method, std::string target, json::Value body);
  io::Async<Result<std::size_t>> read_all(std::string from,
                                          const std::function<Status(std::string_view)>& take);
  io::Async<Result<std::size_t>> write_all(std::string to, const Source& source);

  Api& api_;
  std::string sandbox_, user_;
};

// An entry of the API's. Error: data_loss.
Result<box::InsideEntry> parse_entry(const json::Value& value);

}  // namespace caisson::cli
