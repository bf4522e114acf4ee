#include "egress/gateway/h2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;

constexpr std::size_t kPiece = 16 * 1024;
// What is sent with one write.
constexpr std::size_t kMostBatch = 64 * 1024;
constexpr unsigned kMostInterim = 16;
// What each field is counted with beside its bytes (RFC 9113, section 6.5.2).
constexpr std::size_t kFieldOverhead = 32;
constexpr std::uint32_t kHpackTable = 4096;
constexpr std::size_t kMostContinuations = 8;
// With values of secrets a head may become longer than the one that came.
constexpr std::size_t kMostSentHead = 256 * 1024;
// Of bodies that nobody has taken, of one stream and of all together. A program in a sandbox is
// near; a server is far away, and a small window would make it slow.
constexpr std::uint32_t kServerWindow = 64 * 1024, kClientWindow = 1024 * 1024;
constexpr std::int32_t kServerTotal = 512 * 1024, kClientTotal = 4 * 1024 * 1024;
// Streams that a client breaks off: each has cost a judgement and perhaps a connection.
constexpr Rate kResets{.per_second = 20, .burst = 200};
// Frames that are to be sent: where there are more, no more is read.
constexpr std::size_t kMostQueued = 256;
// How much a peer may still send, and how long, when the connection is at its end.
constexpr std::size_t kMostDropped = 1 << 20;
constexpr std::chrono::seconds kLingerTime{2};
// In which a peer takes nothing.
constexpr std::chrono::seconds kWriteTime{60};

std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

std::uint8_t* bytes_of(const std::string& text) {
  return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
}

// Views of `fields`.
std::vector<nghttp2_nv> list_of(const H2Fields& fields, std::uint8_t flags) {
  std::vector<nghttp2_nv> list;
  list.reserve(fields.size());
  for (const auto& [name, value] : fields)
    list.push_back({bytes_of(name), bytes_of(value), name.size(), value.size(), flags});
  return list;
}

std::string sentence_of(std::uint32_t code) {
  return std::string("the other side ended the stream: ") + nghttp2_http2_strerror(code);
}

template <auto free_it>
struct FreeBy {
  template <typename T>
  void operator()(T* thing) const {
    free_it(thing);
  }
};
using Callbacks = std::unique_ptr<nghttp2_session_callbacks, FreeBy<nghttp2_session_callbacks_del>>;
using Options = std::unique_ptr<nghttp2_option, FreeBy<nghttp2_option_del>>;

Options make_options() {
  nghttp2_option* made = nullptr;
  VERIFY(nghttp2_option_new(&made) == 0);
  Options options(made);
  nghttp2_option_set_no_auto_window_update(made, 1);
  nghttp2_option_set_no_closed_streams(made, 1);
  nghttp2_option_set_stream_reset_rate_limit(made, kResets.burst, kResets.per_second);
  nghttp2_option_set_max_continuations(made, kMostContinuations);
  nghttp2_option_set_max_deflate_dynamic_table_size(made, kHpackTable);
  nghttp2_option_set_max_send_header_block_length(made, kMostSentHead);
  nghttp2_option_set_peer_max_concurrent_streams(made, H2Session::kMostStreams);
  return options;
}

}  // namespace

// What libnghttp2 calls while it reads and writes.
struct H2Callbacks {
  static H2Session& session_of(void* user) { return *static_cast<H2Session*>(user); }
  // nullptr: one that was refused, or is gone.
  static H2Stream* stream_of(nghttp2_session* session, std::int32_t id) {
    return static_cast<H2Stream*>(nghttp2_session_get_stream_user_data(session, id));
  }

