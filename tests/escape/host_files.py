"""Attempts on what a caller copies into and out of a hostile sandbox, on crafted archives and images, and
on what is left on the host; see host_case.py.
"""
import io
import os
import pathlib
import stat
import tarfile

import suite
from host_case import Escaped, Untried, attempt, swapping
from suite import harness


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
    # Whatever the command's process has had in hand on its way (CVE-2024-21626).
    numbers = [f"/proc/self/fd/{number}" for number in range(3, 24)]
    for path in (*numbers, "/proc/1/root", "/proc/self/fd/7/../../.."):
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
    # Open to everybody, so that ids do not stand in the way.
    outside = case.caller.mkdir(case.folder / "outside")
    outside.chmod(0o777)
    archive = write_archive(case.folder / "image.tar", [
        *ROOT_DIRS, *ETC, ("evil", "link", "/proc/self/root"), ("up", "link", f"../../../../..{outside}"),
        ("absolute", "link", str(outside)), ("grant-rw", "link", str(outside))])
    done = case.caisson("image", "import", "crafted", archive)
    if done.returncode != 0:
        raise AssertionError(f"an image with links is a usual image: {done}")
    before = harness.mounts()
    for target in ("/absolute/planted/x", "/up/planted/x", f"/evil{outside}/planted/x", "/grant-rw/planted/x"):
        case.caisson("run", "--image", "crafted", "--ro", f"{case.host.canary}:{target}", "--", "/bin/none")
        if any(outside.iterdir()):
            raise Escaped(f"--ro to {target} made {next(outside.iterdir())}")
    if harness.mounts() != before:
        raise Escaped("the host's mounts changed")
    case.attack_image(archive, *IMAGE_ATTEMPTS)
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
    word = case.attack_image(write_archive(case.folder / "image.tar", members), *IMAGE_ATTEMPTS)
    if case.lines == 0:
        raise AssertionError("nothing ran in the image")
    return word


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


@attempt("112a")
def secret_on_disk(case):
    value = "value" + case.host.secret
    folders = [case.caller.folder / "state", case.caller.folder / "run"]

    def search():
        for folder in folders:
            for path in folder.rglob("*"):
                if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK) \
                        and value.encode() in path.read_bytes():
                    raise Escaped(f"{path} holds a value of the environment")

    name = case.detached("--env", f"TOKEN={value}")
    try:
        search()
    finally:
        case.end(name)
    case.run("--env", f"TOKEN={value}", "--", "/bin/true")
    search()
    return "absent"
