#!/usr/bin/env python3
"""Snapshots and forks of a server's sandboxes, and pauses that keep the files alone: what is the same
inside, what of it stays in the store and for how long, and that the source does not notice. By E2B's wire
as it is, without an SDK."""
import json
import pathlib
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
from serve_case import Case  # noqa: E402

# Everything that a layer of changes can say: new, changed, removed, moved, made anew, linked, owned.
CHANGES = """
set -e
cd /home/user
mkdir -p deep/er; echo new >deep/er/file; chmod 640 deep/er/file; ln -s deep/er/file link; ln deep/er/file hard
printf 'odd\\nname' >"$(printf 'a\\tb')"
sudo sh -c 'echo changed >>/etc/passwd; rm -rf /usr/share/doc; mkdir /usr/share/doc; echo only >/usr/share/doc/only
  rm /etc/debian_version; mv /etc/profile /etc/profile.moved; chmod 700 /opt; chown 1234:4321 /srv
  mkfifo /opt/pipe; truncate -s 1G /opt/sparse'
"""
LOOK = """
cd /; sudo find etc home opt srv usr/share/doc usr/bin -printf '%p %y %m %U %G %s %l\\n' | grep -v '^etc/\\(hosts\\|hostname\\|resolv.conf\\|machine-id\\) ' |
  sed 's/^\\([^ ]* d [0-7]* [0-9]* [0-9]*\\) [0-9]*/\\1/' | sort; sudo sha256sum etc/passwd home/user/hard
"""


class SnapshotCase(Case):
    def tearDown(self):
        for sandbox in self.ask("GET", "/v2/sandboxes")[1]:
            self.wire.kill(sandbox)
        for snapshot in self.ask("GET", "/snapshots")[1]:
            self.delete(snapshot["snapshotID"])

    def delete(self, snapshot):
        return self.ask("DELETE", "/templates/" + snapshot.replace("/", "%2F").replace(":", "%3A"))[0]

    def snapshot(self, sandbox, **values):
        status, body = self.ask("POST", f"/sandboxes/{sandbox['sandboxID']}/snapshots", values)
        self.assertEqual(status, 201, body)
        return body["snapshotID"]

    def fork(self, sandbox, **values):
        status, body = self.ask("POST", f"/sandboxes/{sandbox['sandboxID']}/fork", values)
        self.assertEqual(status, 201, body)
        return [one["sandbox"] for one in body]

    def images(self):
        """The store's own names of snapshots."""
        done = self.server.caller.caisson("image", "ls", "--json")
        self.assertEqual(done.returncode, 0, done)
        return [image for image in json.loads(done.out) if "caisson-snapshot/" in image["name"]]


