// What is said between caisson-image-fetch and whoever started it, over the SOCK_SEQPACKET socket
// that is the worker's descriptor 3, one message at a time.
//
//   request   `get` or `post`, with one descriptor: where the body goes (a pipe)
//   cancel    of a request: its body's descriptor is closed, and an end follows
//   head      the answer's status and those of its headers that matter
//   end       the request is over; its body's descriptor was closed before
//
// A message is lines "KEY VALUE", the first "KIND ID". Both sides read strictly; to the caller all
// that the worker says is hostile. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace caisson::image {

inline constexpr int kFetchSocketFd = 3;
inline constexpr std::size_t kMaxFetchMessage = 96 << 10;
// The worker's own bound on transfers at once.
inline constexpr std::size_t kMaxFetches = 16;

// The headers of an answer that the worker passes on, in lower case.
inline constexpr std::array<std::string_view, 7> kFetchHeaders = {
    "content-length", "content-range", "content-type",    "docker-content-digest",
    "location",       "retry-after",   "www-authenticate"};

struct FetchRequest {
  std::uint32_t id = 0;
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::optional<std::string> form;   // POST of application/x-www-form-urlencoded
  std::uint64_t limit = 0;           // bytes of the body; more is an error
  std::uint32_t seconds = 0;         // for all of it; 0: no limit but that it must not stall
  // No connection to this host itself or to link-local addresses: the URL came from elsewhere.
  bool outside_only = false;

  std::string encode() const;
};

enum class FetchEnd {
  kDone,
  kCancelled,
  kResolve,      // no such host
  kConnect,      // refused, unreachable
  kCertificate,  // TLS: nobody vouches for the server
  kTls,          // no TLS spoken there, or none that both sides know
  kBroken,       // the connection ended early, or stalled
  kTooLarge,
  kForbidden,  // outside_only
  kOther,
};
std::string_view to_string(FetchEnd end);

struct FetchHead {
  std::uint32_t id = 0;
  int status = 0;                                            // 100 to 599
  std::vector<std::pair<std::string, std::string>> headers;  // of kFetchHeaders, with repetitions

  // The first of that name; empty: none.
  std::string_view header(std::string_view name) const;
  std::string encode() const;
};

struct FetchResult {
  std::uint32_t id = 0;
  FetchEnd end = FetchEnd::kOther;
  std::string text;  // for people, one line; empty where it is done

  std::string encode() const;
};

std::string encode_cancel(std::uint32_t id);

// For the worker: a request or, with `url` empty, a cancel.
Result<FetchRequest> decode_request(std::string_view message);
// For the caller: which of the two the worker sent.
struct FetchMessage {
  std::optional<FetchHead> head;
  std::optional<FetchResult> result;
};
Result<FetchMessage> decode_fetch_message(std::string_view message);

}  // namespace caisson::image
