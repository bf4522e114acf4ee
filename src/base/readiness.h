// Tells the service manager how a service does, as sd_notify(3) has it: datagrams of "NAME=VALUE"
// to the socket that $NOTIFY_SOCKET names. Without that variable nothing is told. Opened before the
// rights are given up, since afterwards there are no new sockets.
#pragma once

#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace caisson {

class Readiness {
 public:
  // Takes the variable out of the environment. Error: what it names cannot be reached.
  static Result<Readiness> open();

  // "READY=1", "STOPPING=1", "STATUS=…". Nobody hearing it is no error.
  void tell(std::string_view text) const;

 private:
  explicit Readiness(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

}  // namespace caisson