class Snapshots(SnapshotCase):
    def test_what_is_made_of_it_is_like_its_source(self):
        spec = {"image": "base", "user": "root", "workdir": "/srv", "privileges": "none", "limits": {"pids": 77}}
        status, source = self.ask("POST", "/v1/sandboxes", {"spec": spec})
        self.assertEqual(status, 201, source)
        name = self.snapshot({"sandboxID": source["id"]})
        look = "id -un; pwd; grep NoNewPrivs /proc/self/status"
        made = self.create(templateID=name)
        self.assertEqual(self.output_of(made, look).split(), ["root", "/srv", "NoNewPrivs:", "1"])
        self.assertEqual(self.ask("GET", f"/v1/sandboxes/{made['sandboxID']}/limits")[1]["pids"]["value"], 77)
        # What is asked for at its creation goes before.
        status, other = self.ask("POST", "/v1/sandboxes", {"spec": {"image": name, "limits": {"pids": 99}}})
        self.assertEqual(status, 201, other)
        self.assertEqual(self.ask("GET", f"/v1/sandboxes/{other['id']}/limits")[1]["pids"]["value"], 99)

    def test_what_was_changed_is_the_same_in_what_is_made_of_it(self):
        source = self.create()
        self.output_of(source, CHANGES)
        before = self.output_of(source, LOOK)
        made = self.create(templateID=self.snapshot(source))
        self.assertEqual(self.output_of(made, LOOK).splitlines(), before.splitlines())
        self.assertEqual(self.output_of(made, "stat -c %h /home/user/hard"), "2\n")
        # One of one that was made of one.
        self.output_of(made, "echo more >/home/user/more; rm -r /home/user/deep")
        after = self.output_of(made, LOOK)
        again = self.fork(made)[0]
        self.assertEqual(self.output_of(again, LOOK).splitlines(), after.splitlines())
        # The source has nothing of that.
        self.assertEqual(self.output_of(source, LOOK).splitlines(), before.splitlines())

    def test_the_source_goes_on_as_if_nothing_was(self):
        source = self.create()
        pid = self.start(source, "i=0; while sleep 0.02; do i=$((i+1)); echo $i >>/tmp/ticks; done")
        seen, failed, over = [], [], threading.Event()

        def ask():
            while not over.is_set():
                status, out = self.wire.run(source, "echo hello")
                seen.append(out)
                if (status, out) != (0, "hello\n"):
                    failed.append((status, out))

        asker = threading.Thread(target=ask)
        asker.start()
        try:
            names = []
            while len(names) < 3:
                self.assertTrue(harness.wait_until(
                    lambda: self.wire.run(source, "wc -l 2>/dev/null </tmp/ticks")[1].strip() not in ("", "0"), 10))
                names.append(self.snapshot(source))
        finally:
            over.set()
            asker.join()
        self.assertEqual(failed, [])
        self.assertGreater(len(seen), 0)
        self.assertEqual(len(set(names)), 3)
        self.assertEqual(self.output_of(source, f"kill -0 {pid} && echo there"), "there\n")
        ticks = [int(line) for line in self.output_of(source, "cat /tmp/ticks").split()]
        self.assertEqual(ticks, list(range(1, len(ticks) + 1)))
        # Processes are not in it.
        made = self.create(templateID=names[0])
        self.assertEqual(self.output_of(made, "pgrep -c sleep || true"), "0\n")

    def test_names_and_what_is_refused(self):
        source = self.create()
        self.output_of(source, "echo first >/home/user/which")
        name = self.snapshot(source, name="mine")
        self.assertRegex(name, "^[a-z0-9-]+/mine:default$")
        self.output_of(source, "echo second >/home/user/which")
        # The name means the new one from now on, and the old one is gone.
        self.assertEqual(self.snapshot(source, name="mine"), name)
        self.assertEqual(len(self.images()), 1)
        for asked in ("mine", name, name.partition(":")[0]):
            made = self.create(templateID=asked)
            self.assertEqual(self.output_of(made, "cat /home/user/which"), "second\n")
        other = dict(headers={"X-API-KEY": self.other_teams_key()})
        image = self.images()[0]
        for asked in (name, "mine", image["name"], "sha256:" + image["id"], image["id"][:12]):
            self.assertEqual(self.ask("POST", "/v2/sandboxes", {"templateID": asked}, **other)[0], 404, asked)
        path = f"/sandboxes/{source['sandboxID']}"
        for what in ("fork", "snapshots"):
            self.assertEqual(self.ask("POST", f"{path}/{what}", {}, **other)[0], 404)
            self.assertEqual(self.ask("POST", f"/sandboxes/i00000000000000000000/{what}", {})[0], 404)
        self.assertEqual(self.ask("GET", "/snapshots", **other), (200, []))
        self.assertEqual(self.ask("DELETE", "/templates/mine", **other)[0], 404)
        self.assertEqual(self.ask("POST", f"{path}/snapshots", {"name": "No Name"})[0], 400)
        self.assertEqual(self.ask("POST", f"{path}/pause", {})[0], 204)
        for what in ("fork", "snapshots"):
            self.assertEqual(self.ask("POST", f"{path}/{what}", {})[0], 409)

    def other_teams_key(self):
        caller = self.server.caller
        caller.caisson("team", "create", "other", "--state-dir", caller.env["CAISSON_STATE_DIR"])
        return self.server.new_key("--team", "other")

    def test_a_removed_snapshot_leaves_nothing_in_the_store(self):
        source = self.create()
        self.output_of(source, "echo x >/home/user/x")
        before = self.store_files()
        name = self.snapshot(source)
        self.assertEqual(len(self.images()), 1)
        self.assertEqual(self.delete(name), 204)
        self.assertEqual(self.delete(name), 404)
        self.assertEqual(self.images(), [])
        self.assertTrue(harness.wait_until(lambda: self.store_files() == before, 10), self.store_files() ^ before)

    def store_files(self):
        folder = pathlib.Path(self.server.caller.env["CAISSON_STATE_DIR"]) / "images"
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.parent.name in ("blobs", "rootfs", "ids", "refs", "tmp", "partial")}

    def test_snapshots_outlive_their_server_and_their_source(self):
        source = self.create()
        self.output_of(source, "echo x >/home/user/x")
        name = self.snapshot(source)
        self.wire.kill(source)
        self.server.stop(signal.SIGKILL)
        self.server.start()
        self.assertEqual([one["snapshotID"] for one in self.ask("GET", "/snapshots")[1]], [name])
        self.assertEqual(self.output_of(self.create(templateID=name), "cat /home/user/x"), "x\n")

    def test_a_pause_that_keeps_the_files_ends_what_runs(self):
        box = self.create()
        self.start(box, "setsid sleep 1000 & exec sleep 1000")
        self.assertTrue(harness.wait_until(lambda: self.wire.run(box, "pgrep -c sleep")[1] == "2\n", 10))
        boot = self.output_of(box, "echo kept >/home/user/kept; cat /proc/sys/kernel/random/boot_id").split()
        path = f"/sandboxes/{box['sandboxID']}"
        self.assertEqual(self.ask("POST", f"{path}/pause", {"memory": False})[0], 204)
        self.assertEqual(self.ask("GET", path)[1]["state"], "paused")
        self.server.stop(signal.SIGKILL)
        self.server.start()
        self.assertEqual(self.ask("POST", f"{path}/connect", {"timeout": 60})[0], 201)
        now = self.output_of(box, "cat /proc/sys/kernel/random/boot_id; pgrep -c sleep || true; cat /home/user/kept").split()
        self.assertNotEqual(now[0], boot[0])
        self.assertEqual(now[1:], ["0", "kept"])
        self.assertEqual(self.ask("POST", "/process.Process/List", {}, box), (200, {"processes": []}))
        # The same at a resume of one whose memory was kept.
        pid = self.start(box, "sleep 1000")
        self.assertEqual(self.ask("POST", f"{path}/pause", {})[0], 204)
        self.assertEqual(self.ask("POST", f"/v2{path}/connect", {"timeout": 60, "memory": False})[0], 201)
        again = self.output_of(box, f"cat /proc/sys/kernel/random/boot_id; kill -0 {pid} 2>/dev/null || echo gone").split()
        self.assertNotEqual(again[0], now[0])
        self.assertEqual(again[1], "gone")


