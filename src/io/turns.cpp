#include "io/turns.h"

#include <algorithm>
#include <utility>

namespace caisson::io {

Turns::Place::Place(std::shared_ptr<Turns> turns, std::string key)
    : turns_(std::move(turns)),
      entry_(turns_->entries_.insert(turns_->entries_.end(), {.key = std::move(key)})) {}

Turns::Place::~Place() {
  turns_->entries_.erase(entry_);
  turns_->changed_.notify();
}

bool Turns::is_free(const std::string& key) const {
  return std::ranges::none_of(entries_,
                              [&](const Entry& entry) { return entry.works && entry.key == key; });
}

bool Turns::may_start(const Entry& entry) const {
  if (std::cmp_greater_equal(std::ranges::count(entries_, true, &Entry::works), most_) ||
      !is_free(entry.key))
    return false;
  // The first that may.
  const auto first = std::ranges::find_if(
      entries_, [&](const Entry& one) { return !one.works && is_free(one.key); });
  return &*first == &entry;
}

Async<Turns::Turn> Turns::take(std::shared_ptr<Turns> turns, std::string key) {
  if (turns == nullptr) co_return nullptr;
  Turn turn = std::make_unique<Place>(turns, std::move(key));
  while (!turns->may_start(*turn->entry_)) co_await turns->changed_.wait();
  turn->entry_->works = true;
  // There may be room for another one, which was not the first until now.
  turns->changed_.notify();
  co_return std::move(turn);
}

}  // namespace caisson::io
