#include "policy/settings.h"

#include <algorithm>
#include <array>
#include <optional>

#include "policy/complain.h"
#include "policy/node.h"
#include "policy/read_node.h"
#include "policy/syntax.h"

namespace caisson::policy {
namespace {

constexpr std::array<std::string_view, 4> kKeys = {"default_registry", "insecure_registries",
                                                   "images", "image_form"};
constexpr std::string_view kFormAllowed = "directory or erofs";

Result<std::string> read_image(const Node& node, const std::string& path) {
  if (!is_text(node) || !image_fault(node.text).empty()) {
    return fail(wrong_at(node, path, "NAME or NAME:TAG"));
  }
  return node.text;
}

Status read_registries(const Node& node, Settings& settings) {
  const std::string path = "insecure_registries";
  if (node.kind != Node::Kind::kList) return fail(wrong_at(node, path, "a list of HOST[:PORT]"));
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const Node& item = node.items[i];
    if (!is_text(item) || !registry_fault(item.text).empty()) {
      return fail(wrong_at(item, path + "[" + std::to_string(i) + "]", "HOST or HOST:PORT"));
    }
    settings.insecure_registries.push_back(item.text);
  }
  return {};
}

Status read_images(const Node& node, Settings& settings) {
  const std::string path = "images";
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path, "a mapping from names to images of the local store"));
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const std::string below = key_below(path, node.keys[i]);
    if (!image_fault(node.keys[i]).empty()) {
      return fail(wrong(below, "a key that is no image's name", "NAME or NAME:TAG"));
    }
    TRY_ASSIGN(std::string image, read_image(node.items[i], below));
    settings.images[node.keys[i]] = std::move(image);
  }
  return {};
}

constexpr std::string_view kRegistryAllowed =
    "HOST or HOST:PORT, with /PATH for names of one part where the registry wants one";

// HOST[:PORT][/PATH], each part of the path as in an image's name.
bool is_default_registry(std::string_view text) {
  const std::size_t slash = text.find('/');
  return registry_fault(text.substr(0, slash)).empty() &&
         (slash == std::string_view::npos || (text.find_first_of(":@", slash) == text.npos &&
                                              image_fault(text.substr(slash + 1)).empty()));
}

std::optional<ImageForm> parse_form(std::string_view text) {
  if (text == "directory") return ImageForm::kDirectory;
  if (text == "erofs") return ImageForm::kErofs;
  return std::nullopt;
}

Status read_form(const Node& node, Settings& settings) {
  const auto form = is_text(node) ? parse_form(node.text) : std::nullopt;
  if (!form) return fail(wrong_at(node, "image_form", kFormAllowed));
  settings.image_form = *form;
  return {};
}

Status read_key(std::string_view key, const Node& node, Settings& settings) {
  if (key == "insecure_registries") return read_registries(node, settings);
  if (key == "images") return read_images(node, settings);
  if (key == "image_form") return read_form(node, settings);
  if (!is_text(node) || !is_default_registry(node.text)) {
    return fail(wrong_at(node, key, kRegistryAllowed));
  }
  settings.default_registry = node.text;
  return {};
}

}  // namespace

Result<Settings> parse_settings(std::string_view text) {
  TRY_ASSIGN(const Node root, parse_yaml_tree(text, "settings"));
  Settings settings;
  if (root.kind == Node::Kind::kNull) return settings;  // an empty file
  if (root.kind != Node::Kind::kMap) {
    return fail(wrong_at(root, "settings",
                         "a mapping with the keys " + alternatives(kKeys.data(), kKeys.size())));
  }
  const auto read = [&](const std::string& name, const Node& value,
                        const std::string& path) -> Status {
    if (std::ranges::find(kKeys, name) == kKeys.end()) {
      return fail(unknown_key(name, value, path, kKeys));
    }
    return read_key(name, value, settings);
  };
  TRY(for_each_key(root, "", read));
  return settings;
}

Result<Settings> overridden(Settings settings, std::string_view default_registry,
                            std::string_view image_form) {
  if (!default_registry.empty()) {
    if (!is_default_registry(default_registry)) {
      return fail(wrong("CAISSON_DEFAULT_REGISTRY", quote(default_registry), kRegistryAllowed));
    }
    settings.default_registry = default_registry;
  }
  if (!image_form.empty()) {
    const auto form = parse_form(image_form);
    if (!form) return fail(wrong("CAISSON_IMAGE_FORM", quote(image_form), kFormAllowed));
    settings.image_form = *form;
  }
  return settings;
}

}  // namespace caisson::policy
