// For tests: sandboxes that are nothing but a supervisor's socket, played by threads.
//
// Every sandbox answers requests of stream 0 and remembers them, and ends at a shutdown. Commands
// start; a kept one runs on, another ends with success at once, and both fail where the test says
// so. Nothing else works in it. All threads are joined in the destructor.
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
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/proto.h"
#include "base/verdict.h"
#include "maker/host.h"

namespace caisson::fleet {

class FakeHost final : public maker::Host {
 public:
  FakeHost() {
    std::string pattern = std::filesystem::temp_directory_path() / "fake-host-XXXXXX";
    VERIFY(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
  }
  ~FakeHost() override {
    for (auto& [id, box] : boxes_) ::shutdown(box->listener.get(), SHUT_RDWR);
    for (auto& [id, box] : boxes_) box->thread.join();
    std::filesystem::remove_all(directory_);
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  using maker::Host::make;
  Result<maker::Made> make(const maker::Recipe& recipe, int keys_fd) override {
    const std::lock_guard lock(mutex_);
    VERIFY((keys_fd >= 0) == !recipe.authority.empty());
    if (refuse_ || recipe.image == refused_image_)
      return fail(Error::precondition("this host makes no sandboxes now"));
    auto box = std::make_unique<Box>();
    if (keys_fd >= 0) box->keys = Fd(::dup(keys_fd));
    std::string id = "box" + std::to_string(boxes_.size()) + "00000000";
    const sockaddr_un address = address_of(id);
    box->listener = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    VERIFY(::bind(box->listener.get(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) == 0);
    VERIFY(::listen(box->listener.get(), 8) == 0);
    box->thread = std::thread([this, raw = box.get()] { serve(*raw); });
    boxes_.emplace(id, std::move(box));
    return maker::Made{.id = id, .user = recipe.image, .image = image_named(recipe.image)};
  }
  Result<Fd> connect(const std::string& id) override {
    const sockaddr_un address = address_of(id);
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(socket.get(), to, sizeof address) != 0)
      return fail(Error::not_found("there is no sandbox " + id));
    return socket;
  }
  Result<std::vector<std::string>> kept() override { return std::vector<std::string>(); }
  Result<std::string> find_image(const std::string& name, maker::NamedBy) override {
    const std::lock_guard lock(mutex_);
    return image_named(name);
  }
  // From now on the name means that image: for what is made, and for who asks.
  void set_image(const std::string& name, const std::string& image) {
    const std::lock_guard lock(mutex_);
    images_[name] = image;
  }
  Result<std::string> take_snapshot(const std::string& id, const std::string& image) override {
    const std::lock_guard lock(mutex_);
    snapshot_of_ = image;
    return "snapshot of " + id;
  }
  Result<std::vector<std::string>> old_snapshots() override { return old_; }
  Status drop_snapshot(const std::string& image) override {
    const std::lock_guard lock(mutex_);
    dropped_.push_back(image);
    return {};
  }
  Result<maker::Builder> start_builder() override {
    return fail(Error::precondition("this host builds nothing"));
  }
  Result<std::vector<maker::NamedImage>> template_images() override {
    return std::vector<maker::NamedImage>();
  }
  Status drop_template_image(const std::string&) override { return {}; }
  Status check_network() override { return {}; }
  Status trim_cache(const maker::CacheBound&) override { return {}; }
  // The image of what the last snapshot was taken of; what is old, and what was dropped.
  std::string snapshot_of() {
    const std::lock_guard lock(mutex_);
    return snapshot_of_;
  }
  void set_old(std::vector<std::string> images) { old_ = std::move(images); }
  std::vector<std::string> dropped() {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }
  Result<std::vector<std::string>> images() override { return std::vector<std::string>(); }
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
  // The keys that it was made with; and what it was last told of its network.
  int keys(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return boxes_.at(id)->keys.get();
  }
  std::string network(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return boxes_.at(id)->network;
  }
  // What it was asked on stream 0, in order.
  std::vector<proto::ControlOperation> asked(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return boxes_.at(id)->asked;
  }
  // The last arguments of commands that were started in it, in order.
  std::vector<std::string> started(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return boxes_.at(id)->started;
  }
  // From now on these are the commands that fail.
  void set_failing(std::set<std::string> commands) {
    const std::lock_guard lock(mutex_);
    failing_ = std::move(commands);
  }
  // Ends a sandbox as if its supervisor had died.
  void end(const std::string& id) {
    const std::lock_guard lock(mutex_);
    ::shutdown(boxes_.at(id)->listener.get(), SHUT_RDWR);
    ::shutdown(boxes_.at(id)->client.get(), SHUT_RDWR);
  }
  // From now on supervisors say that they speak these versions.
  void speak(std::uint16_t version, std::uint16_t least) {
    const std::lock_guard lock(mutex_);
    version_ = version;
    least_ = least;
  }
  // Nothing is made of this image any more.
  void refuse_image(const std::string& image) {
    const std::lock_guard lock(mutex_);
    refused_image_ = image;
  }
  // Requests of this kind are refused.
  void refuse(proto::ControlOperation operation) {
    const std::lock_guard lock(mutex_);
    refused_.insert(operation);
  }
  // Requests of this kind are answered by these fields too, before the last answer.
  void tell(proto::ControlOperation operation, std::vector<std::string> parts) {
    const std::lock_guard lock(mutex_);
    told_[operation] = std::move(parts);
  }
  // The same, from when `first` has been asked on.
  void tell_after(proto::ControlOperation first, proto::ControlOperation operation,
                  std::vector<std::string> parts) {
    const std::lock_guard lock(mutex_);
    told_after_[first].emplace_back(operation, std::move(parts));
  }
  // Requests of this kind get no answer.
  void stall(proto::ControlOperation operation) {
    const std::lock_guard lock(mutex_);
    stalled_.insert(operation);
  }

 private:
  struct Box {
    Fd listener, client, keys;
    std::string network;
    std::thread thread;
    std::vector<proto::ControlOperation> asked;
    std::vector<std::string> started;
  };

  std::string image_named(const std::string& name) const {
    const auto set = images_.find(name);
    return set == images_.end() ? name : set->second;
  }
  sockaddr_un address_of(const std::string& id) const {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    const std::string path = directory_ + "/" + id;
    VERIFY(path.size() < sizeof address.sun_path);
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
  }

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
      {
        const std::lock_guard lock(mutex_);
        hello.put_u32(Tag::kVersion, version_).put_u32(Tag::kMinVersion, least_);
      }
      send(fd, proto::FrameType::kHello, hello);
    }
    if (frame.header.type == proto::FrameType::kOpen) start(box, fd, frame);
    if (frame.header.stream != 0 || frame.header.type != proto::FrameType::kControl) return true;
    const auto fields = proto::FieldReader::parse(frame.payload).value();
    const auto operation =
        static_cast<proto::ControlOperation>(fields.number(Tag::kControlOperation).value());
    const std::lock_guard lock(mutex_);
    box.asked.push_back(operation);
    if (operation == proto::ControlOperation::kSetNetwork && !refused_.contains(operation))
      box.network = fields.text(Tag::kNetworkPolicy).value();
    if (operation == proto::ControlOperation::kShutdown) return false;
    proto::Fields answer;
    answer.put_u32(Tag::kRequest,
                   static_cast<std::uint32_t>(fields.number_or_none(Tag::kRequest).value_or(0)));
    if (stalled_.contains(operation)) return true;
    const auto request = answer;
    for (const std::string& part : told_[operation]) send(fd, request.bytes() + part);
    if (refused_.contains(operation)) answer.put_error(Error::precondition("not on this host"));
    send(fd, proto::FrameType::kEvent, answer);
    for (auto& [later, parts] : told_after_[operation]) told_[later] = std::move(parts);
    told_after_.erase(operation);
    return true;
  }
  void start(Box& box, int fd, const proto::Frame& open) {
    const auto fields = proto::FieldReader::parse(open.payload).value();
    const std::lock_guard lock(mutex_);
    const auto words = fields.all(proto::Tag::kArg);
    const std::string command(words.empty() ? "" : words.back());
    box.started.push_back(command);
    send(fd, proto::Fields().put_u32(proto::Tag::kStarted, 7).bytes(), open.header.stream);
    const bool fails = failing_.contains(command);
    if (!fails && fields.has(proto::Tag::kKeep)) return;
    Outcome outcome;
    outcome.verdict = Verdict::kExited;
    outcome.exit_code = fails ? 1 : 0;
    send(fd, encode_outcome(outcome), open.header.stream, proto::FrameType::kClose);
  }
  static void send(int fd, const std::string& payload, std::uint32_t stream = 0,
                   proto::FrameType type = proto::FrameType::kEvent) {
    const std::string bytes = proto::encode_frame(stream, type, 0, payload);
    static_cast<void>(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  static void send(int fd, proto::FrameType type, const proto::Fields& fields) {
    const std::string bytes = proto::encode_frame(0, type, 0, fields.bytes());
    static_cast<void>(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }

  std::mutex mutex_;
  std::string directory_;
  std::map<std::string, std::unique_ptr<Box>> boxes_;
  std::set<std::string> failing_;
  std::map<std::string, std::string> images_;
  std::set<proto::ControlOperation> refused_, stalled_;
  std::map<proto::ControlOperation, std::vector<std::string>> told_;
  std::map<proto::ControlOperation,
           std::vector<std::pair<proto::ControlOperation, std::vector<std::string>>>>
      told_after_;
  bool refuse_ = false;
  std::string refused_image_ = "none";
  std::string snapshot_of_;
  std::vector<std::string> old_, dropped_;
  std::uint16_t version_ = proto::kVersion, least_ = proto::kMinVersion;
};

}  // namespace caisson::fleet
