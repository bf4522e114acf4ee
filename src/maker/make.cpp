#include "maker/make.h"

#include <caisson/sandbox.h>
#include <unistd.h>

#include "box/registry.h"
#include "image/store.h"
#include "maker/snapshot.h"

namespace caisson::maker {
namespace {

// Many files are open in a sandbox that serves; the command line's default is for one command.
constexpr std::uint64_t kOpenFiles = 65'536;
constexpr std::uint64_t kInodes = 1'000'000;

bool is_a_teams(std::string_view name) {
  return name.starts_with(kSnapshotNames) || name.starts_with(kTemplateNames);
}

}  // namespace

Result<Made> make_sandbox(const Recipe& recipe) {
  policy::SpecValues values;
  values.image = recipe.image;
  values.privileges = policy::Privileges::kSudo;
  // On a disk where that can be held: a sandbox of a server lives long, and its files are not to
  // take its memory.
  const bool root = ::geteuid() == 0;
  values.layer = root ? policy::LayerKind::kQuota : policy::LayerKind::kTmpfs;
  values.limits.cpu_milli = recipe.cpu_milli;
  values.limits.memory = recipe.memory_bytes;
  values.limits.pids = recipe.pids;
  values.limits.disk = recipe.disk_bytes;
  values.limits.inodes = kInodes;
  values.limits.open_files = kOpenFiles;
  values.limits.output = std::nullopt;
  values.limits.timeout_ms = std::chrono::milliseconds(kUnclaimed).count();
  values.limits.cpu_time_ms = std::nullopt;
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(std::move(values)));
  TRY_ASSIGN(Sandbox sandbox, Sandbox::create(spec, {.life = Life::kKept, .keep_layer = true}));
  const SandboxInfo& info = sandbox.info();
  return Made{.id = info.id, .user = info.user, .image = "sha256:" + info.image_id};
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

Status find_image(const std::string& name, NamedBy who) {
  TRY_ASSIGN(image::Store store, image::Store::open());
  if (who == NamedBy::kClient && (is_a_teams(name) || !store.contains(name))) {
    TRY(image::parse_reference(name));
    return fail(Error::not_found("no image of this server has that name"));
  }
  TRY(store.find(name));
  return {};
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
  std::vector<std::string> found;
  for (const image::ListedImage& one : images) {
    if (!one.reference.name.starts_with(kTemplateNames)) continue;
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

}  // namespace caisson::maker
