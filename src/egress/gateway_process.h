// A caisson-gateway as whoever starts it sees it: one process that decides what leaves one sandbox
// (gateway/gateway.h), with no rights and nothing open but its sockets.
//
// It is given the sockets that the sandbox's set-up made, the policy, and where its records go. It
// ends with stop(), with this object, or with the process that started it; connections of the
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

struct GatewayStart {
  std::string sandbox;  // its id
  policy::NetworkPolicy policy;
  // Made in the sandbox's gateway namespace: TCP, listening; UDP and TCP of DNS.
  Fd tcp, dns_udp, dns_tcp;
  // A file that is open for appending; invalid: nobody reads the records.
  Fd audit;
};

class GatewayProcess {
 public:
  // Returns when the gateway serves. Error: precondition, with what it says of its own start;
  // not_found without the program.
  static Result<std::unique_ptr<GatewayProcess>> start(GatewayStart start);
  ~GatewayProcess();

  // Ends it and says what it did; an empty report where it was killed. Once.
  Report stop();

 private:
  GatewayProcess() = default;
  Result<std::string> receive();

  Fd control_;
  ChildProcess child_;
};

// ---- between the two, over a SOCK_SEQPACKET socket
// ------------------------------------------------

// The first message: the sandbox's id, with the descriptors tcp, dns_udp, dns_tcp, the policy as
// JSON (a file from its start), and perhaps the audit's.
inline constexpr int kGatewayControlFd = 3;
inline constexpr std::size_t kGatewayDescriptors = 4;
inline constexpr std::size_t kMostGatewayMessage = kMostReport + 1;
// What the gateway says: its first byte, then a text.
inline constexpr char kGatewayReady = 'R';
inline constexpr char kGatewayFailed = 'F';
inline constexpr char kGatewayDone = 'D';  // and the report, when the other end has shut down

}  // namespace caisson::egress
