// What the gateways of one sandbox have in common, one after the other: the authority that the
// sandbox trusts, and the key under which its secrets are sealed (secrets/sealed.h).
//
// It is made with the sandbox, lies in a file without a name that the launcher holds and never
// reads, and is given to each gateway when it starts. Whoever may seal for the sandbox knows the
// key too. Pure but for the file.
#pragma once

#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "base/secret.h"
#include "io/authority.h"

namespace caisson::egress {

struct SandboxKeys {
  SecretValue sealing;
  std::shared_ptr<io::Authority> authority;
};

// Error: as of the system's calls.
Result<Fd> write_keys(std::string_view sealing, const io::Authority& authority);
// Error: invalid_argument, of a file that has none.
Result<SandboxKeys> read_keys(int file_fd);

}  // namespace caisson::egress
