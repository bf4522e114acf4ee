#include "fleet/page_token.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <compare>
#include <utility>

#include "base/encoding.h"

namespace caisson::fleet {
namespace {

constexpr std::string_view kBetween = "__";
constexpr std::string_view kAscending = "__asc";
constexpr std::size_t kLongestToken = 200;

struct Place {
  std::int64_t start_ns = 0;
  std::string id;
  auto operator<=>(const Place&) const = default;
};

std::int64_t nanoseconds(WallClock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

Place place_of(const SandboxView& view) {
  return {nanoseconds(view.started), view.id};
}

std::string token_of(const Place& place, const ListQuery& query) {
  return base64url_encode(std::to_string(place.start_ns) + std::string(kBetween) + place.id +
                          std::string(query.ascending ? kAscending : ""));
}

std::optional<Place> parse_token(std::string_view text, const ListQuery& query) {
  if (text.size() > kLongestToken) return std::nullopt;
  const auto decoded = base64url_decode(text);
  if (!decoded.has_value()) return std::nullopt;
  std::string_view rest = *decoded;
  if (rest.ends_with(kAscending) != query.ascending) return std::nullopt;
  if (query.ascending) rest.remove_suffix(kAscending.size());
  Place place;
  const auto number = std::from_chars(rest.data(), rest.data() + rest.size(), place.start_ns);
  if (number.ec != std::errc()) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(number.ptr - rest.data()));
  if (!rest.starts_with(kBetween)) return std::nullopt;
  rest.remove_prefix(kBetween.size());
  const bool fits = !rest.empty() && std::ranges::all_of(rest, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
  if (!fits) return std::nullopt;
  place.id = rest;
  return place;
}

}  // namespace

bool matches(const SandboxView& view, const ListQuery& query) {
  if (view.state == State::kRunning ? !query.running : !query.paused) return false;
  if (query.started_after.has_value() && view.started < *query.started_after) return false;
  if (!query.template_name.empty() && query.template_name != view.template_id &&
      query.template_name != view.alias)
    return false;
  return std::ranges::all_of(query.metadata, [&](const auto& wanted) {
    const auto found = view.metadata.find(wanted.first);
    return found != view.metadata.end() && found->second == wanted.second;
  });
}

Result<ListPage> page_of(std::vector<SandboxView> views, const ListQuery& query) {
  const auto before = [&](const Place& a, const Place& b) {
    return query.ascending ? a < b : b < a;
  };
  std::ranges::sort(views, before, place_of);
  if (!query.after.empty()) {
    const auto place = parse_token(query.after, query);
    if (!place.has_value()) return fail(Error::invalid("nextToken: found no token of such a list"));
    std::erase_if(views, [&](const SandboxView& view) { return !before(*place, place_of(view)); });
  }
  ListPage page;
  if (views.size() > query.limit) {
    views.resize(query.limit);
    page.next_token = token_of(place_of(views.back()), query);
  }
  page.sandboxes = std::move(views);
  return page;
}

}  // namespace caisson::fleet
