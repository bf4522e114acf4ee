#!/usr/bin/env python3
"""Limits, verdicts and walls on Linux 6.1 with cgroup v2, as root and as three kinds of ordinary user."""

import unittest

from case import CALLERS, DELEGATED, MachineTest, each_caller, main

BOMB = "x = bytearray(10**9)"


def python(text):
    return ["python3", "-S", "-c", text]


class Limits(MachineTest):
    @each_caller(short=CALLERS)
    def test_no_limit_met(self, caller):
        ran = self.caisson("--", *python("print(6*7)"), caller=caller)
        self.assert_verdict(ran, "exited", 0)
        self.assertEqual((ran.stdout, ran.hit, ran.document["wall"]), ("42\n", [], "namespace"), str(ran))
        self.assertGreater(ran.usage["elapsed_us"], 0)

    @each_caller(short=("root", "user", "bare"))
    def test_how_limits_are_held(self, caller):
        ran = self.caisson("--", "true", caller=caller)
        self.assertEqual(len(ran.held), 13, str(ran))
        for limit in ("memory", "pids", "cpus"):
            if caller in DELEGATED:
                self.assertEqual(ran.held[limit], "cgroup", str(ran))
            else:
                self.assertNotEqual(ran.held[limit], "cgroup", str(ran))

    def test_hard_limits_are_refused_where_they_cannot_be_held(self):
        refused = self.caisson("--require-hard-limits", "--", "true", caller="bare")
        self.assert_verdict(refused, "sandbox_error", 125)
        self.assertRegex(refused.verdict["message"], "cpus|memory")

    @each_caller(short=("root", "user", "bare"))
    def test_memory(self, caller):
        ran = self.caisson("--memory", "64MiB", "--disk", "32MiB", "--", *python(BOMB), caller=caller)
        self.assert_verdict(ran, "memory_limit", 137)
        if caller in DELEGATED:
            self.assertLessEqual(ran.usage["memory_peak"], 66 << 20, str(ran))

    @each_caller()
    def test_processes(self, caller):
        # Whoever is refused waits a moment: where the limit is watched and not told by a control group,
        # the watcher must see it.
        bomb = "import os, time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(2); os._exit(1)"
        ran = self.caisson("--pids", "32", "--timeout", "20s", "--", *python(bomb), caller=caller, timeout=90)
        self.assert_verdict(ran, "process_limit", 121)
        self.assertLessEqual(ran.usage["pids_peak"], 33, str(ran))

    @each_caller(short=("root", "user", "bare"))
    def test_disk(self, caller):
        ran = self.caisson("--disk", "16MiB", "--", "sh", "-c", "dd if=/dev/zero of=$HOME/x bs=1M count=200", caller=caller)
        self.assert_verdict(ran, "disk_limit", 122, "bytes")

    @each_caller("root", "plain")
    def test_inodes(self, caller):
        ran = self.caisson("--inodes", "300", "--", "sh", "-c", "cd $HOME; for i in $(seq 600); do : > $i || exit 1; done",
                           caller=caller)
        self.assert_verdict(ran, "disk_limit", 122, "inodes")

    @each_caller()
    def test_output(self, caller):
        ran = self.caisson("--output", "1MiB", "--", "yes", caller=caller)
        self.assert_verdict(ran, "output_limit", 120)
        self.assertLessEqual(len(ran.stdout), 1 << 20)
        self.assertGreaterEqual(len(ran.stdout), (1 << 20) - 65536)

    @each_caller()
    def test_time(self, caller):
        ran = self.caisson("--timeout", "1s", "--", "sleep", "100", caller=caller)
        self.assert_verdict(ran, "time_limit", 124, "elapsed")
        self.assertLess(ran.usage["elapsed_us"], 1_400_000, str(ran))

    @each_caller("root", "user")
    def test_processor_time(self, caller):
        ran = self.caisson("--cpu-time", "500ms", "--", *python("while True: pass"), caller=caller)
        self.assert_verdict(ran, "time_limit", 124, "cpu")

    @each_caller(short=("root",))
    def test_io(self, caller):
        # Version 2 counts what the kernel writes out later for whoever made it dirty: nothing here is direct.
        name, user = f"/var/tmp/io-{caller}", CALLERS[caller]["user"]
        self.shell(f"rm -rf {name}; mkdir {name}; chown {user}: {name}").check()
        write = ("dd", "if=/dev/zero", "of=/data/x", "bs=64k", "count=48", "conv=fsync")
        ran = self.caisson("--rw", f"{name}:/data", "--io-write", "1MiB/s", "--", *write, caller=caller)
        self.assert_verdict(ran, "exited", 0)
        self.shell(f"rm -r {name}").check()
        if caller != "root":  # systemd does not delegate io unless it is told to
            self.assertEqual(ran.held["io_write"], "none", str(ran))
            return
        self.assertEqual((ran.held["io_write"], ran.held["io_read"]), ("cgroup", "none"), str(ran))
        self.assertGreater(ran.usage["elapsed_us"], 1_500_000, str(ran))
        self.assertGreaterEqual(ran.usage["io_write_bytes"], 3 << 20, str(ran))

    def test_a_command_that_waits_for_its_disk_ends_with_its_time(self):
        # No signal reaches it for the minute that the read waits, unless the limit is lifted.
        self.shell("head -c 1M /dev/zero > /var/tmp/waits; sync").check()
        ran = self.caisson("--ro", "/var/tmp/waits:/data", "--io-read", "16KiB/s", "--timeout", "1s", "--",
                           "dd", "if=/data", "of=/dev/null", "bs=1M", "iflag=direct")
        self.assert_verdict(ran, "time_limit", 124, "elapsed")
        self.assertEqual(ran.held["io_read"], "cgroup", str(ran))
        self.assertLess(ran.usage["elapsed_us"], 20_000_000, str(ran))

    @each_caller("root", "user")
    def test_cpus(self, caller):
        burn = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
        ran = self.caisson("--cpus", "0.2", "--", *python(burn), caller=caller)
        self.assert_verdict(ran, "exited", 0)
        used = ran.usage["user_us"] + ran.usage["system_us"]
        self.assertLess(used / ran.usage["elapsed_us"], 0.35, str(ran))


