// Looks for many texts at once in bytes that come in pieces: the automaton of Aho and Corasick.
//
// The time of a byte does not depend on how many patterns there are, and what has been seen is one
// number, which a caller keeps from piece to piece. From it follows, besides what ends here, how
// many of the last bytes may be the beginning of a pattern: those, and no more, must be held back.
//
// Built once, immutable, shared by any threads. About 20 bytes of memory for each byte of the
// patterns; the memory is wiped when it is given back, since patterns may be secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/secret.h"

namespace caisson::egress {

// Of all patterns together.
inline constexpr std::size_t kMostPatternBytes = 1 << 20;

struct PatternMatch {
  std::size_t pattern = 0;
  std::size_t begin = 0, end = 0;
  bool operator==(const PatternMatch&) const = default;
};

class ManyPatterns {
 public:
  // Finds nothing.
  ManyPatterns() : ManyPatterns(std::span<const std::string_view>()) {}
  // The patterns are numbered as they come; of equal ones the first is found. Error:
  // invalid_argument for an empty one, resource_exhausted for too many bytes.
  static Result<ManyPatterns> create(std::span<const std::string_view> patterns);

  // What was seen so far.
  using State = std::uint32_t;
  static constexpr State kStart = 0;

  State next(State state, unsigned char byte) const {
    while (state != kStart) {
      if (const State child = child_of(nodes_[state], byte); child != kStart) return child;
      state = nodes_[state].failure;
    }
    return root_[byte];
  }
  // How many of the last bytes, at most, may be the beginning of a pattern that goes on. None: the
  // state is as good as kStart.
  std::size_t open(State state) const { return nodes_[state].open; }
  // The longest pattern that ends with the last byte; every other one that ends there is an end of
  // it.
  std::optional<std::size_t> ends(State state) const {
    const std::uint32_t pattern = nodes_[state].longest;
    if (pattern == kNone) return std::nullopt;
    return pattern;
  }

  // The leftmost match that begins at `from` or behind it, and of those that begin there the
  // longest.
  std::optional<PatternMatch> find(std::string_view text, std::size_t from = 0) const;

  std::size_t count() const { return sizes_.size(); }
  // Of one pattern, and of the longest (0: there are none).
  std::size_t size(std::size_t pattern) const { return sizes_[pattern]; }
  std::size_t longest() const { return longest_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  // In the order of a breadth-first walk, so that the children of one stand together.
  struct Node {
    std::uint32_t first_child = 0;
    std::uint32_t failure = 0;      // of the longest proper end that is a node too
    std::uint32_t longest = kNone;  // pattern that ends here
    std::uint32_t open = 0;
    std::uint16_t children = 0;
    unsigned char label = 0;
  };
  using Nodes = std::vector<Node, WipingAllocator<Node>>;

  explicit ManyPatterns(std::span<const std::string_view> patterns);
  // Of each node its parent, and how many bytes lead to it.
  struct Place {
    std::uint32_t parent, depth;
  };
  void link(const std::vector<Place>& places);

  State child_of(const Node& node, unsigned char byte) const {
    const Node* child = nodes_.data() + node.first_child;
    for (const Node* const end = child + node.children; child != end; ++child) {
      if (child->label == byte) return static_cast<State>(child - nodes_.data());
    }
    return kStart;
  }

  Nodes nodes_;
  std::array<State, 256> root_{};  // the root's children by their bytes
  std::vector<std::uint32_t> sizes_;
  std::size_t longest_ = 0;
};

}  // namespace caisson::egress
