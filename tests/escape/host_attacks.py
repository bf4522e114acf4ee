#!/usr/bin/env python3
"""Attempts that need a hand outside: files that a caller copies in and out of a hostile sandbox, crafted
archives and images, terminals, processes that are killed or that stay, and the two clocks.

Each function makes one attempt and returns the word that INDEX declares, or raises Escaped. `case.off`
and `case.flags` are what a positive control changes.

    host_attacks.py [--as root|user|range] [--ids ID...] [--verbose]
"""
import argparse
import io
import os
import pathlib
import signal
import stat
import sys
import tarfile
import threading
import time
import traceback

import suite
from suite import check_index, harness

ATTEMPTS = {}


class Escaped(Exception):
    """The attempt succeeded."""


class Untried(Exception):
    """This host lacks what the attempt is made of."""


def attempt(number):
    def register(function):
        ATTEMPTS[number] = function
        return function
    return register


class Case:
    """One attempt's surroundings: a planted host, its caller, a folder of its own."""

    def __init__(self, host, number, preset="release", off=(), flags=()):
        self.host, self.caller = host, host.caller
        self.preset, self.off, self.flags = preset, list(off), list(flags)
        self.folder = self.caller.mkdir(f"case-{number}-{preset}-{time.monotonic_ns()}")
        self.secret = self.host.canary / "secret"
        self.children = []

    def options(self):
        return {"preset": self.preset, "off": self.off}

    def caisson(self, *words, **options):
        return self.caller.caisson(*words, **{**self.options(), **options})

    def run(self, *words, **options):
        """caisson run --image host, without the suite's grants."""
        return self.caisson("run", "--image", "host", *words, **options)

    def shell(self, script, *words, **options):
        return self.run(*words, "--", "/bin/sh", "-c", script, **options)

    def detached(self, *words, script="sleep 60"):
        """The id of a sandbox that is left running."""
        done = self.run("-d", "--timeout", "60s", *words, "--", "/bin/sh", "-c", script)
        if done.returncode != 0:
            raise AssertionError(f"no sandbox to attack: {done}")
        return done.out.strip()

    def inside(self, name, script):
        return self.caisson("exec", name, "--", "/bin/sh", "-c", script)

    def end(self, name):
        self.caisson("kill", name)

    def leaks(self, *places):
        """Raises Escaped where the secret is below one of the places, or a link there leads out of it."""
        for place in map(pathlib.Path, places):
            for path in [place, *(sorted(place.rglob("*")) if place.is_dir() and not place.is_symlink() else [])]:
                if path.is_symlink():
                    target = pathlib.Path(os.path.realpath(path))
                    if place.is_dir() and not place.is_symlink() and not target.is_relative_to(place.resolve()):
                        raise Escaped(f"{path} leads to {target}")
                    if place == path and target == self.secret:
                        raise Escaped(f"{path} leads to the canary")
                elif path.is_file() and self.host.mark.encode() in path.read_bytes():
                    raise Escaped(f"the secret is in {path}")
        if self.secret.read_text() != self.host.secret:
            raise Escaped("the canary was overwritten")
        return "canary"

    def attack_image(self, archive, *ids):
        """Imports an archive and runs attempts of attack programs in it; each must be contained."""
        done = self.caisson("image", "import", "crafted", archive)
        if done.returncode != 0:
            return "canary"  # refused, which is as good
        programs = {}
        for row in check_index.load():
            if row.id in ids:
                programs.setdefault(row.file.removesuffix(".c"), []).append(row)
        for name, rows in programs.items():
            words = [*self.host.flags(), "--timeout", "60s"]
            words[1] = "crafted"
            done = self.caisson("run", *words, "--", f"/attacks/{name}", *(row.id for row in rows))
            if done.returncode == 125:
                continue  # no sandbox is made of such an image
            found = {number: suite.Outcome(word, rest) for word, number, rest in suite.LINE.findall(done.out)}
            for row in rows:
                outcome = found.get(row.id, suite.Outcome("missing", str(done)))
                if outcome.word != "contained":
                    raise Escaped(f"{row.id}: {outcome.word} {outcome.detail}")
        return "canary"


