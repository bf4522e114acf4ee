#include "launcher/kept_commands.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace caisson::launcher {

using proto::Channel;
using proto::FrameType;
using proto::Tag;

namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
// What is forgotten at a time when all output together is too much.
constexpr std::size_t kForgetAtOnce = 64 * 1024;
constexpr auto kIn = static_cast<std::uint8_t>(Channel::kIn);

bool ended(const KeptCommand& command) {
  return command.close.has_value();
}

}  // namespace

Status KeptCommands::check_room() const {
  const auto running =
      std::ranges::count_if(commands_, [](const auto& entry) { return !ended(entry.second); });
  if (static_cast<std::size_t>(running) >= kMostRunning)
    return fail(Error::exhausted("this sandbox keeps " + std::to_string(running) +
                                 " commands that run, at most " + std::to_string(kMostRunning) +
                                 " are allowed"));
  return check_reader_room();
}

Status KeptCommands::check_reader_room() const {
  if (readers_.size() >= kMostReaders)
    return fail(Error::exhausted("too many read the output of commands in this sandbox, at most " +
                                 std::to_string(kMostReaders) + " are allowed"));
  return {};
}

KeptCommand& KeptCommands::add(std::string label, std::size_t keeps) {
  const std::uint32_t number = ++last_number_;
  KeptCommand& command = commands_[number];
  command.number = number;
  command.label = std::move(label);
  command.tail = OutputTail(std::min(keeps, OutputTail::kMaxBytes));
  command.waits_for_readers = keeps >= kKeptToWait;
  return command;
}

KeptCommand* KeptCommands::find(std::uint64_t number) {
  if (number > std::numeric_limits<std::uint32_t>::max()) return nullptr;
  const auto found = commands_.find(static_cast<std::uint32_t>(number));
  return found == commands_.end() ? nullptr : &found->second;
}

bool KeptCommands::lags(const Reader& reader) {
  return reader.command->waits_for_readers && !reader.until && !reader.leaves && !reader.given_up &&
         reader.command->tail.end() - reader.place > kMostLag;
}

bool KeptCommands::must_wait(const KeptCommand& command) const {
  return std::ranges::any_of(
      readers_, [&](const Reader& reader) { return reader.command == &command && lags(reader); });
}

void KeptCommands::watch_lag(std::uint64_t now_us) {
  for (Reader& reader : readers_) {
    if (reader.seen_us == 0 || reader.place != reader.seen_place || !lags(reader)) {
      reader.seen_place = reader.place;
      reader.seen_us = now_us;
    } else if (now_us >= reader.seen_us + kLagPatienceUs) {
      reader.given_up = true;
    }
  }
}

std::size_t KeptCommands::unread(const KeptCommand& command) const {
  std::uint64_t oldest = command.tail.end();
  for (const Reader& reader : readers_) {
    if (reader.command == &command && command.waits_for_readers && !reader.given_up)
      oldest = std::min(oldest, reader.place);
  }
  return static_cast<std::size_t>(command.tail.end() - std::max(oldest, command.tail.begin()));
}

void KeptCommands::add_output(KeptCommand& command, Channel channel, std::string_view bytes) {
  command.tail.add(channel, bytes);
  bound_output();
}

void KeptCommands::bound_output() {
  std::size_t cost = 0;
  for (const auto& [number, command] : commands_) cost += command.tail.cost();
  // What everybody has been sent goes first.
  const auto to_spare = [&](const auto& entry) {
    return entry.second.tail.cost() - std::min(entry.second.tail.cost(), unread(entry.second));
  };
  while (cost > kMostOutput) {
    auto& largest = std::ranges::max_element(commands_, {}, to_spare)->second.tail;
    const std::size_t before = largest.cost();
    largest.shrink_to(largest.size() - std::min(largest.size(), kForgetAtOnce));
    cost -= before - largest.cost();
  }
}