class Edges(MachineTest):
    @each_caller(*DELEGATED)
    def test_child_out_of_memory_and_the_parent_lives(self, caller):
        text = f"import os\npid = os.fork()\nif pid == 0:\n  {BOMB}\nstatus = os.wait()[1]\nprint('status', status != 0)"
        ran = self.caisson("--memory", "64MiB", "--disk", "16MiB", "--", *python(text), caller=caller)
        # The group of the command may end with its child; then the program has failed. Where it
        # went on and succeeded, the limit is told beside its exit.
        if ran.kind == "exited":
            self.assertEqual((ran.status, ran.hit, ran.stdout), (0, ["memory"], "status True\n"), str(ran))
        else:
            self.assert_verdict(ran, "memory_limit", 137)

    @each_caller(*DELEGATED)
    def test_memory_that_belongs_to_no_process(self, caller):
        # The pages of a memory file count for nobody; whoever holds it must be the one that ends.
        text = ("import os\nfile = os.memfd_create('x')\ntry:\n  while True: os.write(file, bytes(1 << 20))\n"
                "except OSError: os._exit(9)")
        ran = self.caisson("--memory", "64MiB", "--disk", "16MiB", "--", *python(text), caller=caller)
        self.assert_verdict(ran, "memory_limit", 137)

    @each_caller("root", "plain")
    def test_full_disk_and_the_program_succeeds(self, caller):
        ran = self.caisson("--disk", "8MiB", "--", "sh", "-c", "dd if=/dev/zero of=$HOME/x bs=1M count=99 2>&-; exit 0",
                           caller=caller)
        self.assert_verdict(ran, "exited", 0)
        self.assertEqual(ran.hit, ["disk"], str(ran))

    def test_full_default_disk_is_never_a_matter_of_memory(self):
        ran = self.caisson("--", "sh", "-c", "cat /dev/zero > $HOME/x", timeout=120)
        self.assert_verdict(ran, "disk_limit", 122, "bytes")

    @each_caller("root", "plain", "bare")
    def test_refused_process_and_the_program_succeeds(self, caller):
        text = ("import os, time\ntry:\n  for _ in range(99):\n    if os.fork() == 0: time.sleep(30); os._exit(0)\n"
                "except BlockingIOError: pass\nos._exit(0)")
        ran = self.caisson("--pids", "16", "--", *python(text), caller=caller)
        self.assert_verdict(ran, "exited", 0)
        if caller in DELEGATED:
            self.assertEqual(ran.hit, ["pids"], str(ran))

    def test_own_sigsys_is_a_signal(self):
        ran = self.caisson("--", "sh", "-c", "kill -SYS $$")
        self.assert_verdict(ran, "signaled", 128 + 31)

    def test_signal(self):
        ran = self.caisson("--", "sh", "-c", "kill -SEGV $$")
        self.assert_verdict(ran, "signaled", 128 + 11)

    def test_output_cut_inside_a_character(self):
        # Three bytes a character: no multiple of them is a power of two.
        ran = self.caisson("--output", "64KiB", "--", *python("import sys\nwhile True: sys.stdout.buffer.write('€'.encode() * 5000)"))
        self.assert_verdict(ran, "output_limit", 120)
        self.assertEqual(set(ran.stdout), {"€"}, str(ran)[:400])

    @each_caller("root", "plain")
    def test_double_fork_ends_with_the_command(self, caller):
        ran = self.caisson("--", "sh", "-c", "setsid sleep 301 & echo started", caller=caller)
        self.assert_verdict(ran, "exited", 0)
        self.assertEqual(ran.stdout, "started\n")
        self.assertEqual(self.shell("ps -eo args | grep -c '[s]leep 301'").text, "0\n")

    def test_stdin_that_is_never_read(self):
        ran = self.caisson("--", "true", prefix="head -c 4000000 /dev/zero |")
        self.assert_verdict(ran, "exited", 0)

    def test_exit_statuses_of_programs(self):
        for command, status in ((["sh", "-c", "exit 9"], 9), (["/no/such/program"], 127), (["/usr"], 126)):
            with self.subTest(command=command):
                self.assertEqual(self.caisson("--", *command).status, status)


