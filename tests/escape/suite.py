"""What the runners of the escape suite share: the host around a sandbox, with everything that an attack
could reach planted in it, and the way from rows of INDEX to outcomes.

As root, `enter_own_host()` first moves this process into mount, network and IPC namespaces of its own:
what is planted there (mounts, addresses, listeners, a System V segment, a user in /etc/passwd) exists
for this suite alone and is gone with it. As an ordinary user there is less to plant.
"""
import collections
import ctypes
import fcntl
import os
import pathlib
import re
import secrets
import selectors
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]
import check_index  # noqa: E402, F401
import harness  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWNET = 0x20000, 0x08000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 4096, 16384, 1 << 18, 1 << 20
ADDRESSES = ["203.0.113.1", "169.254.169.254", "100.100.100.200", "169.254.170.2", "2001:db8::1", "fd00:ec2::254",
             "fd20:ce::254"]
PORTS = [80, 443, 53, 853, 3128, 8080, 1080, 8443]
DATAGRAM_PORTS = [53, 443]

# The sandboxes that attempts run in: flags of caisson run, and whether each attempt has one of its own.
Run = collections.namedtuple("Run", "flags each")
LONG = ["--timeout", "120s", "--cpu-time", "120s"]
RUNS = {
    "plain": Run(LONG, False),
    "plain2": Run(LONG, False),
    "asroot": Run([*LONG, "--user", "0"], False),
    "disk": Run([*LONG, "--disk", "16MiB", "--inodes", "1000", "--memory", "256MiB"], True),
    "memory": Run([*LONG, "--disk", "16MiB", "--memory", "64MiB"], True),
    "pids": Run([*LONG, "--pids", "64"], True),
    "cpu": Run([*LONG, "--cpus", "0.1"], True),
    "io": Run([*LONG, "--io-write", "1MiB/s"], True),
    "tty": Run(LONG, True),
    "fuzz": Run(["--timeout", "700s", "--cpu-time", "unlimited"], True),
}

Outcome = collections.namedtuple("Outcome", "word detail")  # contained | ESCAPED | unsupported | broken | missing


def _check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def mount(source, target, kind=None, flags=0, data=None):
    encode = lambda text: None if text is None else str(text).encode()  # noqa: E731
    _check(LIBC.mount(encode(source), encode(target), encode(kind), flags, encode(data)), f"mount {target}")


def enter_own_host():
    """Namespaces of our own, as root; see the top."""
    if os.geteuid() != 0:
        return
    _check(LIBC.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET), "unshare")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    _add_addresses()


def _add_addresses():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as four:
        # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING.
        fcntl.ioctl(four, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
        aliases = [text for text in ADDRESSES if ":" not in text]
        for number, text in enumerate(aliases):
            request = struct.pack("16sHH4s8x", f"lo:{number}".encode(), socket.AF_INET, 0, socket.inet_aton(text))
            fcntl.ioctl(four, 0x8916, request)  # SIOCSIFADDR
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six:
            for text in (text for text in ADDRESSES if ":" in text):
                request = struct.pack("16sIi", socket.inet_pton(socket.AF_INET6, text), 128, 1)
                fcntl.ioctl(six, 0x8916, request)
    except OSError as error:
        print(f"no IPv6 on this host: {error}")


class Listeners:
    """Everything that answers on the host. `hits` counts what came: it must stay 0."""

    def __init__(self):
        self.abstract = "caisson-canary-" + secrets.token_hex(6)
        self.hits, self._sockets = [], []
        self._selector = selectors.DefaultSelector()
        first = self._tcp(socket.AF_INET, "127.0.0.1" if os.geteuid() else "0.0.0.0", 0)
        self.port = first.getsockname()[1]
        self._udp(socket.AF_INET, "127.0.0.1" if os.geteuid() else "0.0.0.0", self.port)
        if os.geteuid() == 0:
            for port in PORTS:
                self._tcp(socket.AF_INET, "0.0.0.0", port)
            for port in DATAGRAM_PORTS:
                self._udp(socket.AF_INET, "0.0.0.0", port)
        try:
            host = "::1" if os.geteuid() else "::"
            self._tcp(socket.AF_INET6, host, self.port)
            if os.geteuid() == 0:
                for port in PORTS:
                    self._tcp(socket.AF_INET6, "::", port)
        except OSError:
            pass  # a kernel without IPv6
        self._listen(socket.socket(socket.AF_UNIX), "\0" + self.abstract)
        self._wake, other = socket.socketpair()
        self._selector.register(other, selectors.EVENT_READ, "stop")
        self._sockets += [self._wake, other]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def unix(self, path):
        """A listening socket in the file system, open to everybody."""
        listener = self._listen(socket.socket(socket.AF_UNIX), str(path))
        os.chmod(path, 0o777)
        return listener

    def _listen(self, sock, address):
        sock.bind(address)
        sock.listen(64)
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, "stream")
        self._sockets.append(sock)
        return sock

    def _tcp(self, family, host, port):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        return self._listen(sock, (host, port))

    def _udp(self, family, host, port):
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.bind((host, port))
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, "datagram")
        self._sockets.append(sock)

    def _serve(self):
        while True:
            for key, _ in self._selector.select():
                if key.data == "stop":
                    return
                name = str(key.fileobj.getsockname())
                try:
                    if key.data == "stream":
                        connection, _ = key.fileobj.accept()
                        connection.send(b"canary")
                        connection.close()
                    else:
                        _, peer = key.fileobj.recvfrom(2048)
                        key.fileobj.sendto(b"canary", peer)
                except OSError:
                    pass
                self.hits.append(name)

    def close(self):
        self._wake.send(b"x")
        self._thread.join()
        for sock in self._sockets:
            sock.close()


