#include "io/make_certificate.h"

#include <openssl/pem.h>
#include <openssl/rand.h>

#include <utility>

namespace caisson::io {
namespace {

Status set_serial(X509* certificate) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return fail(openssl_failed("RAND_bytes"));
  bytes[0] &= 0x7f;  // positive
  BIGNUM* const number = BN_bin2bn(bytes, sizeof(bytes), nullptr);
  const bool set = number != nullptr &&
                   BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  if (!set) return fail(openssl_failed("X509 serial"));
  return {};
}

Result<std::string> pem_of(const Bio& bio, bool written) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  if (!written || size <= 0) return fail(openssl_failed("PEM"));
  return std::string(bytes, static_cast<std::size_t>(size));
}

}  // namespace

Error openssl_failed(std::string_view what) {
  return Error::internal(std::string(what) + ": " + openssl_error());
}

Result<Certificate> begin_certificate(const std::string& name, EVP_PKEY* key,
                                      std::chrono::seconds from, std::chrono::seconds until) {
  Certificate made(X509_new());
  if (made == nullptr) return fail(openssl_failed("X509"));
  X509* const certificate = made.get();
  X509_set_version(certificate, X509_VERSION_3);
  TRY(set_serial(certificate));
  X509_gmtime_adj(X509_getm_notBefore(certificate), static_cast<long>(from.count()));
  X509_gmtime_adj(X509_getm_notAfter(certificate), static_cast<long>(until.count()));
  X509_set_pubkey(certificate, key);
  const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
  if (X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8, text, -1,
                                 -1, 0) != 1)
    return fail(openssl_failed("X509 name"));
  return made;
}

Result<CertifiedKey> begin_pair(const std::string& name, std::chrono::seconds from,
                                std::chrono::seconds until) {
  CertifiedKey made{Key(EVP_EC_gen("P-256")), nullptr};
  if (made.key == nullptr) return fail(openssl_failed("EC key"));
  TRY_ASSIGN(made.certificate, begin_certificate(name, made.key.get(), from, until));
  return made;
}

Status add_extension(X509* to, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
  X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  const bool added = made != nullptr && X509_add_ext(to, made, -1) == 1;
  X509_EXTENSION_free(made);
  if (!added) return fail(openssl_failed("X509 extension " + value));
  return {};
}

Status sign(X509* certificate, X509* issuer, EVP_PKEY* key) {
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) != 1 ||
      X509_sign(certificate, key, EVP_sha256()) == 0)
    return fail(openssl_failed("X509 signature"));
  return {};
}

Result<std::string> pem_of(const Key& key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  return pem_of(bio, PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                              nullptr) == 1);
}

Result<std::string> pem_of(const Certificate& certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  return pem_of(bio, PEM_write_bio_X509(bio.get(), certificate.get()) == 1);
}

Result<CertifiedKey> pair_in(std::string_view pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  CertifiedKey read;
  if (bio != nullptr) {
    read.certificate.reset(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    read.key.reset(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  }
  const bool fit = read.certificate != nullptr && read.key != nullptr &&
                   X509_check_private_key(read.certificate.get(), read.key.get()) == 1;
  ERR_clear_error();
  if (!fit) return fail(Error::invalid("no certificate with its key"));
  return read;
}

}  // namespace caisson::io
