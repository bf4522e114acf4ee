#include "io/tls.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <list>
#include <optional>
#include <utility>

#include "base/guards.h"
#include "base/sys.h"
#include "io/authority_state.h"
#include "io/openssl.h"
#include "io/tls_sessions_state.h"
#include "io/trust_bundle.h"

namespace caisson::io {
namespace {

// What a connection reads with while little comes, and the most: one record of TLS.
constexpr std::size_t kLeastRoom = 2048;
constexpr std::size_t kMostRoom = 16 * 1024;
// As ALPN has them on the wire, what is wanted most in front.
constexpr std::string_view kHttp11("\x08http/1.1", 9);
constexpr std::string_view kHttp2AndHttp11("\x02h2\x08http/1.1", 12);

std::string_view protocols_of(Alpn alpn) {
  return alpn == Alpn::kHttp2 ? kHttp2AndHttp11 : kHttp11;
}

// Of one connection, for select_protocol(): whether it takes HTTP/2.
constexpr char kTakesHttp2 = 0;

void take_http2(SSL* ssl) {
  SSL_set_app_data(ssl, const_cast<char*>(&kTakesHttp2));
}

int select_protocol(SSL* ssl, const unsigned char** chosen, unsigned char* size,
                    const unsigned char* offered, unsigned offered_size, void*) {
  unsigned char* out = nullptr;
  const Alpn alpn = SSL_get_app_data(ssl) == &kTakesHttp2 ? Alpn::kHttp2 : Alpn::kHttp1;
  const std::string_view ours = protocols_of(alpn);
  if (SSL_select_next_proto(&out, size, reinterpret_cast<const unsigned char*>(ours.data()),
                            static_cast<unsigned>(ours.size()), offered,
                            offered_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = out;
  return SSL_TLSEXT_ERR_OK;
}

Result<SslContext> make_context(const std::string& certificate_file, const std::string& key_file) {
  ERR_clear_error();
  SslContext context = server_context();
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_file.c_str()) != 1)
    return fail(Error::invalid("the certificate " + certificate_file + ": " + openssl_error()));
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1)
    return fail(Error::invalid("the key " + key_file + ": " + openssl_error()));
  return context;
}

// One connection. Held by the stream and by its coroutines.
struct Tls {
  enum class Side : unsigned char { kServer, kClient };
  Tls(Loop& loop, std::unique_ptr<Stream> lower, SSL_CTX* context, Side side)
      : below(std::move(lower)), ssl(SSL_new(context)), flushed(loop) {
    VERIFY(ssl != nullptr);
    in = BIO_new(BIO_s_mem());
    out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), in, out);  // which owns them now
    side == Side::kServer ? SSL_set_accept_state(ssl.get()) : SSL_set_connect_state(ssl.get());
  }

  std::unique_ptr<Stream> below;
  Ssl ssl;
  BIO *in = nullptr, *out = nullptr;  // what came, what is to be sent
  Resuming resuming;                  // of a client
  bool flushing = false;
  Event flushed;
  std::size_t room = kLeastRoom;
};
using Held = std::shared_ptr<Tls>;

// Has the right to send. What ends early, by an error or cancelled, may have sent a part of a
// record: then nothing more can follow.
class Flushing {
 public:
  explicit Flushing(Tls& tls) : tls_(tls) { tls_.flushing = true; }
  ~Flushing() {
    if (!whole_) tls_.below->close(Stream::Close::kReset);
    tls_.flushing = false;
    tls_.flushed.notify();
  }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;
  void done() { whole_ = true; }

 private:
  Tls& tls_;
  bool whole_ = false;
};

// Sends what OpenSSL has written. Reader and writer may both want to: one at a time.
Async<Status> flush(Held tls, Clock::duration timeout) {
  while (tls->flushing) co_await tls->flushed.wait();
  if (BIO_ctrl_pending(tls->out) == 0) co_return Status();
  Flushing flushing(*tls);
  std::string piece;
  while (BIO_ctrl_pending(tls->out) > 0) {
    piece.resize(std::min(BIO_ctrl_pending(tls->out), 2 * kMostRoom));
    BIO_read(tls->out, piece.data(), static_cast<int>(piece.size()));
    tls->below->set_timeout(timeout);
    CO_TRY(co_await tls->below->write(piece));
  }
  flushing.done();
  co_return Status();
}

