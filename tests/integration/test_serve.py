#!/usr/bin/env python3
"""What a server that dies or is stopped leaves, and what the next one finds: sandboxes, their running
commands, deadlines and states. By E2B's wire as it is, without an SDK."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
import serve_lab  # noqa: E402
import wire  # noqa: E402
from serve_case import TAG, Case  # noqa: E402


class Restart(Case):
    def tearDown(self):
        self.server.stop()
        self.server.arguments = []
        self.assertEqual(self.server.end_sandboxes(), [])
        self.server.start()

    def test_a_killed_servers_sandboxes_are_found_as_they_were(self):
        running, paused, dead = self.create(metadata={"a": "b"}, envVars={"X": "secret"}), self.create(), self.create()
        pid = self.start(running, "while sleep 0.1; do echo x >>/tmp/ticks; done")
        self.assertEqual(self.ask("POST", f"/sandboxes/{paused['sandboxID']}/pause", {})[0], 204)
        status, watcher = self.ask("POST", "/filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}, running)
        self.assertEqual(status, 200, watcher)
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
        # A watch that is polled was the old server's: its client hears what E2B's clients know as its end.
        status, answer = self.ask("POST", "/filesystem.Filesystem/GetWatcherEvents", watcher, running)
        self.assertEqual((status, json.loads(answer)["code"]), (404, "not_found"))
        # The logs go on, and that of one that is gone can be read.
        messages = {name: [entry["message"] for entry in self.ask("GET", f"/v2/sandboxes/{name}/logs")[1]["logs"]]
                    for name in (running["sandboxID"], paused["sandboxID"], dead["sandboxID"])}
        self.assertEqual(messages[running["sandboxID"]], ["the sandbox was made", "a process started"])
        self.assertEqual(messages[paused["sandboxID"]],
                         ["the sandbox was made", "the sandbox was paused", "the sandbox was resumed"])
        self.assertEqual(messages[dead["sandboxID"]], ["the sandbox was made", "the sandbox ended while no server ran"])
        self.assertEqual(self.ask("DELETE", f"/sandboxes/{running['sandboxID']}")[0], 204)
        self.assertEqual(self.ask("GET", "/health", sandbox=running)[0], 502)

    def ends_in_log(self, sandbox):
        logs = self.ask("GET", f"/v2/sandboxes/{sandbox['sandboxID']}/logs")[1]["logs"]
        return [entry["fields"] for entry in logs if entry["message"] == "a process ended"]

    def test_the_end_of_a_process_whose_client_left_is_in_the_log_once(self):
        sandbox = self.create()
        self.start(sandbox, "until test -e /tmp/first; do sleep 0.02; done; exit 3")
        self.start(sandbox, "until test -e /tmp/second; do sleep 0.02; done; exit 4")
        self.output_of(sandbox, "touch /tmp/first")
        codes = lambda: sorted(fields["exit_code"] for fields in self.ends_in_log(sandbox))  # noqa: E731
        self.assertTrue(harness.wait_until(lambda: codes() == ["0", "3"], 30), codes())
        # The end of one that ends while no server runs is noted by the next one.
        self.start(sandbox, "while test -e /proc/self; do sleep 0.1; done")
        self.output_of(sandbox, "(sleep 1; touch /tmp/second) >/dev/null 2>&1 </dev/null &")
        self.assertEqual(codes(), ["0", "0", "3"])  # what is logged is written by then
        self.server.stop(signal.SIGKILL)
        ended = ["exec", sandbox["sandboxID"], "--", "sh", "-c", "until test -e /tmp/second; do sleep 0.1; done"]
        self.server.caller.caisson(*ended, env={"CAISSON_RUN_DIR": str(self.server.run_folder)})
        self.server.start()
        self.assertTrue(harness.wait_until(lambda: "4" in codes(), 30), codes())
        self.assertEqual(codes(), ["0", "0", "3", "4"])
        self.assertIn({"tag": TAG, "exit_code": "4"}.items(), [
            {name: fields.get(name) for name in ("tag", "exit_code")}.items() for fields in self.ends_in_log(sandbox)])

    def test_a_record_that_cannot_be_read_ends_no_sandbox(self):
        kept, damaged = self.create(), self.create()
        self.server.stop()
        path = pathlib.Path(self.server.caller.env["CAISSON_STATE_DIR"]) / "server" / "caisson.db"

        def set_lifecycle(text):
            with contextlib.closing(sqlite3.connect(path)) as database, database:
                was = database.execute("SELECT lifecycle FROM sandboxes WHERE id = ?", (damaged["sandboxID"],)).fetchone()
                database.execute("UPDATE sandboxes SET lifecycle = ? WHERE id = ?", (text, damaged["sandboxID"]))
            return was[0]

        lifecycle = set_lifecycle("{")
        self.server.start()
        self.assertEqual(set(self.listed()), {kept["sandboxID"]})
        self.assertEqual(set(self.server.sandboxes()), {kept["sandboxID"], damaged["sandboxID"]})
        set_lifecycle(lifecycle)
        self.assertTrue(harness.wait_until(lambda: damaged["sandboxID"] in self.listed(), 60))
        self.assertEqual(self.output_of(damaged, "echo alive"), "alive\n")

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

    def test_a_first_key_is_not_made_where_nobody_sees_it(self):
        caller = self.server.caller
        folder, said = caller.folder / "keyless", caller.folder / "keyless.log"
        with open(said, "wb") as log:
            process = caller.popen("serve", "--listen", "127.0.0.1:0", "--state-dir", folder / "state", "--run-dir", folder / "run",
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.assertTrue(harness.wait_until(lambda: b"serving" in said.read_bytes(), 30), said.read_bytes())
        finally:
            process.terminate()
            process.wait(20)
        self.assertIn(b"no API key yet; make one with caisson key create", said.read_bytes())
        self.assertNotIn(b"e2b_", said.read_bytes())


class Links(Case):
    """The server works on files with root's rights inside; links that a user plants there do not lend them to him."""

    def filesystem(self, sandbox, method, body):
        return self.ask("POST", f"/filesystem.Filesystem/{method}", body, sandbox)[0]

    def test_a_planted_link_moves_and_removes_nothing_of_roots(self):
        sandbox = self.create()
        self.output_of(sandbox, "mkdir -p ~/mine && ln -s /etc ~/way && echo x >~/mine/f && echo x >~/g")
        home = self.output_of(sandbox, "cd && pwd").strip()
        before = self.output_of(sandbox, "ls -A /etc | sort")
        self.assertEqual(self.filesystem(sandbox, "Remove", {"path": f"{home}/way/hosts"}), 403)
        self.assertEqual(self.filesystem(sandbox, "Remove", {"path": f"{home}/way/init.d"}), 403)
        self.assertEqual(self.filesystem(sandbox, "MakeDir", {"path": f"{home}/way/made/below"}), 403)
        for source, destination in (("way/hosts", "taken"), ("g", "way/hosts"), ("g", "way/new")):
            body = {"source": f"{home}/{source}", "destination": f"{home}/{destination}"}
            self.assertEqual(self.filesystem(sandbox, "Move", body), 403, body)
        self.assertEqual(self.output_of(sandbox, "ls -A /etc | sort"), before)
        # What is his own, and the link itself, are moved and removed as ever.
        self.assertEqual(self.filesystem(sandbox, "Move", {"source": f"{home}/g", "destination": f"{home}/a/b/g"}), 200)
        self.assertEqual(self.filesystem(sandbox, "Remove", {"path": f"{home}/mine"}), 200)
        self.assertEqual(self.filesystem(sandbox, "Remove", {"path": f"{home}/way"}), 200)
        self.assertEqual(self.output_of(sandbox, "cd && find . -newer /etc/hostname | grep -v '^.$' | sort"),
                         "./a\n./a/b\n./a/b/g\n")

    def test_a_composition_reads_with_the_users_rights(self):
        sandbox = self.create()
        home = self.output_of(sandbox, "cd && pwd && echo one >one && echo two >two").strip()
        body = {"source_paths": ["/etc/shadow"], "destination": f"{home}/all", "username": "user"}
        status, answer = self.ask("POST", "/files/compose", body, sandbox)
        self.assertEqual(status, 403, answer)
        body["source_paths"] = [f"{home}/one", f"{home}/two"]
        status, answer = self.ask("POST", "/files/compose", body, sandbox)
        self.assertEqual(status, 200, answer)
        self.assertEqual(self.output_of(sandbox, "cat ~/all; ls ~/one ~/two 2>/dev/null || test -f /etc/shadow"),
                         "one\ntwo\n")


