// The certificates of a bundle, of which OpenSSL gets those alone that a chain leads to.
//
// To make OpenSSL's objects of all that a host trusts takes tens of milliseconds, most of it for
// keys that are never asked for. So their bytes are kept as they are in the file, and who verifies
// finds one by its subject. Only .cpp files of this folder include this.
#pragma once

#include <optional>
#include <string_view>

#include "base/error.h"
#include "io/openssl.h"

namespace caisson::io {

// The subject's bytes of a certificate (RFC 5280, section 4.1), both DER; nullopt: it is none.
// Reads no further than there.
std::optional<std::string_view> subject_of(std::string_view certificate);

// The store trusts the certificates of `pem`, which is not needed afterwards. Errors:
// invalid_argument where it has none, or one that is none; unimplemented, and nothing is trusted
// yet, where it has something else beside them, as certificates with conditions.
Status trust_bundle(X509_STORE* store, std::string_view pem);

}  // namespace caisson::io
