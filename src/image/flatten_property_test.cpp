// Random stacks of layers through both forms and through a model of what layers mean that shares no
// code with them: an eager tree of shared nodes. All three must give the same tree.
#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <random>

#include "image/flatten_for_test.h"

namespace caisson::image {
namespace {

using testing::Found;
using testing::Listing;
using testing::Tar;
using testing::TarEntry;

struct Node;
using NodePtr = std::shared_ptr<Node>;
struct Name {
  NodePtr node;
  int layer = 0;  // that mentioned it last; of a directory the node's own counts
};
struct Node {
  unsigned mode = S_IFDIR | 0755;
  unsigned uid = 0;
  std::int64_t time = 0;
  std::string contents;
  int layer = 0;
  bool mentioned = false;
  std::map<std::string, Name> children;

  bool is(unsigned type) const { return (mode & S_IFMT) == type; }
};

class Model {
 public:
  void begin_layer() { ++layer_; }

  // Whether the entry is one that must be taken; one that is not changes nothing.
  bool apply(const TarEntry& entry) {
    Model before = copy();
    if (take(entry)) return true;
    *this = std::move(before);
    return false;
  }

  Listing list() const {
    Listing listing;
    std::map<const Node*, std::vector<std::string>> names;
    visit(*root_, "", listing, names);
    for (const auto& [node, all] : names) {
      unsigned links = static_cast<unsigned>(all.size());
      if (node->is(S_IFDIR)) {
        links = 2;
        for (const auto& [name, child] : node->children) links += child.node->is(S_IFDIR) ? 1 : 0;
      }
      for (const std::string& name : all) {
        listing[name].links = links;
        listing[name].first_name = *std::min_element(all.begin(), all.end());
      }
    }
    return listing;
  }

 private:
  struct Round {};  // thrown where links go round

  static NodePtr copy_node(const NodePtr& node, std::map<Node*, NodePtr>& done) {
    NodePtr& mine = done[node.get()];
    if (mine) return mine;
    mine = std::make_shared<Node>(*node);
    NodePtr result = mine;
    for (auto& [name, child] : result->children) child.node = copy_node(child.node, done);
    return result;
  }
  Model copy() const {
    Model other;
    std::map<Node*, NodePtr> done;
    other.root_ = copy_node(root_, done);
    other.layer_ = layer_;
    return other;
  }

  static void visit(const Node& node, const std::string& name, Listing& listing,
                    std::map<const Node*, std::vector<std::string>>& names) {
    names[&node].push_back(name);
    const bool sized = node.is(S_IFREG) || node.is(S_IFLNK);
    listing[name] = Found{.mode = node.mode,
                          .uid = node.uid,
                          .seconds = node.time,
                          .size = sized ? node.contents.size() : 0,
                          .contents = node.contents};
    for (const auto& [child_name, child] : node.children) {
      visit(*child.node, name.empty() ? child_name : name + "/" + child_name, listing, names);
    }
  }

  static std::vector<std::string> split(const std::string& path) {
    std::vector<std::string> parts;
    std::string part;
    for (char c : path + "/") {
      if (c != '/') {
        part += c;
      } else if (!part.empty()) {
        parts.push_back(std::exchange(part, ""));
      }
    }
    return parts;
  }

