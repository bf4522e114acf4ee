// Sandboxes made ahead, so that a client's create finds one that is up already.
//
// For each recipe of the operator's a number of sandboxes is kept ready: namespaces, mounts and
// guest are there, nobody has run anything in them. What is taken is made anew in the background, a
// few at a time, and after a failure not before a pause that doubles. Making one takes as much of
// the processors as several commands do: as long as sandboxes are taken, and for a moment
// afterwards, only a quarter of the pool is kept filled, one after another. A sandbox that ended by
// itself is noticed and replaced. What was not taken when the pool is dropped is ended.
//
// Beside these there are some places for whatever else is in use, as the templates are that teams
// have built: a recipe of which sandboxes were taken twice in ten minutes has one ready, as long as
// it is taken now and then. Where more recipes are in use than there are places, those give way
// that were taken longest ago. Belongs to the loop.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fleet/box_client.h"
#include "fleet/host.h"
#include "io/loop.h"
#include "vault/vault.h"

namespace caisson::fleet {

// A sandbox that is up, and the connection to it.
struct Ready {
  Made made;
  std::shared_ptr<BoxClient> client;  // shared with requests that are under way
  std::string keys = {};              // vault::NetworkKeys::number, where the pool gave it some
};

class Pool {
 public:
  // How many of each recipe are kept ready.
  using Sizes = std::map<Recipe, std::size_t>;

  struct Options {
    // How long after the last one was taken the pool is filled again: longer than a first command.
    io::Clock::duration quiet = std::chrono::milliseconds(200);
    std::size_t places = 0;  // for recipes in use that `sizes` lacks
    // How long a recipe that nobody takes is in use.
    io::Clock::duration in_use = std::chrono::minutes(10);
    // What sandboxes with a network get, whatever it is; null: none gets any. It may block.
    std::function<Result<vault::NetworkKeys>()> make_keys = nullptr;
  };

  // The host outlives the loop.
  Pool(io::Loop& loop, Sizes sizes, Host& host, Options options);
  ~Pool();
  // Before this nothing is made ahead.
  void start();
  // Ends what is ready, and waits until it is gone, at most so long. Nothing is made any more.
  io::Async<void> close(io::Clock::duration time);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // One that is ready, or one that is made now. `image_id`: what the recipe's image means now,
  // which is a name that may have meant another one when sandboxes were made ahead; these end.
  // Empty: they are all right. Errors: those of making and connecting.
  io::Async<Result<Ready>> take(Recipe recipe, std::string image_id = "");

  // One that is made now and is like no other: with these keys.
  io::Async<Result<Ready>> make(Recipe recipe, std::shared_ptr<const Fd> keys);

  struct Counts {
    std::size_t ready = 0, wanted = 0, making = 0;
    std::uint64_t taken_total = 0, missed_total = 0, failed_total = 0;
  };
  Counts counts() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace caisson::fleet
