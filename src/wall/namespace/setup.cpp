#include "wall/namespace/setup.h"

#include <grp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/namespace/gateway.h"
#include "wall/namespace/keep_layer.h"

namespace caisson::wall {
namespace {

constexpr int kChannelFd = 3;
constexpr int kUsernsFd = 4;
constexpr int kCgroupNsFd = 5;

// All groups of N, as U numbers them. The kernel takes the range as the host's numbers: as root U's
// own 0 lies above all the others there, and a range that begins with it would be empty.
const char* ping_groups(IdMode mode) {
  switch (mode) {
    case IdMode::kRoot:
      return "1 65536";
    case IdMode::kRange:
      return "0 65536";
    case IdMode::kSingle:
      return "0 0";
  }
  return "";
}

class Setup {
 public:
  explicit Setup(SetupInput input)
      : input_(std::move(input)), plan_(input_.plan), steps_(input_.plan.fault) {}

  Status run();
  const Steps& steps() const { return steps_; }
  int report_fd() const { return input_.report.get(); }

 private:
  bool off(Mechanism mechanism) const { return is_off(plan_.switches, mechanism); }
  Status take_ids();
  Status enter_namespaces();
  Status make_proc();
  Status start_helper();
  void tell_spaces(int socket_fd);
  Status make_spaces();
  Status take_spaces();
  Status make_egress_listener();
  Status forbid_namespaces();
  Status drop_capabilities();
  Status become_guest();

