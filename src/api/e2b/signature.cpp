#include "api/e2b/signature.h"

#include <charconv>

#include "base/encoding.h"
#include "base/secret.h"

namespace caisson::api::e2b {

namespace {

Status refuse(const char* why) {
  return fail(Error(Code::kUnauthenticated, why));
}

}  // namespace

FileSigner::FileSigner(std::string_view path, FileAccess access, std::string_view user,
                       std::optional<std::int64_t> expires) {
  before_.update(path);
  before_.update(access == FileAccess::kRead ? ":read:" : ":write:");
  before_.update(user);
  before_.update(":");
  if (expires) after_ = ":" + std::to_string(*expires);
}

std::string FileSigner::sign(std::string_view token) const {
  Sha256 hash = before_;
  hash.update(token);
  hash.update(after_);
  std::string text = "v1_" + base64_encode(hash.finish_bytes());
  while (text.ends_with('=')) text.pop_back();
  return text;
}

std::string sign_file(std::string_view path, FileAccess access, std::string_view user,
                      std::string_view token, std::optional<std::int64_t> expires) {
  return FileSigner(path, access, user, expires).sign(token);
}

Result<std::optional<std::int64_t>> parse_expiration(std::optional<std::string_view> text) {
  if (!text) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) {
    return fail(Error::invalid("signature_expiration is no number of Unix seconds"));
  }
  return number;
}

Status check_file_claim(const FileClaim& claim, FileAccess access, std::string_view token,
                        std::int64_t now) {
  if (token.empty()) return {};
  if (claim.token_header) {
    if (same_secret(*claim.token_header, token)) return {};
    return refuse("access token present in header but does not match");
  }
  if (!claim.signature || claim.signature->empty())
    return refuse("missing signature query parameter");
  TRY_ASSIGN(const std::optional<std::int64_t> expires, parse_expiration(claim.expires));
  const std::string right = sign_file(claim.path, access, claim.user, token, expires);
  if (!same_secret(*claim.signature, right)) return refuse("invalid signature");
  if (expires && *expires < now) return refuse("signature is already expired");
  return {};
}

}  // namespace caisson::api::e2b
