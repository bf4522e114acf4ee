// For tests: sandboxes that are nothing but a supervisor's socket, played by threads.
//
// make() is a Pool::Make. Every sandbox answers requests of stream 0 and remembers them, and ends
// at a shutdown; nothing else works in it. All threads are joined in the destructor.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/proto.h"
#include "fleet/maker.h"

namespace caisson::fleet {

class FakeHost {
 public:
  FakeHost() {
    std::string pattern = std::filesystem::temp_directory_path() / "fake-host-XXXXXX";
    VERIFY(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
    ::setenv("CAISSON_RUN_DIR", directory_.c_str(), 1);
  }
  ~FakeHost() {
    for (auto& [id, box] : boxes_) ::shutdown(box->listener.get(), SHUT_RDWR);
    for (auto& [id, box] : boxes_) box->thread.join();
    std::filesystem::remove_all(directory_);
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  Result<Made> make(const Recipe& recipe) {
    const std::lock_guard lock(mutex_);
    if (refuse_) return fail(Error::precondition("this host makes no sandboxes now"));
    auto box = std::make_unique<Box>();
    std::string id = "box" + std::to_string(boxes_.size()) + "00000000";
    Made made{.id = id, .socket = socket_of(id), .user = recipe.image, .image = recipe.image};
    std::filesystem::create_directories(std::filesystem::path(made.socket).parent_path());
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    VERIFY(made.socket.size() < sizeof address.sun_path);
    made.socket.copy(address.sun_path, sizeof address.sun_path - 1);
    box->listener = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    VERIFY(::bind(box->listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    VERIFY(::listen(box->listener.get(), 8) == 0);
    box->thread = std::thread([this, raw = box.get()] { serve(*raw); });
    boxes_.emplace(id, std::move(box));
    return made;
  }
  // From now on making fails, or not.
  enum class Makes : bool { kNo, kYes };
  void set_makes(Makes makes) {
    const std::lock_guard lock(mutex_);
    refuse_ = makes == Makes::kNo;
  }
  std::size_t made() {
    const std::lock_guard lock(mutex_);
    return boxes_.size();
  }
  // What it was asked on stream 0, in order.
  std::vector<proto::ControlOperation> asked(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return boxes_.at(id)->asked;
  }
  // Ends a sandbox as if its supervisor had died.
  void end(const std::string& id) {
    const std::lock_guard lock(mutex_);
    ::shutdown(boxes_.at(id)->listener.get(), SHUT_RDWR);
    ::shutdown(boxes_.at(id)->client.get(), SHUT_RDWR);
  }
  // Requests of this kind are refused.
  void refuse(proto::ControlOperation operation) {
    const std::lock_guard lock(mutex_);
    refused_.insert(operation);
  }

 private:
  struct Box {
    Fd listener, client;
    std::thread thread;
    std::vector<proto::ControlOperation> asked;
  };

  void serve(Box& box) {
    for (;;) {
      Fd client(::accept4(box.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client.valid()) return;
      const int fd = client.get();
      {
        const std::lock_guard lock(mutex_);
        box.client = std::move(client);
      }
      if (!talk(box, fd)) break;
    }
    ::shutdown(box.listener.get(), SHUT_RDWR);
  }
  // False: it was shut down.
  bool talk(Box& box, int fd) {
    proto::Decoder decoder;
    char buffer[65536];
    for (;;) {
      const ssize_t count = ::recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0) return true;
      decoder.feed({buffer, static_cast<std::size_t>(count)});
      for (auto frame = decoder.next(); frame.has_value() && frame->has_value();
           frame = decoder.next()) {
        if (!answer(box, fd, **frame)) {
          ::shutdown(fd, SHUT_RDWR);
          return false;
        }
      }
    }
  }
  bool answer(Box& box, int fd, const proto::Frame& frame) {
    using proto::Tag;
    if (frame.header.type == proto::FrameType::kHello) {
      proto::Fields hello;
      hello.put_u32(Tag::kVersion, proto::kVersion).put_u32(Tag::kMinVersion, proto::kMinVersion);
      send(fd, proto::FrameType::kHello, hello);
    }
    if (frame.header.stream != 0 || frame.header.type != proto::FrameType::kControl) return true;
    const auto fields = proto::FieldReader::parse(frame.payload).value();
    const auto operation =
        static_cast<proto::ControlOperation>(fields.number(Tag::kControlOperation).value());
    const std::lock_guard lock(mutex_);
    box.asked.push_back(operation);
    if (operation == proto::ControlOperation::kShutdown) return false;
    proto::Fields answer;
    answer.put_u32(Tag::kRequest,
                   static_cast<std::uint32_t>(fields.number_or_none(Tag::kRequest).value_or(0)));
    if (refused_.contains(operation)) answer.put_error(Error::precondition("not on this host"));
    send(fd, proto::FrameType::kEvent, answer);
    return true;
  }
  static void send(int fd, proto::FrameType type, const proto::Fields& fields) {
    const std::string bytes = proto::encode_frame(0, type, 0, fields.bytes());
    static_cast<void>(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }

  std::mutex mutex_;
  std::string directory_;
  std::map<std::string, std::unique_ptr<Box>> boxes_;
  std::set<proto::ControlOperation> refused_;
  bool refuse_ = false;
};

}  // namespace caisson::fleet
