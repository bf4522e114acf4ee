#include "image/worker/layer_tree.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "image/reference.h"
#include "image/worker/entry_name.h"

namespace caisson::image {
namespace {

constexpr std::size_t kFirstBuckets = 1 << 10;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

LayerTree::LayerTree(std::uint64_t max_nodes)
    : buckets_(kFirstBuckets, kNoNode),
      max_nodes_(std::min<std::uint64_t>(max_nodes, kNoNode - 2)) {
  // Names are chosen by whoever made the archive: they must not be able to choose buckets too.
  VERIFY(getrandom(seed_, sizeof seed_, 0) == sizeof seed_);
  nodes_.push_back(std::make_unique_for_overwrite<Node[]>(kNodesABlock));
  count_ = 1;
  at(kRootNode) = {.parent = kRootNode,
                   .next = kNoNode,
                   .name = 0,
                   .slot = 0,
                   .layer = 0,
                   .opaque_at = 0,
                   .name_size = 0,
                   .kind = static_cast<std::uint8_t>(NodeKind::kDirectory),
                   .flags = 0};
}

Status LayerTree::begin_layer() {
  if (layer_ >= kMaxLayers) {
    return fail(Error::invalid("the image has more than " + std::to_string(kMaxLayers) +
                               " layers, the most that is allowed"));
  }
  ++layer_;
  opaque_in_layer_ = false;
  return {};
}

std::uint64_t LayerTree::hash(NodeId directory, std::string_view name) const {
  std::uint64_t value = mix(seed_[0] ^ directory, seed_[1] ^ name.size());
  for (; !name.empty(); name.remove_prefix(std::min<std::size_t>(8, name.size()))) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data(), std::min<std::size_t>(8, name.size()));
    value = mix(value ^ word, seed_[1] | 1);
  }
  return mix(value ^ seed_[0], seed_[1] | 1);
}

std::string_view LayerTree::name(NodeId node) const {
  const Node& entry = at(node);
  if (entry.name_size == 0) return {};
  return {names_[entry.name / kNameBlock].get() + entry.name % kNameBlock, entry.name_size};
}

std::uint16_t LayerTree::opaque_at(NodeId directory) const {
  if (!any_opaque_) return 0;
  std::uint16_t latest = at(directory).opaque_at;
  while (directory != kRootNode) {
    directory = at(directory).parent;
    latest = std::max(latest, at(directory).opaque_at);
  }
  return latest;
}

NodeId LayerTree::find_any(NodeId directory, std::string_view text) const {
  NodeId id = buckets_[hash(directory, text) & (buckets_.size() - 1)];
  while (id != kNoNode && (at(id).parent != directory || name(id) != text)) id = at(id).next;
  return id;
}

std::optional<NodeId> LayerTree::find(NodeId directory, std::string_view text) const {
  const NodeId id = find_any(directory, text);
  if (id == kNoNode || at(id).layer < opaque_at(directory)) return std::nullopt;
  return id;
}

std::uint32_t LayerTree::keep_name(std::string_view text) {
  if (text.size() > kNameBlock - name_used_) {
    names_.push_back(std::make_unique_for_overwrite<char[]>(kNameBlock));
    name_used_ = 0;
  }
  const auto place = static_cast<std::uint32_t>((names_.size() - 1) * kNameBlock + name_used_);
  std::memcpy(names_.back().get() + name_used_, text.data(), text.size());
  name_used_ += static_cast<std::uint32_t>(text.size());
  name_bytes_ += text.size();
  return place;
}

