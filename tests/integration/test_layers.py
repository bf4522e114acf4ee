#!/usr/bin/env python3
"""What a sandbox changed over its image, kept beyond its end and packed as a layer.

For every kind of caller, on a layer in memory and (as root) on disk: the image's tree with the packed
layer applied is what the sandbox itself saw; a sandbox that changes nothing packs to nothing; limits
and what cannot be in an image are refused; nothing is left once the layer's descriptor is closed.
"""
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import unittest

import frame

import harness

TOOL = harness.build_dir() / "tests" / "caisson_layer_tool"

# One line an entry of the whole tree. Links of a file show by equal inodes.
TREE = r"""
find / \( -path /proc -o -path /sys -o -path /dev \) -prune -o -exec stat -c '%n|%f|%u|%g|%s|%Y|%i|%h' {} + |
while IFS='|' read -r name mode rest; do
  case $mode in
    8*) echo "$name|$mode|$rest|$(sha256sum < "$name")" ;;
    a*) echo "$name|$mode|$rest|$(readlink "$name")" ;;
    *) echo "$name|$mode|$rest|" ;;
  esac
done
"""
GENERATED = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id"}

CHANGES = r"""
set -e
cd /data
echo new > added; chmod 4755 added
echo more >> edited
touch -d '2001-02-03 04:05:06' edited
chmod 600 mode
rm removed
rm -r gone
rm -r reborn; mkdir reborn; echo only > reborn/only
rm -r becomes-file; echo file > becomes-file
rm becomes-directory; mkdir -p becomes-directory/in; echo x > becomes-directory/in/x
rm link; ln -s 'nowhere at all' link
mkdir a; echo linked > a/one; ln a/one a/two; ln a/one three
mkfifo pipe
mkdir -p deep/$(seq -s / 1 60)
long=$(printf '%0200d' 7)
mkdir $long; echo long > $long/$long; ln -s $long$long $long/link
printf 'name\303\244' > "$(printf 'n\303\244me with spaces\377')"
echo touched > kept/below
head -c 3000000 /dev/urandom > big
: > empty
chmod 1777 a
"""


class Entry:
    def __init__(self, kind, mode, uid, gid, mtime, size=0, target="", digest="", inode=None):
        self.kind, self.mode, self.uid, self.gid, self.mtime = kind, mode, uid, gid, mtime
        self.size, self.target, self.digest, self.inode = size, target, digest, inode

    def facts(self, times=True):
        mtime = self.mtime if times else None
        return (self.kind, self.mode, self.uid, self.gid, mtime, self.size, self.target, self.digest)


def parse_tree(out):
    kinds = {0x8: "file", 0xa: "link", 0x4: "directory", 0x1: "fifo"}
    tree = {}
    for line in out.splitlines():
        name, mode, uid, gid, size, mtime, inode, _, last = line.split(b"|", 8)
        mode = int(mode, 16)
        kind = kinds[mode >> 12]
        tree[name] = Entry(kind, mode & 0o7777, int(uid), int(gid), int(mtime),
                           int(size) if kind == "file" else 0,
                           last if kind == "link" else b"", last.split()[0] if kind == "file" else b"", int(inode))
    return tree


def remove(tree, path, itself=True):
    for name in [n for n in tree if n.startswith(path + b"/") or (itself and n == path)]:
        del tree[name]


