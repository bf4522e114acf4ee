"""Verdicts and exit statuses at their edges."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import support
from support import harness


# Python that makes a refused call of the reportable set.
MOUNT = "import ctypes; ctypes.CDLL(None).mount(b'a', b'/tmp', b'tmpfs', 0, None)\n"


class Limits(support.CallerTest):
    def test_memory(self):
        result = self.verdict("--memory", "64MiB", "--disk", "32MiB", "--", "python3", "-c", "x=bytearray(10**9)")
        self.assert_ended(result, "memory_limit", 137)
        self.assertIn("memory", result["limits_hit"])

    def test_a_child_is_killed_for_memory_while_the_parent_lives(self):
        script = ("import subprocess, sys\n"
                  "child = subprocess.run([sys.executable, '-c', \"x = b'x' * 10**9\"], stderr=subprocess.DEVNULL)\n"
                  "print('child', child.returncode != 0, flush=True)\n"
                  "sys.exit(%d)\n")
        failed = self.verdict("--memory", "64MiB", "--", "python3", "-c", script % 3)
        self.assert_ended(failed, "memory_limit", 137)
        if failed["held"]["memory"] != "cgroup":
            return  # a watcher ends the whole command
        self.assertEqual(failed["stdout"], "child True\n")
        succeeded = self.verdict("--memory", "64MiB", "--", "python3", "-c", script % 0)
        self.assertEqual(succeeded["stdout"], "child True\n")
        self.assert_ended(succeeded, "exited", 0)
        self.assertEqual(succeeded["limits_hit"], ["memory"])

    def test_memory_that_no_group_holds_is_watched_beside_the_other_groups(self):
        mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
        memory = [m[1] for m in mounts if m[2] == "cgroup" and "memory" in m[3].split(",")]
        if self.kind != "root" or not memory:
            self.skipTest("only root has some groups and not others, and only version 1 can be without one of them")
        hide = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'umount {memory[0]} && exec "$@"', "sh"]

        def verdict(*arguments):
            command = self.caller.command("run", "--json", *arguments)
            done = subprocess.run([*hide, *command], env=self.caller.env, cwd=self.caller.home, capture_output=True,
                                  timeout=60, check=False)
            return {**json.loads(done.stdout), "status": done.returncode}

        grow = "x = []\nwhile True: x.append(bytearray(2**20))"
        result = verdict("--memory", "64MiB", "--disk", "16MiB", "--", "python3", "-c", grow)
        self.assert_ended(result, "memory_limit", 137)
        self.assertEqual({name: result["held"][name] for name in ("memory", "pids", "cpus")},
                         {"memory": "watched", "pids": "cgroup", "cpus": "cgroup"})
        self.assertIn("memory", result["limits_hit"])
        # Sharing does not hide it, and what stays below the limit is left alone.
        shared = "import mmap, os, time\nm = mmap.mmap(-1, 40 << 20)\nm.write(bytes(40 << 20))\ntime.sleep(0.5)"
        result = verdict("--memory", "64MiB", "--disk", "16MiB", "--", "python3", "-c", shared)
        self.assert_ended(result, "exited", 0)
        self.assertGreater(result["usage"]["memory_peak"], 40 << 20)
        # The groups that are there hold as before.
        bomb = "import os\nwhile True:\n  os.fork()"
        self.assert_ended(verdict("--pids", "32", "--timeout", "10s", "--", "python3", "-c", bomb), "process_limit", 121)
        done = subprocess.run([*hide, *self.caller.command("run", "--require-hard-limits", "--", "true")], env=self.caller.env,
                              cwd=self.caller.home, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"memory", done.stderr)

    def test_processes(self):
        bomb = "import os\nwhile True:\n  os.fork()"
        result = self.verdict("--pids", "32", "--timeout", "10s", "--", "python3", "-c", bomb)
        self.assert_ended(result, "process_limit", 121)
        self.assertIn("pids", result["limits_hit"])

    def test_a_program_that_meets_the_process_limit_and_succeeds(self):
        script = ("import os, time\n"
                  "try:\n"
                  "  while True:\n"
                  "    if os.fork() == 0: time.sleep(5); os._exit(0)\n"
                  "except OSError: print('refused', flush=True)\n"
                  "os._exit(0)")
        result = self.verdict("--pids", "16", "--", "python3", "-c", script)
        self.assert_ended(result, "exited", 0)
        self.assertEqual(result["stdout"], "refused\n")
        # An rlimit refuses without counting: then a look at the right moment alone can tell.
        if result["held"]["pids"] == "cgroup":
            self.assertEqual(result["limits_hit"], ["pids"])
        else:
            self.assertIn(result["limits_hit"], ([], ["pids"]))

    def test_disk(self):
        result = self.verdict("--disk", "16MiB", "--", "sh", "-c", "dd if=/dev/zero of=$HOME/x bs=1M count=200")
        self.assert_ended(result, "disk_limit", 122, cause="bytes")
        self.assertIn("disk", result["limits_hit"])

    def test_a_program_that_meets_enospc_and_succeeds(self):
        script = "dd if=/dev/zero of=$HOME/x bs=1M count=200 2>/dev/null; sleep 0.3; rm $HOME/x; exit 0"
        result = self.verdict("--disk", "16MiB", "--", "sh", "-c", script)
        self.assert_ended(result, "exited", 0)
        self.assertEqual(result["limits_hit"], ["disk"])

    def test_inodes(self):
        script = "import os\nfor i in range(10**6): open(os.path.expanduser('~/%d' % i), 'w').close()"
        result = self.verdict("--inodes", "500", "--", "python3", "-c", script)
        self.assert_ended(result, "disk_limit", 122, cause="inodes")
        self.assertIn("inodes", result["limits_hit"])

    def test_filling_the_default_disk_is_never_a_memory_verdict(self):
        result = self.verdict("--", "sh", "-c", "dd if=/dev/zero of=$HOME/x bs=1M count=400")
        self.assert_ended(result, "disk_limit", 122, cause="bytes")

    def test_output(self):
        done = self.run_in("--output", "1MiB", "--", "yes")
        self.assertEqual(done.returncode, 120, done.err)
        self.assertEqual(len(done.stdout), 1 << 20)
        self.assertIn("output", done.err)

    def test_output_is_cut_inside_a_character(self):
        script = "import sys\nsys.stdout.buffer.write('\\u20ac'.encode() * 1000)"
        result = self.verdict("--output", "1000", "--", "python3", "-c", script)
        self.assert_ended(result, "output_limit", 120)
        self.assertEqual(result["stdout"], "\u20ac" * 333)
        self.assertNotIn("stdout_encoding", result)
        # Without our cut an unfinished character is what the program wrote: no text.
        self.assertIn("stdout_encoding", self.verdict("--", "printf", r"\342\202"))

    def test_time_by_the_clock(self):
        start = time.monotonic()
        done = self.run_in("--timeout", "1s", "--", "sleep", "100")
        elapsed = time.monotonic() - start
        self.assertEqual(done.returncode, 124, done)
        self.assertIn("1000 ms", done.err.replace("1s", "1000 ms"))
        self.assertLess(elapsed, 1.2 + 0.3, "includes the start of python's child processes")
        result = self.verdict("--timeout", "300ms", "--", "sleep", "100")
        self.assert_ended(result, "time_limit", 124, cause="elapsed")
        self.assertLess(result["usage"]["elapsed_us"], 500_000)

    def test_processor_time(self):
        result = self.verdict("--cpu-time", "400ms", "--timeout", "20s", "--", "sh", "-c", "while :; do :; done")
        self.assert_ended(result, "time_limit", 124, cause="cpu")

    def test_a_program_that_ignores_signals_is_ended_all_the_same(self):
        result = self.verdict("--timeout", "500ms", "--", "sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done")
        self.assert_ended(result, "time_limit", 124)

    def test_usage_is_told(self):
        usage = self.verdict("--", "python3", "-c", "x = b'x' * 50_000_000; open('f', 'wb').write(b'y' * 5_000_000)\n"
                             "for i in range(3_000_000): pass\nprint('z' * 99)")["usage"]
        self.assertGreater(usage["user_us"], 20_000)
        self.assertGreaterEqual(usage["elapsed_us"], usage["user_us"] // 2)
        self.assertGreater(usage["memory_peak"], 40_000_000)
        self.assertEqual(usage["bytes_out"], 100)
        self.assertGreaterEqual(usage["pids_peak"], 1)

    def test_require_hard_limits_refuses_or_holds(self):
        result = self.verdict("--require-hard-limits", "--", "true")
        if result["verdict"]["kind"] == "exited":
            for limit in ("cpus", "memory", "pids", "disk", "inodes", "open_files"):
                self.assertIn(result["held"][limit], ("cgroup", "rlimit"), result)
        else:
            self.assert_ended(result, "sandbox_error", 125)
            self.assertIn("limit", result["verdict"]["message"])


class QuotaLayer(support.CallerTest):
    """The same limits, held by a file system on disk."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.disk, cls.why_not = harness.disk_folder() if cls.kind == "root" else (None, "root's alone")
        if cls.disk:
            cls.caller.env["CAISSON_STATE_DIR"] = str(cls.disk)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        if cls.disk:
            files = [path for path in cls.disk.rglob("*") if not path.is_dir()]
            loops = harness.wait_until(lambda: not harness.loop_devices([cls.disk]), 2)
            shutil.rmtree(cls.disk)
            assert not files, f"files left behind: {files}"
            assert loops, "loop devices left behind"

    def layered(self, *arguments, **options):
        if not self.disk:
            self.skipTest(self.why_not)
        return self.verdict("--layer", "quota", *arguments, **options)

    def test_an_ordinary_user_is_refused(self):
        if self.kind == "root":
            self.skipTest("root may have one")
        self.assert_refused(self.run_in("--layer", "quota", "--", "true"), "layer: quota", "root's alone",
                            "allowed is layer: tmpfs")
        self.assertEqual(list((self.caller.folder / "state").iterdir()), [])

    def test_bytes_however_they_are_written(self):
        for size in ("4k", "100k", "1M", "3M"):
            with self.subTest(size=size):
                result = self.layered("--disk", "16MiB", "--", "sh", "-c", f"dd if=/dev/zero of=$HOME/x bs={size}")
                self.assert_ended(result, "disk_limit", 122, cause="bytes")
                self.assertEqual(result["limits_hit"], ["disk"])
                written = result["usage"]["bytes_written"]
                self.assertTrue(16 << 20 <= written <= (16 << 20) + (128 << 10), result)

    def test_nothing_is_full_before_the_limit(self):
        result = self.layered("--disk", "16MiB", "--", "sh", "-c",
                              "dd if=/dev/zero of=$HOME/x bs=1M count=16 2>/dev/null; rm $HOME/y")
        self.assert_ended(result, "exited", 1)
        self.assertEqual(result["limits_hit"], [])

    def test_a_program_that_meets_enospc_and_succeeds(self):
        script = "dd if=/dev/zero of=$HOME/x bs=1M count=200 2>/dev/null; sleep 0.3; rm $HOME/x; sync; exit 0"
        result = self.layered("--disk", "16MiB", "--", "sh", "-c", script)
        self.assert_ended(result, "exited", 0)
        self.assertEqual(result["limits_hit"], ["disk"])

    def test_inodes(self):
        script = ("import os\nmade = 0\ntry:\n  for made in range(10**6): open(os.path.expanduser('~/%d' % made), 'w').close()\n"
                  "except OSError as error: print(made, error.errno, flush=True)\nos._exit(7)")
        result = self.layered("--inodes", "500", "--", "python3", "-c", script)
        self.assert_ended(result, "disk_limit", 122, cause="inodes")
        made, error = map(int, result["stdout"].split())
        self.assertEqual(error, 28)
        self.assertTrue(400 < made < 500, result)
        self.assertEqual(result["limits_hit"], ["inodes"])

    def test_a_disk_beyond_memory(self):
        result = self.layered("--memory", "64MiB", "--disk", "1GiB", "--", "sh", "-c",
                              "dd if=/dev/urandom of=$HOME/x bs=1M count=300 2>/dev/null && "
                              "cp $HOME/x $HOME/y && cmp $HOME/x $HOME/y && stat -c %s $HOME/y")
        self.assert_ended(result, "exited", 0)
        self.assertEqual(result["stdout"], f"{300 << 20}\n")
        self.assertGreaterEqual(result["usage"]["bytes_written"], 600 << 20)
        self.assertEqual(result["limits_hit"], [])

    def test_it_is_held_hard(self):
        held = self.layered("--", "true")["held"]
        self.assertEqual((held["disk"], held["inodes"]), ("rlimit", "rlimit"))
        held = self.layered("--disk", "unlimited", "--inodes", "unlimited", "--", "true")["held"]
        self.assertEqual((held["disk"], held["inodes"]), ("none", "none"))

    def test_the_smallest_one_has_room_for_what_was_asked(self):
        script = "dd if=/dev/zero of=$HOME/x bs=4k count=16 2>/dev/null && stat -c %s $HOME/x"
        result = self.layered("--disk", "64KiB", "--inodes", "100", "--", "sh", "-c", script)
        self.assert_ended(result, "exited", 0)
        self.assertEqual(result["stdout"], f"{64 << 10}\n")

    def test_it_is_a_whole_file_system(self):
        script = ("import os, mmap, multiprocessing.shared_memory as shared\n"
                  "os.chdir(os.path.expanduser('~'))\n"
                  "open('a', 'w').write('x'); os.link('a', 'b'); os.symlink('a', 'c'); os.mkfifo('d')\n"
                  "os.setxattr('a', 'user.note', b'1'); os.rename('a', 'e'); os.makedirs('f/g'); os.fsync(os.open('e', os.O_RDWR))\n"
                  "with open('m', 'w+b') as f:\n  f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[5000] = 7; m.flush()\n"
                  "s = shared.SharedMemory(create=True, size=65536); s.buf[9] = 3; s.close(); s.unlink()\n"
                  "assert os.stat('e').st_uid == os.getuid() and os.getxattr('b', 'user.note') == b'1'\n"
                  "try: os.mknod('n', 0o20666, os.makedev(1, 3)); print('made')\nexcept PermissionError: print('refused')")
        result = self.layered("--", "python3", "-c", script)
        self.assert_ended(result, "exited", 0)
        self.assertEqual(result["stdout"], "refused\n")

    def test_sudo_works_on_it(self):
        result = self.layered("--user", "root", "--privileges", "sudo", "--", "sh", "-c",
                              "touch /tmp/f && chown 7:8 /tmp/f && stat -c %u:%g /tmp/f && mknod /tmp/n c 1 3")
        self.assertEqual(result["stdout"], "7:8\n")
        self.assert_ended(result, "exited", 1)

    def test_it_cannot_lie_in_memory(self):
        if not self.disk or not os.path.isdir("/dev/shm"):
            self.skipTest(self.why_not or "this host has no /dev/shm")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            self.assert_refused(self.run_in("--layer", "quota", "--", "true", env={"CAISSON_STATE_DIR": memory}),
                                "lies in memory", "allowed are layer: tmpfs")

    def test_more_than_it_can_hold_is_refused(self):
        if not self.disk:
            self.skipTest(self.why_not)
        self.assert_refused(self.run_in("--layer", "quota", "--disk", "1PiB", "--", "true"), "limits.disk", "15TiB")

    def test_several_at_once(self):
        if not self.disk:
            self.skipTest(self.why_not)
        script = "echo $PPID > $HOME/x; sleep 0.5; cat $HOME/x | wc -l"
        running = [self.caller.popen("run", "--layer", "quota", "--", "sh", "-c", script, stdout=-1, stderr=-1)
                   for _ in range(6)]
        for process in running:
            out, err = process.communicate(timeout=30)
            self.assertEqual((process.returncode, out), (0, b"1\n"), err)

    def test_an_image_on_it(self):
        """Its upper side: files of the image change, are removed and replaced, directories too."""
        if not self.disk:
            self.skipTest(self.why_not)
        busybox = shutil.which("busybox")
        if not busybox:
            self.skipTest("this host has no busybox to make an image of")
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder) / "root"
            for name in ("bin", "etc", "home/user", "data/deep"):
                (root / name).mkdir(parents=True)
            shutil.copy(busybox, root / "bin/busybox")
            for name in ("sh", "cat", "rm", "mkdir", "ls", "dd", "stat", "touch", "mv"):
                (root / "bin" / name).symlink_to("busybox")
            (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
            (root / "data/deep/file").write_text("old\n")
            for path in (root / "data", root / "data/deep", root / "data/deep/file", root / "home/user"):
                os.chown(path, 1000, 1000)
            archive = pathlib.Path(folder) / "root.tar"
            subprocess.run(["tar", "-C", root, "-cf", archive, "--numeric-owner", "."], check=True)
            done = self.caller.caisson("image", "import", "small", archive)
            self.assertEqual(done.returncode, 0, done)
        try:
            script = ("cd /data && echo new > deep/file && cat deep/file && rm -r deep && mkdir deep && ls -A deep && "
                      "touch deep/again && mv deep other && ls other && stat -c %u:%g other && "
                      "dd if=/dev/zero of=/data/full bs=1M 2>/dev/null")
            result = self.layered("--image", "small", "--disk", "8MiB", "--", "sh", "-c", script)
            self.assertEqual(result["stdout"], "new\nagain\n1000:1000\n", result)
            self.assert_ended(result, "disk_limit", 122, cause="bytes")
        finally:
            self.assertEqual(self.caller.caisson("image", "rm", "small").returncode, 0)
            shutil.rmtree(self.disk / "images")


class Ends(support.CallerTest):
    def test_sigsys_raised_by_the_program_itself_is_only_a_signal(self):
        result = self.verdict("--", "python3", "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGSYS)})")
        self.assert_ended(result, "signaled", 128 + signal.SIGSYS, signal=int(signal.SIGSYS))

    def test_a_double_fork_does_not_outlive_its_run(self):
        script = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    time.sleep(100)\n  os._exit(0)\nos.wait()\nprint('gone')"
        start = time.monotonic()
        result = self.verdict("--", "python3", "-c", script)
        self.assert_ended(result, "exited", 0)
        self.assertEqual(result["stdout"], "gone\n")
        self.assertLess(time.monotonic() - start, 10)

    def test_refused_calls_are_counted(self):
        result = self.verdict("--", "python3", "-c",
                              "import ctypes; l = ctypes.CDLL(None)\nfor i in range(3): l.mount(b'a', b'/tmp', b'tmpfs', 0, None)")
        self.assert_ended(result, "exited", 0)
        counts = {entry["what"]: entry["count"] for entry in result["refusals"]}
        self.assertEqual(counts.get("mount"), 3, result)

    def test_a_refused_call_ends_the_program_where_the_spec_says_so(self):
        result = self.verdict("--on-refusal", "kill", "--", "python3", "-uc", "print('before')\n" + MOUNT + "print('after')")
        self.assert_ended(result, "policy_violation", 119, cause="syscall")
        self.assertIn("called mount", result["verdict"]["message"])
        self.assertEqual(result["stdout"], "before\n")
        self.assertEqual([(entry["what"], entry["count"]) for entry in result["refusals"]], [("mount", 1)])
        self.assertEqual(result["limits_hit"], [])

    def test_a_refused_call_of_a_thread_or_child_ends_the_whole_command(self):
        thread = "import threading, time\nthreading.Thread(target=lambda: exec(MOUNT)).start()\ntime.sleep(60)"
        child = ("import os, time\nif os.fork() == 0:\n  os.setsid()\n  exec(MOUNT)\n  os._exit(0)\n"
                 "time.sleep(60)")
        for name, script in (("thread", thread), ("child", child)):
            with self.subTest(name):
                start = time.monotonic()
                result = self.verdict("--on-refusal", "kill", "--", "python3", "-c", f"MOUNT = {MOUNT!r}\n" + script)
                self.assert_ended(result, "policy_violation", 119, cause="syscall")
                self.assertLess(time.monotonic() - start, 10)

    def test_a_program_that_ends_well_after_a_refused_call_of_its_child_is_in_violation(self):
        script = ("import os, time\nread, write = os.pipe()\nif os.fork() == 0:\n  os.write(write, b'x')\n  "
                  "exec(MOUNT)\n  os._exit(0)\nos.read(read, 1)\ntime.sleep(0.01)\nos._exit(0)")
        for _ in range(5):
            result = self.verdict("--on-refusal", "kill", "--", "python3", "-c", f"MOUNT = {MOUNT!r}\n" + script)
            self.assert_ended(result, "policy_violation", 119, cause="syscall")

    def test_calls_that_are_not_reported_end_nobody(self):
        result = self.verdict("--on-refusal", "kill", "--", "python3", "-c", "import socket\ntry: socket.sethostname('x')\nexcept OSError as e: print(e.errno)")
        self.assert_ended(result, "exited", 0)
        self.assertEqual(result["stdout"], "1\n")

    def test_the_first_refused_socket_is_named_in_a_normal_run(self):
        done = self.run_in("--on-refusal", "kill", "--", "python3", "-c", "import socket; socket.socket(socket.AF_VSOCK)")
        self.assertEqual((done.returncode, done.err.count("\n")), (119, 1), done)
        self.assertIn("called socket AF_VSOCK, which is refused", done.err)

    def test_ctrl_c_and_term_cancel(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                process = self.caller.popen("run", "--json", "--", "sh", "-c", "echo up; sleep 100", stdout=-1, stderr=-1)
                time.sleep(0.7)
                # The command line may be behind setpriv or unshare, which became it by exec.
                process.send_signal(number)
                out, err = process.communicate(timeout=20)
                self.assertEqual(process.returncode, 130, (out, err))
                self.assertIn(b'"kind":"cancelled"', out)
                self.assertIn(b'"stdout":"up\\n"', out)

    def test_ctrl_c_while_nobody_reads_the_output(self):
        process = self.caller.popen("run", "--", "yes", stdout=-1, stderr=-1)
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        process.stdout.close()
        process.stderr.close()


support.main()
