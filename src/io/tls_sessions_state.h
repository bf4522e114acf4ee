// The inside of TlsSessions: for tls.cpp and tls_sessions.cpp alone.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "io/loop.h"
#include "io/openssl.h"
#include "io/tls_sessions.h"

namespace caisson::io {

using Session = std::unique_ptr<SSL_SESSION, FreeBy<SSL_SESSION_free>>;

struct TlsSessions::State {
  struct Kept {
    std::string key;
    Session session;
    Clock::time_point since;  // when the certificate was verified
  };
  std::list<Kept> kept;  // the newest in front

  void keep(const std::string& key, Session session, Clock::time_point since);
  void drop(const std::string& key);
  // Borrowed until the next call; null: there is none.
  const Kept* find(const std::string& key);
};

// Of one connection: where what its server gives is kept, and as what.
struct Resuming {
  std::weak_ptr<TlsSessions::State> sessions;
  std::string key;
  Clock::time_point since = {};  // when the certificate of what it is given was verified
};

// Has connections whose application data is a Resuming keep what their servers give.
void keep_sessions(SSL_CTX* context);

}  // namespace caisson::io