def apply(tree, tar_bytes):
    """The tree with a layer over it, and the names of the layer's own entries in order."""
    tree, own = dict(tree), []
    with tarfile.open(fileobj=io.BytesIO(tar_bytes), encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            name = b"/" + member.name.encode("utf-8", "surrogateescape")
            folder, _, last = name.rpartition(b"/")
            own.append(name)
            if last == b".wh..wh..opq":
                for below in [n for n in tree if n.startswith(folder + b"/") and n not in own]:
                    del tree[below]
                continue
            if last.startswith(b".wh."):
                remove(tree, folder + b"/" + last[4:])
                continue
            kind = {b"0": "file", b"1": "hard", b"2": "link", b"5": "directory", b"6": "fifo"}[member.type]
            old = tree.get(name)
            if old is not None and not (kind == old.kind == "directory"):
                remove(tree, name)
            if kind == "hard":
                tree[name] = tree[b"/" + member.linkname.encode("utf-8", "surrogateescape")]
                continue
            data = tar.extractfile(member).read() if kind == "file" else b""
            target = member.linkname.encode("utf-8", "surrogateescape") if kind == "link" else b""
            tree[name] = Entry(kind, 0o777 if kind == "link" else member.mode, member.uid, member.gid,
                               int(member.mtime), len(data), target,
                               hashlib.sha256(data).hexdigest().encode() if kind == "file" else b"")
    return tree, own


class Layers(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.disk, cls.no_disk = harness.disk_folder()

    @classmethod
    def tearDownClass(cls):
        if cls.disk:
            shutil.rmtree(cls.disk)

    def image(self, caller):
        archive = caller.folder / "small.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(shutil.which("busybox"), "bin/busybox")
            tools = "sh find stat sha256sum readlink rm mkdir ln mkfifo seq printf head chmod touch cat sleep chown mv cp rmdir true"
            for tool in tools.split():
                entry = tarfile.TarInfo(f"bin/{tool}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
            names = ["etc/hosts", "data/edited", "data/mode", "data/removed", "data/becomes-directory", "data/kept/below",
                     "data/gone/x/y", "data/reborn/old", "data/reborn/sub/old", "data/becomes-file/old"]
            folders = ["data", "data/kept", "data/gone", "data/reborn", "data/reborn/sub", "data/becomes-file", "opt"]
            for name in folders:
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, 1_000_000_000
                entry.uid, entry.gid = 0, 0
                tar.addfile(entry)
            for name in names:
                entry, text = tarfile.TarInfo(name), name.encode()
                entry.size, entry.mode, entry.mtime = len(text), 0o644, 1_000_000_000
                entry.uid, entry.gid = 0, 0
                tar.addfile(entry, io.BytesIO(text))
            entry = tarfile.TarInfo("data/link")
            entry.type, entry.linkname = tarfile.SYMTYPE, "edited"
            entry.uid, entry.gid = 0, 0
            tar.addfile(entry)
        archive.chmod(0o644)
        done = caller.caisson("image", "import", "small", archive)
        self.assertEqual(done.returncode, 0, done)

    def tool(self, caller, *arguments, **options):
        programs = caller.programs()
        mine = programs / "caisson_layer_tool"
        if programs != harness.build_dir() and not mine.exists():
            shutil.copy(TOOL, mine)
        command = [*caller._prefix, str(mine if mine.exists() else TOOL), *map(str, arguments)]
        env = {**caller.env, **options.pop("env", {})}
        return subprocess.Popen(command, env=env, cwd=caller.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **options)

    def run_tool(self, caller, *arguments):
        process = self.tool(caller, *arguments)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err.decode(errors="replace")

    def cases(self):
        """(caller, what the tool needs) of every kind of layer there is."""
        for kind in harness.callers():
            with harness.Caller(kind) as caller:
                caller.programs()
                self.image(caller)
                # As an ordinary user the id of the sandbox's own user is the caller's; in a range the
                # image's files of 1000 are.
                plain = ["--image", "small", "--user", "0" if kind == "user" else "1000", "--as", "0"]
                sudo = [] if kind == "user" else ["--sudo"]
                with self.subTest(caller=kind, layer="tmpfs"):
                    yield caller, plain + sudo
                if kind != "root" or self.disk is None:
                    continue
                with self.subTest(caller=kind, layer="quota"):
                    caller.env["CAISSON_STATE_DIR"] = str(self.disk)
                    self.image(caller)
                    yield caller, [*plain, *sudo, "--quota"]

    def packed(self, caller, arguments, script, name="layer"):
        out = caller.mkdir(f"out-{len(list(caller.folder.iterdir()))}") / name
        status, said, err = self.run_tool(caller, *arguments, "--keep", out, "--", script)
        self.assertEqual(status, 0, err + said.decode(errors="replace"))
        facts = json.loads(err.splitlines()[-1])
        blob = out.read_bytes()
        self.assertEqual(facts["size"], len(blob))
        self.assertEqual(facts["digest"], hashlib.sha256(blob).hexdigest())
        tar = subprocess.run(["zstd", "-dc"], input=blob, stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(facts["diff_id"], hashlib.sha256(tar).hexdigest())
        return said, tar, facts

    def assert_same(self, seen, made, own):
        self.assertEqual(sorted(seen), sorted(made))
        for name, entry in seen.items():
            if name.decode(errors="replace") in GENERATED and name not in own:
                continue
            times = name in own or entry.kind != "directory"
            self.assertEqual(entry.facts(times), made[name].facts(times), name)

    def test_the_image_and_its_layer_are_what_the_sandbox_saw(self):
        for caller, arguments in self.cases():
            before, nothing, facts = self.packed(caller, arguments, TREE)
            self.assertEqual((facts["entries"], nothing), (0, bytes(1024)))
            owners = "" if caller.kind == "user" else "chown 7:65535 empty; chown 1000:1000 big; chmod 2755 big\n"
            out, tar, facts = self.packed(caller, arguments, CHANGES + owners + TREE)
            seen = parse_tree(out)
            made, own = apply(parse_tree(before), tar)
            self.assertEqual(facts["entries"], len(own))
            self.assert_same(seen, made, own)
            self.assertIn(b"/data/.wh.removed", own)
            self.assertIn(b"/data/reborn/.wh..wh..opq", own)
            self.assertEqual(seen[b"/data/added"].mode, 0o4755)
            links = [seen[name].inode for name in (b"/data/a/one", b"/data/a/two", b"/data/three")]
            self.assertEqual(len(set(links)), 1)
            self.assertIs(made[b"/data/a/one"], made[b"/data/three"])
            # Nothing that set-up made is in it, and a directory comes before what lies in it.
            self.assertFalse([n for n in own if n.startswith((b"/etc", b"/dev", b"/proc", b"/sys"))])
            for at, name in enumerate(own):
                folder = name.rpartition(b"/")[0]
                self.assertTrue(folder == b"" or folder in own[:at], name)

    def test_the_same_changes_give_the_same_bytes(self):
        script = "mkdir /opt/d; echo 1 > /opt/d/f; ln -s f /opt/d/l; touch -d '2001-02-03 04:05:06' /opt/d/f /opt/d /opt"
        script += "; touch -h -d '2001-02-03 04:05:06' /opt/d/l; touch -d '2001-02-03 04:05:06' /opt/d /opt"
        for caller, arguments in self.cases():
            first = self.packed(caller, arguments, script)
            again = self.packed(caller, arguments, script)
            self.assertEqual(first[1], again[1])
            self.assertEqual(first[2]["digest"], again[2]["digest"])

    def test_what_set_up_made_counts_once_it_is_changed(self):
        for caller, arguments in self.cases():
            _, tar, _ = self.packed(caller, arguments, "echo 192.0.2.1 other >> /etc/hosts")
            own = apply({}, tar)[1]
            self.assertEqual(own, [b"/etc", b"/etc/hosts"])
            _, tar, _ = self.packed(caller, arguments, "rm /etc/hosts /etc/resolv.conf")
            own = apply({}, tar)[1]
            # Only the first is in the image.
            self.assertEqual(own, [b"/etc", b"/etc/.wh.hosts"])
            _, tar, _ = self.packed(caller, arguments, "chmod 700 /etc")
            self.assertEqual(apply({}, tar)[1], [b"/etc"])
            _, tar, _ = self.packed(caller, arguments, "echo x > /dev/shm/x; echo x > /etc/x; rm /etc/x")
            self.assertEqual(apply({}, tar)[1], [])

    def test_what_cannot_be_in_an_image_is_refused(self):
        for caller, arguments in self.cases():
            for script, words in {
                "echo > /opt/.wh.x": "cannot begin with .wh.",
                "cd /opt; for i in $(seq 300); do mkdir d; cd d; done": "levels",
            }.items():
                out = caller.mkdir(f"bad-{len(list(caller.folder.iterdir()))}") / "layer"
                status, _, err = self.run_tool(caller, *arguments, "--keep", out, "--", script)
                self.assertEqual(status, 1, err)
                self.assertIn(words, err)

    def test_limits(self):
        for caller, arguments in self.cases():
            for limit, script, words in (
                (("--entries", 20), "cd /opt; for i in $(seq 30); do echo > $i; done", "20"),
                (("--bytes", 1000), "head -c 1001 /dev/zero > /opt/x", "1000 bytes"),
                (("--bytes", 1000), "head -c 501 /dev/zero > /opt/x; cp /opt/x /opt/y", "1000 bytes"),
            ):
                out = caller.mkdir(f"limit-{len(list(caller.folder.iterdir()))}") / "layer"
                status, _, err = self.run_tool(caller, *arguments, *limit, "--keep", out, "--", script)
                self.assertEqual(status, 1, err)
                self.assertIn(words, err)

    def test_hostile_trees_are_read_without_harm(self):
        # FIFOs and links where files could be expected; a hundred thousand directories in each other.
        script = ("cd /opt; mkfifo f; ln -s /proc/self/environ l; ln -s . loop; mkdir d; ln -s ../../../../.. d/up; "
                  "printf x > \"$(printf 'a\\nb')\"; printf y > \"$(printf '\\001\\377')\"")
        for caller, arguments in self.cases():
            _, tar, _ = self.packed(caller, arguments, script)
            own = apply({}, tar)[1]
            self.assertEqual(own, [b"/opt", b"/opt/\x01\xff", b"/opt/a\nb", b"/opt/d", b"/opt/d/up", b"/opt/f",
                                   b"/opt/l", b"/opt/loop"])

    def test_the_host_image_has_no_layer(self):
        with harness.Caller("user") as caller:
            status, _, err = self.run_tool(caller, "--image", "host", "--keep", caller.folder / "x", "--", "true")
            self.assertEqual(status, 1)
            self.assertIn("the host image has no layer", err)

    def start(self, caller, *arguments):
        """The tool, waiting at its first stop, and the id of its sandbox."""
        out = caller.mkdir(f"wait-{len(list(caller.folder.iterdir()))}") / "layer"
        process = self.tool(caller, *arguments[:-1], "--wait", "--keep", out, "--", arguments[-1])
        word, *handed_out = process.stderr.readline().split()
        self.assertEqual(word, b"up", handed_out)
        process.handed_out = {tuple(map(int, text.split(b":"))) for text in handed_out}
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        ids = caller.sandboxes_left()
        self.assertEqual(len(ids), 1)
        return process, ids[0]

    def assert_said(self, process, line):
        said = process.stderr.readline()
        self.assertEqual(said, line, said + (b"" if said == line else process.stderr.read()))

    def go_on(self, process):
        process.stdin.write(b"\n")
        process.stdin.flush()

    def loops(self):
        return harness.loop_devices([self.disk]) if self.disk else []

    def left(self, caller, identity):
        """What has a name on this host, where others may be busy too."""
        places = [str(caller.folder), str(self.disk)]
        return ([line for line in harness.mounts() if any(place in line for place in places)],
                [group for group in harness.cgroups() if identity in group])

    def assert_nothing_left(self, caller, identity):
        self.assertTrue(harness.wait_until(lambda: not self.loops(), 20), self.loops())
        self.assertTrue(harness.wait_until(lambda: self.left(caller, identity) == ([], []), 10),
                        self.left(caller, identity))

    def test_the_layer_outlives_the_sandbox_and_nothing_outlives_the_layer(self):
        for caller, arguments in self.cases():
            process, identity = self.start(caller, *arguments, "echo kept > /opt/x")
            self.go_on(process)
            self.assert_said(process, b"kept\n")
            self.assertEqual(caller.sandboxes_left(), [])
            self.assertEqual(self.left(caller, identity), ([], []))
            self.assertEqual(len(self.loops()), 1 if "--quota" in arguments else 0)
            self.go_on(process)
            facts = json.loads(process.stderr.readline())
            self.assertEqual((facts["entries"], facts["bytes"]), (2, 5))
            self.assert_said(process, b"dropped\n")
            self.assert_nothing_left(caller, identity)
            process.communicate(b"\n", timeout=60)
            self.assertEqual(process.returncode, 0)

    def test_whoever_dies_the_layer_goes_with_its_descriptor(self):
        for caller, arguments in self.cases():
            for stop in ("up", "kept"):
                process, identity = self.start(caller, *arguments, "head -c 1000000 /dev/zero > /opt/x")
                if stop == "kept":
                    self.go_on(process)
                    self.assert_said(process, b"kept\n")
                process.kill()
                process.communicate()
                # The launcher, which is nobody's child any more, still cleans up.
                self.assertTrue(harness.wait_until(lambda: not caller.sandboxes_left(), 20))
                self.assert_nothing_left(caller, identity)
            self.assertEqual(harness.living_children(10), [])

    def test_nobody_but_who_asked_has_the_descriptors(self):
        if "root" not in harness.callers():
            self.skipTest("only root looks at others' descriptors")
        for caller, arguments in self.cases():
            process, _ = self.start(caller, *arguments, "--egress", "true")
            self.assertEqual(len(process.handed_out), 3)  # the directory, its record, the listener
            self.assertEqual(len(process.handed_out & descriptors(process.pid)), 2)
            holders = lambda: {pathlib.Path(f"/proc/{pid}/comm").read_text().strip(): process.handed_out & descriptors(pid)
                               for pid in descendants(process.pid)[1:]}
            # The supervisor closes what it has passed on when it has said that the sandbox is up.
            harness.wait_until(lambda: not holders()["caisson-superv"], 20)
            names = holders()
            # The proxy was given the listener.
            self.assertEqual(len(names.pop("caisson-egress")), 1)
            self.assertGreaterEqual(len(names), 3, names)  # launcher, supervisor, PID 1
            self.assertEqual(set().union(*names.values()), set(), names)
            self.go_on(process)
            process.communicate(b"\n\n\n", timeout=60)
            self.assertEqual(process.returncode, 0)


def descendants(pid):
    found, at = [pid], 0
    while at < len(found):
        for task in pathlib.Path(f"/proc/{found[at]}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
        at += 1
    return found


def descriptors(pid):
    """(device, inode) of what a process has open beyond its first three."""
    found = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if int(entry.name) > 2:
            facts = os.stat(entry)
            found.add((facts.st_dev, facts.st_ino))
    return found


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
