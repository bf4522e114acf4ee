#include "wall/namespace/namespace_wall.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "image/host_etc_cache.h"
#include "wall/namespace/box.h"
#include "wall/namespace/broker.h"
#include "wall/namespace/cgroup.h"
#include "wall/namespace/idmap.h"
#include "wall/namespace/ids.h"
#include "wall/namespace/layer.h"
#include "wall/namespace/layer_quota.h"
#include "wall/namespace/parts.h"
#include "wall/namespace/setup.h"

namespace caisson::wall {
namespace {

// One line each: the path of a control group, or "guest PID START" (its start time as in
// /proc/PID/stat) where no group holds the sandbox's processes.
constexpr const char* kJournal = "journal";
// More than a supervisor ever has open at once (proto::kMaxStreams).
constexpr std::size_t kMaxSlots = 512;
constexpr std::string_view kGuestLine = "guest ";
constexpr int kSweepPatienceMs = 2000;
constexpr int kFreezePatienceMs = 1000;
constexpr std::uint64_t kReleasePauseUs = 1'000'000;
// So long after a command was given its place the next one's is made: its start is over then.
constexpr std::uint64_t kAheadUs = 20'000;

// When a process started, in clock ticks since boot; 0 where there is none.
std::uint64_t start_time(pid_t pid) {
  const auto stat = sys::read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!stat) return 0;
  // Fields are counted from the name's bracket; the name may hold anything.
  std::size_t at = stat->rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat->find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(stat->c_str() + at, nullptr, 10);
}

// A sweep removes nothing else, whatever the journal holds.
bool is_group_of_ours(const std::string& path) {
  struct statfs facts{};
  return path.starts_with("/") && path.substr(path.rfind('/')).starts_with("/caisson-") &&
         ::statfs(path.c_str(), &facts) == 0 &&
         (facts.f_type == CGROUP_SUPER_MAGIC || facts.f_type == CGROUP2_SUPER_MAGIC);
}

// Ends PID 1 of a sandbox, and with it everything inside, and waits for that.
Status end_guest(std::string_view line) {
  char* end = nullptr;
  const std::string numbers(line.substr(kGuestLine.size()));
  const auto pid = static_cast<pid_t>(std::strtol(numbers.c_str(), &end, 10));
  const std::uint64_t started = std::strtoull(end, nullptr, 10);
  if (pid <= 1 || started == 0) return {};
  const auto handle = sys::pidfd_open(pid);
  // The number may have a new owner.
  if (!handle || start_time(pid) != started) return {};
  (void)sys::pidfd_kill(handle->get(), SIGKILL);
  pollfd entry{handle->get(), POLLIN, 0};
  if (::poll(&entry, 1, kSweepPatienceMs) != 1)
    return fail(Error::internal("process " + std::to_string(pid) + " does not end"));
  return {};
}

class NamespacePrepared final : public Prepared {
 public:
  NamespacePrepared(const Plan& plan, const Place& place)
      : plan_(plan), place_(place), steps_(plan.fault) {}

  Status claim();
  Status admit() override;
  void complete(int broker_fd) override;
  const Steps& steps() const { return steps_; }
  Result<std::unique_ptr<Box>> build(int broker_fd) override;
  Status serve(int broker_fd, std::string_view message) override;
  std::uint64_t ahead_at_us() const override { return ahead_at_us_; }
  void make_ahead() override;
  void forget() override {
    journal_.reset();
    quota_ = {};
  }
  void kill() override { groups_.kill(); }
  Status clean_up(int patience_ms) override;

 private:
  Status limit_io(SlotFiles& first_slot);
  Status check_limits() const;
  Status make_layer();
  Status note(const std::string& line);
  Status freeze();
  Result<SlotFiles> take_place(std::uint32_t number);
  Status admit_steps();
  Result<Completion> complete_steps();
  Result<std::unique_ptr<Box>> build_steps(int broker_fd);
  Result<pid_t> clone_guest(BoxParts& box);

