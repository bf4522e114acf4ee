// The probes that try. A child process is forked, makes its own namespaces and mounts into them
// alone; its results come back through shared memory. It is killed by an alarm if it hangs and by
// its parent's death, and what it made ends with it.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sys.h"
#include "image/mount.h"
#include "wall/namespace/gateway.h"
#include "wall/namespace/layer_quota.h"
#include "wall/namespace/probe.h"

namespace caisson::wall {
namespace {

constexpr unsigned kSeconds = 10;

int error_of(const Status& status) {
  return status.has_value() ? 0 : status.error().error_number();
}

// Runs `body` in a child and waits for it. Nothing of the child's memory comes back but what it
// writes to shared memory.
template <typename Body>
void in_child(Body body) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);
    alarm(kSeconds);
    // In a new pid namespace the parent has no number here.
    if (getppid() == parent || getppid() == 0) body();
    _exit(0);
  }
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
}

Status write_text(const char* path, const std::string& text) {
  return sys::write_file(AT_FDCWD, path, text);
}

// Makes this process root of a user namespace that maps its own id alone.
Status enter_user_namespace() {
  const std::string uid = std::to_string(geteuid()), gid = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER) != 0) return fail_errno("unshare");
  TRY(write_text("/proc/self/setgroups", "deny"));
  TRY(write_text("/proc/self/uid_map", "0 " + uid + " 1"));
  return write_text("/proc/self/gid_map", "0 " + gid + " 1");
}

// A tmpfs that stands over /tmp in this mount namespace, so that paths lead into it.
Status cover_tmp() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return fail_errno("mount");
  if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") != 0)
    return fail_errno("mount");
  return {};
}

int try_overlay() {
  for (const char* folder : {"/tmp/lower", "/tmp/upper", "/tmp/work"})
    if (mkdir(folder, 0755) != 0) return errno;
  const sys::MountOption options[] = {{"lowerdir", "/tmp/lower"},
                                      {"upperdir", "/tmp/upper"},
                                      {"workdir", "/tmp/work"},
                                      {"userxattr", nullptr}};
  Result<Fd> overlay = sys::make_mount("overlay", options, 0);
  return overlay.has_value() ? 0 : overlay.error().error_number();
}

