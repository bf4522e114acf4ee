#!/usr/bin/env python3
"""A newer server takes over from an older one, and an older one from a newer, under running sandboxes.

The older programs are those of release; the newer ones those of the switches preset, which say that they
speak the next version of the protocol (CAISSON_PROTOCOL=VERSION:LEAST) and understand one version back."""
import base64
import hashlib
import os
import pathlib
import sqlite3
import sys
import threading
import time
import unittest
import urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
from serve_case import TAG, Case  # noqa: E402

NEXT = {"preset": "switches", "CAISSON_PROTOCOL": "2:1"}
# Understands nothing of what runs.
STRANGER = {"preset": "switches", "CAISSON_PROTOCOL": "3:2"}
OLD = {"preset": "release"}
SCHEMA = pathlib.Path(__file__).with_name("schema_1.sql")


class Reader(threading.Thread):
    """Reads a stream until its end, whatever that is."""

    def __init__(self, events):
        super().__init__(daemon=True)
        self.events, self.output, self.ended = events, b"", False
        self.start()

    def run(self):
        try:
            for event in self.events:
                self.output += base64.b64decode(event.get("data", {}).get("stdout", ""))
                self.ended = self.ended or "end" in event
        except (OSError, urllib.error.URLError, ValueError):
            pass


