#include "fleet/box_client.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "box/connection.h"

namespace caisson::fleet {

using proto::Channel;
using proto::FrameType;
using proto::Tag;

namespace {

// What one reading takes: hardly any sandbox says more than the first at a time, and a server has
// many; one that fills its room gets more.
constexpr std::size_t kFirstRead = 4096, kMostRead = 64 * 1024;
// What goes out in one write: a signal waits behind no more than that.
constexpr std::size_t kMostWritten = 128 * 1024;
constexpr std::size_t kMostStreams = 200;  // the supervisor has 256 for all its clients
// Messages other than DATA need no credit, and small ones take more than their bytes: where more
// than this waits for a reader it is cut off.
constexpr std::size_t kMostWaiting = 4u << 20;
constexpr std::size_t kMostAnswers = 1024;  // parts of one answer
constexpr auto kHelloTime = std::chrono::seconds(5);

Error gone_error() {
  return Error::unavailable("the sandbox has gone");
}

}  // namespace

struct BoxStream::State {
  State(io::Loop& loop, std::uint32_t stream) : number(stream), readable(loop), writable(loop) {}

  std::uint32_t number;
  BoxClient::State* client = nullptr;  // nullptr: the connection has ended
  std::deque<Message> messages;
  std::size_t waiting_bytes = 0;  // cost() of all messages
  box::Credit credit;
  bool closed = false;    // CLOSE came, or the connection ended
  bool finished = false;  // FINISH was sent
  bool has_sent = false;  // DATA or FINISH, which may still be on its way
  io::Event readable, writable;

  // What a message counts until it is taken: DATA has its credit, but what holds it has none.
  static std::size_t cost(const Message& message) {
    return sizeof message + (message.kind == Message::Kind::kData ? 0 : message.bytes.size());
  }
  void add(Message message) {
    // A command that writes byte by byte does not make a message of each.
    if (message.kind == Message::Kind::kData && !messages.empty()) {
      Message& last = messages.back();
      if (last.kind == Message::Kind::kData && last.channel == message.channel &&
          last.bytes.size() + message.bytes.size() <= proto::kMaxPayload) {
        last.bytes += message.bytes;
        return readable.notify();
      }
    }
    waiting_bytes += cost(message);
    messages.push_back(std::move(message));
    readable.notify();
  }
  void end() {
    closed = true;
    client = nullptr;
    readable.notify();
    writable.notify();
  }
};

struct BoxClient::State : std::enable_shared_from_this<BoxClient::State> {
  State(io::Loop& owner, std::unique_ptr<io::Stream> connected)
      : loop(owner), socket(std::move(connected)), to_write(owner), ended(owner), answered(owner) {}

  io::Loop& loop;
  std::unique_ptr<io::Stream> socket;
  proto::Decoder decoder;
  std::map<std::uint32_t, std::shared_ptr<BoxStream::State>> streams;
  std::uint32_t next_stream = 1;
  std::deque<std::string> urgent, data;  // whole frames
  io::Event to_write, ended, answered;
  bool gone = false;
  std::function<void()> on_gone;
  struct Request {
    std::vector<std::string> answers;
    bool done = false;
  };
  std::map<std::uint32_t, Request> requests;
  std::uint32_t last_request = 0;

  void send(std::uint32_t stream, FrameType type, std::uint8_t detail, std::string_view payload) {
    if (gone) return;
    // Within a stream the order is kept: its end waits behind its bytes.
    const bool carries = type == FrameType::kData || type == FrameType::kFinish;
    const auto found = streams.find(stream);
    if (carries && found != streams.end()) found->second->has_sent = true;
    const bool behind =
        type == FrameType::kClose && found != streams.end() && found->second->has_sent;
    (carries || behind ? data : urgent)
        .push_back(proto::encode_frame(stream, type, detail, payload));
    to_write.notify();
  }
  void end() {
    if (std::exchange(gone, true)) return;
    socket->close();
    for (auto& [number, stream] : std::exchange(streams, {})) stream->end();
    to_write.notify();
    answered.notify();
    ended.notify();
    if (const auto handler = std::exchange(on_gone, nullptr); handler != nullptr) handler();
  }
  // An error ends the connection.
  Status take(proto::Frame frame);
  Status take_on_stream(const std::shared_ptr<BoxStream::State>& stream, proto::Frame frame);
  Status take_answer(const proto::Frame& frame);