Result<NodeId> LayerTree::add(NodeId directory, std::string_view text, NodeKind kind) {
  VERIFY(!text.empty() && text.size() <= kMaxEntryComponent);
  auto refuse = [&](const std::string& why) {
    return fail(Error::invalid("entry '" + printable(path(directory)) + "/" + printable(text) +
                               "': " + why));
  };
  if (count_ > max_nodes_) {
    return refuse("the image has more than " + std::to_string(max_nodes_) +
                  " entries (directories that were not mentioned and files that were replaced "
                  "included), the most that is allowed");
  }
  if (name_bytes_ + text.size() > kMaxNameBytes) {
    return refuse("the image's names have more than " + std::to_string(kMaxNameBytes) +
                  " bytes together, the most that is allowed");
  }
  // Names are short and shallow when they come; symbolic links can make them longer and deeper.
  std::size_t depth = 1, size = text.size();
  for (NodeId above = directory; above != kRootNode; above = at(above).parent) {
    ++depth;
    size += 1 + at(above).name_size;
  }
  if (depth > kMaxEntryDepth || size > kMaxEntryName) {
    return refuse("with the symbolic links on its way resolved, it lies more than " +
                  std::to_string(kMaxEntryDepth) + " directories deep or has a name of more than " +
                  std::to_string(kMaxEntryName) + " bytes");
  }
  if (const NodeId old = find_any(directory, text); old != kNoNode) remove(old);
  if (count_ >= 2 * buckets_.size()) grow();
  if (count_ % kNodesABlock == 0) {
    nodes_.push_back(std::make_unique_for_overwrite<Node[]>(kNodesABlock));
  }
  const NodeId id = count_++;
  NodeId& bucket = buckets_[hash(directory, text) & (buckets_.size() - 1)];
  at(id) = {.parent = directory,
            .next = bucket,
            .name = keep_name(text),
            .slot = 0,
            .layer = layer_,
            .opaque_at = 0,
            .name_size = static_cast<std::uint8_t>(text.size()),
            .kind = static_cast<std::uint8_t>(kind),
            .flags = 0};
  bucket = id;
  return id;
}

void LayerTree::unchain(NodeId node) {
  NodeId* link = &buckets_[hash(at(node).parent, name(node)) & (buckets_.size() - 1)];
  while (*link != node) link = &at(*link).next;
  *link = at(node).next;
}

void LayerTree::remove(NodeId node) {
  unchain(node);
  at(node).flags |= kDead;
}

void LayerTree::make_opaque(NodeId directory) {
  at(directory).opaque_at = layer_;
  any_opaque_ = opaque_in_layer_ = true;
}

void LayerTree::touch(NodeId directory, bool mentioned) {
  Node& node = at(directory);
  if (node.layer != layer_) node.flags &= static_cast<std::uint8_t>(~kMentioned);
  node.layer = layer_;
  if (mentioned) node.flags |= kMentioned;
}

std::string LayerTree::path(NodeId node) const {
  std::vector<NodeId> way;
  for (; node != kRootNode; node = at(node).parent) way.push_back(node);
  std::string text;
  for (auto id = way.rbegin(); id != way.rend(); ++id) {
    if (!text.empty()) text += '/';
    text += name(*id);
  }
  return text;
}

std::vector<bool> LayerTree::reachable() const {
  std::vector<bool> there(count_, false);
  there[kRootNode] = true;
  // Parents come before what is in them.
  for (NodeId id = 1; id < count_; ++id) {
    const Node& node = at(id);
    there[id] =
        (node.flags & kDead) == 0 && there[node.parent] && node.layer >= opaque_at(node.parent);
  }
  return there;
}

std::vector<NodeId> LayerTree::renewed() const {
  std::vector<NodeId> found;
  if (!opaque_in_layer_) return found;
  const std::vector<bool> there = reachable();
  for (NodeId id = 1; id < count_; ++id) {
    if (there[id] && kind(id) == NodeKind::kDirectory && of_this_layer(id) && !mentioned(id) &&
        opaque_at(parent(id)) == layer_) {
      found.push_back(id);
    }
  }
  return found;
}

void LayerTree::grow() {
  std::fill(buckets_.begin(), buckets_.end(), kNoNode);
  buckets_.resize(2 * buckets_.size(), kNoNode);
  for (NodeId id = 1; id < count_; ++id) {
    if ((at(id).flags & kDead) != 0) continue;
    NodeId& bucket = buckets_[hash(at(id).parent, name(id)) & (buckets_.size() - 1)];
    at(id).next = bucket;
    bucket = id;
  }
}

}  // namespace caisson::image
