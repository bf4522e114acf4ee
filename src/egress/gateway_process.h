// A caisson-gateway as whoever starts it sees it: one process that decides what leaves one sandbox
// (gateway/gateway.h), with no rights and nothing open but its sockets.
//
// It is given the policy, where its records go, and the sockets that the sandbox's set-up made. It
// ends with stop(), with this object, or with the thread that started it; connections of the
// sandbox are then reset, and no new one is answered. One thread; start() forks.
#pragma once

#include <caisson/network.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/secret.h"
#include "base/sys.h"
#include "egress/audit_chain.h"
#include "egress/proxy.h"
#include "egress/report.h"

namespace caisson::egress {

// Made in the sandbox's gateway namespace: TCP, listening; UDP and TCP of DNS.
struct GatewayDescriptors {
  Fd tcp, dns_udp, dns_tcp;
};

struct GatewayReport {
  Report counts;
  AuditHead audit;  // the last record; sequence 0: there is none
};

// Where the records go.
struct Records {
  Fd file;         // open for appending and claimed (audit_file.h); invalid: nobody reads them
  Fd chain, head;  // a file with AuditChainKey::encode(); what the chain's head is written to
};

class GatewayProcess {
 public:
  // Starts it and tells it what holds, without waiting: it gets ready beside whatever the caller
  // does until serve(). `sandbox`: its id. `alarm`: where it says that the
  // sandbox is to end (launcher/gateway_protocol.h); invalid where no secret asks for that.
  // `values`: its connection to a minter (launcher/minter_socket.h), or invalid. Error: not_found
  // without the program.
  static Result<std::unique_ptr<GatewayProcess>> start(const std::string& sandbox,
                                                       const policy::NetworkPolicy& policy,
                                                       Records records, Fd alarm, Fd values);
  ~GatewayProcess();

  // The values of the policy's secrets, in its order, and of its proxy's password
  // (policy::rules_with_values), once, directly after start(): they go over the socket and nowhere
  // else. What stands for each secret inside, in the same order. Error:
  // invalid_argument with the secret's name; that of serve().
  Result<std::vector<std::string>> give_secrets(const policy::NetworkPolicy& policy,
                                                std::span<const SecretValue> values);
  // Of a policy that inspects TLS (policy::inspects): a socket into which the gateway says, once
  // and before it serves, the certificate, as PEM, that the sandbox has to trust; its key stays
  // there. Nothing is said where it cannot start. Borrowed.
  int certificate_fd() const { return certificate_.get(); }
  // Waits for it. Error: as serve().
  Result<std::string> certificate();
  // Why it could not start, if it has said so.
  std::optional<Error> fault();

  // Instead of serve(): what the gateways of a sandbox that outlives its maker need, one after the
  // other, as wall::Plan has the keys, and the sealed secrets for their policy's text
  // (secrets/sealed.h); empty where it has none. This one ends. Error: as serve().
  struct Kept {
    Fd keys;
    std::string sealed;
  };
  Result<Kept> keep();

  // Hands it the sockets and returns when it serves them. Once. Error: precondition, with what it
  // says of its own start.
  Status serve(GatewayDescriptors sockets);

  // Ends it and says what it did; the last record is known then. Once. Error: unavailable where it
  // ended before.
  Result<GatewayReport> stop();

 private:
  GatewayProcess() = default;
  Result<sys::Message> receive();
  // The text of the word that begins so. Error: of its own start, or that it has ended.
  Result<sys::Message> expect(char kind);

  Fd control_, certificate_, head_;
  ChildProcess child_;
};

}  // namespace caisson::egress
