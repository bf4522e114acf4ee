// How a pull goes, for people: on a terminal a line for all of it and a bar for each layer that is
// on its way, written over themselves; elsewhere a line for each layer that is there. It writes to
// stderr alone. drawn() is pure.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "image/registry/pull.h"

namespace caisson::cli {

enum class PullOutput { kBars, kLines, kNothing };

class PullView {
 public:
  explicit PullView(PullOutput output) : output_(output) {}
  ~PullView() { clear(); }
  PullView(const PullView&) = delete;
  PullView& operator=(const PullView&) = delete;

  // They refer to this object.
  image::PullProgress progress();

  void begin(std::size_t layers, std::uint64_t bytes);
  void layer(const image::LayerProgress& progress);
  void unpack(std::uint64_t done, std::uint64_t total);
  void note(const std::string& sentence);
  // The lines as they are now, each no longer than `columns`.
  std::vector<std::string> drawn(std::size_t columns) const;

 private:
  struct Layer {
    std::string digest;
    std::uint64_t done = 0, total = 0;
    bool over = false;
  };
  void draw(bool now);
  void clear();

  PullOutput output_;
  std::map<std::size_t, Layer> layers_;  // by their place; those that were heard of
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t unpacked_ = 0, to_unpack_ = 0;
  std::size_t lines_shown_ = 0;
  std::chrono::steady_clock::time_point last_ = {};
};

}  // namespace caisson::cli
