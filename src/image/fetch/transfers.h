// The transfers of caisson-image-fetch: libcurl's, several at once in one thread, each writing its
// body to the pipe that came with its request. A reader that is slow holds its transfer up and no
// other. Nothing is followed, decoded or kept: redirects, credentials and caching are the caller's.
#pragma once

#include <curl/curl.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "image/registry/fetch_protocol.h"

namespace caisson::image {

// Of the caller's environment, read before the worker gives up its rights.
struct FetchEnvironment {
  std::string certificates;           // PEM; empty: the system's
  std::string certificate_directory;  // empty: the system's
  bool has_proxy = false;

  static Result<FetchEnvironment> read();
};

class Transfers {
 public:
  using Say = std::function<void(const std::string& message)>;
  static Result<Transfers> create(FetchEnvironment environment, Say say);
  Transfers(Transfers&&) noexcept;
  Transfers& operator=(Transfers&&) = delete;
  ~Transfers();

  void start(const FetchRequest& request, Fd output);
  void cancel(std::uint32_t id);
  // Goes on with all of them; waits for one of them, or until `control_fd` is readable (true), for
  // a second at most.
  Result<bool> step(int control_fd);

  struct Transfer;

 private:
  explicit Transfers(FetchEnvironment environment, Say say);
  void collect();
  void finish(Transfer& transfer, FetchEnd end, const std::string& text);

  FetchEnvironment environment_;
  Say say_;
  CURLM* multi_ = nullptr;
  std::map<std::uint32_t, std::unique_ptr<Transfer>> transfers_;
};

}  // namespace caisson::image
