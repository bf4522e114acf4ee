#include "io/trust_bundle.h"

#include <openssl/pem.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace caisson::io {
namespace {

constexpr unsigned char kInteger = 0x02, kSequence = 0x30, kVersion = 0xa0;

struct Element {
  unsigned char tag = 0;
  std::string_view content;
  std::string_view whole;
};

// The next element of DER, with `bytes` behind it.
std::optional<Element> next_element(std::string_view& bytes) {
  if (bytes.size() < 2) return std::nullopt;
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  std::size_t size = at(1), head = 2;
  if (size >= 0x80) {
    const std::size_t digits = size & 0x7f;
    if (digits == 0 || digits > 3 || bytes.size() < head + digits) return std::nullopt;
    for (size = 0; digits + 2 > head; ++head) size = size << 8 | at(head);
  }
  if (bytes.size() - head < size) return std::nullopt;
  const Element found{at(0), bytes.substr(head, size), bytes.substr(0, head + size)};
  bytes.remove_prefix(head + size);
  return found;
}

using Name = std::unique_ptr<X509_NAME, FreeBy<X509_NAME_free>>;

// One certificate that is not OpenSSL's yet.
struct Waiting {
  std::string bytes;
  Name subject;
};

// Made to be asked; belongs to a store.
class Bundle {
 public:
  explicit Bundle(std::vector<Waiting> certificates) : waiting_(std::move(certificates)) {}

  // Puts those of that subject into the store. Those that OpenSSL does not understand are trusted
  // by nobody.
  void add_to(X509_STORE* store, const X509_NAME* subject) {
    if (!named_) name_all();
    std::erase_if(waiting_, [&](const Waiting& one) {
      if (one.subject == nullptr) return true;
      if (X509_NAME_cmp(one.subject.get(), subject) != 0) return false;
      const auto* bytes = reinterpret_cast<const unsigned char*>(one.bytes.data());
      const Certificate made(d2i_X509(nullptr, &bytes, static_cast<long>(one.bytes.size())));
      if (made != nullptr) X509_STORE_add_cert(store, made.get());
      return true;
    });
  }

 private:
  // Who never verifies need not have them.
  void name_all() {
    named_ = true;
    for (Waiting& one : waiting_) {
      const std::string_view subject = *subject_of(one.bytes);
      const auto* bytes = reinterpret_cast<const unsigned char*>(subject.data());
      one.subject.reset(d2i_X509_NAME(nullptr, &bytes, static_cast<long>(subject.size())));
    }
  }

  std::vector<Waiting> waiting_;
  bool named_ = false;
};

// ---- as OpenSSL asks for it ---------------------------------------------------------------------

void free_bundle(X509_LOOKUP* lookup) {
  delete static_cast<Bundle*>(X509_LOOKUP_get_method_data(lookup));
}

// Is asked where the store itself has none of that subject.
int find_by_subject(X509_LOOKUP* lookup, X509_LOOKUP_TYPE type, const X509_NAME* subject,
                    X509_OBJECT* found) {
  auto* const bundle = static_cast<Bundle*>(X509_LOOKUP_get_method_data(lookup));
  if (type != X509_LU_X509 || bundle == nullptr) return 0;
  X509_STORE* const store = X509_LOOKUP_get_store(lookup);
  ERR_set_mark();
  bundle->add_to(store, subject);
  ERR_pop_to_mark();
  X509_STORE_lock(store);
  X509_OBJECT* const kept =
      X509_OBJECT_retrieve_by_subject(X509_STORE_get0_objects(store), type, subject);
  X509* const certificate = kept == nullptr ? nullptr : X509_OBJECT_get0_X509(kept);
  // What is given back is borrowed of the store.
  const bool set = certificate != nullptr && X509_OBJECT_set1_X509(found, certificate) == 1;
  if (set) X509_free(certificate);
  X509_STORE_unlock(store);
  return set ? 1 : 0;
}

// One for all, since a store may outlive whoever made it.
X509_LOOKUP_METHOD* method() {
  static X509_LOOKUP_METHOD* const made = [] {
    X509_LOOKUP_METHOD* const fresh = X509_LOOKUP_meth_new("a bundle that is read as it is needed");
    VERIFY(fresh != nullptr);
    X509_LOOKUP_meth_set_free(fresh, free_bundle);
    X509_LOOKUP_meth_set_get_by_subject(fresh, find_by_subject);
    return fresh;
  }();
  return made;
}

// What an armour holds.
struct Armoured {
  Armoured() = default;
  ~Armoured() {
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(data);
  }
  Armoured(const Armoured&) = delete;
  Armoured& operator=(const Armoured&) = delete;

  char *name = nullptr, *header = nullptr;
  unsigned char* data = nullptr;
  long size = 0;
};

Result<std::vector<Waiting>> certificates_in(std::string_view pem) {
  const Bio text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  VERIFY(text != nullptr);
  std::vector<Waiting> certificates;
  for (;;) {
    Armoured next;
    ERR_clear_error();
    if (PEM_read_bio(text.get(), &next.name, &next.header, &next.data, &next.size) != 1) {
      const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
      if (!at_end) return fail(Error::invalid(openssl_error()));
      ERR_clear_error();
      break;
    }
    const std::string_view name = next.name;
    const std::string number = std::to_string(certificates.size() + 1);
    // Others have conditions under which they are trusted, which would be lost here.
    if (name != PEM_STRING_X509 && name != PEM_STRING_X509_OLD)
      return fail(Error(Code::kUnimplemented, "it has a " + std::string(name)));
    std::string bytes(reinterpret_cast<const char*>(next.data),
                      static_cast<std::size_t>(next.size));
    if (!subject_of(bytes)) return fail(Error::invalid("certificate " + number + " is none"));
    certificates.push_back({.bytes = std::move(bytes), .subject = nullptr});
  }
  if (certificates.empty()) return fail(Error::invalid("there is no certificate"));
  return certificates;
}

}  // namespace

std::optional<std::string_view> subject_of(std::string_view certificate) {
  const auto outer = next_element(certificate);
  if (!outer || outer->tag != kSequence || !certificate.empty()) return std::nullopt;
  std::string_view rest = outer->content;
  const auto signed_part = next_element(rest);
  if (!signed_part || signed_part->tag != kSequence) return std::nullopt;
  rest = signed_part->content;
  auto element = next_element(rest);
  if (element && element->tag == kVersion) element = next_element(rest);
  if (!element || element->tag != kInteger) return std::nullopt;  // the serial number
  // Signature, issuer, validity, subject.
  for (int n = 0; n < 4; ++n) {
    element = next_element(rest);
    if (!element || element->tag != kSequence) return std::nullopt;
  }
  return element->whole;
}

Status trust_bundle(X509_STORE* store, std::string_view pem) {
  TRY_ASSIGN(std::vector<Waiting> certificates, certificates_in(pem));
  X509_LOOKUP* const lookup = X509_STORE_add_lookup(store, method());
  if (lookup == nullptr) return fail(Error::internal("X509 lookup: " + openssl_error()));
  X509_LOOKUP_set_method_data(lookup, new Bundle(std::move(certificates)));
  return {};
}

}  // namespace caisson::io
