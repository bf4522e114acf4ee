#include "api/e2b/list.h"

#include <charconv>
#include <optional>

#include "api/e2b/view.h"
#include "base/time_text.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

constexpr std::size_t kMostPairs = 64;
constexpr std::size_t kPage = 100;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// One level of %XX, and of + where it is a space.
enum class Plus : std::uint8_t { kIsSpace, kIsItself };
std::optional<std::string> unescape(std::string_view text, Plus plus) {
  std::string out;
  for (std::size_t index = 0; index < text.size(); ++index) {
    if (text[index] != '%') {
      out += text[index] == '+' && plus == Plus::kIsSpace ? ' ' : text[index];
      continue;
    }
    if (index + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[index + 1]), low = hex_digit(text[index + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    index += 2;
  }
  return out;
}

// The client escapes a word, and then the query that is made of its words.
std::optional<std::string> unescape_twice(std::string_view text) {
  const std::optional<std::string> once = unescape(text, Plus::kIsSpace);
  return once.has_value() ? unescape(*once, Plus::kIsItself) : std::nullopt;
}

Status read_states(const http::Target& target, fleet::ListQuery& query) {
  bool said = false;
  for (const auto& [name, value] : target.query) {
    if (name != "state") continue;
    if (!std::exchange(said, true)) query.running = query.paused = false;
    std::string_view rest = value;
    while (!rest.empty()) {
      const std::string_view state = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), state.size() + 1));
      if (state == "running") {
        query.running = true;
      } else if (state == "paused") {
        query.paused = true;
      } else {
        return fail(policy::wrong("state", policy::quote(state), "running, paused or both"));
      }
    }
  }
  // "state=" asks for nothing in particular.
  if (!query.running && !query.paused) query.running = query.paused = true;
  return {};
}

json::Value bodies_of(const std::vector<fleet::SandboxView>& views) {
  json::Value bodies = json::Value::array();
  for (const fleet::SandboxView& view : views) bodies.push(listed_body(view));
  return bodies;
}

// Everything that runs, newest first: this list has no pages.
io::Async<Result<Answer>> list_v1(Call& call) {
  fleet::ListQuery query;
  query.paused = false;
  CO_TRY_ASSIGN(query.metadata, parse_metadata_query(call.query("metadata").value_or("")));
  json::Value bodies = json::Value::array();
  do {
    CO_TRY_ASSIGN(const fleet::ListPage page, call.backend.fleet.list(call.team, query));
    for (const fleet::SandboxView& view : page.sandboxes) bodies.push(listed_body(view));
    query.after = page.next_token;
  } while (!query.after.empty());
  co_return Answer::json(200, bodies);
}

io::Async<Result<Answer>> list_v2(Call& call) {
  CO_TRY_ASSIGN(const fleet::ListQuery query, parse_list_query(call.exchange.target()));
  CO_TRY_ASSIGN(const fleet::ListPage page, call.backend.fleet.list(call.team, query));
  Answer answer = Answer::json(200, bodies_of(page.sandboxes));
  if (!page.next_token.empty()) answer.head.headers.add("X-Next-Token", page.next_token);
  answer.head.headers.add("X-Total-Running", std::to_string(page.running));
  co_return answer;
}

constexpr Route kRoutes[] = {
    {"GET", "/sandboxes", list_v1},
    {"GET", "/v2/sandboxes", list_v2},
};

}  // namespace

Result<std::map<std::string, std::string>> parse_metadata_query(std::string_view text) {
  std::map<std::string, std::string> metadata;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    const std::optional<std::string> key = unescape_twice(pair.substr(0, equals));
    const std::optional<std::string> value =
        unescape_twice(equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    if (!key.has_value() || !value.has_value()) {
      return fail(policy::wrong("metadata", policy::quote(pair), "KEY=VALUE, both URL-encoded"));
    }
    metadata[*key] = *value;
    if (metadata.size() > kMostPairs) {
      return fail(policy::wrong("metadata", "more than 64 pairs", "at most 64"));
    }
  }
  return metadata;
}

Result<fleet::ListQuery> parse_list_query(const http::Target& target) {
  fleet::ListQuery query;
  TRY_ASSIGN(query.metadata, parse_metadata_query(target.query_value("metadata").value_or("")));
  TRY(read_states(target, query));
  query.limit = kPage;
  if (const auto text = target.query_value("limit")) {
    const auto [end, error] =
        std::from_chars(text->data(), text->data() + text->size(), query.limit);
    if (error != std::errc() || end != text->data() + text->size() || query.limit < 1 ||
        query.limit > kPage) {
      return fail(policy::wrong("limit", policy::quote(*text), "a number from 1 to 100"));
    }
  }
  if (const auto text = target.query_value("startedAfter"); text.value_or("") != "") {
    query.started_after = parse_time(*text);
    if (!query.started_after.has_value()) {
      return fail(policy::wrong("startedAfter", policy::quote(*text),
                                "a time such as 2026-01-02T03:04:05Z"));
    }
  }
  query.template_name = target.query_value("template").value_or("");
  const std::string_view order = target.query_value("order").value_or("desc");
  if (order != "asc" && order != "desc") {
    return fail(policy::wrong("order", policy::quote(order), "asc or desc"));
  }
  query.ascending = order == "asc";
  query.after = target.query_value("nextToken").value_or("");
  return query;
}

std::span<const Route> list_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
