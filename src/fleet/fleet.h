// The server's sandboxes: who has which, in what state, until when.
//
// A Fleet makes sandboxes (taking prepared ones from its pool), keeps their records in the
// database, holds a connection to each that runs, and takes up those that it finds when the server
// starts again. All of it belongs to the loop; what blocks goes to the loop's pool. APIs translate
// requests to these calls and nothing else; teams are told apart here: another team's sandbox is
// not there.
#pragma once

#include <caisson/network.h>
#include <caisson/result.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "fleet/box_client.h"
#include "io/loop.h"
#include "vault/vault.h"

namespace caisson::fleet {

using WallClock = std::chrono::system_clock;

enum class State : std::uint8_t { kRunning, kPaused };

// What a pause keeps. kFiles: nothing that runs outlives it; a resumed sandbox boots anew from its
// files, and no traffic resumes it.
enum class Keep : std::uint8_t { kMemory, kFiles };
// How a paused one is resumed: with what its pause kept, or from its files alone in any case.
enum class Resume : std::uint8_t { kWhatWasKept, kReboot };

// What is to be made. Values are as the client gave them; create() judges them.
struct NewSandbox {
  std::string template_name;                    // a template's name or id, or the name of an image
  std::optional<std::chrono::seconds> timeout;  // nullopt: the server's usual one
  enum class OnTimeout : std::uint8_t { kKill, kPause } on_timeout = OnTimeout::kKill;
  Keep on_timeout_keeps = Keep::kMemory;  // for kPause
  bool auto_resume = false;
  bool secure = true;          // an access token is asked for
  bool public_traffic = true;  // ports are reached without a traffic token
  std::string mask_request_host;
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> env;
  // What may leave it, instead of what the template says; the floor is fixed whatever it says. And
  // how its API words that, a JSON object for view().network.
  std::optional<policy::NetworkPolicy> network;
  std::string network_fields = "{}";
  // Values for the secrets of that network.
  std::vector<vault::GivenSecret> secrets;
  // Of one that is made like another: the other's, for those that have none there.
  std::string sealed_secrets = {};
  // A spec in JSON (policy/document.h) that is laid over the template's values; what it says of
  // the image, the time and variables stands above already. Empty: the template as it is.
  std::string spec;
};

// A sandbox as clients see it.
struct SandboxView {
  std::string id;  // [a-z0-9]+
  std::string template_id;
  std::string alias;  // the template's name; may be empty
  State state = State::kRunning;
  WallClock::time_point started, end;  // end: of a paused one, when it was paused
  std::uint32_t cpus = 1;
  std::uint64_t memory_mib = 0, disk_mib = 0;
  std::map<std::string, std::string> metadata;
  NewSandbox::OnTimeout on_timeout = NewSandbox::OnTimeout::kKill;
  Keep on_timeout_keeps = Keep::kMemory;
  bool auto_resume = false;
  Keep paused_keeps = Keep::kMemory;  // of a paused one: what its pause kept
  bool public_traffic = true;
  std::string mask_request_host;
  std::string network = "{}";  // as E2B's API worded it; "{}": it was set by another, or not at all
  bool has_network = false;    // it was made with a gateway
  std::string access_token;    // empty: none is asked for
  std::string traffic_token;   // empty: none is asked for
};

// An entry of a sandbox's log: what happened to it, and what was run in it. No output, no arguments
// and no variables: they may be secret, and the log is kept on disk.
struct Event {
  WallClock::time_point time;
  enum class Level : std::uint8_t { kDebug, kInfo, kWarn, kError } level = Level::kInfo;
  std::string message;
  std::map<std::string, std::string> fields;
};
struct EventQuery {
  std::optional<WallClock::time_point> from, to;  // both inclusive
  Event::Level least = Event::Level::kDebug;
  std::string text;  // that the message holds
  enum class Order : std::uint8_t { kOldestFirst, kNewestFirst } order = Order::kOldestFirst;
  std::uint32_t limit = 1000;
};

// One sandbox of a running server; held by shared_ptr, since requests of its clients outlive its
// end. Belongs to the loop.
class Served {
 public:
  virtual ~Served() = default;
  virtual const SandboxView& view() const = 0;
  virtual const std::string& team() const = 0;
  // Variables of every command: the template's, then the client's, then E2B_SANDBOX and its like.
  virtual const std::map<std::string, std::string>& env() const = 0;
  virtual std::string default_user() const = 0;
  virtual std::string default_workdir() const = 0;  // empty: the user's home
  // The connection, for a sandbox that runs. Error: unavailable where it is paused or has ended.
  // Borrowed until the loop's next turn: do not keep it over a wait; streams may be kept.
  virtual Result<BoxClient*> client() = 0;
  // It has ended, or is ending: from now on every client is told that there is no such sandbox. Set
  // before anything inside is killed.
  virtual bool ended() const = 0;
  // Wakes at the end.
  virtual io::Async<void> wait_ended() = 0;
  // Puts an entry into its log, with the time of now.
  virtual void note(Event::Level level, std::string message,
                    std::map<std::string, std::string> fields = {}) = 0;
  // The same of a process, by the supervisor's number: that it started, and how it ended. Of an end
  // that nobody notes here the sandbox learns by itself; it is noted once.
  virtual void note_start(std::uint32_t command, std::map<std::string, std::string> fields) = 0;
  virtual void note_end(std::uint32_t command, const Outcome& outcome) = 0;
};

struct ListQuery {
  std::map<std::string, std::string> metadata;
  bool running = true, paused = true;
  std::optional<WallClock::time_point> started_after;  // inclusive
  std::string template_name;                           // empty: all
  bool ascending = false;                              // by start, else the newest first
  std::size_t limit = 100;
  std::string after;  // next_token of the page before
};
struct ListPage {
  std::vector<SandboxView> sandboxes;
  std::string next_token;  // empty: that was all
  std::size_t running = 0;
};

// One sample of what a sandbox uses.
struct Sample {
  WallClock::time_point time;
  double cpu_used_percent = 0;  // of one processor; 100 a processor
  std::uint32_t cpus = 1;
  std::uint64_t memory_used = 0, memory_total = 0, memory_cache = 0;
  std::uint64_t disk_used = 0, disk_total = 0;
};

// Of a sandbox's files.
struct Snapshot {
  std::string image;                                  // of the store
  std::uint64_t cpu_milli = 0, memory = 0, disk = 0;  // 0: unlimited
  std::string shape;                                  // fleet/shape.h
};

// For metrics.
struct Counts {
  std::size_t running = 0, paused = 0;
  // Creates and resumes that were refused: the team, or the whole server, has as many as it may.
  std::uint64_t refused_by_quota = 0, refused_full = 0;
  // Sandboxes made ahead: how many there are and should be; creates that found one or found none.
  std::size_t pool_ready = 0, pool_wanted = 0;
  std::uint64_t pool_taken = 0, pool_missed = 0;
  // Entries of sandboxes' logs that could not be written.
  std::uint64_t events_lost = 0;
};

class Fleet {
 public:
  virtual ~Fleet() = default;

