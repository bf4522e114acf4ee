// A certificate authority of this host's own, for servers that nobody else gives a certificate.
//
// Its certificate is what clients are told to trust; it is good for the names of one domain alone
// (name constraints), so that its key is of no use for any other. Files are kept from start to
// start and made anew when they are missing, damaged, of another domain, or near their end.
#pragma once

#include <string>

#include "base/error.h"

namespace caisson::io {

// Paths of PEM files.
struct DevCa {
  std::string ca_certificate;    // ca.pem, for clients; anyone may read it
  std::string certificate, key;  // of `domain` and `*.domain`; the keys are their owner's alone
};

// Blocks. `directory` exists. Error: invalid (the domain), or of the files, with their name.
Result<DevCa> make_dev_ca(const std::string& directory, const std::string& domain);

}  // namespace caisson::io
