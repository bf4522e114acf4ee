// A certificate authority in memory alone: for whoever has to be the server of many names to one
// client that was told to trust it, as a gateway is to its sandbox.
//
// Its key is made with it and ends with it, or with who was given its secret(): one after the other
// may be the same authority. A certificate of a name is
// made when a client first asks for that name, and kept for the next time, the newest kMostKept of
// them. All have one key and end with the authority. Belongs to one thread; connections that were
// accepted by it (tls.h) may outlive it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/secret.h"

namespace caisson::io {

class Authority {
 public:
  static constexpr std::size_t kMostKept = 1024;
  // Clients that run in a sandbox may have a clock that is behind.
  static constexpr std::chrono::seconds kBefore = std::chrono::hours(48);
  static constexpr std::chrono::seconds kValid = std::chrono::hours(30 * 24);

  // `name`: its own (CN), at most 64 bytes.
  static Result<std::shared_ptr<Authority>> make(const std::string& name);
  // The one whose secret() this is. Error: invalid_argument.
  static Result<std::shared_ptr<Authority>> again(std::string_view secret);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  // What clients are to trust, as PEM; it is no secret.
  const std::string& certificate() const { return certificate_; }
  // All of it, its key too, as PEM. Error: internal.
  Result<SecretValue> secret() const;
  // Makes what the first connection would else wait for. Error: internal.
  Status get_ready();
  // How many certificates of names are kept.
  std::size_t kept() const;

  struct State;  // of OpenSSL; for src/io alone
  State& state() { return *state_; }

 private:
  explicit Authority(std::unique_ptr<State> state);
  static Result<std::shared_ptr<Authority>> complete(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  std::string certificate_;
};

}  // namespace caisson::io
