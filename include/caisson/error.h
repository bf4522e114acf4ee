// Errors as values.
//
// An Error says what kind of failure it is (one of the sixteen canonical RPC codes, so that HTTP
// status, Connect code and exit status are three tables), carries a sentence for the user, the
// errno where a system call failed, and a chain of context added on the way up. A Result<T> is
// either a T or an Error. Library code returns them and never logs; nothing here throws. Part of
// the public API; base/error.h adds the macros that our own code uses with it.
#pragma once

#include <cerrno>
#include <expected>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace caisson {

enum class Code {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The code's name as the Connect protocol spells it, e.g. "invalid_argument".
std::string_view to_string(Code code);

class [[nodiscard]] Error {
 public:
  Error(Code code, std::string message);
  Error(Error&&) noexcept = default;
  Error& operator=(Error&&) noexcept = default;
  Error(const Error& other);
  Error& operator=(const Error& other);
  ~Error() = default;

  static Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
  static Error not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
  static Error precondition(std::string message) {
    return {Code::kFailedPrecondition, std::move(message)};
  }
  static Error internal(std::string message) { return {Code::kInternal, std::move(message)}; }
  static Error unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
  static Error exhausted(std::string message) {
    return {Code::kResourceExhausted, std::move(message)};
  }
  // A failed system call: `what` names the call and its object ("openat2 /etc/x"). The code follows
  // from errno (EACCES is kPermissionDenied, ENOENT kNotFound, …).
  static Error syscall(std::string_view what, int error_number);

  Code code() const { return state_->code; }
  // 0 where no system call failed.
  int error_number() const { return state_->error_number; }
  // The whole sentence: outermost context first, then the cause.
  const std::string& message() const { return state_->message; }
  // The same error with "context: " put before its message.
  Error with(std::string_view context) &&;

 private:
  struct State {
    Code code;
    int error_number = 0;
    std::string message;
  };
  std::unique_ptr<State> state_;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

inline std::unexpected<Error> fail(Error error) {
  return std::unexpected<Error>(std::move(error));
}
}  // namespace caisson
