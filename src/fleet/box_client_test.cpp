#include "fleet/box_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "box/connection.h"
#include "box/fake_supervisor.h"

namespace caisson::fleet {
namespace {

using box::FakeSupervisor;
using proto::Channel;
using proto::ControlOperation;
using proto::FrameType;
using proto::Kind;
using proto::Tag;
using testing::HasSubstr;
using Message = BoxStream::Message;
using Connected = Result<std::unique_ptr<BoxClient>>;

// Runs `body` on a loop with a client of that supervisor.
template <typename Body>
void with_client(FakeSupervisor::Script script, Body body) {
  FakeSupervisor supervisor(std::move(script));
  io::Loop loop(1);
  auto socket = io::adopt(loop, supervisor.take_client());
  ASSERT_TRUE(socket.has_value());
  auto task = [](io::Loop& on, std::unique_ptr<io::Stream> over, Body& run) -> io::Async<void> {
    Connected client = co_await BoxClient::connect(on, std::move(over));
    co_await run(std::move(client));
    on.stop();
  };
  loop.spawn(task(loop, std::move(*socket), body));
  loop.run();
}

proto::Fields command() {
  proto::Fields fields;
  fields.put(Tag::kArg, "true");
  return fields;
}

TEST(BoxClient, RefusesAPeerThatBeginsWithSomethingElse) {
  with_client([](FakeSupervisor& fake) { fake.out(1, "x"); },
              [](Connected client) -> io::Async<void> {
                EXPECT_FALSE(client.has_value());
                co_return;
              });
}

TEST(BoxClient, RefusesAVersionThatIsTooNew) {
  with_client([](FakeSupervisor& fake) { fake.hello(9, 8); },
              [](Connected client) -> io::Async<void> {
                EXPECT_FALSE(client.has_value());
                co_return;
              });
}

TEST(BoxClient, MessagesOfAStreamComeInOrder) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const proto::Frame open = fake.next(FrameType::kOpen);
    EXPECT_EQ(open.header.detail, static_cast<std::uint8_t>(Kind::kExec));
    fake.started(open.header.stream);
    fake.out(open.header.stream, "out");
    fake.out(open.header.stream, "err", Channel::kErr);
    fake.close(open.header.stream, FakeSupervisor::exited(3));
    fake.next();
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto stream = (*client)->open(Kind::kExec, command());
    std::string seen;
    for (;;) {
      auto message = co_await (*stream)->next();
      if (message->kind == Message::Kind::kEvent) seen += "event ";
      if (message->kind == Message::Kind::kData)
        seen += message->bytes + std::to_string(static_cast<int>(message->channel)) + " ";
      if (message->kind == Message::Kind::kClose) break;
    }
    EXPECT_EQ(seen, "event out1 err2 ");
    EXPECT_TRUE((*stream)->closed());
    const auto after = co_await (*stream)->next();
    EXPECT_FALSE(after.has_value());
  });
}

TEST(BoxClient, CreditIsGivenForWhatWasTaken) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = fake.next(FrameType::kOpen).header.stream;
    const std::string piece(32 * 1024, 'x');
    std::uint64_t credit = proto::kInitialCredit, sent = 0;
    while (sent < 4 * proto::kInitialCredit) {
      while (credit < piece.size())
        credit += proto::parse_credit(fake.next(FrameType::kCredit).payload).value();
      fake.out(stream, piece);
      credit -= piece.size();
      sent += piece.size();
    }
    fake.close(stream, FakeSupervisor::exited(0));
    fake.next();
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto stream = (*client)->open(Kind::kExec, command());
    std::uint64_t bytes = 0;
    for (;;) {
      auto message = co_await (*stream)->next();
      if (message->kind == Message::Kind::kClose) break;
      bytes += message->bytes.size();
    }
    EXPECT_EQ(bytes, 4 * proto::kInitialCredit);
  });
}

