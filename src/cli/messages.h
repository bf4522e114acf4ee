// What the program itself says: sentences on stderr, each behind "caisson: ".
#pragma once

#include <string_view>

#include "base/error.h"

namespace caisson::cli {

// All of it, also where write(2) takes it in parts. False: the other side has gone.
bool write_all(int fd, std::string_view bytes);

void say(std::string_view sentence);
// A remark that only a person at a terminal wants.
void note(std::string_view sentence);
// Says the error; returns the exit status for errors of our own (125).
int say_error(const Error& error);

// `text` with control characters and bytes that are not ASCII made visible, for messages that show
// what came from elsewhere.
std::string shown(std::string_view text);

}  // namespace caisson::cli
