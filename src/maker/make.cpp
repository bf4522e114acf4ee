#include "maker/make.h"

#include <caisson/sandbox.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "base/sha256.h"
#include "box/registry.h"
#include "egress/keys_file.h"
#include "image/reference.h"
#include "image/store.h"
#include "maker/recipe.h"
#include "maker/snapshot.h"
#include "wall/namespace/probe.h"

namespace caisson::maker {
namespace {

// From when it was pulled until its build has begun.
constexpr std::chrono::minutes kYoung{10};

bool is_a_teams(std::string_view name) {
  return name.starts_with(kSnapshotNames) || name.starts_with(kTemplateNames);
}

// What a server may have sandboxes made of: this host's own files are no image for clients, a name
// that is not here would be guessed at further, and the beginning of an id reaches what was not
// named.
Status check_image(const std::string& image) {
  constexpr std::string_view kId = "sha256:";
  if (image.starts_with(kId)) {
    if (is_sha256(std::string_view(image).substr(kId.size()))) return {};
    return fail(Error::invalid("the image: found '" + image +
                               "', allowed are an image's name and sha256: with a whole id"));
  }
  if (image.empty() || image == image::kHostImage)
    return fail(Error::invalid("the image: this host's own files are none for a server"));
  TRY_ASSIGN(image::Store store, image::Store::open());
  if (store.contains(image)) return {};
  TRY_ASSIGN(const image::Reference reference, image::parse_reference(image));
  // A name with a digest also means an image that is there by that name and a tag.
  if (!reference.digest.empty() && store.find(image).has_value()) return {};
  return fail(Error::not_found("the image '" + image + "' is not in the store"));
}

}  // namespace

Result<Made> make_sandbox(const Recipe& recipe, int keys_fd) {
  if ((keys_fd >= 0) == recipe.authority.empty())
    return fail(Error::invalid("a recipe has an authority and keys, or neither"));
  TRY(check_image(recipe.image));
  Fd keys;
  if (keys_fd >= 0) {
    const uid_t owner = ::geteuid() == 0 ? egress::kVaultId : ::geteuid();
    TRY_ASSIGN(keys, egress::open_keys(keys_fd, owner));
  }
  TRY_ASSIGN(
      policy::SpecValues values,
      values_of(recipe, ::geteuid() == 0 ? policy::LayerKind::kQuota : policy::LayerKind::kTmpfs));
  values.limits.timeout_ms = std::chrono::milliseconds(kUnclaimed).count();
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(std::move(values)));
  TRY_ASSIGN(Sandbox sandbox, Sandbox::create(spec, {.life = Life::kKept,
                                                     .keep_layer = true,
                                                     .keys_fd = keys.get(),
                                                     .authority = recipe.authority,
                                                     .served_domain = recipe.served_domain}));
  const SandboxInfo& info = sandbox.info();
  return Made{.id = info.id,
              .user = info.user,
              .workdir = recipe.workdir,
              .image = "sha256:" + info.image_id};
}

void end_sandbox(const std::string& id) {
  auto sandbox = Sandbox::connect(id);
  if (sandbox.has_value()) static_cast<void>(sandbox->end());
}

Result<Fd> connect_sandbox(const std::string& id) {
  return box::connect_socket(id);
}

Result<std::vector<std::string>> kept_sandboxes() {
  TRY_ASSIGN(const auto all, Sandbox::list());
  std::vector<std::string> ids;
  for (const SandboxInfo& info : all)
    if (info.life == Life::kKept) ids.push_back(info.id);
  return ids;
}

Result<std::string> find_image(const std::string& name, NamedBy who) {
  TRY_ASSIGN(image::Store store, image::Store::open());
  if (who == NamedBy::kClient && (is_a_teams(name) || !store.contains(name))) {
    TRY(image::parse_reference(name));
    return fail(Error::not_found("no image of this server has that name"));
  }
  TRY_ASSIGN(const std::string id, store.find(name));
  return "sha256:" + id;
}

Result<std::vector<std::string>> list_images() {
  TRY_ASSIGN(image::Store store, image::Store::open());
  TRY_ASSIGN(const auto images, store.list());
  std::vector<std::string> names;
  for (const image::ListedImage& one : images) {
    const image::Reference& reference = one.reference;
    if (is_a_teams(reference.name)) continue;
    const bool plain = reference.tag == "latest" && reference.digest.empty();
    names.push_back(plain ? reference.name : reference.text());
  }
  return names;
}

Result<std::vector<std::string>> template_images() {
  TRY_ASSIGN(image::Store store, image::Store::open());
  TRY_ASSIGN(const auto images, store.list());
  const auto now = std::chrono::system_clock::now();
  std::vector<std::string> found;
  for (const image::ListedImage& one : images) {
    if (!one.reference.name.starts_with(kTemplateNames)) continue;
    const auto set_at =
        std::chrono::system_clock::time_point(std::chrono::seconds(one.named.set_at));
    if (one.reference.name.starts_with(kPulledNames) && now - set_at < kYoung) continue;
    found.push_back(one.reference.text());
    found.push_back("sha256:" + one.named.image_id);
  }
  return found;
}

Status drop_template_image(const std::string& name) {
  TRY_ASSIGN(image::Store store, image::Store::open());
  if (!store.contains(name)) return {};
  return store.remove(name);
}

Status trim_cache(const CacheBound& bound) {
  TRY_ASSIGN(std::optional<image::Store> store, image::Store::open_if_present());
  if (!store.has_value()) return {};
  // More seconds than there are is no bound.
  constexpr std::uint64_t kMostSeconds = std::numeric_limits<std::int64_t>::max();
  image::CacheBound wanted{.bytes = bound.bytes, .seconds = {}};
  if (bound.seconds.has_value())
    wanted.seconds = static_cast<std::int64_t>(std::min(*bound.seconds, kMostSeconds));
  TRY(store->trim_cache(wanted));
  return {};
}

Status check_network() {
  const std::vector<wall::Finding> findings = wall::diagnose(wall::probe_host());
  const auto found = std::ranges::find(findings, wall::kGatewayFeature, &wall::Finding::feature);
  if (found == findings.end()) return fail(Error::internal("the host says nothing of a network"));
  if (found->state == wall::FeatureState::kWorks) return {};
  return fail(Error::precondition(found->detail + " (" + found->remedy + ")"));
}

}  // namespace caisson::maker