  static io::Async<void> read(std::shared_ptr<State> self);
  static io::Async<void> write(std::shared_ptr<State> self);
};

Status BoxClient::State::take_answer(const proto::Frame& frame) {
  if (frame.header.type == FrameType::kClose) return fail(gone_error());
  if (frame.header.type != FrameType::kEvent)
    return fail(Error::invalid("stream 0 has EVENT alone"));
  TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
  TRY_ASSIGN(const std::uint64_t number, fields.number(Tag::kRequest));
  const auto found = requests.find(static_cast<std::uint32_t>(number));
  if (found == requests.end()) return {};
  if (found->second.answers.size() >= kMostAnswers)
    return fail(Error::invalid("an answer of too many parts"));
  found->second.answers.push_back(frame.payload);
  // A list has a part for each command, and an end.
  found->second.done = !fields.has(Tag::kCommand);
  if (found->second.done) answered.notify();
  return {};
}

Status BoxClient::State::take(proto::Frame frame) {
  if (frame.header.stream == 0) return take_answer(frame);
  const auto found = streams.find(frame.header.stream);
  if (found == streams.end()) return {};  // dropped a moment ago
  return take_on_stream(std::shared_ptr(found->second), std::move(frame));
}

Status BoxClient::State::take_on_stream(const std::shared_ptr<BoxStream::State>& stream,
                                        proto::Frame frame) {
  using Message = BoxStream::Message;
  const auto channel = static_cast<Channel>(frame.header.detail);
  switch (frame.header.type) {
    case FrameType::kEvent:
      stream->add({.kind = Message::Kind::kEvent, .bytes = std::move(frame.payload)});
      break;
    case FrameType::kData:
      TRY(stream->credit.received(frame.header.detail, frame.payload.size()));
      stream->add(
          {.kind = Message::Kind::kData, .channel = channel, .bytes = std::move(frame.payload)});
      break;
    case FrameType::kFinish:
      stream->add({.kind = Message::Kind::kFinish, .channel = channel});
      break;
    case FrameType::kCredit:
      TRY(stream->credit.granted(frame.payload));
      stream->writable.notify();
      break;
    case FrameType::kClose:
      stream->add({.kind = Message::Kind::kClose, .bytes = std::move(frame.payload)});
      streams.erase(stream->number);
      stream->end();
      break;
    default:
      return fail(Error::invalid("a frame that only clients send"));
  }
  if (stream->waiting_bytes > kMostWaiting) {
    send(stream->number, FrameType::kClose, 0, "");
    streams.erase(stream->number);
    proto::Fields fields;
    fields.put_error(Error::exhausted("more was told than its reader took"));
    stream->add({.kind = Message::Kind::kClose, .bytes = fields.bytes()});
    stream->end();
  }
  return {};
}

io::Async<void> BoxClient::State::read(std::shared_ptr<State> self) {
  std::string buffer(kFirstRead, '\0');
  while (!self->gone) {
    const auto count = co_await self->socket->read(buffer);
    if (!count.has_value() || *count == 0) break;
    self->decoder.feed(std::string_view(buffer).substr(0, *count));
    bool broken = false;
    while (!self->gone) {
      auto frame = self->decoder.next();
      if (frame.has_value() && !frame->has_value()) break;
      broken = !frame.has_value() || !self->take(std::move(**frame)).has_value();
      if (broken) break;
    }
    if (broken) break;
    if (*count == buffer.size() && buffer.size() < kMostRead) buffer.resize(kMostRead);
  }
  self->end();
}

io::Async<void> BoxClient::State::write(std::shared_ptr<State> self) {
  std::string bytes;
  while (!self->gone) {
    if (self->urgent.empty() && self->data.empty()) {
      co_await self->to_write.wait();
      continue;
    }
    bytes.clear();
    for (auto* lane : {&self->urgent, &self->data}) {
      while (!lane->empty() && bytes.size() < kMostWritten) {
        bytes += lane->front();
        lane->pop_front();
      }
    }
    const auto written = co_await self->socket->write(bytes);
    if (!written.has_value()) break;
  }
  self->end();
}

BoxClient::BoxClient(std::shared_ptr<State> state) : state_(std::move(state)) {}
BoxClient::~BoxClient() {
  state_->end();
}

io::Async<Result<std::unique_ptr<BoxClient>>> BoxClient::connect(io::Loop& loop,
                                                                 std::string socket_path) {
  CO_TRY_ASSIGN(auto socket, co_await io::connect_unix(loop, std::move(socket_path)));
  co_return co_await connect(loop, std::move(socket));
}

io::Async<Result<std::unique_ptr<BoxClient>>> BoxClient::connect(
    io::Loop& loop, std::unique_ptr<io::Stream> socket) {
  socket->set_timeout(kHelloTime);
  const std::string frame = proto::encode_frame(0, FrameType::kHello, 0, proto::hello_payload());
  CO_TRY(co_await socket->write(frame));
  auto state = std::make_shared<State>(loop, std::move(socket));
  std::string buffer(kFirstRead, '\0');
  std::optional<proto::Frame> first;
  while (!first.has_value()) {
    CO_TRY_ASSIGN(const std::size_t count, co_await state->socket->read(buffer));
    if (count == 0) co_return fail(gone_error());
    state->decoder.feed(std::string_view(buffer).substr(0, count));
    auto next = state->decoder.next();
    if (!next.has_value()) co_return fail(std::move(next).error());
    first = std::move(*next);
  }
  if (first->header.type != FrameType::kHello || first->header.stream != 0)
    co_return fail(Error(Code::kDataLoss, "the sandbox did not begin with HELLO"));
  CO_TRY(proto::check_hello(first->payload));
  state->socket->set_timeout({});
  loop.spawn(State::read(state));
  loop.spawn(State::write(state));
  co_return std::unique_ptr<BoxClient>(new BoxClient(std::move(state)));
}

Result<std::unique_ptr<BoxStream>> BoxClient::open(proto::Kind kind, const proto::Fields& fields) {
  if (state_->gone) return fail(gone_error());
  if (state_->streams.size() >= kMostStreams)
    return fail(Error::exhausted("the sandbox has " + std::to_string(kMostStreams) +
                                 " requests under way already"));
  auto stream = std::make_shared<BoxStream::State>(state_->loop, state_->next_stream);
  state_->next_stream += 2;
  stream->client = state_.get();
  state_->streams.emplace(stream->number, stream);
  state_->send(stream->number, FrameType::kOpen, static_cast<std::uint8_t>(kind), fields.bytes());
  return std::unique_ptr<BoxStream>(new BoxStream(std::move(stream)));
}

io::Async<Result<std::vector<std::string>>> BoxClient::request(proto::ControlOperation operation,
                                                               proto::Fields fields,
                                                               io::Clock::duration time) {
  // Held: the client may be dropped while the answer is on its way.
  const std::shared_ptr<State> state = state_;
  const std::uint32_t number = ++state->last_request;
  fields.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(operation))
      .put_u32(Tag::kRequest, number);
  State::Request& waiting = state->requests[number];
  // Also where the caller's coroutine is cancelled while it waits.
  struct Forget {
    State& state;
    std::uint32_t number;
    ~Forget() { state.requests.erase(number); }
  } const forget{*state, number};
  state->send(0, FrameType::kControl, 0, fields.bytes());
  const auto until = io::Clock::now() + time;
  while (!state->gone && !waiting.done) {
    const bool told = co_await state->answered.wait_until(until);
    if (!told && io::Clock::now() >= until)
      co_return fail(Error(Code::kDeadlineExceeded, "the sandbox's supervisor does not answer"));
  }
  if (!waiting.done) co_return fail(gone_error());
  const State::Request request = std::move(waiting);
  auto last = proto::FieldReader::parse(request.answers.back());
  if (!last.has_value()) co_return fail(std::move(last).error());
  if (auto error = last->error(); error.has_value()) co_return fail(std::move(*error));
  co_return request.answers;
}

