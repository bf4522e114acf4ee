// OpenSSL's objects as owned values, and its errors as text. Only .cpp files of this folder include
// this (some by another header of it); no other file of ours sees OpenSSL.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <string>

#include "base/error.h"

namespace caisson::io {

template <auto free_it>
struct FreeBy {
  template <typename T>
  void operator()(T* thing) const {
    free_it(thing);
  }
};
using SslContext = std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>>;
using Ssl = std::unique_ptr<SSL, FreeBy<SSL_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, FreeBy<X509_free>>;
using Bio = std::unique_ptr<BIO, FreeBy<BIO_free_all>>;

// The oldest error of this thread, and none is left.
inline std::string openssl_error() {
  const unsigned long number = ERR_get_error();
  ERR_clear_error();
  if (number == 0) return "no reason given";
  std::array<char, 256> text;
  ERR_error_string_n(number, text.data(), text.size());
  return text.data();
}

}  // namespace caisson::io
