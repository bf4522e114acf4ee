"""Pulling from servers that break off, lie, or point elsewhere."""
import json
import os
import pathlib
import subprocess
import sys
import threading
import unittest

import registry_case
from registry_case import harness, lab


class Broken(registry_case.PullTest):
    """Servers that break off, and those that lie."""

    def setUp(self):
        super().setUp()
        # Larger than what is in flight anywhere.
        self.layer = lab.tar_of({"data": os.urandom(8 << 20)})
        self.answers, self.manifest, self.config = lab.image_answers("a", [self.layer])
        self.blob = f"/v2/a/blobs/{lab.digest(self.layer)}"

    def ranges(self, server):
        return [headers.get("Range") for path, headers in server.seen if path == self.blob]

    def part(self, handler, cut_after=None, ignore_range=False):
        """The layer, or its part that is asked for; the connection breaks after `cut_after` bytes of it."""
        wanted = handler.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and not ignore_range else 0
        body = self.layer[start:]
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.layer) - 1}/{len(self.layer)}")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:cut_after])
        if cut_after is not None:
            handler.close_connection = True

    def test_a_download_that_breaks_goes_on_where_it_ended(self):
        cuts = [3 << 20, 1 << 20]
        self.answers[self.blob] = lambda handler: self.part(handler, cuts.pop(0) if cuts else None)
        server = self.serve(lab.Scripted(self.answers))
        done = self.pull(f"{server.name}/a:1")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.ranges(server), [None, f"bytes={3 << 20}-", f"bytes={4 << 20}-"])
        self.assertIn("the connection broke", done.err)

    def test_a_registry_without_ranges_starts_again(self):
        cuts = [3 << 20]
        self.answers[self.blob] = lambda handler: self.part(handler, cuts.pop(0) if cuts else None, ignore_range=True)
        server = self.serve(lab.Scripted(self.answers))
        self.assertEqual(self.pull(f"{server.name}/a:1").returncode, 0)
        self.assertEqual(self.ranges(server), [None, f"bytes={3 << 20}-"])

    def test_a_killed_pull_is_gone_on_with_by_the_next(self):
        half, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def stall(handler):
            if half.is_set():
                return self.part(handler)
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(self.layer)))
            handler.end_headers()
            handler.wfile.write(self.layer[:4 << 20])
            handler.wfile.flush()
            half.set()
            go_on.wait(60)
            handler.close_connection = True
            return None

        self.answers[self.blob] = stall
        server = self.serve(lab.Scripted(self.answers))
        process = self.caller.popen("image", "pull", f"{server.name}/a:1", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertTrue(half.wait(60))
        partial = self.folder / "state" / "caisson" / "images" / "partial"
        there = lambda: any(path.stat().st_size > 1 << 20 for path in partial.glob("*"))  # noqa: E731
        self.assertTrue(harness.wait_until(there, 60))
        process.kill()
        process.wait()
        go_on.set()
        self.assert_store_empty()
        report = self.pulled(f"{server.name}/a:1")
        self.assertLess(report["downloaded"], len(self.layer))
        self.assertGreater(report["downloaded"], 0)
        self.assertTrue(self.ranges(server)[-1].startswith("bytes="))

    def test_bytes_with_another_digest_are_never_kept(self):
        wrong = bytearray(self.layer)
        wrong[5 << 20] ^= 1
        self.answers[self.blob] = (200, bytes(wrong), {})
        server = self.serve(lab.Scripted(self.answers))
        self.assert_refused(self.pull(f"{server.name}/a:1"), lab.digest(self.layer), lab.digest(bytes(wrong)))
        self.assert_store_empty()

    def test_a_wrong_beginning_is_fetched_again(self):
        # As if a disk had lost what an earlier pull began.
        partial = self.folder / "state" / "caisson" / "images" / "partial"
        self.answers[self.blob] = self.part
        server = self.serve(lab.Scripted(self.answers))
        self.assertEqual(self.caller.caisson("image", "ls").returncode, 0)
        partial.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.caller.own(partial)
        path = partial / lab.digest(self.layer).removeprefix("sha256:")
        self.caller.write(path, b"x" * (1 << 20))
        self.assertEqual(self.pull(f"{server.name}/a:1").returncode, 0)
        self.assertEqual(self.ranges(server), [f"bytes={1 << 20}-", None])

    def test_a_wrong_configuration_is_refused(self):
        path = f"/v2/a/blobs/{lab.digest(self.config)}"
        for wrong in (self.config + b" ", self.config.replace(b"linux", b"linuX")):
            server = self.serve(lab.Scripted({**self.answers, path: (200, wrong, {})}))
            done = self.pull(f"{server.name}/a:1")
            self.assert_refused(done)
            self.assertTrue("sha256:" in done.err or "more than" in done.err, done)
        self.assert_store_empty()

    def test_sizes_are_held(self):
        huge = self.manifest + b" " * (4 << 20)
        longer = {**self.answers, self.blob: (200, self.layer + b"more", {})}
        shorter = {**self.answers, self.blob: (200, self.layer[:-512], {})}
        too_large = json.loads(self.manifest)
        too_large["layers"][0]["size"] = 1 << 50
        cases = [({**self.answers, "/v2/a/manifests/1": (200, huge, {"Content-Type": lab.MANIFEST})}, "more than"),
                 (longer, "more than"), (shorter, "declared"),
                 ({**self.answers, "/v2/a/manifests/1": (200, json.dumps(too_large).encode(), {"Content-Type": lab.MANIFEST})},
                  "allowed are")]
        for answers, word in cases:
            server = self.serve(lab.Scripted(answers))
            self.assert_refused(self.pull(f"{server.name}/a:1"), word)
            self.assert_store_empty()

    def test_an_endless_answer_is_cut(self):
        def endless(handler):
            handler.send_response(200)
            handler.send_header("Content-Type", lab.MANIFEST)
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.close_connection = True
            while True:
                handler.wfile.write(b" " * 65536)

        server = self.serve(lab.Scripted({**self.answers, "/v2/a/manifests/1": endless}))
        self.assert_refused(self.pull(f"{server.name}/a:1"), "more than")

    def test_a_registry_that_is_busy_is_asked_again(self):
        busy = [(429, b"", {"Retry-After": "1"}), (503, b"", {})]
        good = self.answers["/v2/a/manifests/1"]
        self.answers["/v2/a/manifests/1"] = lambda handler: lab.reply(handler, *(busy.pop(0) if busy else good))
        server = self.serve(lab.Scripted(self.answers))
        done = self.pull(f"{server.name}/a:1")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("status 429", done.err)
        self.assertIn("status 503", done.err)
        self.assertEqual(len(server.paths("/manifests/")), 3)

    def test_a_registry_that_stays_broken_is_given_up(self):
        server = self.serve(lab.Scripted({**self.answers, "/v2/a/manifests/1": (500, b"", {})}))
        self.assert_refused(self.pull(f"{server.name}/a:1", "--quiet", timeout=120), "status 500", "given up after 6 tries")

    def test_redirects_have_an_end_and_no_way_out(self):
        path = "/v2/a/manifests/1"
        for location, word in ((path, "more than 5 redirects"), ("http://registry.example.com/x", "plain HTTP"),
                               ("file:///etc/passwd", "URL"), ("", "more than 5 redirects")):
            server = self.serve(lab.Scripted({**self.answers, path: (302, b"", {"Location": location})}))
            done = self.pull(f"{server.name}/a:1")
            self.assertEqual(done.returncode, 125, done)
            if location:
                self.assertIn(word, done.err, done)

    def test_manifests_that_are_none(self):
        foreign = json.loads(self.manifest)
        foreign["layers"][0]["urls"] = ["https://example.com/layer"]
        for text, word in ((b'{"schemaVersion":1}', "2016"), (b"<html>", "manifest"), (json.dumps(foreign).encode(), "elsewhere")):
            server = self.serve(lab.Scripted({**self.answers, "/v2/a/manifests/1": (200, text, {})}))
            self.assert_refused(self.pull(f"{server.name}/a:1"), word)


@unittest.skipIf(os.geteuid() != 0, "a network namespace with an address of another host is root's to make")
class Elsewhere(registry_case.PullTest):
    """A registry that is not on this host: in a network namespace where 192.0.2.7 is somebody (registry_elsewhere.py)."""

    SECRET = "s3cr3t-elsewhere"

    def elsewhere(self, redirect=""):
        script = pathlib.Path(lab.__file__).with_name("registry_elsewhere.py")
        command = self.caller.command("image", "pull", "192.0.2.7:5000/a:1")
        folder = lab.login_file(self.folder / "login", "192.0.2.7:5000", "alice", self.SECRET)
        made = lab.run("unshare", "--net", "--", sys.executable, script, redirect, *command,
                       env={**self.caller.env, "DOCKER_CONFIG": str(folder)}, timeout=120)
        done = json.loads(made)
        self.assertNotIn(self.SECRET, done["err"] + done["out"])
        return done

    def allow(self):
        self.caller.write("home/.config/caisson/config.yaml", "insecure_registries: ['192.0.2.7:5000']\n")

    def test_plain_http_is_for_those_that_are_listed(self):
        done = self.elsewhere()
        self.assertEqual((done["code"], done["seen"]), (125, 0), done)
        self.assertIn("insecure_registries", done["err"])
        self.allow()
        done = self.elsewhere()
        self.assertEqual(done["code"], 0, done)
        self.assertGreater(done["authorized"], 0)

    def test_it_cannot_point_to_this_host(self):
        self.allow()
        plain, secure = "http:" + "//", "https:" + "//"
        for target in (f"{plain}127.0.0.1:5001/x", f"{plain}localhost:5001/x", f"{secure}2130706433:5001/x",
                       f"{secure}[::ffff:127.0.0.1]:5001/x"):
            done = self.elsewhere(target)
            self.assertEqual((done["code"], done["inside"]), (125, 0), done)
            self.assertIn("this host itself", done["err"])


if __name__ == "__main__":
    registry_case.main()
