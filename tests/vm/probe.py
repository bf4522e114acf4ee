"""Runs inside the test machine and says, as one line of JSON, what its kernel has and does.

Plain system calls and files, nothing of ours: what the design takes for given on Linux 6.1 with
cgroup v2 is looked at here, so that a surprise shows as one and not as a failing limit test.
"""

import ctypes
import errno
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
TOP = Path("/sys/fs/cgroup")
FACTS = {}


def syscall(number, *arguments):
    result = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    return -ctypes.get_errno() if result < 0 else result


def word(result):
    return "yes" if result >= 0 else errno.errorcode.get(-result, str(result))


def mount(source, target, kind, flags=0, data=""):
    result = LIBC.mount(source.encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    return -ctypes.get_errno() if result < 0 else 0


def in_namespaces(function, flags=0x10000000 | 0x00020000):
    """What function() returns (an int, or a string) in a child with a user and a mount namespace."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            uid, gid = os.getuid(), os.getgid()
            if LIBC.unshare(ctypes.c_int(flags)) != 0:
                value = -ctypes.get_errno()
            else:
                if flags & 0x10000000:
                    Path("/proc/self/setgroups").write_text("deny")
                    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
                    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
                mount("none", "/", "none", 0x44000)  # MS_REC | MS_PRIVATE
                value = function()
        except OSError as error:
            value = -error.errno
        os.write(write, json.dumps(value).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        value = json.loads(file.read() or '"died"')
    os.waitpid(pid, 0)
    return value if isinstance(value, str) else word(value)


class Group:
    """A control group of the given limits, gone at the end of its block."""

    def __init__(self, **limits):
        self.path = TOP / "system.slice" / f"probe-{os.getpid()}-{time.monotonic_ns()}"
        self.limits = limits

    def __enter__(self):
        self.path.mkdir()
        for name, value in self.limits.items():
            (self.path / name.replace("__", ".")).write_text(str(value))
        return self

    def __exit__(self, *unused):
        (self.path / "cgroup.kill").write_text("1")
        for _ in range(500):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.002)

    def read(self, name):
        return (self.path / name).read_text().strip()

    def field(self, name, key):
        return int(dict(line.split() for line in self.read(name).splitlines())[key])

    def run(self, script, wait=True):
        def enter():
            (self.path / "cgroup.procs").write_text("0")

        process = subprocess.Popen([sys.executable, "-S", "-c", script], preexec_fn=enter,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if wait:
            process.wait(30)
        return process


def control_groups():
    FACTS["hierarchies"] = Path("/proc/self/cgroup").read_text().strip().count("\n") + 1
    FACTS["controllers"] = (TOP / "cgroup.controllers").read_text().strip()
    with Group() as group:
        for name in ("cgroup.kill", "cgroup.freeze", "memory.oom.group", "memory.peak", "memory.reclaim",
                     "memory.swap.max", "pids.peak", "pids.events", "cpu.max", "cpu.max.burst", "io.max",
                     "cpu.pressure", "cgroup.stat"):
            FACTS[f"file {name}"] = "yes" if (group.path / name).exists() else "no"
    with Group(memory__max=48 << 20, memory__oom__group=1) as group:
        # A parent that only waits dies with its greedy child.
        process = group.run("import os\nif os.fork() == 0:\n  x = bytearray(10**9)\nos.wait()")
        FACTS["memory.oom.group ends the whole group"] = "yes" if process.returncode == -signal.SIGKILL else "no"
        FACTS["memory.events oom_kill, oom_group_kill"] = (
            f"{group.field('memory.events', 'oom_kill')}, {group.field('memory.events', 'oom_group_kill')}")
    with Group(pids__max=4) as group:
        process = group.run("import os,time\nn=0\nfor _ in range(9):\n  try:\n    if os.fork() == 0: time.sleep(99)\n"
                            "    n+=1\n  except BlockingIOError: pass\nos._exit(n)")
        FACTS["pids.max 4 lets children start"] = process.returncode
        FACTS["pids.events max"] = group.field("pids.events", "max")
        (group.path / "cgroup.kill").write_text("1")
        end = time.monotonic() + 5
        while group.field("cgroup.events", "populated") and time.monotonic() < end:
            time.sleep(0.002)
        FACTS["cgroup.kill empties a group"] = "yes" if not group.field("cgroup.events", "populated") else "no"
    with Group(cpu__max="20000 100000") as group:
        group.run("import time\ne=time.monotonic()+1\nwhile time.monotonic()<e: pass")
        used = group.field("cpu.stat", "usage_usec")
        FACTS["cpu.max 20 % gives per second"] = f"{used / 1e6:.2f} s"
    with Group() as group:
        process = group.run("import time\nprint(flush=True)\ntime.sleep(99)", wait=False)
        process.stdout.read(1)
        (group.path / "cgroup.freeze").write_text("1")
        end = time.monotonic() + 5
        while not group.field("cgroup.events", "frozen") and time.monotonic() < end:
            time.sleep(0.002)
        frozen = group.field("cgroup.events", "frozen")
        process.kill()
        FACTS["a frozen process can be killed"] = "yes" if frozen and process.wait(5) == -9 else "no"
    with Group() as group:
        fd = os.open(group.path, os.O_RDONLY | os.O_DIRECTORY)
        arguments = struct.pack("<11Q", 0x200000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, fd)
        pid = syscall(435, arguments, len(arguments))
        if pid == 0:
            os._exit(0 if group.path.name in Path("/proc/self/cgroup").read_text() else 1)
        FACTS["clone3 into a control group"] = "yes" if pid > 0 and os.waitpid(pid, 0)[1] == 0 else word(min(pid, -1))
        os.close(fd)


def landlock_and_calls():
    FACTS["Landlock ABI"] = syscall(444, 0, 0, 1)
    FACTS["memory overcommit"] = Path("/proc/sys/vm/overcommit_memory").read_text().strip()
    for name in ("kernel/unprivileged_userns_clone", "kernel/yama/ptrace_scope", "user/max_user_namespaces",
                 "kernel/apparmor_restrict_unprivileged_userns", "kernel/seccomp/actions_avail", "vm/unprivileged_userfaultfd"):
        path = Path("/proc/sys") / name
        FACTS[f"sysctl {name}"] = path.read_text().strip() if path.exists() else "absent"


def set_xattr(path, name):
    try:
        os.setxattr(path, name, b"y")
        return "yes"
    except OSError as error:
        return errno.errorcode[error.errno]


def idmapped(source):
    """Whether a mount of this folder can be given other owners."""
    tree = syscall(428, -100, str(source).encode() + b"\0", 0x1 | 0x80000)  # open_tree(CLONE | CLOEXEC)
    if tree < 0:
        return word(tree)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        LIBC.unshare(0x10000000)
        os.write(write, b"x")
        time.sleep(99)
    os.read(read, 1)
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{name}").write_text("0 100000 65536")
    namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    attributes = struct.pack("<4Q", 0x00100000, 0, 0, namespace)
    result = syscall(442, tree, b"\0", 0x1000, attributes, len(attributes))
    for fd in (read, write, tree, namespace):
        os.close(fd)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return word(result)


def overlay(upper_kind):
    """What becomes of folders of the lower side on an overlay made in a user namespace."""
    def look():
        base = Path(tempfile.mkdtemp(dir="/tmp"))
        top = Path(tempfile.mkdtemp(dir="/tmp"))
        if upper_kind == "tmpfs":
            result = mount("tmpfs", top, "tmpfs")
            if result < 0:
                return result
        for path in (base / "lower/kept", base / "lower/moved", top / "upper", top / "work", base / "merged"):
            path.mkdir(parents=True)
        (base / "lower/kept/file").write_text("old")
        options = f"lowerdir={base}/lower,upperdir={top}/upper,workdir={top}/work,userxattr"
        result = mount("overlay", base / "merged", "overlay", 0, options)
        if result < 0:
            return f"mount {word(result)}"
        merged, said = base / "merged", []

        def attempt(what, call, *arguments):
            try:
                call(*arguments)
                said.append(f"{what} ok")
            except OSError as error:
                said.append(f"{what} {errno.errorcode[error.errno]}")

        attempt("write", (merged / "kept/file").write_text, "new")
        attempt("unlink", (merged / "kept/file").unlink)
        attempt("rmdir", (merged / "kept").rmdir)
        attempt("mkdir again", (merged / "kept").mkdir)
        attempt("empty", lambda: (merged / "kept").rmdir())
        attempt("rename", os.rename, merged / "moved", merged / "other")
        return ", ".join(said)

    return in_namespaces(look)


def filesystems():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm, tempfile.TemporaryDirectory(dir="/var/tmp") as disk:
        for kind, folder in (("tmpfs", shm), ("ext4", disk)):
            path = Path(folder) / "file"
            path.touch()
            for name in ("user.test", "trusted.test"):
                FACTS[f"{name.split('.')[0]} xattr on {kind}"] = set_xattr(path, name)
            FACTS[f"idmapped mount of {kind}"] = idmapped(folder)
        FACTS["idmapped mount of erofs"] = idmapped("/usr")
        image = Path(disk) / "image"
        image.write_bytes(Path("/dev/vdb").open("rb").read(4 << 20))
        target = Path(disk) / "target"
        target.mkdir()
        result = mount(str(image), target, "erofs", 1)
        FACTS["erofs from a file without loop"] = word(result)
        if result == 0:
            LIBC.umount2(str(target).encode(), 2)
    FACTS["overlay in a user namespace, upper on tmpfs"] = overlay("tmpfs")
    FACTS["overlay in a user namespace, upper on ext4"] = overlay("ext4")


def namespaces():
    for name, flag in (("user", 0x10000000), ("net", 0x40000000), ("pid", 0x20000000), ("ipc", 0x08000000),
                       ("uts", 0x04000000), ("cgroup", 0x02000000), ("time", 0x00000080)):
        FACTS[f"{name} namespace"] = in_namespaces(lambda: 0, flag | 0x10000000)

    def limited():
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
        return "still opens" if LIBC.unshare(0x10000000) == 0 else "closed"

    FACTS["user namespaces after max_user_namespaces = 0"] = in_namespaces(limited)


def main():
    FACTS["kernel"] = os.uname().release
    for part in (control_groups, landlock_and_calls, filesystems, namespaces):
        part()
    print(json.dumps(FACTS))


main()
