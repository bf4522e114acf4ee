// libraries: image policy base
// parser: src/image/reference.cpp src/image/registry/names.cpp src/image/registry/url.cpp
// parser: src/image/registry/challenge.cpp src/image/registry/credentials.cpp
// parser: src/image/registry/fetch_protocol.cpp src/image/registry/answer.cpp
// parser: src/policy/settings.cpp
//
// Names of images, and what a registry says in headers and URLs: references and the files that they
// are kept in, challenges, where a redirect leads, credentials, the fetcher's messages, settings.
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "image/reference.h"
#include "image/registry/answer.h"
#include "image/registry/challenge.h"
#include "image/registry/credentials.h"
#include "image/registry/fetch_protocol.h"
#include "image/registry/names.h"
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
  require(reference->name.ends_with(reference->repository()));
  require(reference->text().ends_with(reference->selector()));
}

// What a short name means by the settings, and where it is looked for.
void try_names(std::string_view text) {
  const policy::Settings settings{.default_registry = "registry.example.com/library",
                                  .insecure_registries = {},
                                  .images = {{"short:1", "base"}, {"bad", "A"}}};
  const auto local = local_name(text, settings);
  require(local.has_value() ? *local == text || *local == "base:latest"
                            : !local.error().message().empty());
  const Error hint = with_pull_hint(Error::not_found("no image"), text);
  require(hint.message().starts_with("no image"));
  const auto reference = parse_reference(text);
  if (!reference.has_value()) return;
  const auto name = registry_name(*reference, settings);
  require(name.has_value() && is_registry_name(name->registry) && !name->repository.empty());
  require(registry_name(*reference, {}).has_value() == !reference->registry().empty());
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
      for (const auto& [name, value] : message->head->headers)
        require(!message->head->header(name).empty() || value.empty());
      require(message->head->header("nobody's").empty());
    } else {
      const auto again = decode_fetch_message(message->result->encode());
      require(again.has_value() && again->result->end == message->result->end);
      require(again->result->text == printable(message->result->text));
    }
  }
  if (const auto request = decode_request(text); request.has_value() && !request->url.empty()) {
    require(decode_request(request->encode()).has_value());
    require(decode_request(encode_cancel(request->id))->id == request->id);
  }
}

void try_settings(std::string_view text) {
  if (const auto settings = policy::parse_settings(text); settings.has_value()) {
    // What a file may say, the environment may say as well.
    const auto same = policy::overridden({}, settings->default_registry, "");
    require(same.has_value() && same->default_registry == settings->default_registry);
  }
  if (const auto settings = policy::overridden({}, text, ""); settings.has_value())
    require(settings->default_registry == text);
  if (const auto settings = policy::overridden({}, "", text); settings.has_value())
    require(text.empty() || text == "erofs" || text == "directory");
}

}  // namespace
}  // namespace caisson::image

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace caisson::image;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_reference(text);
  try_names(text);
  try_file_name(text);
  try_url(text);
  try_challenges(text);
  try_token(text);
  try_credentials(text);
  try_messages(text);
  if (!parse_helper_answer(text).has_value()) errno = 0;
  if (const auto wait = parse_retry_after(text, 0); wait.has_value())
    require(wait->count() >= 0 && *wait <= kMostRetryAfter);
  parse_range_start(text);
  error_messages(text);
  try_settings(text);
  return 0;
}
