"""What the Python tests share: who calls caisson, how, and what may not be left behind.

A Caller is a user of the host with a home of its own: root, an ordinary user with no subuid range,
an ordinary user with one. `callers()` gives those that this process may become. A Caller's
`caisson(...)` runs the program of CAISSON_BUILD (default build/release) and returns a Finished.
Nothing of the real user's folders is used: state, run, home and XDG folders are in the caller's
own temporary directory, which `close()` (or the `with` block) removes.

The module makes this process the reaper of everything it starts (`subreaper`), so a process that
outlives its command shows up in `living_children()`: no name has to be searched for.

Standard library only; the tests also run inside a virtual machine with a plain python3.
"""
import ctypes
import itertools
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("caisson", "caisson-launcher", "caisson-guest", "caisson-image-worker", "caisson-image-fetch", "caisson-serve", "caisson-maker",
            "caisson-remote", "caisson-template-builder", "caisson-gateway", "caisson-vault")
ORDINARY_UID = 52731  # nobody's on any usual host; `ordinary_uids()` checks
RANGE_START, RANGE_SIZE = 0x60000000, 65536
PR_SET_CHILD_SUBREAPER = 36


def build_dir(preset="release"):
    """The folder of the programs. CAISSON_BUILD names the release one; the others are its siblings."""
    release = pathlib.Path(os.environ.get("CAISSON_BUILD", ROOT / "build" / "release")).resolve()
    return release if preset == "release" else release.parent / preset


def subreaper():
    """Orphans of our children become our children from here on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def living_children(patience=2.0):
    """[(pid, command line)] of our children that still live after `patience` seconds; reaps the dead."""
    end = time.monotonic() + patience
    while True:
        found = []
        for task in pathlib.Path("/proc/self/task").iterdir():
            try:
                pids = (task / "children").read_text().split()
            except OSError:
                continue
            for pid in map(int, pids):
                try:
                    if os.waitpid(pid, os.WNOHANG)[0] == pid:
                        continue
                except ChildProcessError:
                    continue
                try:
                    line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                found.append((pid, line.replace(b"\0", b" ").decode(errors="replace").strip()))
        if not found or time.monotonic() >= end:
            return found
        time.sleep(0.02)


def cgroups():
    """The control groups of ours on this host, in every hierarchy."""
    found = set()
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        found.update(os.path.join(folder, name) for name in names if "caisson" in os.path.join(folder, name))
    return found


def mounts():
    """The mount table of this mount namespace, without the changing identifiers."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(line.split(" ", 2)[2] for line in lines)


def loop_devices(folders):
    """The files below these folders that loop devices of this host lie over, by their last known names."""
    found = []
    for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            text = backing.read_text().strip()
        except OSError:
            continue  # detached meanwhile
        if any(text.startswith(f"{folder}/") for folder in folders):
            found.append(text)
    return sorted(found)


def disk_folder():
    """(a new folder on a disk, "") for layers of the kind quota; (None, why not) where there can be none.

    Beside the builds: /tmp and its like are covered by the leak tests, and lie in memory on many hosts."""
    if os.geteuid() != 0:
        return None, "a loop device is root's alone"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return None, "this host has no loop devices"
    place = build_dir().parent
    kind = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        return None, f"{place} lies in memory"
    return pathlib.Path(tempfile.mkdtemp(prefix="caisson-disk-", dir=place)), ""


def memory_folder():
    """A new folder in memory, as a host's /run is one, for a caller's run directory; None where no memory is mounted."""
    for place in ("/run", "/dev/shm"):
        kind = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True).stdout.strip()
        if kind in ("tmpfs", "ramfs") and os.access(place, os.W_OK):
            return pathlib.Path(tempfile.mkdtemp(prefix="caisson-run-", dir=place))
    return None


def wait_until(condition, seconds):
    """The last value of condition(), which is called until it is true or the time is over."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() >= end:
            return value
        time.sleep(0.02)


class Finished:
    """How a command ended: returncode, stdout and stderr (bytes), elapsed (seconds)."""

    def __init__(self, command, returncode, stdout, stderr, elapsed):
        self.command, self.returncode = command, returncode
        self.stdout, self.stderr, self.elapsed = stdout, stderr, elapsed

    @property
    def out(self):
        return self.stdout.decode(errors="replace")

    @property
    def err(self):
        return self.stderr.decode(errors="replace")

    def json(self):
        """The one line of `--json`."""
        return json.loads(self.stdout)

    def __str__(self):
        return (f"{' '.join(map(str, self.command))}\n  -> {self.returncode} after {self.elapsed:.2f} s"
                f"\n  stdout: {self.out[-2000:]!r}\n  stderr: {self.err[-2000:]!r}")


def ordinary_uids():
    """Unused uids {kind: uid} for the ordinary users, whose names exist nowhere on this host.

    Two, since suites run for both at the same time and the kernel counts some things by user: pending
    signals, descriptors under way between processes, inotify's instances."""
    text = pathlib.Path("/etc/passwd").read_text()
    free = (uid for uid in itertools.count(ORDINARY_UID) if not re.search(rf"^[^:]*:[^:]*:{uid}:", text, re.M))
    return {kind: next(free) for kind in ("user", "range")}


