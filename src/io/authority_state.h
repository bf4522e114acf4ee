// The inside of an Authority: for tls.cpp, which is the server by it, and authority.cpp alone.
#pragma once

#include <list>
#include <string>
#include <unordered_map>

#include "io/authority.h"
#include "io/make_certificate.h"

namespace caisson::io {

// Of a server: TLS 1.2 or newer, HTTP/1.1 alone by ALPN unless a connection says otherwise, nothing
// kept of a session. In tls.cpp.
SslContext server_context();

struct Authority::State {
  CertifiedKey ca;
  // Null before it is needed.
  Key key;             // of every name
  SslContext context;  // with the key and the chain, without a certificate
  // The newest in front.
  struct Kept {
    std::string name;
    Certificate certificate;
  };
  std::list<Kept> kept;
  std::unordered_map<std::string, std::list<Kept>::iterator> by_name;

  // Makes the key and the context.
  Status get_ready();
  // The certificate of a name, canonical or a numeric address; borrowed until the next call.
  Result<X509*> certificate_of(const std::string& name);
  Result<Certificate> make_certificate_of(const std::string& name) const;
};

}  // namespace caisson::io
