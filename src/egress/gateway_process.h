// A caisson-gateway as whoever starts it sees it: one process that decides what leaves one sandbox
// (gateway/gateway.h), with no rights and nothing open but its sockets.
//
// It is given the policy, where its records go, and the sockets that the sandbox's set-up made. It
// ends with stop(), with this object, or with the thread that started it; connections of the
// sandbox are then reset, and no new one is answered. One thread; start() forks.
#pragma once

#include <caisson/network.h>
#include <memory>
#include <string>

#include "base/child_process.h"
#include "base/error.h"
#include "base/fd.h"
#include "egress/proxy.h"
#include "egress/report.h"

namespace caisson::egress {

// Made in the sandbox's gateway namespace: TCP, listening; UDP and TCP of DNS.
struct GatewayDescriptors {
  Fd tcp, dns_udp, dns_tcp;
};

class GatewayProcess {
 public:
  // Starts it and tells it what holds, without waiting: it gets ready beside whatever the caller
  // does until serve(). `sandbox`: its id. `audit`: a file that is open for appending; invalid:
  // nobody reads the records. Error: not_found without the program.
  static Result<std::unique_ptr<GatewayProcess>> start(const std::string& sandbox,
                                                       const policy::NetworkPolicy& policy,
                                                       Fd audit);
  ~GatewayProcess();

  // Hands it the sockets and returns when it serves them. Once. Error: precondition, with what it
  // says of its own start.
  Status serve(GatewayDescriptors sockets);

  // Ends it and says what it did. Once. Error: unavailable where it ended before.
  Result<Report> stop();

 private:
  GatewayProcess() = default;
  Result<std::string> receive();

  Fd control_;
  ChildProcess child_;
};

// ---- between the two, over a SOCK_SEQPACKET socket
// ------------------------------------------------

// The first message: the sandbox's id, with the descriptors of the policy as JSON (a file from its
// start) and perhaps of the audit; the second: 'S', with tcp, dns_udp and dns_tcp.
inline constexpr int kGatewayControlFd = 3;
inline constexpr char kGatewayServe = 'S';
inline constexpr std::size_t kGatewaySockets = 3;
inline constexpr std::size_t kMostGatewayMessage = kMostReport + 1;
// What the gateway says: its first byte, then a text.
inline constexpr char kGatewayReady = 'R';
inline constexpr char kGatewayFailed = 'F';
inline constexpr char kGatewayDone = 'D';  // and the report, when the other end has shut down

}  // namespace caisson::egress
