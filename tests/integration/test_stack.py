#!/usr/bin/env python3
"""An image that is one layer over another image's root file system, without flattening.

For every kind of caller, and as root in both forms of images: sandboxes change a random tree, what they
changed becomes images over images, and a sandbox of each sees what one of the flattened image sees and
what the changing one saw last.
"""
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import frame
import test_layers

import harness

TOOLS = harness.build_dir() / "tests"
ROUNDS = 4
NAMES = ["a", "b", "c", "d"]
# With the device before the number of the inode: every root has its own.
TREE = test_layers.TREE.replace("%i", "%d000000000%i")


class Tree:
    """A random tree below /data as an archive, and random changes of it as a script."""

    def __init__(self, seed, owners):
        self.random, self.owners = random.Random(seed), owners

    def path(self, deepest=4):
        return "/".join(self.random.choice(NAMES) for _ in range(self.random.randint(1, deepest)))

    def fill(self, tar):
        made = {}
        for _ in range(60):
            name = self.path()
            above = ["/".join(name.split("/")[:n]) for n in range(1, name.count("/") + 1)]
            if name in made or any(made.get(folder, tarfile.DIRTYPE) != tarfile.DIRTYPE for folder in above):
                continue
            for folder in above:
                if folder not in made:
                    self.add(tar, made, folder, tarfile.DIRTYPE)
            kinds = [tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
            self.add(tar, made, name, self.random.choice(kinds))

    def add(self, tar, made, name, kind):
        entry = tarfile.TarInfo("data/" + name)
        entry.type, entry.mtime = kind, self.random.randint(10**9, 2 * 10**9)
        entry.mode = self.random.choice([0o755, 0o700, 0o711] if kind == tarfile.DIRTYPE else [0o644, 0o600, 0o4755])
        entry.uid = entry.gid = self.random.choice([0, 1000]) if self.owners else 0
        text = b""
        if kind == tarfile.SYMTYPE:
            entry.linkname = self.random.choice(["a", "../b", "/data/c", "nowhere"])
        if kind == tarfile.LNKTYPE:
            files = [n for n, k in made.items() if k == tarfile.REGTYPE]
            if not files:
                return
            entry.linkname = "data/" + self.random.choice(files)
        if kind == tarfile.REGTYPE:
            text = bytes([65 + self.random.randrange(26)]) * self.random.choice([0, 5, 900, 5000])
            entry.size = len(text)
        made[name] = kind
        tar.addfile(entry, io.BytesIO(text))

    def changes(self):
        """Some fail, as they would for anybody who tries things. A pipe of an image has no special mode; a copy to one
        would wait for ever."""
        # An ordinary user could not look into a directory without `x` any more.
        modes = ["700", "1777", "4755"] + (["644"] if self.owners else [])
        lines = ["(cd /data"]
        for number in range(25):
            one, other = self.path(), self.path()
            lines.append(self.random.choice([
                f"rm -rf {one}", f"rm -f {one}", f"rm -rf {one}; mkdir -p {one}", f"rm -rf {one}; mkdir -p {one}/fresh",
                f"mkdir -p {one}", f"[ -p {one} ] || echo {number} > {one}", f"[ -p {one} ] || echo more >> {one}", f"ln {one} {other}", f"ln -s {one} {other}",
                f"mv {one} {other}", f"[ -p {one} ] || chmod {self.random.choice(modes)} {one}", f"mkfifo {one}",
                f"rm -rf {one}; echo file > {one}", f"touch -d '2001-02-03 04:05:06' {one}", f"timeout 5 cp -r {one} {other}",
                f"chown 7:65535 {one}" if self.owners else f"chmod 755 {one}"]))
        return "\n".join(lines) + "\n) > /dev/null 2>&1\n"


class Stack(unittest.TestCase):
    maxDiff = None

    def cases(self):
        """(caller, what the layer tool needs) for every kind of caller and form of image."""
        for kind in harness.callers():
            for form in ["directory", "erofs"] if kind == "root" else ["directory"]:
                with harness.Caller(kind) as caller, self.subTest(caller=kind, form=form):
                    caller.programs()
                    caller.env["CAISSON_IMAGE_FORM"] = form
                    if form == "erofs" and not self.mounts_erofs(caller):
                        continue
                    self.stores = {"over": caller.mkdir("over"), "flat": caller.mkdir("flat")}
                    plain = ["--user", "0" if kind == "user" else "1000", "--as", "0"]
                    yield caller, plain + ([] if kind == "user" else ["--sudo"])

    def mounts_erofs(self, caller):
        (finding,) = [f for f in caller.caisson("doctor", "--json").json() if f["feature"] == "erofs from a file"]
        return finding["state"] == "works"

    def run_tool(self, caller, how, name, *arguments):
        programs = caller.programs()
        tool = programs / name
        if programs != harness.build_dir() and not tool.exists():
            shutil.copy(TOOLS / name, tool)
        command = [*caller._prefix, str(tool if tool.exists() else TOOLS / name), *map(str, arguments)]
        env = {**caller.env, "CAISSON_STATE_DIR": str(self.stores[how])}
        done = subprocess.run(command, env=env, cwd=caller.home, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace"))
        return done.stdout, done.stderr.decode(errors="replace")

    def import_base(self, caller, tree):
        archive = caller.folder / "base.tar"
        with tarfile.open(archive, "w") as tar:
            for folder in ["./", "data", "etc"]:
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, 10**9
                tar.addfile(entry)
            tar.add(shutil.which("busybox"), "bin/busybox", filter=self.nobodys)
            for tool in "sh find stat sha256sum readlink rm mkdir ln mkfifo chmod touch chown mv cp cat timeout".split():
                entry = tarfile.TarInfo(f"bin/{tool}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
            if tree is not None:
                tree.fill(tar)
        archive.chmod(0o644)
        for how in ("over", "flat"):
            caller.env["CAISSON_STATE_DIR"] = str(self.stores[how])
            done = caller.caisson("image", "import", "image0", archive)
            self.assertEqual(done.returncode, 0, done)

    @staticmethod
    def nobodys(entry):
        entry.uid = entry.gid = 0
        return entry

    def seen(self, caller, how, image, needs):
        out, _ = self.run_tool(caller, how, "caisson_layer_tool", "--image", image, *needs, "--", TREE)
        return test_layers.parse_tree(out)

    def change(self, caller, needs, image, script, number):
        """What the sandbox saw at its end, the layer and its digest."""
        layer = caller.mkdir(f"layers-{number}") / "layer"
        out, err = self.run_tool(caller, "over", "caisson_layer_tool", "--image", image, *needs, "--keep", layer, "--",
                                 script + TREE)
        return test_layers.parse_tree(out), layer, json.loads(err.splitlines()[-1])

    def stack(self, caller, how, base, name, layer, facts):
        out, _ = self.run_tool(caller, how, "caisson_stack_tool", how, base, name, layer, facts["diff_id"])
        return json.loads(out)

    def assert_same(self, one, other, times, links=True):
        self.assertEqual(sorted(one), sorted(other))
        for name, entry in one.items():
            if name.decode(errors="replace") not in test_layers.GENERATED:
                timed = entry.kind != "directory" or (times and name.startswith(b"/data"))
                self.assertEqual(entry.facts(timed), other[name].facts(timed), name)
        if links:
            self.assertEqual(self.links(one), self.links(other))

    @staticmethod
    def links(tree):
        """The names of each file that has several."""
        files = {}
        for name, entry in tree.items():
            if entry.kind == "file":
                files.setdefault(entry.inode, []).append(name)
        return sorted(sorted(names) for names in files.values() if len(names) > 1)

    def test_random_changes_over_a_random_tree(self):
        seed = int(os.environ.get("CAISSON_SEED", random.randrange(10**6)))
        for caller, needs in self.cases():
            with self.subTest(seed=seed):
                tree = Tree(seed, caller.kind != "user")
                self.import_base(caller, tree)
                self.assert_same(self.seen(caller, "over", "image0", needs), self.seen(caller, "flat", "image0", needs), True)
                for number in range(ROUNDS):
                    base, name = f"image{number}", f"image{number + 1}"
                    left, layer, facts = self.change(caller, needs, base, tree.changes(), number)
                    over = self.stack(caller, "over", base, name, layer, facts)
                    flat = self.stack(caller, "flat", base, name, layer, facts)
                    self.assertEqual((over["below"], flat["below"]), (number + 1, 0))
                    self.assertEqual((over["form"], over["id"]), (caller.env["CAISSON_IMAGE_FORM"], flat["id"]))
                    shown = self.seen(caller, "over", name, needs)
                    self.assert_same(shown, self.seen(caller, "flat", name, needs), True)
                    # Where a file was linked the overlay of a running sandbox may show two inodes.
                    self.assert_same(shown, left, False, False)

    def test_builds_and_exports_take_it_whole(self):
        for caller, needs in self.cases():
            tree = Tree(random.randrange(10**6), caller.kind != "user")
            self.import_base(caller, tree)
            script = tree.changes() + "rm -rf /data/x; mkdir -p /data/x; echo changed > /data/x/last\n"
            _, layer, facts = self.change(caller, needs, "image0", script, 0)
            self.assertEqual(self.stack(caller, "over", "image0", "image1", layer, facts)["below"], 1)
            shown = self.seen(caller, "over", "image1", needs)
            caller.env["CAISSON_STATE_DIR"] = str(self.stores["over"])
            context = caller.mkdir("context")
            caller.write("context/Dockerfile", "FROM image1 AS one\nRUN cat /data/x/last > /data/x/built\nFROM image0\n"
                         "COPY --from=image1 /data/x/last /copied\nCOPY --from=one /data/x/built /built\n", 0o644)
            done = caller.caisson("image", "build", "-t", "built", context, timeout=120)
            self.assertEqual(done.returncode, 0, done)
            out, _ = self.run_tool(caller, "over", "caisson_layer_tool", "--image", "built", *needs, "--", "cat /copied /built")
            self.assertEqual(out, b"changed\nchanged\n")
            # Taking it along as a file and in again gives the same files, in one piece.
            archive = caller.mkdir("export") / "image.tar"
            done = caller.caisson("image", "export", "image1", "-o", archive)
            self.assertEqual(done.returncode, 0, done)
            caller.env["CAISSON_STATE_DIR"] = str(self.stores["flat"])
            done = caller.caisson("image", "import", "again", archive)
            self.assertEqual(done.returncode, 0, done)
            (info,) = caller.caisson("image", "inspect", "again").json()
            self.assertNotIn("below", info["rootfs"])
            self.assert_same(shown, self.seen(caller, "flat", "again", needs), True)

    def test_it_is_listed_with_what_it_lies_over(self):
        for caller, needs in self.cases():
            self.import_base(caller, None)
            _, layer, facts = self.change(caller, needs, "image0", "echo 12345 > /data/last\n", 0)
            self.stack(caller, "over", "image0", "image1", layer, facts)
            caller.env["CAISSON_STATE_DIR"] = str(self.stores["over"])
            base, top = caller.caisson("image", "inspect", "image0", "image1").json()
            self.assertEqual([lower["chain"] for lower in top["rootfs"]["below"]], [base["rootfs"]["chain"]])
            self.assertEqual(top["rootfs"]["bytes"], 6)
            self.assertNotIn("below", base["rootfs"])
            sizes = {image["name"]: image["bytes"] for image in caller.caisson("image", "ls", "--json").json()}
            self.assertEqual(sizes["image1:latest"], sizes["image0:latest"] + 6)

    def test_roots_of_both_forms_lie_over_each_other_under_a_layer_on_disk(self):
        disk, no_disk = harness.disk_folder()
        if disk is None:
            frame.left_out(no_disk)
        self.addCleanup(shutil.rmtree, disk)
        for caller, needs in self.cases():
            if caller.kind != "root" or not self.mounts_erofs(caller):
                continue
            self.stores = {how: pathlib.Path(tempfile.mkdtemp(dir=disk)) for how in ("over", "flat")}
            needs = [*needs, "--quota"]
            tree = Tree(random.randrange(10**6), True)
            self.import_base(caller, tree)
            for number in range(2):
                forms = ["directory", "erofs"]
                forms.remove(caller.env["CAISSON_IMAGE_FORM"])
                caller.env["CAISSON_IMAGE_FORM"] = forms[0]
                base, name = f"image{number}", f"image{number + 1}"
                left, layer, facts = self.change(caller, needs, base, tree.changes(), number)
                over = self.stack(caller, "over", base, name, layer, facts)
                self.assertEqual((over["below"], over["form"]), (number + 1, forms[0]))
                self.stack(caller, "flat", base, name, layer, facts)
                shown = self.seen(caller, "over", name, needs)
                self.assert_same(shown, self.seen(caller, "flat", name, needs), True)
                self.assert_same(shown, left, False, False)

    def test_the_ninth_root_is_flattened(self):
        for caller, needs in self.cases():
            self.import_base(caller, None)
            for number in range(8):
                _, layer, facts = self.change(caller, needs, f"image{number}", f"echo {number} > /data/last\n", number)
                over = self.stack(caller, "over", f"image{number}", f"image{number + 1}", layer, facts)
                self.assertEqual(over["below"], number + 1 if number < 7 else 0)
            for image, text in (("image7", "6"), ("image8", "7")):
                out, _ = self.run_tool(caller, "over", "caisson_layer_tool", "--image", image, *needs, "--", "cat /data/last")
                self.assertEqual(out.decode().strip(), text)

    def test_a_user_of_an_upper_layer_is_known_and_one_that_it_removed_is_not(self):
        for caller, needs in self.cases():
            if caller.kind == "user":
                continue  # all ids are one
            self.import_base(caller, None)
            _, layer, facts = self.change(caller, needs, "image0", "echo 'web:x:33:44::/:/bin/sh' > /etc/passwd\n", 0)
            self.stack(caller, "over", "image0", "image1", layer, facts)
            _, layer, facts = self.change(caller, needs, "image1", "rm /etc/passwd\n", 1)
            self.stack(caller, "over", "image1", "image2", layer, facts)
            caller.env["CAISSON_STATE_DIR"] = str(self.stores["over"])
            done = caller.caisson("run", "--image", "image1", "--user", "web", "--", "busybox", "id")
            self.assertIn(b"uid=33(web) gid=44", done.stdout, done)
            done = caller.caisson("run", "--image", "image2", "--user", "web", "--", "busybox", "id")
            self.assertNotEqual(done.returncode, 0, done)


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