  const Plan& plan_;
  Place place_;
  Steps steps_;
  Ids ids_;
  CgroupHost host_;
  CgroupTree groups_;
  Fd journal_;
  std::vector<std::uint32_t> dropped_slots_;  // launcher: still to be removed
  std::uint32_t last_slot_ = kFirstSlot;      // launcher: numbers grow
  std::size_t live_slots_ = 0;                // launcher
  // Launcher: the place of the next command, of a sandbox that has run more than one. Making a
  // group of version 1 takes as long as forking a process, and a command would wait for it.
  std::optional<SlotFiles> ahead_;
  std::uint32_t ahead_number_ = 0;
  std::uint64_t ahead_at_us_ = 0;
  std::uint64_t release_again_us_ = 0;  // launcher
  bool freezer_noted_ = false;          // launcher: the journal names the group that freezes
  Fd guest_group_;                      // that the guest is born in
  Fd etc_;                              // launcher: its lock keeps the kept /etc in place
  QuotaLayer quota_;                    // layer: quota
};

Status NamespacePrepared::check_limits() const {
  if (plan_.require_hard_limits == 0) return {};
  const HeldLimits held = groups_.held();
  struct Needed {
    Limit limit;
    std::uint64_t value;
    const char* name;
  };
  const Needed needed[] = {{Limit::kMemory, plan_.memory, "memory"},
                           {Limit::kCpus, plan_.cpu_milli, "cpus"}};
  for (const Needed& entry : needed) {
    if (entry.value != 0 && held[static_cast<std::size_t>(entry.limit)] == HeldBy::kNone)
      return fail(Error::precondition(
          std::string("limits.") + entry.name + " cannot be held hard here: " +
          (host_.reason.empty() ? "the controller is missing" : host_.reason) +
          "; drop --require-hard-limits or run where control groups are delegated"));
  }
  const Needed io[] = {{Limit::kIoRead, plan_.io_read, "io_read"},
                       {Limit::kIoWrite, plan_.io_write, "io_write"},
                       {Limit::kIoReadOps, plan_.io_read_ops, "io_read_ops"},
                       {Limit::kIoWriteOps, plan_.io_write_ops, "io_write_ops"}};
  for (const Needed& entry : io) {
    const std::string fault = entry.value == 0 ? "" : groups_.io_fault(entry.limit);
    if (fault.empty()) continue;
    return fail(Error::precondition(std::string("limits.") + entry.name +
                                    " cannot be held hard here: " + fault +
                                    (host_.reason.empty() ? "" : "; " + host_.reason) +
                                    "; drop --require-hard-limits or the limit"));
  }
  return {};
}

Status NamespacePrepared::note(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(journal_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail_errno("write the journal");
  return {};
}

Status NamespacePrepared::claim() {
  TRY(steps_.enter("ids"));
  TRY_ASSIGN(ids_, allocate_ids(place_.run_directory_fd));
  if (is_off(plan_.switches, Mechanism::kIdMap) && ids_.mode == IdMode::kRoot) {
    // The sandbox's ids are the host's of the same number, its root included.
    ids_.outer_uids.back() = ids_.outer_gids.back() = {1, 0, kRange};
  }
  TRY(steps_.enter("journal"));
  journal_ = Fd(::openat(place_.sandbox_directory_fd, kJournal,
                         O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
  if (!journal_.valid()) return fail_errno("create the journal");
  Status noted;
  host_ = find_cgroups("/proc", [&](const std::string& probe) {
    if (noted) noted = note(probe);
  });
  TRY(noted);
  std::string lines;
  for (const CgroupPlace& place : host_.places)
    lines += (lines.empty() ? "" : "\n") + place.path + "/caisson-" + plan_.id;
  if (!lines.empty()) TRY(note(lines));
  TRY(steps_.enter("birth-group"));
  TRY_ASSIGN(groups_,
             CgroupTree::create(host_, plan_, mapped(ids_.outer_uids, 0).value_or(::geteuid())));
  TRY_ASSIGN(guest_group_, groups_.guest_directory());
  steps_.finish();
  return {};
}

// The one limit whose group is not made before the plan is known: hardly any plan has it.
Status NamespacePrepared::limit_io(SlotFiles& first_slot) {
  if (!plan_.limits_io() || is_off(plan_.switches, Mechanism::kCgroupIo)) return {};
  TRY_ASSIGN(SeenDisks disks, disks_of(plan_, place_.run_directory_fd));
  if (!host_.io.path.empty()) TRY(note(host_.io.path + "/caisson-" + plan_.id));
  return groups_.limit_io(host_.io, plan_, std::move(disks), first_slot);
}

Status NamespacePrepared::make_layer() {
  TRY(steps_.enter("quota"));
  if (ids_.mode != IdMode::kRoot)
    return fail(Error::precondition(
        "layer: quota needs a loop device, which is root's alone; allowed is layer: tmpfs"));
  const bool limited = !is_off(plan_.switches, Mechanism::kLayerLimits);
  TRY_ASSIGN(
      quota_,
      make_quota_layer({.directory_fd = plan_.descriptors[plan_.layer_fd],
                        .bytes = limited ? plan_.disk : 0,
                        .inodes = limited ? plan_.inodes : 0,
                        .root_uid = mapped(ids_.outer_uids, 0).value_or(ids_.supervisor_uid),
                        .root_gid = mapped(ids_.outer_gids, 0).value_or(ids_.supervisor_gid),
                        .attributes = static_cast<unsigned>(layer_flags(plan_, plan_.switches))}));
  return {};
}

Status NamespacePrepared::admit() {
  auto admitted = admit_steps();
  if (!admitted) return fail(steps_.name(std::move(admitted).error()));
  return {};
}

Status NamespacePrepared::admit_steps() {
  TRY(steps_.enter("admit"));
  if (plan_.privileges != 0 && ids_.mode == IdMode::kSingle)
    return fail(Error::precondition(
        "privileges: sudo needs a range of ids, and this user has none in /etc/subuid"));
  TRY(ids_.set_user(plan_.user_uid, plan_.user_gid));
  if (lies_on_disk(plan_)) TRY(make_layer());
  return {};
}

void NamespacePrepared::complete(int broker_fd) {
  auto completed = complete_steps();
  // A supervisor that has died meanwhile is noticed by whoever waits for it.
  if (completed) {
    (void)send_completion(broker_fd, *completed);
    etc_ = std::move(completed->etc);
  } else {
    (void)send_failure(broker_fd, steps_.name(std::move(completed).error()));
  }
  steps_.finish();
}

Result<Completion> NamespacePrepared::complete_steps() {
  Completion completion;
  TRY(steps_.enter("cgroup"));
  TRY(groups_.complete(plan_));
  TRY_ASSIGN(completion.first_slot, groups_.make_slot(kFirstSlot));
  TRY(limit_io(completion.first_slot));
  TRY(check_limits());
  completion.held = groups_.held();
  if (plan_.image != PlanImage::kHost) return completion;
  TRY(steps_.enter("host-etc"));
  TRY_ASSIGN(completion.etc,
             image::host_etc_directory(place_.run_directory_fd, plan_.user_uid, plan_.user_gid));
  return completion;
}

Result<std::unique_ptr<Box>> NamespacePrepared::build(int broker_fd) {
  auto box = build_steps(broker_fd);
  if (!box) {
    const bool named = box.error().message().starts_with("in ");
    return fail(named ? std::move(box).error() : steps_.name(std::move(box).error()));
  }
  return box;
}

Result<std::unique_ptr<Box>> NamespacePrepared::build_steps(int broker_fd) {
  BoxParts box;
  quota_.root.reset();  // the launcher's own is the one that counts
  TRY(steps_.enter("clone"));
  TRY_ASSIGN(const pid_t pid, clone_guest(box));
  // What asks for rights outside is made while the setup child makes the rest.
  TRY_ASSIGN(RootParts parts, make_parts(plan_, ids_, steps_));
  TRY(steps_.enter("complete"));
  TRY_ASSIGN(Completion completion, receive_completion(broker_fd));
  TRY(add_etc(parts, std::move(completion.etc), ids_.mode));
  if (quota_.mount.valid()) parts.layer = std::move(quota_.mount);
  if (auto sent = send_parts(box.report.get(), std::move(parts)); !sent) {
    // A child that has failed meanwhile says why instead.
    const int why = sent.error().error_number();
    if (why != EPIPE && why != ECONNRESET) return fail(std::move(sent).error());
  }
  steps_.finish();
  box.guest_pid = static_cast<int>(pid);
  box.first_slot = std::move(completion.first_slot);
  box.ids_mode = ids_.mode;
  box.supervisor_uid = ids_.supervisor_uid;
  box.supervisor_gid = ids_.supervisor_gid;
  box.has_groups = !groups_.empty();
  box.held = completion.held;
  box.layer_before = quota_.before;
  if (plan_.keep_layer != 0) {
    box.layer_uids = image_mapping(ids_.outer_uids, ids_.inner_uids, 0);
    box.layer_gids = image_mapping(ids_.outer_gids, ids_.inner_gids, 0);
  }
  return make_namespace_box(plan_, std::move(box), broker_fd);
}

// The setup child, with its maps written and on its way.
Result<pid_t> NamespacePrepared::clone_guest(BoxParts& box) {
  int channel[2], report[2], maps[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0)
    return fail_errno("socketpair");
  box.channel = Fd(channel[0]);
  Fd guest_channel(channel[1]);
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) != 0)
    return fail_errno("socketpair");
  box.report = Fd(report[0]);
  Fd report_there(report[1]);
  if (::pipe2(maps, O_CLOEXEC) != 0) return fail_errno("pipe2");
  Fd maps_read(maps[0]);
  Fd maps_write(maps[1]);

  if (ids_.mode == IdMode::kRoot) {
    // The creator's effective id becomes the owner of U, and with it of everything inside: the
    // supervisor's own, so that it keeps its rights over the box when it has no others any more.
    if (::prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) != 0) return fail_errno("securebits");
    if (::setresgid(-1, ids_.supervisor_gid, -1) != 0) return fail_errno("setresgid");
    if (::setresuid(-1, ids_.supervisor_uid, -1) != 0) return fail_errno("setresuid");
  }
  const auto unless_off = [&](Mechanism mechanism, std::uint64_t flag) -> std::uint64_t {
    return is_off(plan_.switches, mechanism) ? 0 : flag;
  };
  clone_args arguments{};
  int pid_fd = -1;
  // The network namespace, the dearest of all, is made inside while the root is built.
  arguments.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_PIDFD |
                    unless_off(Mechanism::kPidNamespace, CLONE_NEWPID) |
                    unless_off(Mechanism::kIpcNamespace, CLONE_NEWIPC) |
                    unless_off(Mechanism::kUtsNamespace, CLONE_NEWUTS);
  arguments.pidfd = reinterpret_cast<std::uint64_t>(&pid_fd);
  arguments.exit_signal = SIGCHLD;
  if (guest_group_.valid()) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<std::uint64_t>(guest_group_.get());
  }
  const long number = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (number < 0) return fail_errno("clone3 of the box");
  const auto pid = static_cast<pid_t>(number);
  if (pid != 0 && ids_.mode == IdMode::kRoot) {
    // What is made from here on is the caller's again. The changes cleared the death signal; a
    // launcher that died meanwhile shows at the broker's socket, as soon as the box is up.
    if (::setresuid(-1, 0, -1) != 0) return fail_errno("setresuid");
    if (::setresgid(-1, 0, -1) != 0) return fail_errno("setresgid");
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno("pdeathsig");
  }
  if (pid == 0) {
    // The supervisor's ends: their closing is how its death is seen.
    box.channel.reset();
    box.report.reset();
    maps_write.reset();
    run_setup({.plan = plan_,
               .ids = ids_,
               .cgroups = host_.mode,
               .channel = std::move(guest_channel),
               .report = std::move(report_there),
               .maps_written = std::move(maps_read)});
  }
  box.guest_pidfd = Fd(pid_fd);
  guest_group_.reset();
  if (groups_.empty())
    TRY(note(std::string(kGuestLine) + std::to_string(pid) + " " +
             std::to_string(start_time(pid))));
  TRY(steps_.enter("maps"));
  TRY(apply_outer_maps(ids_, pid));
  // One for the child and one for the child's own.
  if (::write(maps_write.get(), "mm", 2) != 2) return fail_errno("release the setup child");
  return pid;
}

