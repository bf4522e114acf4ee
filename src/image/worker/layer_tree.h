// The names of the root filesystem under way: which there are, of which kind, and which layer
// mentioned them last. It knows nothing of contents or attributes; a writer keeps those under the
// `slot` that it gives a node. Small, because the worker must hold two million names in less than
// 100 MB: 24 bytes a node, 2 to 4 of a hash table, and the name.
//
// Removal is lazy. A removed node is dead and a name that is made anew is another node, so what was
// below the old one cannot be reached any more. An opaque directory remembers the layer that made
// it so: what is below it and was last mentioned by an earlier layer is not there. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::image {

using NodeId = std::uint32_t;
inline constexpr NodeId kRootNode = 0;
inline constexpr NodeId kNoNode = ~NodeId{0};

// kWhiteout: what hides a name of the root file systems below; of a delta alone (delta.h).
enum class NodeKind : std::uint8_t { kDirectory, kFile, kSymlink, kPipe, kWhiteout };

inline constexpr std::uint16_t kMaxLayers = 10'000;           // of one session
inline constexpr std::uint64_t kMaxNameBytes = 256ull << 20;  // of all names together

class LayerTree {
 public:
  // `max_nodes` counts every node ever made, the root aside; dead ones keep their memory.
  explicit LayerTree(std::uint64_t max_nodes);

  // Everything from here on is of the next layer, the first of which is 1. Error: invalid after
  // kMaxLayers.
  Status begin_layer();
  // Whether a node that is there was mentioned (or implied) by this layer, and which of the two.
  bool of_this_layer(NodeId node) const { return at(node).layer == layer_; }
  bool mentioned(NodeId node) const { return (at(node).flags & kMentioned) != 0; }

  // The node of that name in the directory, unless there is none (any more).
  std::optional<NodeId> find(NodeId directory, std::string_view name) const;
  // Makes a node of this layer, in place of what had the name. Error: invalid for too many nodes,
  // bytes of names or levels.
  Result<NodeId> add(NodeId directory, std::string_view name, NodeKind kind);
  // Takes a node and what is below it away.
  void remove(NodeId node);
  // The directory shows nothing any more that earlier layers have below it.
  void make_opaque(NodeId directory);
  // Whether it or a directory above it was ever made so.
  bool is_opaque(NodeId directory) const { return opaque_at(directory) != 0; }
  // This layer has (or implies) the directory.
  void touch(NodeId directory, bool mentioned);

  NodeKind kind(NodeId node) const { return static_cast<NodeKind>(at(node).kind); }
  NodeId parent(NodeId node) const { return at(node).parent; }
  std::string_view name(NodeId node) const;
  std::uint32_t slot(NodeId node) const { return at(node).slot; }
  void set_slot(NodeId node, std::uint32_t slot) { at(node).slot = slot; }
  // Several nodes may have its slot.
  bool linked(NodeId node) const { return (at(node).flags & kLinked) != 0; }
  void set_linked(NodeId node) { at(node).flags |= kLinked; }
  // A mark of the writer's on dead nodes.
  bool buried(NodeId node) const { return (at(node).flags & kBuried) != 0; }
  void set_buried(NodeId node) { at(node).flags |= kBuried; }

  // Its names from below the root on, joined by '/'; empty for the root.
  std::string path(NodeId node) const;
  NodeId size() const { return count_; }  // nodes ever made, the root too
  std::uint64_t name_bytes() const { return name_bytes_; }

  // Which nodes are there: by index, true for those that can be reached from the root.
  std::vector<bool> reachable() const;
  // Directories of this layer that it did not mention and that lie below a directory that it made
  // opaque: whatever attributes they had are those of hidden ones.
  std::vector<NodeId> renewed() const;

 private:
  struct Node {
    NodeId parent, next;  // next: of the same bucket
    std::uint32_t name, slot;
    std::uint16_t layer, opaque_at;
    std::uint8_t name_size, kind, flags;  // name_size: 0 for the root
  };
  static constexpr std::uint8_t kDead = 1, kMentioned = 2, kLinked = 4, kBuried = 8;
  static constexpr NodeId kNodesABlock = 1 << 14;
  static constexpr std::uint32_t kNameBlock = 1 << 18;

  const Node& at(NodeId id) const { return nodes_[id / kNodesABlock][id % kNodesABlock]; }
  Node& at(NodeId id) { return nodes_[id / kNodesABlock][id % kNodesABlock]; }
  std::uint64_t hash(NodeId directory, std::string_view name) const;
  // The youngest layer that made the directory or one above it opaque.
  std::uint16_t opaque_at(NodeId directory) const;
  NodeId find_any(NodeId directory, std::string_view name) const;
  std::uint32_t keep_name(std::string_view name);
  void unchain(NodeId node);
  void grow();

  // In blocks, since growing a vector would hold everything twice.
  std::vector<std::unique_ptr<Node[]>> nodes_;
  std::vector<std::unique_ptr<char[]>> names_;
  std::vector<NodeId> buckets_;
  std::uint64_t max_nodes_;
  std::uint64_t seed_[2];
  NodeId count_ = 0;
  std::uint64_t name_bytes_ = 0;
  std::uint32_t name_used_ = kNameBlock;
  std::uint16_t layer_ = 0;
  bool any_opaque_ = false, opaque_in_layer_ = false;
};

}  // namespace caisson::image
