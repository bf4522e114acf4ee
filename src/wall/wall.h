// The wall: what stands between a sandbox and the host, designed for three kinds.
//
// A Wall makes Boxes. It runs inside the supervisor, with the launcher's rights, and everything
// that it makes is written to the sandbox's journal first, so that Wall::sweep() can remove what a
// dead supervisor left. No pid, cgroup, mount or namespace is visible outside wall/: what the
// supervisor holds are descriptors to poll, and calls. One thread.
#pragma once

#include <caisson/result.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "wall/handouts.h"
#include "wall/plan.h"

namespace caisson::wall {

// How each limit is held, in Limit's order.
using HeldLimits = std::array<HeldBy, kLimits>;

// Counters of one command, or of the whole box. Times in microseconds.
struct Usage {
  std::uint64_t user_us = 0, system_us = 0;
  std::uint64_t memory_peak = 0, memory_now = 0;
  std::uint64_t memory_cache = 0;  // of memory_now: pages of files; of a box alone
  std::uint64_t pids_peak = 0, pids_now = 0;
  std::uint64_t disk_bytes = 0, disk_inodes = 0;  // now in the writable layer
  std::uint64_t disk_bytes_peak = 0;
  std::uint64_t io_read_bytes = 0, io_write_bytes = 0;  // of disks; where I/O is limited
  bool disk_full = false, inodes_full = false;          // seen at a sample during the command
  std::uint64_t memory_kills = 0, pids_refusals = 0;    // hits of a limit
  // Memory is held by looking: who met the limit still runs, and must be ended.
  bool watched = false;
};

// The place in which one command runs: its own group of counters below the box's limits.
class ExecSlot {
 public:
  virtual ~ExecSlot() = default;
  // Descriptors that the guest needs to put the command into its place; sent with the OPEN frame.
  virtual std::span<const int> descriptors() const = 0;
  // Whether the last of them is a directory that the command's process is born in.
  virtual bool born_in_last() const = 0;
  virtual Result<Usage> sample() = 0;
  // Ends every process of the command, also those that left its session.
  virtual Status kill() = 0;
};

class Box {
 public:
  virtual ~Box() = default;
  // The guest's end of the framed channel (base/proto.h); unix socket, pipes, virtio-serial or
  // vsock.
  virtual int channel_fd() const = 0;
  // Whether descriptors can travel over the channel.
  virtual bool channel_passes_descriptors() const = 0;
  // Readable once nothing runs inside any more.
  virtual int end_fd() const = 0;
  virtual HeldLimits held() const = 0;
  virtual Result<std::unique_ptr<ExecSlot>> make_slot() = 0;
  virtual Result<Usage> usage() = 0;
  // Holds every process that commands have started, and lets them go on; the guest goes on all the
  // while. Error: failed_precondition where this host cannot, deadline_exceeded where something
  // would not stop (then nothing is held).
  virtual Status freeze() = 0;
  virtual Status thaw() = 0;
  // Nothing runs inside but the guest: what comes now sees another boot_id(4) than before.
  virtual Status renew_boot_id() = 0;
  // Ends all of it; returns at once, end_fd() tells when it is done.
  virtual Status kill() = 0;
  // After that: nobody will ask for usage any more, what it is counted by may go.
  virtual void let_go() = 0;
  virtual Result<Fd> attach_network(std::string_view port) = 0;
  virtual Status checkpoint(int directory_fd) = 0;
  // Gives up every right that only the making needed: after this the caller is an unprivileged
  // process without capabilities, and everything above still works. Called before the first byte of
  // the guest is read.
  virtual Status confine() = 0;
  // Readable once await_birth() will not wait; -1 where the guest has been born.
  virtual int birth_fd() const = 0;
  // Waits until the guest has been born; the error is that of a build whose last part, which goes
  // on while the caller confines itself, has failed. What is sent to the guest before waits for it.
  virtual Status await_birth() = 0;
  // After that, once each: the gateway, where the plan asked for one, and what else it asked to
  // have handed out.
  virtual Gateway take_gateway() = 0;
  virtual Handouts take_handouts() = 0;
};

// What this wall can do on this host; bits of Wall::capabilities().
enum Capability : std::uint32_t {
  kCanFreeze = 1u << 0,
  kCanCheckpoint = 1u << 1,
  kCanAttachNetwork = 1u << 2,
  kCanGrantDirectories = 1u << 3,
  kHasOwnKernel = 1u << 4,
};

// Where a sandbox is registered.
struct Place {
  int run_directory_fd = -1;      // borrowed
  int sandbox_directory_fd = -1;  // borrowed; RUN/sandboxes/ID
};

class Prepared {
 public:
  virtual ~Prepared() = default;
  // Launcher: the plan is complete now. Refuses what this host cannot hold.
  virtual Status admit() = 0;
  // Launcher, beside the supervisor's build(): writes the limits, and makes what the supervisor
  // waits for before its box is whole. On an error build() fails with it.
  virtual void complete(int broker_fd) = 0;
  // Supervisor: builds the box and starts the guest as a child of this process. `broker_fd` is the
  // supervisor's end of a SOCK_SEQPACKET pair whose other end the launcher gives to serve(). On an
  // error the message begins with the step's name, and clean_up() removes what was made.
  virtual Result<std::unique_ptr<Box>> build(int broker_fd) = 0;
  // Launcher: answers one request of the supervisor's box, as it came from there; an error means
  // that the supervisor is broken or gone.
  virtual Status serve(int broker_fd, std::string_view request) = 0;
  // Launcher: when make_ahead() is due (CLOCK_MONOTONIC, microseconds); 0: it is not.
  virtual std::uint64_t ahead_at_us() const = 0;
  // Launcher, then: makes what the supervisor is likely to ask for next. What cannot be made is
  // made, or refused, when it is asked for.
  virtual void make_ahead() = 0;
  // Supervisor, when the box is built: closes what only making and removing need.
  virtual void forget() = 0;
  // Launcher, when the supervisor has ended: kills whatever is left inside.
  virtual void kill() = 0;
  // Launcher, then: removes all that is left. Names what stays; a second call tries that again.
  virtual Status clean_up(int patience_ms) = 0;
};

class Wall {
 public:
  virtual ~Wall() = default;
  virtual std::string_view name() const = 0;
  virtual std::uint32_t capabilities() const = 0;
  // Claims everything with a name: ids, groups, journal. Of the plan only its id and what is not
  // encoded are known yet; it is borrowed, and filled before admit(). On an error nothing is left.
  virtual Result<std::unique_ptr<Prepared>> prepare(const Plan& plan, const Place& place) = 0;
  // Removes what the journal in `directory_fd` names; its owners must be dead.
  virtual Status sweep(int directory_fd) = 0;
};

}  // namespace caisson::wall
