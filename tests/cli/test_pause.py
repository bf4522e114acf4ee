"""caisson pause and resume: what runs in a sandbox is held, and goes on."""
import json

import support


class Pause(support.CallerTest):
    def start(self, *arguments):
        done = self.run_in("-d", "--timeout", "1m", *arguments)
        self.assertEqual(done.returncode, 0, done)
        name = done.out.strip()
        self.addCleanup(lambda: self.caller.caisson("kill", name))
        return name

    def state(self, name):
        (info,) = [each for each in json.loads(self.caller.caisson("ps", "--json").out) if each["id"] == name]
        return info["paused"]

    def pause(self, name):
        """True where this user's control groups can hold it; else what is said is looked at."""
        done = self.caller.caisson("pause", name)
        if done.returncode != 0:
            self.assert_refused(done, "no control group can hold", "freezer")
            self.assertFalse(self.state(name))
            # Nothing is held, and nothing is lost.
            self.assertEqual(self.caller.caisson("resume", name).returncode, 0)
            self.assertEqual(self.caller.caisson("exec", name, "--", "true").returncode, 0)
        return done.returncode == 0

    def test_what_is_paused_writes_nothing_until_it_is_resumed(self):
        name = self.start("--", "sh", "-c", "while :; do echo line; sleep 0.02; done")
        written = lambda: len(self.caller.caisson("logs", name).out)
        self.assertTrue(support.harness.wait_until(written, 5))
        if not self.pause(name):
            return
        self.assertTrue(self.state(name))
        before = written()
        self.assertFalse(support.harness.wait_until(lambda: written() != before, 0.5))
        self.assertRegex(self.caller.caisson("ps").out, rf"{name} +paused ")
        self.assertEqual(self.caller.caisson("pause", name).returncode, 0)
        self.assertEqual(self.caller.caisson("resume", name).returncode, 0)
        self.assertTrue(support.harness.wait_until(lambda: written() > before, 5))
        self.assertRegex(self.caller.caisson("ps").out, rf"{name} +running ")

    def test_a_paused_sandbox_takes_no_command_and_is_killed(self):
        name = self.start("--", "sleep", "50")
        if not self.pause(name):
            return
        self.assert_refused(self.caller.caisson("exec", name, "--", "true"), "the sandbox is paused", "caisson resume")
        self.assertEqual(self.caller.caisson("kill", name).returncode, 0)
        self.assertTrue(support.harness.wait_until(lambda: not self.caller.sandboxes_left(), 3))

    def test_a_commands_time_goes_on_while_it_is_paused(self):
        done = self.run_in("-d", "--timeout", "1s", "--", "sleep", "50")
        if not self.pause(done.out.strip()):
            self.caller.caisson("kill", "--all")
        self.assertTrue(support.harness.wait_until(lambda: not self.caller.sandboxes_left(), 5))

    def test_names_that_are_none(self):
        for command in ("pause", "resume"):
            self.assert_refused(self.caller.caisson(command), "no sandbox given")
            self.assert_refused(self.caller.caisson(command, "nosuch"), "there is no sandbox")


support.main()