class NothingOfTheHost(MachineTest):
    @each_caller()
    def test_secrets_and_homes(self, caller):
        self.shell("echo canary-in-home > /home/user/secret; chmod 644 /home/user/secret; chmod 755 /home/user")
        script = "cat /etc/shadow /home/user/secret /root/secret; ls -A /home /root; cat /etc/machine-id /etc/passwd; hostname"
        ran = self.caisson("--", "sh", "-c", script, caller=caller)
        for canary in ("host-secret-canary", "canary-in-home", "testhost", "0123456789abcdef", "plain"):
            self.assertNotIn(canary, ran.stdout, str(ran))

    @each_caller()
    def test_no_connection(self, caller):
        text = ("import socket\nfor address in (('127.0.0.1', 7000), ('10.0.2.2', 80)):\n"
                "  try: socket.create_connection(address, 2); print('connected')\n"
                "  except OSError as error: print('refused')")
        prefix = "python3 -S -m http.server 7000 --bind 127.0.0.1 >&- 2>&- & trap 'kill %1; wait' EXIT; sleep 1.5;"
        ran = self.caisson("--", *python(text), caller=caller, prefix=prefix)
        self.assertEqual(ran.stdout, "refused\nrefused\n", str(ran))

    @each_caller()
    def test_processes(self, caller):
        ran = self.caisson("--", "sh", "-c", "ls -d /proc/[0-9]* | wc -l", caller=caller)
        self.assertLessEqual(int(ran.stdout), 6, str(ran))

    @each_caller()
    def test_nested_user_namespaces_are_closed(self, caller):
        ran = self.caisson("--", "unshare", "-U", "true", caller=caller)
        self.assertNotEqual(ran.status, 0, str(ran))
        self.assertEqual(ran.kind, "exited", str(ran))


