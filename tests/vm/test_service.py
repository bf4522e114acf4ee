#!/usr/bin/env python3
"""The units of the package under Debian's systemd, in the machine: it is the first process of namespaces of its
own there, with a control group as root of its tree, as in a container."""
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from case import MachineTest, main
from vm_parts import BUILD, REPOSITORY, is_elf

HERE = Path(__file__).resolve().parent
SYSTEMD = "/usr/lib/systemd/systemd"
PROGRAMS = ("caisson-serve", "caisson-maker", "caisson-vault", "caisson-launcher", "caisson-guest", "caisson-image-worker", "caisson-image-fetch")
TARGETS = ("basic", "sysinit", "multi-user", "network", "sockets", "timers", "paths", "slices", "shutdown", "umount", "final", "local-fs", "swap")
# Puts systemd into a group of its own as the root of a tree, and runs the probe beside it.
SCRIPT = r"""
set -e
mount -t overlay overlay -o lowerdir=/opt/caisson/systemd/usr:/usr /usr
grep -q caisson: /etc/passwd || echo caisson:x:990:990::/nonexistent:/usr/sbin/nologin >>/etc/passwd
grep -q caisson: /etc/group || echo caisson:x:990: >>/etc/group
group=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)
mkdir $group/outside $group/inside
echo $$ >$group/outside/cgroup.procs
echo '+cpu +memory +pids +io' >$group/cgroup.subtree_control
cat >/run/inside <<'TEXT'
# Whoever is outside of this namespace shows as 0, and has to be out of the group.
umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup
while grep -q '^0$' /sys/fs/cgroup/cgroup.procs; do sleep 0.05; done
mount -t tmpfs tmpfs /run
exec env -i container=machine PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd --log-target=console --log-level=warning
TEXT
bash -c 'echo $$ >'$group'/inside/cgroup.procs; exec unshare --fork --pid --mount --mount-proc --cgroup bash /run/inside' </dev/null >/run/said 2>&1 &
outer=$!
for i in $(seq 200); do inner=$(pgrep -P $outer || true); [ -z "$inner" ] || break; sleep 0.05; done
echo $outer >$group/outside/cgroup.procs
for i in $(seq 200); do [ "$(cat /proc/$inner/comm)" != systemd ] || break; sleep 0.05; done
nsenter -t $inner -p -m -C python3 -S /opt/caisson/probe.py || { status=$?; cat /run/said; exit $status; }
"""


def units():
    """What systemd needs to come up, and what the package brings."""
    yield from (Path(f"/usr/lib/systemd/system/{name}.target") for name in TARGETS)
    yield from sorted((REPOSITORY / "packaging/systemd").iterdir())


def systemd_tree(root):
    """A folder that lies over /usr: systemd, the units, the programs where the package puts them."""
    files = {path: path for path in (SYSTEMD, "/usr/lib/systemd/systemd-shutdown", "/usr/bin/systemctl", "/usr/bin/systemd-analyze")}
    files |= {f"/usr/lib/systemd/system/{unit.name}": str(unit) for unit in units()}
    files["/usr/bin/caisson"] = str(BUILD / "caisson")
    files |= {f"/usr/libexec/caisson/{name}": str(BUILD / name) for name in PROGRAMS}
    elf = [path for path in files.values() if is_elf(path)]
    listing = subprocess.run(["ldd", *elf], capture_output=True, text=True, check=False).stdout
    for library in set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listing, re.MULTILINE)):
        files[re.sub(r"^/(lib|lib64)/", r"/usr/\1/", library)] = library
    for target, source in files.items():
        place = root / target.removeprefix("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)
    (root / "usr/lib/systemd/system/default.target").write_text("[Unit]\nRequires=multi-user.target\n")


def base_image(path):
    """The smallest image with a shell, a user and a home."""
    def add(archive, name, kind, mode=0o755, owner=0, **values):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.uid, entry.gid = kind, mode, owner, owner
        entry.linkname = values.get("link", "")
        data = values.get("data", b"")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    with tarfile.open(path, "w") as archive:
        for name in ("bin", "etc", "home", "dev", "proc", "sys", "usr", "usr/bin"):
            add(archive, name, tarfile.DIRTYPE)
        add(archive, "tmp", tarfile.DIRTYPE, 0o1777)
        add(archive, "home/user", tarfile.DIRTYPE, 0o755, 1000)
        add(archive, "bin/busybox", tarfile.REGTYPE, data=Path(shutil.which("busybox")).read_bytes())
        for name in ("sh", "echo", "sleep", "cat", "wc", "true"):
            add(archive, f"bin/{name}", tarfile.SYMTYPE, link="busybox")
        add(archive, "etc/passwd", tarfile.REGTYPE, 0o644, data=b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
        add(archive, "etc/group", tarfile.REGTYPE, 0o644, data=b"root:x:0:\nuser:x:1000:\n")


class Service(MachineTest):
    @classmethod
    def setUpClass(cls):
        if not Path(SYSTEMD).exists():
            raise unittest.SkipTest("systemd is not installed")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        systemd_tree(Path(folder.name, "systemd"))
        base_image(Path(folder.name, "base.tar"))
        cls.keywords = {"files": {"systemd": Path(folder.name, "systemd"), "base.tar": Path(folder.name, "base.tar"),
                                  "probe.py": HERE / "service_probe.py"}}

    def test_the_units_keep_sandboxes_and_end_them(self):
        result = self.shell(SCRIPT, timeout=600)
        print(result.text, flush=True)
        self.assertEqual(result.status, 0, result.text[-3000:] + result.stderr.decode(errors="replace")[-3000:])
        self.assertIn("all is well", result.text)


if __name__ == "__main__":
    main()
