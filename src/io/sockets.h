// What stream.cpp and listener.cpp have in common. Only .cpp files of src/io include this.
#pragma once

#include <memory>

#include "io/pollable.h"
#include "io/stream.h"

namespace caisson::io {

// A stream over a connected socket. Reads and writes never block, whatever the descriptor's flags.
std::unique_ptr<Stream> stream_of(std::shared_ptr<Pollable> socket);

}  // namespace caisson::io
