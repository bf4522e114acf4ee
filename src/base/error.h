// Errors as values: the public Error and Result<T> (caisson/error.h) with what only our own code
// uses beside them: TRY, TRY_ASSIGN and VERIFY.
#pragma once

#include <caisson/error.h>

namespace caisson {

// fail() for the system call that has just set errno.
std::unexpected<Error> fail_errno(std::string_view what);

// A broken invariant: prints the place and aborts. Never for bad input.
[[noreturn]] void verify_failed(const char* expression, const char* file, int line);

}  // namespace caisson

#define CAISSON_JOIN_(a, b) a##b
#define CAISSON_JOIN(a, b) CAISSON_JOIN_(a, b)

// Ends this function with the error of `expression`, or goes on.
#define TRY(expression)                                                        \
  do {                                                                         \
    if (auto try_result = (expression); !try_result.has_value())               \
      return std::unexpected<::caisson::Error>(std::move(try_result).error()); \
  } while (false)

// `declaration` is initialised with the value of `expression`, or this function ends with its
// error.
#define TRY_ASSIGN(declaration, expression) \
  TRY_ASSIGN_(declaration, expression, CAISSON_JOIN(try_assign_, __LINE__))
#define TRY_ASSIGN_(declaration, expression, name)                                          \
  auto name = (expression);                                                                 \
  if (!name.has_value()) return std::unexpected<::caisson::Error>(std::move(name).error()); \
  declaration = std::move(name).value()

#define VERIFY(expression) \
  ((expression) ? void(0) : ::caisson::verify_failed(#expression, __FILE__, __LINE__))
