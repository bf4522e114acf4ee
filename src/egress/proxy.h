// A forward proxy for builds: what runs in a sandbox without a network reaches the hosts of an
// allow list through it, and nothing else.
//
// It listens on a descriptor that the sandbox's set-up made in the sandbox's network namespace
// (Sandbox::take_egress_listener()) and connects on the host's side. It understands CONNECT, and
// plain HTTP/1 requests with an absolute target, one a connection; everything else, and every
// target that is not allowed, gets an answer with a sentence. It never looks into a tunnel. Names
// are resolved here, once, and the connection goes to an address that was checked.
//
// The proxy is a forked process of its own with no right to gain rights, no capabilities and no
// file but what resolving names needs, and as root an id of its own (confine.h). It ends with
// stop(), with the object, or with the process that started it. Since it is forked and runs our own
// code, start() is for processes with one thread. A sandbox's bytes are hostile; the parser is
// request_head.h.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "egress/allow_list.h"

namespace caisson::egress {

struct ProxyLimits {
  std::size_t connections = 64;  // at once; others wait in the listener's queue
  std::chrono::milliseconds idle = std::chrono::minutes(2);
  std::chrono::milliseconds connect = std::chrono::seconds(20);
};

struct Refusal {
  std::string target;  // "HOST:PORT" as it was asked for
  std::string reason;  // a sentence
  std::uint64_t count = 0;
};

struct Report {
  std::uint64_t connections = 0;  // that were let through
  std::uint64_t bytes_out = 0;    // from the sandbox
  std::uint64_t bytes_in = 0;     // to it
  std::vector<Refusal> refusals;  // in the order of their first; 64 different ones at most
  std::uint64_t refused = 0;      // all of them
};

class EgressProxy {
 public:
  static Result<EgressProxy> start(Fd listener, AllowList allowed, ProxyLimits limits = {});
  EgressProxy(EgressProxy&& other) noexcept;
  EgressProxy& operator=(EgressProxy&& other) noexcept;
  ~EgressProxy();

  // Ends it and says what it did; an empty report where it was killed. Once.
  Report stop();

  // What a command inside needs to find it: http_proxy, https_proxy, HTTP_PROXY and HTTPS_PROXY as
  // K=V, and no_proxy for servers that run inside, unless the list names the host's own.
  static std::vector<std::string> environment(const AllowList& allowed = {});

 private:
  EgressProxy(Fd control, pid_t pid) : control_(std::move(control)), pid_(pid) {}
  void end();

  Fd control_;
  pid_t pid_ = -1;
};

}  // namespace caisson::egress
