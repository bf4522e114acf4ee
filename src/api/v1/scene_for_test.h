// For tests of /v1: sandbox i1 of team 1, whose supervisor and guest a script plays.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/service_for_test.h"
#include "box/fake_supervisor.h"

namespace caisson::api::v1 {

using box::FakeSupervisor;
using proto::FrameType;
using proto::Tag;

inline std::vector<std::string> texts(const proto::Frame& frame, Tag tag) {
  const auto fields = proto::FieldReader::parse(frame.payload);
  EXPECT_TRUE(fields.has_value());
  std::vector<std::string> texts;
  if (!fields.has_value()) return texts;
  for (const std::string_view text : fields->all(tag)) texts.emplace_back(text);
  return texts;
}

inline std::optional<std::uint64_t> number(const proto::Frame& frame, Tag tag) {
  const auto fields = proto::FieldReader::parse(frame.payload);
  EXPECT_TRUE(fields.has_value());
  return fields.has_value() ? fields->number_or_none(tag) : std::nullopt;
}

// Answers the next request of stream 0 with these parts.
inline void answer_request(FakeSupervisor& fake, proto::ControlOperation operation,
                           const std::vector<std::string>& parts) {
  const proto::Frame asked = fake.next(FrameType::kControl);
  EXPECT_EQ(number(asked, Tag::kControlOperation), static_cast<std::uint64_t>(operation));
  proto::Fields head;
  head.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(operation))
      .put_u32(Tag::kRequest, static_cast<std::uint32_t>(number(asked, Tag::kRequest).value_or(0)));
  for (const std::string& part : parts) fake.send(0, FrameType::kEvent, 0, head.bytes() + part);
}

class Scene : public testing::Test, public ServiceFixture {
 protected:
  // The sandbox; it runs and has no connection.
  FakeServed& sandbox() {
    if (!fleet.sandboxes.contains("i1")) {
      FakeServed& served = fleet.add("i1");
      served.variables = {{"A", "sandbox"}, {"B", "sandbox"}};
      served.workdir = "/work";
    }
    return *fleet.sandboxes["i1"];
  }

  struct Client {
    std::optional<std::size_t> gone_at{};  // it leaves after so many bytes of the answer
    std::optional<Error> read_error{};     // in place of its body's end
  };
  // A request while `script` plays the supervisor, which has said HELLO.
  FakeExchange ask(std::string_view method, std::string_view target, std::string body,
                   FakeSupervisor::Script script) {
    return ask(method, target, std::move(body), std::move(script), Client());
  }
  FakeExchange ask(std::string_view method, std::string_view target, std::string body,
                   FakeSupervisor::Script script, Client client) {
    FakeServed& served = sandbox();
    FakeExchange exchange(method, target, {{"X-API-KEY", "e2b_01"}}, std::move(body));
    exchange.gone_at = client.gone_at;
    exchange.read_error = client.read_error;
    FakeSupervisor supervisor([script = std::move(script)](FakeSupervisor& fake) {
      fake.hello();
      script(fake);
    });
    Result<std::unique_ptr<io::Stream>> socket = io::adopt(loop, supervisor.take_client());
    EXPECT_TRUE(socket.has_value());
    auto task = [&]() -> io::Async<void> {
      auto connected = co_await fleet::BoxClient::connect(loop, std::move(*socket));
      EXPECT_TRUE(connected.has_value());
      if (!connected.has_value()) co_return;
      served.box = connected->get();
      co_await answer(exchange);
      served.box = nullptr;
      co_await (*connected)->wait_gone();  // so that the supervisor sees what was sent last
    };
    run(loop, task());
    return exchange;
  }
};

}  // namespace caisson::api::v1