class DyingServer(SnapshotCase):
    """Apart from the others: caisson-maker may finish what nobody waits for, and the image stays until a sweep."""

    def test_a_server_that_dies_while_it_takes_one_holds_nothing(self):
        source = self.create()
        self.output_of(source, "head -c 100M /dev/urandom >/home/user/large")
        pid = self.start(source, "while sleep 0.05; do echo x >>/tmp/ticks; done")
        self.assertTrue(harness.wait_until(lambda: self.wire.run(source, "test -s /tmp/ticks")[0] == 0, 10))
        taker = threading.Thread(target=lambda: self.assertRaises(Exception, self.snapshot, source))
        taker.start()
        time.sleep(0.3)
        self.server.stop(signal.SIGKILL)
        taker.join()
        self.server.start()
        count = int(self.output_of(source, "wc -l </tmp/ticks"))
        self.assertTrue(harness.wait_until(lambda: int(self.output_of(source, "wc -l </tmp/ticks")) > count, 10))
        self.assertEqual(self.output_of(source, f"kill -0 {pid} && echo there"), "there\n")
        self.assertEqual(self.ask("GET", "/snapshots")[1], [])
        # Until then it writes into the store, which goes with this test.
        self.assertTrue(harness.wait_until(lambda: len(self.images()) == 1, 60))


if __name__ == "__main__":
    unittest.main(verbosity=2)