  SetupInput input_;
  const Plan& plan_;
  Steps steps_;
  Fd proc_;
  Fd sysctls_;  // /proc/sys, writable by way of this alone
  pid_t helper_ = -1;
  Fd helper_says_;  // one message: receive_spaces()
  Fd inner_;        // user namespace N
  Fd cgroup_ns_;    // the commands'; invalid: ours
  int layer_fd_ = -1, boot_id_fd_ = -1;
  Handouts handouts_;
};

// Waits for the maps; ids of U from then on, behind which are host ids that are nobody's.
Status Setup::take_ids() {
  char byte;
  ssize_t got;
  do {
    got = ::read(input_.maps_written.get(), &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) return fail(Error{Code::kCancelled, "the supervisor is gone"});
  if (input_.ids.mode == IdMode::kRoot && ::setgroups(0, nullptr) != 0)
    return fail_errno("setgroups");
  if (::setresgid(0, 0, 0) != 0) return fail_errno("setresgid");
  if (::setresuid(0, 0, 0) != 0) return fail_errno("setresuid");
  // Changing ids clears the death signal and makes our own /proc files somebody else's.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno("prctl pdeathsig");
  if (::prctl(PR_SET_DUMPABLE, 1) != 0) return fail_errno("prctl dumpable");
  return {};
}

Status Setup::enter_namespaces() {
  TRY(take_ids());
  TRY(steps_.enter("enter"));
  // A supervisor that died while the death signal was cleared is noticed here.
  pollfd supervisor{input_.report.get(), 0, 0};
  if (::poll(&supervisor, 1, 0) > 0 && (supervisor.revents & (POLLHUP | POLLERR)) != 0)
    return fail(Error{Code::kCancelled, "the supervisor is gone"});
  // Our group is the root of what is seen inside. Where v2 holds the limits, the commands' groups
  // are beside ours, and nobody lets a child be born outside of his own namespace's root: there the
  // commands alone get a namespace (make_spaces).
  if (!off(Mechanism::kCgroupNamespace) && input_.cgroups != CgroupMode::kUnified &&
      ::unshare(CLONE_NEWCGROUP) != 0)
    return fail_errno("unshare cgroup namespace");
  return {};
}

Status Setup::make_proc() {
  std::vector<sys::MountOption> options;
  // What runs in a kept sandbox is one client's, who looks for it by ps and ends it by pkill; PID 1
  // is closed by its ids and by not being dumpable in any case.
  if (!off(Mechanism::kHidepid) && plan_.life != Life::kKept)
    options.push_back({"hidepid", "invisible"});
  TRY_ASSIGN(proc_, sys::make_mount("proc", options,
                                    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  sysctls_ = Fd(::openat(proc_.get(), "sys", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!sysctls_.valid()) return fail_errno("open /proc/sys");
  if (off(Mechanism::kTimeNamespace)) return {};
  // Clocks inside start near zero: the host's uptime is nobody's business. Takes effect at execve.
  if (::unshare(CLONE_NEWTIME) != 0) {
    if (errno == EINVAL) return {};  // a kernel without time namespaces
    return fail_errno("unshare time namespace");
  }
  timespec monotonic{}, boot{};
  ::clock_gettime(CLOCK_MONOTONIC, &monotonic);
  ::clock_gettime(CLOCK_BOOTTIME, &boot);
  const std::string offsets = "monotonic -" + std::to_string(monotonic.tv_sec) + " 0\nboottime -" +
                              std::to_string(boot.tv_sec) + " 0\n";
  return sys::write_file(proc_.get(), "self/timens_offsets", offsets);
}

// The network namespace takes the kernel longer than all the others together, and N has to be made
// by a process that enters it: a child of ours does both while we build the root. As the creator's
// child it has every capability over U before there are any maps.
Status Setup::start_helper() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  helper_says_ = Fd(ends[0]);
  Fd there(ends[1]);
  helper_ = ::fork();
  if (helper_ < 0) return fail_errno("fork of the namespaces' maker");
  if (helper_ > 0) return {};
  // Whoever waits for somebody's end must not wait for the helper's too: it keeps what it needs.
  const auto low = static_cast<unsigned>(std::min(there.get(), input_.maps_written.get()));
  const auto high = static_cast<unsigned>(std::max(there.get(), input_.maps_written.get()));
  if (low > 3) ::close_range(3, low - 1, 0);
  if (high > low + 1) ::close_range(low + 1, high - 1, 0);
  ::close_range(high + 1, ~0u, 0);
  tell_spaces(there.get());
  for (;;) ::pause();
}

// In the helper. No copy of a socket stays behind.
void Setup::tell_spaces(int socket_fd) {
  auto told = make_spaces();
  if (told) told = send_spaces(socket_fd, handouts_.gateway);
  if (!told) send_stillbirth(socket_fd, steps_.name(std::move(told).error()));
  handouts_.gateway = {};
}

// In the helper.
Status Setup::make_spaces() {
  TRY(steps_.enter("network"));
  const bool has_gateway = plan_.network == PlanNetwork::kGateway;
  if (has_gateway && off(Mechanism::kNetNamespace))
    return fail(Error::precondition("a gateway needs a network namespace of the sandbox's own"));
  if (!off(Mechanism::kNetNamespace)) {
    if (has_gateway) {
      TRY(steps_.enter("gateway"));
      TRY_ASSIGN(handouts_.gateway, make_gateway(plan_.switches));
    } else if (::unshare(CLONE_NEWNET) != 0) {
      return fail_errno("unshare network namespace");
    }
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return fail_errno("socket");
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) return fail_errno("bring lo up");
  }
  TRY(steps_.enter("userns"));
  TRY(take_ids());
  const bool cgroups = input_.cgroups == CgroupMode::kUnified && !off(Mechanism::kCgroupNamespace);
  const int flags =
      (off(Mechanism::kNestedUserns) ? 0 : CLONE_NEWUSER) | (cgroups ? CLONE_NEWCGROUP : 0);
  if (flags != 0 && ::unshare(flags) != 0) return fail_errno("unshare user namespace");
  steps_.finish();
  return {};
}

// The helper's namespaces become ours to give; it has no more to do.
Status Setup::take_spaces() {
  TRY(steps_.enter("spaces"));
  const auto take = [&]() -> Status {
    TRY_ASSIGN(handouts_.gateway, receive_spaces(helper_says_.get()));
    const std::string spaces = std::to_string(helper_) + "/ns/";
    const auto open_space = [&](const char* name) -> Result<Fd> {
      Fd space(::openat(proc_.get(), (spaces + name).c_str(), O_RDONLY | O_CLOEXEC));
      if (!space.valid()) return fail_errno("open " + spaces + name);
      return space;
    };
    if (!off(Mechanism::kNestedUserns)) {
      TRY(write_maps(proc_.get(), helper_, input_.ids.inner_uids, input_.ids.inner_gids, false));
      TRY_ASSIGN(inner_, open_space("user"));
    }
    if (input_.cgroups == CgroupMode::kUnified && !off(Mechanism::kCgroupNamespace)) {
      TRY_ASSIGN(cgroup_ns_, open_space("cgroup"));
    }
    if (off(Mechanism::kNetNamespace)) return {};
    if (handouts_.gateway.valid())
      TRY(settle_gateway(handouts_.gateway.namespace_fd.get(), sysctls_.get()));
    TRY_ASSIGN(const Fd network, open_space("net"));
    if (::setns(network.get(), CLONE_NEWNET) != 0) return fail_errno("setns network namespace");
    // Ordinary programs bind any port and ping in a network of their own.
    TRY(sys::write_file(sysctls_.get(), "net/ipv4/ip_unprivileged_port_start", "0"));
    (void)sys::write_file(sysctls_.get(), "net/ipv4/ping_group_range",
                          ping_groups(input_.ids.mode));
    return {};
  };
  const auto taken = take();
  // Nobody waits for it here: PID 1 reaps whatever ends.
  ::kill(helper_, SIGKILL);
  return taken;
}

// In the sandbox's network, whose only interface is lo; whoever accepts is outside of it.
Status Setup::make_egress_listener() {
  TRY(steps_.enter("egress"));
  if (off(Mechanism::kNetNamespace))
    return fail(Error::precondition("an egress listener needs a network namespace of its own"));
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return fail_errno("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kEgressPort);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind 127.0.0.1:" + std::to_string(kEgressPort));
  if (::listen(listener.get(), SOMAXCONN) != 0) return fail_errno("listen");
  handouts_.egress = std::move(listener);
  return {};
}

Status Setup::forbid_namespaces() {
  TRY(steps_.enter("limits"));
  if (off(Mechanism::kNamespaceLimits)) return {};
  // A browser's own sandbox needs these three; nothing else ever needs any.
  constexpr std::uint8_t kBrowser = 1;
  const bool nested = plan_.syscall_profile == kBrowser;
  for (const char* name : {"user", "pid", "net"}) {
    TRY(sys::write_file(sysctls_.get(), std::string("user/max_") + name + "_namespaces",
                        nested ? "64" : "0"));
  }
  for (const char* name : {"mnt", "ipc", "uts", "cgroup", "time"}) {
    auto written =
        sys::write_file(sysctls_.get(), std::string("user/max_") + name + "_namespaces", "0");
    if (!written && written.error().error_number() != ENOENT) return written;
  }
  return {};
}

Status Setup::drop_capabilities() {
  if (plan_.privileges == 0 && !off(Mechanism::kNoNewPrivs) &&
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return fail_errno("prctl no_new_privs");
  // The guest needs none: it is the owner of N, which gives it every right there and none here.
  if (off(Mechanism::kCapabilities) || off(Mechanism::kNestedUserns)) return {};
  // With no_new_privs and locked securebits the bounding set bounds nothing any more.
  for (unsigned long capability = 0; plan_.privileges != 0; ++capability) {
    if (::prctl(PR_CAPBSET_DROP, capability) != 0) break;
  }
  if (::prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                     SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                     SECBIT_NO_CAP_AMBIENT_RAISE |
                                     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED) != 0)
    return fail_errno("prctl securebits");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  return {};
}

Status Setup::become_guest() {
  TRY(steps_.enter("exec"));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return fail_errno("open /dev/null");
  // Everything that the guest keeps goes to its fixed place, above the range first.
  const auto place = [](int from) { return ::fcntl(from, F_DUPFD_CLOEXEC, 64); };
  const int report = place(input_.report.get()), channel = place(input_.channel.get());
  const int nothing = place(null.get());
  const int inner = inner_.valid() ? place(inner_.get()) : -1;
  const int cgroup_ns = cgroup_ns_.valid() ? place(cgroup_ns_.get()) : -1;
  if (report < 0 || channel < 0 || nothing < 0) return fail_errno("fcntl dupfd");
  steps_.finish();
  TRY(send_birth(report, layer_fd_, boot_id_fd_, handouts_));
  for (int fd : {0, 1, 2}) {
    if (::dup2(nothing, fd) < 0) return fail_errno("dup2");
  }
  if (::dup2(channel, kChannelFd) < 0) return fail_errno("dup2 channel");
  // Where one is not there its place holds nothing.
  if (::dup2(inner >= 0 ? inner : nothing, kUsernsFd) < 0) return fail_errno("dup2 userns");
  if (::dup2(cgroup_ns >= 0 ? cgroup_ns : nothing, kCgroupNsFd) < 0)
    return fail_errno("dup2 cgroup namespace");
  ::umask(022);
  // Nothing of what the setup held comes along but these.
  if (::close_range(kCgroupNsFd + 1, ~0u, 0) != 0) return fail_errno("close_range");
  if (inner < 0) ::close(kUsernsFd);
  if (cgroup_ns < 0) ::close(kCgroupNsFd);
  ::_exit(plan_.guest_entry(kChannelFd, inner >= 0 ? kUsernsFd : -1,
                            cgroup_ns >= 0 ? kCgroupNsFd : -1, plan_.switches));
}

Status Setup::run() {
  ::umask(0);  // modes are exactly what is asked for
  // The supervisor is our parent in another pid namespace; if it dies so do we, and with PID 1
  // everything inside.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno("prctl pdeathsig");
  TRY(start_helper());
  TRY(enter_namespaces());
  TRY(steps_.enter("private"));
  if (!off(Mechanism::kMountPropagation) &&
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return fail_errno("make mounts private");
  TRY(make_proc());
  if (::sethostname(plan_.hostname.data(), plan_.hostname.size()) != 0 &&
      !off(Mechanism::kUtsNamespace))
    return fail_errno("sethostname");
  TRY_ASSIGN(RootParts parts, receive_parts(input_.report.get(), plan_));
  // An overlay that was made outside has notes that only root's own can read.
  handouts_.trusted_attributes = parts.overlay.valid();
  RootBuilder root(plan_, input_.ids, input_.cgroups, std::move(parts), steps_);
  TRY(root.build(proc_.get()));
  if (plan_.keep_layer != 0) {
    TRY(steps_.enter("keep"));
    TRY(hand_out_layer(root.layer_fd(), input_.ids, handouts_));
  }
  TRY(take_spaces());
  TRY(root.enter());
  layer_fd_ = root.layer_fd();
  boot_id_fd_ = root.boot_id_fd();
  if (plan_.egress != 0) TRY(make_egress_listener());
  // Detached mounts count as mount namespaces, so this comes after the last of them.
  TRY(forbid_namespaces());
  TRY(drop_capabilities());
  return become_guest();
}

}  // namespace

void run_setup(SetupInput input) {
  Setup setup(std::move(input));
  const auto status = setup.run();
  if (!status) {
    send_stillbirth(setup.report_fd(), setup.steps().name(status.error()));
  }
  ::_exit(1);
}

}  // namespace caisson::wall
