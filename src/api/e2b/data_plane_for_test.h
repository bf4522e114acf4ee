// For tests: a DataPlane with one sandbox whose supervisor and guest a script plays.
//
// The sandbox is "abc" of team-1, its token "tok", its user "user". A test gives the script, asks,
// and looks at the answer.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "api/e2b/envd.h"
#include "api/exchange_for_test.h"
#include "api/fleet_for_test.h"
#include "base/proto.h"
#include "box/connection.h"
#include "box/fake_supervisor.h"
#include "http/connect.h"
#include "io/stream.h"

namespace caisson::api::e2b {

using box::FakeSupervisor;
using proto::FieldReader;
using proto::FrameType;
using proto::Tag;

class DataPlaneTest : public ::testing::Test {
 protected:
  DataPlaneTest() {
    fleet::SandboxView view;
    view.id = "abc";
    view.access_token = "tok";
    sandbox_ = std::make_shared<FakeServed>("team-1", view);
    fleet_.sandboxes["abc"] = sandbox_;
  }

  void play(FakeSupervisor::Script script) {
    auto done = std::make_shared<std::promise<void>>();
    done_ = done->get_future();
    supervisor_ =
        std::make_unique<FakeSupervisor>([done, script = std::move(script)](FakeSupervisor& at) {
          // Not before the client's own: a script that ends at once would cut it off.
          at.take_hello();
          at.hello();
          script(at);
          done->set_value();
        });
    run(loop_, connect());
  }
  // Until the script has ended: what a call leaves to be sent is sent meanwhile.
  void finish_script() { run(loop_, wait_done()); }

  // The answer to one request for port 49983 with the token.
  std::unique_ptr<FakeExchange> ask(std::string_view method, std::string_view target,
                                    http::Headers headers = {}, std::string body = "",
                                    std::uint16_t port = kEnvdPort) {
    if (!headers.has("X-Access-Token")) headers.add("X-Access-Token", "tok");
    auto exchange =
        std::make_unique<FakeExchange>(method, target, std::move(headers), std::move(body));
    exchange->gone_after = client_leaves_after_;
    exchange->may_hold = may_hold_;
    run(loop_, plane_.serve(*exchange, {"abc", port}));
    return exchange;
  }
  std::unique_ptr<FakeExchange> call(std::string_view method, std::string body,
                                     http::Headers headers = {}) {
    headers.add("Content-Type", "application/json");
    return ask("POST", method, std::move(headers), std::move(body));
  }
  std::unique_ptr<FakeExchange> stream(std::string_view method, std::string_view message,
                                       http::Headers headers = {}) {
    headers.add("Content-Type", "application/connect+json");
    return ask("POST", method, std::move(headers), http::envelope(0, message));
  }

  // The messages of a stream's answer, one a line, the last with its flag in front.
  static std::string messages(const FakeExchange& exchange) {
    http::EnvelopeReader reader(1 << 20);
    reader.feed(exchange.answer);
    std::string text;
    for (;;) {
      auto next = reader.next();
      if (!next.has_value() || !next->has_value()) break;
      if ((*next)->flags != 0) text += std::to_string((*next)->flags) + " ";
      text += (*next)->bytes + "\n";
    }
    EXPECT_FALSE(reader.partial());
    return text;
  }

  std::optional<io::Clock::duration> client_leaves_after_;  // of the next requests
  std::size_t may_hold_ = 1u << 30;

  // ---- for scripts

  // The next OPEN; its fields are good as long as the frame.
  static FieldReader fields(const proto::Frame& frame) {
    return FieldReader::parse(frame.payload).value();
  }
  static std::string text(const proto::Frame& frame, Tag tag) {
    const FieldReader reader = fields(frame);
    return std::string(reader.text(tag).value_or("(none)"));
  }
  static void event(FakeSupervisor& at, const proto::Frame& to, const proto::Fields& what) {
    at.send(to.header.stream, FrameType::kEvent, 0, what.bytes());
  }
  static void close(FakeSupervisor& at, const proto::Frame& to, const proto::Fields& what = {}) {
    at.send(to.header.stream, FrameType::kClose, 0, what.bytes());
  }
  static void fail_with(FakeSupervisor& at, const proto::Frame& to, const Error& error) {
    close(at, to, proto::Fields().put_error(error));
  }
  // Answers the question who "user" is.
  static void tell_user(FakeSupervisor& at) {
    const proto::Frame open = at.next(FrameType::kOpen);
    EXPECT_EQ(fields(open).number_or_none(Tag::kOperation),
              static_cast<std::uint64_t>(proto::FileOperation::kLookupUser));
    EXPECT_EQ(text(open, Tag::kUserName), "user");
    event(at, open,
          proto::Fields()
              .put_u32(Tag::kUid, 1000)
              .put_u32(Tag::kGid, 1001)
              .put(Tag::kUserName, "user")
              .put(Tag::kHome, "/home/user"));
    close(at, open);
  }
  static proto::Fields file_of(std::uint64_t size) {
    proto::Fields file;
    file.put_u8(Tag::kFileType, static_cast<std::uint8_t>(proto::FileType::kRegular))
        .put_u32(Tag::kMode, 0100644)
        .put_u64(Tag::kSize, size)
        .put(Tag::kUserName, "user")
        .put(Tag::kGroupName, "user")
        .put_u64(Tag::kMtimeNs, 0);
    return file;
  }
  // Reads what is written to a stream until FINISH.
  static std::string take_input(FakeSupervisor& at) {
    std::string bytes;
    for (;;) {
      const proto::Frame frame = at.next();
      if (frame.header.type == FrameType::kData) {
        bytes += frame.payload;
        const auto size = static_cast<std::uint32_t>(frame.payload.size());
        at.send(frame.header.stream, FrameType::kCredit, 0, box::credit_payload(size));
      }
      if (frame.header.type == FrameType::kFinish || frame.header.type == FrameType::kClose)
        return bytes;
    }
  }

  std::unique_ptr<FakeSupervisor> supervisor_;
  io::Loop loop_{1};
  FakeFleet fleet_;
  std::shared_ptr<FakeServed> sandbox_;
  std::unique_ptr<fleet::BoxClient> client_;
  DataPlane plane_{fleet_};

 private:
  io::Async<void> wait_done() {
    auto wait = [this] {
      done_.wait();
      return 0;
    };
    co_await loop_.in_pool(std::move(wait));
  }
  io::Async<void> connect() {
    auto socket = io::adopt(loop_, supervisor_->take_client());
    VERIFY(socket.has_value());
    auto client = co_await fleet::BoxClient::connect(loop_, std::move(*socket));
    VERIFY(client.has_value());
    client_ = std::move(*client);
    sandbox_->box = client_.get();
  }

  std::future<void> done_;
};

}  // namespace caisson::api::e2b