class Upgrade(Case):
    def tearDown(self):
        self.become(OLD)
        for name in self.listed():
            self.ask("DELETE", f"/sandboxes/{name}")
        self.assertTrue(harness.wait_until(lambda: not self.server.sandboxes(), 20), self.server.sandboxes())

    def become(self, build):
        self.server.stop()
        self.server.caller.env.pop("CAISSON_PROTOCOL", None)
        self.server.preset = build["preset"]
        self.server.caller.env |= {name: value for name, value in build.items() if name != "preset"}
        self.server.start()

    def check_alive(self, sandbox):
        """Commands, files, pausing: everything that a client does with one."""
        self.assertEqual(self.output_of(sandbox, "echo $((6 * 7)); cat /etc/hostname >/dev/null"), "42\n")
        self.output_of(sandbox, "echo kept >/tmp/file")
        self.assertEqual(self.ask("GET", "/files?path=/tmp/file", sandbox=sandbox)[1], b"kept\n")
        name = sandbox["sandboxID"]
        self.assertEqual(self.ask("POST", f"/sandboxes/{name}/pause", {})[0], 204)
        self.assertEqual(self.ask("POST", f"/sandboxes/{name}/connect", {"timeout": 300})[0], 201)
        self.assertEqual(self.output_of(sandbox, "cat /tmp/file"), "kept\n")

    def ticks(self, sandbox):
        return len(self.ask("GET", "/files?path=/tmp/ticks", sandbox=sandbox)[1])

    def check_ticking(self, sandbox, pid):
        processes = self.ask("POST", "/process.Process/List", {}, sandbox)[1]["processes"]
        self.assertEqual([(found["pid"], found["tag"]) for found in processes], [(pid, TAG)])
        before = self.ticks(sandbox)
        self.assertTrue(harness.wait_until(lambda: self.ticks(sandbox) > before, 10))

    def check_change(self, first, then):
        self.become(first)
        running, paused, brief = self.create(), self.create(), self.create(timeout=40)
        ends = time.monotonic() + 40
        pid = self.start(running, "i=0; while sleep 0.1; do i=$((i+1)); echo $i; echo x >>/tmp/ticks; done")
        reader = Reader(self.stream(running, "Connect", {"process": {"pid": pid}}))
        self.assertTrue(harness.wait_until(lambda: reader.output, 10))
        frozen = self.start(paused, "while sleep 0.1; do echo x >>/tmp/ticks; done")
        self.assertTrue(harness.wait_until(lambda: self.ticks(paused), 10))
        self.assertEqual(self.ask("POST", f"/sandboxes/{paused['sandboxID']}/pause", {})[0], 204)
        before = self.listed()

        self.become(then)

        after = self.listed()
        self.assertEqual({name: found["state"] for name, found in after.items()},
                         {name: found["state"] for name, found in before.items()})
        self.check_ticking(running, pid)
        # The stream ended with its server; another one reads on where the output is now.
        reader.join(30)
        self.assertFalse(reader.is_alive() or reader.ended)
        again = Reader(self.stream(running, "Connect", {"process": {"pid": pid}}))
        self.assertTrue(harness.wait_until(lambda: again.output, 10))
        # What was paused is as it was, and goes on.
        self.assertEqual(self.ask("POST", f"/sandboxes/{paused['sandboxID']}/connect", {"timeout": 300})[0], 201)
        self.check_ticking(paused, frozen)
        made_now = self.create()
        for sandbox in (running, paused, made_now):
            self.check_alive(sandbox)
        # A deadline that the other server set.
        self.assertTrue(harness.wait_until(lambda: brief["sandboxID"] not in self.listed(), ends + 20 - time.monotonic()))
        self.assertGreater(time.monotonic(), ends - 2)
        return running, made_now

    def test_a_newer_server_goes_on_with_everything(self):
        self.check_change(OLD, NEXT)

    def test_an_older_server_goes_on_with_what_a_newer_one_made(self):
        # The command line of that version too.
        running, made_now = self.check_change(NEXT, OLD)
        for sandbox in (running, made_now):
            done = self.server.caller.caisson("exec", sandbox["sandboxID"], "--", "echo", "42",
                                              env={"CAISSON_RUN_DIR": str(self.server.run_folder)})
            self.assertEqual((done.returncode, done.out), (0, "42\n"), done)

    def test_a_server_that_cannot_speak_with_a_sandbox_leaves_it_alone(self):
        sandbox = self.create()
        pid = self.start(sandbox, "while sleep 0.1; do echo x >>/tmp/ticks; done")
        self.become(STRANGER)
        self.assertEqual(self.listed(), {})
        self.assertIn('"unreached":1', self.server.said())
        self.assertEqual(self.server.sandboxes(), [sandbox["sandboxID"]])
        self.become(OLD)
        self.check_ticking(sandbox, pid)

    def database(self):
        return pathlib.Path(self.server.caller.env["CAISSON_STATE_DIR"]) / "server" / "caisson.db"

    def test_the_database_of_the_first_version_is_upgraded(self):
        self.server.stop()
        kept = self.database().rename(self.database().with_suffix(".kept"))
        key, self.server.key = self.server.key, "e2b_" + "5" * 40
        try:
            with sqlite3.connect(self.database()) as made:
                made.executescript(SCHEMA.read_text())
                made.execute("INSERT INTO teams VALUES ('t1', 'default', 'Default', 1, NULL, NULL, NULL, NULL, NULL)")
                made.execute("INSERT INTO api_keys VALUES ('k1', 't1', 'old', ?, 'e2b_…5555', 1, NULL, NULL)",
                             (hashlib.sha256(self.server.key.encode()).digest(),))
                made.execute("INSERT INTO sandboxes VALUES ('gone00000000', 't1', 'base', 'base', 'base', 'gone00000000', 'user', '', 1,"
                             " 'running', 1, 1, 1, 1, 1, 1, '{}', '{}', '{}')")
            made.close()
            owner = self.database().parent.stat()
            os.chown(self.database(), owner.st_uid, owner.st_gid)
            self.server.start()
            # The old key is valid; what does not run any more is not there.
            self.assertEqual(self.ask("GET", "/v2/sandboxes"), (200, []))
            self.check_alive(self.create())
        finally:
            if self.server.process is not None:
                for name in self.listed():
                    self.ask("DELETE", f"/sandboxes/{name}")
            self.server.stop()
            for path in self.database().parent.glob("caisson.db*"):
                if path != kept:
                    path.unlink()
            kept.rename(self.database())
            self.server.key = key
            self.server.start()

    def test_a_newer_database_is_refused_and_stays_as_it_is(self):
        self.server.stop()
        with sqlite3.connect(self.database()) as changed:
            version = changed.execute("PRAGMA user_version").fetchone()[0]
            changed.execute("PRAGMA user_version = 4711")
        changed.close()
        before = self.database().read_bytes()
        done = self.server.caller.caisson("serve", "--listen", "127.0.0.1:0")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("version 4711, which a newer caisson made", done.err)
        self.assertEqual(self.database().read_bytes(), before)
        with sqlite3.connect(self.database()) as changed:
            changed.execute(f"PRAGMA user_version = {version}")
        changed.close()
        # What root has just made beside it belongs to root.
        for path in self.database().parent.glob("caisson.db-*"):
            path.unlink()
        self.server.start()


if __name__ == "__main__":
    unittest.main(verbosity=2)
