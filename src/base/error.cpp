#include "base/error.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace caisson {
namespace {

Code code_of_errno(int error_number) {
  switch (error_number) {
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
      return Code::kNotFound;
    case EEXIST:
      return Code::kAlreadyExists;
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
    case EISDIR:
      return Code::kInvalidArgument;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
      return Code::kResourceExhausted;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnimplemented;
    case ETIMEDOUT:
      return Code::kDeadlineExceeded;
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

}  // namespace

std::string_view to_string(Code code) {
  static constexpr std::array<std::string_view, 17> kNames = {"ok",
                                                              "canceled",
                                                              "unknown",
                                                              "invalid_argument",
                                                              "deadline_exceeded",
                                                              "not_found",
                                                              "already_exists",
                                                              "permission_denied",
                                                              "resource_exhausted",
                                                              "failed_precondition",
                                                              "aborted",
                                                              "out_of_range",
                                                              "unimplemented",
                                                              "internal",
                                                              "unavailable",
                                                              "data_loss",
                                                              "unauthenticated"};
  return kNames.at(static_cast<std::size_t>(code));
}

Error::Error(Code code, std::string message)
    : state_(std::make_unique<State>(State{code, 0, std::move(message)})) {}

Error::Error(const Error& other) : state_(std::make_unique<State>(*other.state_)) {}

Error& Error::operator=(const Error& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}

Error Error::syscall(std::string_view what, int error_number) {
  std::string message(what);
  message += ": ";
  message += ::strerrordesc_np(error_number) != nullptr ? ::strerrordesc_np(error_number)
                                                        : "unknown error";
  Error error(code_of_errno(error_number), std::move(message));
  error.state_->error_number = error_number;
  return error;
}

Error Error::with(std::string_view context) && {
  state_->message.insert(0, ": ");
  state_->message.insert(0, context);
  return std::move(*this);
}

std::unexpected<Error> fail_errno(std::string_view what) {
  return fail(Error::syscall(what, errno));
}

void verify_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "caisson: internal error: %s does not hold (%s:%d)\n", expression, file,
               line);
  std::abort();
}

}  // namespace caisson
