"""Sandboxes that are left running: run -d, ps, logs, exec, cp, kill."""
import fcntl
import json
import os

import support


class Detached(support.CallerTest):
    def start(self, *arguments):
        done = self.run_in("-d", *arguments)
        self.assertEqual(done.returncode, 0, done)
        return done.out.strip()

    def kill(self, name):
        done = self.caller.caisson("kill", name)
        self.assertEqual(done.returncode, 0, done)

    def kill_and_wait_for(self, name, process):
        """Kills the client of an exec that has printed its pid; the command inside must end for it."""
        try:
            pid = int(process.stdout.readline())
            # Commands do not see each other in /proc, but a signal finds who is there.
            lives = lambda: self.caller.caisson("exec", name, "--", "sh", "-c", f"kill -0 {pid}").returncode == 0
            self.assertTrue(lives())
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        self.assertTrue(support.harness.wait_until(lambda: not lives(), 5))

    def test_a_home_that_is_a_link_to_a_descriptor_leads_nowhere(self):
        name = self.start("--timeout", "1m", "--", "sleep", "50")
        moved = self.caller.caisson("exec", name, "--", "sh", "-c",
                                    "mv $HOME $HOME.old && ln -s /proc/self/fd/$0 $HOME", "7")
        for _ in range(3):
            done = self.caller.caisson("exec", name, "--", "sh", "-c",
                                       "stat -c %d:%i /; stat -L -c %d:%i $(printf '../%.0s' 1 2 3 4 5 6 7 8 9)")
            inside, above = done.out.split()
            self.assertEqual(inside, above, (moved, done))
        self.kill(name)

    def test_life(self):
        name = self.start("--timeout", "1m", "--", "sh", "-c", "echo out; echo err >&2; sleep 50")
        self.assertIn(name, self.caller.caisson("ps").out)
        self.assertEqual(self.caller.caisson("ps", "-q").out.split(), [name])
        info = json.loads(self.caller.caisson("ps", "--json").out)[0]
        self.assertEqual((info["id"], info["image"], info["detached"]), (name, "host", True))
        self.assertEqual(info["deadline_ms"] - info["created_ms"], 60_000)
        done = self.caller.caisson("exec", name[:8], "--", "sh", "-c", "echo inside; cat; exit 4", input=b"given")
        self.assertEqual((done.returncode, done.out), (4, "inside\ngiven"), done)
        support.harness.wait_until(lambda: "out" in self.caller.caisson("logs", name).out, 3)
        logs = self.caller.caisson("logs", name)
        self.assertEqual((logs.returncode, logs.out, logs.err), (0, "out\n", "err\n"), logs)
        self.kill(name)
        self.assertEqual(self.caller.caisson("ps", "-q").out, "")
        self.assertEqual(support.harness.wait_until(lambda: not self.caller.sandboxes_left(), 3), True)
        for command in (["exec", name, "--", "true"], ["logs", name], ["kill", name], ["cp", f"{name}:/x", "y"]):
            self.assert_refused(self.caller.caisson(*command), "there is no sandbox")

    def test_logs_follow_to_the_end_and_give_its_status(self):
        name = self.start("--", "sh", "-c", "echo one; sleep 1; echo two; exit 6")
        done = self.caller.caisson("logs", "-f", name)
        self.assertEqual((done.returncode, done.out), (6, "one\ntwo\n"), done)
        # The sandbox lives for its command.
        self.assertTrue(support.harness.wait_until(lambda: not self.caller.sandboxes_left(), 3))

    def test_a_follower_that_does_not_read_delays_nobody_and_is_told_what_it_missed(self):
        name = self.start("--timeout", "1m", "--output", "64MiB", "--", "python3", "-c",
                          "import sys, os, time\nline = b'x' * 1023 + b'\\n'\n"
                          "print('ready', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.02)\n"
                          "for i in range(20 * 1024): sys.stdout.buffer.write(line)\n"
                          "sys.stdout.buffer.flush()\nopen('/tmp/done', 'w').close()\ntime.sleep(1)\nprint('end')")
        process = self.caller.popen("logs", "-f", name, stdout=-1, stderr=-1)
        try:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            self.assertEqual(self.caller.caisson("exec", name, "--", "touch", "/tmp/go").returncode, 0)
            written = lambda: self.caller.caisson("exec", name, "--", "test", "-e", "/tmp/done").returncode == 0
            self.assertTrue(support.harness.wait_until(written, 20), "nobody reads, and the program waits for that")
            out, err = process.stdout.read(), process.stderr.read()
            self.assertEqual(process.wait(20), 0, err)
        finally:
            process.kill()
            process.stdout.close()
            process.stderr.close()
        self.assertIn(b"bytes of output are left out here", err)
        self.assertTrue(out.endswith(b"x\nend\n"), out[-100:])
        missed = sum(int(line.split()[1]) for line in err.decode().splitlines())
        self.assertEqual(len(out) + missed, 20 * 1024 * 1024 + len("end\n"))

    def test_a_follower_whose_reader_has_gone_ends(self):
        name = self.start("--timeout", "1m", "--", "sh", "-c", "while :; do echo line; sleep 0.05; done")
        process = self.caller.popen("logs", "-f", name, stdout=-1)
        process.stdout.readline()
        process.stdout.close()
        self.assertNotEqual(process.wait(10), 125)
        self.assertIn(name, self.caller.caisson("ps", "-q").out)
        self.kill(name)

    def test_a_command_that_cannot_start_leaves_nothing(self):
        done = self.run_in("-d", "--", "no-such-program")
        self.assertEqual((done.returncode, done.out), (127, ""), done)
        self.assertTrue(support.harness.wait_until(lambda: not self.caller.sandboxes_left(), 3))

    def test_its_etc_is_held_for_as_long_as_it_lives(self):
        def held():
            kept = [e for e in (self.caller.folder / "run/caisson/etc").iterdir() if e.name[0].isdigit()]
            self.assertEqual(len(kept), 1, kept)
            folder = os.open(kept[0], os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(folder)
            return False

        name = self.start("--timeout", "1m", "--", "sleep", "50")
        self.assertTrue(held())
        self.kill(name)
        self.assertTrue(support.harness.wait_until(lambda: not held(), 3))

    def test_the_deadline_ends_it(self):
        name = self.start("--timeout", "1500ms", "--", "sleep", "100")
        self.assertTrue(support.harness.wait_until(lambda: not self.caller.sandboxes_left(), 6), name)

    def test_exec_json_user_env_and_workdir(self):
        name = self.start("--timeout", "1m", "--", "sleep", "50")
        done = self.caller.caisson("exec", "--json", "-e", "A=b", "-w", "/tmp", name, "--", "sh", "-c", "echo $A $(pwd) $(id -un)")
        self.assertEqual(done.json()["stdout"], "b /tmp user\n", done)
        self.assert_refused(self.caller.caisson("exec", "-w", "relative", name, "--", "true"), "--workdir")
        self.assert_refused(self.caller.caisson("exec", "-u", "a b", name, "--", "true"), "--user")
        self.assert_refused(self.caller.caisson("exec", "-e", "=x", name, "--", "true"), "--env")
        self.assert_refused(self.caller.caisson("exec", name), "no program")
        self.assert_refused(self.caller.caisson("exec"), "no sandbox")
        self.assert_refused(self.caller.caisson("exec", "--tty", name, "--", "true"), "terminal")
        self.kill(name)

    def test_one_exec_out_of_memory_does_not_end_the_sandbox(self):
        name = self.start("--timeout", "1m", "--memory", "64MiB", "--", "sleep", "50")
        done = self.caller.caisson("exec", "--json", name, "--", "python3", "-c", "x = b'x' * 10**9")
        if done.json()["held"]["memory"] != "cgroup":
            # Without groups only the whole sandbox can be ended for memory, where the program does not end
            # by itself first.
            self.assertIn(done.json()["verdict"]["kind"], ("memory_limit", "sandbox_error"), done)
            self.assertEqual(self.caller.caisson("kill", "--all").returncode, 0)
            return
        self.assertEqual(done.json()["verdict"]["kind"], "memory_limit", done)
        self.assertEqual(self.caller.caisson("exec", name, "--", "echo", "alive").out, "alive\n")
        self.kill(name)

    def test_cp_both_ways(self):
        name = self.start("--timeout", "1m", "--", "sleep", "50")
        folder = self.caller.mkdir("cp")
        self.caller.write(folder / "f", "from the host")
        done = self.caller.caisson("cp", folder, f"{name}:/home/user")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.caller.caisson("exec", name, "--", "cat", "/home/user/cp/f").out, "from the host")
        self.assertEqual(self.caller.caisson("cp", folder / "f", f"{name}:/tmp/g").returncode, 0)
        self.assertEqual(self.caller.caisson("cp", f"{name}:/tmp/g", folder / "back").returncode, 0)
        self.assertEqual((folder / "back").read_text(), "from the host")
        self.assertEqual(self.caller.caisson("cp", f"{name}:/home/user/cp", folder).returncode, 0)
        self.assertEqual((folder / "cp/f").read_text(), "from the host")
        self.kill(name)

    def test_cp_attacks(self):
        name = self.start("--timeout", "1m", "--", "sh", "-c",
                          "cd; ln -s /etc/passwd l; mkdir d; ln -s ../../.. d/up; ln -s /etc d/etc; echo x > d/x; echo ready; sleep 50")
        support.harness.wait_until(lambda: "ready" in self.caller.caisson("logs", name).out, 5)
        folder = self.caller.mkdir("attack")
        self.assert_refused(self.caller.caisson("cp", f"{name}:/home/user/l", folder), "symbolic link")
        done = self.caller.caisson("cp", f"{name}:/home/user/d", folder)
        self.assertEqual(done.returncode, 125)
        self.assertEqual(sorted(os.listdir(folder / "d")), ["x"], done)
        self.assert_refused(self.caller.caisson("cp", f"{name}:/home/user/../x", folder), "path inside")
        self.assert_refused(self.caller.caisson("cp", f"{name}:relative", folder), "path inside")
        self.assert_refused(self.caller.caisson("cp", f"{name}:/no/such", folder), "/no/such")
        self.assert_refused(self.caller.caisson("cp", f"{name}:/dev/null", folder), "neither file nor folder")
        self.assert_refused(self.caller.caisson("cp", "a", "b"), "ID:PATH")
        self.assert_refused(self.caller.caisson("cp", "a"), "two places")
        # A link inside does not make a copy that goes in land outside: there is no outside.
        self.assertEqual(self.caller.caisson("cp", folder / "d" / "x", f"{name}:/home/user/d/etc/evil").returncode, 125)
        self.kill(name)

    def test_killing_the_client_of_an_exec_ends_that_exec_alone(self):
        name = self.start("--timeout", "1m", "--", "sleep", "50")
        process = self.caller.popen("exec", name, "--", "sh", "-c", "echo $$; exec sleep 77", stdout=-1)
        self.kill_and_wait_for(name, process)
        self.kill(name)

    def test_an_exec_that_makes_a_refused_call_ends_alone(self):
        name = self.start("--timeout", "1m", "--on-refusal", "kill", "--", "sleep", "50")
        done = self.caller.caisson("exec", "--json", name, "--", "unshare", "-U", "true")
        self.assertEqual((done.returncode, done.json()["verdict"]["kind"]), (119, "policy_violation"), done)
        self.assertEqual(self.caller.caisson("exec", name, "--", "echo", "alive").out, "alive\n")
        self.kill(name)

    def test_a_client_that_is_killed_with_unread_output_ends_its_exec_alone(self):
        name = self.start("--timeout", "1m", "--", "sleep", "50")
        process = self.caller.popen("exec", name, "--", "sh", "-c", "echo $$; exec yes", stdout=-1)
        # After this line nobody reads, and output is kept at every step of the way.
        self.kill_and_wait_for(name, process)
        self.assertEqual(self.caller.caisson("exec", name, "--", "echo", "alive").out, "alive\n")
        self.kill(name)

    def test_ids(self):
        self.assert_refused(self.caller.caisson("kill", "../../etc"), "not a sandbox id")
        self.assert_refused(self.caller.caisson("kill"), "no sandbox given")
        self.assert_refused(self.caller.caisson("kill", "--all", "x"), "one or the other")
        self.assertEqual(self.caller.caisson("kill", "--all").returncode, 0)

    def test_json_of_a_detached_run(self):
        done = self.run_in("-d", "--json", "--timeout", "1m", "--", "sleep", "50")
        self.kill(done.json()["id"])


class Attached(support.CallerTest):
    def test_the_death_of_the_client_ends_the_sandbox(self):
        process = self.caller.popen("run", "--", "sh", "-c", "echo up; sleep 100", stdout=-1)
        process.stdout.readline()
        self.assertEqual(len(self.caller.sandboxes_left()), 1)
        process.kill()
        process.wait()
        process.stdout.close()
        self.assertTrue(support.harness.wait_until(lambda: not self.caller.sandboxes_left(), 5))
        self.assertEqual(support.harness.living_children(), [])

    def test_an_attached_run_is_listed_while_it_runs(self):
        process = self.caller.popen("run", "--", "sh", "-c", "echo up; sleep 1", stdout=-1)
        process.stdout.readline()
        self.assertEqual(len(self.caller.caisson("ps", "-q").out.split()), 1)
        process.stdout.close()
        self.assertEqual(process.wait(10), 0)
        self.assertEqual(self.caller.sandboxes_left(), [])


support.main()