TEST(BoxClient, MoreThanTheCreditEndsTheConnection) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = fake.next(FrameType::kOpen).header.stream;
    const std::string piece(64 * 1024, 'x');
    for (int i = 0; i < 6; ++i) fake.out(stream, piece);
    fake.next();
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto stream = (*client)->open(Kind::kExec, command());
    co_await (*client)->wait_gone();
    EXPECT_TRUE((*client)->gone());
    EXPECT_FALSE((*client)->open(Kind::kExec, command()).has_value());
  });
}

TEST(BoxClient, AnUploadWaitsForCreditAndASignalDoesNot) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = fake.next(FrameType::kOpen).header.stream;
    std::uint64_t came = 0;
    bool signalled = false, finished = false;
    while (!finished) {
      const proto::Frame frame = fake.next();
      if (frame.header.type == FrameType::kControl) {
        signalled = true;
        fake.send(stream, FrameType::kCredit, 0, box::credit_payload(1u << 20));
      }
      if (frame.header.type == FrameType::kData) came += frame.payload.size();
      finished = frame.header.type == FrameType::kFinish;
    }
    EXPECT_TRUE(signalled);
    EXPECT_EQ(came, proto::kInitialCredit + 100'000);
    fake.close(stream, FakeSupervisor::exited(0));
    fake.next();
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto stream = (*client)->open(Kind::kExec, command());
    auto first = co_await (*stream)->write(std::string(proto::kInitialCredit, 'x'));
    EXPECT_TRUE(first.has_value());
    // Nothing may be sent now, but this may.
    proto::Fields signal;
    signal.put_u32(Tag::kSignal, 15);
    (*stream)->control(signal);
    auto second = co_await (*stream)->write(std::string(100'000, 'x'));
    EXPECT_TRUE(second.has_value());
    (*stream)->finish();
    auto message = co_await (*stream)->next();
    EXPECT_EQ(message->kind, Message::Kind::kClose);
    auto late = co_await (*stream)->write("x");
    EXPECT_FALSE(late.has_value());
  });
}

TEST(BoxClient, WhatWasWrittenIsTakenWhenItIsGrantedAgain) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = fake.next(FrameType::kOpen).header.stream;
    EXPECT_EQ(fake.next(FrameType::kData).payload, "12345");
    fake.send(stream, FrameType::kCredit, 0, box::credit_payload(2));
    fake.send(stream, FrameType::kCredit, 0, box::credit_payload(3));
    EXPECT_EQ(fake.next(FrameType::kData).payload, "more");
    fake.send(stream, FrameType::kCredit, 0, box::credit_payload(3));
    fake.close(stream, FakeSupervisor::exited(0));
    fake.next();
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto stream = (*client)->open(Kind::kExec, command());
    auto written = co_await (*stream)->write("12345");
    EXPECT_TRUE(written.has_value());
    auto taken = co_await (*stream)->taken();
    EXPECT_TRUE(taken.has_value());
    written = co_await (*stream)->write("more");
    EXPECT_TRUE(written.has_value());
    taken = co_await (*stream)->taken();
    EXPECT_FALSE(taken.has_value());
  });
}

TEST(BoxClient, ADroppedStreamIsClosed) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = fake.next(FrameType::kOpen).header.stream;
    EXPECT_EQ(fake.next(FrameType::kClose).header.stream, stream);
    // What comes for it now concerns nobody.
    fake.out(stream, "late");
    fake.close(stream, FakeSupervisor::exited(0));
    EXPECT_EQ(fake.next(FrameType::kOpen).header.stream, stream + 2);
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    (*client)->open(Kind::kExec, command()).value().reset();
    auto stream = (*client)->open(Kind::kExec, command());
    const auto message = co_await (*stream)->next();
    EXPECT_FALSE(message.has_value());
  });
}

