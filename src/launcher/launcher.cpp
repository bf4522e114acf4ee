#include "launcher/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/sys.h"
#include "launcher/gateway_keeper.h"
#include "launcher/gateway_protocol.h"
#include "launcher/registry.h"
#include "launcher/supervisor.h"
#include "wall/namespace/namespace_wall.h"
#include "wall/namespace/steps.h"

namespace caisson::launcher {
namespace {

constexpr std::size_t kMaxAnswer = 4096;
constexpr std::size_t kMostRequest = 64 * 1024;
// The first bytes of a supervisor's own requests; its box's are others. A SandboxState follows, and
// the answer is that byte.
constexpr char kStateRequest = 'W';
// The gateway's sockets come with it; there is no answer.
constexpr char kGatewayRequest = 'G';
// A network policy follows; the answer is that byte, or the code and the sentence of an error.
constexpr char kNetworkRequest = 'N';
constexpr int kPatienceMs = 5000;
// More than a supervisor waits for readers of verdicts.
constexpr std::uint64_t kSupervisorPatienceUs = 15'000'000;
// After an alarm everything that runs inside is killed, if the supervisor has not done so; where no
// control group can (an ordinary user's without any), with the supervisor so much later, when it
// can no longer be waiting for readers.
constexpr std::uint64_t kAlarmPatienceUs = 2'000'000;
constexpr std::uint64_t kAlarmSupervisorPatienceUs = 6'000'000;

struct Request {
  wall::Plan plan;
  std::vector<Fd> owned;  // behind the plan's numbers
  Fd client, run_directory;

  KeptRecords take_records() {
    if (plan.audit == 0) return {};
    const auto take = [&](std::uint32_t place) { return std::move(owned[plan.audit_fd + place]); };
    return {.file = take(0), .chain = take(1), .head = take(2)};
  }
  Fd take_keys() {
    return plan.keys == wall::PlanKeys::kFile ? std::move(owned[plan.keys_fd]) : Fd();
  }
  Fd take_minter() { return plan.minter != 0 ? std::move(owned[plan.minter_fd]) : Fd(); }
  Fd take_alarm() { return plan.alarm != 0 ? std::move(owned[plan.alarm_fd]) : Fd(); }