class Grants(MachineTest):
    """Linux 6.1 cannot give a mount of a tmpfs other owners, but the same of ext4 and erofs."""

    def given(self, folder, caller):
        """A folder of the caller's own, with a file in it."""
        name, user = f"{folder}/grant-{caller}", CALLERS[caller]["user"]
        self.shell(f"rm -rf {name}; mkdir {name}; echo given > {name}/in; chown -R {user}: {name}").check()
        return name, user

    def assert_read_only(self, name, caller):
        ran = self.caisson("--ro", f"{name}:/data", "--", "sh", "-c", "cat /data/in; rm /data/in", caller=caller)
        self.assertEqual((ran.stdout, ran.status), ("given\n", 1), str(ran))

    def assert_writable(self, name, user, caller):
        ran = self.caisson("--rw", f"{name}:/data", "--", "sh", "-c", "cat /data/in && echo made > /data/out", caller=caller)
        self.assert_verdict(ran, "exited", 0)
        self.assertEqual(self.shell(f"cat {name}/out; stat -c %U {name}/out").text, f"made\n{user}\n", str(ran))

    @each_caller()
    def test_ext4(self, caller):
        name, user = self.given("/var/tmp", caller)
        self.assert_writable(name, user, caller)
        self.assert_read_only(name, caller)

    @each_caller("user", "plain", short=("user",))
    def test_tmpfs_as_an_ordinary_user(self, caller):
        name, user = self.given("/dev/shm", caller)
        self.assert_writable(name, user, caller)
        self.assert_read_only(name, caller)

    def test_tmpfs_as_root(self):
        name, _ = self.given("/dev/shm", "root")
        ran = self.caisson("--rw", f"{name}:/data", "--", "true")
        self.assert_verdict(ran, "sandbox_error", 125)
        self.assertRegex(ran.verdict["message"], rf"grants: {name}: this file system cannot be id-mapped on Linux 6\.1\."
                                                 r".*; allowed are --ro, --copy .* ext4")
        self.assert_read_only(name, "root")