Result<bool> KeptCommands::add_input(KeptCommand& command, std::uint64_t client,
                                     std::uint32_t stream, std::string bytes) {
  Reader* const from = reader(client, stream);
  VERIFY(from != nullptr);
  from->credit[kIn] -= static_cast<std::int64_t>(bytes.size());
  if (from->credit[kIn] < 0) return fail(Error::invalid("more bytes than were granted"));
  if (command.input_state != KeptCommand::Input::kOpen) return false;
  if (command.input_bytes + bytes.size() > kMostInputEach ||
      input_bytes_ + bytes.size() > kMostInput)
    return fail(Error::exhausted("the command does not read its input, and " +
                                 std::to_string(command.input_bytes) +
                                 " bytes of it wait already"));
  command.input_bytes += bytes.size();
  input_bytes_ += bytes.size();
  command.input.push_back({client, stream, std::move(bytes)});
  return true;
}

std::optional<WaitingInput> KeptCommands::take_input(KeptCommand& command, std::size_t most) {
  if (command.input.empty() || most == 0) return std::nullopt;
  WaitingInput& oldest = command.input.front();
  WaitingInput taken = oldest;
  if (oldest.bytes.size() > most) {
    taken.bytes.resize(most);
    oldest.bytes.erase(0, most);
  } else {
    command.input.pop_front();
  }
  command.input_bytes -= taken.bytes.size();
  input_bytes_ -= taken.bytes.size();
  return taken;
}

void KeptCommands::close_input(KeptCommand& command) {
  command.input_state = KeptCommand::Input::kClosed;
  input_bytes_ -= command.input_bytes;
  command.input_bytes = 0;
  command.input.clear();
}

void KeptCommands::end(KeptCommand& command, std::string payload, std::uint64_t now_us) {
  if (ended(command)) return;
  close_input(command);
  command.guest_stream = 0;
  command.close = std::move(payload);
  // Who opened one that never started hears so; nobody else knows of it.
  command.forget_at_us = command.is_main() ? kNever : now_us + (command.pid != 0 ? kEndedUs : 0);
}

void KeptCommands::end_all(const std::string& payload, std::uint64_t now_us) {
  for (auto& [number, command] : commands_) end(command, payload, now_us);
}

void KeptCommands::attach(KeptCommand& command, std::uint64_t client, std::uint32_t stream,
                          From from) {
  Reader reader;
  reader.client = client;
  reader.stream = stream;
  reader.command = &command;
  reader.place = from == From::kNow ? command.tail.end() : command.tail.begin();
  if (from == From::kKept) reader.until = command.tail.end();
  // Who reads a main command asked for it without a number.
  reader.greeted = reader.told_input_closed = command.is_main();
  readers_.push_back(std::move(reader));
}

KeptCommands::Reader* KeptCommands::reader(std::uint64_t client, std::uint32_t stream) {
  const auto found = std::ranges::find_if(readers_, [&](const Reader& entry) {
    return entry.client == client && entry.stream == stream;
  });
  return found == readers_.end() ? nullptr : &*found;
}

KeptCommand* KeptCommands::read_by(std::uint64_t client, std::uint32_t stream) {
  const Reader* const found = reader(client, stream);
  return found == nullptr ? nullptr : found->command;
}

bool KeptCommands::has_client(std::uint64_t client) const {
  return std::ranges::any_of(readers_,
                             [&](const Reader& reader) { return reader.client == client; });
}

bool KeptCommands::is_read(const KeptCommand& command) const {
  return std::ranges::any_of(readers_,
                             [&](const Reader& reader) { return reader.command == &command; });
}

Status KeptCommands::take_credit(std::uint64_t client, const proto::Frame& frame) {
  Reader* const to = reader(client, frame.header.stream);
  VERIFY(to != nullptr);
  if (frame.header.detail >= std::size(to->credit) || frame.header.detail == kIn)
    return fail(Error::invalid("an unknown channel"));
  TRY_ASSIGN(const std::uint32_t amount, proto::parse_credit(frame.payload));
  std::int64_t& credit = to->credit[frame.header.detail];
  if (credit + amount > static_cast<std::int64_t>(4 * proto::kInitialCredit))
    return fail(Error::invalid("too much credit"));
  credit += amount;
  return {};
}

void KeptCommands::leave(std::uint64_t client, std::uint32_t stream, std::string payload) {
  Reader* const found = reader(client, stream);
  if (found != nullptr && !found->leaves) found->leaves = std::move(payload);
}