// Gives OpenSSL more bytes.
Async<Status> feed(Held tls, Clock::duration timeout) {
  std::string piece(tls->room, '\0');
  tls->below->set_timeout(timeout);
  CO_TRY_ASSIGN(const std::size_t count, co_await tls->below->read(piece));
  if (count == 0) co_return fail(Error::unavailable("the connection ended without an end of TLS"));
  tls->room = count == piece.size() ? kMostRoom : kLeastRoom;
  BIO_write(tls->in, piece.data(), static_cast<int>(count));
  co_return Status();
}

// What a client says that does not believe the certificate (RFC 8446, section 6.2).
bool is_distrust(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  switch (ERR_GET_REASON(error)) {
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return true;
    default:
      return false;
  }
}

// What is to be done after a call of OpenSSL's that did not succeed: bytes (ok), or nothing more.
Async<Status> go_on(Held tls, int result, Clock::duration timeout) {
  const int error = SSL_get_error(tls->ssl.get(), result);
  const Code code = is_distrust(ERR_peek_error()) ? Code::kUnauthenticated : Code::kUnavailable;
  const std::string why = error == SSL_ERROR_WANT_READ ? std::string() : openssl_error();
  // Also where the handshake failed: the alert says why.
  const Status flushed = co_await flush(tls, timeout);
  if (error != SSL_ERROR_WANT_READ) co_return fail(Error(code, "TLS: " + why));
  CO_TRY(Status(flushed));
  co_return co_await feed(tls, timeout);
}

Async<Status> shake_hands(Held tls, Clock::duration time) {
  const Clock::time_point until = Clock::now() + time;
  for (;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(tls->ssl.get());
    const Clock::duration left = until - Clock::now();
    if (left <= Clock::duration::zero())
      co_return fail(Error(Code::kDeadlineExceeded, "the handshake takes too long"));
    if (result == 1) co_return co_await flush(tls, left);
    CO_TRY(co_await go_on(tls, result, left));
  }
}

Async<Result<std::size_t>> read_some(Held tls, std::span<char> into, Clock::duration timeout) {
  VERIFY(!into.empty());
  // What OpenSSL answered beside the data of the read before.
  CO_TRY(co_await flush(tls, timeout));
  for (;;) {
    ERR_clear_error();
    const int size = static_cast<int>(std::min<std::size_t>(into.size(), 1 << 20));
    const int result = SSL_read(tls->ssl.get(), into.data(), size);
    if (result > 0) co_return static_cast<std::size_t>(result);
    if (SSL_get_error(tls->ssl.get(), result) == SSL_ERROR_ZERO_RETURN) co_return 0;
    CO_TRY(co_await go_on(tls, result, timeout));
  }
}

Async<Status> write_all(Held tls, std::string_view bytes, Clock::duration timeout) {
  while (!bytes.empty()) {
    ERR_clear_error();
    const std::string_view piece = bytes.substr(0, kMostRoom);
    const int result = SSL_write(tls->ssl.get(), piece.data(), static_cast<int>(piece.size()));
    // There is always room in memory, so anything else means that it has ended.
    if (result <= 0) co_return fail(Error::unavailable("TLS: " + openssl_error()));
    bytes.remove_prefix(piece.size());
    CO_TRY(co_await flush(tls, timeout));
  }
  co_return Status();
}

Async<void> finish_sending(Held tls, Clock::duration timeout) {
  ERR_clear_error();
  SSL_shutdown(tls->ssl.get());
  ERR_clear_error();
  const Status ignored = co_await flush(tls, timeout);
  co_await tls->below->finish();
}

class TlsStream final : public Stream {
 public:
  explicit TlsStream(Held tls) : tls_(std::move(tls)) {}
  ~TlsStream() override { tls_->below->close(); }