int try_tmpfs_xattr() {
  const Fd file(open("/tmp/xattr", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!file.valid()) return errno;
  return fsetxattr(file.get(), "user.caisson", "x", 1, 0) == 0 ? 0 : errno;
}

int try_proc() {
  Result<Fd> proc = sys::make_mount("proc", {}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  return proc.has_value() ? 0 : proc.error().error_number();
}

// The pieces of a sandbox's gateway, each in a network namespace of its own. They are tried one by
// one, so that what is missing has a name.
template <typename Body>
void in_own_network(ProbeResults& results, Probe probe, Body body) {
  in_child([&] {
    const Status tried = unshare(CLONE_NEWNET) == 0 ? body() : fail_errno("unshare");
    // What failed without an errno failed all the same.
    const int error = error_of(tried);
    results[probe] = tried.has_value() || error != 0 ? error : EIO;
  });
}

void try_gateway(ProbeResults& results) {
  in_own_network(results, Probe::kIpv6, []() -> Status {
    const Fd made(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return made.valid() ? Status() : fail_errno("socket");
  });
  in_own_network(results, Probe::kVeth, try_wire);
  in_own_network(results, Probe::kNftRedirect, [] { return try_rules(RulePiece::kRedirect); });
  in_own_network(results, Probe::kNftReject, [] { return try_rules(RulePiece::kReject); });
}

// The series that the namespace wall needs, in its order; what follows a failure is not tried.
void try_namespaces(ProbeResults& results) {
  Status entered = enter_user_namespace();
  results[Probe::kUserNamespace] = error_of(entered);
  if (!entered.has_value()) return;
  const int others =
      CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  results[Probe::kRights] = unshare(others) == 0 ? 0 : errno;
  if (results[Probe::kRights] != 0) return;
  results[Probe::kTimeNamespace] = unshare(CLONE_NEWTIME) == 0 ? 0 : errno;
  // The first child is PID 1 of the new namespace: when it has ended nobody can be forked there.
  in_child([&results] {
    results[Probe::kProc] = try_proc();
    in_child(
        [&results] { results[Probe::kNestedNamespace] = unshare(CLONE_NEWUSER) == 0 ? 0 : errno; });
    try_gateway(results);
  });
  if (Status covered = cover_tmp(); !covered.has_value()) {
    results[Probe::kOverlay] = error_of(covered);
    return;
  }
  results[Probe::kTmpfsXattr] = try_tmpfs_xattr();
  results[Probe::kOverlay] = try_overlay();
}

// An id-mapped clone of the mount of /var/lib, which is where root keeps the images. The clone is
// never attached.
int try_idmap() {
  int ready[2], done[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return errno;
  const Fd ready_read(ready[0]);
  Fd ready_write(ready[1]);
  if (pipe2(done, O_CLOEXEC) != 0) return errno;
  const Fd done_read(done[0]);
  Fd done_write(done[1]);
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    done_write.reset();
    const bool made = unshare(CLONE_NEWUSER) == 0;
    char byte = made ? 'y' : 'n';
    if (write(ready_write.get(), &byte, 1) != 1) _exit(1);
    // Lives until the parent has opened the namespace.
    _exit(read(done_read.get(), &byte, 1) == 0 ? 0 : 1);
  }
  ready_write.reset();
  auto attempt = [&]() -> Status {
    char byte = 'n';
    if (read(ready_read.get(), &byte, 1) != 1 || byte != 'y')
      return fail(Error::syscall("unshare", EPERM));
    const std::string process = "/proc/" + std::to_string(child);
    TRY(write_text((process + "/uid_map").c_str(), "0 1879048192 65536"));
    TRY(write_text((process + "/gid_map").c_str(), "0 1879048192 65536"));
    const Fd space(open((process + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
    if (!space.valid()) return fail_errno("open");
    TRY_ASSIGN(Fd tree, sys::open_tree(AT_FDCWD, "/var/lib", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    return sys::mount_idmap(tree.get(), space.get());
  };
  const int error = error_of(attempt());
  done_write.reset();
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return error;
}

void try_erofs(ProbeResults& results, int state_fd) {
  const image::MountSupport support = image::try_mounts(state_fd);
  results[Probe::kErofsFile] = support[image::ErofsMethod::kBuffered];
  results[Probe::kErofsLoop] = support[image::ErofsMethod::kLoop];
}

// The state directory itself may not be there yet, and is not made for this.
Fd open_nearest(std::string path) {
  for (;;) {
    Fd directory(open(path.empty() ? "/" : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.valid() || path.empty()) return directory;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

int try_quota_layer(int directory_fd) {
  auto layer = make_quota_layer(
      {.directory_fd = directory_fd, .bytes = 1 << 20, .inodes = 16, .attributes = 0});
  if (layer.has_value()) {
    abandon_layer(*layer);
    return 0;
  }
  return layer.error().error_number() != 0 ? layer.error().error_number() : EINVAL;
}

// A filter that allows everything and has a listener.
int try_listener(unsigned flags) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_fprog program = {1, &allow};
  const long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                          SECCOMP_FILTER_FLAG_NEW_LISTENER | flags, &program);
  if (fd < 0) return errno;
  close(static_cast<int>(fd));
  return 0;
}

int try_clone3() {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  const long child = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (child < 0) return errno;
  if (child == 0) _exit(0);
  int status;
  while (waitpid(static_cast<pid_t>(child), &status, 0) < 0 && errno == EINTR) {
  }
  return 0;
}

void try_root(ProbeResults& results, int state_fd) {
  results[Probe::kQuotaLayer] = try_quota_layer(state_fd);
  results[Probe::kIdmap] = try_idmap();
  try_erofs(results, state_fd);
}

}  // namespace

void try_live_probes(HostFacts& facts) {
  facts.cgroups = find_cgroups("/proc");
  const long abi =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  facts.landlock_abi = abi > 0 ? static_cast<int>(abi) : 0;
  facts.state_directory = state_directory();
  const Fd state = open_nearest(facts.state_directory);
  struct statfs lies{};
  facts.state_in_memory = state.valid() && fstatfs(state.get(), &lies) == 0 &&
                          lies_in_memory(static_cast<std::uint32_t>(lies.f_type));
  void* memory = mmap(nullptr, sizeof(ProbeResults), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  auto* results = new (memory) ProbeResults();
  Result<Fd> self = sys::pidfd_open(getpid());
  (*results)[Probe::kPidfd] = self.has_value() ? 0 : self.error().error_number();
  in_child([results] { (*results)[Probe::kClone3] = try_clone3(); });
  in_child([results] { (*results)[Probe::kListener] = try_listener(0); });
  in_child([results] {
    (*results)[Probe::kKillable] = try_listener(SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
  });
  in_child([results] { try_namespaces(*results); });
  if (facts.uid == 0) in_child([&] { try_root(*results, state.get()); });
  facts.probes = *results;
  munmap(memory, sizeof(ProbeResults));
}

HostFacts probe_host() {
  HostFacts facts = read_host_facts("/");
  try_live_probes(facts);
  return facts;
}

}  // namespace caisson::wall
