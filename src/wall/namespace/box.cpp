#include "wall/namespace/box.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/secret.h"
#include "base/sys.h"
#include "wall/namespace/cgroup_io.h"
#include "wall/namespace/parts.h"
#include "wall/namespace/supervisor_confine.h"
#include "wall/namespace/watch.h"

namespace caisson::wall {
namespace {

constexpr std::size_t kCounterFile = 4096;

std::uint64_t number_at(std::string_view text) {
  std::uint64_t value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The number behind "key " at the start of a line; 0 where there is none.
std::uint64_t value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ')
      return number_at(line.substr(key.size() + 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}

std::string contents_of(const Fd& file) {
  if (!file.valid()) return "";
  auto contents = sys::read_again(file.get(), kCounterFile);
  return contents ? std::move(contents).value() : "";
}

void read_counters(const SlotFiles& files, Usage& usage) {
  const std::string cpu = contents_of(files.file[SlotFiles::kCpuStat]);
  usage.user_us = value_of(cpu, "user_usec");
  usage.system_us = value_of(cpu, "system_usec");
  usage.memory_peak = number_at(contents_of(files.file[SlotFiles::kMemoryPeak]));
  usage.memory_now = number_at(contents_of(files.file[SlotFiles::kMemoryNow]));
  const std::string memory = contents_of(files.file[SlotFiles::kMemoryStat]);
  usage.memory_cache = std::max(value_of(memory, "file"), value_of(memory, "total_cache"));
  usage.memory_kills = value_of(contents_of(files.file[SlotFiles::kMemoryEvents]), "oom_kill");
  usage.pids_peak = number_at(contents_of(files.file[SlotFiles::kPidsPeak]));
  usage.pids_now = number_at(contents_of(files.file[SlotFiles::kPidsNow]));
  usage.pids_refusals = value_of(contents_of(files.file[SlotFiles::kPidsEvents]), "max");
  const IoBytes io = parse_io_counters(contents_of(files.file[SlotFiles::kIoStat]));
  usage.io_read_bytes = io.read;
  usage.io_write_bytes = io.written;
}

class NamespaceBox;

class NamespaceSlot final : public ExecSlot {
 public:
  NamespaceSlot(NamespaceBox& box, std::uint32_t number, SlotFiles files)
      : box_(box), number_(number), files_(std::move(files)) {
    for (int i = 0; i < SlotFiles::kEnterCount; ++i) {
      if (files_.file[static_cast<std::size_t>(i)].valid())
        descriptors_.push_back(files_.file[static_cast<std::size_t>(i)].get());
    }
  }
  ~NamespaceSlot() override;

  std::span<const int> descriptors() const override { return descriptors_; }
  bool born_in_last() const override { return files_.file[SlotFiles::kBirthUnified].valid(); }
  Result<Usage> sample() override;
  Status kill() override;

 private:
  NamespaceBox& box_;
  std::uint32_t number_;
  SlotFiles files_;
  std::vector<int> descriptors_;
  // Peaks where the kernel keeps none, and what the layer held at most.
  Usage highest_;
};

class NamespaceBox final : public Box {
 public:
  NamespaceBox(const Plan& plan, BoxParts parts, int broker_fd)
      : plan_(plan), parts_(std::move(parts)), broker_fd_(broker_fd) {
    const auto size_held = [&](Limit limit, std::uint64_t value) {
      if (value != 0) parts_.held[static_cast<std::size_t>(limit)] = HeldBy::kRlimit;
    };
    size_held(Limit::kDisk, plan.disk);
    size_held(Limit::kInodes, plan.inodes);
    size_held(Limit::kOpenFiles, plan.open_files);
    // What the supervisor counts and times itself is exact to the moment it looks.
    for (const Limit limit : {Limit::kOutput, Limit::kTimeout})
      parts_.held[static_cast<std::size_t>(limit)] = HeldBy::kWatched;
    // v1 groups alone tell no processor time that we could look at.
    const bool counts_time =
        !parts_.has_groups || parts_.first_slot.file[SlotFiles::kCpuStat].valid();
    parts_.held[static_cast<std::size_t>(Limit::kCpuTime)] =
        counts_time ? HeldBy::kWatched : HeldBy::kNone;
    auto& memory = parts_.held[static_cast<std::size_t>(Limit::kMemory)];
    if (memory == HeldBy::kNone && plan.memory != 0) memory = HeldBy::kWatched;
    auto& pids = parts_.held[static_cast<std::size_t>(Limit::kPids)];
    if (pids == HeldBy::kNone && plan.pids != 0) pids = HeldBy::kRlimit;
    const auto values = plan.limits();
    for (std::size_t i = 0; i < kLimits; ++i) {
      if (values[i] == 0) parts_.held[i] = HeldBy::kNone;
    }
  }

  int channel_fd() const override { return parts_.channel.get(); }
  bool channel_passes_descriptors() const override { return true; }
  int end_fd() const override { return parts_.guest_pidfd.get(); }
  HeldLimits held() const override { return parts_.held; }
  Result<std::unique_ptr<ExecSlot>> make_slot() override;
  Result<Usage> usage() override;
  Status freeze() override;
  Status thaw() override;
  Status renew_boot_id() override;
  Status kill() override;
  void let_go() override { tell_broker('E', 0); }
  Result<Fd> attach_network(std::string_view) override {
    return fail(Error{Code::kUnimplemented, "this version has no gateway to attach"});
  }
  Status checkpoint(int) override {
    return fail(Error{Code::kUnimplemented, "the namespace wall cannot checkpoint"});
  }
  int birth_fd() const override { return parts_.report.get(); }
  Status await_birth() override;
  Gateway take_gateway() override { return std::move(handouts_.gateway); }
  Handouts take_handouts() override { return std::move(handouts_); }
  Status confine() override {
    return confine_supervisor({.change_ids = parts_.ids_mode == IdMode::kRoot,
                               .uid = parts_.supervisor_uid,
                               .gid = parts_.supervisor_gid,
                               .reads_proc = watched(),
                               .switches = plan_.switches});
  }

  // Where no group counts or none holds memory, the processes below the guest are looked at one by
  // one.
  bool watched() const {
    if (!parts_.has_groups) return true;
    // The test build leaves out watching together with the rlimits.
    return parts_.held[static_cast<std::size_t>(Limit::kMemory)] == HeldBy::kWatched &&
           !is_off(plan_.switches, Mechanism::kRlimits);
  }
  bool limits_io() const { return plan_.limits_io() && parts_.has_groups; }
  const Plan& plan() const { return plan_; }
  int guest_pid() const { return parts_.guest_pid; }
  int broker_fd() const { return broker_fd_; }
  Result<Usage> sample_files(const SlotFiles& files);
  Status kill_slot(const Fd& kill_file);
  void drop_slot(std::uint32_t number);

 private:
  Result<SlotFiles> ask_broker(char what, std::uint32_t number);
  void tell_broker(char what, std::uint32_t number) {
    const BrokerRequest request{what, number};
    (void)sys::send_message(broker_fd_, {reinterpret_cast<const char*>(&request), sizeof request},
                            {});
  }
  Status ask_broker(char what) {
    const BrokerRequest request{what, 0};
    TRY(sys::send_message(broker_fd_, {reinterpret_cast<const char*>(&request), sizeof request},
                          {}));
    return receive_status(broker_fd_);
  }

  const Plan& plan_;
  BoxParts parts_;
  Handouts handouts_;
  int broker_fd_;
  std::uint32_t last_slot_ = kFirstSlot;
  std::optional<SlotFiles> box_files_;  // counters of the whole box, once somebody asked
  bool first_slot_taken_ = false;
  bool released_ = false;  // the limits of I/O
  bool frozen_ = false;
};

Result<Usage> NamespaceBox::sample_files(const SlotFiles& files) {
  Usage usage;
  read_counters(files, usage);
  usage.watched = watched();
  if (!parts_.layer.valid()) return usage;  // not born yet
  TRY_ASSIGN(const LayerUse layer, use_of_layer(parts_.layer.get()));
  usage.disk_bytes = layer.bytes - std::min(layer.bytes, parts_.layer_before.bytes);
  usage.disk_bytes_peak = usage.disk_bytes;
  usage.disk_inodes = layer.inodes - std::min(layer.inodes, parts_.layer_before.inodes);
  usage.disk_full = plan_.disk != 0 && layer.bytes_left == 0;
  usage.inodes_full = plan_.inodes != 0 && layer.inodes_left == 0;
  if (!watched()) return usage;
  Usage seen;
  // What lies on disk takes no memory.
  if (!lies_on_disk(plan_)) seen.disk_bytes = usage.disk_bytes;
  TRY(watch_processes(parts_.guest_pid, plan_.memory, plan_.pids, seen));
  usage.watched = true;
  usage.memory_now = seen.memory_now;
  usage.memory_kills = seen.memory_kills;
  if (parts_.has_groups) return usage;
  usage.user_us = seen.user_us;
  usage.system_us = seen.system_us;
  usage.pids_now = seen.pids_now;
  usage.pids_refusals = seen.pids_refusals;
  return usage;
}

Status NamespaceBox::await_birth() {
  TRY_ASSIGN(Birth birth, receive_birth(parts_.report.get()));
  parts_.report.reset();
  parts_.layer = std::move(birth.layer);
  parts_.boot_id = std::move(birth.boot_id);
  handouts_ = std::move(birth.handouts);
  if (!handouts_.layer.valid()) return {};
  handouts_.uid_lines = to_text(parts_.layer_uids);
  handouts_.gid_lines = to_text(parts_.layer_gids);
  return {};
}

Result<SlotFiles> NamespaceBox::ask_broker(char what, std::uint32_t number) {
  const BrokerRequest request{what, number};
  TRY(sys::send_message(broker_fd_, {reinterpret_cast<const char*>(&request), sizeof request}, {}));
  return receive_files(broker_fd_);
}

Result<Usage> NamespaceBox::usage() {
  if (!box_files_) {
    TRY_ASSIGN(box_files_, ask_broker('U', 0));
  }
  return sample_files(*box_files_);
}

Result<std::unique_ptr<ExecSlot>> NamespaceBox::make_slot() {
  if (!first_slot_taken_) {
    first_slot_taken_ = true;
    return std::make_unique<NamespaceSlot>(*this, kFirstSlot, std::move(parts_.first_slot));
  }
  const std::uint32_t number = ++last_slot_;
  TRY_ASSIGN(SlotFiles files, ask_broker('S', number));
  return std::make_unique<NamespaceSlot>(*this, number, std::move(files));
}

Status NamespaceBox::freeze() {
  TRY(ask_broker('Z'));
  frozen_ = true;
  return {};
}

Status NamespaceBox::thaw() {
  TRY(ask_broker('T'));
  frozen_ = false;
  return {};
}

Status NamespaceBox::renew_boot_id() {
  const std::string text = random_uuid() + "\n";
  if (::pwrite(parts_.boot_id.get(), text.data(), text.size(), 0) !=
      static_cast<ssize_t>(text.size()))
    return fail_errno("write the boot id");
  return {};
}

Status NamespaceBox::kill() {
  // PID 1's death takes its whole pid namespace with it. On v1 what is frozen would not die.
  if (std::exchange(frozen_, false)) tell_broker('Y', 0);
  const auto killed = sys::pidfd_kill(parts_.guest_pidfd.get(), SIGKILL);
  if (limits_io() && !std::exchange(released_, true)) tell_broker('K', 0);
  return killed;
}

Status NamespaceBox::kill_slot(const Fd& kill_file) {
  if (kill_file.valid()) {
    if (::write(kill_file.get(), "1", 1) != 1) return fail_errno("write cgroup.kill");
    if (limits_io()) tell_broker('F', 0);
    return {};
  }
  return fail(Error{Code::kUnimplemented, "no control group can end this command alone"});
}

void NamespaceBox::drop_slot(std::uint32_t number) {
  if (!parts_.has_groups || number == kFirstSlot) return;  // goes with the box
  tell_broker('D', number);
}

NamespaceSlot::~NamespaceSlot() {
  for (Fd& file : files_.file) file.reset();
  box_.drop_slot(number_);
}

Result<Usage> NamespaceSlot::sample() {
  TRY_ASSIGN(Usage usage, box_.sample_files(files_));
  highest_.memory_peak = std::max({highest_.memory_peak, usage.memory_peak, usage.memory_now});
  highest_.pids_peak = std::max({highest_.pids_peak, usage.pids_peak, usage.pids_now});
  highest_.disk_bytes_peak = std::max(highest_.disk_bytes_peak, usage.disk_bytes);
  highest_.disk_full = highest_.disk_full || usage.disk_full;
  highest_.inodes_full = highest_.inodes_full || usage.inodes_full;
  highest_.memory_kills = std::max(highest_.memory_kills, usage.memory_kills);
  highest_.pids_refusals = std::max(highest_.pids_refusals, usage.pids_refusals);
  usage.memory_peak = highest_.memory_peak;
  usage.pids_peak = highest_.pids_peak;
  usage.disk_bytes_peak = highest_.disk_bytes_peak;
  usage.disk_full = highest_.disk_full;
  usage.inodes_full = highest_.inodes_full;
  usage.memory_kills = highest_.memory_kills;
  usage.pids_refusals = highest_.pids_refusals;
  return usage;
}

Status NamespaceSlot::kill() {
  return box_.kill_slot(files_.file[SlotFiles::kKill]);
}

}  // namespace

std::unique_ptr<Box> make_namespace_box(const Plan& plan, BoxParts parts, int broker_fd) {
  return std::make_unique<NamespaceBox>(plan, std::move(parts), broker_fd);
}

}  // namespace caisson::wall