class Host:
    """Everything planted around the sandboxes of one caller."""

    def __init__(self, kind, attacks=None, patience=2):
        """patience: seconds in which an attempt may look for what it could get."""
        self._passwd = None
        self.patience = patience
        self._plant_user()
        self.caller = harness.Caller(kind)
        self.listeners = Listeners()
        self.token, self.mark = secrets.token_hex(16), "mark" + secrets.token_hex(8)
        self.secret = self.mark + secrets.token_hex(8)
        self.attacks = self._stage(attacks or harness.build_dir() / "escape")
        self.canary = self.caller.folder / "canary"
        self.canary.mkdir(mode=0o755)
        (self.canary / "secret").write_text(self.secret)
        self._memory = None
        self.process = subprocess.Popen(["sleep", "100000"], stdin=-3, stdout=-3, stderr=-3)
        try:
            self._plant_home()
            self._plant_grants()
            self._plant_segment()
            self._before = self._state()
        except BaseException:
            self.close()
            raise

    def _stage(self, folder):
        """The attack programs where the caller can reach them, and the token beside them."""
        target = self.caller.folder / "attacks"
        target.mkdir(mode=0o755)
        for program in folder.iterdir():
            if program.is_file() and os.access(program, os.X_OK):
                shutil.copy(program, target / program.name)
                (target / program.name).chmod(0o755)
        token = self.caller.folder / "token"
        token.write_text(self.token + "\n")
        token.chmod(0o644)
        return target

    def _plant_home(self):
        for name in (".netrc", ".aws/credentials", ".ssh/id_rsa", ".docker/config.json", ".git-credentials", ".npmrc",
                     ".kube/config"):
            self.caller.write(f"home/{name}", self.secret)

    def _plant_grants(self):
        self.ro, self.rw = self.caller.mkdir("grant-ro"), self.caller.mkdir("grant-rw")
        report = self.attacks / "report_ids"
        for folder in (self.ro, self.rw):
            self.caller.write(folder / "file", "untouched\n", 0o666)
            self.caller.write(folder / "removable", "untouched\n", 0o666)
            self.listeners.unix(folder / "socket")
        self.caller.mkdir(self.ro / ".git")
        self.caller.mkdir(self.ro / ".git" / "hooks")
        self.caller.write(self.rw / "own", report.read_bytes(), 0o755)
        if os.geteuid() != 0:
            return
        os.mknod(self.ro / "node", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        os.chmod(self.ro / "node", 0o666)
        shutil.copy(report, self.ro / "setuid")
        os.chmod(self.ro / "setuid", 0o4755)
        (self.ro / "of-root").write_text("root's alone\n")
        (self.ro / "of-root").chmod(0o600)
        (self.ro / "sub").mkdir()
        mount("sub", self.ro / "sub", "tmpfs")
        (self.ro / "sub" / "file").write_text("untouched\n")
        (self.ro / "sub" / "file").chmod(0o666)

    def _plant_segment(self):
        self.segment_key = 0x0CA15504 + os.getpid() % 4096
        self.segment = LIBC.shmget(self.segment_key, 4096, 0o1000 | 0o666)
        if self.segment < 0:
            raise OSError(ctypes.get_errno(), "shmget")
        LIBC.shmat.restype = ctypes.c_void_p
        self._memory = LIBC.shmat(self.segment, None, 0)
        ctypes.memmove(self._memory, b"canary\0", 7)

    def _plant_user(self):
        """A user in /etc/passwd, for our mount namespace alone."""
        self.user = "hostcanary"
        text = pathlib.Path("/etc/passwd").read_text()
        if os.geteuid() != 0 or self.user in text:
            return
        copy = tempfile.NamedTemporaryFile("w", prefix="caisson-test-passwd-")
        copy.write(text + f"{self.user}:x:52999:52999::/nonexistent:/bin/false\n")
        copy.flush()
        os.fchmod(copy.fileno(), 0o644)
        mount(copy.name, "/etc/passwd", flags=MS_BIND)
        self._passwd = copy

    def facts(self):
        """What the attack programs are told about the host, as environment."""
        read = lambda path: pathlib.Path(path).read_text().strip() if pathlib.Path(path).exists() else "none"  # noqa: E731
        facts = {
            "CAISSON_ATTACK_TOKEN": self.token,
            "HOST_PORT": self.listeners.port,
            "HOST_ADDRESSES": " ".join(ADDRESSES),
            "HOST_ABSTRACT": self.listeners.abstract,
            "HOST_PATH": self.canary / "secret",
            "HOST_FOLDER": self.caller.folder,
            "HOST_HOME": self.caller.home,
            "HOST_RUN": self.caller.env["CAISSON_RUN_DIR"],
            "HOST_MARK": self.mark,
            "HOST_USER": self.user,
            "HOST_PID": self.process.pid,
            "HOST_SHM": self.segment,
            "HOST_SHM_KEY": self.segment_key,
            "HOST_HOSTNAME": os.uname().nodename,
            "HOST_BOOT_ID": read("/proc/sys/kernel/random/boot_id"),
            "HOST_MACHINE_ID": read("/etc/machine-id"),
            "HOST_PATIENCE": self.patience,
            "HOST_UPTIME": read("/proc/uptime").split()[0],
        }
        for name in ("mnt", "pid", "net", "ipc", "uts", "cgroup", "user", "time"):
            facts[f"HOST_NS_{name.upper()}"] = os.readlink(f"/proc/self/ns/{name}")
        return facts

    def flags(self):
        """The options that every sandbox of the suite has."""
        words = ["--image", "host", "--ro", f"{self.attacks}:/attacks", "--ro",
                 f"{self.caller.folder / 'token'}:/attack-token", "--ro", f"{self.ro}:/grant-ro", "--rw",
                 f"{self.rw}:/grant-rw"]
        for name, value in self.facts().items():
            words += ["--env", f"{name}={value}"]
        return words

    def caller_environment(self):
        return {"CALLER_SECRET": self.secret, "SSH_AUTH_SOCK": "/nonexistent/agent", "DISPLAY": ":77",
                "AWS_SECRET_ACCESS_KEY": self.secret}

    def _state(self):
        state = {"hostname": os.uname().nodename, "listeners": list(self.listeners.hits),
                 "process": self.process.poll(), "segment": ctypes.string_at(self._memory, 6)}
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe"):
            if os.path.exists(path):
                state[path] = pathlib.Path(path).read_text()
        for folder in (self.ro, self.canary, self.caller.home):
            for path in sorted(folder.rglob("*")):
                status = path.lstat()
                kept = [status.st_mode, status.st_uid, status.st_mtime_ns if stat.S_ISREG(status.st_mode) else 0]
                state[str(path)] = (*kept, path.read_bytes() if stat.S_ISREG(status.st_mode) else b"")
        for name in ("file", "own"):
            state[f"rw/{name}"] = (self.rw / name).stat().st_mode if (self.rw / name).exists() else None
        return state

    def changes(self):
        """What differs from before on the host: nothing may."""
        after = self._state()
        return [f"{name}: {self._before.get(name)!r} became {after.get(name)!r}"
                for name in sorted(self._before.keys() | after.keys()) if self._before.get(name) != after.get(name)]

    def reset(self):
        """Makes the writable parts new and forgets what was counted; for controls, which may change things."""
        self.listeners.hits.clear()
        for folder in (self.ro, self.rw):
            for name in ("file", "removable"):
                path = folder / name
                path.unlink(missing_ok=True)
                self.caller.write(path, "untouched\n", 0o666)
            (folder / "file2").unlink(missing_ok=True)
        if not (self.ro / ".git").exists() and (self.ro / ".git2").exists():
            (self.ro / ".git2").rename(self.ro / ".git")
        (self.ro / ".git" / "hooks" / "pre-commit").unlink(missing_ok=True)
        (self.ro / ".vscode").unlink(missing_ok=True)
        if (self.ro / "new").exists():
            (self.ro / "new").rmdir()
        (self.rw / "own").chmod(0o755)
        (self.rw / "cache").unlink(missing_ok=True)

    def left(self):
        """What a sandbox left behind."""
        found = [f"process {pid}: {line}" for pid, line in harness.living_children() if pid != self.process.pid]
        gone = harness.wait_until(lambda: not self.caller.sandboxes_left(), 2)
        if not gone:
            found += [f"run folder: {name}" for name in self.caller.sandboxes_left()]
        return found

    def close(self):
        self.process.kill()
        self.process.wait()
        self.listeners.close()
        if self._memory is not None:
            LIBC.shmdt(ctypes.c_void_p(self._memory))
            LIBC.shmctl(self.segment, 0, None)
        if os.geteuid() == 0:
            LIBC.umount2(str(self.ro / "sub").encode(), 2)
            LIBC.umount2(b"/etc/passwd", 2)
            if self._passwd is not None:
                self._passwd.close()
        self.caller.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def scoped(rows, kind):
    """The rows that hold for a kind of caller."""
    wanted = ("both", "root" if kind == "root" else "rootless")
    return [row for row in rows if row.scope in wanted]


def as_each(kinds, arguments):
    """Runs this very script once for each kind of caller, at the same time; the sum of their statuses."""
    running = []
    for kind in kinds:
        command = [sys.executable, "-u", sys.argv[0], "--as", kind, *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    failed = 0
    for process in running:
        output, _ = process.communicate()
        sys.stdout.buffer.write(output)
        sys.stdout.flush()
        failed += process.returncode != 0
    return failed


LINE = re.compile(r"^(contained|ESCAPED|unsupported|broken) (\d+[a-z]) ?(.*?)\r?$", re.M)


def _script(rows):
    programs = collections.defaultdict(list)
    for row in rows:
        programs[row.file.removesuffix(".c")].append(row.id)
    return "\n".join(f"/attacks/{name} {' '.join(ids)}" for name, ids in sorted(programs.items())) + "\n"


def _how_it_ended(done):
    """Without the command, whose options alone fill every line that shows this."""
    return (f"status {done.returncode} after {done.elapsed:.1f} s; stderr {done.err[-300:]!r}; "
            f"stdout {done.out[-600:]!r}")


def _one_sandbox(host, rows, run, preset, off, extra):
    words = ["run", *host.flags(), *run.flags, *extra]
    environment = host.caller_environment()
    script = _script(rows)
    if rows[0].run == "tty":
        done = host.caller.on_pty(*words, "--interactive", "--", "/bin/sh", "-c", script, preset=preset, off=off,
                                  env=environment)
        text, verdict = done.out, ""
    elif run.each:
        done = host.caller.caisson(*words, "--json", "--", "/bin/sh", "-c", script, preset=preset, off=off,
                                   env=environment, timeout=800)
        try:
            line = done.json()
            text, verdict = str(line.get("stdout", "")), line.get("verdict", {}).get("kind", "")
        except ValueError:
            text, verdict = "", ""
    else:
        done = host.caller.caisson(*words, "--", "/bin/sh", "-c", script, preset=preset, off=off, env=environment,
                                   timeout=200)
        text, verdict = done.out, ""
    found = {number: Outcome(word, detail) for word, number, detail in LINE.findall(text)}
    for row in rows:
        if row.id not in found and verdict.endswith("_limit"):
            found[row.id] = Outcome("contained", f"{verdict} ended the command")
        found.setdefault(row.id, Outcome("missing", _how_it_ended(done)))
    return found


def outcomes(host, rows, preset="release", off=(), extra=()):
    """{id: Outcome} of rows of attack programs, each run in the sandbox that INDEX names."""
    found = {}
    for name, run in RUNS.items():
        group = [row for row in rows if row.run == name]
        if not group:
            continue
        for batch in ([row] for row in group) if run.each else [group]:
            found.update(_one_sandbox(host, batch, run, preset, list(off), list(extra)))
    return found


def judge(row, outcome):
    """A sentence where the outcome is not what INDEX declares; else None."""
    words = outcome.detail.split()
    if outcome.word == "contained" and words and words[0] in row.expect.split("/"):
        return None
    if outcome.word == "unsupported":
        return None
    return f"{row.id} {row.name}, {row.vector}: {outcome.word} {outcome.detail}; declared is {row.expect} by {row.mechanism}"