void BoxClient::shutdown() {
  proto::Fields fields;
  fields.put_u8(Tag::kControlOperation,
                static_cast<std::uint8_t>(proto::ControlOperation::kShutdown));
  state_->send(0, FrameType::kControl, 0, fields.bytes());
}

bool BoxClient::gone() const {
  return state_->gone;
}

io::Async<void> BoxClient::wait_gone() {
  const std::shared_ptr<State> state = state_;
  while (!state->gone) co_await state->ended.wait();
}

io::Async<void> BoxClient::wait_gone_until(io::Clock::time_point time) {
  const std::shared_ptr<State> state = state_;
  if (!state->gone) co_await state->ended.wait_until(time);
}

void BoxClient::on_gone(std::function<void()> handler) {
  if (!state_->gone) {
    state_->on_gone = std::move(handler);
  } else if (handler != nullptr) {
    handler();
  }
}

BoxStream::BoxStream(std::shared_ptr<State> state) : state_(std::move(state)) {}

BoxStream::~BoxStream() {
  if (state_->client == nullptr) return;
  state_->client->send(state_->number, FrameType::kClose, 0, "");
  state_->client->streams.erase(state_->number);
  state_->end();
}

bool BoxStream::closed() const {
  return state_->closed;
}

io::Async<Result<BoxStream::Message>> BoxStream::next() {
  auto message = co_await next_until(io::Clock::time_point::max());
  if (!message.has_value()) co_return fail(std::move(message).error());
  co_return std::move(**message);
}

