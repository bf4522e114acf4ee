#include "egress/secrets/many_patterns.h"

#include <algorithm>
#include <numeric>

namespace caisson::egress {

Result<ManyPatterns> ManyPatterns::create(std::span<const std::string_view> patterns) {
  std::size_t bytes = 0;
  for (const std::string_view pattern : patterns) {
    if (pattern.empty()) return fail(Error::invalid("a pattern to look for is empty"));
    bytes += pattern.size();
  }
  if (bytes > kMostPatternBytes)
    return fail(Error::exhausted("the texts to look for have " + std::to_string(bytes) +
                                 " bytes; allowed are " + std::to_string(kMostPatternBytes)));
  return ManyPatterns(patterns);
}

ManyPatterns::ManyPatterns(std::span<const std::string_view> patterns) {
  std::vector<std::uint32_t> order(patterns.size());
  std::iota(order.begin(), order.end(), 0u);
  // Equal ones in their order.
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    return patterns[a] == patterns[b] ? a < b : patterns[a] < patterns[b];
  });
  for (const std::string_view pattern : patterns) {
    sizes_.push_back(static_cast<std::uint32_t>(pattern.size()));
    longest_ = std::max(longest_, pattern.size());
  }

  // A node stands for the patterns that begin with its text: one run of the sorted ones.
  struct Run {
    std::size_t first, last;
  };
  std::vector<Run> runs = {{0, order.size()}};
  std::vector<Place> places = {{0, 0}};
  nodes_.emplace_back();
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    auto [at, last] = runs[node];
    const std::uint32_t depth = places[node].depth;
    nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
    if (at < last && patterns[order[at]].size() == depth) nodes_[node].longest = order[at];
    while (at < last && patterns[order[at]].size() == depth) ++at;
    while (at < last) {
      const char label = patterns[order[at]][depth];
      std::size_t end = at;
      while (end < last && patterns[order[end]][depth] == label) ++end;
      Node child;
      child.label = static_cast<unsigned char>(label);
      nodes_.push_back(child);
      runs.push_back({at, end});
      places.push_back({node, depth + 1});
      ++nodes_[node].children;
      at = end;
    }
  }
  link(places);
}

void ManyPatterns::link(const std::vector<Place>& places) {
  for (std::uint32_t node = 1; node < nodes_.size(); ++node) {
    Node& own = nodes_[node];
    // The parent's is done already, and so is the root's table.
    const auto [parent, depth] = places[node];
    if (parent == 0) {
      root_[own.label] = node;
    } else {
      own.failure = next(nodes_[parent].failure, own.label);
    }
    if (own.longest == kNone) own.longest = nodes_[own.failure].longest;
    own.open = own.children > 0 ? depth : nodes_[own.failure].open;
  }
}

std::optional<PatternMatch> ManyPatterns::find(std::string_view text, std::size_t from) const {
  std::optional<PatternMatch> best;
  State state = kStart;
  for (std::size_t i = from; i < text.size(); ++i) {
    state = next(state, static_cast<unsigned char>(text[i]));
    if (const auto pattern = ends(state)) {
      const PatternMatch match{*pattern, i + 1 - size(*pattern), i + 1};
      if (!best || match.begin <= best->begin) best = match;
    }
    // Nothing that ends later begins as early.
    if (best && i + 1 - open(state) > best->begin) break;
  }
  return best;
}

}  // namespace caisson::egress