  // Closes what the plan names. The rest came to be kept for as long as the sandbox lives: the lock
  // on its image's files.
  void close_named() {
    auto close_one = [&](bool named, std::uint32_t number) {
      if (named && number < owned.size()) owned[number].reset();
    };
    for (const wall::PlanRoot& root : wall::image_roots(plan)) {
      close_one(true, root.fd);
      close_one(root.form == wall::PlanImage::kMount, root.file_fd);
    }
    close_one(wall::lies_on_disk(plan), plan.layer_fd);
    close_one(plan.keys == wall::PlanKeys::kSaid, plan.keys_fd);
    for (const wall::PlanGrant& grant : plan.grants) close_one(true, grant.fd);
  }
};

// The first message: which sandbox, and where.
Result<Request> read_opening(int control_fd) {
  TRY_ASSIGN(sys::Message message, sys::recv_message(control_fd, kMaxOpening));
  if (message.bytes.empty()) return fail(Error{Code::kCancelled, "whoever asked is gone"});
  if (!message.bytes.starts_with(kOpeningMagic))
    return fail(Error::invalid("the request is not of this version"));
  if (message.descriptors.size() != 1)
    return fail(Error::invalid("the request came with too few descriptors"));
  Request request;
  request.plan.id = message.bytes.substr(kOpeningMagic.size());
  TRY(wall::check_id(request.plan.id));
  request.run_directory = std::move(message.descriptors[0]);
#if defined(CAISSON_TEST_SWITCHES)
  if (const char* off = ::getenv("CAISSON_OFF")) {
    TRY_ASSIGN(request.plan.switches, parse_switches(off));
  }
  if (const char* fault = ::getenv("CAISSON_FAULT")) request.plan.fault = fault;
  if (::getenv("CAISSON_TIMINGS") != nullptr) request.plan.fault = "timings";
#endif
  return request;
}

// The second: the plan, which takes its place in the request without moving it.
Status read_plan(int control_fd, Request& request) {
  TRY_ASSIGN(sys::Message message,
             sys::recv_message(control_fd, kPlanMagic.size() + wall::kMaxPlanBytes));
  if (message.bytes.empty()) return fail(Error{Code::kCancelled, "whoever asked is gone"});
  if (!message.bytes.starts_with(kPlanMagic))
    return fail(Error::invalid("the request is not a launch plan of this version"));
  if (message.descriptors.empty())
    return fail(Error::invalid("the request came with too few descriptors"));
  TRY_ASSIGN(wall::Plan plan,
             wall::decode_plan(std::string_view(message.bytes).substr(kPlanMagic.size()),
                               message.descriptors.size() - 1));
  if (plan.id != request.plan.id)
    return fail(Error::invalid("the plan is another sandbox's than was announced"));
  // Whoever reads the client's stderr to its end must not wait for a sandbox that outlives it.
  if (plan.life != Life::kOwner && ::dup2(0, 2) < 0) return fail_errno("dup2");
  request.client = std::move(message.descriptors[0]);
  for (std::size_t i = 1; i < message.descriptors.size(); ++i) {
    plan.descriptors.push_back(message.descriptors[i].get());
    request.owned.push_back(std::move(message.descriptors[i]));
  }
  plan.guest_entry = request.plan.guest_entry;
  plan.switches = request.plan.switches;
  plan.fault = std::move(request.plan.fault);
  request.plan = std::move(plan);
  return {};
}

void tell_failure(int socket_fd, const Error& error) {
  std::string answer;
  answer += '\1';
  answer += static_cast<char>(error.code());
  answer += error.message();
  (void)sys::send_message(socket_fd, answer, {});
}

// From here on the sandbox can be found; the supervisor gets what it is found by, or a sentence.
void send_listener(int broker_fd, Registration& registration, std::string_view info,
                   wall::Steps& steps) {
  auto published = steps.enter("publish");
  if (published) published = registration.publish(info);
  const Fd listener = registration.take_listener();
  const int descriptors[] = {listener.get()};
  // A supervisor that has died meanwhile is noticed by whoever waits for it.
  if (published)
    (void)sys::send_message(broker_fd, "L", descriptors);
  else
    (void)sys::send_message(broker_fd, steps.name(std::move(published).error()).message(), {});
  steps.finish();
}

// Whether the gateway of such a sandbox is the launcher's.
bool has_keeper(const wall::Plan& plan) {
  return plan.network == wall::PlanNetwork::kGateway && plan.life != Life::kOwner;
}

// What a gateway is told of the server; invalid where there is none.
Result<Fd> served_file(const wall::Plan& plan) {
  if (plan.served_domain.empty()) return Fd();
  return sys::memory_file("caisson-served", plan.served_domain);
}

Status give_gateway(int broker_fd, const wall::Gateway& gateway) {
  return sys::send_message(broker_fd, std::string_view(&kGatewayRequest, 1),
                           std::array{gateway.tcp.get(), gateway.dns_udp.get(),
                                      gateway.dns_tcp.get(), gateway.namespace_fd.get()});
}

// Waits for the launcher's answer.
Status ask_network(int broker_fd, std::string_view policy) {
  if (policy.size() >= kMostRequest)
    return fail(Error::exhausted("the network policy is too long"));
  TRY(sys::send_message(broker_fd, kNetworkRequest + std::string(policy), {}));
  TRY_ASSIGN(const sys::Message answer, sys::recv_message(broker_fd, kMaxAnswer));
  if (answer.bytes == std::string_view(&kNetworkRequest, 1)) return {};
  if (answer.bytes.empty()) return fail(Error::unavailable("the launcher has ended"));
  return fail(Error(static_cast<Code>(answer.bytes[0]), answer.bytes.substr(1)));
}

// The supervisor's whole life.
[[noreturn]] void be_supervisor(Request& request, wall::Prepared& prepared,
                                Registration& registration, Fd broker, Fd orders, int control_fd) {
  const wall::Plan& plan = request.plan;
  (void)::prctl(PR_SET_NAME, "caisson-superv");
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) ::_exit(1);
  auto box = prepared.build(broker.get());
  if (!box) {
    // Of a launcher that has died its own end tells more.
    if (box.error().code() != Code::kCancelled) tell_failure(control_fd, box.error());
    ::_exit(1);
  }
  Fd listener;
  if (auto sent = sys::recv_message(broker.get(), kMaxAnswer);
      sent && sent->descriptors.size() == 1) {
    listener = std::move(sent->descriptors[0]);
  } else {
    if (sent && !sent->bytes.empty()) tell_failure(control_fd, Error::internal(sent->bytes));
    ::_exit(1);
  }
  // From here on the host's directories are nothing to us; what stays are the locks.
  prepared.forget();
  registration.keep_lock();
  request.owned.clear();
  request.run_directory.reset();
  proto::Fields limits = command_limits(plan, (*box)->held());
  // Many commands and clients need many descriptors; the guest is born already and keeps its own
  // limit.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  wall::Steps steps(plan.fault);
  auto confined = steps.enter("confine");
  if (confined) confined = (*box)->confine();
  if (!confined) {
    tell_failure(control_fd, steps.name(std::move(confined).error()));
    ::_exit(1);
  }
  const int broker_fd = broker.get();
  // The setup child works on meanwhile; its error names its own step.
  const auto on_birth = [&](wall::Box& made) -> Status {
    auto born = steps.enter("ready");
    bool ours = !born;
    if (born) born = made.await_birth();
    if (born) {
      born = steps.enter("up");
      ours = !born;
    }
    if (!born) {
      const Error error = ours ? steps.name(born.error()) : born.error();
      tell_failure(control_fd, error);
      return fail(error);
    }
    {
      // Whatever outlives the maker stays with the sandbox: its gateway with the launcher, a kept
      // one's layer here, for whoever asks (kHold).
      wall::Gateway gateway = made.take_gateway();
      wall::Handouts handouts = plan.life == Life::kKept ? wall::Handouts() : made.take_handouts();
      if (has_keeper(plan))
        TRY(give_gateway(broker_fd, gateway));
      else
        handouts.gateway = std::move(gateway);
      TRY(sys::send_message(control_fd, std::string(1, '\0') + wall::encode_handouts(handouts),
                            wall::descriptors_of(handouts)));
    }
    // From here on the first client's connection alone ties us to whoever asked.
    ::close(control_fd);
    (void)steps.enter("supervise");
    return {};
  };
  const auto tell_state = [broker_fd](const SandboxState& state) {
    std::string text(1, kStateRequest);
    text.append(reinterpret_cast<const char*>(&state), sizeof state);
    // Who is told of the change finds it stored.
    if (sys::send_message(broker_fd, text, {})) (void)sys::recv_message(broker_fd, kMaxAnswer);
  };
  std::function<Status(std::string_view)> set_network;
  if (plan.life != Life::kOwner)
    set_network = [broker_fd](std::string_view policy) { return ask_network(broker_fd, policy); };
  (void)supervise({.plan = plan,
                   .box = std::move(box).value(),
                   .first_client = std::move(request.client),
                   .listener = std::move(listener),
                   .broker = std::move(broker),
                   .orders = std::move(orders),
                   .command_limits = std::move(limits),
                   .on_birth = on_birth,
                   .on_stillbirth = [&](const Error& why) { tell_failure(control_fd, why); },
                   .on_state = tell_state,
                   .on_network = std::move(set_network)});
  ::_exit(0);
}

Status hold_gateway(std::vector<Fd> descriptors, GatewayKeeper& gateway) {
  if (descriptors.size() != 4) return fail(Error::invalid("a gateway without its sockets"));
  return gateway.hold({.tcp = std::move(descriptors[0]),
                       .dns_udp = std::move(descriptors[1]),
                       .dns_tcp = std::move(descriptors[2]),
                       .namespace_fd = std::move(descriptors[3])});
}

Status answer_network(int broker_fd, std::string_view policy, GatewayKeeper& gateway) {
  const Status set = gateway.set_policy(std::string(policy));
  std::string answer(1, kNetworkRequest);
  if (!set.has_value()) {
    answer[0] = static_cast<char>(set.error().code());
    answer += std::string_view(set.error().message()).substr(0, kMaxAnswer - 1);
  }
  return sys::send_message(broker_fd, answer, {});
}

// One request of the supervisor: its own, or its box's.
Status serve(int broker_fd, const wall::Plan& plan, wall::Prepared& prepared,
             Registration& registration, GatewayKeeper& gateway) {
  TRY_ASSIGN(sys::Message message, sys::recv_message(broker_fd, kMostRequest));
  if (message.bytes.empty()) return fail(Error::unavailable("the supervisor closed"));
  // What the plan has not, nobody is given later by a supervisor that has read hostile bytes.
  if (message.bytes.starts_with(kGatewayRequest) && has_keeper(plan))
    return hold_gateway(std::move(message.descriptors), gateway);
  if (message.bytes.starts_with(kNetworkRequest))
    return answer_network(broker_fd, std::string_view(message.bytes).substr(1), gateway);
  if (!message.bytes.starts_with(kStateRequest)) return prepared.serve(broker_fd, message.bytes);
  SandboxState state;
  if (message.bytes.size() != 1 + sizeof state)
    return fail(Error::invalid("a state of wrong size"));
  std::memcpy(&state, message.bytes.data() + 1, sizeof state);
  // A full run directory is no reason to end the sandbox: what is stored is then older.
  (void)registration.store_state(state);
  return sys::send_message(broker_fd, std::string(1, kStateRequest), {});
}

int ms_until(std::uint64_t time_us) {
  const std::uint64_t now_us = sys::monotonic_us();
  return time_us <= now_us ? 0 : static_cast<int>((time_us - now_us + 999) / 1000);
}

// A gateway's word that its sandbox is to end: the supervisor is told, so that those who wait for
// commands hear why, and is given a moment. It has read hostile bytes and may not obey.
class Alarm {
 public:
  // `from`: the alarm, invalid where there is none. `orders`: the supervisor.
  Alarm(Fd from, Fd orders) : from_(std::move(from)), orders_(std::move(orders)) {}

