// One connection of a sandbox to the proxy, from its first byte to its end.
//
// A state machine over two non-blocking sockets; the loop (proxy_loop.h) polls them, resolves names
// and counts. Nothing of it waits, and it holds at most a head and two buffers of 64 KiB. One
// thread.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "egress/allow_list.h"
#include "egress/proxy.h"
#include "egress/request_head.h"
#include "egress/resolver.h"

namespace caisson::egress {

using Clock = std::chrono::steady_clock;

// What one side has sent and the other has not taken yet.
struct RelayBuffer {
  static constexpr std::size_t kMost = 64 * 1024;
  std::string bytes;
  std::size_t sent = 0;  // of the front of `bytes`; dropped before more is added
  bool empty() const { return sent == bytes.size(); }
  // How much may be read for it now.
  std::size_t room() const { return kMost - std::min(kMost, bytes.size() - sent); }
  void add(std::string_view more);
};

class Connection {
 public:
  Connection(Fd client, const ProxyLimits& limits);

  // What the loop has to do next.
  enum class Need : std::uint8_t {
    kNothing,
    kDecision,  // target() is known: refuse() or resolve and connect()
    kEnd,       // it is over; drop it
  };
  Need need() const { return need_; }
  const Destination& target() const { return head_->target; }
  // What was wrong with a request that could not be understood, once.
  std::optional<Answer> take_malformed();

  // The decision is being made: addresses are on their way.
  void wait_for_addresses();
  // Those are tried in this order.
  void connect(std::vector<policy::IpAddress> addresses);
  // Answers and ends.
  void refuse(const Answer& answer);

  // What to poll for: the client first, then the server; -1 where there is none.
  pollfd client_entry() const;
  pollfd server_entry() const;
  Clock::time_point deadline() const { return deadline_; }
  void progress(short client_events, short server_events, Report& report);
  // To be called when the deadline has passed.
  void time_out();

 private:
  enum class Phase : std::uint8_t { kHead, kDecide, kConnect, kRelay, kAnswer, kLinger };
  enum class Moved : std::uint8_t { kSome, kNone, kEnd, kBroken };

  void end() { need_ = Need::kEnd; }
  void read_head();
  void take_body(std::string_view bytes);
  void try_next();
  void connected();
  void relay(short client_events, short server_events, Report& report);
  void answer(short client_events);
  void linger();
  static Moved send_from(RelayBuffer& buffer, int fd, std::uint64_t& count);
  Moved read_client();
  void touch() { deadline_ = Clock::now() + limits_.idle; }

  const ProxyLimits& limits_;
  Phase phase_ = Phase::kHead;
  Need need_ = Need::kNothing;
  Fd client_, server_;
  Clock::time_point deadline_, connect_by_;
  std::string head_bytes_;
  std::optional<RequestHead> head_;
  std::optional<BodyFramer> framer_;  // of a plain request
  std::optional<Answer> malformed_;
  std::vector<policy::IpAddress> addresses_;
  std::size_t next_address_ = 0;
  RelayBuffer to_server_, to_client_;
  bool client_ended_ = false;  // nothing more comes from there, or nothing more is wanted
  bool server_ended_ = false;
  bool told_server_ = false, told_client_ = false;  // that nothing more will come
};

}  // namespace caisson::egress