def write_archive(path, members):
    """members: (name, kind, value): kind file, dir, link, hard, char, block, setuid."""
    with tarfile.open(path, "w") as archive:
        for name, kind, value in members:
            member = tarfile.TarInfo(name)
            member.mode = 0o755
            data = None
            if kind in ("file", "setuid"):
                data = value if isinstance(value, bytes) else value.encode()
                member.size = len(data)
                member.mode = 0o4755 if kind == "setuid" else 0o755
            elif kind == "dir":
                member.type = tarfile.DIRTYPE
            elif kind in ("link", "hard"):
                member.type = tarfile.SYMTYPE if kind == "link" else tarfile.LNKTYPE
                member.linkname = value
            else:
                member.type = tarfile.CHRTYPE if kind == "char" else tarfile.BLKTYPE
                member.devmajor, member.devminor = value
            archive.addfile(member, io.BytesIO(data) if data is not None else None)
    path.chmod(0o644)
    return path


ROOT_DIRS = [(name, "dir", None) for name in ("bin", "etc", "usr", "usr/bin", "tmp", "home", "var", "root")]
ETC = [("etc/passwd", "file", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"),
       ("etc/group", "file", "root:x:0:\nuser:x:1000:\n"), ("home/user", "dir", None)]
# What must hold in any image, whatever its folders are.
IMAGE_ATTEMPTS = ("1a", "2c", "3a", "5c", "52e", "113a", "119a", "119b", "126a", "110a")


# 6, 7: programs and working directories by /proc.
@attempt("6c")
def interpreter(case):
    programs = [case.caller.programs(case.preset) / name for name in harness.PROGRAMS[:3]]
    before = [path.read_bytes() for path in programs]
    script = case.caller.write(case.folder / "script", "#!/proc/self/exe\n", 0o755)
    case.run("--ro", f"{script}:/script", "--", "/script", timeout=20)
    name = case.detached("--ro", f"{script}:/script")
    try:
        done = case.caisson("exec", name, "--", "/script", timeout=20)
        case.inside(name, "for p in /proc/[0-9]*/exe; do : > $p; done")
    finally:
        case.end(name)
    if [path.read_bytes() for path in programs] != before:
        raise Escaped("a program of ours changed")
    if done.returncode == 0:
        raise Escaped("the guest ran as the command")
    return "refused"


@attempt("7d")
def working_directory(case):
    for path in ("/proc/self/fd/7", "/proc/self/fd/3", "/proc/1/root", "/proc/self/fd/7/../../.."):
        done = case.run("--workdir", path, "--", "/bin/ls", str(case.host.canary))
        if done.returncode == 0:
            raise Escaped(f"--workdir {path} works: {done.out}")
        done = case.run("--workdir", path, "--", "/bin/cat", "secret")
        if case.host.mark in done.out:
            raise Escaped(f"--workdir {path} is outside")
    return "refused"


# 10 to 12: copies out of and into a sandbox that plants links.
def copy_out(case, script, path="/tmp/report"):
    target = case.folder / "result"
    case.shell(script, "--out", f"{path}:{target}")
    return case.leaks(target) if target.exists() or target.is_symlink() else case.leaks()


@attempt("10a")
def absolute_link(case):
    return copy_out(case, f"ln -s {case.secret} /tmp/report")


@attempt("10b")
def relative_link(case):
    return copy_out(case, f"ln -s ../../../../../../../..{case.secret} /tmp/report")


@attempt("10c")
def link_below(case):
    return copy_out(case, f"mkdir -p /tmp/report/a; ln -s {case.secret} /tmp/report/file; "
                          f"ln -s {case.secret.parent} /tmp/report/folder; ln -s ../../../../.. /tmp/report/a/up; "
                          "ln -s / /tmp/report/root; ln -s /tmp/report/loop /tmp/report/loop")


@attempt("10d")
def magic_links(case):
    for link in (f"/proc/self/root{case.secret}", f"/proc/1/root{case.secret}", f"/proc/self/cwd{case.secret}",
                 "/proc/self/fd/0", "/proc/self/exe", "/dev/fd/0"):
        copy_out(case, f"ln -s {link} /tmp/report")
    return case.leaks()


@attempt("10e")
def cp_out(case):
    name = case.detached()
    try:
        case.inside(name, f"ln -s {case.secret} /tmp/a; ln -s / /tmp/b; mkdir /tmp/c; ln -s ../../../.. /tmp/c/up")
        for number, path in enumerate(("/tmp/a", f"/tmp/b{case.secret}", "/tmp/c", f"/proc/self/root{case.secret}",
                                       f"/proc/1/root{case.secret}", f"/tmp/../..{case.secret}")):
            target = case.folder / f"out{number}"
            case.caisson("cp", f"{name}:{path}", target)
            if target.exists() or target.is_symlink():
                case.leaks(target)
    finally:
        case.end(name)
    return case.leaks()


@attempt("10f")
def cp_in(case):
    name = case.detached()
    source = case.caller.write(case.folder / "source", "overwritten")
    try:
        case.inside(name, f"ln -s {case.secret} /tmp/a; ln -s {case.secret.parent} /tmp/b")
        for path in ("/tmp/a", "/tmp/b/secret", f"/proc/self/root{case.secret}", "/tmp/../../../../tmp/planted"):
            case.caisson("cp", source, f"{name}:{path}")
    finally:
        case.end(name)
    if pathlib.Path("/tmp/planted").exists():
        raise Escaped("a file was planted on the host")
    return case.leaks()


@attempt("10g")
def link_at_destination(case):
    shared = case.caller.mkdir(case.folder / "shared", 0o777)
    case.shell(f"ln -s {case.secret} /shared/result; echo overwritten > /tmp/report", "--rw", f"{shared}:/shared",
               "--out", f"/tmp/report:{shared / 'result'}")
    case.shell(f"ln -s {case.secret.parent} /shared/folder; echo overwritten > /tmp/report", "--rw",
               f"{shared}:/shared", "--out", f"/tmp/report:{shared / 'folder' / 'secret'}")
    if (case.host.canary / "secret").is_symlink():
        raise Escaped("the canary was replaced")
    return case.leaks()


def swapping(action):
    """Runs action(number) again and again until the end of the with block."""
    class Swap:
        def __enter__(self):
            self.on = True
            self.thread = threading.Thread(target=self.work)
            self.thread.start()

        def work(self):
            number = 0
            while self.on:
                action(number)
                number += 1

        def __exit__(self, *_):
            self.on = False
            self.thread.join()
    return Swap()


@attempt("11a")
def swapped_source(case):
    source = case.caller.mkdir(case.folder / "source")
    real, link = source / "real", case.folder / "link"
    case.caller.mkdir(real)
    case.caller.write(real / "secret", "harmless")
    link.symlink_to(case.secret.parent)
    libc = suite.LIBC

    def exchange(_):
        libc.renameat2(-100, str(real).encode(), -100, str(link).encode(), 2)

    with swapping(exchange):
        for _ in range(15):
            done = case.shell("cat /copied/real/secret", "--copy", f"{source}:/copied")
            if case.host.mark in done.out:
                raise Escaped("the copy followed a link")
    return case.leaks()


def race_inside(case, script):
    name = case.detached(script=f"mkdir -p /tmp/w; cd /tmp/w; while :; do {script}; done")
    try:
        for number in range(12):
            target = case.folder / f"raced{number}"
            case.caisson("cp", f"{name}:/tmp/w", target)
            if target.exists() or target.is_symlink():
                case.leaks(target)
    finally:
        case.end(name)
    return case.leaks()


@attempt("11b")
def swapped_inside(case):
    return race_inside(case, f"ln -sfn {case.secret.parent} x; rm -f x; mkdir x; echo a > x/secret; rm -r x")


@attempt("12a")
def moved_inside(case):
    return race_inside(case, "mkdir -p a/b/c; echo x > a/b/c/d; mv a/b /tmp/moved; mv /tmp/moved a2; rm -rf a a2")


# 13 to 15, 17, 18: mount targets, images and archives.
@attempt("13a")
def target_with_dots(case):
    for target in ("/../etc/planted", "/a/../../etc", "relative", "/a/./../..", ""):
        done = case.run("--ro", f"{case.host.canary}:{target}", "--", "/bin/true")
        if done.returncode != 125 and target not in ("relative", ""):
            raise Escaped(f"--ro …:{target} gives {done.returncode}")
    return "refused"


@attempt("13b")
def target_is_link(case):
    archive = write_archive(case.folder / "image.tar", [*ROOT_DIRS, *ETC, ("evil", "link", "/proc/self/root"),
                                                        ("up", "link", "../../../../.."),
                                                        ("attacks", "link", "/etc"), ("grant-rw", "link", "/proc")])
    before = harness.mounts()
    case.attack_image(archive, *IMAGE_ATTEMPTS)
    for target in ("/evil/etc/planted", "/up/tmp/planted"):
        case.caisson("run", "--image", "crafted", "--ro", f"{case.host.canary}:{target}", "--", "/bin/none")
    if harness.mounts() != before:
        raise Escaped("the host's mounts changed")
    return case.leaks()


@attempt("13c")
def target_of_ours(case):
    for target in ("/proc", "/proc/self", "/dev", "/dev/null", "/sys/fs/cgroup", "/"):
        done = case.run("--ro", f"{case.host.canary}:{target}", "--", "/bin/true")
        if done.returncode != 125:
            raise Escaped(f"--ro …:{target} gives {done.returncode}")
    return "refused"


@attempt("14a")
def linked_devices(case):
    members = [*ROOT_DIRS, *ETC, ("dev", "dir", None), ("dev/null", "link", "/etc/passwd"),
               ("dev/console", "link", "/proc/sys/kernel/core_pattern"), ("dev/pts", "link", "/etc"),
               ("dev/shm", "link", "/proc")]
    return case.attack_image(write_archive(case.folder / "image.tar", members), *IMAGE_ATTEMPTS)


@attempt("15a")
def linked_proc(case):
    members = [*ROOT_DIRS, *ETC, ("proc", "link", "tmp"), ("sys", "link", "/etc")]
    case.attack_image(write_archive(case.folder / "image.tar", members), *IMAGE_ATTEMPTS)
    members = [*ROOT_DIRS, *ETC, ("proc", "dir", None), ("proc/self", "link", "/tmp"), ("dev", "link", "/proc")]
    return case.attack_image(write_archive(case.folder / "image2.tar", members), *IMAGE_ATTEMPTS)


@attempt("15b")
def linked_folders(case):
    members = [("usr", "dir", None), ("etc", "link", "/proc/1/root/etc"), ("tmp", "link", "../../../etc"),
               ("run", "link", "/"), ("dev", "link", "usr"), ("home", "link", "/proc/self/cwd"),
               ("attack-token", "link", "/etc/passwd")]
    return case.attack_image(write_archive(case.folder / "image.tar", members), *IMAGE_ATTEMPTS)


def nodes_below(folder):
    for path in pathlib.Path(folder).rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
            # An overlay marks a deleted file by a character device 0:0.
            if path.lstat().st_rdev != 0:
                yield path


@attempt("17a")
def archive_with_devices(case):
    members = [*ROOT_DIRS, *ETC, ("memory", "char", (1, 1)), ("disk", "block", (253, 0)), ("zero", "char", (1, 5))]
    case.attack_image(write_archive(case.folder / "image.tar", members), "52e")
    for path in nodes_below(case.caller.folder / "state"):
        raise Escaped(f"{path} is a device")
    return "refused"


@attempt("17b")
def set_id_result(case):
    target = case.folder / "result"
    case.shell("cp /bin/true /tmp/report; chmod 6755 /tmp/report", "--out", f"/tmp/report:{target}")
    case.shell("mkdir /tmp/report; cp /bin/true /tmp/report/x; chmod 6755 /tmp/report/x", "--out",
               f"/tmp/report:{case.folder / 'folder'}")
    for path in (target, case.folder / "folder" / "x"):
        if not path.exists():
            raise AssertionError(f"{path} was not copied")
        if path.stat().st_mode & 0o6000:
            raise Escaped(f"{path} has mode {path.stat().st_mode:o}")
    return case.leaks()


def hostile_archives(case, archives):
    planted = pathlib.Path(f"/tmp/planted-by-archive-{os.getpid()}")
    for number, members in enumerate(archives(str(planted), str(case.secret))):
        case.attack_image(write_archive(case.folder / f"{number}.tar", [*ROOT_DIRS, *ETC, *members]))
        found = list(pathlib.Path("/tmp").glob(planted.name + "*"))
        if found:
            raise Escaped(f"archive {number} made {found[0]}")
        for path in (case.caller.folder / "state").rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 4096 \
                    and case.host.mark.encode() in path.read_bytes():
                raise Escaped(f"archive {number} brought the canary into the store")
        case.leaks()
    return "canary"


@attempt("18a")
def archive_names(case):
    def archives(planted, _):
        up = "../" * 12
        yield [(up + planted[1:], "file", "x")]
        yield [(planted, "file", "x")]
        yield [("tmp/" + up + planted[1:], "file", "x")]
        yield [("./" + up + planted[1:], "file", "x")]
        yield [("tmp/..//../" + up + planted[1:], "file", "x")]
        yield [(up + planted[1:], "dir", None), (planted + "/x", "file", "x")]
        yield [("..", "link", planted)]
        yield [("x" * 300, "file", "x"), ("/".join(["y" * 100] * 60), "file", "x")]
    return hostile_archives(case, archives)


@attempt("18b")
def archive_links(case):
    def archives(planted, secret):
        yield [("out", "link", "/tmp"), ("out/" + planted[5:], "file", "x")]
        yield [("out", "link", "../../../../../../../../tmp"), ("out/" + planted[5:], "file", "x")]
        yield [("a", "dir", None), ("a", "link", "/tmp"), ("a/" + planted[5:], "file", "x")]
        yield [("stolen", "hard", secret)]
        yield [("stolen", "hard", "../../../../../../../.." + secret)]
        yield [("out", "link", secret[: secret.rindex("/")]), ("stolen", "hard", "out/secret")]
        yield [("out", "link", secret), ("out", "file", "overwritten")]
        yield [("out", "link", secret), ("stolen", "hard", "out")]
        yield [("x", "file", "one"), ("x", "file", "two"), ("x", "link", planted), ("x", "file", "three")]
    return hostile_archives(case, archives)


@attempt("30a")
def mount_after_start(case):
    if case.caller.kind != "root":
        raise Untried("only root can mount")
    shared = case.folder / "shared"
    shared.mkdir()
    suite.mount("shared", shared, "tmpfs")
    try:
        suite.mount("none", shared, flags=suite.MS_SHARED)
        (shared / "late").mkdir()
        name = case.detached("--ro", f"{shared}:/shared")
        try:
            suite.mount("late", shared / "late", "tmpfs")
            (shared / "late" / "secret").write_text(case.host.secret)
            done = case.inside(name, "cat /shared/late/secret")
            if case.host.mark in done.out:
                raise Escaped("the new mount is visible inside")
        finally:
            case.end(name)
            suite.LIBC.umount2(str(shared / "late").encode(), 2)
    finally:
        suite.LIBC.umount2(str(shared).encode(), 2)
    return "absent"


@attempt("31d")
def copied_folder(case):
    source = case.caller.mkdir(case.folder / "source")
    case.caller.write(source / "file", "untouched")
    done = case.shell("echo changed > /copied/file && mkdir -p /copied/.git/hooks && cat /copied/file", "--copy",
                      f"{source}:/copied")
    if done.out.strip() != "changed":
        raise AssertionError(f"the copy could not be changed: {done}")
    if (source / "file").read_text() != "untouched" or (source / ".git").exists():
        raise Escaped("the source changed")
    return case.leaks()


@attempt("35c")
def segment_left(case):
    read = lambda: pathlib.Path("/proc/sysvipc/shm").read_text().count("\n")  # noqa: E731
    before = read()
    done = case.run("--", "/usr/bin/ipcmk", "-M", "4096")
    if done.returncode != 0:
        raise Untried("no ipcmk")
    after = read()
    if after != before:
        number = int(done.out.split()[-1])
        suite.LIBC.shmctl(number, 0, None)
        raise Escaped("the segment is the host's")
    return "absent"


@attempt("36a")
def left_behind(case):
    def state():
        loops = sorted(str(path) for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"))
        names = sorted(name for name in os.listdir("/tmp") if "caisson" in name and "test" not in name)
        return {"mounts": harness.mounts(), "loops": loops, "tmp": names, "run": case.caller.sandboxes_left()}

    case.run("--", "/bin/true")
    before, groups = state(), harness.cgroups()
    for number in range(8):
        if number % 2:
            case.run("--timeout", "1s", "--", "/bin/sh", "-c", "echo x > /tmp/x; setsid sleep 50 & setsid sleep 50")
        else:
            case.run("--", "/bin/sh", "-c", "echo x > /tmp/x; exit 3")
    if not harness.wait_until(lambda: state() == before, 3):
        after = state()
        raise Escaped("; ".join(f"{name}: {before[name]} became {after[name]}" for name in before
                                if before[name] != after[name]))
    # Other users of ours may run sandboxes meanwhile; theirs are not empty or go.
    if not harness.wait_until(lambda: not idle_groups(groups), 5):
        raise Escaped(f"control groups: {sorted(idle_groups(groups))[:3]}")
    return "nothing"


def idle_groups(known):
    found = set()
    for path in harness.cgroups() - known:
        try:
            if not pathlib.Path(path, "cgroup.procs").read_text():
                found.add(path)
        except OSError:
            continue
    return found


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
        if raw in done.stdout or b"\x1b]" in done.stdout or b"\x1bP" in done.stdout or b"aGk=" in done.stdout:
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
    script = "for fd in $(seq 3 64); do printf '\\0\\0\\0\\0' >&$fd; done 2>/dev/null; exit 7"
    done = case.shell(script, "--json")
    if done.returncode != 7 or done.json()["verdict"].get("kind") != "exited":
        raise Escaped(f"another status: {done}")
    return "exited"


@attempt("79a")
def silent_file_system(case):
    if case.caller.kind != "root":
        raise Untried("only root can mount")
    if not os.path.exists("/dev/fuse"):
        raise Untried("no /dev/fuse")
    folder = case.folder / "fuse"
    folder.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            suite.mount("silent", folder, "fuse", data=f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other")
        except OSError as error:
            raise Untried(f"no FUSE: {error}") from error
        process = case.caller.popen("run", "--image", "host", "--ro", f"{folder}:/fuse", "--timeout", "1s", "--",
                                    "/bin/cat", "/fuse/x", stdin=-3, stdout=-3, stderr=-3, **case.options())
        try:
            code = process.wait(6)
        except Exception as error:
            raise Escaped("the run hangs with the file system") from error
        finally:
            os.close(device)
            device = -1
            process.kill()
            process.wait()
        if code == 0:
            raise AssertionError("the file was read")
        return "time_limit"
    finally:
        if device >= 0:
            os.close(device)
        suite.LIBC.umount2(str(folder).encode(), 2)


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


@attempt("112a")
def secret_on_disk(case):
    value = "value" + case.host.secret
    folders = [case.caller.folder / "state", case.caller.folder / "run"]

    def search():
        for folder in folders:
            for path in folder.rglob("*"):
                if path.is_file() and not path.is_symlink() and value.encode() in path.read_bytes():
                    raise Escaped(f"{path} holds a value of the environment")

    name = case.detached("--env", f"TOKEN={value}")
    try:
        search()
    finally:
        case.end(name)
    case.run("--env", f"TOKEN={value}", "--", "/bin/true")
    search()
    return "absent"


@attempt("116a")
def side_channels(_):
    text = (harness.ROOT / "SECURITY.md").read_text().lower()
    for word in ("timing", "cache", "speculati", "rowhammer"):
        if word not in text:
            raise Escaped(f"SECURITY.md does not speak of '{word}'")
    return "documented"


def attack(host, row, verbose=False, **changes):
    """(fault or None, note or None) of one row."""
    case = Case(host, row.id, **changes)
    try:
        word = ATTEMPTS[row.id](case)
    except Untried as reason:
        return None, f"{row.id} {reason}"
    except Escaped as how:
        return f"{row.id} {row.name}, {row.vector}: ESCAPED {how}; declared is {row.expect} by {row.mechanism}", None
    except Exception:
        return f"{row.id} {row.name}, {row.vector}: {traceback.format_exc(limit=-2)}", None
    if word not in row.expect.split("/"):
        return f"{row.id} {row.name}, {row.vector}: {word}; declared is {row.expect} by {row.mechanism}", None
    if verbose:
        print(f"  contained   {row.id:5} {row.name}, {row.vector}: {word}")
    return None, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as", dest="kinds", action="append", choices=["root", "user", "range"])
    parser.add_argument("--ids", nargs="+")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    harness.require_programs()
    rows = [row for row in check_index.load() if row.run == "host"]
    if arguments.ids:
        rows = [row for row in rows if row.id in arguments.ids]
    harness.subreaper()
    suite.enter_own_host()
    total = 0
    for kind in arguments.kinds or harness.callers():
        start, faults, count = time.monotonic(), [], 0
        with suite.Host(kind) as host:
            for row in suite.scoped(rows, kind):
                fault, note = attack(host, row, arguments.verbose)
                if note:
                    print(f"  {kind}: not tried: {note}")
                count += note is None
                faults += [fault] if fault else []
            faults += [f"the host changed: {change}" for change in host.changes()]
            faults += [f"left behind: {thing}" for thing in host.left()]
        for fault in faults:
            print(f"  {kind}: {fault}")
        print(f"{kind}: {count} attempts, {len(faults)} faults, {time.monotonic() - start:.1f} s", flush=True)
        total += len(faults)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
