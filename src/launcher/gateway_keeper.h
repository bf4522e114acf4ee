// The gateway of a sandbox that outlives its maker, as the launcher keeps it.
//
// The launcher alone still has the rights to start a program, and lives as long as the sandbox; so
// it holds the sockets of the gateway's namespace. A caisson-gateway is started when the sandbox
// first sends something, since most never do, and again where one has ended: not sooner than a
// second after a failure, and what comes meanwhile is refused, as everything is before there is a
// policy. It is a child of the launcher's and ends with it. Policies pass through unread. One
// thread.
//
// Where the sandbox's policy inspects TLS there are keys (egress/gateway/keys.h): a file that is
// held here, never read, and given to each gateway. So is the key of the chain of its records; the
// chain's head is written down here as gateways tell it, never an earlier one, so that none of them
// can take back what others before it have written.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/child_process.h"
#include "base/error.h"
#include "base/fd.h"
#include "wall/handouts.h"

namespace caisson::launcher {

// Where records go; all invalid: nowhere.
struct KeptRecords {
  Fd file, chain, head;
};

class GatewayKeeper {
 public:
  // kFixed holds whatever a policy says.
  enum class Floor : bool { kAsPolicySays, kFixed };
  // `sandbox`: its id, which records and refusals name. `keys`: invalid where TLS is never
  // inspected. `served`: of a server's sandbox (egress/served_domain.h); invalid otherwise.
  // `alarm`: where each gateway says that the sandbox is to end; its other end is the launcher's.
  // `minter`: the socket of what makes values of secrets anew (minter_socket.h); invalid where no
  // command does.
  struct Files {
    KeptRecords records;
    Fd keys, served, alarm, minter;
  };
  GatewayKeeper(std::string sandbox, Files files, Floor floor)
      : sandbox_(std::move(sandbox)), files_(std::move(files)), floor_(floor) {}
  ~GatewayKeeper() { end(); }
  GatewayKeeper(const GatewayKeeper&) = delete;
  GatewayKeeper& operator=(const GatewayKeeper&) = delete;

  // Once. Error: invalid_argument where they are not what a gateway has.
  Status hold(wall::Gateway sockets);
  // From now on this policy's text holds (gateway_protocol.h), which whoever sends it has checked;
  // without sealed secrets it goes on with those that there are. Where a gateway runs, or there are
  // keys and this is a change, returns when it has answered, some seconds at most; one that does
  // not is ended. Errors:
  // failed_precondition (there are no sockets), resource_exhausted (longer than kMostLivePolicy),
  // the gateway's.
  Status set_policy(std::string policy);

  // What to poll for; an fd of -1 is none.
  static constexpr std::size_t kEntries = 4;
  std::array<pollfd, kEntries> entries() const;
  // What the poll has told of them.
  void look(const std::array<pollfd, kEntries>& entries);

  // The sandbox is to end: no gateway is started any more, and no policy is taken. One that runs
  // has stopped by itself, and stays for its last records.
  void halt() { halted_ = true; }
  // Ends a gateway that runs. It is given a moment for its last records.
  void end();

 private:
  // A start that has no answer yet counts as running.
  bool runs() const { return control_.valid(); }
  Status start();
  void lose();            // the gateway has ended, or is to
  void refuse_waiting();  // whatever waits at the sockets
  Status await_update();
  // Whether it was a word about records, which is done with.
  bool take_record_word(std::string_view word);
  void keep_head(std::string_view bytes) const;
  void stop_waiting() const;

  std::string sandbox_;
  Files files_;
  Floor floor_;
  bool halted_ = false;
  wall::Gateway sockets_;
  std::string policy_;  // empty: nothing has been set
  Fd control_;
  ChildProcess child_;
  std::uint64_t lost_at_us_ = 0;  // 0: none has ended
};

}  // namespace caisson::launcher
