"""One image under many sandboxes, as a server holds it: mounted once, its pages are in memory once."""
import json
import os
import shutil
import subprocess

import frame
from frame import harness

MANY = 100
MOST_ADDED = 60e6  # bytes of page cache that all others may add to what one sandbox reads
# What a usual script reads of its interpreter.
PROGRAM = ["python3", "-c", "import json, re, socket, subprocess, time; print('ready', flush=True); time.sleep(600)"]


class SharedImage(frame.ModeTest):
    modes = ("base",)

    def chain(self):
        """A folder with the base image as an erofs file, as the store would have it."""
        (rootfs,) = (self.caller.folder / "state" / "caisson" / "images" / "rootfs").iterdir()
        folder = self.caller.folder / "chain"
        folder.mkdir()
        self.addCleanup(shutil.rmtree, folder)
        if (rootfs / "rootfs.erofs").exists():
            shutil.copyfile(rootfs / "rootfs.erofs", folder / "rootfs.erofs")
        else:
            done = subprocess.run(["mkfs.erofs", "--all-root", folder / "rootfs.erofs", rootfs / "rootfs"], capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        # What making the file has left in memory is none of a sandbox's.
        with open(folder / "rootfs.erofs", "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return folder

    def measure(self, how, chain, count):
        tool = harness.build_dir() / "tests" / "caisson_shared_image_tool"
        done = subprocess.run([tool, how, chain, str(count), "--", *PROGRAM], env=self.caller.env, cwd=self.caller.home,
                              capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        print(f"{how}, {found['how']}: {found['one'] / 1e6:.1f} MB with one, {found['all'] / 1e6:.1f} MB with {count}")
        # It was looked at the right pages, and only at them: an interpreter, not the whole image.
        self.assertGreater(found["one"], 4e6, found)
        self.assertLess(found["one"], 100e6, found)
        self.assertTrue(harness.wait_until(lambda: not self.caller.sandboxes_left(), 60), self.caller.sandboxes_left())
        return found

    def test_many_sandboxes_of_one_mount_add_little_page_cache(self):
        if self.erofs_missing():
            frame.left_out("this host mounts no erofs from a file")
        chain = self.chain()
        found = self.measure("shared", chain, MANY)
        self.assertIn(found["how"], ("direct", "loop", "buffered"))
        self.assertLess(found["all"] - found["one"], MOST_ADDED)
        # The measure sees what it should: with a mount for each, each keeps an interpreter of its own.
        apart = self.measure("each", chain, 4)
        self.assertGreater((apart["all"] - apart["one"]) / 3, 4e6)

    def erofs_missing(self):
        findings = self.caller.caisson("doctor", "--json").json()
        (finding,) = [f for f in findings if f["feature"] == "erofs from a file"]
        return finding["state"] != "works"


frame.main()
