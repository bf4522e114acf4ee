#include "io/authority.h"

#include <utility>

#include "base/guards.h"
#include "io/authority_state.h"

namespace caisson::io {
namespace {

// Nobody reads it: clients look at the names alone.
constexpr const char* kSubject = "Caisson";

struct FreeNames {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

// Not by a text of OpenSSL's configuration, in which a name could say more than itself.
Status add_name(X509* to, const std::string& name) {
  const std::unique_ptr<GENERAL_NAMES, FreeNames> names(sk_GENERAL_NAME_new_null());
  std::unique_ptr<GENERAL_NAME, FreeBy<GENERAL_NAME_free>> entry(GENERAL_NAME_new());
  ERR_set_mark();
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(name.c_str());
  ERR_pop_to_mark();
  bool made = names != nullptr && entry != nullptr;
  if (address != nullptr) {
    if (made) GENERAL_NAME_set0_value(entry.get(), GEN_IPADD, address);
  } else {
    ASN1_IA5STRING* const text = ASN1_IA5STRING_new();
    made = made && text != nullptr &&
           ASN1_STRING_set(text, name.data(), static_cast<int>(name.size())) == 1;
    if (made) GENERAL_NAME_set0_value(entry.get(), GEN_DNS, text);
  }
  made = made && sk_GENERAL_NAME_push(names.get(), entry.get()) > 0;
  if (made) (void)entry.release();  // the list's now
  if (!made || X509_add1_ext_i2d(to, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) != 1)
    return fail(openssl_failed("X509 name of a server"));
  return {};
}

Result<CertifiedKey> make_ca(const std::string& name) {
  const auto before =
      guard_off(Guard::kLeafNotBefore) ? std::chrono::seconds(0) : -Authority::kBefore;
  TRY_ASSIGN(CertifiedKey made, begin_pair(name, before, Authority::kValid));
  X509* const ca = made.certificate.get();
  TRY(add_extension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TRY(add_extension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign"));
  TRY(add_extension(ca, ca, NID_subject_key_identifier, "hash"));
  TRY(sign(ca, ca, made.key.get()));
  return made;
}

}  // namespace

Result<Certificate> Authority::State::make_certificate_of(const std::string& name) const {
  X509* const issuer = ca.certificate.get();
  TRY_ASSIGN(Certificate made, begin_certificate(kSubject, key.get(), -kBefore, kValid));
  X509* const leaf = made.get();
  // It is good for as long as its issuer and no longer.
  if (X509_set1_notBefore(leaf, X509_get0_notBefore(issuer)) != 1 ||
      X509_set1_notAfter(leaf, X509_get0_notAfter(issuer)) != 1)
    return fail(openssl_failed("X509 time"));
  TRY(add_extension(leaf, issuer, NID_basic_constraints, "critical,CA:FALSE"));
  TRY(add_extension(leaf, issuer, NID_key_usage, "critical,digitalSignature"));
  TRY(add_extension(leaf, issuer, NID_ext_key_usage, "serverAuth"));
  TRY(add_name(leaf, name));
  if (!guard_off(Guard::kLeafKeyIds)) {
    TRY(add_extension(leaf, issuer, NID_subject_key_identifier, "hash"));
    TRY(add_extension(leaf, issuer, NID_authority_key_identifier, "keyid:always"));
  }
  TRY(sign(leaf, issuer, ca.key.get()));
  return made;
}

Result<X509*> Authority::State::certificate_of(const std::string& name) {
  TRY(get_ready());
  const auto found = by_name.find(name);
  if (found != by_name.end()) {
    kept.splice(kept.begin(), kept, found->second);
    return kept.front().certificate.get();
  }
  TRY_ASSIGN(Certificate made, make_certificate_of(name));
  kept.push_front({.name = name, .certificate = std::move(made)});
  by_name.emplace(name, kept.begin());
  if (kept.size() > kMostKept) {
    by_name.erase(kept.back().name);
    kept.pop_back();
  }
  return kept.front().certificate.get();
}

Authority::Authority(std::unique_ptr<State> state) : state_(std::move(state)) {}
Authority::~Authority() = default;

std::size_t Authority::kept() const {
  return state_->kept.size();
}

Result<std::shared_ptr<Authority>> Authority::make(const std::string& name) {
  ERR_clear_error();
  auto state = std::make_unique<State>();
  TRY_ASSIGN(state->ca, make_ca(name));
  return complete(std::move(state));
}

Result<std::shared_ptr<Authority>> Authority::again(std::string_view secret) {
  ERR_clear_error();
  auto state = std::make_unique<State>();
  TRY_ASSIGN(state->ca, pair_in(secret));
  return complete(std::move(state));
}

Result<SecretValue> Authority::secret() const {
  TRY_ASSIGN(std::string key, pem_of(state_->ca.key));
  std::string all = certificate_;
  all.reserve(all.size() + key.size());
  all += key;
  wipe(key);
  return SecretValue::take(all);
}

Result<std::shared_ptr<Authority>> Authority::complete(std::unique_ptr<State> state) {
  std::shared_ptr<Authority> made(new Authority(std::move(state)));
  TRY_ASSIGN(made->certificate_, pem_of(made->state_->ca.certificate));
  return made;
}

Status Authority::get_ready() {
  ERR_clear_error();
  return state_->get_ready();
}

Status Authority::State::get_ready() {
  if (context != nullptr) return {};
  Key made(EVP_EC_gen("P-256"));
  SslContext server = server_context();
  if (made == nullptr || SSL_CTX_add1_chain_cert(server.get(), ca.certificate.get()) != 1)
    return fail(openssl_failed("a new authority"));
  // No ticket either: what it resumes would have been another name's.
  SSL_CTX_set_options(server.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(server.get(), 0);
  key = std::move(made);
  context = std::move(server);
  return {};
}

}  // namespace caisson::io