  int fd() const { return from_.get(); }
  // Something has come, or nothing comes any more.
  void take(GatewayKeeper& gateway) {
    const auto said = sys::recv_message(from_.get(), kMostAlarm);
    from_.reset();
    if (!said.has_value() || said->bytes.empty()) return;
    gateway.halt();
    // It is shown to people, and who says it has read hostile bytes too.
    std::string sentence;
    for (const char c : said->bytes) sentence += c >= 0x20 && c < 0x7f ? c : '?';
    (void)sys::send_message(orders_.get(), sentence, {});
    kill_at_us_ = sys::monotonic_us() + kAlarmPatienceUs;
  }
  // When what is still there is to be killed; 0: never.
  std::uint64_t kill_at_us() const { return kill_at_us_; }
  void killed() { kill_at_us_ = 0; }

 private:
  Fd from_, orders_;
  std::uint64_t kill_at_us_ = 0;
};

// Waits for the supervisor; the guest is reparented to us. A supervisor that should end and does
// not (something stopped it) is killed. Whether it came to its own end.
bool wait_for_end(pid_t supervisor, int supervisor_fd, Fd broker, const wall::Plan& plan,
                  wall::Prepared& prepared, Registration& registration, GatewayKeeper& gateway,
                  Alarm& alarm, int control_fd) {
  constexpr std::size_t kOwn = 4;
  pollfd entries[kOwn + GatewayKeeper::kEntries] = {{supervisor_fd, POLLIN, 0},
                                                    {broker.get(), POLLIN, 0},
                                                    {control_fd, 0, 0},
                                                    {alarm.fd(), POLLIN, 0}};
  std::uint64_t end_by_us = 0;
  for (;;) {
    if (!broker.valid() && end_by_us == 0) end_by_us = sys::monotonic_us() + kSupervisorPatienceUs;
    const std::uint64_t ahead_at_us = broker.valid() ? prepared.ahead_at_us() : 0;
    int timeout_ms = ahead_at_us != 0 ? ms_until(ahead_at_us) : -1;
    if (alarm.kill_at_us() != 0 || end_by_us != 0) timeout_ms = 100;
    auto of_gateway = gateway.entries();
    std::ranges::copy(of_gateway, entries + kOwn);
    const int ready = ::poll(entries, std::size(entries), timeout_ms);
    if (ready < 0 && errno != EINTR) break;
    if (ready == 0 && ahead_at_us != 0) prepared.make_ahead();
    if (entries[0].revents != 0) break;
    if (end_by_us != 0 && sys::monotonic_us() >= end_by_us) {
      (void)sys::pidfd_kill(supervisor_fd, SIGKILL);
      break;
    }
    if (entries[3].revents != 0) {
      alarm.take(gateway);
      entries[3].fd = -1;
    }
    if (alarm.kill_at_us() != 0 && sys::monotonic_us() >= alarm.kill_at_us()) {
      alarm.killed();
      prepared.kill();
      const std::uint64_t by_us = sys::monotonic_us() + kAlarmSupervisorPatienceUs;
      end_by_us = end_by_us == 0 ? by_us : std::min(end_by_us, by_us);
    }
    if (entries[1].revents != 0 && !serve(broker.get(), plan, prepared, registration, gateway)) {
      broker.reset();  // the supervisor sees that and ends
      entries[1].fd = -1;
    }
    if ((entries[2].revents & (POLLHUP | POLLERR)) != 0) {
      // Whoever asked is dead; so is the first client's connection, but this does not wait for it.
      broker.reset();
      entries[1].fd = entries[2].fd = -1;
    }
    // A policy that came in the same turn is there before what needs it.
    if (ready > 0) {
      std::copy(entries + kOwn, std::end(entries), of_gateway.begin());
      gateway.look(of_gateway);
    }
    for (pollfd& entry : entries) entry.revents = 0;
  }
  int status = 0;
  return ::waitpid(supervisor, &status, 0) == supervisor && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

// Kills every child of ours: the guest, or the one that was to become it, that a dead supervisor
// left to us.
void kill_children() {
  const auto children = sys::read_file(
      AT_FDCWD, "/proc/self/task/" + std::to_string(::getpid()) + "/children", 64 * 1024);
  if (!children) return;
  const char* at = children->c_str();
  for (char* end = nullptr;; at = end) {
    const long pid = std::strtol(at, &end, 10);
    if (end == at) return;
    if (pid > 1) (void)::kill(static_cast<pid_t>(pid), SIGKILL);
  }
}

// Waits for everything that was reparented to us. SIGCHLD is blocked.
void reap_the_rest(int patience_ms) {
  const std::uint64_t deadline =
      sys::monotonic_us() + static_cast<std::uint64_t>(patience_ms) * 1000;
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid < 0 && errno == ECHILD) return;
    if (pid > 0) continue;
    if (sys::monotonic_us() >= deadline) return;
    const timespec moment{0, 20'000'000};
    // Whatever has come meanwhile may be somebody's whom its own death did not take along.
    if (::sigtimedwait(&child, nullptr, &moment) < 0) kill_children();
  }
}

}  // namespace

