// Names to addresses, without waiting: the one file that knows c-ares.
//
// Asks the host's own resolver configuration (/etc/resolv.conf, /etc/hosts), but for its search
// list: every name is whole. The owner polls the descriptors and calls progress(). One thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "egress/dns_message.h"
#include "policy/ip_address.h"

namespace caisson::egress {

struct ResolvedName {
  // In the order in which they should be tried.
  std::vector<policy::IpAddress> addresses;
  // How long all of it holds; 0: for this once.
  std::chrono::seconds holds{0};
};

class Resolver {
 public:
  // Reads the host's configuration. Error: internal.
  static Result<Resolver> create();
  Resolver(Resolver&&) noexcept;
  Resolver& operator=(Resolver&&) noexcept;
  ~Resolver();

  // Calls `done` once: from here, from progress(), or from the destructor. Error: not_found,
  // unavailable.
  using Done = std::function<void(Result<ResolvedName>)>;
  void resolve(const std::string& name, Done done);
  // The SRV records of a name, those whose target is a name. Errors: as of resolve().
  using ServicesDone = std::function<void(Result<std::vector<DnsService>>)>;
  void services(const std::string& name, ServicesDone done);

  // What to poll for, and in how many milliseconds at the latest to call progress() (-1: never).
  std::vector<pollfd> wanted() const;
  int timeout_ms() const;
  void progress(const std::vector<pollfd>& polled);

 private:
  struct State;
  explicit Resolver(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace caisson::egress
