// A conversation with one registry about one repository: which scheme it speaks, what it wants as
// authorization, where it redirects to, and when to try again.
//
// Credentials are looked up when the registry asks for them, and go to it alone, or to the token
// server that it names (challenge.h); a redirect to anywhere else drops them. They go over plain
// HTTP only where the registry itself is spoken to so, which is on this host and where the settings
// list it. No secret is part of an error. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "image/registry/credentials.h"
#include "image/registry/fetcher.h"
#include "image/registry/url.h"
#include "policy/settings.h"

namespace caisson::image {

// One GET, with whatever it takes until there is an answer: redirects, authorization, waiting.
struct Exchange {
  Url url;             // where the next request goes
  Url first;           // where the first one went: after a new authorization it starts there again
  std::string accept;  // of an Accept header; empty: none
  FetchSink sink;
  std::uint32_t seconds = 0;  // for one request; 0: it must only not stall

  int redirects = 0;
  int failures = 0;  // since something came
  int tries = 0;
  bool authorized_again = false;
  std::optional<std::uint32_t> running;
  std::chrono::steady_clock::time_point not_before = {};
};

class Session {
 public:
  using Note = std::function<void(const std::string& sentence)>;

  // Asks for the API's version. `registry` is HOST[:PORT]. Without `login` credentials are looked
  // up where they are wanted.
  static Result<Session> open(std::string_view registry, std::string_view repository,
                              const policy::Settings& settings, std::optional<Credentials> login,
                              Note note);

  // For `path` below /v2/REPOSITORY/.
  Exchange exchange(const std::string& path, const std::string& accept,
                    const FetchSink& sink) const;
  // Goes on with it without waiting. An outcome: it is over and good. For a sink with a file, what
  // came before the connection broke is kept, and the rest asked for.
  Result<std::optional<FetchOutcome>> advance(Exchange& exchange);
  // Waits for something to happen, for as long as nothing is to be begun.
  Status wait(std::chrono::milliseconds most) { return fetcher_.pump(most); }
  std::uint64_t received(const Exchange& exchange) const {
    return exchange.running ? fetcher_.received(*exchange.running) : 0;
  }
  // All of it, into memory.
  Result<FetchOutcome> get(const std::string& path, const std::string& accept, std::uint64_t limit);

 private:
  Session(Fetcher fetcher, std::string registry, std::string repository, Note note);
  Result<FetchOutcome> finish(Exchange exchange);
  Status begin(Exchange& exchange);
  // What an outcome that is no success means: an error, or nothing where another try is worth it.
  Status judge(Exchange& exchange, const FetchOutcome& outcome);
  Status follow(Exchange& exchange, std::string_view location);
  Status try_again(Exchange& exchange, const std::string& why, std::string_view retry_after);
  Status authorize(const FetchHead& head);
  Result<std::string> fetch_token(const struct Challenge& challenge);
  Error refusal(const FetchOutcome& outcome);
  std::string without_secrets(std::string text) const;

  Fetcher fetcher_;
  std::string registry_, repository_;
  Note note_;
  Url base_;
  bool answered_ = false;  // the registry is there: what breaks now may be mended
  bool credentials_known_ = false;
  std::optional<Credentials> credentials_;
  std::string authorization_;  // the header's value
};

}  // namespace caisson::image
