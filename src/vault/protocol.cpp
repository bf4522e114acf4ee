#include "vault/protocol.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace caisson::vault {
namespace {

constexpr std::string_view kMagic = "CSNVLT01";
constexpr std::size_t kLengthBytes = 4;
constexpr char kDone = 0, kError = 1;
constexpr std::size_t kMostSentence = 4096;

// What a value is.
enum class Kind : std::uint8_t { kGone = 0, kGiven = 1, kKept = 2 };

template <typename Bytes>
void put_number(Bytes& bytes, std::uint32_t number) {
  for (std::size_t at = 0; at < kLengthBytes; ++at)
    bytes.push_back(static_cast<char>(number >> (8 * at) & 0xff));
}

template <typename Bytes>
void put(Bytes& bytes, std::string_view text) {
  put_number(bytes, static_cast<std::uint32_t>(text.size()));
  bytes.insert(bytes.end(), text.begin(), text.end());
}

// Takes fields off the front; what is not there is told once, at the end.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  std::uint32_t number() {
    std::uint32_t number = 0;
    if (rest_.size() < kLengthBytes) return cut();
    for (std::size_t at = 0; at < kLengthBytes; ++at)
      number |= static_cast<std::uint32_t>(static_cast<unsigned char>(rest_[at])) << (8 * at);
    rest_.remove_prefix(kLengthBytes);
    return number;
  }
  std::string_view text() {
    const std::uint32_t size = number();
    if (size > rest_.size()) {
      cut();
      return {};
    }
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  std::uint8_t byte() {
    if (rest_.empty()) return static_cast<std::uint8_t>(cut());
    const auto byte = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  bool cut_off() const { return cut_; }
  bool at_end() const { return rest_.empty(); }
  bool whole() const { return !cut_ && rest_.empty(); }

 private:
  std::uint32_t cut() {
    cut_ = true;
    rest_ = {};
    return 0;
  }
  std::string_view rest_;
  bool cut_ = false;
};

Error wrong(std::string_view what) {
  return Error::invalid("a request to caisson-vault: " + std::string(what));
}

Kind kind_of(const GivenSecret& secret) {
  if (!secret.kept.empty()) return Kind::kKept;
  return secret.value != nullptr ? Kind::kGiven : Kind::kGone;
}

// What is sealed is never empty; of a value that is, the engine says whose it is.
Result<GivenSecret> take_value(Fields& fields) {
  GivenSecret secret{.name = std::string(fields.text())};
  const auto kind = static_cast<Kind>(fields.byte());
  const std::string_view id = fields.text(), bytes = fields.text();
  if (fields.cut_off()) return fail(wrong("it is cut off"));
  const bool fits = kind == Kind::kGone    ? id.empty() && bytes.empty()
                    : kind == Kind::kGiven ? id.empty()
                    : kind == Kind::kKept  ? !bytes.empty()
                                           : false;
  if (!fits) return fail(wrong("a value is of no kind that there is"));
  if (kind == Kind::kGiven) secret.value = std::make_shared<const SecretValue>(bytes);
  if (kind == Kind::kKept) {
    secret.kept_id = id;
    secret.kept = bytes;
  }
  return secret;
}

Status take_seal(Fields& fields, Request& request) {
  request.rules = fields.text();
  request.before = fields.text();
  const std::uint32_t count = fields.number();
  if (count > kMostValues) return fail(wrong("it has too many values"));
  for (std::uint32_t at = 0; at < count; ++at) {
    TRY_ASSIGN(GivenSecret secret, take_value(fields));
    request.values.push_back(std::move(secret));
  }
  return {};
}

}  // namespace

SecretBytes encode(const Request& request) {
  SecretBytes bytes(kMagic.begin(), kMagic.end());
  bytes.push_back(static_cast<char>(request.operation));
  switch (request.operation) {
    case Operation::kSeal:
      put(bytes, request.rules);
      put(bytes, request.before);
      put_number(bytes, static_cast<std::uint32_t>(request.values.size()));
      for (const GivenSecret& secret : request.values) {
        const Kind kind = kind_of(secret);
        put(bytes, secret.name);
        bytes.push_back(static_cast<char>(kind));
        put(bytes, kind == Kind::kKept ? std::string_view(secret.kept_id) : "");
        put(bytes, kind == Kind::kKept    ? std::string_view(secret.kept)
                   : kind == Kind::kGiven ? secret.value->bytes()
                                          : std::string_view());
      }
      break;
    case Operation::kKeep:
      put(bytes, request.id);
      break;
    case Operation::kMakeKeys:
      break;
    case Operation::kSealForGateway:
      put(bytes, request.id);
      put(bytes, request.sealed);
      break;
  }
  return bytes;
}

Result<Request> decode_request(std::string_view bytes) {
  if (bytes.size() > kMostRequest) return fail(wrong("it is too long"));
  if (!bytes.starts_with(kMagic)) return fail(wrong("it is of another version"));
  Fields fields(bytes.substr(kMagic.size()));
  Request request{.operation = static_cast<Operation>(fields.byte())};
  switch (request.operation) {
    case Operation::kSeal:
      TRY(take_seal(fields, request));
      break;
    case Operation::kKeep:
      request.id = fields.text();
      break;
    case Operation::kMakeKeys:
      break;
    case Operation::kSealForGateway:
      request.id = fields.text();
      request.sealed = fields.text();
      break;
    default:
      return fail(wrong("there is no such operation"));
  }
  if (!fields.whole()) return fail(wrong("it is cut off, or something stands behind it"));
  return request;
}

std::string encode_done(const std::vector<std::string>& texts) {
  std::string bytes(1, kDone);
  for (const std::string& text : texts) put(bytes, text);
  return bytes;
}

std::string encode_error(const Error& error) {
  std::string bytes(1, kError);
  bytes += static_cast<char>(error.code());
  return bytes + error.message().substr(0, kMostSentence);
}

Result<std::vector<std::string>> decode_answer(std::string_view bytes) {
  const auto damaged = [] {
    return fail(Error(Code::kDataLoss, "an answer of caisson-vault that is none"));
  };
  if (bytes.empty() || bytes.size() > kMostAnswer) return damaged();
  if (bytes[0] == kError) {
    const int code = bytes.size() < 2 ? 0 : bytes[1];
    if (code < static_cast<int>(Code::kCancelled) ||
        code > static_cast<int>(Code::kUnauthenticated))
      return damaged();
    return fail(Error(static_cast<Code>(code), std::string(bytes.substr(2, kMostSentence))));
  }
  if (bytes[0] != kDone) return damaged();
  Fields fields(bytes.substr(1));
  std::vector<std::string> texts;
  while (!fields.at_end()) texts.emplace_back(fields.text());
  if (!fields.whole()) return damaged();
  return texts;
}

}  // namespace caisson::vault
