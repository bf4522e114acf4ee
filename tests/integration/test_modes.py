"""The same behaviours in every mode: root, a user with one id, a user with a range, root on base.

What differs between modes says so at its place (`ranged`, `image`); everything else is alike. tests/cli looks at commands and options one by one; this is about what a sandbox
is, whoever makes it and whatever it is made of.
"""
import hashlib
import json
import os
import socket
import stat

import frame

HARD = {"cgroup", "rlimit"}


class Behaviour(frame.ModeTest):
    @property
    def ranged(self):
        """There are more ids than one inside."""
        return self.mode != "user"

    def sh(self, script, *options, **more):
        return self.run_in(*options, "--", "sh", "-c", script, **more)

    def said(self, script, *options, **more):
        done = self.sh(script, *options, **more)
        self.assertEqual(done.returncode, 0, done)
        return done.out

    def python(self, script, *options):
        done = self.run_in(*options, "--", "python3", "-c", script)
        self.assertEqual(done.returncode, 0, done)
        return done.out.strip()

    def start(self, *arguments):
        done = self.run_in("-d", "--timeout", "1m", *arguments)
        self.assertEqual(done.returncode, 0, done)
        name = done.out.strip()
        self.addCleanup(lambda: self.caller.caisson("kill", name))
        return name


