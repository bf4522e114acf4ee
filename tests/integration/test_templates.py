#!/usr/bin/env python3
"""Templates that clients build on a real server: by E2B's wire as it is, without an SDK. Over the base image, all on
the loopback."""
import hashlib
import io
import json
import os
import pathlib
import signal
import struct
import sys
import tarfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
import serve_lab  # noqa: E402

BUILD_SECONDS = 120


def archive(files):
    """A tar of these names and contents, as the SDK sends one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


class Client(unittest.TestCase):
    """Who asks a server, which a class derived from this one has as `server`, for builds."""

    server = None

    def ask(self, method, path, body=None, key=None, headers=None, raw=None):
        """(status, answer)"""
        headers = {"X-API-KEY": key or self.server.key, "Content-Type": "application/json", **(headers or {})}
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        url = path if path.startswith("http") else self.server.address["url"] + path
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
        except urllib.error.HTTPError as error:
            text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else text

    def ordered(self, name, order, key=None, **values):
        """A build that has been given its order."""
        status, made = self.ask("POST", "/v3/templates", {"name": name, "cpuCount": 1, "memoryMB": 512, **values}, key=key)
        self.assertEqual(status, 202, made)
        status, answer = self.ask("POST", f"/v2/templates/{made['templateID']}/builds/{made['buildID']}", order, key=key)
        self.assertEqual(status, 202, answer)
        return made

    def state(self, made, offset=0, key=None):
        status, answer = self.ask("GET", f"/templates/{made['templateID']}/builds/{made['buildID']}/status?logsOffset={offset}", key=key)
        self.assertEqual(status, 200, answer)
        return answer

    def finished(self, made, key=None):
        """Its last state, with the whole log."""
        end = time.monotonic() + BUILD_SECONDS
        while (state := self.state(made, key=key))["status"] in ("building", "waiting"):
            self.assertLess(time.monotonic(), end, state)
            time.sleep(0.1)
        entries = []
        while more := self.state(made, len(entries), key)["logEntries"]:
            entries += more
        return state, entries

    def built(self, name, order, **values):
        made = self.ordered(name, order, **values)
        state, entries = self.finished(made)
        self.assertEqual(state["status"], "ready", (state, entries[-20:]))
        return made

    def sandbox(self, template):
        status, sandbox = self.ask("POST", "/v2/sandboxes", {"templateID": template, "timeout": 120})
        self.assertEqual(status, 201, sandbox)
        self.addCleanup(self.ask, "DELETE", f"/sandboxes/{sandbox['sandboxID']}")
        return sandbox

    def images(self):
        """The names that images of templates have in the server's store."""
        listed = self.server.caller.caisson("image", "ls", "--json")
        self.assertEqual(listed.returncode, 0, listed)
        return [one["name"] for one in json.loads(listed.out) if one["name"].startswith("caisson-template/")]


