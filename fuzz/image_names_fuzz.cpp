// libraries: image policy base
// Names of images, and what a registry says in headers and URLs: references and the files that they
// are kept in, challenges, where a redirect leads, credentials, the fetcher's messages, settings.
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "image/reference.h"
#include "image/registry/challenge.h"
#include "image/registry/credentials.h"
#include "image/registry/fetch_protocol.h"
#include "image/registry/session.h"
#include "image/registry/url.h"
#include "policy/settings.h"

namespace caisson::image {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void try_reference(std::string_view text) {
  const auto reference = parse_reference(text);
  if (!reference.has_value()) return;
  require(parse_reference(reference->text()).value() == *reference);
  const std::string file = reference->file_name();
  require(file.size() <= kMaxReferenceFileName && file.find('/') == std::string::npos);
  require(file != "." && file != "..");
  require(parse_reference_file_name(file).value() == *reference);
  if (!reference->registry().empty()) require(is_registry_name(reference->registry()));
}

void try_file_name(std::string_view text) {
  const auto reference = parse_reference_file_name(text);
  if (reference.has_value()) require(reference->file_name() == text);
}

void try_url(std::string_view text) {
  const Url base = parse_url("https://registry.example.com/v2/a/blobs/b").value();
  for (const auto& url : {parse_url(text), resolve_url(base, text)}) {
    if (!url.has_value()) continue;
    require(parse_url(url->text()).value() == *url);
    require(url->shown().find('?') == std::string::npos);
    require(url->text().find_first_of("\r\n ") == std::string::npos);
  }
}

void try_challenges(std::string_view text) {
  const auto challenges = parse_challenges(text);
  if (!challenges.has_value()) return;
  const Url registry = parse_url("https://registry.example.com/v2/").value();
  for (const Challenge& challenge : *challenges) {
    require(!challenge.scheme.empty());
    const auto url = token_url(challenge, registry, "team/tool");
    if (!url.has_value()) continue;
    require(url->secure && !is_loopback_host(url->host));
    require(parse_url(url->text()).has_value());
  }
}

void try_token(std::string_view text) {
  const auto token = parse_token(text);
  if (token.has_value()) require(!token->empty() && token->find_first_of("\r\n ") == token->npos);
}

void try_credentials(std::string_view text) {
  const auto file = parse_credential_file(text);
  if (!file.has_value()) return;
  for (const auto& [host, entry] : file->entries) {
    require((entry.user + entry.secret).find_first_of("\r\n") == std::string::npos);
  }
}

void try_messages(std::string_view text) {
  if (const auto message = decode_fetch_message(text); message.has_value()) {
    require(message->head.has_value() != message->result.has_value());
    if (message->head) {
      require(decode_fetch_message(message->head->encode())->head->headers ==
              message->head->headers);
    }
  }
  if (const auto request = decode_request(text); request.has_value() && !request->url.empty()) {
    require(decode_request(request->encode()).has_value());
  }
}

}  // namespace
}  // namespace caisson::image

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace caisson::image;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_reference(text);
  try_file_name(text);
  try_url(text);
  try_challenges(text);
  try_token(text);
  try_credentials(text);
  try_messages(text);
  if (!parse_helper_answer(text).has_value()) errno = 0;
  parse_retry_after(text, 0);
  parse_range_start(text);
  error_messages(text);
  if (!caisson::policy::parse_settings(text).has_value()) errno = 0;
  return 0;
}
