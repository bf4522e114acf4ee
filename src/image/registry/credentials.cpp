#include "image/registry/credentials.h"

#include <algorithm>

#include "base/encoding.h"
#include "base/json.h"
#include "image/json_fields.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

// "https://registry.example.com/v1/" counts as its host, and so does "registry.example.com/path",
// as with Docker, which compares host names alone: a login is for a whole registry.
std::string host_of(std::string_view key) {
  if (const auto scheme = key.find("://"); scheme != std::string_view::npos) {
    key.remove_prefix(scheme + 3);
  }
  return std::string(key.substr(0, key.find('/')));
}

bool is_helper_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

bool fits_header(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

// Of a field that holds a secret: says that it is wrong, never what it holds.
Error wrong_secret(const Field& field, std::string_view allowed) {
  return Error::invalid(field.path + ": allowed is " + std::string(allowed));
}

Result<std::string> secret_text(const Field& field) {
  if (!field.present()) return std::string();
  const std::string* text = field.value->as_string();
  if (text == nullptr || !fits_header(*text))
    return fail(wrong_secret(field, "a text of one line"));
  return *text;
}

Result<Credentials> entry_of(const Field& field) {
  Credentials credentials;
  TRY_ASSIGN(credentials.identity_token, secret_text(field.at("identitytoken")));
  TRY_ASSIGN(credentials.user, secret_text(field.at("username")));
  TRY_ASSIGN(credentials.secret, secret_text(field.at("password")));
  TRY_ASSIGN(const std::string encoded, secret_text(field.at("auth")));
  if (encoded.empty()) return credentials;
  const auto decoded = base64_decode(encoded);
  const std::size_t colon = decoded ? decoded->find(':') : std::string::npos;
  if (colon == std::string::npos || !fits_header(*decoded)) {
    return fail(wrong_secret(field.at("auth"), "base64 of USER:PASSWORD"));
  }
  credentials.user = decoded->substr(0, colon);
  credentials.secret = decoded->substr(colon + 1);
  return credentials;
}

Result<std::string> helper_name(const Field& field) {
  TRY_ASSIGN(std::string name, text_of(field));
  if (!name.empty() && !is_helper_name(name)) {
    return fail(wrong_field(field, "the NAME of a program docker-credential-NAME"));
  }
  return name;
}

}  // namespace

Result<CredentialFile> parse_credential_file(std::string_view text) {
  CredentialFile file;
  TRY_ASSIGN(json::Value root, parse_object(text, "credentials", kMaxCredentialFile));
  const Field top = {&root, ""};
  TRY_ASSIGN(const std::vector<std::string> hosts, keys_of(top.at("auths")));
  for (const std::string& host : hosts) {
    TRY_ASSIGN(Credentials entry, entry_of(top.at("auths").at(host)));
    file.entries.emplace(host_of(host), std::move(entry));
  }
  TRY_ASSIGN(const std::vector<std::string> helped, keys_of(top.at("credHelpers")));
  for (const std::string& host : helped) {
    TRY_ASSIGN(std::string name, helper_name(top.at("credHelpers").at(host)));
    file.helpers.emplace(host_of(host), std::move(name));
  }
  TRY_ASSIGN(file.store, helper_name(top.at("credsStore")));
  return file;
}

Result<Credentials> parse_helper_answer(std::string_view text) {
  TRY_ASSIGN(json::Value root, parse_object(text, "answer", kMaxHelperAnswer));
  const Field top = {&root, ""};
  Credentials credentials;
  TRY_ASSIGN(credentials.user, secret_text(top.at("Username")));
  TRY_ASSIGN(credentials.secret, secret_text(top.at("Secret")));
  if (credentials.user == "<token>") {
    return Credentials{.user = {}, .secret = {}, .identity_token = credentials.secret};
  }
  return credentials;
}

}  // namespace caisson::image
