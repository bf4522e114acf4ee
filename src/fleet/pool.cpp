#include "fleet/pool.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace caisson::fleet {
namespace {

// Sandboxes made in the background at once: more would take the processors from who waits.
constexpr std::size_t kMostMaking = 2;
// While they are taken, only what is missing of this part of the wanted ones is made, one at a
// time.
constexpr std::size_t kReservePart = 4;
// A sandbox that is ready is told so often that it is still wanted: a server that dies leaves none.
constexpr auto kRenewEvery = kUnclaimed / 4;
constexpr std::chrono::milliseconds kFirstPause{100}, kLongestPause{30'000};
// Of recipes that were taken of late so many are remembered: they are clients' to invent.
constexpr std::size_t kMostRemembered = 256;

}  // namespace

struct Pool::State : std::enable_shared_from_this<Pool::State> {
  State(io::Loop& owner, Sizes wanted, Host& makes, Options chosen)
      : loop(owner),
        sizes(std::move(wanted)),
        host(makes),
        options(std::move(chosen)),
        made_one(owner) {}

  struct Use {
    io::Clock::time_point last;
    std::uint64_t times = 0;
  };

  io::Loop& loop;
  const Sizes sizes;
  Host& host;
  const Options options;
  std::map<Recipe, Use> uses;  // of recipes that `sizes` lacks
  std::set<Recipe> in_use;     // of these, those that have a place
  std::map<Recipe, std::deque<Ready>> ready;
  std::map<Recipe, std::size_t> under_way;
  std::vector<std::shared_ptr<BoxClient>> leaving;  // told to end, not gone yet
  std::size_t making = 0;
  std::size_t waiting = 0;  // takers for whom one is made
  std::optional<io::Clock::time_point> last_take;
  bool waits_for_quiet = false;
  bool started = false, closed = false;
  bool pausing = false;
  std::chrono::milliseconds pause = kFirstPause;
  Counts totals;
  io::Event made_one;  // or failed to

