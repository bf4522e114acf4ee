#!/usr/bin/env python3
"""`caisson --server`: the same commands on a server's sandboxes, beside those of this host, over HTTPS. What is
said, what is printed and how it ends is compared."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
import serve_lab  # noqa: E402

# Arguments of `caisson run`, and what is typed.
RUNS = [
    (["--", "echo", "hello"], b""),
    (["--", "sh", "-c", "echo out; echo err >&2; exit 3"], b""),
    (["--", "cat"], b"text\n\xff\x00 and bytes" * 5000),
    (["--", "sh", "-c", "head -c 3; exit 4"], b"x" * 200_000),
    (["--env", "A=b c", "--workdir", "/tmp", "--", "sh", "-c", "echo $A; pwd; id -un"], b""),
    (["--user", "0", "--privileges", "sudo", "--", "id", "-u"], b""),
    (["--entrypoint", "echo", "--", "a", "b"], b""),
    (["--", "nothing-of-that-name"], b""),
    (["--", "/etc/passwd"], b""),
    (["--", "sh", "-c", "kill -SEGV $$"], b""),
    (["--timeout", "500ms", "--", "sleep", "9"], b""),
    (["--cpu-time", "300ms", "--", "sh", "-c", "while :; do :; done"], b""),
    (["--memory", "32MiB", "--", "python3", "-c", "bytearray(200 << 20)"], b""),
    (["--pids", "8", "--", "python3", "-c", "import os\nfor _ in range(20):\n  os.fork() or os.read(0, 1) or os._exit(0)"], b""),
    (["--disk", "1MiB", "--", "sh", "-c", "head -c 5000000 /dev/zero >big"], b""),
    (["--output", "1KiB", "--", "sh", "-c", "yes"], b""),
    (["--on-refusal", "kill", "--", "unshare", "-n", "true"], b""),
    (["--quiet", "--timeout", "200ms", "--", "sleep", "9"], b""),
    (["--memory", "1KiB", "--", "true"], b""),
    (["--out", "/home/user/none:none", "--", "true"], b""),
]


class Remote(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        # A domain that every host's resolver knows.
        context = serve_lab.fresh(arguments=["--tls-listen", "127.0.0.1:0", "--tls-domain", "localhost", "--tls-dev", "true"])
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        cls.caller = cls.server.caller
        cls.port = cls.server.address["domain"].rsplit(":", 1)[1]
        cls.plain = {"CAISSON_SERVER": cls.server.address["url"], "CAISSON_API_KEY": cls.server.key}

    def tearDown(self):
        self.remote("kill", "--all")

    def remote(self, *arguments, **options):
        return self.caller.caisson(*arguments, env={**self.plain, **options.pop("env", {})}, **options)

    def detached(self, *program):
        done = self.remote("run", "-d", "--timeout", "1m", "--", *program)
        self.assertEqual(done.returncode, 0, done)
        return done.out.strip()

    def test_runs_are_as_on_this_host(self):
        for arguments, typed in RUNS:
            with self.subTest(arguments):
                here = self.caller.caisson("run", *arguments, input=typed)
                there = self.remote("run", *arguments, input=typed)
                self.assertEqual((there.returncode, there.stdout), (here.returncode, here.stdout), (here, there))
                # What the server says before is its own: which of its words are about the sandbox.
                self.assertEqual(there.err.replace("spec: ", ""), here.err)

    def test_results_as_json_are_as_on_this_host(self):
        for arguments, typed in RUNS[:17]:
            with self.subTest(arguments):
                here = self.caller.caisson("run", "--json", *arguments, input=typed)
                there = self.remote("run", "--json", *arguments, input=typed)
                self.assertEqual(there.returncode, here.returncode)
                one, other = here.json(), there.json()
                self.assertEqual(list(other), list(one))
                for key in ("verdict", "stdout", "stderr", "limits_hit", "refusals", "wall", "image", "held"):
                    self.assertEqual(other.get(key), one.get(key), key)
                self.assertEqual(list(other["usage"]), list(one["usage"]))

    def test_a_copy_goes_in_and_a_result_comes_out(self):
        tree = self.caller.home / "tree"
        self.caller.mkdir(tree)
        self.caller.mkdir(tree / "sub")
        self.caller.write(tree / "sub" / "run.sh", b"#!/bin/sh\ntr a-z A-Z <in >out\n", 0o755)
        self.caller.write(tree / "in", b"hello")
        done = self.remote("run", "--copy", "tree:/home/user/tree", "--out", "/home/user/tree:back", "--workdir", "/home/user/tree",
                           "--", "./sub/run.sh")
        self.assertEqual(done.returncode, 0, done)
        back = self.caller.home / "back"
        self.assertEqual((back / "out").read_bytes(), b"HELLO")
        self.assertEqual((back / "in").stat().st_mtime, (tree / "in").stat().st_mtime)
        self.assertTrue(os.access(back / "sub" / "run.sh", os.X_OK))

    def test_paths_of_this_host_are_refused(self):
        for option in ("--ro", "--rw"):
            done = self.remote("run", option, ".", "--", "true")
            self.assertEqual(done.returncode, 125, done)
            self.assertIn(f"{option} .: a server does not see this host's files", done.err)
        self.caller.write(self.caller.home / "here.txt", b"x")
        self.assertIn("add --copy .", self.remote("run", "--", "cat", "here.txt").err)

    def test_what_was_left_running_is_listed_read_and_ended(self):
        sandbox = self.detached("sh", "-c", "echo started; sleep 30")
        listed = self.remote("ps", "--json").json()
        self.assertEqual([(found["id"], found["image"], found["command"][0]) for found in listed], [(sandbox, "base", "sh")])
        self.assertEqual(self.remote("ps", "-q").out, sandbox + "\n")
        self.assertTrue(harness.wait_until(lambda: self.remote("logs", sandbox).out == "started\n", 10))
        self.assertEqual(self.remote("exec", sandbox[:8], "--", "sh", "-c", "exit 5").returncode, 5)
        self.assertEqual(self.remote("kill", sandbox).returncode, 0)
        self.assertEqual(self.remote("ps", "-q").out, "")
        self.assertIn("there is no sandbox", self.remote("exec", sandbox, "--", "true").err)

    def test_a_sandbox_ends_with_its_main_command(self):
        sandbox = self.detached("sh", "-c", "echo one; sleep 1; echo two; exit 6")
        done = self.remote("logs", "-f", sandbox)
        self.assertEqual((done.out, done.returncode), ("one\ntwo\n", 6), done)
        self.assertTrue(harness.wait_until(lambda: self.remote("ps", "-q").out == "", 10))

    def test_files_are_copied_both_ways(self):
        sandbox = self.detached("sleep", "60")
        data = os.urandom(3 << 20)
        self.caller.write(self.caller.home / "data", data)
        self.assertEqual(self.remote("cp", "data", f"{sandbox}:/tmp/data").returncode, 0)
        self.assertEqual(self.remote("cp", f"{sandbox}:/tmp/data", "again").returncode, 0)
        self.assertEqual((self.caller.home / "again").read_bytes(), data)
        self.assertIn("there is no /tmp/none inside", self.remote("cp", f"{sandbox}:/tmp/none", "again").err)

    def test_a_paused_one_takes_no_commands(self):
        sandbox = self.detached("sleep", "60")
        self.assertEqual(self.remote("pause", sandbox, sandbox).returncode, 0)
        self.assertIn("paused", self.remote("ps").out)
        self.assertIn("is paused", self.remote("exec", sandbox, "--", "true").err)
        self.assertEqual(self.remote("resume", sandbox, sandbox).returncode, 0)
        self.assertEqual(self.remote("exec", sandbox, "--", "true").returncode, 0)

    def start(self, *arguments, **options):
        return self.caller.popen(*arguments, env=self.plain, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, **options)

    def test_an_interrupt_cancels(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            with self.start("run", "--", "sh", "-c", "trap '' INT TERM; echo ready; sleep 30") as process:
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(how)
                self.assertEqual(process.wait(15), 130)
                self.assertIn(b"cancelled", process.stderr.read())
        self.assertEqual(self.remote("ps", "-q").out, "")

    def test_a_command_ends_with_its_client(self):
        sandbox = self.detached("sleep", "60")
        with self.start("exec", sandbox, "--", "sh", "-c", "echo ready; sleep 31") as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.kill()
            process.wait()
        gone = lambda: self.remote("exec", sandbox, "--", "pgrep", "-f", "sleep 31").returncode == 1
        self.assertTrue(harness.wait_until(gone, 10))

    def test_a_slow_reader_misses_nothing(self):
        with self.start("run", "--output", "64MiB", "--", "sh", "-c", "yes | head -c 20000000") as process:
            time.sleep(1)
            size = 0
            while piece := process.stdout.read(1 << 16):
                size += len(piece)
            self.assertEqual((process.wait(10), size), (0, 20_000_000))

    def test_a_terminal_is_passed_on(self):
        sandbox = self.detached("sleep", "60")
        done = self.caller.on_pty("exec", "-t", sandbox, "--", "sh", typed=b"stty size; exit 7\n", env=self.plain)
        self.assertEqual(done.returncode, 7, done)
        self.assertRegex(done.out, r"\d+ \d+")

    def test_a_certificate_is_verified(self):
        url, ca = f"https://localhost:{self.port}", self.server.address["ca"]
        done = self.remote("run", "--server", url, "--server-ca", ca, "--", "echo", "hello")
        self.assertEqual((done.out, done.returncode), ("hello\n", 0), done)
        self.assertEqual(self.remote("ps", env={"CAISSON_SERVER": url, "CAISSON_SERVER_CA": ca}).returncode, 0)
        done = self.remote("run", "--server", url, "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("is not to be trusted", done.err)
        # The right authority, and another name than the certificate's.
        self.assertIn("mismatch", self.remote("ps", "--server", f"https://127.0.0.1:{self.port}", "--server-ca", ca).err)

    def test_what_is_wrong_with_server_or_key_is_said(self):
        self.assertIn("cannot be reached", self.remote("ps", "--server", "http://127.0.0.1:1").err)
        self.assertIn("CAISSON_API_KEY", self.remote("ps", env={"CAISSON_API_KEY": "e2b_" + "0" * 40}).err)
        self.assertIn("no API key", self.remote("ps", env={"CAISSON_API_KEY": ""}).err)
        self.caller.write(self.caller.home / "key", self.server.key.encode() + b"\n")
        self.assertEqual(self.remote("ps", "--server-key-file", "key", env={"CAISSON_API_KEY": ""}).returncode, 0)
        # An empty --server is this host.
        self.assertEqual(self.remote("ps", "--server", "", env={"CAISSON_API_KEY": ""}).returncode, 0)

    def test_limits_above_the_operators_are_refused_by_key(self):
        done = self.remote("run", "--memory", "1TiB", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("limits.memory: found", done.err)

    def test_facts_of_a_sandbox(self):
        import urllib.request
        sandbox = self.detached("sleep", "60")
        self.remote("exec", sandbox, "--", "unshare", "-n", "true")

        def ask(what):
            request = urllib.request.Request(f"{self.server.address['url']}/v1/sandboxes/{sandbox}/{what}",
                                             headers={"X-API-Key": self.server.key})
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        self.assertEqual(ask("limits")["memory"], {"value": 512 << 20, "held": "cgroup"})
        self.assertEqual(ask("refusals")["refusals"], [{"syscall": 272, "what": "unshare", "count": 1}])
        self.assertEqual([found["program"] for found in ask("verdicts")["verdicts"]], ["unshare"])
        self.remote("exec", sandbox, "--", "sh", "-c", "python3 -m http.server 8123 >/dev/null 2>&1 &")
        self.assertTrue(harness.wait_until(lambda: 8123 in [found["port"] for found in ask("ports")["ports"]], 15))


if __name__ == "__main__":
    unittest.main()