int run_launcher(int control_fd, GuestEntry guest_entry) {
  // Killed or hung up on, we still clean up: the end of whoever asked is told by descriptor 3.
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_IGN);
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  ::umask(077);
  (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
  (void)::fcntl(control_fd, F_SETFD, FD_CLOEXEC);

  auto request = read_opening(control_fd);
  if (!request) {
    tell_failure(control_fd, std::move(request).error().with("plan"));
    return 1;
  }
  request->plan.guest_entry = guest_entry;
  const auto wall = wall::make_namespace_wall();
  wall::Steps steps(request->plan.fault);
  const auto enter_and = [&](std::string_view step, auto action) {
    auto entered = steps.enter(step);
    if (!entered) return decltype(action())(fail(std::move(entered).error()));
    return action();
  };
  if (auto swept = enter_and(
          "sweep", [&] { return sweep(request->run_directory.get(), *wall, Looks::kSome); });
      !swept) {
    tell_failure(control_fd, steps.name(std::move(swept).error()));
    return 1;
  }
  auto registration = enter_and("register", [&] {
    return Registration::create(request->run_directory.get(), request->plan.id);
  });
  if (!registration) {
    tell_failure(control_fd, steps.name(std::move(registration).error()));
    return 1;
  }
  steps.finish();
  auto prepared =
      wall->prepare(request->plan, {.run_directory_fd = request->run_directory.get(),
                                    .sandbox_directory_fd = registration->directory_fd()});
  if (!prepared) {
    (void)registration->remove();
    tell_failure(control_fd, prepared.error());
    return 1;
  }
  const auto give_up = [&](const Error& error) {
    tell_failure(control_fd, error);
    (*prepared)->kill();
    (void)(*prepared)->clean_up(kPatienceMs);
    (void)registration->remove();
    return 1;
  };
  // Up to here nothing depends on what the sandbox is to be, and the caller worked that out
  // meanwhile.
  if (auto read = read_plan(control_fd, *request); !read)
    return give_up(std::move(read).error().with("plan"));
  if (auto admitted = (*prepared)->admit(); !admitted) return give_up(admitted.error());
  if (auto entered = steps.enter("fork"); !entered)
    return give_up(steps.name(std::move(entered).error()));
  int broker[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, broker) != 0)
    return give_up(steps.name(Error::syscall("socketpair", errno)));
  Fd broker_here(broker[0]);
  Fd broker_there(broker[1]);
  // The supervisor, and who comes of it, never has these.
  KeptRecords records = request->take_records();
  Fd keys = request->take_keys(), alarm = request->take_alarm(), minter = request->take_minter();
  auto served = served_file(request->plan);
  if (!served) return give_up(steps.name(std::move(served).error()));
  auto orders = make_socket_pair(SOCK_SEQPACKET);
  if (!orders) return give_up(steps.name(std::move(orders).error()));
  Fd raise;
  if (has_keeper(request->plan)) {
    auto pair = make_socket_pair(SOCK_SEQPACKET);
    if (!pair) return give_up(steps.name(std::move(pair).error()));
    alarm = std::move(pair->ours);
    raise = std::move(pair->theirs);
  }
  const pid_t supervisor = ::fork();
  if (supervisor < 0) return give_up(steps.name(Error::syscall("fork of the supervisor", errno)));
  if (supervisor == 0) {
    broker_here.reset();
    records = {};
    keys.reset();
    alarm.reset();
    minter.reset();
    raise.reset();
    served->reset();
    orders->ours.reset();
    be_supervisor(*request, **prepared, *registration, std::move(broker_there),
                  std::move(orders->theirs), control_fd);
  }
  // It has the longer way to go: where it shares our processor it goes first.
  ::sched_yield();
  broker_there.reset();
  orders->theirs.reset();
  request->client.reset();
  // Beside the supervisor, which clones meanwhile and then waits for both.
  (*prepared)->complete(broker_here.get());
  send_listener(broker_here.get(), *registration, request->plan.info, steps);
  request->close_named();
  auto handle = sys::pidfd_open(supervisor);
  GatewayKeeper gateway(request->plan.id,
                        {.records = std::move(records),
                         .keys = std::move(keys),
                         .served = std::move(*served),
                         .alarm = std::move(raise),
                         .minter = std::move(minter)},
                        request->plan.fixed_floor != 0 ? GatewayKeeper::Floor::kFixed
                                                       : GatewayKeeper::Floor::kAsPolicySays);
  Alarm from_gateway(std::move(alarm), std::move(orders->ours));
  bool orderly = false;
  if (handle) {
    orderly = wait_for_end(supervisor, handle->get(), std::move(broker_here), request->plan,
                           **prepared, *registration, gateway, from_gateway,
                           request->plan.life != Life::kOwner ? -1 : control_fd);
  } else {
    broker_here.reset();
    (void)::waitpid(supervisor, nullptr, 0);
  }
  // Kills what the supervisor left; then everything that was reparented to us can be reaped.
  (void)steps.enter("clean");
  (*prepared)->kill();
  gateway.end();
  // A supervisor that came to its end has killed PID 1; the kernel takes it down while we begin.
  if (!orderly) kill_children();
  reap_the_rest(kPatienceMs);
  auto cleaned = (*prepared)->clean_up(kPatienceMs);
  (void)steps.enter("remove");
  // What could not be removed stays registered: the next sweep tries again.
  Status removed;
  if (cleaned) removed = registration->remove();
  (void)steps.enter("removed");
  std::string answer(1, '\2');
  if (!cleaned) answer += cleaned.error().message();
  if (!removed) answer += (answer.size() > 1 ? "; " : "") + removed.error().message();
  (void)sys::send_message(control_fd, answer, {});
  return answer.size() > 1 ? 1 : 0;
}

}  // namespace caisson::launcher