class WhoItIs(Behaviour):
    def test_ids(self):
        self.assertEqual(self.said("id -u; id -g; id -un; id -gn; echo $HOME $USER").split(),
                         ["1000", "1000", "user", "user", "/home/user", "user"])
        maps = [line.split() for line in self.said("cat /proc/self/uid_map").splitlines()]
        count = sum(int(line[2]) for line in maps)
        self.assertEqual(count, 65536 if self.ranged else 1, maps)
        if self.ranged:
            self.assertEqual(self.said("id -u; touch f; stat -c %u:%g f", "--user", "root").split(), ["0", "0:0"])
            script = "id -u; touch f; chown 5:6 f; stat -c %u:%g f"
            self.assertEqual(self.said(script, "--user", "root", "--privileges", "sudo").split(), ["0", "5:6"])
        else:
            done = self.sh("id -u", "--user", "12")
            self.assertEqual((done.returncode, done.out), (0, "12\n"), done)

    def test_no_capability_and_no_way_to_one(self):
        status = dict(line.split(":\t", 1) for line in self.said("cat /proc/self/status").splitlines() if ":\t" in line)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        self.assertNotEqual(self.sh("unshare -U true").returncode, 0)

    def test_sudo(self):
        done = self.sh("sudo -n id -u && sudo -n sh -c 'echo x > /usr/local/made; cat /usr/local/made' && id -u", "--privileges", "sudo")
        if not self.ranged:
            self.assert_refused(done, "sudo", "range")
        elif self.image == "base":
            self.assertEqual((done.returncode, done.out), (0, "0\nx\n1000\n"), done)
        else:  # programs of the host keep no set-user-id bit
            self.assertNotEqual(done.returncode, 0)
            self.assertNotIn("0\n", done.out)
        self.assertNotEqual(self.sh("sudo -n true").returncode, 0)

    def test_environment_umask_and_signals(self):
        done = self.sh("env; umask; grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | tr '\\n' ' '; pwd",
                       env={"SESAME": "open"})
        names = {line.split("=")[0] for line in done.out.splitlines() if "=" in line}
        self.assertEqual(names, {"USER", "HOME", "LOGNAME", "PATH", "LANG", "SHELL", "PWD"}, done)
        self.assertEqual(done.out.splitlines()[-4:-1], ["0022", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"], done)
        self.assertEqual(done.out.splitlines()[-1], "0 1 2 3 /home/user", "3 is what ls reads with")

    def test_rlimits(self):
        text = self.said("ulimit -c; ulimit -n", "--open-files", "77")
        self.assertEqual(text.split(), ["0", "77"])

    def test_two_runs_share_no_identity(self):
        script = "cat /etc/machine-id /proc/sys/kernel/random/boot_id; hostname"
        one, two = self.said(script).split(), self.said(script).split()
        self.assertEqual(len(one), 3)
        self.assertNotEqual(one[0], two[0])
        self.assertNotEqual(one[1], two[1])
        self.assertEqual((one[2], two[2]), ("sandbox", "sandbox"))
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            self.assertNotIn(file.read().strip(), (one[1], two[1]))

    def test_clocks_begin_with_the_sandbox(self):
        up = float(self.said("cut -d' ' -f1 /proc/uptime"))
        self.assertLess(up, 5)
        self.assertLess(float(self.python("import time; print(time.monotonic())")), 5)


class WhatItSees(Behaviour):
    def test_home_and_tmp_can_be_written_the_system_cannot(self):
        self.assertEqual(self.said("for d in ~ /tmp /var/tmp /dev/shm; do echo $d > $d/f && cat $d/f; done").split(),
                         ["/home/user", "/tmp", "/var/tmp", "/dev/shm"])
        for path in ("/usr/f", "/usr/bin/f", "/etc/f", "/sys/f", "/proc/sys/kernel/hostname", "/sys/fs/cgroup/f", "/dev/f"):
            with self.subTest(path=path):
                self.assertNotEqual(self.sh(f"echo x > {path}").returncode, 0)
        # With one id alone, what is root's inside is the command's too; of the layer that is / and /var.
        self.assertEqual(self.sh("echo x > /f").returncode == 0, not self.ranged)
        if self.ranged and self.image == "host":
            self.assertIn("Read-only", self.sh("echo x > /usr/f", "--user", "root").err)

    def test_what_one_run_writes_the_next_does_not_see(self):
        self.said("for d in ~ /tmp /var/tmp /dev/shm; do echo x > $d/left; done; ipcmk -Q 2>/dev/null || true")
        self.assertEqual(self.said("ls ~/left /tmp/left /var/tmp/left /dev/shm/left 2>/dev/null || echo none"), "none\n")

    def test_no_other_process(self):
        text = self.python("import os; print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))")
        seen = json.loads(text)
        self.assertLessEqual(len(seen), 2, seen)  # its own, and PID 1 where /proc shows it
        self.assertLess(max(seen), 20, seen)
        done = self.sh("kill -0 1; cat /proc/1/environ /proc/1/maps")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.out, "")

    def test_proc_is_masked(self):
        for name in ("kallsyms", "keys", "timer_list", "interrupts", "partitions", "diskstats", "cmdline", "locks", "swaps", "modules"):
            if os.path.exists(f"/proc/{name}"):
                with self.subTest(name=name):
                    self.assertEqual(self.sh(f"cat /proc/{name}").out, "")
        self.assertNotEqual(self.sh("echo 1 > /proc/sys/vm/drop_caches").returncode, 0)
        self.assertNotEqual(self.sh("echo b > /proc/sysrq-trigger").returncode, 0)

    def test_devices(self):
        devices = self.said("cd /dev; for f in *; do [ -c $f ] && [ ! -L $f ] && echo -n \"$f \"; done; echo; head -c 4 /dev/urandom | wc -c; cat /dev/null; echo x > /dev/full || echo full")
        self.assertEqual(devices.split("\n")[0].split(), ["full", "null", "random", "tty", "urandom", "zero"], devices)
        self.assertIn("full", devices)
        self.assertNotEqual(self.sh("mknod /tmp/d c 1 3").returncode, 0)

    def test_only_loopback(self):
        self.assertEqual(self.python("import socket; print(socket.if_nameindex())"), "[(1, 'lo')]")
        self.assertEqual(self.python("""
import socket, errno
for family, address in ((socket.AF_INET, '192.0.2.1'), (socket.AF_INET6, '2001:db8::1')):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(family, kind); s.settimeout(3)
        try: s.connect((address, 53)); print('reached', address)
        except OSError as e: print(errno.errorcode[e.errno])
"""), "\n".join(["ENETUNREACH"] * 4))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            done = self.run_in("--", "python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 3)")
            self.assertIn("ConnectionRefusedError", done.err, done)
        # Ports that only root may take elsewhere are free inside.
        self.assertEqual(self.python("import socket; s = socket.socket(); s.bind(('127.0.0.1', 80)); print('bound')"), "bound")

    def test_processors_and_memory_of_the_stand_in(self):
        text = self.said("cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max; ls /sys", "--memory", "300MiB", "--disk", "32MiB", "--cpus", "0.5")
        self.assertEqual(text.split("\n")[:3], [str(300 << 20), "50000 100000", "fs"])
        # Where libraries look: below the group that a line of /proc/self/cgroup names.
        text = self.said("cat /sys/fs/cgroup$(sed -n s/0:://p /proc/self/cgroup)/memory.max", "--memory", "300MiB", "--disk", "32MiB")
        self.assertEqual(text, f"{300 << 20}\n")


class Files(Behaviour):
    def given_folder(self):
        return self.given({"script.sh": "echo ran\n", "sub/file": "text\n", "sub/inner/deep": "deep\n"})

    def test_ro(self):
        folder = self.given_folder()
        self.assertEqual(self.said("pwd; sh script.sh; stat -c %u sub/file", "--ro", ".", cwd=folder).split()[:2], ["/workspace", "ran"])
        for script in ("echo x > new", "echo x > sub/file", "rm sub/file", "chmod 777 sub/file", "mv sub s", "touch sub/file"):
            with self.subTest(script=script):
                self.assertIn("Read-only file system", self.sh(script, "--ro", ".", cwd=folder).err)
        self.assertEqual((folder / "sub/file").read_text(), "text\n")

    def test_rw_and_ownership(self):
        folder = self.given_folder()
        before = os.stat(folder / "sub/file")
        text = self.said("stat -c %U script.sh sub; echo x > new; mkdir dir; mv script.sh dir/; echo more >> sub/file; chmod 751 dir; "
                         "ln new hard; ln -s new soft", "--rw", ".", cwd=folder)
        self.assertEqual(text.split(), ["user", "user"])
        for path in ("new", "dir", "dir/script.sh", "hard", "soft"):
            self.assertEqual((folder / path).lstat().st_uid, self.caller.uid, path)
            self.assertEqual((folder / path).lstat().st_gid, self.caller.uid, path)
        self.assertEqual(stat.S_IMODE((folder / "dir").stat().st_mode), 0o751)
        after = os.stat(folder / "sub/file")
        self.assertEqual((after.st_uid, after.st_ino, (folder / "sub/file").read_text()), (before.st_uid, before.st_ino, "text\nmore\n"))
        # No set-user-id program of the caller's comes into being.
        self.assertNotEqual(self.sh("chown 0 new", "--rw", ".", cwd=folder).returncode, 0)

    def test_nested_grants(self):
        folder = self.given_folder()
        done = self.sh("echo x > /w/sub/inner/new && cat /w/sub/file && ! echo x > /w/sub/new 2>/dev/null && ! echo x > /w/sub/inner/deep/y 2>/dev/null",
                       "--ro", f"{folder}:/w", "--rw", f"{folder}/sub/inner:/w/sub/inner")
        self.assertEqual((done.returncode, done.out), (0, "text\n"), done)
        self.assertTrue((folder / "sub/inner/new").exists())
        self.assertFalse((folder / "sub/new").exists())
        done = self.sh("echo x > /w/top && ! echo x > /w/sub/new 2>/dev/null", "--rw", f"{folder}:/w", "--ro", f"{folder}/sub:/w/sub")
        self.assertEqual(done.returncode, 0, done)

    def test_files_that_others_own(self):
        secret = self.caller.write("secret", "hidden", 0o600)
        done = self.sh("cat /s", "--ro", f"{secret}:/s")
        self.assertEqual((done.returncode, done.out), (0, "hidden"), done)
        if self.caller.uid != 0:
            path = self.caller.folder / "roots"
            path.write_text("root's")
            path.chmod(0o600)
            if path.stat().st_uid != self.caller.uid:
                done = self.sh("cat /s", "--ro", f"{path}:/s")
                self.assertNotEqual(done.returncode, 0)
                self.assertNotIn("root's", done.out)

    def test_copy_and_out(self):
        folder = self.given_folder()
        self.said("cd sub && cat file && echo changed > file && echo new > inner/new && rm inner/deep && cd .. && ls -R > list",
                  "--copy", f"{folder}:/home/user/w", "-w", "/home/user/w", "--out", f"/home/user/w:{self.caller.home}/result-{self.mode}")
        result = self.caller.home / f"result-{self.mode}"
        self.assertEqual((result / "sub/file").read_text(), "changed\n")
        self.assertEqual(sorted(p.name for p in result.iterdir()), ["list", "script.sh", "sub"])
        self.assertEqual((folder / "sub/file").read_text(), "text\n")
        for path in (result, result / "sub/inner/new"):
            self.assertEqual(path.stat().st_uid, self.caller.uid)

    def test_input_and_output_are_binary_clean(self):
        data = os.urandom(1 << 20) + bytes(range(256)) + b"\r\n\0\x1a\x04\x03\xff"
        done = self.run_in("--", "cat", input=data)
        self.assertEqual(hashlib.sha256(done.stdout).digest(), hashlib.sha256(data).digest())
        done = self.sh("cat >&2", input=data)
        self.assertEqual(done.stderr, data)


class Limits(Behaviour):
    def test_what_held_says_is_so(self):
        result = self.verdict("--", "true")
        self.assert_ended(result, "exited", 0)
        held = result["held"]
        self.assertLessEqual(set(held.values()), {"cgroup", "rlimit", "watched", "none"})
        for name in ("disk", "inodes", "open_files"):
            self.assertIn(held[name], HARD)
        if self.caller.uid == 0:
            self.assertEqual({held[n] for n in ("memory", "pids", "cpus")}, {"cgroup"}, held)
        self.assertEqual(result["image"], self.image)
        strict = self.verdict("--require-hard-limits", "--", "true")
        # Output and both times are the supervisor's to count, and no cause to refuse.
        soft = [n for n in ("cpus", "memory", "pids", "disk", "inodes", "open_files") if held[n] not in HARD]
        if soft:
            self.assert_ended(strict, "sandbox_error", 125)
            self.assertTrue(any(n in strict["verdict"]["message"] for n in soft), strict)
        else:
            self.assert_ended(strict, "exited", 0)

    def test_verdicts(self):
        # Who meets the limit stays for a moment: where processes are counted by looking, a bomb whose
        # parts die at once may never be seen whole.
        fork = ("import os, time\nwhile True:\n  try: os.fork()\n"
                "  except OSError: time.sleep(1); raise")
        for options, command, kind, status in (
            (["--memory", "64MiB"], ["python3", "-c", "x = b'x' * 10**9"], "memory_limit", 137),
            (["--memory", "64MiB"], ["python3", "-c", "import mmap; m = mmap.mmap(-1, 10**9)\nfor i in range(0, 10**9, 4096): m[i] = 1"], "memory_limit", 137),
            (["--pids", "24"], ["python3", "-c", fork], "process_limit", 121),
            (["--disk", "8MiB"], ["sh", "-c", "head -c 20M /dev/zero > ~/x"], "disk_limit", 122),
            (["--disk", "8MiB"], ["sh", "-c", "head -c 20M /dev/zero > /dev/shm/x"], "disk_limit", 122),
            (["--disk", "8MiB"], ["sh", "-c", "head -c 20M /dev/zero > /var/tmp/x"], "disk_limit", 122),
            (["--inodes", "300"], ["sh", "-c", "cd; i=0; while :; do : > $i || exit 1; i=$((i+1)); done"], "disk_limit", 122),
            (["--output", "100KiB"], ["yes"], "output_limit", 120),
            (["--timeout", "400ms"], ["sleep", "9"], "time_limit", 124),
            (["--cpu-time", "300ms"], ["sh", "-c", "while :; do :; done"], "time_limit", 124),
            ([], ["sh", "-c", "kill -9 $$"], "signaled", 137),
            ([], ["sh", "-c", "exit 124"], "exited", 124),
        ):
            with self.subTest(options=options, command=command):
                self.assert_ended(self.verdict(*options, "--", *command), kind, status)

    def test_cpus(self):
        if self.verdict("--", "true")["held"]["cpus"] != "cgroup":
            return  # said by `held`, tested above
        burn = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
        usage = self.verdict("--cpus", "0.2", "--", "python3", "-c", burn)["usage"]
        self.assertLess(usage["user_us"] + usage["system_us"], 500_000, usage)


class Detached(Behaviour):
    def test_its_whole_life(self):
        name = self.start("--hostname", "box", "--", "sh", "-c", "echo begun; echo x > ~/made; exec sleep 50")
        self.assertTrue(frame.harness.wait_until(lambda: "begun" in self.caller.caisson("logs", name).out, 5))
        done = self.caller.caisson("exec", name, "--", "sh", "-c", "cat ~/made; hostname; id -un; cat", input=b"in\0put")
        self.assertEqual((done.returncode, done.stdout), (0, b"x\nbox\nuser\nin\0put"), done)
        self.assertEqual(self.caller.caisson("exec", name, "--", "sh", "-c", "exit 9").returncode, 9)
        folder = self.given({"a": "from outside\n", "d/b": "deep\n"})
        self.assertEqual(self.caller.caisson("cp", folder, f"{name}:/home/user/").returncode, 0)
        done = self.caller.caisson("exec", name, "--", "sh", "-c", f"cd ~/{folder.name}; cat a d/b; echo back > d/c; stat -c %U a d")
        self.assertEqual(done.out, "from outside\ndeep\nuser\nuser\n", done)
        back = self.caller.home / f"back-{self.mode}"
        self.assertEqual(self.caller.caisson("cp", f"{name}:/home/user/{folder.name}/d", back).returncode, 0)
        self.assertEqual(((back / "c").read_text(), (back / "c").stat().st_uid), ("back\n", self.caller.uid))
        self.assertEqual(self.caller.caisson("kill", name).returncode, 0)
        self.assertTrue(frame.harness.wait_until(lambda: not self.caller.sandboxes_left(), 5))

    def test_two_at_once_do_not_see_each_other(self):
        one = self.start("--", "sh", "-c", "echo one > /tmp/mine; exec sleep 50")
        two = self.start("--", "sh", "-c", "echo two > /tmp/mine; exec sleep 50")
        look = "for i in 1 2 3 4 5; do [ -e /tmp/mine ] && break; sleep 0.2; done; cat /tmp/mine"
        seen = [self.caller.caisson("exec", name, "--", "sh", "-c", look).out for name in (one, two)]
        self.assertEqual(seen, ["one\n", "two\n"])


if __name__ == "__main__":
    frame.main()
