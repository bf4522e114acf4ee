// The vault's keys on the disk, in a folder of their own: STATE/vault, which is its maker's alone
// (root's, of a server that root starts), so that no server can read it.
//
//   key      32 random bytes
//   earlier  64 hexadecimal digits: what secrets were sealed under before there was such a folder,
//            by servers that had the key themselves; not there where there was none
#pragma once

#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "vault/engine.h"

namespace caisson::vault {

// Opens the folder; makes it with a key where there is none. A state directory of before (one with
// server/secret and without a key here) gets `earlier` too. Errors: failed_precondition (others may
// write to the folder, or read a file of it).
Result<Fd> prepare_keys(const std::string& state_directory);
Result<MasterKeys> read_keys(int folder_fd);

}  // namespace caisson::vault