  Async<Result<std::size_t>> read(std::span<char> into) override {
    return read_some(tls_, into, timeout_);
  }
  Async<Status> write(std::string_view bytes) override { return write_all(tls_, bytes, timeout_); }
  Async<void> finish() override { return finish_sending(tls_, timeout_); }
  bool quiet() const override {
    return SSL_has_pending(tls_->ssl.get()) == 0 && BIO_ctrl_pending(tls_->in) == 0 &&
           BIO_ctrl_pending(tls_->out) == 0 && tls_->below->quiet();
  }
  void close(Close how) override { tls_->below->close(how); }
  void set_timeout(Clock::duration time) override { timeout_ = time; }
  std::string peer() const override { return tls_->below->peer(); }
  std::string server_name() const override {
    const char* const name = SSL_get_servername(tls_->ssl.get(), TLSEXT_NAMETYPE_host_name);
    return name == nullptr ? "" : name;
  }
  std::string protocol() const override {
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(tls_->ssl.get(), &chosen, &size);
    return {reinterpret_cast<const char*>(chosen), size};
  }

 private:
  Held tls_;
  Clock::duration timeout_{};
};

}  // namespace

SslContext server_context() {
  SslContext context(SSL_CTX_new(TLS_server_method()));
  VERIFY(context != nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // What was decrypted is some client's secret, perhaps.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE |
                                         SSL_OP_CLEANSE_PLAINTEXT);
  // Nothing is kept for clients that come again: they bring their ticket.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), select_protocol, nullptr);
  return context;
}

struct TlsIdentity::State {
  SslContext context;
};

TlsIdentity::TlsIdentity(std::string certificate_file, std::string key_file)
    : certificate_file_(std::move(certificate_file)),
      key_file_(std::move(key_file)),
      state_(std::make_unique<State>()) {}
TlsIdentity::~TlsIdentity() = default;

Result<std::shared_ptr<TlsIdentity>> TlsIdentity::load(std::string certificate_file,
                                                       std::string key_file) {
  std::shared_ptr<TlsIdentity> made(
      new TlsIdentity(std::move(certificate_file), std::move(key_file)));
  TRY(made->reload());
  return made;
}

Status TlsIdentity::reload() {
  TRY_ASSIGN(state_->context, make_context(certificate_file_, key_file_));
  return {};
}

namespace {

// What the listener and its coroutines share.
struct Accepting {
  Accepting(Loop& on, std::unique_ptr<Listener> from, std::shared_ptr<TlsIdentity> with,
            TlsLimits bounds)
      : loop(on), below(std::move(from)), identity(std::move(with)), limits(bounds), changed(on) {}

  void end() {
    below->close();
    for (const Held& tls : handshakes) tls->below->close();
    ready.clear();
    changed.notify();
  }

  Loop& loop;
  std::unique_ptr<Listener> below;
  std::shared_ptr<TlsIdentity> identity;
  const TlsLimits limits;
  std::list<Held> handshakes;  // the oldest in front
  std::deque<std::unique_ptr<Stream>> ready;
  std::optional<Error> ended;
  Event changed;
};
using HeldAccepting = std::shared_ptr<Accepting>;

Async<void> welcome(HeldAccepting state, std::list<Held>::iterator place) {
  const Held tls = *place;
  const Status status = co_await shake_hands(tls, state->limits.handshake_time);
  state->handshakes.erase(place);
  if (status.has_value() && !state->ended.has_value()) {
    state->ready.push_back(std::make_unique<TlsStream>(tls));
  } else {
    tls->below->close();
  }
  state->changed.notify();
}

Async<void> accept_below(HeldAccepting state) {
  for (;;) {
    auto stream = co_await state->below->accept();
    if (!stream.has_value()) {
      state->ended = std::move(stream).error();
      state->changed.notify();
      co_return;
    }
    if (state->handshakes.size() >= state->limits.waiting) {
      // Its coroutine takes it off the list when it runs; behind the others it is not the oldest.
      state->handshakes.front()->below->close();
      state->handshakes.splice(state->handshakes.end(), state->handshakes,
                               state->handshakes.begin());
    }
    auto tls = std::make_shared<Tls>(state->loop, std::move(*stream),
                                     state->identity->state().context.get(), Tls::Side::kServer);
    const auto place = state->handshakes.insert(state->handshakes.end(), std::move(tls));
    state->loop.spawn(welcome(state, place));
    while (state->ready.size() >= state->limits.waiting) co_await state->changed.wait();
  }
}

Async<Result<std::unique_ptr<Stream>>> next_ready(HeldAccepting state) {
  while (state->ready.empty()) {
    if (state->ended.has_value()) co_return fail(*state->ended);
    co_await state->changed.wait();
  }
  std::unique_ptr<Stream> stream = std::move(state->ready.front());
  state->ready.pop_front();
  state->changed.notify();
  co_return stream;
}

class TlsListener final : public Listener {
 public:
  explicit TlsListener(HeldAccepting state) : state_(std::move(state)) {
    state_->loop.spawn(accept_below(state_));
  }
  ~TlsListener() override { state_->end(); }