def status_of(pid):
    """The fields of /proc/PID/status."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}


class Rights(Case):
    """Who a server is that root has started, and what of it is root's."""

    def setUp(self):
        if self.server.process is None:
            self.server.start()

    def maker(self):
        children = pathlib.Path(f"/proc/{self.server.process.pid}/task/{self.server.process.pid}/children").read_text()
        pids = {status_of(pid)["Name"]: int(pid) for pid in children.split()}
        self.assertEqual(set(pids), {"caisson-maker", "vault-keeper"})
        return pids["caisson-maker"]

    def test_the_server_is_nobody_and_may_nothing(self):
        for task in pathlib.Path(f"/proc/{self.server.process.pid}/task").iterdir():
            status = status_of(f"{self.server.process.pid}/task/{task.name}")
            self.assertEqual(set(status["Uid"].split()), {str(0x7ffcf002)}, status)
            self.assertEqual(set(status["Gid"].split()), {str(0x7ffcf002)})
            self.assertEqual(status["Groups"], "")
            for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                self.assertEqual(int(status[kind], 16), 0, kind)
            self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    def test_the_maker_is_root_has_one_thread_and_no_socket_of_the_network(self):
        status = status_of(self.maker())
        self.assertEqual((set(status["Uid"].split()), status["Threads"]), ({"0"}, "1"))

        # Its socket to the server, once all requests are answered.
        def sockets():
            names = [os.readlink(link) for link in pathlib.Path(f"/proc/{self.maker()}/fd").iterdir()]
            return sum(name.startswith("socket:") for name in names)
        self.assertTrue(harness.wait_until(lambda: sockets() == 1, 10))

    def test_sandboxes_are_in_folders_that_the_server_cannot_read(self):
        self.create()
        folder = (self.server.run_folder / "sandboxes").stat()
        self.assertEqual((folder.st_uid, folder.st_mode & 0o777), (0, 0o700))
        state = pathlib.Path(self.server.caller.env["CAISSON_STATE_DIR"])
        self.assertEqual(((state / "images").stat().st_uid, (state / "images").stat().st_mode & 0o777), (0, 0o700))
        for own in (state / "server", state / "server/caisson.db", self.server.run_folder / "served-env"):
            self.assertEqual((own.stat().st_uid, own.stat().st_mode & 0o077), (0x7ffcf002, 0), own)

    def test_without_its_maker_the_server_ends(self):
        os.kill(self.maker(), signal.SIGKILL)
        self.assertEqual(self.server.process.wait(20), 125)
        self.assertIn("what the server needs has ended", self.server.said())
        self.server.process.stdout.close()
        self.server.process = None

    def test_the_maker_ends_with_its_server(self):
        maker = self.maker()
        self.server.stop(signal.SIGKILL)
        self.assertTrue(harness.wait_until(lambda: maker not in dict(harness.living_children()), 10))

    def test_it_becomes_whom_it_is_told_to_be_and_takes_its_files_along(self):
        self.server.stop()
        self.server.arguments = ["--user", "54321:54322"]
        try:
            self.server.start()
            status = status_of(self.server.process.pid)
            self.assertEqual((set(status["Uid"].split()), set(status["Gid"].split())), ({"54321"}, {"54322"}))
        finally:
            self.server.stop()
            self.server.arguments = []
        self.server.start()
        self.assertEqual(set(status_of(self.server.process.pid)["Uid"].split()), {str(0x7ffcf002)})

    def refused(self, *arguments):
        caller = self.server.caller
        done = caller.caisson("serve", "--listen", "127.0.0.1:0", *arguments)
        self.assertEqual(done.returncode, 125, done)
        return done.err

    def test_a_user_that_cannot_be_is_refused(self):
        for name in ("root", "0", "nobody-by-this-name"):
            error = self.refused("--user", name)
            self.assertIn(f"user: found '{name}'", error)
            self.assertIn("allowed is a user of this host that is not root", error)

    def test_a_key_that_its_user_cannot_read_is_named(self):
        certificate = self.server.caller.write("tls.crt", "certificate", 0o644)
        key = self.server.caller.write("tls.key", "key", 0o600)
        error = self.refused("--tls-listen", "127.0.0.1:0", "--tls-domain", "a.test", "--tls-certificate", str(certificate),
                             "--tls-key", str(key), "--state-dir", str(self.server.caller.folder / "other"), "--run-dir", str(self.server.caller.folder / "there"))
        self.assertIn(f"cannot use {key}; it must be readable for that user", error)

    def test_folders_that_its_user_cannot_reach_are_named(self):
        shut = self.server.caller.mkdir("shut", 0o700)
        error = self.refused("--state-dir", str(shut / "state"), "--run-dir", str(shut / "run"))
        self.assertIn(f"cannot use {shut}/state/server", error)
        self.assertIn("others must be allowed to go through", error)


