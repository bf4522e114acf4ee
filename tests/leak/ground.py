"""The place in which the leak tests run, and the counts that must be equal before and after.

As root the test process moves, before it starts anything, into a mount namespace with empty /tmp,
/var/tmp and /dev/shm, a network namespace (/proc/net/unix counts its unix sockets alone) and a
control group of its own in every hierarchy of v1 and of v1 beside v2. What is there afterwards and
was not before is therefore ours, whatever else the host does, and equality can be exact. It is also
the reaper of everything it starts: a process of a sandbox that lives on is our child.

`Ground.count()` gives a dictionary of sorted lists; `settled(before)` compares until equal or until
the time is over, since the kernel takes namespaces and groups down after the last process has ended.

Two counts are the whole host's and drift with whatever else runs: open files and the kernel's
namespace, mount and socket objects. `growth()` compares them over many runs, where a leak of one a
run cannot hide; see there for what is tolerated and why.
"""
import ctypes
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
import process_tree  # noqa: E402

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PRIVATE_PLACES = ("/tmp", "/var/tmp", "/dev/shm")
KERNEL_OBJECTS = ("net_namespace", "pid_namespace", "user_namespace", "uts_namespace", "mnt_cache")


def _libc(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def descendants(pid=None):
    """[(pid, parent, depth)] below a process (default: ours), parents first."""
    return process_tree.descendants(pid or os.getpid())[1:]


def reap():
    """Takes the exit status of every dead child that nobody waits for."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def remove_groups(group, end):
    for folder, _, _ in os.walk(group, topdown=False):
        while True:
            try:
                os.rmdir(folder)
                break
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > end:
                    return
                time.sleep(0.01)


class Ground:
    """One per test process; make it first. `with Ground() as ground`."""

    def __init__(self):
        harness.subreaper()
        self.root = os.geteuid() == 0
        self.groups = {}  # hierarchy's mount point -> our group's folder
        self.left_groups = {}  # hierarchy's mount point -> where we came from
        self.watched = []
        self.slowest = 0.0
        if not self.root:
            return
        _libc("unshare", CLONE_NEWNS | CLONE_NEWNET)
        _libc("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        for place in PRIVATE_PLACES:
            inside = [path for path in (harness.ROOT, harness.build_dir()) if str(path).startswith(place + "/")]
            if os.path.isdir(place) and not inside:
                _libc("mount", b"tmpfs", place.encode(), b"tmpfs", 0, b"mode=1777")
                self.watched.append(place)
        self._enter_groups()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _enter_groups(self):
        own = {}
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            for name in names.split(","):
                own[name] = path
        hierarchies = []
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            kind, _, options = right.split(" ", 2)
            mount = left.split(" ")[4]
            if kind == "cgroup":
                path = next((own[name] for name in options.split(",") if name in own), None)
                hierarchies.append((mount, path))
            elif kind == "cgroup2":
                hierarchies.append((mount, own.get("")))
        if not any(line.split(" - ")[1].startswith("cgroup ") for line in
                   pathlib.Path("/proc/self/mountinfo").read_text().splitlines()):
            return  # v2 alone: a group with members cannot have groups with controllers below it
        for mount, path in hierarchies:
            if path is None:
                continue
            here = mount + path.rstrip("/")
            for name in os.listdir(here):  # of a test that was killed itself
                pid = name.removeprefix("leak-test-")
                if name != pid and not os.path.exists(f"/proc/{pid}"):
                    remove_groups(f"{here}/{name}", 0)
            group = f"{here}/leak-test-{os.getpid()}"
            try:
                os.mkdir(group)
                for name in ("cpuset.cpus", "cpuset.mems"):  # no member without both
                    if os.path.exists(f"{group}/{name}"):
                        pathlib.Path(f"{group}/{name}").write_text(pathlib.Path(f"{here}/{name}").read_text())
                pathlib.Path(f"{group}/cgroup.procs").write_text("0")
            except OSError:
                if os.path.isdir(group):
                    os.rmdir(group)
                continue
            self.groups[mount], self.left_groups[mount] = group, here

    def delegate(self, uid):
        """Gives our groups to an ordinary user, as a session manager does. True where there are any."""
        for group in self.groups.values():
            for path in (group, f"{group}/cgroup.procs", f"{group}/tasks"):
                if os.path.exists(path):
                    os.chown(path, uid, uid)
        return bool(self.groups)

    def close(self):
        """Leaves nothing, also where a test found that something is left."""
        end = time.monotonic() + 10
        while descendants() and time.monotonic() < end:
            for pid, _, _ in descendants():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            reap()
            time.sleep(0.01)
        for mount, group in self.groups.items():
            pathlib.Path(f"{self.left_groups[mount]}/cgroup.procs").write_text("0")
            remove_groups(group, end)

    # --- counting

    def groups_now(self):
        if not self.groups:
            return sorted(group for group in harness.cgroups() if "caisson-" in group)
        return sorted(os.path.join(folder, name) for group in self.groups.values()
                      for folder, names, _ in os.walk(group) for name in names)

    def files(self, folders):
        """["path size"] of everything below the folders and below the places that are ours alone."""
        found = []
        for place in (*self.watched, *map(str, folders)):
            for folder, names, files in os.walk(place):
                for name in names + files:
                    path = os.path.join(folder, name)
                    try:
                        status = os.lstat(path)
                    except OSError:
                        continue
                    # A folder's own size depends on the file system's mood.
                    size = status.st_size if name in files else 0
                    found.append(f"{path} {size}")
        return sorted(set(found))

    def count(self, folders=()):
        """Everything that is counted exactly. `folders` are the caller's own, where /tmp is shared."""
        reap()
        processes, namespaces = [], set()
        for pid, _, _ in descendants():
            try:
                name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                processes.append(f"{name} {pid}")
                namespaces.update(os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/ns").iterdir())
            except OSError:
                continue
        ours = {os.readlink(entry) for entry in pathlib.Path("/proc/self/ns").iterdir()}
        sockets = pathlib.Path("/proc/self/net/unix").read_text().splitlines()[1:]
        if not self.root:  # the host's own are among them: those of our run directories alone
            sockets = [line for line in sockets if any(str(folder) in line for folder in folders)]
        return {
            "mounts": harness.mounts(),
            "groups": self.groups_now(),
            "namespaces": sorted(namespaces - ours),
            "processes": sorted(processes),
            "sockets": sorted(" ".join(line.split()[4:]) for line in sockets),
            "files": self.files(folders),
            "loop devices": harness.loop_devices((*self.watched, *folders)),
            "own descriptors": len(os.listdir("/proc/self/fd")),
        }

    def settled(self, before, folders=(), seconds=2.0):
        """What still differs from `before` after at most `seconds`: {} when nothing does."""
        began = time.monotonic()
        while True:
            left = differences(before, self.count(folders))
            took = time.monotonic() - began
            if not left:
                self.slowest = max(self.slowest, took)
                return {}
            if took > seconds:
                return left
            time.sleep(0.002)


def differences(before, after):
    found = {}
    for what, old in before.items():
        new = after[what]
        if old == new:
            continue
        if isinstance(old, list):
            found[what] = {"more": [item for item in new if item not in old][:6],
                           "gone": [item for item in old if item not in new][:6]}
        else:
            found[what] = {"before": old, "after": new}
    return found


def host_objects():
    """Open files and kernel objects of the whole host; without the latter where only root may look."""
    found = {"open files": int(pathlib.Path("/proc/sys/fs/file-nr").read_text().split()[0])}
    try:
        lines = pathlib.Path("/proc/slabinfo").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        words = line.split()
        if words[0] in KERNEL_OBJECTS:
            found[words[0]] = int(words[1])
    return found


def growth(before, sandboxes, seconds=20.0):
    """Host counts that grew by more than a leak-free series of `sandboxes` explains; {} when none did.

    Tolerated is half an object a sandbox and 400 more: the slab allocator counts the free objects of
    each processor's own slabs as used, network namespaces are taken down by a kernel thread, and
    other programs of the host open files. A leak of one object a sandbox exceeds it from 800 on."""
    allowed = sandboxes // 2 + 400
    end = time.monotonic() + seconds
    while True:
        now = host_objects()
        grown = {what: f"{old} -> {now[what]}" for what, old in before.items() if now[what] - old > allowed}
        if not grown or time.monotonic() > end:
            return grown
        time.sleep(0.2)
