// Turns at work of which only so much may go on at once, and one at a time for each key, so that
// who has much of it does not hold up the others. For work that takes long in the loop's pool.
//
// Turns are given in the order in which they were asked for, as far as their keys are free. Belongs
// to the loop, which outlives it; shared by whoever takes turns.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "io/loop.h"

namespace caisson::io {

class Turns {
 public:
  Turns(Loop& loop, std::size_t most) : most_(most), changed_(loop) {}

  // Gives the turn, or the place in the queue, back with its end.
  class Place;
  using Turn = std::unique_ptr<Place>;
  // Waits for a turn. Without Turns there is none to wait for.
  static Async<Turn> take(std::shared_ptr<Turns> turns, std::string key);

 private:
  struct Entry {
    std::string key;
    bool works = false;
  };
  bool is_free(const std::string& key) const;
  bool may_start(const Entry& entry) const;

  const std::size_t most_;
  Event changed_;  // a turn was given or has ended
  std::list<Entry> entries_;
};

class Turns::Place {
 public:
  Place(std::shared_ptr<Turns> turns, std::string key);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  friend class Turns;
  std::shared_ptr<Turns> turns_;
  std::list<Entry>::iterator entry_;
};

}  // namespace caisson::io
