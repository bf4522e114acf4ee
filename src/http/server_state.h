// What the connections of a server share. Only .cpp files of src/http include this.
//
// Owned by the Server and by every connection, since a handler may still run when the Server has
// gone. Belongs to the loop.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "http/server.h"

namespace caisson::http {

class Connection;

struct Server::State : std::enable_shared_from_this<Server::State> {
  State(io::Loop& on, Limits bounds, Handler with);

  static io::Async<void> accept_all(std::shared_ptr<State> state,
                                    std::shared_ptr<io::Listener> listener, Transport transport);
  // Starts a connection, or says that there are too many.
  void take(std::unique_ptr<io::Stream> stream, Transport transport, Handler with);
  void stop_accepting();
  void close_idle();
  // Of held_bytes. Error: unavailable, there are not so many left.
  Status hold(std::size_t bytes);
  void cut_all();

  std::string next_id();
  // Of the Date header.
  const std::string& date();

  io::Loop& loop;
  const Limits limits;
  Handler handler;
  std::vector<std::shared_ptr<io::Listener>> listeners;
  std::list<Connection*> connections;
  // Those that wait for the whole head of a request; the one that waits for the longest is in
  // front.
  std::list<Connection*> idle;
  std::size_t held = 0;  // bytes, of all requests
  bool draining = false;
  Counts counts;
  io::Event one_ended;

 private:
  static io::Async<void> turn_away(std::shared_ptr<State> state,
                                   std::unique_ptr<io::Stream> stream);

  std::string id_prefix_;
  std::uint64_t ids_ = 0;
  unsigned turned_away_ = 0;  // who is being told so now
  std::int64_t date_second_ = -1;
  std::string date_;
};

}  // namespace caisson::http
