// A UDP socket on the loop: one datagram in, perhaps one out to where it came from.
//
// For servers whose answers need no waiting. What cannot be sent at once is dropped, as the network
// may drop it too. Belongs to the loop.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "io/async.h"
#include "io/loop.h"

namespace caisson::io {

struct SocketAddress;
class Pollable;

class DatagramSocket {
 public:
  // A bound UDP socket of any family that somebody else made.
  static Result<std::unique_ptr<DatagramSocket>> adopt(Loop& loop, Fd socket);
  explicit DatagramSocket(std::shared_ptr<Pollable> socket);
  ~DatagramSocket();

  struct Datagram {
    std::string bytes;
    std::shared_ptr<const SocketAddress> from;
  };
  // The next datagram of at most `most` bytes; longer ones are passed over. Error: cancelled by
  // close().
  Async<Result<Datagram>> receive(std::size_t most);
  void send(std::string_view bytes, const SocketAddress& to);
  void close();

 private:
  std::shared_ptr<Pollable> socket_;
};

}  // namespace caisson::io
