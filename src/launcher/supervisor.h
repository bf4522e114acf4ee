// The supervisor: one per sandbox, between the guest and everybody who talks to it.
//
// It relays frames between clients and guest, renumbering streams; adds to every command its place
// below the limits, its filter and its listener; holds deadlines, output limits and refusals; and
// gives each command its verdict. It starts to read only after Box::confine(): from then on it is
// an unprivileged process with nothing but its descriptors. Everything the guest sends is hostile:
// a guest that breaks the protocol, or sends more than it was granted, ends its sandbox.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/proto.h"
#include "wall/plan.h"
#include "wall/wall.h"

namespace caisson::launcher {

enum class Frozen : std::uint8_t { kNo, kYes };

// What of a sandbox changes while it lives, and is told to those who only look at its registration.
struct SandboxState {
  std::uint64_t deadline_ms = 0;  // Unix time; 0: none
  Frozen frozen = Frozen::kNo;
};

struct SupervisorInput {
  const wall::Plan& plan;
  std::unique_ptr<wall::Box> box;
  Fd first_client;               // the connection of whoever asked for the sandbox
  Fd listener;                   // RUN/sandboxes/ID/socket
  Fd broker;                     // to the launcher; its end ends the sandbox
  Fd orders;                     // the launcher's word that the sandbox ends; invalid: none comes
  proto::Fields command_limits;  // of every command: command_limits()
  // Called once when the guest has been born, or its birth has failed; an error ends the sandbox.
  std::function<Status(wall::Box& box)> on_birth;
  // Called instead where the sandbox ends before.
  std::function<void(const Error& why)> on_stillbirth;
  // Called with each change.
  std::function<void(const SandboxState& state)> on_state;
  // Has the launcher's gateway go by this policy. Empty: whoever made the sandbox has the gateway.
  std::function<Status(std::string_view policy)> on_network;
  // A boot anew that takes longer ends the sandbox: less than its clients wait for an answer.
  std::uint64_t reboot_us = 10'000'000;
};

// The rlimits of every command in this sandbox as kRlimit fields. Called before Box::confine(),
// while our own can still be asked for.
proto::Fields command_limits(const wall::Plan& plan, const wall::HeldLimits& held);

// Runs until the sandbox has ended.
Status supervise(SupervisorInput input);

}  // namespace caisson::launcher