class Layer(MachineTest):
    """The writable layer over an image of its own: what 6.1's overlay on a tmpfs makes hard."""

    TAR = r"""
import io, tarfile
archive = tarfile.open("/tmp/image.tar", "w")
def add(name, mode=0o755, data=None, kind=tarfile.REGTYPE, link="", uid=0):
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.linkname, entry.uid, entry.gid = mode, kind, link, uid, uid
    entry.size = len(data or b"")
    archive.addfile(entry, io.BytesIO(data or b""))
for name in ("bin", "etc", "dev", "proc", "tmp", "home", "run", "usr"):
    add(name, kind=tarfile.DIRTYPE)
add("home/user", kind=tarfile.DIRTYPE, uid=1000)
add("bin/busybox", data=open("/usr/bin/busybox", "rb").read())
for name in ("sh", "rm", "mkdir", "mv", "cat", "ls", "touch", "rmdir", "id", "stat", "chmod", "ln", "find", "grep"):
    add("bin/" + name, kind=tarfile.SYMTYPE, link="busybox")
add("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
add("etc/group", 0o644, b"root:x:0:\nuser:x:1000:\n")
for folder in ("kept", "moved", "kept/deep"):
    add("home/user/" + folder, kind=tarfile.DIRTYPE, uid=1000)
for name in ("file", "kept/one", "kept/deep/two", "moved/three"):
    add("home/user/" + name, 0o644, b"old\n", uid=1000)
archive.close()
"""
    SCRIPT = """set -e
cd /home/user
echo new > file; cat file
echo more >> kept/one; cat kept/one
chmod 600 kept/one
rm -r kept; [ ! -e kept ]
mkdir kept; ls -A kept; echo again > kept/one; cat kept/one
mv moved other; cat other/three; [ ! -e moved ]
ln other/three hard; cat hard
mkdir -p a/b/c; rm -r a
rm -r other kept; ls -A
echo whole"""

    FRESH = "cd; cat file kept/one moved/three"

    def layered(self, script, caller, *options):
        return self.caisson("--image", "layered", "--user", "user", *options, "--", "sh", "-c", script, caller=caller)

    def import_image(self, caller):
        self.shell(f"caisson image ls | grep -q layered && exit; rm -f /tmp/image.tar; python3 -S - <<'TAR'\n{self.TAR}\nTAR\n"
                   "caisson image import layered /tmp/image.tar; rm -f /tmp/image.tar", caller).check()

    def test_root_changes_what_the_image_holds(self):
        self.import_image("root")
        ran = self.layered(self.SCRIPT, "root")
        self.assert_verdict(ran, "exited", 0)
        self.assertEqual(ran.stdout, "new\nold\nmore\nagain\nold\nold\nfile\nhard\nwhole\n", str(ran))
        ran = self.layered(self.FRESH, "root")
        self.assertEqual(ran.stdout, "old\nold\nold\n", f"the next sandbox sees a fresh layer\n{ran}")

    def test_root_owners_flags_and_limits(self):
        self.import_image("root")
        script = ("stat -c '%u:%g %a' / /home/user /home/user/file; grep -E ' / | /dev/shm ' /proc/self/mounts; "
                  "cd; echo a > made; stat -c '%u:%g' made; ls -A /; touch /new; ls /sys")
        ran = self.layered(script, "root")
        lines = ran.stdout.splitlines()
        self.assertEqual(lines[:3], ["0:0 755", "1000:1000 755", "1000:1000 644"], str(ran))
        for line in lines[3:5]:
            self.assertRegex(line, r"^\S+ /(dev/shm)? (overlay|tmpfs) rw,nosuid,nodev", str(ran))
        self.assertNotIn("userxattr", lines[3], str(ran))
        self.assertEqual(lines[5], "1000:1000", str(ran))
        self.assertFalse({"upper", "work", "lower0"} & set(lines), str(ran))
        self.assertIn("Permission denied", ran.stderr, str(ran))
        ran = self.layered("cat /dev/zero > $HOME/x", "root", "--disk", "8MiB")
        self.assert_verdict(ran, "disk_limit", 122, "bytes")
        ran = self.layered("cd; i=0; while : > $((i=i+1)); do :; done", "root", "--inodes", "300")
        self.assert_verdict(ran, "disk_limit", 122, "inodes")

    def test_root_on_a_disk_of_its_own(self):
        self.import_image("root")
        ran = self.layered(self.SCRIPT, "root", "--layer", "quota")
        self.assert_verdict(ran, "exited", 0)
        self.assertEqual(ran.stdout, "new\nold\nmore\nagain\nold\nold\nfile\nhard\nwhole\n", str(ran))
        ran = self.layered("cat /dev/zero > $HOME/x", "root", "--layer", "quota", "--disk", "8MiB")
        self.assert_verdict(ran, "disk_limit", 122, "bytes")
        ran = self.caisson("--layer", "quota", "--inodes", "300", "--", "sh", "-c",
                           "cd; i=0; while : > $((i=i+1)); do :; done")
        self.assert_verdict(ran, "disk_limit", 122, "inodes")
        # Written pages are memory of the sandbox until they are on the disk, and must be let go in time.
        ran = self.caisson("--layer", "quota", "--memory", "32MiB", "--disk", "256MiB", "--", "sh", "-c",
                           "dd if=/dev/zero of=$HOME/x bs=1M count=96 2>/dev/null && stat -c %s $HOME/x")
        self.assert_verdict(ran, "exited", 0)
        self.assertEqual(ran.stdout, f"{96 << 20}\n", str(ran))
        self.assertEqual(self.shell("cat /sys/block/loop*/loop/backing_file; grep -c loop /proc/self/mounts").stdout, b"0\n")
        self.assertRegex(self.shell("caisson doctor").text, r"ok +quota layer: ")

    @each_caller("user", "plain", "bare", short=("user", "plain"))
    def test_an_ordinary_user_changes_all_but_removed_directories(self, caller):
        # The known limit of a tmpfs without user attributes, as `caisson doctor` tells it.
        self.import_image(caller)
        before, _, _ = self.SCRIPT.partition("rm -r kept;")
        ran = self.layered(before + "rm kept/deep/two kept/one; echo files; rmdir kept/deep", caller)
        self.assertEqual((ran.kind, ran.status, ran.stdout), ("exited", 1, "new\nold\nmore\nfiles\n"), str(ran))
        self.assertRegex(ran.stderr, "^rmdir: '?kept/deep'?: Input/output error\n$", str(ran))
        ran = self.layered("cd; mkdir -p a/b/c; echo x > a/b/c/d; rm -r a; ln moved/three hard; cat hard; rm hard; ls -A", caller)
        self.assertEqual((ran.status, ran.stdout), (0, "old\nfile\nkept\nmoved\n"), str(ran))
        ran = self.layered(self.FRESH, caller)
        self.assertEqual(ran.stdout, "old\nold\nold\n", f"the next sandbox sees a fresh layer\n{ran}")
        self.assertRegex(self.shell("caisson doctor", caller).text, r"limited +tmpfs attributes: .*removing a directory of an image")

    def test_doctor_as_root(self):
        self.assertRegex(self.shell("caisson doctor").text, r"ok +tmpfs attributes: .* root needs none")


if __name__ == "__main__":
    main()
