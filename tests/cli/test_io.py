"""Limits of I/O: on a disk of our own as root, where every time is a lower bound; refused or reported elsewhere."""
import os
import re
import signal
import subprocess
import tempfile
import time

import support

LIMITS = ("io_read", "io_write", "io_read_ops", "io_write_ops")


def has_io_controller():
    """Whether this host has one that root can use: v1's blkio, or v2's io."""
    with open("/proc/self/mountinfo") as mounts:
        text = mounts.read()
    if re.search(r" - cgroup \S+ \S*\bblkio\b", text):
        return True
    top = re.search(r" (/\S+) \S+ (?:\S+ )*- cgroup2 ", text)
    if not top:
        return False
    with open(f"{top[1]}/cgroup.controllers") as controllers:
        return "io" in controllers.read().split()


def tree(pid):
    """A process and all below it."""
    pids = [pid]
    for parent in pids:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as children:
                    pids += map(int, children.read().split())
        except OSError:
            continue  # gone meanwhile
    return pids


def waits_for_its_read(pid):
    """Whether this is dd, within the read of its 1 MiB from the disk, where no signal reaches it.

    Not merely in state D: so is whoever waits for a page of a program that is not in memory yet."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            name, _, rest = stat.read().partition(" (")[2].rpartition(") ")
        with open(f"/proc/{pid}/syscall") as call:
            words = call.read().split()
    except OSError:
        return False  # gone meanwhile
    # The number of the call, its arguments: dd reads from descriptor 0.
    return name == "dd" and rest[0] == "D" and words[1:2] == ["0x0"] and words[3:4] == [hex(1 << 20)]


def reads_for_good(top):
    """Waits until a dd below this process stays in its read: the disk's limit holds it up, not the disk."""
    def found(looks=5):
        pids = [pid for pid in tree(top) if waits_for_its_read(pid)]
        for _ in range(looks if pids else 0):
            time.sleep(0.1)
            pids = [pid for pid in pids if waits_for_its_read(pid)]
        return pids
    return support.harness.wait_until(found, 60)


