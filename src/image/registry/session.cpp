#include "image/registry/session.h"

#include <sys/random.h>

#include <algorithm>
#include <ctime>
#include <iterator>

#include "base/encoding.h"
#include "image/registry/answer.h"
#include "image/registry/challenge.h"

namespace caisson::image {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMaxRedirects = 5;
constexpr int kMaxFailures = 5;  // one after another
constexpr int kMaxTries = 200;   // in all
constexpr milliseconds kFirstDelay{500};
constexpr milliseconds kMaxDelay{60'000};
constexpr std::uint32_t kSmallSeconds = 120;
constexpr std::uint64_t kMaxTokenAnswer = 256 << 10;
// Less than this brings nobody any further: a server that breaks off after each byte.
constexpr std::uint64_t kWorthwhile = 16 << 10;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// 0.5, 1, 2, 4, 8 seconds and up to a quarter more, so that those who were sent away together do
// not come back together.
milliseconds delay_after(int failures) {
  unsigned char random = 0;
  if (::getrandom(&random, 1, 0) != 1) random = 0;
  const milliseconds delay = kFirstDelay * (1 << std::clamp(failures - 1, 0, 6));
  return std::min(kMaxDelay, delay + delay * random / 1024);
}

std::string seconds_text(milliseconds time) {
  return std::to_string(time.count() / 1000) + "." + std::to_string(time.count() / 100 % 10) + " s";
}

bool plain_allowed(std::string_view registry, const Url& url, const policy::Settings& settings) {
  return is_loopback_host(url.host) || std::ranges::find(settings.insecure_registries, registry) !=
                                           settings.insecure_registries.end();
}

std::string basic(const Credentials& credentials) {
  return "Basic " + base64_encode(credentials.user + ":" + credentials.secret);
}

void erase_all(std::string& text, const std::string& secret) {
  if (secret.size() < 4) return;
  for (std::size_t at = 0; (at = text.find(secret, at)) != std::string::npos;) {
    text.replace(at, secret.size(), "***");
  }
}

}  // namespace

Session::Session(Fetcher fetcher, std::string registry, std::string repository, Note note)
    : fetcher_(std::move(fetcher)),
      registry_(std::move(registry)),
      repository_(std::move(repository)),
      note_(std::move(note)) {}

Result<Session> Session::open(std::string_view registry, std::string_view repository,
                              const policy::Settings& settings, std::optional<Credentials> login,
                              Note note) {
  TRY_ASSIGN(Fetcher fetcher, Fetcher::start());
  Session session(std::move(fetcher), std::string(registry), std::string(repository),
                  std::move(note));
  session.credentials_known_ = login.has_value();
  session.credentials_ = std::move(login);
  const std::string name(registry);
  TRY_ASSIGN(session.base_, parse_url("https://" + name + "/v2/"));
  Exchange ping;
  ping.sink.limit = 64 << 10;
  ping.seconds = kSmallSeconds;
  if (plain_allowed(registry, session.base_, settings)) {
    // Which of the two it speaks is found out once, without patience.
    ping.first = ping.url = session.base_;
    ping.failures = kMaxFailures;
    TRY(session.begin(ping));
    while (!session.fetcher_.is_done(*ping.running)) TRY(session.wait(kMaxDelay));
    const FetchOutcome outcome = session.fetcher_.take(*ping.running);
    const FetchEnd end = outcome.result.end;
    if (outcome.head.status == 0 &&
        (end == FetchEnd::kTls || end == FetchEnd::kConnect || end == FetchEnd::kBroken)) {
      TRY_ASSIGN(session.base_, parse_url("http://" + name + "/v2/"));
    }
    ping = Exchange();
    ping.sink.limit = 64 << 10;
    ping.seconds = kSmallSeconds;
  }
  ping.first = ping.url = session.base_;
  auto pong = session.finish(std::move(ping));
  if (!pong.has_value()) {
    if (pong.error().code() != Code::kNotFound) return fail(std::move(pong).error());
    return fail(Error::precondition(name + " does not speak the registry API v2 (" +
                                    session.base_.shown() + " is not found)"));
  }
  return session;
}

Exchange Session::exchange(const std::string& path, const std::string& accept,
                           const FetchSink& sink) const {
  Exchange exchange;
  exchange.first = base_;
  // Names of repositories, tags and digests hold nothing that a URL escapes but ':'.
  exchange.first.target = "/v2/" + repository_ + "/" + path;
  exchange.url = exchange.first;
  exchange.accept = accept;
  exchange.sink = sink;
  return exchange;
}

Result<FetchOutcome> Session::get(const std::string& path, const std::string& accept,
                                  std::uint64_t limit) {
  Exchange asked = exchange(path, accept, {.limit = limit});
  asked.seconds = kSmallSeconds;
  return finish(std::move(asked));
}

Result<FetchOutcome> Session::finish(Exchange exchange) {
  for (;;) {
    TRY_ASSIGN(std::optional<FetchOutcome> outcome, advance(exchange));
    if (outcome) return std::move(*outcome);
    const auto left = std::chrono::duration_cast<milliseconds>(exchange.not_before - Clock::now());
    TRY(wait(exchange.running ? milliseconds(1000) : std::max(left, milliseconds(1))));
  }
}

Status Session::begin(Exchange& exchange) {
  FetchRequest request;
  request.url = exchange.url.text();
  request.seconds = exchange.seconds;
  if (!exchange.accept.empty()) request.headers.push_back("Accept: " + exchange.accept);
  if (exchange.sink.offset > 0) {
    request.headers.push_back("Range: bytes=" + std::to_string(exchange.sink.offset) + "-");
  }
  if (exchange.url.same_origin(base_)) {
    if (!authorization_.empty()) request.headers.push_back("Authorization: " + authorization_);
  } else {
    // Where a registry elsewhere points to is none of this host's services.
    request.outside_only = !is_loopback_host(base_.host);
  }
  ++exchange.tries;
  TRY_ASSIGN(exchange.running, fetcher_.begin(std::move(request), exchange.sink));
  return {};
}

Result<std::optional<FetchOutcome>> Session::advance(Exchange& exchange) {
  if (!exchange.running) {
    if (Clock::now() < exchange.not_before) return std::nullopt;
    TRY(begin(exchange));
    return std::nullopt;
  }
  if (!fetcher_.is_done(*exchange.running)) return std::nullopt;
  FetchOutcome outcome = fetcher_.take(*exchange.running);
  exchange.running.reset();
  if (outcome.head.status != 0) answered_ = true;
  const bool wrong_part =
      outcome.head.status == 206 &&
      parse_range_start(outcome.head.header("content-range")) != exchange.sink.offset;
  if (outcome.good() && !wrong_part) return outcome;
  if (outcome.good() || outcome.head.status == 416) {
    // Not the part that was asked for, or there is no such part: all of it again.
    if (exchange.sink.offset == 0 && wrong_part) {
      return fail(Error::invalid(registry_ + " answers with a part that nobody asked for"));
    }
    exchange.sink.offset = 0;
    TRY(try_again(exchange, "it has no such part of the blob", ""));
    return std::nullopt;
  }
  if (exchange.sink.file_fd >= 0 && outcome.file_size > 0 && !wrong_part) {
    if (outcome.received >= kWorthwhile) {
      exchange.failures = 0;
      exchange.authorized_again = false;  // tokens run out
    }
    exchange.sink.offset = outcome.file_size;
  }
  TRY(judge(exchange, outcome));
  return std::nullopt;
}

Status Session::judge(Exchange& exchange, const FetchOutcome& outcome) {
  const int status = outcome.head.status;
  const FetchResult& result = outcome.result;
  const std::string where = exchange.url.shown();
  switch (result.end) {
    case FetchEnd::kDone:
      break;
    case FetchEnd::kBroken:
      return try_again(exchange, "the connection broke (" + result.text + ")", "");
    case FetchEnd::kConnect:
      if (answered_) return try_again(exchange, result.text, "");
      return fail(Error::unavailable(where + ": " + result.text));
    case FetchEnd::kResolve:
      return fail(Error::unavailable(where + ": " + result.text));
    case FetchEnd::kCertificate:
      return fail(Error(Code::kPermissionDenied,
                        where + ": nobody that this host trusts vouches for its certificate (" +
                            result.text + "); SSL_CERT_FILE can name others to trust"));
    case FetchEnd::kTls:
      return fail(Error::precondition(
          where + ": " + result.text +
          "; a registry that has no TLS must be in the setting insecure_registries"));
    case FetchEnd::kTooLarge:
      return fail(Error::invalid(where + ": more than " + std::to_string(exchange.sink.limit) +
                                 " bytes, the most that is allowed there"));
    case FetchEnd::kForbidden:
      return fail(Error::invalid(where + ": leads to this host itself, which is not followed"));
    case FetchEnd::kCancelled:
    case FetchEnd::kOther:
      return fail(Error::unavailable(where + ": " + result.text));
  }
  if (is_redirect(status)) return follow(exchange, outcome.head.header("location"));
  if (status == 401 && exchange.url.same_origin(base_) && !exchange.authorized_again) {
    exchange.authorized_again = true;
    exchange.url = exchange.first;
    return authorize(outcome.head);
  }
  // Storage that was redirected to: its signature has run out.
  const bool stale = status == 403 && !exchange.url.same_origin(base_);
  if (status == 429 || status == 408 || status >= 500 || stale) {
    return try_again(exchange, "it answers with status " + std::to_string(status),
                     outcome.head.header("retry-after"));
  }
  return fail(refusal(outcome));
}

Status Session::follow(Exchange& exchange, std::string_view location) {
  auto next = resolve_url(exchange.url, location);
  if (!next.has_value()) {
    return fail(std::move(next).error().with(exchange.url.shown() + ": redirects to"));
  }
  if (++exchange.redirects > kMaxRedirects) {
    return fail(Error::invalid(exchange.first.shown() + ": more than " +
                               std::to_string(kMaxRedirects) + " redirects"));
  }
  const bool here = is_loopback_host(next->host);
  // Plain HTTP only among this host's own names, or where the registry itself is spoken to so.
  if (!next->secure && (base_.secure || (!here && next->host != base_.host))) {
    return fail(Error::invalid(exchange.url.shown() + ": redirects to plain HTTP (" +
                               next->shown() + "), which is not followed"));
  }
  if (here && !is_loopback_host(base_.host)) {
    return fail(Error::invalid(exchange.url.shown() + ": redirects to this host itself (" +
                               next->shown() + "), which is not followed"));
  }
  exchange.url = std::move(*next);
  return {};
}

Status Session::try_again(Exchange& exchange, const std::string& why,
                          std::string_view retry_after) {
  ++exchange.failures;
  if (exchange.failures > kMaxFailures || exchange.tries >= kMaxTries) {
    return fail(Error::unavailable(exchange.url.shown() + ": " + why + "; given up after " +
                                   std::to_string(exchange.tries) +
                                   (exchange.tries == 1 ? " try" : " tries")));
  }
  milliseconds delay = delay_after(exchange.failures);
  if (const auto asked = parse_retry_after(retry_after, std::time(nullptr))) {
    delay = std::min<milliseconds>(kMaxDelay, std::max<milliseconds>(delay, *asked));
  }
  // Signatures of storage that was redirected to run out.
  exchange.url = exchange.first;
  exchange.redirects = 0;
  exchange.not_before = Clock::now() + delay;
  if (note_) note_(registry_ + ": " + why + "; the next try is in " + seconds_text(delay));
  return {};
}

Status Session::authorize(const FetchHead& head) {
  std::vector<Challenge> challenges;
  for (const auto& [name, value] : head.headers) {
    if (name != "www-authenticate") continue;
    auto parsed = parse_challenges(value);
    if (!parsed.has_value()) return fail(std::move(parsed).error().with(registry_));
    std::ranges::move(*parsed, std::back_inserter(challenges));
  }
  if (!credentials_known_) {
    TRY_ASSIGN(credentials_, find_credentials(registry_));
    credentials_known_ = true;
  }
  if (const auto bearer = std::ranges::find(challenges, "bearer", &Challenge::scheme);
      bearer != challenges.end()) {
    TRY_ASSIGN(const std::string token, fetch_token(*bearer));
    authorization_ = "Bearer " + token;
    return {};
  }
  if (std::ranges::find(challenges, "basic", &Challenge::scheme) == challenges.end()) {
    return fail(Error(Code::kUnauthenticated,
                      registry_ + " wants an authorization that is neither Bearer nor Basic"));
  }
  if (!credentials_ || credentials_->user.empty()) {
    return fail(Error(Code::kUnauthenticated,
                      registry_ + " wants a login; none is known. It belongs into "
                                  "~/.docker/config.json (`docker login`, `skopeo login`)"));
  }
  authorization_ = basic(*credentials_);
  return {};
}

Result<std::string> Session::fetch_token(const Challenge& challenge) {
  TRY_ASSIGN(Url url, token_url(challenge, base_, repository_));
  FetchRequest request;
  request.seconds = kSmallSeconds;
  request.outside_only = !url.same_origin(base_) && !is_loopback_host(base_.host);
  if (credentials_ && !credentials_->identity_token.empty()) {
    const std::size_t query = url.target.find('?');
    request.form = "grant_type=refresh_token&client_id=caisson&" + url.target.substr(query + 1) +
                   "&refresh_token=" + percent_encode(credentials_->identity_token);
    url.target.resize(query);
  } else if (credentials_) {
    request.headers.push_back("Authorization: " + basic(*credentials_));
  }
  request.url = url.text();
  Exchange patience;
  patience.first = patience.url = url;
  for (;;) {
    ++patience.tries;
    // Redirects are not followed: nothing else may have what is sent here.
    TRY_ASSIGN(const std::uint32_t id, fetcher_.begin(request, {.limit = kMaxTokenAnswer}));
    while (!fetcher_.is_done(id)) TRY(wait(kMaxDelay));
    const FetchOutcome outcome = fetcher_.take(id);
    if (outcome.good()) {
      auto token = parse_token(outcome.body);
      if (!token.has_value()) return fail(std::move(token).error().with(url.shown()));
      return token;
    }
    const int status = outcome.head.status;
    if (outcome.result.end == FetchEnd::kDone && (status == 401 || status == 403)) {
      return fail(
          Error(Code::kUnauthenticated,
                url.shown() + (credentials_ ? ": refuses the login that is known for " + registry_
                                            : ": gives nothing without a login, and none is known "
                                              "for " +
                                                  registry_ + " (~/.docker/config.json)")));
    }
    const bool again = outcome.result.end == FetchEnd::kBroken ||
                       (outcome.result.end == FetchEnd::kDone && (status == 429 || status >= 500));
    const std::string why = outcome.result.end == FetchEnd::kDone
                                ? "it answers with status " + std::to_string(status)
                                : outcome.result.text;
    if (!again) return fail(Error::unavailable(url.shown() + ": " + why));
    TRY(try_again(patience, why, outcome.head.header("retry-after")));
    while (Clock::now() < patience.not_before) {
      TRY(wait(std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(
                                             patience.not_before - Clock::now()))));
    }
  }
}