Status NamespacePrepared::freeze() {
  if (!host_.freezer.path.empty() && !freezer_noted_) {
    TRY(note(host_.freezer.path + "/caisson-" + plan_.id));
    freezer_noted_ = true;
  }
  return groups_.freeze(host_.freezer, plan_, kFreezePatienceMs);
}

void NamespacePrepared::make_ahead() {
  ahead_at_us_ = 0;
  if (ahead_ || groups_.empty()) return;
  auto files = groups_.make_slot(last_slot_ + 1);
  if (!files) return;
  ahead_ = std::move(*files);
  ahead_number_ = last_slot_ + 1;
}

Result<SlotFiles> NamespacePrepared::take_place(std::uint32_t number) {
  auto ahead = std::exchange(ahead_, std::nullopt);
  ahead_at_us_ = sys::monotonic_us() + kAheadUs;
  if (ahead && ahead_number_ == number) return std::move(*ahead);
  if (ahead) {
    ahead.reset();
    dropped_slots_.push_back(ahead_number_);
  }
  return groups_.make_slot(number);
}

Status NamespacePrepared::serve(int broker_fd, std::string_view message) {
  BrokerRequest request;
  if (message.size() != sizeof request) return fail(Error::invalid("a request of wrong size"));
  std::memcpy(&request, message.data(), sizeof request);
  std::erase_if(dropped_slots_, [&](std::uint32_t slot) { return groups_.remove_slot(slot, 0); });
  if (request.what == 'S') {
    // A broken supervisor must not fill the host with groups.
    if (request.number <= last_slot_ || dropped_slots_.size() >= kMaxSlots)
      return fail(Error::invalid("a place out of order, or too many of them"));
    last_slot_ = request.number;
    if (++live_slots_ > kMaxSlots) return fail(Error::exhausted("too many places"));
  }
  if (request.what == 'D' && live_slots_ > 0) --live_slots_;
  switch (request.what) {
    case 'U':
    case 'S': {
      auto files = request.what == 'U' ? groups_.sandbox_files() : take_place(request.number);
      if (!files) return sys::send_message(broker_fd, files.error().message(), {});
      return send_files(broker_fd, *files);
    }
    case 'Z':
      return send_status(broker_fd, freeze());
    case 'T':
      return send_status(broker_fd, groups_.thaw());
    case 'Y':
      (void)groups_.thaw();
      return {};
    case 'E':
      // What is empty already goes while the supervisor and PID 1 come to their end.
      (void)groups_.remove(0);
      return {};
    case 'F':
      // A broken supervisor must not do away with the limit.
      if (sys::monotonic_us() < release_again_us_) return {};
      groups_.release_io(plan_);
      release_again_us_ = sys::monotonic_us() + kReleasePauseUs;
      return {};
    case 'K':
      groups_.kill();
      return {};
    case 'D':
      // Members may still be dying: whatever is not empty yet is tried again at the next request.
      dropped_slots_.push_back(request.number);
      return {};
    default:
      return fail(Error::invalid("an unknown request"));
  }
}

