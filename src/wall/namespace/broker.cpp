#include "wall/namespace/broker.h"

#include <string>
#include <utility>
#include <vector>

#include "base/sys.h"

namespace caisson::wall {
namespace {

constexpr std::size_t kMost = 4096;
// First byte of what the launcher says unasked.
constexpr char kFailed = 'E';
constexpr char kComplete = 'C';
constexpr char kDone = 'D';

// What the launcher says instead of what was asked for.
Error failure_of(const std::string& bytes) {
  if (bytes.empty()) return Error{Code::kCancelled, "the launcher is gone"};
  if (bytes[0] == kFailed && bytes.size() >= 2)
    return Error(static_cast<Code>(bytes[1]), bytes.substr(2));
  return Error::internal("the launcher's message is not whole");
}

// One byte for each descriptor that may be there, and those that are.
class Packer {
 public:
  void add(const Fd& file) {
    present_ += file.valid() ? '\1' : '\0';
    if (file.valid()) descriptors_.push_back(file.get());
  }
  void add(const SlotFiles& files) {
    for (const Fd& file : files.file) add(file);
  }
  Status send(int broker_fd, std::string head) const {
    return sys::send_message(broker_fd, std::move(head) + present_, descriptors_);
  }

 private:
  std::string present_;
  std::vector<int> descriptors_;
};

class Unpacker {
 public:
  Unpacker(std::string_view present, std::vector<Fd> descriptors)
      : present_(present), descriptors_(std::move(descriptors)) {}
  // What is missing stays invalid; whole() tells.
  void take(Fd& file) {
    if (at_ >= present_.size()) {
      whole_ = false;
      return;
    }
    if (present_[at_++] == '\0') return;
    if (next_ < descriptors_.size())
      file = std::move(descriptors_[next_++]);
    else
      whole_ = false;
  }
  void take(SlotFiles& files) {
    for (Fd& file : files.file) take(file);
  }
  bool whole() const { return whole_ && at_ == present_.size(); }

 private:
  std::string_view present_;
  std::vector<Fd> descriptors_;
  std::size_t at_ = 0, next_ = 0;
  bool whole_ = true;
};

}  // namespace

Status send_files(int broker_fd, const SlotFiles& files) {
  Packer packer;
  packer.add(files);
  return packer.send(broker_fd, "");
}

Result<SlotFiles> receive_files(int broker_fd) {
  TRY_ASSIGN(sys::Message answer, sys::recv_message(broker_fd, kMost));
  if (answer.bytes.size() != SlotFiles::kCount)
    return fail(Error::internal("the launcher gave no control group: " + answer.bytes));
  Unpacker unpacker(answer.bytes, std::move(answer.descriptors));
  SlotFiles files;
  unpacker.take(files);
  if (!unpacker.whole())
    return fail(Error::internal("the launcher gave no control group: a descriptor is missing"));
  return files;
}

Status send_status(int broker_fd, const Status& status) {
  if (!status) return send_failure(broker_fd, status.error());
  return sys::send_message(broker_fd, std::string(1, kDone), {});
}

Status receive_status(int broker_fd) {
  TRY_ASSIGN(const sys::Message answer, sys::recv_message(broker_fd, kMost));
  if (answer.bytes == std::string(1, kDone)) return {};
  return fail(failure_of(answer.bytes));
}

Status send_completion(int broker_fd, const Completion& completion) {
  Packer packer;
  packer.add(completion.first_slot);
  packer.add(completion.etc);
  std::string head(1, kComplete);
  for (const HeldBy held : completion.held) head += static_cast<char>(held);
  return packer.send(broker_fd, std::move(head));
}

Status send_failure(int broker_fd, const Error& error) {
  std::string text(1, kFailed);
  text += static_cast<char>(error.code());
  text.append(error.message(), 0, kMost - 2);
  return sys::send_message(broker_fd, text, {});
}

Result<Completion> receive_completion(int broker_fd) {
  TRY_ASSIGN(sys::Message answer, sys::recv_message(broker_fd, kMost));
  Completion completion;
  const std::size_t head = 1 + completion.held.size();
  if (!answer.bytes.starts_with(kComplete) || answer.bytes.size() < head)
    return fail(failure_of(answer.bytes));
  for (std::size_t i = 0; i < completion.held.size(); ++i)
    completion.held[i] = static_cast<HeldBy>(answer.bytes[1 + i]);
  Unpacker unpacker(std::string_view(answer.bytes).substr(head), std::move(answer.descriptors));
  unpacker.take(completion.first_slot);
  unpacker.take(completion.etc);
  if (!unpacker.whole()) return fail(Error::internal("the launcher's message is not whole"));
  return completion;
}

}  // namespace caisson::wall
