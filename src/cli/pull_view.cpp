#include "cli/pull_view.h"

#include <algorithm>

#include "cli/messages.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace caisson::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::size_t kShortDigest = 12;
constexpr std::size_t kMaxBar = 30;

std::string bar(std::uint64_t done, std::uint64_t total, std::size_t width) {
  const std::size_t full =
      total == 0
          ? width
          : static_cast<std::size_t>(static_cast<double>(std::min(done, total)) /
                                     static_cast<double>(total) * static_cast<double>(width));
  return "[" + std::string(full, '#') + std::string(width - full, '.') + "]";
}

}  // namespace

image::PullProgress PullView::progress() {
  return {.begin = [this](std::size_t layers, std::uint64_t bytes) { begin(layers, bytes); },
          .layer = [this](const image::LayerProgress& now) { layer(now); },
          .unpack = [this](std::uint64_t done, std::uint64_t total) { unpack(done, total); },
          .note = [this](const std::string& sentence) { note(sentence); }};
}

void PullView::begin(std::size_t layers, std::uint64_t bytes) {
  count_ = layers;
  bytes_ = bytes;
  draw(true);
}

void PullView::layer(const image::LayerProgress& progress) {
  Layer& layer = layers_[progress.index];
  const bool over = progress.state != image::LayerProgress::State::kLoading;
  const bool news = over && !layer.over;
  layer = {.digest = std::string(progress.digest.substr(0, kShortDigest)),
           .done = progress.done,
           .total = progress.total,
           .over = over};
  if (output_ == PullOutput::kLines && news) {
    const bool here = progress.state == image::LayerProgress::State::kPresent;
    write_all(2, "layer " + layer.digest + ": " + size_text(layer.total) +
                     (here ? ", here already\n" : "\n"));
  }
  draw(news);
}

void PullView::unpack(std::uint64_t done, std::uint64_t total) {
  unpacked_ = done;
  to_unpack_ = total;
  draw(done == total);
}

void PullView::note(const std::string& sentence) {
  if (output_ == PullOutput::kNothing) return;
  clear();
  say(sentence);
  draw(true);
}

std::vector<std::string> PullView::drawn(std::size_t columns) const {
  std::uint64_t done = 0;
  std::size_t over = 0;
  for (const auto& [place, layer] : layers_) {
    done += layer.done;
    if (layer.over) ++over;
  }
  std::string all = "layers " + std::to_string(over) + "/" + std::to_string(count_) + "  " +
                    size_text(done) + " of " + size_text(bytes_);
  if (to_unpack_ > 0) {
    all += "  unpacking " + size_text(unpacked_) + " of " + size_text(to_unpack_);
  }
  std::vector<std::string> lines = {std::move(all)};
  const std::size_t width = std::min(kMaxBar, columns > 50 ? columns - 50 : std::size_t{0});
  for (const auto& [place, layer] : layers_) {
    if (layer.over) continue;
    std::string line = layer.digest + "  ";
    if (width > 4) line += bar(layer.done, layer.total, width) + "  ";
    lines.push_back(line + size_text(layer.done) + " of " + size_text(layer.total));
  }
  // A line that wraps could not be written over. All of it is ASCII.
  for (std::string& line : lines) line.resize(std::min(line.size(), columns));
  return lines;
}

void PullView::draw(bool now) {
  if (output_ != PullOutput::kBars) return;
  const auto time = std::chrono::steady_clock::now();
  if (!now && time - last_ < kRedraw) return;
  last_ = time;
  const std::size_t columns = terminal_size(2).columns;
  const std::vector<std::string> lines = drawn(columns > 1 ? columns - 1 : 79);
  clear();
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_all(2, text);
  lines_shown_ = lines.size();
}

void PullView::clear() {
  if (lines_shown_ == 0) return;
  write_all(2, "\x1b[" + std::to_string(lines_shown_) + "A\r\x1b[J");
  lines_shown_ = 0;
}

}  // namespace caisson::cli
