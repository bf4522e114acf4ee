// The beginning of a layer's entries, or what follows it: how the worker makes a layer of usual
// size in one reading, and yet makes only little of one that turns out to be over a limit at its
// ten millionth entry. The first reading passes on what the budget allows and only counts the rest;
// if there was a rest and the layer is acceptable, a second one passes that on. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "image/worker/unpack.h"

namespace caisson::image {

// What is made of a layer before anybody knows the whole of it.
struct PortionBudget {
  std::uint64_t entries = ~std::uint64_t{0};
  std::uint64_t bytes = ~std::uint64_t{0};  // of files, holes included
};

class Portion final : public EntrySink {
 public:
  // Borrows the sink. The first `skipped` entries are left out; `full` is called once, at the first
  // entry that the budget has no room for.
  Portion(EntrySink& sink, std::uint64_t skipped, PortionBudget budget, std::function<void()> full)
      : sink_(sink), skipped_(skipped), budget_(budget), when_full_(std::move(full)) {}

  bool full() const { return full_; }
  // How many entries the sink has had.
  std::uint64_t passed() const { return passed_; }

  Status make_directory(const EntryName& name, const EntryAttributes& attributes) override {
    return takes(0) ? sink_.make_directory(name, attributes) : Status();
  }
  Status make_symlink(const EntryName& name, std::string_view target,
                      const EntryAttributes& attributes) override {
    return takes(0) ? sink_.make_symlink(name, target, attributes) : Status();
  }
  Status make_pipe(const EntryName& name, const EntryAttributes& attributes) override {
    return takes(0) ? sink_.make_pipe(name, attributes) : Status();
  }
  Status make_hard_link(const EntryName& name, const EntryName& target) override {
    return takes(0) ? sink_.make_hard_link(name, target) : Status();
  }
  Status begin_file(const EntryName& name, std::uint64_t size,
                    const EntryAttributes& attributes) override {
    in_file_ = takes(size);
    return in_file_ ? sink_.begin_file(name, size, attributes) : Status();
  }
  Status write_file(std::string_view bytes, std::uint64_t offset) override {
    return in_file_ ? sink_.write_file(bytes, offset) : Status();
  }
  Status end_file() override { return in_file_ ? sink_.end_file() : Status(); }
  Status white_out(const EntryName& name) override {
    return takes(0) ? sink_.white_out(name) : Status();
  }
  Status make_opaque(const EntryName& directory) override {
    return takes(0) ? sink_.make_opaque(directory) : Status();
  }

 private:
  // Whether the next entry, of so many bytes, is one of ours.
  bool takes(std::uint64_t bytes) {
    if (skipped_ > 0) {
      --skipped_;
      return false;
    }
    if (full_) return false;
    if (budget_.entries == 0 || bytes > budget_.bytes) {
      full_ = true;
      when_full_();
      return false;
    }
    --budget_.entries;
    budget_.bytes -= bytes;
    ++passed_;
    return true;
  }

  EntrySink& sink_;
  std::uint64_t skipped_, passed_ = 0;
  PortionBudget budget_;
  std::function<void()> when_full_;
  bool full_ = false, in_file_ = false;
};

}  // namespace caisson::image
