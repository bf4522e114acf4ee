#!/usr/bin/env python3
"""The machine itself: that it is what the other tests take it for, and that nothing of it is left."""

import hashlib
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import facts
from case import CALLERS, MachineTest, each_caller, main
from vm import Vm, VmError
from vm_parts import PartsError


class Machine(MachineTest):
    keywords = {"programs": (), "files": {"test/me.py": __file__, "folder": str(Path(__file__).parent)}}

    def test_facts(self):
        found = facts.collect(self.vm)
        print(facts.table(found), flush=True)
        self.assertRegex(found["kernel"], r"^6\.1\.")
        expected = {
            "hierarchies": 1, "Landlock ABI": 2, "memory.oom.group ends the whole group": "yes",
            "cgroup.kill empties a group": "yes", "a frozen process can be killed": "yes",
            "clone3 into a control group": "yes", "file memory.peak": "yes", "user xattr on tmpfs": "ENOTSUP",
            "idmapped mount of tmpfs": "EINVAL", "idmapped mount of ext4": "yes", "erofs from a file without loop": "ENOTBLK",
            "user namespaces after max_user_namespaces = 0": "closed", "pids.max 4 lets children start": 3,
        }
        self.assertEqual({name: found[name] for name in expected}, expected)
        self.assertLessEqual({"cpu", "io", "memory", "pids"}, set(found["controllers"].split()))
        # Why the tests of the layer exist: what 6.1 cannot do on a tmpfs in a user namespace.
        self.assertIn("rmdir EIO", found["overlay in a user namespace, upper on tmpfs"])
        self.assertIn("mkdir again ok", found["overlay in a user namespace, upper on ext4"])

    def test_clock_goes_right_also_when_the_host_is_busy(self):
        source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
        # The kernel changes from tsc-early to it a second or so after its start.
        waits = f"for i in $(seq 200); do [ $(cat {source}) = tsc-early ] || break; sleep 0.1; done"
        self.assertEqual(self.vm.run(f"{waits}; cat {source}").text, "tsc\n")
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
        try:
            times = [time.monotonic()]
            for pause in (2, 0):
                uptime = float(self.vm.run("cut -d' ' -f1 /proc/uptime").text)
                times += [uptime, time.monotonic()]
                time.sleep(pause)
                times.append(time.monotonic())
        finally:
            for process in busy:
                process.kill()
                process.wait()
        # Each look at the machine's clock happened somewhere between two looks at ours.
        before_first, first, after_first, before_second, second, after_second, _ = times
        self.assertGreater(second - first, before_second - after_first - 0.1)
        self.assertLess(second - first, after_second - before_first + 0.1)

    @each_caller(short=CALLERS)
    def test_users_and_groups(self, caller):
        places = {"root": "/system.slice/run-", "user": "/user.slice/user-1000.slice/user@1000.service/app.slice/run-",
                  "plain": "/user.slice/user-1001.slice/user@1001.service/app.slice/run-",
                  "bare": "/user.slice/user-1001.slice/session"}
        result = self.shell("id -un; cat /proc/self/cgroup; "
                            "mkdir $(sed s,0::,/sys/fs/cgroup, /proc/self/cgroup)/below && echo made", caller)
        name, group, *made = result.text.split()
        self.assertEqual(name, "plain" if caller == "bare" else caller)
        self.assertTrue(group.startswith("0::" + places[caller]), group)
        self.assertEqual(made, [] if caller == "bare" else ["made"])

    def test_subordinate_ids(self):
        script = "unshare -U sleep 9 & sleep 0.3; newuidmap $! 0 $(id -u) 1 1 100000 65536 && cat /proc/$!/uid_map"
        self.assertIn("65536", self.shell(script, "user").text)
        self.assertNotEqual(self.shell(script, "plain").status, 0)

    def test_output_and_status(self):
        result = self.vm.run("echo out; echo err >&2; exit 7")
        self.assertEqual((result.stdout, result.stderr, result.status), (b"out\n", b"err\n", 7))
        self.assertEqual(self.vm.run("kill -TERM $$").status, -signal.SIGTERM)

    def test_much_output_is_whole(self):
        result = self.vm.run("head -c 8000000 /dev/zero | tr '\\0' x")
        self.assertEqual(result.stdout, b"x" * 8_000_000)

    def test_timeout_ends_a_run(self):
        result = self.vm.run("echo before; sleep 60", timeout=0.5)
        self.assertTrue(result.timed_out)
        self.assertEqual(result.stdout, b"before\n")
        self.assertLess(result.elapsed, 10)

    def test_what_a_run_leaves_is_counted_and_ended(self):
        result = self.vm.run("setsid sleep 61 & setsid sleep 61 & echo done")
        self.assertEqual((result.text, result.survivors), ("done\n", 2))
        self.assertEqual(self.vm.run("ps -eo args | grep -c '[s]leep 61'").text, "0\n")
        self.assertEqual(self.vm.run("find /sys/fs/cgroup -name 'run-*' | wc -l").text, "1\n")

    def test_refusals(self):
        with self.assertRaisesRegex(VmError, "no user nobody"):
            self.vm.run("true", user="nobody", group="session")
        with self.assertRaisesRegex(VmError, "no kind of control group elsewhere"):
            self.vm.run("true", group="elsewhere")
        with self.assertRaisesRegex(PartsError, "no file /no/such for x"):
            Vm(programs=[], files={"x": "/no/such"})

    def test_files_are_there(self):
        text = self.vm.run("cd /opt/caisson; sha256sum < test/me.py; sha256sum < folder/test_machine.py").text
        self.assertEqual(text, f"{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}  -\n" * 2)


class Ends(unittest.TestCase):
    """QEMU never outlives who started it."""

    START = ("import sys; sys.path.insert(0, sys.argv[1]); from vm import Vm; import time\n"
             "vm = Vm(programs=[]); print(vm._process.pid, flush=True); {end}")

    def qemu_after(self, end, kill=None):
        process = subprocess.Popen([sys.executable, "-c", self.START.format(end=end), str(Path(__file__).parent)],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        qemu = int(process.stdout.readline())
        if kill is not None:
            process.send_signal(kill)
        process.wait(20)
        process.stdout.close()
        deadline = time.monotonic() + 5
        while os.path.exists(f"/proc/{qemu}") and time.monotonic() < deadline:
            time.sleep(0.02)
        return os.path.exists(f"/proc/{qemu}")

    def test_end_without_close(self):
        self.assertFalse(self.qemu_after("sys.exit(3)"))

    def test_killed(self):
        self.assertFalse(self.qemu_after("time.sleep(60)", signal.SIGKILL))

    def test_power_off_from_inside_is_an_error_with_the_console(self):
        with Vm(programs=[]) as vm:
            with self.assertRaisesRegex(VmError, "gone"):
                vm.run("echo b > /proc/sysrq-trigger; sleep 9")
            with self.assertRaisesRegex(VmError, "closed"):
                vm.run("true")


if __name__ == "__main__":
    main()