TEST(BoxClient, AFloodOfEventsEndsItsStreamAlone) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = fake.next(FrameType::kOpen).header.stream;
    const std::string event = proto::Fields().put(Tag::kName, std::string(60'000, 'n')).bytes();
    for (int i = 0; i < 80; ++i) fake.send(stream, FrameType::kEvent, 0, event);
    fake.close(fake.next(FrameType::kOpen).header.stream, FakeSupervisor::exited(0));
    fake.next(FrameType::kOpen);
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto flooded = (*client)->open(Kind::kFile, command());
    while (!(*flooded)->closed()) co_await io::Loop::sleep(std::chrono::milliseconds(1));
    auto other = (*client)->open(Kind::kExec, command());
    const auto message = co_await (*other)->next();
    EXPECT_EQ(message->kind, Message::Kind::kClose);
    for (;;) {
      auto event = co_await (*flooded)->next();
      if (event->kind != Message::Kind::kClose) continue;
      EXPECT_THAT(proto::FieldReader::parse(event->bytes)->error()->message(),
                  HasSubstr("more was told"));
      break;
    }
  });
}

TEST(BoxClient, EmptyEventsCountToo) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = fake.next(FrameType::kOpen).header.stream;
    std::string many;
    for (int i = 0; i < 150'000; ++i) many += proto::encode_frame(stream, FrameType::kEvent, 0, "");
    fake.send_raw(many);
    fake.next(FrameType::kClose);
    // Stays until the client has looked.
    fake.next(FrameType::kOpen);
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto stream = (*client)->open(Kind::kFile, command());
    while (!(*stream)->closed()) co_await io::Loop::sleep(std::chrono::milliseconds(1));
    EXPECT_FALSE((*client)->gone());
  });
}

TEST(BoxClient, BytesThatComeOneByOneAreTakenTogether) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = fake.next(FrameType::kOpen).header.stream;
    for (int i = 0; i < 1000; ++i) fake.out(stream, "x");
    fake.close(stream, FakeSupervisor::exited(0));
    fake.next(FrameType::kOpen);
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto stream = (*client)->open(Kind::kExec, command());
    while (!(*stream)->closed()) co_await io::Loop::sleep(std::chrono::milliseconds(1));
    std::size_t bytes = 0, messages = 0;
    for (;;) {
      auto message = co_await (*stream)->next();
      if (message->kind == Message::Kind::kClose) break;
      bytes += message->bytes.size();
      ++messages;
    }
    EXPECT_EQ(bytes, 1000u);
    EXPECT_LT(messages, 100u);
  });
}

TEST(BoxClient, RequestsAreAnsweredByTheirNumbers) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    for (const bool good : {true, false}) {
      const proto::Frame request = fake.next(FrameType::kControl);
      const auto fields = proto::FieldReader::parse(request.payload).value();
      EXPECT_EQ(fields.number(Tag::kControlOperation).value(),
                static_cast<std::uint64_t>(ControlOperation::kFreeze));
      proto::Fields answer;
      answer.put_u32(Tag::kRequest, static_cast<std::uint32_t>(*fields.number(Tag::kRequest)));
      if (!good) answer.put_error(Error::precondition("no freezer"));
      // One that nobody waits for is dropped.
      fake.send(0, FrameType::kEvent, 0, proto::Fields().put_u32(Tag::kRequest, 99).bytes());
      fake.send(0, FrameType::kEvent, 0, answer.bytes());
    }
    fake.next();
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto good = co_await (*client)->request(ControlOperation::kFreeze, {});
    EXPECT_TRUE(good.has_value());
    auto bad = co_await (*client)->request(ControlOperation::kFreeze, {});
    EXPECT_EQ(bad.error().code(), Code::kFailedPrecondition);
  });
}

TEST(BoxClient, ASandboxThatGoesEndsWhatWaits) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    fake.next(FrameType::kOpen);
    fake.next(FrameType::kControl);
  };
  with_client(script, [](Connected client) -> io::Async<void> {
    auto stream = (*client)->open(Kind::kExec, command());
    int told = 0;
    (*client)->on_gone([&told] { ++told; });
    auto answer = co_await (*client)->request(ControlOperation::kUsage, {});
    EXPECT_EQ(answer.error().code(), Code::kUnavailable);
    auto message = co_await (*stream)->next();
    EXPECT_EQ(message.error().code(), Code::kUnavailable);
    EXPECT_EQ(told, 1);
    // A stream may outlive its client.
    client->reset();
    auto written = co_await (*stream)->write("x");
    EXPECT_FALSE(written.has_value());
    stream->reset();
  });
}

}  // namespace
}  // namespace caisson::fleet