bool KeptCommands::grant_input(std::uint64_t client, std::uint32_t stream, std::size_t bytes) {
  Reader* const to = reader(client, stream);
  if (to == nullptr) return false;
  to->credit[kIn] += static_cast<std::int64_t>(bytes);
  return true;
}

void KeptCommands::drop_client(std::uint64_t client) {
  std::erase_if(readers_, [&](const Reader& reader) { return reader.client == client; });
}

bool KeptCommands::send_output(Reader& reader, Peer& peer) {
  const OutputTail& tail = reader.command->tail;
  const std::uint64_t end = reader.until.value_or(tail.end());
  while (reader.place < end) {
    const std::uint64_t place = std::max(reader.place, std::min(tail.begin(), end));
    OutputTail::Run run{Channel::kOut, ""};
    if (place < end) run = tail.at(place);
    const auto channel = static_cast<std::uint8_t>(run.channel);
    const std::size_t size = std::min({run.bytes.size(), static_cast<std::size_t>(end - place),
                                       static_cast<std::size_t>(reader.credit[channel]),
                                       static_cast<std::size_t>(proto::kMaxPayload)});
    // What is missing is told with the next byte, once: until then more may be.
    if (size == 0 && place < end) return false;
    if (place > reader.place) {
      proto::Fields missed;
      missed.put_u64(Tag::kMissed, place - reader.place);
      peer.send(Peer::Lane::kData, reader.stream, FrameType::kEvent, 0, missed.bytes());
    }
    if (size > 0)
      peer.send(Peer::Lane::kData, reader.stream, FrameType::kData, channel,
                run.bytes.substr(0, size));
    reader.credit[channel] -= static_cast<std::int64_t>(size);
    reader.place = place + size;
  }
  return true;
}

bool KeptCommands::send_to(Reader& reader, Peer& peer) {
  const KeptCommand& command = *reader.command;
  const auto close = [&](std::string_view payload) {
    peer.send(Peer::Lane::kData, reader.stream, FrameType::kClose, 0, payload);
    return true;
  };
  if (reader.leaves) return close(*reader.leaves);
  if (!reader.greeted) {
    if (command.pid == 0) return ended(command) ? close(*command.close) : false;
    proto::Fields fields;
    fields.put_u32(Tag::kStarted, command.pid).put_u32(Tag::kCommand, command.number);
    peer.send(Peer::Lane::kData, reader.stream, FrameType::kEvent, 0, fields.bytes());
    reader.greeted = true;
  }
  if (!reader.told_input_closed && command.input_state != KeptCommand::Input::kOpen) {
    peer.send(Peer::Lane::kData, reader.stream, FrameType::kFinish, kIn, "");
    reader.told_input_closed = true;
  }
  if (!send_output(reader, peer)) return false;
  if (ended(command)) return close(*command.close);
  return reader.until ? close("") : false;
}

void KeptCommands::send(const PeerOf& peer_of) {
  std::erase_if(readers_, [&](Reader& reader) { return send_to(reader, peer_of(reader.client)); });
}

void KeptCommands::forget(std::uint32_t number) {
  KeptCommand& command = commands_.at(number);
  VERIFY(ended(command) && !is_read(command));
  commands_.erase(number);
}

void KeptCommands::forget_old(std::uint64_t now_us) {
  std::vector<std::uint32_t> over;
  std::vector<const KeptCommand*> waiting;
  for (const auto& [number, command] : commands_) {
    if (!ended(command) || command.is_main() || is_read(command)) continue;
    if (now_us >= command.forget_at_us)
      over.push_back(number);
    else
      waiting.push_back(&command);
  }
  // Those that ended first go first. One that is still read is bounded by the number of readers.
  if (waiting.size() > kMostEnded) {
    std::ranges::sort(waiting, {}, &KeptCommand::forget_at_us);
    for (const KeptCommand* command : std::span(waiting).first(waiting.size() - kMostEnded))
      over.push_back(command->number);
  }
  for (const std::uint32_t number : over) forget(number);
}

std::uint64_t KeptCommands::next_forget_us() const {
  std::uint64_t next = kNever;
  for (const auto& [number, command] : commands_) {
    if (ended(command) && !is_read(command)) next = std::min(next, command.forget_at_us);
  }
  return next;
}

}  // namespace caisson::launcher
