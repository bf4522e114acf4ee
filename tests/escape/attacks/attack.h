// What every attack program shares: the marker without which none starts, one forked child with a
// time limit per attempt, and the line that each attempt prints:
//
//   contained ID DETAIL | ESCAPED ID DETAIL | unsupported ID REASON
//
// DETAIL begins with an errno's or a signal's name or a word that tests/escape/INDEX declares. A
// program is called with the ids of its attempts, prints a line for each, and exits 0 where none
// escaped, 1 where one did, 2 for an id that it does not have, and 99 where it is not in a sandbox.
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Defines attempt `id` (a row of INDEX): the body runs in a child of its own and ends it through
// one of the functions below; a body that returns without a word is an error.
#define ATTEMPT(id) ATTEMPT_WITHIN(id, 5)
#define ATTEMPT_WITHIN(id, seconds)                              \
  static void attempt_##id(void);                                \
  __attribute__((constructor)) static void register_##id(void) { \
    attack_register(#id, attempt_##id, seconds);                 \
  }                                                              \
  static void attempt_##id(void)

void attack_register(const char* id, void (*body)(void), int seconds);

__attribute__((noreturn, format(printf, 1, 2))) void contained(const char* format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void escaped(const char* format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void unsupported(const char* format, ...);

// The call must fail: its errno's name is the detail; success is an escape.
__attribute__((noreturn)) void denied(long result);
// The call was made with arguments that the kernel itself refuses with another errno than EPERM,
// EACCES or ENOSYS: anything but those three shows that it got through to the kernel's code.
__attribute__((noreturn)) void unreached(long result);
// Opens the path and reports: being able to open it is the escape, nothing is read or written.
__attribute__((noreturn)) void open_denied(const char* path, int flags);

const char* errno_name(int error_number);
const char* signal_name(int number);
// At most size - 1 bytes of the file, ended by a zero; -1 with errno where it cannot be read.
ssize_t read_file(const char* path, char* buffer, size_t size);
// What the test runner knows of the host (environment HOST_*); without it the attempt is an error.
const char* host_fact(const char* name);
// Seconds of a clock that only goes forward.
double now_seconds(void);

// Ends the program with status 99 unless it runs in a sandbox of ours: a user namespace that is not
// the host's, PID 1 our guest, and the token of the environment equal to the one inside.
void require_sandbox(void);