class Templates(Client):
    @classmethod
    def setUpClass(cls):
        context = serve_lab.fresh()
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def run_in(self, sandbox, command):
        """What a login bash writes, as the sandbox's user."""
        message = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "{ " + command + "; } > /tmp/said 2>&1"]}}).encode()
        headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "X-Access-Token": sandbox["envdAccessToken"]}
        request = urllib.request.Request(self.server.address["url"] + "/process.Process/Start",
                                         b"\0" + struct.pack(">I", len(message)) + message,
                                         {**headers, "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
        request = urllib.request.Request(self.server.address["url"] + "/files?path=/tmp/said", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()

    def test_steps_become_what_a_sandbox_has(self):
        status, made = self.ask("POST", "/v3/templates", {"name": "steps", "cpuCount": 1, "memoryMB": 256})
        self.assertEqual(status, 202, made)
        files = archive({"copied.txt": "from outside"})
        digest = hashlib.sha256(files).hexdigest()
        place = f"/templates/{made['templateID']}/files/{digest}"
        status, upload = self.ask("GET", place)
        self.assertEqual((status, upload["present"]), (201, False))
        self.assertEqual(self.ask("PUT", upload["url"], raw=files, key="none")[0], 200)
        self.assertTrue(self.ask("GET", place)[1]["present"])
        order = {"fromTemplate": "base", "steps": [
            {"type": "ENV", "args": ["GREETING", "hello"]},
            {"type": "RUN", "args": ['echo "$GREETING $(whoami)" > /tmp/one']},
            {"type": "RUN", "args": ["whoami > /tmp/two", "root"]},
            {"type": "COPY", "args": ["copied.txt", "/srv/", "", ""], "filesHash": digest},
            {"type": "WORKDIR", "args": ["/srv"]},
            {"type": "USER", "args": ["worker"]}]}
        self.assertEqual(self.ask("POST", f"/v2/templates/{made['templateID']}/builds/{made['buildID']}", order)[0], 202)
        self.assertIn(self.state(made)["status"], ("building", "ready"))
        state, entries = self.finished(made)
        self.assertEqual(state["status"], "ready", (state, entries))
        self.assertEqual({entry.get("step") for entry in entries}, {"base", *"123456", "finalize"})
        sandbox = self.sandbox("steps")
        self.assertEqual((sandbox["templateID"], sandbox["alias"]), (made["templateID"], "steps"))
        self.assertEqual(self.run_in(sandbox, "cat /tmp/one /tmp/two copied.txt; echo; pwd; whoami; echo $GREETING").split("\n"),
                         ["hello user", "root", "from outside", "/srv", "worker", "hello", ""])
        detail = self.ask("GET", f"/sandboxes/{sandbox['sandboxID']}")[1]
        self.assertEqual((detail["cpuCount"], detail["memoryMB"]), (1, 256))
        # The same once more, from the cache; and a template of a template goes on where it ended.
        again = self.built("steps", order)
        self.assertEqual(again["templateID"], made["templateID"])
        said = [entry["message"] for entry in self.finished(again)[1]]
        self.assertGreaterEqual(said.count("taken from the cache"), 4, said)
        self.built("more", {"fromTemplate": "steps", "steps": [{"type": "RUN", "args": ["pwd"]}]})
        self.assertEqual(self.run_in(self.sandbox("more"), "cat copied.txt; whoami"), "from outsideworker\n")
        forced = self.ordered("steps", {**order, "force": True})
        self.assertNotIn("taken from the cache", [entry["message"] for entry in self.finished(forced)[1]])

    def test_a_step_that_fails_is_named(self):
        for step, reason in ((["echo why >&2; exit 3"], "failed to run command 'echo why >&2; exit 3': exit status 3"),
                             (["whoami", "root123"], "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'")):
            made = self.ordered("fails", {"fromImage": "base", "steps": [{"type": "RUN", "args": ["true"]}, {"type": "RUN", "args": step}]})
            state, entries = self.finished(made)
            self.assertEqual((state["status"], state["reason"]["step"]), ("error", "2"), state)
            self.assertIn(reason, state["reason"]["message"])
            self.assertEqual(entries[-1]["level"], "error")
            self.assertEqual("why" in [entry["message"] for entry in entries], "why" in step[0])
        self.assertEqual(self.ask("POST", "/v2/sandboxes", {"templateID": "fails"})[0], 404)

    def test_what_it_starts_is_there_wherever_processes_are_new(self):
        order = {"fromImage": "base", "startCmd": "cd /tmp && exec python3 -m http.server 8098",
                 "readyCmd": "curl -sf http://127.0.0.1:8098/ >/dev/null"}
        self.built("again", order)
        sandbox = self.sandbox("again")
        look = "curl -sf http://127.0.0.1:8098/ >/dev/null && echo up"
        path = f"/sandboxes/{sandbox['sandboxID']}"
        self.assertEqual(self.ask("POST", f"{path}/pause", {"memory": False})[0], 204)
        self.assertEqual(self.ask("POST", f"/v2{path}/connect", {"timeout": 60})[0], 201)
        self.assertIn("up", self.run_in(sandbox, look))
        status, forks = self.ask("POST", f"{path}/fork", {"timeout": 60})
        self.assertEqual(status, 201, forks)
        fork = forks[0]["sandbox"]
        self.addCleanup(self.ask, "DELETE", f"/sandboxes/{fork['sandboxID']}")
        self.assertIn("up", self.run_in(fork, look))
        status, snapshot = self.ask("POST", f"{path}/snapshots", {})
        self.assertEqual(status, 201, snapshot)
        self.addCleanup(self.ask, "DELETE", f"/templates/{snapshot['snapshotID']}")
        self.assertIn("up", self.run_in(self.sandbox(snapshot["snapshotID"]), look))

    def test_what_it_starts_is_there_and_ready(self):
        order = {"fromImage": "base", "startCmd": "cd /tmp && exec python3 -m http.server 8099",
                 "readyCmd": "curl -sf http://127.0.0.1:8099/ >/dev/null"}
        self.built("starts", order)
        said = self.run_in(self.sandbox("starts"), "curl -sf http://127.0.0.1:8099/ >/dev/null && echo up")
        self.assertEqual(said, "up\n")
        state, entries = self.finished(self.ordered("starts", {**order, "startCmd": "echo broken; exit 4"}))
        self.assertEqual((state["status"], state["reason"]["step"]), ("error", "finalize"), state)
        self.assertIn("the start command failed: exit status 4", state["reason"]["message"])
        self.assertIn("broken", [entry["message"] for entry in entries])

    def test_tags_say_which_build_is_meant(self):
        one = self.built("tagged:v1", {"fromImage": "base", "steps": [{"type": "RUN", "args": ["echo 1 > /tmp/build"]}]})
        self.assertEqual(one["tags"], ["v1"])
        self.assertEqual(self.ask("POST", "/v2/sandboxes", {"templateID": "tagged"})[0], 404)
        status, answer = self.ask("POST", "/templates/tags", {"target": "tagged:v1", "tags": ["stable", "default"]})
        self.assertEqual((status, answer), (201, {"buildID": one["buildID"], "tags": ["stable", "default"]}))
        two = self.built("tagged", {"fromImage": "base", "steps": [{"type": "RUN", "args": ["echo 2 > /tmp/build"]}]}, tags=["v2"])
        self.assertEqual(self.run_in(self.sandbox("tagged:v2"), "cat /tmp/build"), "2\n")
        self.assertEqual(self.run_in(self.sandbox(one["templateID"]), "cat /tmp/build"), "1\n")
        listed = self.ask("GET", f"/templates/{one['templateID']}/tags")[1]
        self.assertEqual({tag["tag"]: tag["buildID"] for tag in listed},
                         {"v1": one["buildID"], "stable": one["buildID"], "default": one["buildID"], "v2": two["buildID"]})
        for target, tags, status in (("tagged:v1", [":bad"], 400), ("tagged:v1", ["tagged:"], 400), ("tagged:none", ["a"], 404),
                                     ("none", ["a"], 404), ("base", ["a"], 403)):
            self.assertEqual(self.ask("POST", "/templates/tags", {"target": target, "tags": tags})[0], status, (target, tags))
        self.assertEqual(self.ask("DELETE", "/templates/tags", {"name": "tagged", "tags": ["v2"]})[0], 204)
        self.assertEqual(self.ask("POST", "/v2/sandboxes", {"templateID": "tagged:v2"})[0], 404)

    def test_another_team_sees_it_only_when_it_is_public(self):
        self.server.caller.caisson("team", "create", "others", "--state-dir", self.server.caller.env["CAISSON_STATE_DIR"])
        other = self.server.new_key("--team", "others")
        made = self.built("shared", {"fromImage": "base"})
        paths = {"DELETE": "/templates/", "GET": "/templates/"}
        self.assertEqual(self.ask("GET", "/templates/aliases/default/shared".replace("default/", "default%2F"), key=other)[0], 403)
        self.assertEqual(self.ask("GET", "/templates/aliases/shared", key=other)[0], 404)
        for method, path in paths.items():
            self.assertEqual(self.ask(method, path + made["templateID"], key=other)[0], 403)
        for body in ({"templateID": made["templateID"]}, {"templateID": "default/shared"},
                     {"templateID": f"caisson-template/{made['templateID']}:{made['buildID']}"}):
            self.assertEqual(self.ask("POST", "/v2/sandboxes", body, key=other)[0], 404, body)
        self.assertNotIn(made["templateID"], str(self.ask("GET", "/templates", key=other)[1]))
        state = f"/templates/{made['templateID']}/builds/{made['buildID']}/status"
        self.assertEqual(self.ask("GET", state, key=other)[0], 404)
        self.assertEqual(self.ask("GET", f"/templates/{made['templateID']}/files/{'a' * 64}", key=other)[0], 403)
        self.assertEqual(self.ask("PATCH", f"/v2/templates/{made['templateID']}", {"public": True}),
                         (200, {"aliases": ["shared"], "names": ["default/shared"]}))
        status, sandbox = self.ask("POST", "/v2/sandboxes", {"templateID": "default/shared"}, key=other)
        self.assertEqual(status, 201, sandbox)
        self.assertEqual(self.ask("DELETE", f"/sandboxes/{sandbox['sandboxID']}", key=other)[0], 204)
        self.assertEqual(self.ask("DELETE", f"/templates/{made['templateID']}", key=other)[0], 403)

    def test_removing_leaves_nothing(self):
        made = self.built("removed", {"fromImage": "base", "steps": [{"type": "RUN", "args": ["echo only this > /tmp/x"]}]})
        listed = self.ask("GET", f"/templates/{made['templateID']}")[1]
        self.assertEqual([build["status"] for build in listed["builds"]], ["ready"])
        self.assertTrue(any(made["templateID"] in name for name in self.images()))
        self.assertEqual(self.ask("DELETE", "/templates/removed")[0], 204)
        self.assertFalse(any(made["templateID"] in name for name in self.images()))
        self.assertEqual(self.ask("DELETE", "/templates/removed")[0], 404)
        self.assertEqual(self.ask("DELETE", "/templates/base")[0], 403)

    def test_what_cannot_be_is_refused(self):
        for body in ({"name": "Upper"}, {"name": "a:"}, {"name": ""}, {}, {"name": "a", "tags": ["no tag"]}, {"name": "a", "cpuCount": 0},
                     {"name": "a", "memoryMB": 1}, {"name": "a", "cpuCount": 999}, {"name": "a", "memoryMB": 1 << 24}):
            self.assertEqual(self.ask("POST", "/v3/templates", body)[0], 400, body)
        self.assertEqual(self.ask("POST", "/v3/templates", {"name": "elsewhere/a"})[0], 403)
        made = self.ask("POST", "/v3/templates", {"name": "refused"})[1]
        build = f"/v2/templates/{made['templateID']}/builds/{made['buildID']}"
        for order, status in (({}, 400), ({"fromImage": "a", "fromTemplate": "b"}, 400), ({"fromImage": "A B"}, 400),
                              ({"fromTemplate": "none"}, 404), ({"fromImage": "base", "steps": [{"type": "FLY"}]}, 400),
                              ({"fromImage": f"caisson-template/{made['templateID']}:{made['buildID']}"}, 400),
                              ({"fromImage": "base", "steps": [{"type": "COPY", "args": ["a", "b"], "filesHash": "a" * 64}]}, 400),
                              ({"fromImage": "base", "fromImageRegistry": {"type": "aws"}}, 501),
                              ({"fromImage": "base", "fromImageRegistry": {"type": "registry", "username": "a"}}, 400)):
            self.assertEqual(self.ask("POST", build, order)[0], status, order)
        self.assertEqual(self.ask("POST", f"/v2/templates/{made['templateID']}/builds/none", {"fromImage": "base"})[0], 404)
        self.assertEqual(self.state(made)["status"], "waiting")
        # An image that is neither here nor to be had.
        state, _ = self.finished(self.ordered("refused", {"fromImage": "registry.example.com/none"}))
        self.assertEqual((state["status"], state["reason"]["step"]), ("error", "base"))
        self.assertIn("images of registry.example.com are not pulled here", state["reason"]["message"])

    def test_uploads_need_their_own_right(self):
        made = self.ask("POST", "/v3/templates", {"name": "uploads"})[1]
        url = self.ask("GET", f"/templates/{made['templateID']}/files/{'b' * 64}")[1]["url"]
        self.assertEqual(self.ask("PUT", url.replace("b" * 64, "c" * 64), raw=b"x")[0], 403)
        self.assertEqual(self.ask("PUT", url[:-1] + ("0" if url[-1] != "0" else "1"), raw=b"x")[0], 403)
        self.assertEqual(self.ask("GET", f"/templates/{made['templateID']}/files/short")[0], 400)
        # A file that is none is found out by whoever unpacks it.
        self.assertEqual(self.ask("PUT", url, raw=b"no archive")[0], 200)
        order = {"fromImage": "base", "steps": [{"type": "COPY", "args": ["a", "b"], "filesHash": "b" * 64}]}
        self.assertEqual(self.ask("POST", f"/v2/templates/{made['templateID']}/builds/{made['buildID']}", order)[0], 202)
        state, _ = self.finished(made)
        self.assertEqual((state["status"], state["reason"]["step"]), ("error", "1"), state)

    def test_a_server_that_ends_ends_its_builds(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            made = self.ordered("interrupted", {"fromImage": "base", "force": True, "steps": [{"type": "RUN", "args": ["sleep 300"]}]})
            self.assertTrue(harness.wait_until(lambda: self.server.sandboxes(), 20))
            self.server.stop(how)
            self.assertTrue(harness.wait_until(lambda: not self.server.sandboxes(), 20), self.server.sandboxes())
            self.server.start()
            state = self.state(made)
            self.assertEqual(state["status"], "error", how)
            self.assertIn("started again", state["reason"]["message"])
            self.assertEqual([name for name in self.images() if made["buildID"] in name], [])


class Bounds(Client):
    """What one team may take, on a server that builds one template at a time and has little room for steps."""

    @classmethod
    def setUpClass(cls):
        context = serve_lab.fresh(arguments=("--builds-at-once", "1", "--builds-team-most", "2", "--build-cache", "1MiB", "--pool-in-use", "1"))
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        cls.teams = 0

    def team(self, *quota):
        """A key of a new team, and what the command line calls it."""
        type(self).teams += 1
        name, state = f"team-{self.teams}", self.server.caller.env["CAISSON_STATE_DIR"]
        for command in (("create", name), *([("set", name, *quota)] if quota else [])):
            done = self.server.caller.caisson("team", *command, "--state-dir", state)
            self.assertEqual(done.returncode, 0, done)
        return self.server.new_key("--team", name)

    def cached_steps(self):
        return set(os.listdir(pathlib.Path(self.server.caller.env["CAISSON_STATE_DIR"]) / "images" / "cache"))

    def test_more_builds_than_a_team_may_have_are_refused(self):
        key = self.team()
        order = {"fromImage": "base", "steps": [{"type": "RUN", "args": ["sleep 300"]}]}
        names = [f"many-{number}" for number in range(3)]
        made = []
        for name in names:
            status, build = self.ask("POST", "/v3/templates", {"name": name}, key=key)
            self.assertEqual(status, 202, build)
            self.addCleanup(self.ask, "DELETE", f"/templates/{name}", key=key)
            made.append(build)
        answers = [self.ask("POST", f"/v2/templates/{build['templateID']}/builds/{build['buildID']}", order, key=key) for build in made]
        self.assertEqual([status for status, _ in answers], [202, 202, 429], answers)
        self.assertEqual(answers[2][1]["code"], 429)
        self.assertIn("you have 2 builds that wait or go on", answers[2][1]["message"])
        # One that another team orders now is not behind both, but behind the one that has begun.
        self.assertTrue(harness.wait_until(lambda: self.state(made[0], key=key)["logEntries"], 60))
        other = self.team()
        status, theirs = self.ask("POST", "/v3/templates", {"name": "theirs"}, key=other)
        self.assertEqual(self.ask("POST", f"/v2/templates/{theirs['templateID']}/builds/{theirs['buildID']}",
                                  {"fromImage": "base"}, key=other)[0], 202)
        self.assertEqual(self.ask("DELETE", "/templates/many-0", key=key)[0], 204)
        self.addCleanup(self.ask, "DELETE", "/templates/theirs", key=other)
        self.assertTrue(harness.wait_until(lambda: self.state(theirs, key=other)["logEntries"], 60))
        self.assertEqual(self.state(made[1], key=key)["logEntries"], [])

    def test_a_build_is_one_of_the_sandboxes_that_a_team_may_have(self):
        key = self.team("--max-running", "1", "--max-memory", "256MiB")
        self.assertEqual(self.ask("POST", "/v3/templates", {"name": "large", "memoryMB": 512}, key=key)[0], 400)
        status, sandbox = self.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 120}, key=key)
        self.assertEqual(status, 201, sandbox)
        made = self.ordered("quota", {"fromImage": "base"}, key=key, memoryMB=256)
        said = lambda: [entry["message"] for entry in self.state(made, key=key)["logEntries"]]  # noqa: E731
        self.assertTrue(harness.wait_until(lambda: any("waiting: you have 1 running sandboxes" in line for line in said()), 30), said())
        self.assertEqual(self.state(made, key=key)["status"], "building")
        self.assertEqual(self.ask("DELETE", f"/sandboxes/{sandbox['sandboxID']}", key=key)[0], 204)
        self.addCleanup(self.ask, "DELETE", "/templates/quota", key=key)
        self.assertTrue(harness.wait_until(lambda: any(line.startswith("[1/") for line in said()), 60), said())

    def test_no_team_gets_what_another_has_built(self):
        order = {"fromImage": "base", "steps": [{"type": "RUN", "args": ["echo ours > /tmp/x"]}]}
        for key in (self.team(), self.team()):
            state, entries = self.finished(self.ordered("same", order, key=key), key=key)
            self.assertEqual(state["status"], "ready", (state, entries))
            self.assertNotIn("taken from the cache", [entry["message"] for entry in entries])

    def test_the_cache_is_bounded(self):
        # Larger than all that the cache may take.
        order = {"fromImage": "base", "steps": [{"type": "RUN", "args": ["head -c 3000000 /dev/urandom > /tmp/x"]},
                                                {"type": "RUN", "args": ["rm /tmp/x"]}]}
        made = self.built("large", order)
        # What the image keeps anyway is none of the cache's.
        self.assertTrue(any(made["templateID"] in name for name in self.images()))
        self.assertEqual(self.ask("DELETE", "/templates/large")[0], 204)
        self.built("small", {"fromImage": "base"})
        # Two steps, which every template begins with, are as good as free.
        self.assertTrue(harness.wait_until(lambda: len(self.cached_steps()) == 2, 30), self.cached_steps())
        entries = self.finished(self.built("large", order))[1]
        cached = {entry["step"] for entry in entries if entry["message"] == "taken from the cache"}
        self.assertEqual(cached, {"base"}, entries)

    def test_a_template_that_is_in_use_has_a_sandbox_ready(self):
        def metric(name):
            text = self.ask("GET", "/metrics")[1].decode()
            return int(float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"caisson_pool_{name} "))))

        taken = metric("taken_total")
        for _ in range(2):
            self.sandbox("base")
        self.assertTrue(harness.wait_until(lambda: metric("ready") == 1, 30))
        sandbox = self.sandbox("base")
        self.assertEqual(metric("taken_total"), taken + 1)
        self.assertEqual(self.ask("GET", f"/sandboxes/{sandbox['sandboxID']}")[1]["state"], "running")

    def test_an_image_goes_with_the_last_sandbox_that_was_made_of_it(self):
        made = self.built("leaving", {"fromImage": "base", "steps": [{"type": "RUN", "args": ["echo mine > /tmp/x"]}]})
        sandbox = self.sandbox("leaving")
        self.assertEqual(self.ask("DELETE", "/templates/leaving")[0], 204)
        here = lambda: any(made["templateID"] in name for name in self.images())  # noqa: E731
        # A sweep has looked at it: one takes this name away, which nothing refers to.
        stray = "caisson-template/stray:1"
        small = self.server.caller.folder / "small.tar.gz"
        small.write_bytes(archive({"file": "x"}))
        imported = self.server.caller.caisson("image", "import", stray, small)
        self.assertEqual(imported.returncode, 0, imported)
        self.built("sweeps", {"fromImage": "base"})
        self.assertTrue(harness.wait_until(lambda: stray not in self.images(), 30), self.images())
        self.assertTrue(here())
        self.assertEqual(self.ask("DELETE", f"/sandboxes/{sandbox['sandboxID']}")[0], 204)
        self.built("sweeps", {"fromImage": "base"})
        self.assertTrue(harness.wait_until(lambda: not here(), 30), self.images())


if __name__ == "__main__":
    unittest.main(verbosity=2)
