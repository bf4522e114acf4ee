#include "io/dev_ca.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "base/sys.h"
#include "io/make_certificate.h"

namespace caisson::io {
namespace {

constexpr long kDay = 24L * 60 * 60;
constexpr long kCaDays = 3650;
// More than 825 days some clients refuse.
constexpr long kLeafDays = 397;
constexpr long kRenewBeforeDays = 30;
// With what is before it, a name in a certificate: 64 characters.
constexpr std::size_t kMostDomain = 50;
constexpr std::size_t kMostPem = 64 * 1024;

// Names as in certificates: labels of letters, digits and hyphens.
Status check_domain(const std::string& domain) {
  std::size_t label = 0;
  bool good = !domain.empty() && domain.size() <= kMostDomain;
  for (const char c : domain) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (c == '.')
      good = good && std::exchange(label, 0) > 0;
    else
      good = good && (letter || (c == '-' && label > 0)) && ++label <= 63;
  }
  if (good && label > 0) return {};
  return fail(
      Error::invalid("'" + domain +
                     "' is no domain: expected labels of a-z, 0-9 and '-' with dots between "
                     "them"));
}

// ---- making
// ---------------------------------------------------------------------------------------

std::string ca_name(const std::string& domain) {
  return "Caisson CA of " + domain;
}

// Clocks of clients may be a little behind.
Result<CertifiedKey> begin_pair(const std::string& name, long days) {
  return io::begin_pair(name, std::chrono::seconds(-kDay), std::chrono::seconds(days * kDay));
}

Result<CertifiedKey> make_ca(const std::string& domain) {
  TRY_ASSIGN(CertifiedKey made, begin_pair(ca_name(domain), kCaDays));
  X509* const ca = made.certificate.get();
  TRY(add_extension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TRY(add_extension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign"));
  TRY(add_extension(ca, ca, NID_name_constraints, "critical,permitted;DNS:" + domain));
  TRY(add_extension(ca, ca, NID_subject_key_identifier, "hash"));
  TRY(sign(ca, ca, made.key.get()));
  return made;
}

Result<CertifiedKey> make_leaf(const CertifiedKey& ca, const std::string& domain) {
  TRY_ASSIGN(CertifiedKey made, begin_pair(domain, kLeafDays));
  X509* const leaf = made.certificate.get();
  X509* const issuer = ca.certificate.get();
  TRY(add_extension(leaf, issuer, NID_basic_constraints, "critical,CA:FALSE"));
  TRY(add_extension(leaf, issuer, NID_key_usage, "critical,digitalSignature"));
  TRY(add_extension(leaf, issuer, NID_ext_key_usage, "serverAuth"));
  TRY(add_extension(leaf, issuer, NID_subject_alt_name, "DNS:" + domain + ",DNS:*." + domain));
  TRY(add_extension(leaf, issuer, NID_subject_key_identifier, "hash"));
  TRY(add_extension(leaf, issuer, NID_authority_key_identifier, "keyid:always"));
  TRY(sign(leaf, issuer, ca.key.get()));
  return made;
}

// ---- files
// ----------------------------------------------------------------------------------------

// In place of the old file, whole or not at all.
Status replace_file(const std::string& path, const std::string& bytes, mode_t mode) {
  const std::string temporary = path + ".new";
  ::unlink(temporary.c_str());
  const Fd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.valid()) return fail_errno("open " + temporary);
  if (::fchmod(file.get(), mode) != 0) return fail_errno("fchmod " + temporary);
  if (::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return fail_errno("write " + temporary);
  if (::fsync(file.get()) != 0) return fail_errno("fsync " + temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail_errno("rename " + temporary);
  return {};
}

struct Files {
  std::string certificate, key;
};

// The key first: a certificate that is there has its key.
Status store(const Files& files, const CertifiedKey& pair) {
  TRY_ASSIGN(const std::string key, pem_of(pair.key));
  TRY_ASSIGN(const std::string certificate, pem_of(pair.certificate));
  TRY(replace_file(files.key, key, 0600));
  return replace_file(files.certificate, certificate, 0644);
}

// nullopt: missing, damaged, or soon at its end.
std::optional<CertifiedKey> load(const Files& files) {
  const auto certificate = sys::read_file(AT_FDCWD, files.certificate, kMostPem);
  const auto key = sys::read_file(AT_FDCWD, files.key, kMostPem);
  if (!certificate.has_value() || !key.has_value()) return std::nullopt;
  const auto reader = [](const std::string& text) {
    return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  };
  CertifiedKey found{
      Key(PEM_read_bio_PrivateKey(reader(*key).get(), nullptr, nullptr, nullptr)),
      Certificate(PEM_read_bio_X509(reader(*certificate).get(), nullptr, nullptr, nullptr))};
  const bool whole = found.key != nullptr && found.certificate != nullptr &&
                     X509_check_private_key(found.certificate.get(), found.key.get()) == 1;
  ERR_clear_error();
  if (!whole) return std::nullopt;
  std::time_t renew_at = std::time(nullptr) + kRenewBeforeDays * kDay;
  if (X509_cmp_time(X509_get0_notAfter(found.certificate.get()), &renew_at) <= 0)
    return std::nullopt;
  return found;
}

bool is_ca_of(const CertifiedKey& pair, const std::string& domain) {
  char name[128] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(pair.certificate.get()), NID_commonName, name,
                            sizeof(name));
  return name == ca_name(domain);
}

bool is_leaf_of(const CertifiedKey& leaf, const CertifiedKey& ca, const std::string& domain) {
  const std::string below = "x." + domain;
  X509* const certificate = leaf.certificate.get();
  const bool good = X509_verify(certificate, ca.key.get()) == 1 &&
                    X509_check_host(certificate, domain.c_str(), domain.size(), 0, nullptr) == 1 &&
                    X509_check_host(certificate, below.c_str(), below.size(), 0, nullptr) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace

Result<DevCa> make_dev_ca(const std::string& directory, const std::string& domain) {
  TRY(check_domain(domain));
  ERR_clear_error();
  const Files ca_files{directory + "/ca.pem", directory + "/ca-key.pem"};
  const Files leaf_files{directory + "/server.pem", directory + "/server-key.pem"};

  std::optional<CertifiedKey> ca = load(ca_files);
  if (!ca.has_value() || !is_ca_of(*ca, domain)) {
    TRY_ASSIGN(ca, make_ca(domain));
    TRY(store(ca_files, *ca));
  }
  const std::optional<CertifiedKey> leaf = load(leaf_files);
  if (!leaf.has_value() || !is_leaf_of(*leaf, *ca, domain)) {
    TRY_ASSIGN(const CertifiedKey made, make_leaf(*ca, domain));
    TRY(store(leaf_files, made));
  }
  return DevCa{ca_files.certificate, leaf_files.certificate, leaf_files.key};
}

}  // namespace caisson::io