std::string Session::without_secrets(std::string text) const {
  erase_all(text, authorization_);
  if (const auto space = authorization_.find(' '); space != std::string::npos) {
    erase_all(text, authorization_.substr(space + 1));
  }
  if (credentials_) {
    erase_all(text, credentials_->secret);
    erase_all(text, credentials_->identity_token);
  }
  return text;
}

Error Session::refusal(const FetchOutcome& outcome) {
  const int status = outcome.head.status;
  const std::string name = registry_ + "/" + repository_;
  std::string said = without_secrets(error_messages(outcome.body));
  if (!said.empty()) said = " (it says: " + said + ")";
  if (status == 401) {
    return Error(Code::kUnauthenticated,
                 credentials_ ? registry_ + " refuses the login that is known for it" + said
                              : name +
                                    ": not without a login, and none is known; it belongs into "
                                    "~/.docker/config.json. Many registries answer so where "
                                    "there is no such image" +
                                    said);
  }
  if (status == 403) return Error(Code::kPermissionDenied, name + ": access is denied" + said);
  if (status == 404) return Error::not_found(name + ": there is no such image" + said);
  if (status == 0) return Error::internal(name + ": no answer");
  return Error::unavailable(name + ": the registry answers with status " + std::to_string(status) +
                            said);
}

}  // namespace caisson::image