Status NamespacePrepared::clean_up(int patience_ms) {
  // A layer that was handed to the sandbox's owner is abandoned by that one (image/kept_layer.h).
  if (plan_.keep_layer == 0 || plan_.life == Life::kKept) abandon_layer(quota_);
  quota_ = {};
  auto removed = groups_.remove(patience_ms);
  // Where something stays the journal does too, for the next sweep.
  if (removed) (void)::unlinkat(place_.sandbox_directory_fd, kJournal, 0);
  return removed;
}

class NamespaceWall final : public Wall {
 public:
  std::string_view name() const override { return "namespace"; }
  std::uint32_t capabilities() const override { return kCanFreeze | kCanGrantDirectories; }

  Result<std::unique_ptr<Prepared>> prepare(const Plan& plan, const Place& place) override {
    auto prepared = std::make_unique<NamespacePrepared>(plan, place);
    if (auto claimed = prepared->claim(); !claimed) {
      Error error = prepared->steps().name(std::move(claimed).error());
      (void)prepared->clean_up(0);
      return fail(std::move(error));
    }
    return std::unique_ptr<Prepared>(std::move(prepared));
  }

  Status sweep(int directory_fd) override {
    auto journal = sys::read_file(directory_fd, kJournal, 64 * 1024);
    if (!journal) {
      if (journal.error().error_number() == ENOENT) return {};
      return fail(std::move(journal).error());
    }
    std::vector<std::string> paths;
    std::size_t start = 0;
    while (start < journal->size()) {
      const std::size_t end = std::min(journal->find('\n', start), journal->size());
      const std::string path = journal->substr(start, end - start);
      if (path.starts_with(kGuestLine)) TRY(end_guest(path));
      if (is_group_of_ours(path)) paths.push_back(path);
      start = end + 1;
    }
    const CgroupTree tree = CgroupTree::adopt(std::move(paths));
    tree.kill();
    TRY(tree.remove(kSweepPatienceMs));
    if (::unlinkat(directory_fd, kJournal, 0) != 0 && errno != ENOENT)
      return fail_errno("remove the journal");
    return {};
  }
};

}  // namespace

std::unique_ptr<Wall> make_namespace_wall() {
  return std::make_unique<NamespaceWall>();
}

}  // namespace caisson::wall
