#!/usr/bin/env python3
"""What a server that dies or is stopped leaves, and what the next one finds: sandboxes, their running
commands, deadlines and states. By E2B's wire as it is, without an SDK."""
import concurrent.futures
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
import serve_lab  # noqa: E402
import wire  # noqa: E402

TAG = "long one"


class Restart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = serve_lab.fresh()
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def tearDown(self):
        self.server.stop()
        self.server.arguments = []
        self.assertEqual(self.server.end_sandboxes(), [])
        self.server.start()

    def ask(self, *arguments, **values):
        return wire.Wire(self.server).ask(*arguments, **values)

    def create(self, **values):
        return wire.Wire(self.server).create(**values)

    def start(self, sandbox, command):
        return wire.Wire(self.server).start(sandbox, command, TAG)

    def listed(self):
        return {found["sandboxID"]: found for found in self.ask("GET", "/v2/sandboxes")[1]}

    def test_a_killed_servers_sandboxes_are_found_as_they_were(self):
        running, paused, dead = self.create(metadata={"a": "b"}, envVars={"X": "secret"}), self.create(), self.create()
        pid = self.start(running, "while sleep 0.1; do echo x >>/tmp/ticks; done")
        self.assertEqual(self.ask("POST", f"/sandboxes/{paused['sandboxID']}/pause", {})[0], 204)
        before = self.listed()
        self.ask("GET", f"/v2/sandboxes/{running['sandboxID']}/logs")  # what is logged is written by then

        self.server.stop(signal.SIGKILL)
        # What ends meanwhile is not there afterwards.
        self.server.caller.caisson("kill", dead["sandboxID"], env={"CAISSON_RUN_DIR": str(self.server.run_folder)})
        self.assertTrue(harness.wait_until(lambda: dead["sandboxID"] not in self.server.sandboxes(), 10))
        self.server.start()

        after = self.listed()
        self.assertEqual(set(after), {running["sandboxID"], paused["sandboxID"]})
        for name in after:
            for field in ("state", "metadata", "startedAt"):
                # Times are kept to the millisecond or better.
                self.assertEqual(str(after[name][field])[:23], str(before[name][field])[:23], field)
        self.assertEqual(after[running["sandboxID"]]["endAt"][:23], before[running["sandboxID"]]["endAt"][:23])

        # The tokens are the same, the command runs on and is known by its pid and tag.
        status, processes = self.ask("POST", "/process.Process/List", {}, running)
        self.assertEqual(status, 200, processes)
        self.assertEqual([(found["pid"], found["tag"]) for found in processes["processes"]], [(pid, TAG)])
        ticks = len(self.ask("GET", "/files?path=/tmp/ticks", sandbox=running)[1])
        self.assertTrue(harness.wait_until(
            lambda: len(self.ask("GET", "/files?path=/tmp/ticks", sandbox=running)[1]) > ticks, 10))
        self.assertEqual(self.ask("GET", "/envs", sandbox=running)[1]["X"], "secret")
        self.assertEqual(self.ask("POST", f"/sandboxes/{paused['sandboxID']}/connect", {"timeout": 60})[0], 201)
        # The logs go on, and that of one that is gone can be read.
        messages = {name: [entry["message"] for entry in self.ask("GET", f"/v2/sandboxes/{name}/logs")[1]["logs"]]
                    for name in (running["sandboxID"], paused["sandboxID"], dead["sandboxID"])}
        self.assertEqual(messages[running["sandboxID"]], ["the sandbox was made", "a process started"])
        self.assertEqual(messages[paused["sandboxID"]],
                         ["the sandbox was made", "the sandbox was paused", "the sandbox was resumed"])
        self.assertEqual(messages[dead["sandboxID"]], ["the sandbox was made", "the sandbox ended while no server ran"])
        self.assertEqual(self.ask("DELETE", f"/sandboxes/{running['sandboxID']}")[0], 204)
        self.assertEqual(self.ask("GET", "/health", sandbox=running)[0], 502)

    def test_a_deadline_is_kept_while_no_server_runs(self):
        sandbox = self.create(timeout=3)
        self.server.stop(signal.SIGKILL)
        end = time.monotonic() + 20
        while sandbox["sandboxID"] in self.server.sandboxes():
            self.assertLess(time.monotonic(), end, "it outlived its deadline")
            time.sleep(0.1)
        self.server.start()
        self.assertEqual(self.listed(), {})

    def test_a_server_that_stops_leaves_what_clients_have_and_nothing_else(self):
        self.server.stop()
        config = self.server.caller.folder / "serve.yaml"
        config.write_text("pool: {base: 3}\n")
        self.server.arguments += ["--config", str(config)]
        self.server.start()
        self.assertTrue(harness.wait_until(lambda: len(self.server.sandboxes()) == 3, 20))
        sandbox = self.create()
        self.assertTrue(harness.wait_until(lambda: len(self.server.sandboxes()) == 4, 20))
        self.assertEqual(self.server.stop(), 0)
        self.assertTrue(harness.wait_until(lambda: self.server.sandboxes() == [sandbox["sandboxID"]], 10),
                        self.server.sandboxes())

    def test_a_teams_quota_holds_in_a_burst(self):
        state = self.server.caller.env["CAISSON_STATE_DIR"]
        done = self.server.caller.caisson("team", "create", "small", "--max-running", "2", "--max-memory", "64MiB",
                                          "--max-lifetime", "2m", "--state-dir", state)
        self.assertEqual(done.returncode, 0, done)
        self.server.key, key = self.server.new_key("--team", "small"), self.server.key
        self.addCleanup(setattr, self.server, "key", key)
        wanted = {"templateID": "base", "timeout": 100}
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: self.ask("POST", "/v2/sandboxes", wanted), range(8)))
        self.assertEqual(sorted(status for status, _ in answers), [201] * 2 + [429] * 6)
        for status, answer in answers:
            if status == 429:
                answer = json.loads(answer)
                self.assertEqual(answer["code"], 429)
                self.assertIn("2 running sandboxes", answer["message"])
        self.assertEqual({found["memoryMB"] for found in self.listed().values()}, {64})
        status, answer = self.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 121})
        self.assertEqual(status, 400, answer)
        self.assertIn(b'caisson_sandboxes_refused_total{limit="team"} 6\n', self.ask("GET", "/metrics")[1])

    def test_a_second_server_of_the_same_folders_is_refused(self):
        caller = self.server.caller
        done = caller.caisson("serve", "--listen", "127.0.0.1:0", "--state-dir", caller.env["CAISSON_STATE_DIR"],
                              "--run-dir", caller.env["CAISSON_RUN_DIR"])
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"another server uses", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
