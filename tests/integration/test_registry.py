"""Pulling from a real registry, and from servers that lie, break off or want credentials for themselves.

Images are made and pushed by umoci and skopeo, the registry is Debian's docker-registry (tests/lib/registry_lab.py).
Everything is on loopback, in temporary folders.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import support  # noqa: E402

import registry_lab as lab  # noqa: E402

harness = support.harness
LAYERS = [{"bin/busybox": pathlib.Path(shutil.which("busybox")).read_bytes(), "bin/sh": "busybox", "bin/cat": "busybox",
           "etc/greeting": b"first\n", "gone": b"x\n"},
          {"etc/greeting": b"hello\n", ".wh.gone": b""}]
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


class Shared:
    """One folder, one plain registry with the image team/tool:1, made when they are first needed."""

    folder = registry = layout = None

    @classmethod
    def get(cls):
        if cls.folder is None:
            cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="caisson-registry-"))
            cls.folder.chmod(0o755)
            cls.layout = lab.make_layout(cls.folder, LAYERS, config=("--config.cmd", "/bin/sh"))
            cls.registry = lab.Registry(cls.folder / "registry")
            cls.registry.push(cls.layout, "t", "team/tool:1")
        return cls

    @classmethod
    def close(cls):
        if cls.registry:
            cls.registry.stop()
        if cls.folder:
            shutil.rmtree(cls.folder)


class PullTest(unittest.TestCase):
    """A caller with an empty store: the strongest that this process can be."""

    maxDiff = None

    def setUp(self):
        self.shared = Shared.get()
        self.caller = harness.Caller(harness.callers()[0])
        self.addCleanup(self.caller.close)
        self.folder = self.caller.folder

    def serve(self, server):
        self.addCleanup(server.stop)
        return server

    def pull(self, name, *options, **more):
        return self.caller.caisson("image", "pull", *options, name, **more)

    def pulled(self, name, *options, **more):
        done = self.pull(name, "--json", *options, **more)
        self.assertEqual(done.returncode, 0, done)
        return done.json()

    def assert_refused(self, done, *words):
        self.assertEqual(done.returncode, 125, done)
        self.assertNotIn("Traceback", done.err, done)
        for word in words:
            self.assertIn(word, done.err, done)

    def assert_store_empty(self):
        """No name, no image, and no blob that anybody could take for whole."""
        self.assertEqual(json.loads(self.caller.caisson("image", "ls", "--json").out), [])
        self.assertEqual(self.blobs(), [])

    def blobs(self):
        return lab.files_below(self.folder / "state" / "caisson" / "images" / "blobs")


class EveryCaller(unittest.TestCase):
    def test_an_image_is_pulled_and_runs(self):
        shared = Shared.get()
        name = f"{shared.registry.name}/team/tool:1"
        for kind in harness.callers():
            with self.subTest(kind=kind), harness.Caller(kind) as caller:
                done = caller.caisson("image", "pull", name)
                self.assertEqual(done.returncode, 0, done)
                self.assertIn("2 layers", done.out, done)
                script = "cat /etc/greeting; [ -e /gone ] || echo none"
                done = caller.caisson("run", "--image", name, "--", "/bin/sh", "-c", script)
                self.assertEqual((done.returncode, done.out), (0, "hello\nnone\n"), done)
                again = caller.caisson("image", "pull", "--json", name)
                self.assertEqual(again.json()["downloaded"], 0, again)


class Forms(PullTest):
    def test_docker_manifests_and_zstd_layers(self):
        registry, layout = self.shared.registry, self.shared.layout
        registry.push(layout, "t", "forms/docker:1", "--format", "v2s2")
        registry.push(layout, "t", "forms/zstd:1", "--format", "oci", "--dest-compress-format", "zstd",
                      "--dest-compress-level", "3", "--dest-compress")
        for name in ("docker", "zstd"):
            report = self.pulled(f"{registry.name}/forms/{name}:1")
            self.assertEqual(report["layers"], 2)
            done = self.caller.caisson("run", "--image", f"{registry.name}/forms/{name}:1", "--", "/bin/cat", "/etc/greeting")
            self.assertEqual((done.returncode, done.out), (0, "hello\n"), done)

    def test_of_an_index_this_machines_entry_is_taken(self):
        registry = self.shared.registry
        text = registry.get_manifest("team/tool", "1")
        entry = {"mediaType": lab.MANIFEST, "digest": lab.digest(text), "size": len(text)}

        def index(tag, *platforms):
            entries = [{**entry, "platform": {"os": system, "architecture": architecture}} for system, architecture in platforms]
            made = {"schemaVersion": 2, "mediaType": lab.INDEX, "manifests": entries}
            registry.put_manifest("team/tool", tag, json.dumps(made).encode(), lab.INDEX)

        index("many", ("linux", "s390x"), ("linux", MACHINE))
        self.assertEqual(self.pulled(f"{registry.name}/team/tool:many")["manifest"], lab.digest(text))
        index("others", ("linux", "s390x"), ("windows", "amd64"))
        self.assert_refused(self.pull(f"{registry.name}/team/tool:others"), f"linux/{MACHINE}", "linux/s390x", "windows/amd64")
        # Told to take it, the image is still not for there: its configuration says so.
        self.assert_refused(self.pull(f"{registry.name}/team/tool:others", "--platform", "linux/s390x"), f"linux/{MACHINE}")
        self.assert_refused(self.pull(f"{registry.name}/team/tool:1", "--platform", "linux"), "OS/ARCHITECTURE")

    def test_a_digest_means_that_manifest_and_no_other(self):
        name = f"{self.shared.registry.name}/team/tool"
        right = lab.digest(self.shared.registry.get_manifest("team/tool", "1"))
        report = self.pulled(f"{name}@{right}")
        self.assertEqual((report["name"], report["manifest"]), (f"{name}@{right}", right))
        self.assert_refused(self.pull(f"{name}@sha256:{'0' * 64}"), "no such image")
        # A registry that has something else under that digest.
        answers, manifest, _ = lab.image_answers("a", [lab.tar_of({"f": b"x"})])
        wrong = "sha256:" + "1" * 64
        answers[f"/v2/a/manifests/{wrong}"] = (200, manifest, {"Content-Type": lab.MANIFEST})
        server = self.serve(lab.Scripted(answers))
        self.assert_refused(self.pull(f"{server.name}/a@{wrong}"), wrong, lab.digest(manifest))

    def test_what_a_terminal_shows(self):
        done = self.caller.on_pty("image", "pull", f"{self.shared.registry.name}/team/tool:1")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("layers 2/2", done.out)
        self.assertIn("\x1b[J", done.out)

    def test_what_a_pipe_and_quiet_show(self):
        name = f"{self.shared.registry.name}/team/tool:1"
        done = self.pull(name)
        self.assertEqual(done.err.count("layer "), 2, done)
        self.assertNotIn("\x1b", done.err, done)
        self.caller.caisson("image", "rm", name)
        done = self.pull(name, "--quiet")
        self.assertEqual((done.returncode, done.out, done.err), (0, "", ""), done)


class Names(PullTest):
    def test_a_short_name_wants_a_setting(self):
        self.assert_refused(self.pull("team/tool:1"), "default_registry", "config.yaml", "HOST/team/tool:1")

    def test_the_default_registry_is_for_short_names(self):
        registry = self.shared.registry.name
        report = self.pulled("team/tool:1", env={"CAISSON_DEFAULT_REGISTRY": registry})
        self.assertEqual(report["name"], "team/tool:1")
        self.caller.write("home/.config/caisson/config.yaml", f"default_registry: {registry}/team\n")
        self.caller.caisson("image", "rm", "team/tool:1")
        self.assertEqual(self.pulled("tool:1")["name"], "tool:1")
        done = self.caller.caisson("run", "--image", "tool:1", "--", "/bin/cat", "/etc/greeting")
        self.assertEqual((done.returncode, done.out), (0, "hello\n"), done)

    def test_settings_are_refused_by_name(self):
        path = "home/.config/caisson/config.yaml"
        self.caller.write(path, "default_regestry: x\n")
        self.assert_refused(self.pull("tool"), "default_regestry", "default_registry", str(self.folder / path))
        self.caller.write(path, "images: {tool: base}\n")
        self.assert_refused(self.pull("tool"), "'base:latest'", "images")

    def test_what_is_not_there(self):
        registry = self.shared.registry.name
        self.assert_refused(self.pull(f"{registry}/team/tool:none"), "no such image")
        self.assert_refused(self.pull(f"{registry}/none:1"), "no such image")
        self.assert_refused(self.pull(f"127.0.0.1:{lab.free_port()}/a"), "connect")
        server = self.serve(lab.Scripted({"/v2/": (404, b"", {})}))
        self.assert_refused(self.pull(f"{server.name}/a"), "API v2")
        self.assert_refused(self.pull("Bad Name"), "image name")
        self.assert_refused(self.caller.caisson("image", "pull"), "one name")


class Encryption(PullTest):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-registry-tls-"))
        cls.place.chmod(0o755)
        cls.tls = lab.Tls(cls.place / "tls")
        cls.registry = lab.Registry(cls.place / "registry", tls=cls.tls)
        cls.registry.push(Shared.get().layout, "t", "team/tool:1")

    @classmethod
    def tearDownClass(cls):
        cls.registry.stop()
        shutil.rmtree(cls.place)

    def test_an_authority_is_named_by_the_environment(self):
        name = f"{self.registry.name}/team/tool:1"
        self.assert_refused(self.pull(name), "certificate", "SSL_CERT_FILE")
        self.assertEqual(self.pulled(name, env={"SSL_CERT_FILE": str(self.tls.authority)})["layers"], 2)

    def test_a_certificate_is_of_its_host_alone(self):
        # The certificate has no such name.
        name = f"other.localhost:{self.registry.port}/team/tool:1"
        done = self.pull(name, env={"SSL_CERT_FILE": str(self.tls.authority)})
        self.assertEqual(done.returncode, 125, done)
        self.assertTrue("certificate" in done.err or "resolve" in done.err, done)


class Logins(PullTest):
    SECRET = "s3cr3t-Pa55word"

    def registry_with(self, auth):
        """With team/tool:1, pushed by whoever may."""
        place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-registry-auth-"))
        self.addCleanup(shutil.rmtree, place)
        registry = self.serve(lab.Registry(place / "registry", auth=auth))
        registry.push(self.shared.layout, "t", "team/tool:1", "--dest-creds", f"alice:{self.SECRET}")
        return registry

    def docker_config(self, name, password):
        self.logins = getattr(self, "logins", 0) + 1
        folder = lab.login_file(self.folder / f"docker-{self.logins}", name, "alice", password)
        for path in (folder, folder / "config.json"):
            self.caller.own(path)
        return {"DOCKER_CONFIG": str(folder)}

    def check(self, registry):
        name = f"{registry.name}/team/tool:1"
        for done in (self.pull(name), self.pull(name, env=self.docker_config(registry.name, "wrong-" + self.SECRET))):
            self.assert_refused(done, "login")
            self.assertNotIn(self.SECRET, done.err + done.out)
        report = self.pulled(name, env=self.docker_config(registry.name, self.SECRET))
        self.assertEqual(report["layers"], 2)
        self.assertNotIn(self.SECRET, json.dumps(report))

    def test_basic(self):
        entry = lab.run("htpasswd", "-Bbn", "alice", self.SECRET)
        place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-htpasswd-"))
        self.addCleanup(shutil.rmtree, place)
        (place / "htpasswd").write_bytes(entry)
        registry = self.registry_with({"htpasswd": {"realm": "test", "path": str(place / "htpasswd")}})
        self.check(registry)
        # From a helper, which is asked on its standard input.
        tools = self.caller.mkdir("tools")
        self.caller.write("tools/docker-credential-test",
                          '#!/bin/sh\nread -r host\n[ "$1" = get ] || exit 1\n'
                          'printf \'{"ServerURL":"%s","Username":"alice","Secret":"' + self.SECRET + '"}\' "$host"\n', 0o755)
        self.caller.write("helped/config.json", json.dumps({"credsStore": "test"}))
        name = f"{registry.name}/team/tool:1"
        self.caller.caisson("image", "rm", name)
        env = {"DOCKER_CONFIG": str(self.folder / "helped"), "PATH": f"{tools}:{self.caller.env['PATH']}"}
        self.assertEqual(self.pulled(name, env=env)["layers"], 2)

    def test_tokens(self):
        place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-tokens-"))
        self.addCleanup(shutil.rmtree, place)
        tokens = self.serve(lab.TokenServer(place, "alice", self.SECRET))
        registry = self.registry_with(tokens.registry_auth)
        tokens.seen.clear()
        self.check(registry)
        asked = tokens.paths("/token")
        self.assertTrue(asked)
        for path in asked:
            self.assertIn("scope=repository%3Ateam%2Ftool%3Apull", path)
            self.assertNotIn(self.SECRET, path)

    def test_a_redirect_leads_no_credentials_elsewhere(self):
        layer = lab.tar_of({"f": b"content"})
        storage = self.serve(lab.Scripted({"/stored?signature=1": (200, layer, {})}))
        answers, _, config = lab.image_answers("a", [layer])
        answers[f"/v2/a/blobs/{lab.digest(layer)}"] = (307, b"", {"Location": f"http://{storage.name}/stored?signature=1"})
        # Within the registry it is kept.
        moved = f"/v2/a/moved/{lab.digest(config)}"
        answers[moved] = answers[f"/v2/a/blobs/{lab.digest(config)}"]
        answers[f"/v2/a/blobs/{lab.digest(config)}"] = (302, b"", {"Location": moved})

        def guarded(answer):
            def check(handler):
                if "Authorization" in handler.headers:
                    return lab.reply(handler, *answer)
                return lab.reply(handler, 401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
            return check

        server = self.serve(lab.Scripted({path: guarded(answer) for path, answer in answers.items()}))
        server.answers["/v2/"] = guarded((200, b"{}", {}))
        self.assertEqual(self.pulled(f"{server.name}/a:1", env=self.docker_config(server.name, self.SECRET))["layers"], 1)
        self.assertEqual([path for path, _ in storage.seen], ["/stored?signature=1"])
        self.assertNotIn("Authorization", storage.seen[0][1])
        self.assertTrue(any("Authorization" in headers for path, headers in server.seen if path == moved))

    def test_a_login_is_for_its_registry_alone(self):
        other = self.serve(lab.Scripted({"/v2/": (401, b"", {"WWW-Authenticate": 'Basic realm="x"'})}))
        done = self.pull(f"{other.name}/a", env=self.docker_config("127.0.0.1:1", self.SECRET))
        self.assert_refused(done, "login")
        self.assertFalse(any("Authorization" in headers for _, headers in other.seen))

    def test_an_odd_challenge_is_an_error(self):
        for challenge in ('Digest realm="x"', 'Bearer realm="ftp://example.com/"', 'Bearer realm="http://example.com/"', "=="):
            server = self.serve(lab.Scripted({"/v2/": (401, b"", {"WWW-Authenticate": challenge})}))
            done = self.pull(f"{server.name}/a", env=self.docker_config(server.name, self.SECRET))
            self.assertEqual(done.returncode, 125, done)
            self.assertFalse(any("Authorization" in headers for _, headers in server.seen), challenge)
            self.assertNotIn(self.SECRET, done.err)

    def test_an_error_that_repeats_the_secret_does_not_show_it(self):
        def echo(handler):
            given = handler.headers.get("Authorization")
            if given is None:
                return lab.reply(handler, 401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
            text = {"errors": [{"message": f"{given} {self.SECRET}"}]}
            return lab.reply(handler, 403, json.dumps(text).encode())

        server = self.serve(lab.Scripted({"/v2/": echo}))
        done = self.pull(f"{server.name}/a", env=self.docker_config(server.name, self.SECRET))
        self.assert_refused(done, "denied")
        self.assertNotIn(self.SECRET, done.err)
        self.assertNotIn("Basic ", done.err)


class Large(PullTest):
    def test_two_pulls_of_one_image_do_the_work_once(self):
        registry = self.shared.registry
        place = self.folder / "large"
        place.mkdir()
        layout = lab.make_layout(place, [{f"data/{n}": os.urandom(20 << 20)} for n in range(5)], tag="large")
        registry.push(layout, "large", "team/large:1", "--dest-compress-format", "gzip")
        shutil.rmtree(place)
        counted = self.serve(lab.Proxy(registry))
        name = f"{counted.name}/team/large:1"
        pulls = [self.caller.popen("image", "pull", "--json", name, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for _ in range(2)]
        reports = []
        for process in pulls:
            out, err = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, err)
            reports.append(json.loads(out))
        self.assertEqual(reports[0]["id"], reports[1]["id"])
        self.assertGreater(reports[0]["bytes"], 100 << 20)
        self.assertEqual(reports[0]["downloaded"] + reports[1]["downloaded"], reports[0]["bytes"], reports)
        config = reports[0]["id"]
        layers = [path for path in counted.paths("/blobs/") if config not in path]
        self.assertEqual((len(layers), len(set(layers))), (5, 5), layers)
        images = self.folder / "state" / "caisson" / "images"
        self.assertEqual(len(self.blobs()), 7, "five layers, a configuration, a manifest")
        self.assertEqual(len(list((images / "rootfs").iterdir())), 1)
        self.assertEqual(lab.files_below(images / "partial"), [])


class Broken(PullTest):
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


class Files(PullTest):
    def exported(self, name, form):
        path = self.folder / f"out-{form}.tar"
        out = self.caller.mkdir(f"exports-{form}") / "image.tar"
        done = self.caller.caisson("image", "export", name, "--format", form, "-o", out)
        self.assertEqual(done.returncode, 0, done)
        shutil.copy(out, path)
        return path

    def test_skopeo_reads_what_is_exported(self):
        name = f"{self.shared.registry.name}/team/tool:1"
        report = self.pulled(name)
        layout = self.exported(name, "oci")
        seen = json.loads(lab.run("skopeo", "inspect", f"oci-archive:{layout}"))
        self.assertEqual((seen["Digest"], len(seen["Layers"])), (report["manifest"], 2))
        docker = self.exported(name, "docker")
        raw = lab.run("skopeo", "inspect", "--config", "--raw", f"docker-archive:{docker}")
        self.assertEqual("sha256:" + hashlib.sha256(raw).hexdigest(), report["id"])
        # Copied out of it, every byte is read and checked.
        for source in (f"oci-archive:{layout}", f"docker-archive:{docker}"):
            target = self.folder / f"copy-{source.split(':')[0]}"
            lab.run("skopeo", "copy", source, f"oci:{target}:x")
        # And it comes back.
        self.caller.caisson("image", "rm", name)
        for path in (layout, docker):
            path.chmod(0o644)
            done = self.caller.caisson("image", "import", path)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(name, done.out)
            listed = json.loads(self.caller.caisson("image", "ls", "--json").out)
            self.assertEqual([image["name"] for image in listed], [name])
            done = self.caller.caisson("run", "--image", name, "--", "/bin/cat", "/etc/greeting")
            self.assertEqual((done.returncode, done.out), (0, "hello\n"), done)
            self.caller.caisson("image", "rm", name)

    def test_layouts_and_archives_of_other_tools_are_imported(self):
        done = self.caller.caisson("image", "import", "mine:1", self.shared.layout)
        self.assertEqual(done.returncode, 0, done)
        self.assert_refused(self.caller.caisson("image", "import", self.shared.layout), "'t'", "NAME")
        saved = self.folder / "saved.tar"
        lab.run("skopeo", "copy", f"oci:{self.shared.layout}:t", f"docker-archive:{saved}:team/saved:2")
        done = self.caller.caisson("image", "import", "-", input=saved.read_bytes())
        self.assertEqual(done.returncode, 0, done)
        # As skopeo calls it: with the host that it takes for a short name's.
        saved_name = done.out.rsplit(": ", 1)[0]
        self.assertTrue(saved_name.endswith("team/saved:2"), done)
        for name in ("mine:1", saved_name):
            done = self.caller.caisson("run", "--image", name, "--", "/bin/cat", "/etc/greeting")
            self.assertEqual((done.returncode, done.out), (0, "hello\n"), done)

    def test_files_that_are_not_whole_are_refused(self):
        layout = self.folder / "broken"
        shutil.copytree(self.shared.layout, layout)
        index = json.loads((layout / "index.json").read_text())
        text = (layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text()
        layer = json.loads(text)["layers"][0]["digest"][7:]
        blob = layout / "blobs/sha256" / layer
        whole = blob.read_bytes()
        damaged = bytes([whole[0] ^ 1]) + whole[1:]
        link = self.folder / "elsewhere"
        link.write_bytes(whole)

        def replace(content):
            blob.chmod(0o644)
            blob.write_bytes(content)

        for change, word in ((lambda: replace(damaged), layer), (lambda: replace(whole[:-1]), "declared"),
                             (blob.unlink, layer), (lambda: blob.symlink_to(link), layer)):
            change()
            done = self.caller.caisson("image", "import", "a", layout)
            self.assert_refused(done, word)
            self.assert_store_empty()

    def test_export_wants_an_image_and_a_place(self):
        self.assert_refused(self.caller.caisson("image", "export", "none", "-o", "x"), "none")
        self.assertFalse(list(self.caller.home.glob("x*")))
        self.assert_refused(self.caller.caisson("image", "export", "a"), "FILE")
        self.assert_refused(self.caller.caisson("image", "export", "a", "-o", "x", "--format", "zip"), "oci or docker")


class Confined(PullTest):
    def test_the_fetcher_has_given_up_its_rights(self):
        """Looked at from outside, while it waits for a registry that says nothing."""
        silent, over = threading.Event(), threading.Event()
        self.addCleanup(over.set)

        def wait(handler):
            silent.set()
            over.wait(60)
            lab.reply(handler, 404)

        server = self.serve(lab.Scripted({"/v2/": wait}))
        process = self.caller.popen("image", "pull", f"{server.name}/a", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.assertTrue(silent.wait(60))
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        fetchers = [pid for pid in children if b"caisson-image-fetch" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        self.assertEqual(len(fetchers), 1)
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{fetchers[0]}/status").read_text().splitlines() if ":\t" in line)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(int(status[kind], 16), 0, kind)
        if os.geteuid() == 0:
            self.assertNotIn("0", status["Uid"].split() + status["Gid"].split())
            self.assertEqual(status["Groups"].strip(), "")
        process.kill()
        process.wait()
        process.stderr.close()
        # It ends with its parent.
        gone = lambda: not pathlib.Path(f"/proc/{fetchers[0]}").exists() or "Z" in pathlib.Path(f"/proc/{fetchers[0]}/stat").read_text()  # noqa: E731
        self.assertTrue(harness.wait_until(gone, 20))




if __name__ == "__main__":
    for program in ("docker-registry", "skopeo", "umoci", "htpasswd", "openssl"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed; ./dev test installs it")
    for program in ("caisson-image-worker", "caisson-image-fetch"):
        if not (harness.build_dir() / program).exists():
            sys.exit(f"{harness.build_dir()} lacks {program}: build the release preset first")
    os.environ.setdefault("LANG", "C.UTF-8")
    code = 1
    try:
        support.main()
    except SystemExit as ended:
        code = ended.code
    finally:
        Shared.close()
    sys.exit(code)
