// What one supervisor keeps and does, shared by the files that make it up: supervisor.cpp (its
// loop, its times, its end), guest_frames.cpp (what the guest sends), client_frames.cpp (clients
// and what they send), client_requests.cpp (what they ask of the sandbox itself), command_life.cpp
// (a command's start, end and verdict), kept_life.cpp (commands that survive their client),
// stillness.cpp (a sandbox that is held for a reader of its files, or booted anew).
//
// Streams are numbered by the supervisor on the guest's side and by each client on its own;
// `streams_` is keyed by the guest's number. Nothing here is meant for other folders: they include
// supervisor.h. One thread.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/proto.h"
#include "base/verdict.h"
#include "launcher/command.h"
#include "launcher/kept_commands.h"
#include "launcher/peer.h"
#include "launcher/supervisor.h"
#include "launcher/verdicts.h"

namespace caisson::launcher {

// Starts that are under way are waited for so long before a sandbox is frozen.
inline constexpr std::uint64_t kStartPatienceUs = 2'000'000;
inline constexpr std::size_t kChannels = 3;  // of a stream: proto::Channel

struct Client {
  explicit Client(Fd socket) : peer(std::move(socket)) {}
  Peer peer;
  bool first = false;
  bool greeted = false;
};

// A stream that is open on the guest's side.
struct Stream {
  std::uint64_t client = 0;  // 0: nobody listens (any more)
  std::uint32_t client_stream = 0;
  proto::Kind kind = proto::Kind::kFile;
  std::unique_ptr<Command> command;         // kExec
  std::int64_t from_guest[kChannels] = {};  // credit that the guest may still use
  std::int64_t to_guest[kChannels] = {};    // credit that the client may still use
  KeptCommand* kept = nullptr;              // of a command whose output is kept
  std::size_t held_back[kChannels] = {};    // credit that waits for its readers
  bool started = false;                     // kExec: the guest has said so
  bool last = false;                        // the only one of a single sandbox
  bool cut = false;              // the guest was told that nobody waits for the output any more
  std::string program;           // of a command
  std::uint64_t started_ms = 0;  // Unix time, of a command
};

// Whether a file made inside can lie on the host.
bool has_writable_grant(const wall::Plan& plan);

class Supervisor {
 public:
  explicit Supervisor(SupervisorInput input);

  Status run();

 private:
  // supervisor.cpp
  void greet();
  std::uint64_t next_deadline() const;
  void turn();
  void check_commands();
  void end(std::string why);
  // The launcher says that a secret was misused (on_violation: terminate).
  void obey();
  // The guest has been born, or never will be; false where the sandbox has ended with that.
  bool take_birth();
  bool unborn() const { return box_->birth_fd() >= 0; }
  // Its channel or itself is gone: where it was not yet born, that is said as why.
  void guest_gone(std::string why);
  // After the end: what waits for clients, and the last output, reaches those that read.
  void say_farewell();
  void send_kept_output();

  // guest_frames.cpp
  void read_guest();
  void take_from_guest(const proto::Frame& frame);
  void guest_event(Stream& stream, const proto::Frame& frame);
  void guest_data(std::uint32_t id, Stream& stream, const proto::Frame& frame);
  void guest_close(std::uint32_t id, Stream& stream, std::string_view payload);
  void guest_cheated(const std::string& how);
  // Whether the sandbox ends with this stream.
  static bool lives_for(const Stream& stream) {
    return stream.last ||
           (stream.kept != nullptr && (stream.kept->is_main() || stream.kept->ends_sandbox));
  }

  // client_frames.cpp
  void accept_client();
  // Ends or orphans what the client has open; forget_client() does not.
  void drop_client(std::uint64_t id);
  void forget_client(std::uint64_t id);
  // What becomes of a stream whose client is gone.
  void orphan(std::uint32_t id, Stream& stream);
  void refuse(std::uint64_t client, std::uint32_t stream, const Error& error);
  void read_client(std::uint64_t id);
  // After the end: what readers of kept output grant. Drops the client where it is gone.
  void read_credit(std::uint64_t id);
  // These return an error where the client broke the protocol, which ends its connection.
  Status take_from_client(std::uint64_t id, const proto::Frame& frame);
  Status take_on_stream(std::uint32_t id, Stream& stream, const proto::Frame& frame);
  Status open_stream(std::uint64_t id, const proto::Frame& frame);

  // A request that is answered later.
  struct Asked {
    std::uint64_t client;
    proto::Fields head;  // of the answer
  };

  // client_requests.cpp
  Status take_request(std::uint64_t id, const proto::Frame& frame);
  // kFreeze, which is answered once no command's start is under way: until then it is in no group
  // of version 1, and a freeze would not hold it.
  void begin_freeze(std::uint64_t id, const proto::Fields& head);
  void freeze_when_started();
  void answer_freeze(const Result<proto::Fields>& result);
  bool starts_something() const;
  // Of the others: the fields of the answer.
  Result<proto::Fields> answer(proto::ControlOperation operation, const proto::FieldReader& fields);
  Result<proto::Fields> set_deadline(const proto::FieldReader& fields);
  Result<proto::Fields> set_network(const proto::FieldReader& fields);
  Result<proto::Fields> set_frozen(Frozen wanted);
  Result<proto::Fields> tell_usage();
  Result<proto::Fields> tell_limits() const;
  void list_commands(Client& client, const proto::Fields& head) const;
  void list_verdicts(Client& client, const proto::Fields& head) const;
  void tell_state();
  void send_answer(std::uint64_t id, const proto::Fields& head, const Result<proto::Fields>& result,
                   std::vector<Fd> descriptors = {});
  std::uint64_t deadline_ms() const;

