// Certificates of version 3 with P-256 keys, put together piece by piece: what the authorities of
// this folder (dev_ca.h, authority.h) have in common. Only their .cpp files include this.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/error.h"
#include "io/openssl.h"

namespace caisson::io {

struct CertifiedKey {
  Key key;
  Certificate certificate;
};

// With OpenSSL's own reason, which is taken off its queue.
Error openssl_failed(std::string_view what);

// Not signed yet: a random serial number, the subject CN=`name` (64 bytes at most) and these times
// from now, before or after.
Result<Certificate> begin_certificate(const std::string& name, EVP_PKEY* key,
                                      std::chrono::seconds from, std::chrono::seconds until);
// Of a key that is made for it.
Result<CertifiedKey> begin_pair(const std::string& name, std::chrono::seconds from,
                                std::chrono::seconds until);
// `value` is in the form of OpenSSL's configuration: never a text of somebody else's.
Status add_extension(X509* to, X509* issuer, int kind, const std::string& value);
Status sign(X509* certificate, X509* issuer, EVP_PKEY* key);

Result<std::string> pem_of(const Key& key);
Result<std::string> pem_of(const Certificate& certificate);
// A certificate and its key, one behind the other, as PEM. Error: invalid_argument.
Result<CertifiedKey> pair_in(std::string_view pem);

}  // namespace caisson::io