class Caller:
    """A user of the host who calls caisson. kind: root | user | range (user with a subuid range).

    `run` holds the run directory instead of a part of the caller's folder, and is removed with it."""

    def __init__(self, kind, run=None):
        self.kind = kind
        self.uid = 0 if kind == "root" else ordinary_uids()[kind] if os.geteuid() == 0 else os.geteuid()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"caisson-test-{kind}-"))
        self.folder.chmod(0o755)
        self.home, self.run = self.folder / "home", run or self.folder / "run"
        for path in (self.home, self.run, self.folder / "state"):
            path.mkdir(mode=0o700, exist_ok=path == run)
            self.own(path)
        self.env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8", "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.run), "XDG_DATA_HOME": str(self.folder / "state"),
            "XDG_CONFIG_HOME": str(self.home / ".config"), "XDG_CACHE_HOME": str(self.home / ".cache"),
            "CAISSON_RUN_DIR": str(self.run / "caisson"),
            "CAISSON_STATE_DIR": str(self.folder / "state" / "caisson"),
        }
        self._prefix = self._make_prefix()
        self._programs = {}

    def own(self, path):
        """Gives a file or folder (not what is below it) to this user."""
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)
        return path

    def write(self, path, data, mode=0o600):
        """Makes a file of this user's; relative paths are below the caller's folder."""
        path = self.folder / path
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            self.own(path.parent)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        path.chmod(mode)
        return self.own(path)

    def mkdir(self, path, mode=0o755):
        path = self.folder / path
        path.mkdir()
        path.chmod(mode)
        return self.own(path)

    def _make_prefix(self):
        if os.geteuid() != 0 or self.kind == "root":
            return []
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--inh-caps=-all", "--"]
        if self.kind == "user":
            return become
        # newuidmap wants a name and a range: given in a mount namespace of the caller's own.
        name, files = "caissontest", {}
        files["/etc/passwd"] = pathlib.Path("/etc/passwd").read_text() + f"{name}:x:{self.uid}:{self.uid}::{self.home}:/bin/sh\n"
        for path in ("/etc/subuid", "/etc/subgid"):
            files[path] = f"{name}:{RANGE_START}:{RANGE_SIZE}\n"
        script = "set -e\n"
        for path, text in files.items():
            mine = self.folder / path.replace("/", "_")
            mine.write_text(text)
            mine.chmod(0o644)
            script += f"[ -e {path} ] || : > {path}\nmount --bind {mine} {path}\n"
        script += 'exec "$@"'
        return ["unshare", "--mount", "--propagation=private", "--", "/bin/sh", "-c", script, "sh", *become]

    def programs(self, preset="release"):
        """The folder of the programs as this user can reach it (a copy where the path is closed to it)."""
        if preset not in self._programs:
            folder = build_dir(preset)
            closed = [p for p in (folder, *folder.parents) if not p.stat().st_mode & stat.S_IXOTH]
            if closed and self.uid != 0:
                copy = self.folder / f"programs-{preset}"
                copy.mkdir(mode=0o755)
                for name in PROGRAMS:
                    if (folder / name).exists():
                        shutil.copy(folder / name, copy / name)
                folder = copy
            self._programs[preset] = folder
        return self._programs[preset]

    def command(self, *arguments, preset="release", program="caisson"):
        """The argument list that runs caisson, or another program of ours, as this user."""
        return [*self._prefix, str(self.programs(preset) / program), *map(str, arguments)]

    def popen(self, *arguments, preset="release", env=None, off=(), **options):
        """Starts caisson; the caller of popen waits for it. env adds to the user's environment; off names
        mechanisms that the test build (preset "switches") leaves out."""
        full = {**self.env, **(env or {})}
        if off:
            full["CAISSON_OFF"] = ",".join(off)
        options.setdefault("cwd", self.home)
        return subprocess.Popen(self.command(*arguments, preset=preset), env=full, **options)

    def caisson(self, *arguments, input=b"", timeout=60, **options):
        """Runs caisson to its end. A command that hangs past `timeout` is killed and is a TimeoutExpired."""
        start = time.monotonic()
        process = self.popen(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        try:
            stdout, stderr = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return Finished(["caisson", *arguments], process.returncode, stdout, stderr, time.monotonic() - start)

    def on_pty(self, *arguments, typed=b"", timeout=30, preset="release", env=None, off=()):
        """Runs caisson on a terminal of its own; `typed` is sent at once. stdout holds what the terminal got."""
        full = {**self.env, "TERM": "xterm", **(env or {})}
        if off:
            full["CAISSON_OFF"] = ",".join(off)
        command, start = self.command(*arguments, preset=preset), time.monotonic()
        pid, master = pty.fork()
        if pid == 0:
            try:
                os.chdir(self.home)
                os.execvpe(command[0], command, full)
            finally:
                os._exit(127)
        seen = b""
        if typed:
            os.write(master, typed)
        while time.monotonic() < start + timeout:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    data = os.read(master, 65536)
                except OSError:
                    break
                if not data:
                    break
                seen += data
        else:
            os.kill(pid, signal.SIGKILL)
        os.close(master)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return Finished(["caisson", *arguments], code, seen, b"", time.monotonic() - start)

    def sandboxes_left(self):
        """What the run directory still holds: names below sandboxes/."""
        folder = self.run / "caisson" / "sandboxes"
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def close(self):
        for path in (self.folder, self.run):
            shutil.rmtree(path, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def callers():
    """The kinds of Caller that this process can be, strongest first."""
    if os.geteuid() != 0:
        return ["user"]
    kinds = ["root", "user"]
    if shutil.which("newuidmap") and shutil.which("unshare"):
        kinds.append("range")
    return kinds


def require_programs(preset="release"):
    """Ends the test with a sentence where the programs were not built: a missing program is a failure."""
    missing = [name for name in PROGRAMS[:3] if not (build_dir(preset) / name).exists()]
    if missing:
        sys.exit(f"{build_dir(preset)} lacks {', '.join(missing)}: build the {preset} preset first")