  // stillness.cpp
  // From the box that has been born.
  void take_layer();
  // Whether nothing that commands run can go on, or end.
  bool stands_still() const { return frozen_ == Frozen::kYes || (holder_ != 0 && !hold_asked_); }
  // Answered when everything stands still. What is opened from now on waits.
  void begin_hold(std::uint64_t id, const proto::Fields& head);
  // As freeze_when_started().
  void hold_when_started();
  bool transfers_something() const;
  Result<proto::Fields> hold(std::vector<Fd>& descriptors);
  // By the client that holds it, or at its end.
  void release();
  // Whether a client's frame has to wait until the sandbox goes on; then it is taken.
  bool must_wait(std::uint64_t id, const proto::Frame& frame);
  // What waited, once nothing stands in its way. Clients may be dropped by that.
  void take_waiting();
  void forget_waiting(std::uint64_t id);
  struct Waiting {
    std::uint64_t client;
    proto::Frame frame;
  };
  void drop_waiting(const std::function<bool(const Waiting&)>& which);
  Status reboot(std::uint64_t id, const proto::Fields& head, const proto::FieldReader& fields);
  // Everything that ran has ended, as far as the guest knows.
  void finish_reboot(std::string_view close);
  // It was not in time: whoever asked hears so, and the sandbox ends.
  void give_reboot_up();

  // command_life.cpp
  Status open_command(std::uint64_t id, const proto::Frame& frame,
                      const proto::FieldReader& fields);
  // Gives every command that runs this verdict, before the sandbox ends.
  void end_commands_for(Verdict verdict, const std::string& cause, const std::string& detail);
  void finish_command(Stream& stream, std::optional<std::string_view> close);
  void kill_command(std::uint32_t id, Stream& stream);
  void cut_command(std::uint32_t id, Stream& stream);

  // kept_life.cpp
  // Of an OPEN with kKeep: whether it may. Its place among the kept ones, once it is begun.
  Status check_keep(const proto::FieldReader& fields) const;
  void keep_command(std::uint64_t id, std::uint32_t stream, const proto::FieldReader& fields);
  // An OPEN with kAttach. Error: why not.
  Status join_command(std::uint64_t id, std::uint32_t stream, const proto::FieldReader& fields);
  Status take_from_reader(std::uint64_t id, const proto::Frame& frame, KeptCommand& command);
  Status take_input(std::uint64_t id, const proto::Frame& frame, KeptCommand& command);
  // To the guest, as far as it has granted.
  void pass_input(KeptCommand& command);

  // A new entry of streams_, with the first credit of both ends; its key is last_stream_.
  Stream& add_stream(std::uint64_t client, std::uint32_t client_stream, proto::Kind kind);
  // Lets the guest send so many more bytes.
  void grant(std::uint32_t id, Stream& stream, std::uint8_t channel, std::size_t bytes);

  // nullptr: gone, or nobody from the start (0).
  Client* client_of(std::uint64_t id) {
    const auto found = clients_.find(id);
    return found == clients_.end() ? nullptr : &found->second;
  }
  std::map<std::uint32_t, Stream>::iterator find(std::uint64_t client, std::uint32_t stream) {
    return std::find_if(streams_.begin(), streams_.end(), [&](const auto& entry) {
      return entry.second.client == client && entry.second.client_stream == stream;
    });
  }

  const wall::Plan& plan_;
  std::unique_ptr<wall::Box> box_;
  Fd listener_, broker_, orders_;
  proto::Fields command_limits_;
  std::function<Status(wall::Box& box)> on_birth_;
  std::function<void(const Error& why)> on_stillbirth_;
  std::function<void(const SandboxState& state)> on_state_;
  std::function<Status(std::string_view policy)> on_network_;
  Peer guest_;
  std::map<std::uint64_t, Client> clients_;
  std::map<std::uint32_t, Stream> streams_;
  // Ended commands, whose places are let go of when whoever waits for the ends has been told.
  std::vector<std::unique_ptr<Command>> over_;
  std::uint64_t last_client_ = 0;
  std::uint32_t last_stream_ = 1;
  bool greeted_ = false;
  std::uint64_t greet_by_us_ = 0;
  std::uint64_t accept_again_us_ = 0;
  bool ended_ = false;
  std::string end_reason_;
  bool main_opened_ = false;  // the main command, where the sandbox lives for one
  bool settled_ = false;      // whoever made a kept sandbox may go
  Frozen frozen_ = Frozen::kNo;
  // Who waits for a freeze that has not begun, with the head of the answer.
  std::vector<Asked> freezing_;
  std::uint64_t freeze_by_us_ = 0;
  std::uint64_t deadline_us_ = 0;  // of a kept sandbox, CLOCK_MONOTONIC; 0: none
  KeptCommands kept_;
  wall::Handouts layer_;             // of a kept sandbox whose files can be read from outside
  std::uint64_t holder_ = 0;         // the client for whom everything stands still
  std::optional<Asked> hold_asked_;  // it does not yet
  std::uint64_t hold_by_us_ = 0;
  struct Reboot {
    Asked asked;
    std::uint32_t stream;  // the guest's
    Frozen then;
    std::uint64_t by_us;
  };
  std::optional<Reboot> reboot_;
  const std::uint64_t reboot_us_;
  // What clients opened meanwhile, with what they sent on those streams.
  std::deque<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;
  Verdicts verdicts_;
};

std::uint64_t unix_ms();

// What a HELLO frame of ours says, and the check of the other side's.
std::string hello();
Status check_hello(const proto::Frame& frame);

}  // namespace caisson::launcher
