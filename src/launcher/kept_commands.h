// The commands of a sandbox whose output is kept, and who reads them: the main command of a
// sandbox that lives for one, under number 0, and those of a kept sandbox whose client asked to
// keep them (kKeep), numbered from 1.
//
// The newest output of each is kept; every reader has a place in it and is sent what it has credit
// for, so that one that reads slowly, or not at all, costs its credit and no more, and delays
// nobody. Where the kept bytes have moved on past a reader's place it is told how many it missed
// and goes on with the oldest that are left. Only a command of which much is kept (kMostLag behind
// what the guest may send at once) waits for those who follow it, so that they miss nothing: while
// one lags by more than kMostLag the guest gets no more credit, but for kLagPatienceUs at most
// without that one taking a byte. A command that has ended stays for kEndedUs, so that
// who comes late still learns how it ended.
//
// Bounded, whatever clients and commands do: kMostRunning, kMostEnded, kMostReaders, kMostOutput
// for all output together, kMostInput for what waits to be read. Pointers to commands are good
// until forget_old(). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/proto.h"
#include "launcher/output_tail.h"
#include "launcher/peer.h"

namespace caisson::launcher {

// Input of clients that the guest has not granted room for yet.
struct WaitingInput {
  std::uint64_t client = 0;
  std::uint32_t stream = 0;
  std::string bytes;
};

struct KeptCommand {
  std::uint32_t number = 0;  // 0: the main command
  std::string label;
  OutputTail tail;
  std::uint32_t guest_stream = 0;  // 0: ended, or not begun
  std::uint32_t pid = 0;           // inside; 0: not started
  std::uint64_t started_ms = 0;    // Unix time
  std::deque<WaitingInput> input;
  std::size_t input_bytes = 0;
  enum class Input : std::uint8_t { kOpen, kFinishing, kClosed } input_state = Input::kOpen;
  // How it ended: the payload of a CLOSE frame.
  std::optional<std::string> close;
  std::uint64_t forget_at_us = 0;  // of an ended one
  bool waits_for_readers = false;
  bool ends_sandbox = false;

  bool is_main() const { return number == 0; }
};

class KeptCommands {
 public:
  static constexpr std::size_t kMostRunning = 200;
  static constexpr std::size_t kMostEnded = 64;
  static constexpr std::size_t kMostReaders = 256;
  static constexpr std::size_t kMostOutput = 8u << 20;
  static constexpr std::size_t kMostInput = 8u << 20;        // of all commands
  static constexpr std::size_t kMostInputEach = 512 * 1024;  // of one
  static constexpr std::size_t kUsualKept = 64 * 1024;
  static constexpr std::uint64_t kEndedUs = 30'000'000;
  static constexpr std::size_t kMostLag = proto::kInitialCredit;
  // Both channels can fill up what was granted before the guest is held back.
  static constexpr std::size_t kKeptToWait = kMostLag + 2 * proto::kInitialCredit;
  static constexpr std::uint64_t kLagPatienceUs = 60'000'000;

  void add_main() { (void)commands_[0]; }
  // Whether another command, with its reader, or another reader fits. Error: resource_exhausted.
  Status check_room() const;
  Status check_reader_room() const;
  // What check_room() allowed; `keeps` bytes of output, at most OutputTail::kMaxBytes.
  KeptCommand& add(std::string label, std::size_t keeps);
  // nullptr: there is none of that number (any more).
  KeptCommand* find(std::uint64_t number);
  // All but the main command, in the order of their numbers.
  const std::map<std::uint32_t, KeptCommand>& all() const { return commands_; }

  // Whether the command has to wait for one of its readers.
  bool must_wait(const KeptCommand& command) const;
  // Looks for readers whom no command waits for any longer.
  void watch_lag(std::uint64_t now_us);
  void add_output(KeptCommand& command, proto::Channel channel, std::string_view bytes);
  // Takes input of a reader of that command. False: it is dropped, since nobody will read it.
  // Error: more than the reader was granted (invalid_argument, which breaks its connection), or
  // more than is held back for a command that does not read (resource_exhausted).
  Result<bool> add_input(KeptCommand& command, std::uint64_t client, std::uint32_t stream,
                         std::string bytes);
  // Takes at most so many bytes of what waits, from one client.
  std::optional<WaitingInput> take_input(KeptCommand& command, std::size_t most);
  void close_input(KeptCommand& command);
  // No more output comes: readers get what is left, then a CLOSE with this. The first call counts.
  void end(KeptCommand& command, std::string payload, std::uint64_t now_us);
  void end_all(const std::string& payload, std::uint64_t now_us);

  // Values of kAttach: until the byte that is the newest now; to the command's end; the same, but
  // only what comes from now on.
  enum class From : std::uint8_t { kKept = 0, kOldest = 1, kNow = 2 };
  // What check_reader_room() allowed.
  void attach(KeptCommand& command, std::uint64_t client, std::uint32_t stream, From from);
  // Which command a client's stream reads; nullptr: none.
  KeptCommand* read_by(std::uint64_t client, std::uint32_t stream);
  bool has_client(std::uint64_t client) const;
  // A reader's CREDIT. Error: the client broke the protocol.
  Status take_credit(std::uint64_t client, const proto::Frame& frame);
  // A reader wants no more, or is told why it gets no more: its stream is closed with that.
  void leave(std::uint64_t client, std::uint32_t stream, std::string payload = {});
  // What its input's credit is after so many bytes went on; false where the reader has gone.
  bool grant_input(std::uint64_t client, std::uint32_t stream, std::size_t bytes);
  void drop_client(std::uint64_t client);

  // Sends to every reader what it has credit for; those that have all of it are closed. `peer_of`
  // gives a client's connection.
  using PeerOf = std::function<Peer&(std::uint64_t client)>;
  void send(const PeerOf& peer_of);

  // Forgets ended commands whose time is over, and those that are too many.
  void forget_old(std::uint64_t now_us);
  // When forget_old() has something to do; the largest number: never.
  std::uint64_t next_forget_us() const;

 private:
  struct Reader {
    std::uint64_t client = 0;
    std::uint32_t stream = 0;
    KeptCommand* command = nullptr;
    std::uint64_t place = 0;
    std::optional<std::uint64_t> until;         // none: follows
    std::uint64_t seen_place = 0, seen_us = 0;  // when watch_lag() saw it move
    bool given_up = false;                      // nobody waits for it any longer
    bool greeted = false;                       // was told which command it reads
    bool told_input_closed = false;
    std::optional<std::string> leaves;  // wants no more, or may not: what its CLOSE says
    std::int64_t credit[3] = {proto::kInitialCredit, proto::kInitialCredit, proto::kInitialCredit};
  };
  Reader* reader(std::uint64_t client, std::uint32_t stream);
  bool is_read(const KeptCommand& command) const;
  static bool lags(const Reader& reader);
  // What no reader that is waited for has been sent.
  std::size_t unread(const KeptCommand& command) const;
  // True when the reader's stream is closed.
  static bool send_to(Reader& reader, Peer& peer);
  static bool send_output(Reader& reader, Peer& peer);
  void forget(std::uint32_t number);
  void bound_output();

  std::map<std::uint32_t, KeptCommand> commands_;
  std::vector<Reader> readers_;
  std::uint32_t last_number_ = 0;
  std::size_t input_bytes_ = 0;
};

}  // namespace caisson::launcher