  // Errors: invalid_argument, not_found (template), resource_exhausted (a quota of the team).
  virtual io::Async<Result<std::shared_ptr<Served>>> create(std::string team,
                                                            NewSandbox wanted) = 0;
  // nullptr: there is none (for this team).
  virtual std::shared_ptr<Served> find(std::string_view team, std::string_view id) = 0;
  // Of any team: for the data plane, whose requests carry a sandbox's own token.
  virtual std::shared_ptr<Served> find_any(std::string_view id) = 0;
  virtual std::vector<std::shared_ptr<Served>> all_running() = 0;
  // Error: invalid_argument for a token that is not one.
  virtual Result<ListPage> list(std::string_view team, const ListQuery& query) = 0;

  // All of these: not_found where there is none for this team; failed_precondition where its state
  // does not allow it.
  virtual io::Async<Status> kill(std::string team, std::string id) = 0;
  enum class Timeout : std::uint8_t { kSet, kExtendOnly };
  virtual io::Async<Status> set_timeout(std::string team, std::string id,
                                        std::chrono::seconds from_now, Timeout how) = 0;
  virtual io::Async<Status> pause(std::string team, std::string id, Keep keep) = 0;
  // True: it was paused and runs again; false: it ran, and its time was extended where it was
  // shorter.
  virtual io::Async<Result<bool>> connect(std::string team, std::string id,
                                          std::chrono::seconds timeout, Resume how) = 0;
  // From now on this may leave a running sandbox (NewSandbox::network). Errors: also those of
  // Sandbox::set_network().
  // A secret without a value among `secrets` has what the team keeps by that name, or none; one
  // whose name begins with a point is the sandbox's own, and has what it has had.
  virtual io::Async<Status> set_network(std::string team, std::string id,
                                        policy::NetworkPolicy network, std::string fields,
                                        std::vector<vault::GivenSecret> secrets) = 0;
  // What the team keeps by this name has changed, or is kept no more: the sandboxes that use it get
  // it, or are refused what they ask with it. Returns when they have been told. Error: unavailable,
  // where one that lives could not be; its log says why.
  virtual io::Async<Status> renew_secret(std::string team, std::string name) = 0;
  // The files of a sandbox that runs and goes on to run, as an image. It goes again when nothing
  // that the database has refers to it.
  virtual io::Async<Result<Snapshot>> snapshot(std::string team, std::string id) = 0;
  // Sandboxes like this one, with its files as they are now, and with its variables and metadata;
  // each its own error. The call's error is the snapshot's.
  virtual io::Async<Result<std::vector<Result<std::shared_ptr<Served>>>>> fork(
      std::string team, std::string id, std::chrono::seconds timeout, std::size_t count) = 0;
  // Of a sandbox whose client asked for it: resumes it because somebody came. False: it stays.
  virtual io::Async<bool> resume_for_traffic(std::shared_ptr<Served> sandbox) = 0;
  virtual Result<std::vector<Sample>> samples(std::string_view team, std::string_view id,
                                              std::optional<WallClock::time_point> from,
                                              std::optional<WallClock::time_point> to) = 0;
  // Its log, also of one that has ended, as long as it is kept. Error: not_found.
  virtual io::Async<Result<std::vector<Event>>> events(std::string team, std::string id,
                                                       EventQuery query) = 0;
  virtual Counts counts() const = 0;
};

}  // namespace caisson::fleet
