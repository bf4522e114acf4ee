"""What the leak tests share beside the ground: callers, the processes of a run, and killing them."""
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

from ground import descendants, reap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402

PRESET = "switches"  # the build with fault points
ROLES = ("cli", "launcher", "supervisor", "guest", "command")


class Runner:
    """A user of the host who runs sandboxes on the ground.

    kind: root | user (no control groups, no subuid range) | delegated (control groups, a range)."""

    def __init__(self, ground, kind):
        self.ground, self.kind = ground, kind
        self.caller = harness.Caller("range" if kind == "delegated" else kind)
        if kind == "delegated":
            ground.delegate(self.caller.uid)
        # Anything that a first run makes and keeps (locks, the kept /etc) is there before counting.
        self.caller.programs(PRESET)
        self.must_run("run", "--", "true")
        self.must_run("image", "ls")
        self.before = self.baseline()

    def baseline(self):
        """What is there before anything is counted: a launcher of the runs before ends a moment after them."""
        if not nobody_left()[0]:
            sys.exit(f"{self.kind}: a process of the first runs does not end")
        return self.count()

    def count(self):
        return self.ground.count([self.caller.folder])

    def left(self, seconds=2.0):
        """What is not as it was before the first counted run."""
        return self.ground.settled(self.before, [self.caller.folder], seconds)

    def run(self, *arguments, env=None, timeout=60):
        return self.caller.caisson(*arguments, preset=PRESET, env=env, timeout=timeout)

    def must_run(self, *arguments):
        done = self.run(*arguments)
        if done.returncode != 0:
            sys.exit(f"{self.kind}: {done}")
        return done

    def sweep(self):
        """The next command, whichever it is."""
        return self.must_run("ps")

    def start(self, *arguments, env=None):
        """A Running of `caisson …`, whose stderr can be read while it runs."""
        said = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        process = self.caller.popen(*arguments, preset=PRESET, env=env, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=said)
        return Running(process, said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # What a failed test left must not fail the next one.
        nobody = nobody_left(0)[0]
        if not nobody:
            kill_trees([pid for pid, _, depth in descendants() if depth == 1])
            nobody_left()
            self.sweep()
        self.caller.close()


def runner_kinds(ground):
    """Those that this process can be."""
    if not ground.root:
        return ["user"]
    kinds = ["root", "user"]
    if ground.groups and "range" in harness.callers():
        kinds.append("delegated")
    return kinds


class Running:
    """A `caisson` that was started."""

    def __init__(self, process, said):
        self.process, self.said = process, said
        self.watched = os.pidfd_open(process.pid)

    def err(self):
        return os.pread(self.said.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait_for(self, text, seconds=20.0):
        """Until stderr holds the text; False when the command ended or the time is over."""
        def there():
            return text in self.err() or self.process.poll() is not None
        harness.wait_until(there, seconds)
        return text in self.err()

    def members(self):
        """{role: [pids]} of what lives now. Who somebody is follows from who his parent is:
        caisson, launcher, supervisor, PID 1 inside, and the commands below it."""
        found = {role: [] for role in ROLES}
        if self.process.poll() is None:
            found["cli"].append(self.process.pid)
        for pid, _, depth in descendants(self.process.pid):
            if alive(pid):
                found[ROLES[min(depth, 4)]].append(pid)
        return found

    def wait_role(self, role, seconds=20.0):
        return harness.wait_until(lambda: self.members()[role] or None, seconds)

    def kill(self, role):
        """SIGKILL to one process of that role; the role, or None where nobody has it now."""
        pids = self.members()[role]
        for pid in pids[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
                return role
            except ProcessLookupError:
                return None
        return None

    def kill_all(self):
        kill_trees([self.process.pid])

    def end(self, seconds=40.0):
        """The exit status, or None for a command that hangs (which is then killed)."""
        # Popen.wait() with a time limit sleeps between its looks; times are measured here.
        ended = bool(select.select([self.watched], [], [], seconds)[0])
        os.close(self.watched)
        if not ended:
            self.kill_all()
        code = self.process.wait()
        self.text = self.err()
        self.said.close()
        return code if ended else None


def alive(pid):
    """Neither gone nor dead and not yet waited for."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill_trees(pids):
    """SIGKILL to these processes and all below them at the same time: all are stopped first, so that
    none sees another's death while it could still act on it."""
    stopped = set()
    while True:
        new = [pid for root in pids for pid in (root, *(entry[0] for entry in descendants(root)))
               if pid not in stopped]
        if not new:
            break
        for pid in new:
            stopped.add(pid)
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                pass
    for pid in stopped:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def steps():
    """([steps of the set-up], [steps after it, which can only be killed at]) as the launcher names them."""
    launcher = harness.build_dir(PRESET) / "caisson-launcher"
    lines = subprocess.run([launcher, "--list-steps"], capture_output=True, check=True, text=True).stdout.splitlines()
    return ([line for line in lines if " " not in line], [line.split()[0] for line in lines if line.endswith(" late")])


def quota_steps():
    """The steps that only a sandbox with a layer on disk has."""
    launcher = harness.build_dir(PRESET) / "caisson-launcher"
    lines = subprocess.run([launcher, "--list-steps"], capture_output=True, check=True, text=True).stdout.splitlines()
    return [line.split()[0] for line in lines if line.endswith(" quota")]


def nobody_left(seconds=20.0):
    """Waits until none of our descendants lives: whoever was left to clean up has done so."""
    def none():
        reap()
        return not descendants()
    began = time.monotonic()
    return harness.wait_until(none, seconds), time.monotonic() - began
