#include "io/tls_sessions.h"

#include <algorithm>
#include <utility>

#include "io/tls_sessions_state.h"

namespace caisson::io {
namespace {

// 1: the session is ours now.
int keep_new(SSL* ssl, SSL_SESSION* session) {
  const auto* const resuming = static_cast<const Resuming*>(SSL_get_app_data(ssl));
  if (resuming == nullptr || SSL_get_verify_result(ssl) != X509_V_OK ||
      SSL_SESSION_is_resumable(session) != 1)
    return 0;
  const auto sessions = resuming->sessions.lock();
  if (sessions == nullptr) return 0;
  sessions->keep(resuming->key, Session(session), resuming->since);
  return 1;
}

}  // namespace

void keep_sessions(SSL_CTX* context) {
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, keep_new);
}

void TlsSessions::State::keep(const std::string& key, Session session, Clock::time_point since) {
  drop(key);
  kept.push_front({.key = key, .session = std::move(session), .since = since});
  if (kept.size() > kMost) kept.pop_back();
}

void TlsSessions::State::drop(const std::string& key) {
  std::erase_if(kept, [&](const Kept& one) { return one.key == key; });
}

const TlsSessions::State::Kept* TlsSessions::State::find(const std::string& key) {
  const Clock::time_point now = Clock::now();
  std::erase_if(kept, [&](const Kept& one) { return now - one.since > kGood; });
  const auto found = std::ranges::find(kept, key, &Kept::key);
  return found == kept.end() ? nullptr : &*found;
}

TlsSessions::TlsSessions() : state_(std::make_shared<State>()) {}
TlsSessions::~TlsSessions() = default;

std::size_t TlsSessions::size() const {
  return state_->kept.size();
}

void TlsSessions::forget() {
  state_->kept.clear();
}

}  // namespace caisson::io
