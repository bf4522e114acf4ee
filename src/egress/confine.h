// How the proxy's process shuts itself in before it reads a byte of a sandbox: no capability and no
// way to gain rights, an id that is nobody's where it was root, no files but those that resolving
// names reads, and nothing of the system but what sockets need.
#pragma once

#include <cstddef>

#include "base/error.h"

namespace caisson::egress {

// The host id that root's proxy runs as: nobody's, unlike 65534, which daemons of the host share
// (ARCHITECTURE.md, "Two user namespaces").
inline constexpr unsigned kEgressId = 0x7ffcf001;
// What it may allocate beyond what it was forked with, in bytes: 64 connections with two full
// buffers, which a growing string may double, are 16 MiB.
inline constexpr std::size_t kMostMemory = 128 * 1024 * 1024;

// Keeps only the descriptors `keep` (and stderr). `parent`: the process whose death is ours.
Status confine(int parent, int first_fd, int second_fd);

}  // namespace caisson::egress
