#include "api/catalogue.h"

#include <algorithm>
#include <utility>

#include "maker/snapshot.h"

namespace caisson::api {
namespace {

constexpr std::chrono::seconds kKnownFor{5};
constexpr std::size_t kMostKnown = 1024;
// What E2B's clients ask for where they name none of their own.
constexpr std::pair<std::string_view, std::string_view> kUsual[] = {
    {"code-interpreter-v1", "code-interpreter"},
};

// Clients add the tag that means "the one that is current".
std::string without_default_tag(std::string_view name) {
  constexpr std::string_view kDefaultTag = ":default";
  if (name.ends_with(kDefaultTag)) name.remove_suffix(kDefaultTag.size());
  return std::string(name);
}

}  // namespace

bool is_everybodys(std::string_view name) {
  return !name.starts_with(maker::kSnapshotNames) && !name.starts_with(maker::kTemplateNames);
}

Catalogue::Catalogue(io::Loop& loop, fleet::Host& host, const policy::ServerConfig& config)
    : loop_(loop), host_(host), config_(config) {}

std::string Catalogue::image_of(const std::string& name) const {
  const auto given = config_.templates.find(name);
  if (given != config_.templates.end()) return given->second;
  const auto usual = std::ranges::find(kUsual, name, [](const auto& pair) { return pair.first; });
  return usual == std::end(kUsual) ? name : std::string(usual->second);
}

fleet::Recipe Catalogue::recipe_of(const std::string& image) const {
  const policy::ServedLimits& limits = config_.defaults;
  return {.image = image,
          .cpu_milli = limits.cpu_milli,
          .memory_bytes = limits.memory,
          .disk_bytes = limits.disk,
          .pids = limits.pids};
}

TemplateView Catalogue::view_of(const std::string& name) const {
  const fleet::Recipe recipe = recipe_of(image_of(name));
  TemplateView view{.id = name, .names = {name}, .access = TemplateView::Access::kPublic};
  view.cpus = static_cast<std::uint32_t>((recipe.cpu_milli.value_or(1000) + 999) / 1000);
  view.memory_mib = recipe.memory_bytes.value_or(0) >> 20;
  view.disk_mib = recipe.disk_bytes.value_or(0) >> 20;
  return view;
}

io::Async<Result<fleet::Template>> Catalogue::to_make(std::string name) {
  const std::string known_as = without_default_tag(name.empty() ? config_.default_image : name);
  const std::string image = image_of(known_as);
  const auto now = io::Clock::now();
  std::string id;
  const auto remembered = known_.find(image);
  if (remembered != known_.end() && remembered->second.until >= now) {
    id = remembered->second.id;
  } else {
    const auto who = image == known_as ? maker::NamedBy::kClient : maker::NamedBy::kOperator;
    auto look = [&host = host_, image, who] { return host.find_image(image, who); };
    auto found = co_await loop_.in_pool(std::move(look));
    if (!found.has_value()) {
      if (found.error().code() != Code::kNotFound && found.error().code() != Code::kInvalidArgument)
        co_return fail(std::move(found).error());
      co_return fail(
          Error::not_found("template '" + known_as + "' not found: " + found.error().message()));
    }
    id = std::move(*found);
    if (known_.size() >= kMostKnown) known_.clear();
    known_[image] = {.id = id, .until = now + kKnownFor};
  }
  co_return fleet::Template{
      .id = known_as, .alias = known_as, .recipe = recipe_of(image), .image_id = std::move(id)};
}

io::Async<Result<TemplateView>> Catalogue::find(std::string name) {
  CO_TRY_ASSIGN(const fleet::Template found, co_await to_make(std::move(name)));
  co_return view_of(found.id);
}

io::Async<Result<std::vector<TemplateView>>> Catalogue::list() {
  auto look = [&host = host_] { return host.images(); };
  CO_TRY_ASSIGN(std::vector<std::string> names, co_await loop_.in_pool(std::move(look)));
  for (const auto& [name, image] : config_.templates) names.push_back(name);
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  std::vector<TemplateView> views;
  for (const std::string& name : names) views.push_back(view_of(name));
  co_return views;
}

fleet::Pool::Sizes Catalogue::pool() const {
  fleet::Pool::Sizes sizes;
  for (const auto& [name, count] : config_.pool) sizes[recipe_of(image_of(name))] = count;
  return sizes;
}

}  // namespace caisson::api