  // The directory; nullptr where there is none and none is made, or something is in the way.
  NodePtr walk(const std::vector<std::string>& parts, bool make, int depth = 0,
               std::vector<NodePtr> way = {}) {
    if (way.empty()) way = {root_};
    if (make) touch(*way.back());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] == ".") continue;
      if (parts[i] == "..") {
        if (way.size() > 1) way.pop_back();
        continue;
      }
      NodePtr& child = way.back()->children[parts[i]].node;
      if (!child && !make) {
        way.back()->children.erase(parts[i]);
        return nullptr;
      }
      if (!child) {
        child = std::make_shared<Node>();
        child->layer = layer_;
      }
      if (child->is(S_IFLNK)) {
        if (depth >= 40) throw Round();
        std::vector<std::string> rest = split(child->contents);
        rest.insert(rest.end(), parts.begin() + static_cast<std::ptrdiff_t>(i) + 1, parts.end());
        if (child->contents[0] == '/') way = {root_};
        return walk(rest, make, depth + 1, way);
      }
      if (!child->is(S_IFDIR)) return nullptr;
      if (make) touch(*child);
      way.push_back(child);
    }
    return way.back();
  }
  void touch(Node& directory) {
    if (directory.layer == layer_) return;
    directory.layer = layer_;
    directory.mentioned = false;
  }
  static void forget(Node& directory) {
    if (directory.mentioned) return;
    directory.mode = S_IFDIR | 0755;
    directory.uid = 0;
    directory.time = 0;
  }
  static int layer_of(const Name& name) {
    return name.node->is(S_IFDIR) ? name.node->layer : name.layer;
  }
  // Takes away what earlier layers have in it.
  void purge(Node& directory) {
    std::erase_if(directory.children,
                  [&](const auto& child) { return layer_of(child.second) != layer_; });
    for (auto& [name, child] : directory.children) {
      if (!child.node->is(S_IFDIR)) continue;
      forget(*child.node);
      purge(*child.node);
    }
  }

  bool take(const TarEntry& entry) try {
    std::vector<std::string> parts = split(entry.name);
    if (parts.empty()) {
      touch(*root_);
      root_->mentioned = true;
      root_->mode = S_IFDIR | entry.mode;
      root_->uid = static_cast<unsigned>(entry.uid);
      root_->time = static_cast<std::int64_t>(entry.mtime);
      return true;
    }
    const std::string last = parts.back();
    parts.pop_back();
    if (last.starts_with(".wh.")) {
      NodePtr parent = walk(parts, false);
      if (!parent) return true;
      if (last == ".wh..wh..opq") {
        purge(*parent);
        return true;
      }
      auto gone = parent->children.find(last.substr(4));
      if (gone == parent->children.end()) return true;
      if (layer_of(gone->second) != layer_) {
        parent->children.erase(gone);
      } else if (gone->second.node->is(S_IFDIR)) {
        purge(*gone->second.node);
        forget(*gone->second.node);
      }
      return true;
    }
    NodePtr target;
    if (entry.type == '1') {
      std::vector<std::string> target_parts = split(entry.link);
      const std::string target_last = target_parts.back();
      target_parts.pop_back();
      NodePtr target_parent = walk(target_parts, false);
      if (!target_parent || !target_parent->children.contains(target_last)) return false;
      target = target_parent->children[target_last].node;
      if (target->is(S_IFDIR)) return false;
      NodePtr parent = walk(parts, true);
      if (!parent) return false;
      auto there = parent->children.find(last);
      if (there != parent->children.end() && target_parent == parent && target_last == last) {
        return true;  // itself
      }
      if (there != parent->children.end() && holds(*there->second.node, target_parent))
        return false;
      parent->children[last] = {target, layer_};
      return true;
    }
    NodePtr parent = walk(parts, true);
    if (!parent) return false;
    Name& name = parent->children[last];
    NodePtr& place = name.node;
    name.layer = layer_;
    if (!(entry.type == '5' && place && place->is(S_IFDIR))) place = std::make_shared<Node>();
    place->layer = layer_;
    place->mentioned = true;
    place->uid = static_cast<unsigned>(entry.uid);
    place->time = static_cast<std::int64_t>(entry.mtime);
    switch (entry.type) {
      case '0':
        place->mode = S_IFREG | entry.mode;
        place->contents = entry.data;
        break;
      case '2':
        place->mode = S_IFLNK | 0777;
        place->contents = entry.link;
        break;
      case '5':
        place->mode = S_IFDIR | entry.mode;
        break;
      default:
        place->mode = S_IFIFO | (entry.mode & 0777);
    }
    return true;
  } catch (const Round&) {
    return false;
  }

  static bool holds(const Node& node, const NodePtr& directory) {
    if (&node == directory.get()) return true;
    for (const auto& [name, child] : node.children) {
      if (holds(*child.node, directory)) return true;
    }
    return false;
  }
  NodePtr root_ = std::make_shared<Node>();
  int layer_ = 0;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  TarEntry entry() {
    TarEntry entry;
    entry.name = path();
    entry.mode = pick({0644u, 0755u, 0600u, 04755u, 0400u});
    entry.uid = below(3) * 1000;
    entry.mtime = 1'600'000'000 + below(1000);
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        entry.type = '5';
        entry.mode = pick({0755u, 0700u, 01777u});
        break;
      case 3:
        entry.type = '2';
        entry.link =
            pick<const char*>({"a", "b/c", "../a", "/c", "..", "a/b", "/", "d", "../../b"});
        break;
      case 4:
        entry.type = '6';
        break;
      case 5:
        entry.type = '1';
        entry.link = path();
        break;
      case 6:
      case 7: {
        const std::size_t slash = entry.name.rfind('/');
        entry.name.insert(slash == std::string::npos ? 0 : slash + 1, ".wh.");
        break;
      }
      case 8:
        entry.name += below(4) == 0 ? "/../.wh..wh..opq" : "/.wh..wh..opq";
        if (entry.name.find("..") < entry.name.find(".wh.")) entry.name = ".wh..wh..opq";
        break;
      default:
        entry.data = std::string(pick({0u, 3u, 900u, 5000u}), static_cast<char>('a' + below(26)));
    }
    return entry;
  }
  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }

 private:
  std::string path() {
    std::string text = part();
    while (below(5) < 2) text += "/" + part();
    return text;
  }
  std::string part() { return pick<const char*>({"a", "b", "c", "d"}); }
  template <typename T>
  T pick(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<unsigned>(all.size()))];
  }

  std::mt19937 random_;
};

using Property = testing::FlattenTest;

INSTANTIATE_TEST_SUITE_P(Forms, Property, testing::kBothForms, testing::name_of_form);

TEST_P(Property, RandomStacksGiveTheModelsTree) {
  constexpr unsigned kStacks = 150;
  for (unsigned seed = 0; seed < kStacks; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator generator(seed);
    Model model;
    begin();
    std::string told;
    const unsigned layers = 2 + generator.below(3);
    for (unsigned layer = 0; layer < layers; ++layer) {
      Tar tar;
      model.begin_layer();
      for (unsigned i = 0; i < 14; ++i) {
        TarEntry entry = generator.entry();
        if (!model.apply(entry)) {
          // What the model refuses both forms refuse; the layer goes on without it.
          continue;
        }
        told +=
            std::to_string(layer) + " " + entry.type + " " + entry.name + " " + entry.link + "\n";
        tar.add(entry);
      }
      auto applied = apply(tar.bytes());
      ASSERT_TRUE(applied.has_value()) << applied.error().message() << "\n" << told;
      // Sometimes in the middle, as a build does.
      if (layer + 1 == layers || generator.below(2) == 0) {
        Listing expected = model.list();
        for (auto& [name, file] : expected) {
          if (geteuid() != 0) file.uid = 0;
        }
        const Listing found = listing();
        ASSERT_EQ(describe(found), describe(expected)) << told;
        ASSERT_TRUE(found == expected) << told;
      }
    }
  }
}

}  // namespace
}  // namespace caisson::image
