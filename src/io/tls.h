// TLS for what the server accepts, a Listener over another one with the certificate behind it; and
// for clients, over a stream to a server whose certificate is verified.
//
// TLS 1.2 or newer; by ALPN HTTP/1.1 alone, or HTTP/2 where the caller speaks it. OpenSSL works on
// memory; the bytes go through the stream below, so TLS runs over whatever a Stream is. Handshakes
// run beside one another, each for a bounded time, and a bounded number at once: where there are
// more, the oldest makes room. Belongs to the loop.
#pragma once

#include <memory>
#include <string>

#include "io/authority.h"
#include "io/loop.h"
#include "io/stream.h"
#include "io/tls_sessions.h"

namespace caisson::io {

// A certificate with its chain and its key. Held by the listeners that use it and by whoever
// reloads it.
class TlsIdentity {
 public:
  // PEM files; blocks. Error: invalid or not_found, with the file.
  static Result<std::shared_ptr<TlsIdentity>> load(std::string certificate_file,
                                                   std::string key_file);
  ~TlsIdentity();
  // Reads the files again; connections from now on get what they hold. On an error all stays.
  Status reload();

  struct State;  // of OpenSSL; for src/io alone
  State& state() { return *state_; }

 private:
  TlsIdentity(std::string certificate_file, std::string key_file);
  std::string certificate_file_, key_file_;
  std::unique_ptr<State> state_;
};

struct TlsLimits {
  std::chrono::milliseconds handshake_time = std::chrono::seconds(10);
  std::size_t waiting = 512;  // shaking hands, or ready and not accepted yet
};

// Accepts from `below`; what it hands out has shaken hands. Its streams know the name that the
// client asked for (Stream::server_name). An end without TLS's own end is an error of read().
std::unique_ptr<Listener> wrap_tls_server(Loop& loop, std::unique_ptr<Listener> below,
                                          std::shared_ptr<TlsIdentity> identity,
                                          TlsLimits limits = {});

// What is offered, or taken, by ALPN: HTTP/1.1 alone, or HTTP/2 rather than it. What came of it
// is Stream::protocol().
enum class Alpn : unsigned char { kHttp1, kHttp2 };

// Shakes hands, on a connection that somebody else accepted, as the server of `name` (canonical, or
// a numeric address) with a certificate of the authority. Errors: unauthenticated (the client said
// that it does not believe the certificate), unavailable, deadline_exceeded.
Async<Result<std::unique_ptr<Stream>>> accept_tls(Loop& loop, std::unique_ptr<Stream> below,
                                                  std::shared_ptr<Authority> authority,
                                                  std::string name, TlsLimits limits = {},
                                                  Alpn alpn = Alpn::kHttp1);

// Whose certificates a client trusts.
class TlsTrust {
 public:
  // PEM; empty: what this host trusts. Blocks. Error: invalid, with the file.
  static Result<std::shared_ptr<TlsTrust>> load(const std::string& ca_file);
  // What this host trusts, all of it read now: for whoever can open no file later. Blocks. Error:
  // precondition where the host has no bundle of certificates; invalid, with the file.
  static Result<std::shared_ptr<TlsTrust>> load_bundle();
  // The same of that file, whose certificates are understood as they are needed.
  static Result<std::shared_ptr<TlsTrust>> load_bundle(const std::string& file);
  ~TlsTrust();

  struct State;  // of OpenSSL; for src/io alone
  State& state() { return *state_; }

 private:
  explicit TlsTrust(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Shakes hands as the client of `host`, a name or a numeric address, which the certificate must be
// for. Errors: unauthenticated (the certificate, with the reason), unavailable, deadline_exceeded.
Async<Result<std::unique_ptr<Stream>>> connect_tls(Loop& loop, std::unique_ptr<Stream> below,
                                                   std::string host,
                                                   std::shared_ptr<TlsTrust> trust,
                                                   Alpn alpn = Alpn::kHttp1);
// The same, going on where one to `host` at the same address (Stream::peer) has left off, if
// `sessions` has one; all of them are by the same trust.
Async<Result<std::unique_ptr<Stream>>> connect_tls(Loop& loop, std::unique_ptr<Stream> below,
                                                   std::string host,
                                                   std::shared_ptr<TlsTrust> trust, Alpn alpn,
                                                   std::shared_ptr<TlsSessions> sessions);

}  // namespace caisson::io