class Ordinary(unittest.TestCase):
    """A server of an ordinary user is that user's from end to end."""

    def test_it_stays_who_it_is_and_makes_sandboxes(self):
        harness.subreaper()
        with harness.Caller("range") as caller:
            done = caller.caisson("image", "import", "base", serve_lab.ARCHIVE, timeout=200)
            self.assertEqual(done.returncode, 0, done)
            server = serve_lab.Server(caller)
            try:
                status = status_of(server.process.pid)
                self.assertEqual(set(status["Uid"].split()), {str(caller.uid)})
                self.assertEqual((int(status["CapEff"], 16), status["NoNewPrivs"], status["Seccomp"]), (0, "1", "2"))
                asked = wire.Wire(server)
                sandbox = asked.create()
                # Its files lie in memory, of which they get half: 512 MiB are the default.
                self.assertEqual(asked.run(sandbox, "stat -f -c '%b %S' /home"), (0, f"{(256 << 20) // 4096} 4096\n"))
                asked.start(sandbox, "while sleep 0.1; do echo x >>/tmp/ticks; done", TAG)
                server.stop(signal.SIGKILL)
                server.start()
                self.assertTrue(harness.wait_until(lambda: asked.run(sandbox, "test -s /tmp/ticks && id -un") == (0, "user\n"), 10))
                asked.kill(sandbox)
            finally:
                server.stop()
                self.assertEqual(server.end_sandboxes(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