io::Async<Result<std::optional<BoxStream::Message>>> BoxStream::next_until(
    io::Clock::time_point time) {
  const std::shared_ptr<State> state = state_;
  while (state->messages.empty()) {
    if (state->closed) co_return fail(gone_error());
    if (time == io::Clock::time_point::max()) {
      co_await state->readable.wait();
      continue;
    }
    const bool notified = co_await state->readable.wait_until(time);
    if (!notified && state->messages.empty()) co_return std::nullopt;
  }
  Message message = std::move(state->messages.front());
  state->messages.pop_front();
  state->waiting_bytes -= State::cost(message);
  if (message.kind == Message::Kind::kData && state->client != nullptr) {
    const auto channel = static_cast<std::uint8_t>(message.channel);
    const std::uint32_t grant = state->credit.consumed(channel, message.bytes.size());
    if (grant != 0)
      state->client->send(state->number, FrameType::kCredit, channel, box::credit_payload(grant));
  }
  co_return std::optional(std::move(message));
}

io::Async<Status> BoxStream::write(std::string bytes) {
  const std::shared_ptr<State> state = state_;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    if (state->closed) co_return fail(Error::precondition("nothing takes these bytes any more"));
    const std::size_t piece = std::min<std::size_t>(
        {rest.size(), proto::kMaxPayload / 2, static_cast<std::size_t>(state->credit.may_send())});
    if (piece == 0) {
      co_await state->writable.wait();
      continue;
    }
    state->credit.spent(piece);
    state->client->send(state->number, FrameType::kData, static_cast<std::uint8_t>(Channel::kIn),
                        rest.substr(0, piece));
    rest.remove_prefix(piece);
  }
  co_return Status{};
}

io::Async<Status> BoxStream::taken() {
  const std::shared_ptr<State> state = state_;
  while (state->credit.may_send() < proto::kInitialCredit) {
    if (state->closed) co_return fail(Error::precondition("not all of the bytes were taken"));
    co_await state->writable.wait();
  }
  co_return Status{};
}

void BoxStream::finish() {
  if (state_->client == nullptr || std::exchange(state_->finished, true)) return;
  state_->client->send(state_->number, FrameType::kFinish, static_cast<std::uint8_t>(Channel::kIn),
                       "");
}

void BoxStream::control(const proto::Fields& fields) {
  if (state_->client == nullptr) return;
  state_->client->send(state_->number, FrameType::kControl, 0, fields.bytes());
}

}  // namespace caisson::fleet
