"""Kept sandboxes: they and their commands survive whoever made them, are paused, and end with their deadline."""
import json
import os
import shutil
import signal
import subprocess
import time

import frame
from frame import harness

COUNTS = ["sh", "-c", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done"]
SPINS = ["sh", "-c", "while :; do :; done"]


class Kept(frame.ModeTest):
    modes = ("root", "user", "range")

    def tool(self):
        """The tool's path, where this caller can reach it."""
        built = harness.build_dir() / "tests" / "caisson_kept_tool"
        programs = self.caller.programs()
        if programs == harness.build_dir():
            return built
        if not (programs / built.name).exists():
            shutil.copy(built, programs / built.name)
        return programs / built.name

    def command(self, *arguments):
        return [*self.caller.command()[:-1], str(self.tool()), *map(str, arguments)]

    def ask(self, *arguments):
        return subprocess.run(self.command(*arguments), env=self.caller.env, cwd=self.caller.home,
                              capture_output=True, text=True, timeout=60)

    def told(self, *arguments):
        done = self.ask(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def make(self, lifetime_ms=60_000):
        """The id of a sandbox whose maker has been killed."""
        maker = subprocess.Popen(self.command("make", lifetime_ms), env=self.caller.env, cwd=self.caller.home,
                                 stdout=subprocess.PIPE, text=True)
        name = maker.stdout.readline().strip()
        maker.kill()
        maker.wait()
        maker.stdout.close()
        self.assertTrue(name)
        self.addCleanup(lambda: self.caller.caisson("kill", name))
        return name

    def keep(self, name, label, arguments):
        number, pid = self.told("keep", name, label, *arguments).split()
        return int(number), int(pid)

    def listed(self, name):
        """{number: (pid, label, state)}"""
        lines = (line.split(" ", 3) for line in self.told("list", name).splitlines())
        return {int(number): (int(pid), label, state) for number, pid, label, state in lines}

    def info(self, name):
        found = [each for each in json.loads(self.caller.caisson("ps", "--json").out) if each["id"] == name]
        return found[0] if found else None

    def gone(self, name, seconds=5):
        return harness.wait_until(lambda: name not in self.caller.sandboxes_left(), seconds)

    def pausable(self, name):
        """Whether this caller's control groups can hold a sandbox; where not, that is said so."""
        done = self.caller.caisson("pause", name)
        if done.returncode == 0:
            return True
        self.assertIn("no control group can hold this sandbox's processes here", done.err)
        self.assertFalse(self.info(name)["paused"])
        self.assertEqual(self.caller.caisson("exec", name, "--", "true").returncode, 0)
        return False

    def test_commands_survive_their_maker_and_are_read_on(self):
        name = self.make()
        number, pid = self.keep(name, "counts", COUNTS)
        ends, _ = self.keep(name, "ends", ["sh", "-c", "echo bye; exit 3"])
        harness.wait_until(lambda: self.listed(name)[ends][2] != "running", 5)
        self.assertEqual(self.listed(name)[number], (pid, "counts", "running"))
        self.assertEqual(self.listed(name)[ends][1:], ("ends", "exited 3"))
        self.assertEqual(self.told("follow", name, ends), "bye\nexited 3\n")
        # Each reader begins with the oldest; the second sees what was written since the first.
        first = self.told("read", name, number, 20)
        self.assertTrue(first.startswith("line 1\nline 2\n"), first)
        more = self.told("read", name, number, 200)
        self.assertTrue(more.startswith(first), more)
        self.assertEqual(self.listed(name)[number][2], "running")
        done = self.caller.caisson("logs", name)
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("no main command", done.err)
        done = self.caller.caisson("exec", name, "--", "echo", "beside")
        self.assertEqual((done.returncode, done.out), (0, "beside\n"), done)
        self.assertEqual(self.caller.caisson("kill", name).returncode, 0)
        self.assertTrue(self.gone(name))

    def test_a_command_that_cannot_start_is_not_kept(self):
        name = self.make()
        done = self.ask("keep", name, "none", "no-such-program")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("exited 127", done.stderr)
        self.assertEqual(self.listed(name), {})

    def test_the_deadline_moves_both_ways(self):
        name = self.make(60_000)
        info = self.info(name)
        self.assertEqual((info["life"], info["deadline_ms"] - info["created_ms"]), ("kept", 60_000))
        self.told("deadline", name, 3_600_000)
        self.assertGreater(self.info(name)["deadline_ms"], info["deadline_ms"] + 3_000_000)
        self.told("deadline", name, 1_000)
        self.assertLess(self.info(name)["deadline_ms"], info["deadline_ms"])
        # The command has no time of its own and goes with its sandbox.
        self.keep(name, "spins", SPINS)
        self.assertTrue(self.gone(name, 10))

    def test_what_is_paused_uses_no_processor_and_keeps_its_pids(self):
        name = self.make()
        spins, pid = self.keep(name, "spins", SPINS)
        # A process that its command has left behind is the sandbox's too.
        left, _ = self.keep(name, "left", ["sh", "-c", "(while :; do :; done) >/dev/null 2>&1 &"])
        harness.wait_until(lambda: self.listed(name)[left][2] != "running", 5)
        used = lambda: int(self.told("usage", name).split()[0])
        if not self.pausable(name):
            return
        before = used()
        time.sleep(0.5)
        self.assertEqual(used(), before)
        self.assertTrue(self.info(name)["paused"])
        self.assertIn("paused", self.caller.caisson("ps").out)
        self.assertEqual(self.listed(name)[spins], (pid, "spins", "running"))
        done = self.caller.caisson("exec", name, "--", "true")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("the sandbox is paused", done.err)
        # Files are the guest's business, which is not held.
        source = self.caller.write("given", "given", 0o644)
        self.assertEqual(self.caller.caisson("cp", source, f"{name}:/tmp/given").returncode, 0)
        self.assertEqual(self.caller.caisson("pause", name).returncode, 0)
        self.assertEqual(self.caller.caisson("resume", name).returncode, 0)
        self.assertTrue(harness.wait_until(lambda: used() > before, 5))
        self.assertFalse(self.info(name)["paused"])
        done = self.caller.caisson("exec", name, "--", "sh", "-c", f"kill -0 {pid} && cat /tmp/given")
        self.assertEqual((done.returncode, done.out), (0, "given"), done)

    def test_a_paused_sandbox_is_killed_at_once_and_ends_with_its_deadline(self):
        for end in (lambda name: self.caller.caisson("kill", name), lambda name: self.told("deadline", name, 100)):
            name = self.make()
            for label in ("one", "two"):
                self.keep(name, label, SPINS)
            if not self.pausable(name):
                return
            start = time.monotonic()
            end(name)
            self.assertTrue(self.gone(name))
            self.assertLess(time.monotonic() - start, 3)

    def test_a_paused_sandbox_whose_supervisor_and_launcher_are_killed_is_swept(self):
        name = self.make()
        self.keep(name, "spins", SPINS)
        if not self.pausable(name):
            return
        for role in ("caisson-superv", "caisson-launche"):
            for pid, _ in harness.living_children(0):
                if name_of(pid) == role:
                    os.kill(pid, signal.SIGKILL)
        self.assertEqual(harness.living_children(), [])
        self.caller.caisson("ps")
        self.assertTrue(self.gone(name))


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


frame.main()
