"""Pulling from a real registry: every kind of caller, forms of images, names, TLS, logins, two at once."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest

import registry_case
from registry_case import harness, lab


class EveryCaller(unittest.TestCase):
    def test_an_image_is_pulled_and_runs(self):
        shared = registry_case.Shared.get()
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


class Forms(registry_case.PullTest):
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

        index("many", ("linux", "s390x"), ("linux", registry_case.MACHINE))
        self.assertEqual(self.pulled(f"{registry.name}/team/tool:many")["manifest"], lab.digest(text))
        index("others", ("linux", "s390x"), ("windows", "amd64"))
        self.assert_refused(self.pull(f"{registry.name}/team/tool:others"), f"linux/{registry_case.MACHINE}", "linux/s390x", "windows/amd64")
        # Told to take it, the image is still not for there: its configuration says so.
        self.assert_refused(self.pull(f"{registry.name}/team/tool:others", "--platform", "linux/s390x"), f"linux/{registry_case.MACHINE}")
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


class Names(registry_case.PullTest):
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


class Encryption(registry_case.PullTest):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-registry-tls-"))
        cls.place.chmod(0o755)
        cls.tls = lab.Tls(cls.place / "tls")
        cls.registry = lab.Registry(cls.place / "registry", tls=cls.tls)
        cls.registry.push(registry_case.Shared.get().layout, "t", "team/tool:1")

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


class Logins(registry_case.PullTest):
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


class Large(registry_case.PullTest):
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


class Confined(registry_case.PullTest):
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
    registry_case.main()