  Async<Result<std::unique_ptr<Stream>>> accept() override { return next_ready(state_); }
  void close() override { state_->end(); }
  std::string address() const override { return state_->below->address(); }
  unsigned short port() const override { return state_->below->port(); }

 private:
  HeldAccepting state_;
};

}  // namespace

std::unique_ptr<Listener> wrap_tls_server(Loop& loop, std::unique_ptr<Listener> below,
                                          std::shared_ptr<TlsIdentity> identity, TlsLimits limits) {
  return std::make_unique<TlsListener>(
      std::make_shared<Accepting>(loop, std::move(below), std::move(identity), limits));
}

Async<Result<std::unique_ptr<Stream>>> accept_tls(Loop& loop, std::unique_ptr<Stream> below,
                                                  std::shared_ptr<Authority> authority,
                                                  std::string name, TlsLimits limits, Alpn alpn) {
  ERR_clear_error();
  Authority::State& state = authority->state();
  CO_TRY(state.get_ready());
  const auto tls =
      std::make_shared<Tls>(loop, std::move(below), state.context.get(), Tls::Side::kServer);
  if (alpn == Alpn::kHttp2) take_http2(tls->ssl.get());
  CO_TRY_ASSIGN(X509* const certificate, state.certificate_of(name));
  if (SSL_use_certificate(tls->ssl.get(), certificate) != 1 ||
      SSL_use_PrivateKey(tls->ssl.get(), state.key.get()) != 1)
    co_return fail(openssl_failed("the certificate of " + name));
  const Status shaken = co_await shake_hands(tls, limits.handshake_time);
  if (shaken.has_value()) {
    // Whatever it gives later is as old as this.
    if (SSL_session_reused(tls->ssl.get()) != 1) tls->resuming.since = Clock::now();
    co_return std::unique_ptr<Stream>(std::make_unique<TlsStream>(tls));
  }
  // Perhaps it was the session that it did not like.
  if (const auto kept = tls->resuming.sessions.lock()) kept->drop(tls->resuming.key);
  tls->below->close();
  co_return fail(shaken.error());
}

struct TlsTrust::State {
  SslContext context;
};

TlsTrust::TlsTrust(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsTrust::~TlsTrust() = default;

namespace {

// Of a client that trusts nobody yet.
SslContext client_context() {
  SslContext made(SSL_CTX_new(TLS_client_method()));
  VERIFY(made != nullptr);
  SSL_CTX* const context = made.get();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  keep_sessions(context);
  return made;
}

// Where distributions keep what their host trusts as one file; the first that is there counts.
constexpr const char* kBundles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                    "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                    "/etc/ssl/cert.pem"};
constexpr std::size_t kMostBundle = 16u << 20;

}  // namespace

Result<std::shared_ptr<TlsTrust>> TlsTrust::load_bundle() {
  for (const char* const file : kBundles) {
    if (::access(file, R_OK) == 0) return load_bundle(file);
  }
  return fail(Error::precondition(std::string("this host has no bundle of certificates that it "
                                              "trusts (Debian's package ca-certificates has "
                                              "one, as ") +
                                  kBundles[0] + ")"));
}

Result<std::shared_ptr<TlsTrust>> TlsTrust::load_bundle(const std::string& file) {
  ERR_clear_error();
  auto state = std::make_unique<State>();
  state->context = client_context();
  TRY_ASSIGN(const std::string text, sys::read_file(AT_FDCWD, file, kMostBundle));
  const Status trusted = trust_bundle(SSL_CTX_get_cert_store(state->context.get()), text);
  if (!trusted.has_value() && trusted.error().code() == Code::kUnimplemented) return load(file);
  if (!trusted.has_value())
    return fail(Error::invalid("the certificates of " + file + ": " + trusted.error().message()));
  return std::shared_ptr<TlsTrust>(new TlsTrust(std::move(state)));
}

Result<std::shared_ptr<TlsTrust>> TlsTrust::load(const std::string& ca_file) {
  ERR_clear_error();
  auto state = std::make_unique<State>();
  state->context = client_context();
  SSL_CTX* const context = state->context.get();
  const int loaded = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context)
                                     : SSL_CTX_load_verify_file(context, ca_file.c_str());
  if (loaded != 1)
    return fail(Error::invalid("the certificates of " + (ca_file.empty() ? "this host" : ca_file) +
                               ": " + openssl_error()));
  return std::shared_ptr<TlsTrust>(new TlsTrust(std::move(state)));
}

