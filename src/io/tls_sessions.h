// What servers have given a client so that it need not shake hands with them from the start again.
//
// Each is for one name at one address, whose certificate was verified when it began, and is good
// for some minutes. Belongs to one thread; connections may outlive it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

namespace caisson::io {

class TlsSessions {
 public:
  // Beyond these the oldest gives way.
  static constexpr std::size_t kMost = 256;
  static constexpr std::chrono::minutes kGood{5};

  TlsSessions();
  ~TlsSessions();
  TlsSessions(const TlsSessions&) = delete;
  TlsSessions& operator=(const TlsSessions&) = delete;

  std::size_t size() const;
  // All of them.
  void forget();

  struct State;  // of OpenSSL; for src/io alone
  const std::shared_ptr<State>& state() { return state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace caisson::io