class Disk(support.CallerTest):
    """An ext4 file system on a loop device."""

    def setUp(self):
        if self.kind != "root":
            self.skipTest("only root makes a disk")
        if not has_io_controller():
            self.skipTest("this host has no io controller")
        self.image = tempfile.NamedTemporaryFile(prefix="caisson-disk-", dir=self.caller.folder)
        # Before the caller's folder goes.
        self.addCleanup(self.image.close)
        self.image.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", self.image.name], check=True)
        made = subprocess.run(["losetup", "-f", "--show", self.image.name], capture_output=True, text=True)
        if made.returncode != 0:
            self.skipTest(f"no loop device: {made.stderr.strip()}")
        self.device = made.stdout.strip()
        self.addCleanup(subprocess.run, ["losetup", "-d", self.device], check=True)
        mount = self.caller.mkdir("disk")
        subprocess.run(["mount", self.device, mount], check=True)
        self.addCleanup(os.rmdir, mount)
        self.addCleanup(subprocess.run, ["umount", mount], check=True)
        self.folder = mount / "work"
        self.folder.mkdir()
        self.version1 = not os.path.exists("/sys/fs/cgroup/cgroup.controllers")

    def timed(self, *arguments):
        """The result, and the seconds that the command took."""
        result = self.verdict(*arguments)
        self.assert_ended(result, "exited", 0)
        return result, result["usage"]["elapsed_us"] / 1e6

    def fill(self, name, size):
        data = os.urandom(size)
        with open(self.folder / name, "wb") as file:
            file.write(data)
            os.fsync(file.fileno())

    def test_bytes_written_and_read_a_second(self):
        write = ["dd", "if=/dev/zero", "of=/workspace/x", "bs=512k", "count=6", "oflag=direct"]
        result, seconds = self.timed("--rw", self.folder, "--io-write", "1MiB/s", "--", *write)
        self.assertGreater(seconds, 1.5, result)
        # Version 1 does not see what the kernel writes out later.
        self.assertEqual(result["held"]["io_write"], "partly" if self.version1 else "cgroup", result)
        self.assertEqual([result["held"][limit] for limit in LIMITS if limit != "io_write"], ["none"] * 3)
        self.assertGreaterEqual(result["usage"]["io_write_bytes"], 3 << 20)
        read = ["dd", "if=/workspace/x", "of=/dev/null", "bs=512k", "iflag=direct"]
        result, seconds = self.timed("--ro", self.folder, "--io-read", "1MiB/s", "--", *read)
        self.assertGreater(seconds, 1.5, result)
        self.assertEqual(result["held"]["io_read"], "cgroup", result)
        self.assertGreaterEqual(result["usage"]["io_read_bytes"], 3 << 20)

    def test_operations_a_second(self):
        write = ["dd", "if=/dev/zero", "of=/workspace/x", "bs=4k", "count=12", "oflag=direct"]
        result, seconds = self.timed("--rw", self.folder, "--io-write-ops", "4/s", "--", *write)
        self.assertGreater(seconds, 1.5, result)

    def test_a_command_that_waits_for_its_disk_ends_with_its_time(self):
        # The read waits a minute for its turn, in which no signal reaches it.
        self.fill("x", 1 << 20)
        start = time.monotonic()
        result = self.verdict("--ro", self.folder, "--io-read", "16KiB/s", "--timeout", "1s", "--",
                              "dd", "if=/workspace/x", "of=/dev/null", "bs=1M", "iflag=direct")
        self.assert_ended(result, "time_limit", 124, cause="elapsed")
        self.assertLess(time.monotonic() - start, 20, result)

    def test_who_waits_for_a_disk_when_all_else_was_killed_is_swept(self):
        self.fill("x", 1 << 20)
        process = self.caller.popen("run", "--ro", self.folder, "--io-read", "16KiB/s", "--",
                                    "dd", "if=/workspace/x", "of=/dev/null", "bs=1M", "iflag=direct", stdout=-1, stderr=-1)
        self.assertTrue(reads_for_good(process.pid), "no dd waits for its disk")
        for pid in tree(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
        self.assertNotEqual(support.harness.living_children(0.5), [], "it did not wait for its disk")
        self.assertEqual(self.caller.caisson("ps").returncode, 0)
        self.assertEqual(support.harness.living_children(10), [])

    def test_other_commands_of_a_sandbox_are_limited_and_end_alone(self):
        self.fill("x", 1 << 20)
        done = self.run_in("-d", "--rw", self.folder, "--io-write", "1MiB/s", "--io-read", "16KiB/s", "--timeout", "2m",
                           "--", "sleep", "100")
        name = done.out.strip()
        self.addCleanup(self.caller.caisson, "kill", name)
        start = time.monotonic()
        done = self.caller.caisson("exec", name, "--", "dd", "if=/dev/zero", "of=/workspace/y", "bs=512k", "count=6",
                                   "oflag=direct")
        self.assertEqual(done.returncode, 0, done)
        self.assertGreater(time.monotonic() - start, 1.5)
        process = self.caller.popen("exec", name, "--", "dd", "if=/workspace/x", "of=/dev/null", "bs=1M", "iflag=direct",
                                    stdout=-1, stderr=-1)
        self.assertTrue(reads_for_good(os.getpid()), "no dd waits for its disk")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)
        self.assertIn(name, self.caller.caisson("ps").out)
        self.assertEqual(self.caller.caisson("exec", name, "--", "echo", "alive").out, "alive\n")

    def test_what_version_1_does_not_see_is_no_hard_limit(self):
        asked = ("--io-write", "1MiB/s", "--require-hard-limits", "--", "true")
        self.timed("--ro", self.folder, *asked)
        done = self.run_in("--rw", self.folder, *asked)
        if self.version1:
            self.assert_refused(done, "limits.io_write", "not counted as its own", "ext4")
        else:
            self.assertEqual(done.returncode, 0, done)


class Elsewhere(support.CallerTest):
    def test_a_limit_is_never_skipped_in_silence(self):
        for limit in LIMITS:
            with self.subTest(limit=limit):
                flag = "--" + limit.replace("_", "-")
                result = self.verdict(flag, "1M", "--", "true")
                self.assert_ended(result, "exited", 0)
                held = result["held"][limit]
                self.assertIn(held, ("none", "partly", "cgroup"))
                if self.kind != "root" and not has_io_controller():
                    self.assertEqual(held, "none")
                hard = self.run_in(flag, "1M", "--memory", "unlimited", "--cpus", "unlimited", "--require-hard-limits",
                                   "--", "true")
                if held == "cgroup":
                    self.assertEqual(hard.returncode, 0, hard)
                else:
                    self.assert_refused(hard, f"limits.{limit} cannot be held hard here")

    def test_what_is_no_rate_is_refused(self):
        self.assert_refused(self.run_in("--io-write", "1m/s", "--", "true"), "--io-write", "no unit", "10MiB/s")
        self.assert_refused(self.run_in("--io-read-ops", "0", "--", "true"), "--io-read-ops", "unlimited")
        self.assert_refused(self.run_in("--io-read", "1k", "--", "true"), "limits.io_read", "4KiB/s")

    def test_a_group_of_blkio_is_made_only_for_a_limit(self):
        def groups():
            return [group for group in support.harness.cgroups() if "/blkio/" in group]
        for flags, made in (((), 0), (("--io-read", "1G"), 1)):
            if made and (self.kind != "root" or not os.path.isdir("/sys/fs/cgroup/blkio")):
                continue
            before = set(groups())
            name = self.run_in("-d", *flags, "--", "sleep", "100").out.strip()
            found = set(groups()) - before
            self.caller.caisson("kill", name)
            self.assertEqual(len(found), made, found)
            self.assertTrue(support.harness.wait_until(lambda: not set(groups()) - before, 5))


support.main()