  io::Async<Result<Ready>> prepare(Recipe recipe, std::shared_ptr<const Fd> keys);
  // While others wait for theirs, nothing is made ahead.
  io::Async<Result<Ready>> make_now(Recipe recipe, std::shared_ptr<const Fd> keys);
  // Remembers that it was taken.
  void note_use(const Recipe& recipe);
  // Gives the places to the recipes that were taken last, and ends what is ready of others.
  void give_places();
  // Starts what is missing and may be made now.
  void refill();
  // Of one recipe, of which so many are wanted, until `making` is `most`.
  void refill(const Recipe& recipe, std::size_t wanted, std::size_t most);
  bool is_quiet() const {
    return !last_take.has_value() || io::Clock::now() - *last_take >= options.quiet;
  }
  static io::Async<void> refill_when_quiet(std::shared_ptr<State> self);
  static io::Async<void> fill_one(std::shared_ptr<State> self, Recipe recipe);
  static io::Async<void> pause_then_refill(std::shared_ptr<State> self);
  static io::Async<void> renew(std::shared_ptr<State> self);
  void end(Ready& one) {
    one.client->on_gone(nullptr);
    one.client->shutdown();
    leaving.push_back(std::move(one.client));
  }
  void end_others(std::deque<Ready>& row, const std::string& image_id) {
    for (Ready& one : row)
      if (one.made.image != image_id) end(one);
    std::erase_if(row, [](const Ready& one) { return one.client == nullptr; });
  }
  void forget_dead(std::deque<Ready>& row) {
    std::erase_if(row, [](const Ready& one) { return one.client->gone(); });
  }
};

io::Async<Result<Ready>> Pool::State::prepare(Recipe recipe, std::shared_ptr<const Fd> keys) {
  std::string number;
  if (keys == nullptr && options.make_keys && !recipe.network.empty()) {
    auto make_keys = options.make_keys;
    CO_TRY_ASSIGN(vault::NetworkKeys fresh, co_await loop.in_pool(std::move(make_keys)));
    recipe.authority = std::move(fresh.certificate);
    keys = std::move(fresh.file);
    number = std::move(fresh.number);
  }
  CO_TRY_ASSIGN(Reached made,
                co_await make_and_reach(loop, host, std::move(recipe), std::move(keys)));
  co_return Ready{
      .made = std::move(made.made), .client = std::move(made.client), .keys = std::move(number)};
}

io::Async<void> Pool::State::fill_one(std::shared_ptr<State> self, Recipe recipe) {
  auto made = co_await self->prepare(recipe, nullptr);
  if (made.has_value() && self->closed) {
    made->client->shutdown();
    co_await made->client->wait_gone();
  }
  --self->making;
  --self->under_way[recipe];
  self->made_one.notify();
  if (!made.has_value()) {
    ++self->totals.failed_total;
    // Its template may be gone, which is no reason to hold up the operator's.
    if (self->uses.erase(recipe) > 0) {
      self->give_places();
      self->refill();
      co_return;
    }
    if (!self->pausing && !self->closed) {
      self->pausing = true;
      self->loop.spawn(pause_then_refill(self));
    }
    co_return;
  }
  self->pause = kFirstPause;
  if (self->closed) co_return;
  const std::weak_ptr<State> weak = self;
  made->client->on_gone([weak, recipe] {
    // Not from within the connection that ends.
    const auto state = weak.lock();
    if (state == nullptr || state->closed) return;
    state->loop.post([state, recipe] {
      state->forget_dead(state->ready[recipe]);
      state->refill();
    });
  });
  self->ready[recipe].push_back(std::move(*made));
  self->give_places();  // it may have lost its own meanwhile
  self->refill();
}

io::Async<void> Pool::State::pause_then_refill(std::shared_ptr<State> self) {
  co_await io::Loop::sleep(self->pause);
  self->pause = std::min(self->pause * 2, kLongestPause);
  self->pausing = false;
  self->refill();
}

io::Async<void> Pool::State::renew(std::shared_ptr<State> self) {
  while (!self->closed) {
    co_await io::Loop::sleep(kRenewEvery);
    self->give_places();
    self->refill();
    for (auto& [recipe, row] : self->ready) {
      for (Ready& one : row) {
        auto ask = [](std::shared_ptr<BoxClient> client) -> io::Async<void> {
          proto::Fields fields;
          fields.put_u64(proto::Tag::kTimeLimitMs, std::chrono::milliseconds(kUnclaimed).count());
          std::ignore = co_await client->request(proto::ControlOperation::kSetDeadline, fields);
        };
        self->loop.spawn(ask(one.client));
      }
    }
  }
}

io::Async<void> Pool::State::refill_when_quiet(std::shared_ptr<State> self) {
  while (!self->closed && !self->is_quiet())
    co_await io::Loop::sleep(*self->last_take + self->options.quiet - io::Clock::now());
  self->waits_for_quiet = false;
  self->refill();
}

void Pool::State::note_use(const Recipe& recipe) {
  if (options.places == 0 || sizes.contains(recipe)) return;
  Use& use = uses[recipe];
  const auto now = io::Clock::now();
  // What was taken long ago says nothing of now.
  use.times = now - use.last > options.in_use ? 1 : use.times + 1;
  use.last = now;
  if (uses.size() <= kMostRemembered) return;
  uses.erase(
      std::ranges::min_element(uses, {}, [](const auto& entry) { return entry.second.last; }));
}

void Pool::State::give_places() {
  if (options.places == 0 || closed) return;
  // One time is no use yet: whoever asks for something of his own asks for it once.
  constexpr std::uint64_t kUses = 2;
  const auto now = io::Clock::now();
  std::erase_if(uses, [&](const auto& entry) { return now - entry.second.last > options.in_use; });
  std::vector<std::pair<io::Clock::time_point, Recipe>> latest;
  for (const auto& [recipe, use] : uses)
    if (use.times >= kUses) latest.emplace_back(use.last, recipe);
  std::ranges::sort(latest, std::ranges::greater(), [](const auto& one) { return one.first; });
  if (latest.size() > options.places) latest.resize(options.places);
  in_use.clear();
  for (auto& [last, recipe] : latest) in_use.insert(std::move(recipe));
  for (auto row = ready.begin(); row != ready.end();) {
    if (sizes.contains(row->first) || in_use.contains(row->first)) {
      ++row;
      continue;
    }
    for (Ready& one : row->second) end(one);
    row = ready.erase(row);
  }
  std::erase_if(leaving, [](const auto& client) { return client->gone(); });
  std::erase_if(under_way, [](const auto& entry) { return entry.second == 0; });
}

void Pool::State::refill(const Recipe& recipe, std::size_t wanted, std::size_t most) {
  while (making < most && ready[recipe].size() + under_way[recipe] < wanted) {
    ++making;
    ++under_way[recipe];
    loop.spawn(fill_one(shared_from_this(), recipe));
  }
}

void Pool::State::refill() {
  // What takers wait for goes first; the last of them comes back here.
  if (!started || closed || pausing || waiting > 0) return;
  const bool calm = is_quiet();
  if (!calm && !waits_for_quiet) {
    waits_for_quiet = true;
    loop.spawn(refill_when_quiet(shared_from_this()));
  }
  const std::size_t most = calm ? kMostMaking : 1;
  for (const auto& [recipe, wanted] : sizes) {
    refill(recipe, calm ? wanted : (wanted + kReservePart - 1) / kReservePart, most);
  }
  // These are made when nothing else is to be done: nobody has asked for them.
  if (calm)
    for (const Recipe& recipe : in_use) refill(recipe, 1, most);
}

Pool::Pool(io::Loop& loop, Sizes sizes, Host& host, Options options)
    : state_(std::make_shared<State>(loop, std::move(sizes), host, std::move(options))) {}

void Pool::start() {
  state_->started = true;
  state_->loop.spawn(State::renew(state_));
  state_->refill();
}

Pool::~Pool() {
  state_->closed = true;
  for (auto& [recipe, row] : state_->ready) {
    for (Ready& one : row) one.client->on_gone(nullptr);
  }
}

io::Async<void> Pool::close(io::Clock::duration time) {
  const std::shared_ptr<State> state = state_;
  state->closed = true;
  auto all = std::exchange(state->ready, {});
  for (auto& [recipe, row] : all) {
    for (Ready& one : row) {
      one.client->on_gone(nullptr);
      one.client->shutdown();
    }
  }
  const auto until = io::Clock::now() + time;
  for (auto& [recipe, row] : all) {
    for (Ready& one : row) co_await one.client->wait_gone_until(until);
  }
  for (const auto& client : std::exchange(state->leaving, {}))
    co_await client->wait_gone_until(until);
  // Those that are being made end as soon as they can.
  while (state->making > 0 && io::Clock::now() < until) co_await state->made_one.wait_until(until);
}

io::Async<Result<Ready>> Pool::take(Recipe recipe, std::string image_id) {
  const std::shared_ptr<State> state = state_;
  state->last_take = io::Clock::now();
  state->note_use(recipe);
  state->give_places();
  const auto row = state->ready.find(recipe);
  if (row != state->ready.end()) {
    state->forget_dead(row->second);
    if (!image_id.empty()) state->end_others(row->second, image_id);
    if (!row->second.empty()) {
      Ready one = std::move(row->second.front());
      row->second.pop_front();
      one.client->on_gone(nullptr);
      ++state->totals.taken_total;
      // After the client has its answer.
      state->loop.post([state] { state->refill(); });
      co_return one;
    }
  }
  ++state->totals.missed_total;
  co_return co_await state->make_now(std::move(recipe), nullptr);
}

io::Async<Result<Ready>> Pool::make(Recipe recipe, std::shared_ptr<const Fd> keys) {
  const std::shared_ptr<State> state = state_;
  state->last_take = io::Clock::now();
  co_return co_await state->make_now(std::move(recipe), std::move(keys));
}

io::Async<Result<Ready>> Pool::State::make_now(Recipe recipe, std::shared_ptr<const Fd> keys) {
  ++waiting;
  auto made = co_await prepare(std::move(recipe), std::move(keys));
  --waiting;
  refill();
  co_return made;
}

Pool::Counts Pool::counts() const {
  Counts counts = state_->totals;
  counts.making = state_->making;
  for (const auto& [recipe, row] : state_->ready) counts.ready += row.size();
  for (const auto& [recipe, wanted] : state_->sizes) counts.wanted += wanted;
  counts.wanted += state_->in_use.size();
  return counts;
}

}  // namespace caisson::fleet