namespace {

// The name that the certificate must be for: a host's, or an address.
bool expect_name(SSL* ssl, const std::string& host) {
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1) return true;
  ERR_clear_error();
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return X509_VERIFY_PARAM_set1_host(wanted, host.data(), host.size()) == 1 &&
         SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
}

// What the server gives is kept, and what one like it gave is used.
void go_on_by(Tls& tls, const std::shared_ptr<TlsSessions::State>& sessions, std::string key) {
  tls.resuming = {.sessions = sessions, .key = std::move(key), .since = Clock::now()};
  SSL_set_app_data(tls.ssl.get(), &tls.resuming);
  const TlsSessions::State::Kept* const kept = sessions->find(tls.resuming.key);
  if (kept == nullptr) return;
  tls.resuming.since = kept->since;
  SSL_set_session(tls.ssl.get(), kept->session.get());
}

}  // namespace

Async<Result<std::unique_ptr<Stream>>> connect_tls(Loop& loop, std::unique_ptr<Stream> below,
                                                   std::string host,
                                                   std::shared_ptr<TlsTrust> trust, Alpn alpn) {
  return connect_tls(loop, std::move(below), std::move(host), std::move(trust), alpn, nullptr);
}

Async<Result<std::unique_ptr<Stream>>> connect_tls(Loop& loop, std::unique_ptr<Stream> below,
                                                   std::string host,
                                                   std::shared_ptr<TlsTrust> trust, Alpn alpn,
                                                   std::shared_ptr<TlsSessions> sessions) {
  std::string key = host + " " + below->peer();
  const auto tls = std::make_shared<Tls>(loop, std::move(below), trust->state().context.get(),
                                         Tls::Side::kClient);
  if (host.empty() || !expect_name(tls->ssl.get(), host))
    co_return fail(Error::invalid("'" + host + "' is no name of a host"));
  if (guard_off(Guard::kUpstreamVerified)) {
    SSL_set_verify(tls->ssl.get(), SSL_VERIFY_NONE, nullptr);
  } else if (sessions != nullptr) {
    go_on_by(*tls, sessions->state(), std::move(key));
  }
  const std::string_view offered = protocols_of(alpn);
  // 0 is success here.
  VERIFY(SSL_set_alpn_protos(tls->ssl.get(), reinterpret_cast<const unsigned char*>(offered.data()),
                             static_cast<unsigned>(offered.size())) == 0);
  const Status shaken = co_await shake_hands(tls, TlsLimits().handshake_time);
  const long verified = SSL_get_verify_result(tls->ssl.get());
  if (shaken.has_value()) co_return std::unique_ptr<Stream>(std::make_unique<TlsStream>(tls));
  tls->below->close();
  if (verified != X509_V_OK)
    co_return fail(Error(Code::kUnauthenticated,
                         "the certificate of " + host +
                             " is not to be trusted: " + X509_verify_cert_error_string(verified)));
  co_return fail(shaken.error());
}

}  // namespace caisson::io