  static int begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    H2Session& self = session_of(user);
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    const std::int32_t id = frame->hd.stream_id;
    if (self.may_begin_ && !self.may_begin_()) {
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
      return 0;
    }
    nghttp2_session_set_stream_user_data(session, id, self.add_stream(id).get());
    return 0;
  }

  static int header(nghttp2_session* session, const nghttp2_frame* frame, const std::uint8_t* name,
                    std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                    std::uint8_t, void*) {
    H2Stream* const stream = stream_of(session, frame->hd.stream_id);
    if (stream != nullptr) stream->add_field(text_of(name, name_size), text_of(value, value_size));
    return 0;
  }

  // Of a head; what is wrong behind one is its request's matter.
  static void tell_malformed(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    const H2Session& self = session_of(user);
    H2Stream* const stream = stream_of(session, frame->hd.stream_id);
    if (stream == nullptr || stream->has_head_ || stream->malformed_ || !self.on_malformed_) return;
    stream->malformed_ = true;
    self.on_malformed_();
  }

  static int invalid_frame(nghttp2_session* session, const nghttp2_frame* frame, int, void* user) {
    if (frame->hd.type == NGHTTP2_HEADERS) tell_malformed(session, frame, user);
    return 0;
  }

  // The library would go on without it.
  static int invalid_header(nghttp2_session* session, const nghttp2_frame* frame,
                            const std::uint8_t*, std::size_t, const std::uint8_t*, std::size_t,
                            std::uint8_t, void* user) {
    tell_malformed(session, frame, user);
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                              NGHTTP2_PROTOCOL_ERROR);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }

  static int frame_received(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    H2Stream* const stream = stream_of(session, frame->hd.stream_id);
    if (stream == nullptr || stream->closed_) return 0;
    const bool is_head = frame->hd.type == NGHTTP2_HEADERS;
    if (!is_head && frame->hd.type != NGHTTP2_DATA) return 0;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) stream->remote_ended_ = true;
    if (!is_head) {
      stream->has_body_ = true;
    } else {
      const bool begins = !stream->has_head_;
      stream->end_fields();
      H2Session& self = session_of(user);
      if (begins && stream->has_head_ && self.on_request_)
        self.on_request_(self.streams_.at(frame->hd.stream_id));
    }
    stream->changed_.notify();
    return 0;
  }

  static int data_received(nghttp2_session* session, std::uint8_t, std::int32_t id,
                           const std::uint8_t* data, std::size_t size, void*) {
    H2Stream* const stream = stream_of(session, id);
    if (stream == nullptr || stream->closed_ || stream->abandoned_) {
      nghttp2_session_consume_connection(session, size);
      return 0;
    }
    stream->add_body(text_of(data, size));
    return 0;
  }

  static int frame_sent(nghttp2_session* session, const nghttp2_frame* frame, void*) {
    const bool ends = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                      (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    H2Stream* const stream = ends ? stream_of(session, frame->hd.stream_id) : nullptr;
    if (stream == nullptr) return 0;
    stream->local_ended_ = true;
    // The answer is whole, and nobody reads the rest of the request.
    if (stream->abandoned_ && !stream->remote_ended_)
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
  }

  static int stream_closed(nghttp2_session*, std::int32_t id, std::uint32_t code, void* user) {
    session_of(user).remove_stream(id, code);
    return 0;
  }

  // The next bytes of a body, for a frame of at most `size`.
  static ssize_t read_body(nghttp2_session* session, std::int32_t id, std::uint8_t* buffer,
                           std::size_t size, std::uint32_t* flags, nghttp2_data_source* source,
                           void*) {
    H2Stream& stream = *static_cast<H2Stream*>(source->ptr);
    const std::size_t count = std::min(size, stream.pending_.size());
    std::copy_n(stream.pending_.data(), count, buffer);
    stream.pending_.remove_prefix(count);
    if (!stream.pending_.empty()) return static_cast<ssize_t>(count);
    stream.changed_.notify();
    if (!stream.ending_) return count == 0 ? NGHTTP2_ERR_DEFERRED : static_cast<ssize_t>(count);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!stream.last_.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const auto list = list_of(stream.last_, NGHTTP2_NV_FLAG_NONE);
      if (nghttp2_submit_trailer(session, id, list.data(), list.size()) != 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return static_cast<ssize_t>(count);
  }

  static Callbacks make() {
    nghttp2_session_callbacks* made = nullptr;
    VERIFY(nghttp2_session_callbacks_new(&made) == 0);
    Callbacks callbacks(made);
    nghttp2_session_callbacks_set_on_begin_headers_callback(made, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(made, header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(made, invalid_header);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(made, invalid_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(made, frame_received);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, data_received);
    nghttp2_session_callbacks_set_on_frame_send_callback(made, frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(made, stream_closed);
    return callbacks;
  }

  static nghttp2_data_provider body_of(H2Stream& stream) {
    return {.source = {.ptr = &stream}, .read_callback = read_body};
  }
};

// ---- a stream: what comes -----------------------------------------------------------------------

void H2Stream::add_field(std::string_view name, std::string_view value) {
  block_bytes_ += name.size() + value.size() + kFieldOverhead;
  if (block_bytes_ > H2Session::kMostHeadBytes || block_.size() >= H2Session::kMostFields)
    too_large_ = true;
  else
    block_.emplace_back(name, value);
}

void H2Stream::end_fields() {
  H2Fields block = std::exchange(block_, {});
  block_bytes_ = 0;
  if (has_head_) {
    if (too_large_) return reset(H2Code::kEnhanceYourCalm);
    trailers_ = std::move(block);
    return;
  }
  const bool interim = !block.empty() && block[0].first == ":status" && block[0].second[0] == '1';
  if (interim) {
    if (++interim_ > kMostInterim) reset(H2Code::kEnhanceYourCalm);
    return;
  }
  head_ = std::move(block);
  has_head_ = true;
}

H2Session* H2Stream::session() const {
  // Whoever holds it holds it for longer than a call of ours takes.
  H2Session* const held = session_.lock().get();
  return held != nullptr && !held->ended_ ? held : nullptr;
}

void H2Stream::add_body(std::string_view bytes) {
  incoming_ += bytes;
  budget_->held += bytes.size();
  changed_.notify();
  if (budget_->held <= budget_->most) return;
  drop_unread();
  reset(H2Code::kEnhanceYourCalm);
  why_ = "too many bytes of bodies wait to be taken";
}

Error H2Stream::broken() const {
  return Error::unavailable(why_.empty() ? "the stream has ended" : why_);
}

Async<Result<H2Fields>> H2Stream::read_head() {
  while (!has_head_) {
    if (closed_) co_return fail(broken());
    co_await changed_.wait();
  }
  if (too_large_) co_return fail(Error::invalid("its head has more than 64 KiB or 200 fields"));
  co_return std::move(head_);
}

Async<Result<std::string>> H2Stream::read_some(std::size_t most) {
  for (;;) {
    if (taken_ < incoming_.size()) {
      std::string piece = incoming_.substr(taken_, most);
      taken_ += piece.size();
      budget_->held -= piece.size();
      // Also where a slow reader never takes all of it.
      if (taken_ >= incoming_.size() / 2) {
        incoming_.erase(0, taken_);
        taken_ = 0;
      }
      if (H2Session* const held = session()) held->consume(*this, piece.size());
      co_return piece;
    }
    if (remote_ended_) co_return std::string();
    if (closed_) co_return fail(broken());
    co_await changed_.wait();
  }
}

void H2Stream::drop_unread() {
  const std::size_t left = incoming_.size() - std::exchange(taken_, 0);
  incoming_.clear();
  budget_->held -= left;
  H2Session* const held = session();
  if (held != nullptr && left > 0) held->consume(*this, left);
}

// ---- what is sent -------------------------------------------------------------------------------

Status H2Stream::send_head(const H2Fields& head, H2End end) {
  H2Session* const held = session();
  if (closed_ || held == nullptr) return fail(broken());
  nghttp2_session* const library = held->session_.get();
  const auto list = list_of(head, NGHTTP2_NV_FLAG_NONE);
  const bool interim = !head.empty() && head[0].second == "100";
  nghttp2_data_provider body = H2Callbacks::body_of(*this);
  const int sent = interim ? nghttp2_submit_headers(library, NGHTTP2_FLAG_NONE, id_, nullptr,
                                                    list.data(), list.size(), nullptr)
                           : nghttp2_submit_response(library, id_, list.data(), list.size(),
                                                     end == H2End::kEnds ? nullptr : &body);
  if (sent != 0) return fail(Error::invalid(nghttp2_strerror(sent)));
  if (end == H2End::kEnds) ending_ = true;
  held->wake();
  return {};
}

// Nothing of the bytes is looked at any more when whoever writes them has been cancelled.
class H2Stream::Writing {
 public:
  Writing(H2Stream& stream, std::string_view bytes) : stream_(stream) { stream_.pending_ = bytes; }
  ~Writing() { stream_.pending_ = {}; }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  H2Stream& stream_;
};

Async<Status> H2Stream::write(std::string_view bytes) {
  H2Session* const held = session();
  if (closed_ || held == nullptr || ending_) co_return fail(broken());
  if (bytes.empty()) co_return Status();
  const Writing writing(*this, bytes);
  nghttp2_session_resume_data(held->session_.get(), id_);
  held->wake();
  io::Clock::time_point until = io::Clock::now() + kWriteTime;
  std::size_t before = pending_.size();
  while (!pending_.empty()) {
    const bool in_time = co_await changed_.wait_until(until);
    if (closed_) co_return fail(broken());
    if (pending_.size() < before) {
      before = pending_.size();
      until = io::Clock::now() + kWriteTime;
    } else if (!in_time) {
      reset(H2Code::kCancel);
      co_return fail(Error(Code::kDeadlineExceeded, "the other side takes nothing"));
    }
  }
  co_return Status();
}

void H2Stream::end(H2Fields trailers) {
  H2Session* const held = session();
  if (closed_ || held == nullptr || ending_) return;
  ending_ = true;
  last_ = std::move(trailers);
  nghttp2_session_resume_data(held->session_.get(), id_);
  held->wake();
}

void H2Stream::close(std::string why) {
  if (closed_) return;
  closed_ = true;
  why_ = std::move(why);
  changed_.notify();
}

void H2Stream::reset(H2Code code) {
  if (closed_) return;
  reset_by_us_ = true;
  if (H2Session* const held = session()) {
    nghttp2_submit_rst_stream(held->session_.get(), NGHTTP2_FLAG_NONE, id_,
                              static_cast<std::uint32_t>(code));
    held->wake();
  }
  close("the stream was ended");
}

void H2Stream::let_go() {
  if (abandoned_) return;
  abandoned_ = true;
  drop_unread();
  const H2Session* const held = session();
  if (closed_ || held == nullptr) return;
  if (held->side_ == H2Session::Side::kClient || !ending_) return reset(H2Code::kCancel);
  if (local_ended_ && !remote_ended_) reset(H2Code::kNoError);
}

Async<void> H2Stream::wait_broken() {
  while (!broken_off()) co_await changed_.wait();
}

// ---- the session --------------------------------------------------------------------------------

void H2Session::Delete::operator()(nghttp2_session* session) const {
  nghttp2_session_del(session);
}

H2Session::H2Session(io::Loop& loop, std::unique_ptr<io::Stream> stream, Side side,
                     std::shared_ptr<H2Budget> budget)
    : loop_(loop),
      stream_(std::move(stream)),
      side_(side),
      budget_(std::move(budget)),
      writable_(loop),
      drained_(loop),
      changed_(loop),
      resets_(kResets, io::Clock::now()),
      idle_since_(io::Clock::now()) {
  const Callbacks callbacks = H2Callbacks::make();
  const Options options = make_options();
  const bool serves = side == Side::kServer;
  nghttp2_session* made = nullptr;
  const int status = serves
                         ? nghttp2_session_server_new2(&made, callbacks.get(), this, options.get())
                         : nghttp2_session_client_new2(&made, callbacks.get(), this, options.get());
  VERIFY(status == 0);
  session_.reset(made);
  std::vector<nghttp2_settings_entry> settings = {
      {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, kHpackTable},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, serves ? kServerWindow : kClientWindow},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMostHeadBytes}};
  if (serves)
    settings.push_back({NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMostStreams});
  else
    settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  VERIFY(nghttp2_submit_settings(made, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) == 0);
  const std::int32_t total = serves ? kServerTotal : kClientTotal;
  VERIFY(nghttp2_session_set_local_window_size(made, NGHTTP2_FLAG_NONE, 0, total) == 0);
}

H2Session::~H2Session() {
  end_streams("the connection has ended");
}

Async<void> H2Session::run(std::shared_ptr<H2Session> self, OnRequest on_request,
                           MayBegin may_begin) {
  self->on_request_ = std::move(on_request);
  self->may_begin_ = std::move(may_begin);
  co_await io::race(read_all(*self), write_all(*self));
  self->close();
  // They may hold who holds the session.
  self->on_request_ = nullptr;
  self->may_begin_ = nullptr;
  self->on_malformed_ = nullptr;
}

Async<void> H2Session::read_all(H2Session& self) {
  nghttp2_session* const session = self.session_.get();
  std::string piece(kPiece, '\0');
  while (nghttp2_session_want_read(session) != 0) {
    while (!self.ended_ && nghttp2_session_get_outbound_queue_size(session) > kMostQueued)
      co_await self.drained_.wait();
    if (self.ended_) co_return;
    self.stream_->set_timeout({});
    const auto count = co_await self.stream_->read(piece);
    if (count.value_or(0) == 0 || self.ended_) co_return;
    const ssize_t taken = nghttp2_session_mem_recv(session, bytes_of(piece), *count);
    self.wake();
    if (taken < 0) co_return;
  }
  // What says why still goes out. What the peer goes on sending is dropped meanwhile, or the
  // connection's end would be a reset, in which that is lost.
  for (std::size_t dropped = 0; !self.ended_ && dropped < kMostDropped;) {
    const auto count = co_await self.stream_->read(piece);
    if (count.value_or(0) == 0) co_return;
    dropped += *count;
  }
}

Async<void> H2Session::write_all(H2Session& self) {
  nghttp2_session* const session = self.session_.get();
  std::string batch;
  while (!self.ended_) {
    batch.clear();
    while (batch.size() < kMostBatch) {
      const std::uint8_t* bytes = nullptr;
      const ssize_t count = nghttp2_session_mem_send(session, &bytes);
      if (count < 0) co_return;
      if (count == 0) break;
      batch += text_of(bytes, static_cast<std::size_t>(count));
    }
    if (batch.empty()) {
      if (nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0)
        break;
      co_await self.writable_.wait();
      continue;
    }
    self.stream_->set_timeout(kWriteTime);
    const Status written = co_await self.stream_->write(batch);
    if (!written.has_value()) co_return;
    self.drained_.notify();
  }
  // The peer sees all of it, and then the end; it has a moment to take it.
  if (self.ended_) co_return;
  co_await self.stream_->finish();
  if (self.side_ == Side::kServer) co_await io::Loop::sleep(kLingerTime);
}

std::shared_ptr<H2Stream> H2Session::add_stream(std::int32_t id) {
  auto stream = std::make_shared<H2Stream>(loop_, weak_from_this(), budget_);
  stream->id_ = id;
  streams_.emplace(id, stream);
  idle_since_.reset();
  changed_.notify();
  return stream;
}

void H2Session::remove_stream(std::int32_t id, std::uint32_t code) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const std::shared_ptr<H2Stream> stream = std::move(found->second);
  streams_.erase(found);
  stream->unprocessed_ = code == NGHTTP2_REFUSED_STREAM && !stream->reset_by_us_;
  const bool whole = stream->local_ended_ && stream->remote_ended_;
  stream->close(whole ? "" : sentence_of(code));
  if (streams_.empty()) idle_since_ = io::Clock::now();
  changed_.notify();
  if (side_ == Side::kClient || whole || stream->reset_by_us_ || stream->abandoned_) return;
  if (!resets_.take(io::Clock::now()))
    nghttp2_session_terminate_session(session_.get(), NGHTTP2_ENHANCE_YOUR_CALM);
}

void H2Session::consume(const H2Stream& stream, std::size_t bytes) {
  nghttp2_session_consume(session_.get(), stream.id_, bytes);
  wake();
}

bool H2Session::may_open() const {
  if (ended_ || nghttp2_session_check_request_allowed(session_.get()) == 0) return false;
  const std::uint32_t theirs =
      nghttp2_session_get_remote_settings(session_.get(), NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
  return streams_.size() < std::min(theirs, kMostStreams);
}

Result<std::shared_ptr<H2Stream>> H2Session::open(const H2Fields& head, H2End end,
                                                  Remember remember) {
  if (!may_open()) return fail(Error::unavailable("the connection takes no more requests"));
  const std::uint8_t flags =
      remember == Remember::kNever ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE;
  const auto list = list_of(head, flags);
  auto stream = std::make_shared<H2Stream>(loop_, weak_from_this(), budget_);
  nghttp2_data_provider body = H2Callbacks::body_of(*stream);
  const std::int32_t id =
      nghttp2_submit_request(session_.get(), nullptr, list.data(), list.size(),
                             end == H2End::kEnds ? nullptr : &body, stream.get());
  if (id < 0) return fail(Error::invalid(nghttp2_strerror(id)));
  stream->id_ = id;
  streams_.emplace(id, stream);
  idle_since_.reset();
  changed_.notify();
  wake();
  return stream;
}

void H2Session::say_goodbye() {
  if (ended_) return;
  nghttp2_session_terminate_session(session_.get(), NGHTTP2_NO_ERROR);
  wake();
}

void H2Session::end_streams(const std::string& why) {
  auto streams = std::exchange(streams_, {});
  for (const auto& [id, stream] : streams) {
    stream->close(why);
  }
}

void H2Session::close() {
  if (ended_) return;
  ended_ = true;
  stream_->close();
  end_streams("the connection has ended");
  drained_.notify();
  changed_.notify();
  writable_.notify();
}

Async<void> H2Session::wait_change(io::Clock::time_point until) {
  co_await changed_.wait_until(until);
}

}  // namespace caisson::egress
