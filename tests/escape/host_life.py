"""Attempts with processes that stay or are killed, terminals, clocks, output, and the host's latency; see
host_case.py.
"""
import errno
import os
import pathlib
import resource
import signal
import struct
import subprocess
import threading
import time

import suite
from host_case import Escaped, Untried, attempt, swapping
from suite import harness


# 67, 68: processes that want to stay.
def descendants(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            found += [child, *descendants(child)]
    return found


@attempt("67a")
def daemon(case):
    shared = case.caller.mkdir(case.folder / "shared", 0o777)
    loop = "while :; do echo x >> /shared/beat; sleep 0.02; done"
    case.shell(f"(setsid sh -c '(setsid sh -c \"{loop}\") &' &) ; while [ ! -s /shared/beat ]; do :; done",
               "--rw", f"{shared}:/shared", "--timeout", "20s")
    beat = shared / "beat"
    if not beat.exists():
        raise AssertionError("the daemon never ran")
    size = beat.stat().st_size
    time.sleep(0.3)
    if beat.stat().st_size != size:
        raise Escaped("the daemon still runs")
    return "nothing"


def killed(case, choose):
    shared = case.caller.mkdir(case.folder / "shared", 0o777)
    process = case.caller.popen("run", "--image", "host", "--rw", f"{shared}:/shared", "--timeout", "60s", "--",
                                "/bin/sh", "-c", "while :; do echo x >> /shared/beat; sleep 0.02; done",
                                stdin=-3, stdout=-3, stderr=-3, **case.options())
    beat = shared / "beat"
    try:
        if not harness.wait_until(beat.exists, 10):
            raise AssertionError("the command never ran")
        others = descendants(process.pid)
        os.kill(choose(process.pid, others), signal.SIGKILL)
        still = harness.wait_until(lambda: not [pid for pid in [process.pid, *others] if alive(pid)], 4)
        size = beat.stat().st_size
        time.sleep(0.2)
        if beat.stat().st_size != size:
            raise Escaped("the command still runs")
        if not still:
            raise Escaped(f"alive: {[name_of(pid) for pid in others if alive(pid)]}")
    finally:
        process.kill()
        process.wait()
    return "nothing"


def alive(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # An orphan of ours that is dead is reaped here.
    if text.rpartition(")")[2].split()[0] == "Z":
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass
        return False
    return True


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"


@attempt("68a")
def killed_caller(case):
    return killed(case, lambda caller, _: caller)


@attempt("68b")
def killed_launcher(case):
    def launcher(_, others):
        found = [pid for pid in others if name_of(pid).startswith("caisson-launch")]
        if not found:
            raise AssertionError(f"no launcher among {[name_of(pid) for pid in others]}")
        return found[0]
    return killed(case, launcher)


# 70, 78, 91: the deadline.
def deadline(case, script):
    flags = case.flags or ["--timeout", "1s"]
    done = case.shell(script, *flags)
    if done.returncode == 0:
        raise Escaped("ran to its end")
    if done.returncode != 124:
        raise AssertionError(f"no time limit: {done}")
    if done.elapsed > 2.5:
        raise Escaped(f"ended after {done.elapsed:.1f} s")
    return "time_limit"


@attempt("70a")
def deaf(case):
    return deadline(case, "trap '' TERM INT HUP QUIT; sleep 2; exit 0")


@attempt("78a")
def stopped(case):
    return deadline(case, "(sleep 2; kill -CONT $$) & kill -STOP $$; exit 0")


@attempt("91a")
def idle(case):
    return deadline(case, "sleep 2; exit 0")


@attempt("72a")
def escape_sequences(case):
    sequences = {"clipboard": r"\033]52;c;aGk=\007", "title": r"\033]0;attack\007", "report": r"\033[6n",
                 "string": r"\033P+q544e\033\\", "window": r"\033[21t", "eight bits": r"\302\235" + "52;c;aGk=" + r"\007"}
    for name, sequence in sequences.items():
        done = case.caller.on_pty("run", "--image", "host", "--", "/bin/sh", "-c", f"printf 'before{sequence}after'",
                                  **case.options())
        if b"before" not in done.stdout or b"after" not in done.stdout:
            raise AssertionError(f"{name}: no output: {done}")
        raw = sequence.encode().decode("unicode_escape").encode("latin-1")
        # Without what introduces it, the rest is text.
        if raw in done.stdout or any(mark in done.stdout for mark in (b"\x1b]", b"\x1bP", b"\xc2\x9d", b"\x1b[6n")):
            raise Escaped(f"{name}: {done.stdout!r}")
        plain = case.shell(f"printf 'before{sequence}after'")
        if plain.stdout != b"before" + raw + b"after":
            raise AssertionError(f"{name}: a pipe gets {plain.stdout!r}")
    return "filtered"


@attempt("73a")
def open_input(case):
    reader, writer = os.pipe()
    try:
        process = case.caller.popen("run", "--image", "host", "--", "/bin/true", stdin=reader, stdout=-3, stderr=-3,
                                    **case.options())
        try:
            code = process.wait(8)
        except Exception:
            process.kill()
            process.wait()
            raise Escaped("the command's end is not seen while input is open")
    finally:
        os.close(reader)
        os.close(writer)
    if code != 0:
        raise AssertionError(f"status {code}")
    return "exited"


@attempt("74a")
def ended_sandbox(case):
    name = case.detached()
    case.end(name)
    victim = case.host.process
    for words in (["kill", name], ["exec", name, "--", "/bin/true"], ["cp", f"{name}:/tmp", str(case.folder / "x")],
                  ["kill", str(victim.pid)], ["kill", "../../../tmp"], ["kill", "1"]):
        done = case.caisson(*words)
        if done.returncode == 0:
            raise Escaped(f"{' '.join(words)} works")
    if victim.poll() is not None:
        raise Escaped("the canary process was killed")
    return "refused"


@attempt("75b")
def status_spoof(case):
    script = "for fd in $(seq 3 64); do (eval \"printf '\\0\\0\\0\\0' >&$fd\") 2>/dev/null; done; exit 7"
    done = case.shell(script, "--json")
    if done.returncode != 7 or done.json()["verdict"].get("kind") != "exited":
        raise Escaped(f"another status: {done}")
    return "exited"


class SilentFileSystem:
    """A FUSE file system whose root is an empty folder; for any name below it there is no answer."""

    INIT, GETATTR, STATFS, OPENDIR, READDIR, READDIRPLUS, RELEASEDIR = 26, 3, 17, 27, 28, 44, 29

    def __init__(self, folder):
        self.folder = folder
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        try:
            suite.mount("silent", folder, "fuse",
                        data=f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other")
        except OSError as error:
            os.close(self._device)
            raise Untried(f"no FUSE: {error}") from error
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                request = os.read(self._device, 1 << 20)
            except OSError:
                return
            _, opcode, unique, node = struct.unpack_from("IIQQ", request)
            if opcode == self.INIT:
                major, minor, readahead = struct.unpack_from("III", request, 40)
                body = struct.pack("IIIIHHIIHHI28x", major, min(minor, 31), readahead, 0, 12, 9, 1 << 16, 1, 16, 0, 0)
            elif opcode == self.GETATTR and node == 1:
                body = struct.pack("QII", 60, 0, 0) + struct.pack("QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0,
                                                                  0o40755, 2, 0, 0, 0, 4096, 0)
            elif opcode == self.STATFS:
                body = struct.pack("QQQQQIII28x", 1000, 500, 500, 100, 50, 4096, 255, 4096)
            elif opcode == self.OPENDIR:
                body = struct.pack("QII", 1, 0, 0)
            elif opcode in (self.READDIR, self.READDIRPLUS, self.RELEASEDIR):
                body = b""
            else:
                continue
            os.write(self._device, struct.pack("IiQ", 16 + len(body), 0, unique) + body)

    def close(self):
        suite.LIBC.umount2(str(self.folder).encode(), 3)  # MNT_FORCE | MNT_DETACH: its waiters give up
        os.close(self._device)


@attempt("79a")
def silent_file_system(case):
    if case.caller.kind != "root":
        raise Untried("only root can mount")
    if not os.path.exists("/dev/fuse"):
        raise Untried("no /dev/fuse")
    folder = case.folder / "fuse"
    folder.mkdir()
    before = harness.cgroups()
    silent = SilentFileSystem(folder)
    try:
        process = case.caller.popen("run", "--image", "host", "--ro", f"{folder}:/fuse", "--timeout", "1s", "--",
                                    "/bin/cat", "/fuse/x", stdin=-3, stdout=-3, stderr=-3, **case.options())
        try:
            code = process.wait(40)
        except subprocess.TimeoutExpired as error:
            raise Escaped("the run hangs with the file system") from error
        finally:
            silent.close()
            process.kill()
            process.wait()
    finally:
        suite.LIBC.umount2(str(folder).encode(), 2)
    if code != 124:
        raise AssertionError(f"status {code}")
    # Its process could not be killed before; what stayed with it goes at the next start.
    case.run("--", "/bin/true")
    if case.caller.sandboxes_left() or not harness.wait_until(lambda: not harness.cgroups() - before, 5):
        raise Escaped(f"left: {case.caller.sandboxes_left()} {sorted(harness.cgroups() - before)[:3]}")
    return "time_limit"


# 92, 93: output and arguments.
@attempt("92a")
def flood(case):
    done = case.shell("head -c 3000000 /dev/zero; exit 0", *(case.flags or ["--output", "1MiB"]))
    if done.returncode == 0:
        raise Escaped(f"{len(done.stdout)} bytes came out")
    if done.returncode != 120 or len(done.stdout) > 1 << 20:
        raise AssertionError(f"no output limit: {done.returncode}, {len(done.stdout)} bytes")
    return "output_limit"


@attempt("92b")
def flood_of_bytes(case):
    done = case.shell("dd if=/dev/urandom bs=1 count=300000 2>/dev/null; exit 0", "--output", "64KiB")
    if done.returncode != 120 or len(done.stdout) > 1 << 16:
        raise Escaped(f"{done.returncode}, {len(done.stdout)} bytes")
    return "output_limit"


@attempt("93b")
def large_environment(case):
    words = []
    for number in range(15):
        words += ["--env", f"V{number}={'x' * 100000}"]
    done = case.run(*words, "--", "/bin/true")
    if done.returncode not in (125, 126):
        raise Escaped(f"status {done.returncode}")
    return "refused"


@attempt("97b")
def kernel_log(case):
    if case.caller.kind != "root":
        raise Untried("only root can read the log")
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(log, 0, os.SEEK_END)
        case.caisson("run", *case.host.flags(), "--", "/attacks/attack_resources", "97a")
        lines = 0
        while True:
            try:
                lines += os.read(log, 8192).count(b"segfault")
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue
    finally:
        os.close(log)
    if lines > 100:
        raise Escaped(f"{lines} lines in the kernel's log")
    return "bounded"


@attempt("98b")
def latency(case):
    worst = [0.0]

    def measure(_):
        start = time.monotonic()
        time.sleep(0.001)
        worst[0] = max(worst[0], time.monotonic() - start)

    with swapping(measure):
        case.caisson("run", *case.host.flags(), "--", "/attacks/attack_resources", "98a")
    if worst[0] > 1.0:
        raise Escaped(f"the host stood still for {worst[0]:.2f} s")
    return "responsive"


@attempt("116a")
def side_channels(_):
    text = (harness.ROOT / "SECURITY.md").read_text().lower()
    for word in ("side channels", "cache"):
        if word not in text:
            raise Escaped(f"SECURITY.md does not speak of '{word}'")
    return "documented"


HOLD = """
import array, os, socket, time
held, many = [], array.array('i', [0] * 200)
while True:
    held += socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held[-1].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
    except OSError as error:
        open('/shared/held', 'w').write(os.strerror(error.errno))
        break
time.sleep(50)
"""


@attempt("86d")
def descriptors_of_others(case):
    """The kernel counts what all processes of a user have under way, and a sandbox's start sends descriptors."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < 2048:
        raise Untried(f"the host's hard limit of open files, {most}, is hardly more than a sandbox's")
    shared = case.caller.mkdir(case.folder / "shared", 0o777)
    name = case.run("-d", "--timeout", "60s", "--rw", f"{shared}:/shared", "--", "python3", "-c", HOLD).out.strip()
    try:
        held = shared / "held"
        if not harness.wait_until(lambda: held.exists() and held.read_text(), 30):
            raise AssertionError("nothing was ever refused")
        if held.read_text() != os.strerror(errno.ETOOMANYREFS):
            raise AssertionError(f"another limit came first: {held.read_text()}")
        # A login's soft limit.
        low = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))}
        for words in (["exec", name, "--", "/bin/true"], ["run", "--image", "host", "--", "/bin/true"]):
            try:
                done = case.caisson(*words, timeout=30, **low)
            except subprocess.TimeoutExpired:
                raise Escaped(f"{words[0]} hangs")
            if done.returncode != 0:
                raise Escaped(f"nothing can be started: {done}")
        # Where not even the hard limit is enough, that is said.
        low["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
        try:
            done = case.run("--", "/bin/true", timeout=30, **low)
        except subprocess.TimeoutExpired:
            raise Escaped("run hangs with a low hard limit")
        if done.returncode != 0 and (done.returncode != 125 or "Too many references" not in done.err):
            raise Escaped(f"refused for another reason: {done}")
    finally:
        case.end(name)
    return "started"
