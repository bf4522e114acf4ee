"""A Dockerfile of a real project: Debian packages and packages of npm in one stage, the result in another.

The registries are those that this machine uses itself: a relay on the loopback fetches from them, and the
build may reach that relay and nothing else. So nothing here names a host, and the build's own packages come
through the egress proxy.
"""
import hashlib
import http.server
import io
import json
import pathlib
import re
import shutil
import ssl
import subprocess
import tarfile
import threading
import time
import urllib.error
import urllib.request

import frame
import readme

DOCKERFILE = """\
ARG BASE=base
FROM ${BASE} AS deps
ARG RELAY
RUN . /etc/os-release && { \\
      echo "deb [trusted=yes] http://${RELAY}/apt $VERSION_CODENAME main"; \\
    } > /etc/apt/sources.list
# Of the packages the lists are needed only here.
RUN apt-get update && apt-get install -y --no-install-recommends jq \\
 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY package.json ./
RUN npm install --no-audit --no-fund --registry http://${RELAY}/npm/
COPY --chown=user:user main.js .
USER user
RUN node main.js | jq -r .said > /tmp/said

FROM ${BASE}
COPY --from=deps /app /app
COPY --from=deps /usr/bin/jq /usr/bin/
COPY --from=deps /usr/lib/x86_64-linux-gnu/libjq.so.1 /usr/lib/x86_64-linux-gnu/libonig.so.5 /usr/lib/x86_64-linux-gnu/
COPY --from=deps /tmp/said /said
WORKDIR /app
USER user
CMD ["node", "main.js"]
"""
PACKAGE = {"name": "thing", "version": "1.0.0", "private": True, "dependencies": {"ms": "2.1.3"}}
MAIN = 'console.log(JSON.stringify({said: require("ms")("2 days")}));\n'


def apt_source():
    """(address, codename) of this machine's first source of Debian; None where it has none."""
    found = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                            "Created-By: Packages"], capture_output=True, text=True).stdout
    codename = re.search(r"^VERSION_CODENAME=(\S+)$", pathlib.Path("/etc/os-release").read_text(), re.M)
    for line in found.splitlines():
        address, release, component = line.rsplit(" ", 2)
        if codename and release == codename[1] and component == "main" and address.startswith("http"):
            return address.rstrip("/")
    return None


def npm_registry():
    if not shutil.which("npm"):
        return None
    address = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True).stdout.strip()
    return address.rstrip("/") if address.startswith("http") else None


class Relay(http.server.ThreadingHTTPServer):
    """GET of /apt/… and /npm/…, from where this machine gets them."""

    daemon_threads = True

    def __init__(self, places):
        self.places, self.asked = places, []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.name = f"127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.path)
        kind, _, path = self.path.lstrip("/").partition("/")
        body, status = b"", 404
        if kind in self.server.places:
            body, status = self.fetch(self.server.places[kind] + "/" + path)
        if kind == "npm" and status == 200 and body.startswith(b"{"):
            # Where a package's archive lies is written in its description.
            body = body.replace(self.server.places["npm"].encode(), f"http://{self.server.name}/npm".encode())
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fetch(self, address):
        for patience in (1, 3, 0):
            try:
                with urllib.request.urlopen(address, timeout=60, context=ssl.create_default_context()) as answer:
                    return answer.read(), 200
            except urllib.error.HTTPError as error:
                return b"", error.code
            except OSError:
                time.sleep(patience)
        return b"", 504

    def log_message(self, *_):
        pass


class Readme(frame.ModeTest):
    modes = ("base",)

    def test_the_recipe_of_the_readme(self):
        heading = "### Images from a Dockerfile"
        folder = self.given({"Dockerfile": readme.block(heading, "dockerfile")})
        done = readme.run(self.caller, readme.block(heading), folder)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"^built for \S+\nsha256:[0-9a-f]{64}\n$")


class Templates(frame.ModeTest):
    """Steps as E2B's builder has them, through the library."""

    modes = ("base",)

    def template(self, steps, *archives, **more):
        folder = self.caller.mkdir(f"template-{len(list(self.caller.folder.iterdir()))}")
        path = self.caller.write(folder / "steps.json", json.dumps({"steps": steps, **more}))
        tool = frame.harness.build_dir() / "tests" / "caisson_template_tool"
        return subprocess.run([tool, "base", "made", path, *archives], env=self.caller.env, capture_output=True, text=True,
                              timeout=300)

    def archive(self, files):
        path = self.caller.folder / "files.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(text), 0o644
                tar.addfile(entry, io.BytesIO(text.encode()))
        return hashlib.sha256(path.read_bytes()).hexdigest(), path

    def test_steps_make_an_image(self):
        digest, path = self.archive({"app/main.sh": "echo $GREETING\n", "app/sub/x": "x\n", "one.txt": "one\n"})
        steps = [
            {"type": "ENV", "args": ["GREETING", "hello from $HOME_OF", "OTHER", "it's $PATH"]},
            {"type": "COPY", "args": ["app", "/srv/app"], "filesHash": digest},
            {"type": "COPY", "args": ["*.txt", "copied/", "root", "600"], "filesHash": digest},
            {"type": "RUN", "args": ["whoami > who; pwd >> who; shopt -q login_shell && echo login >> who"]},
            {"type": "RUN", "args": ["whoami > /root-was-here", "root"]},
            {"type": "USER", "args": ["worker"]},
            {"type": "WORKDIR", "args": ["/opt/deep"]},
            {"type": "RUN", "args": ["whoami > mine"]},
        ]
        done = self.template(steps, f"{digest}={path}", startCmd="serve", readyCmd="true")
        self.assertEqual(done.returncode, 0, done)
        run = self.caller.caisson("run", "--image", "made", "--", "sh", "-c",
                                  "cat /home/user/who /root-was-here /opt/deep/mine; sh /srv/app/main.sh; cat /srv/app/sub/x;"
                                  "stat -c '%U %a %n' /srv/app/main.sh /home/user/copied/one.txt /opt/deep /code;"
                                  "id -un; pwd")
        self.assertEqual(run.out, "user\n/home/user\nlogin\nroot\nworker\nhello from\nx\n"
                                  "user 644 /srv/app/main.sh\nroot 600 /home/user/copied/one.txt\n"
                                  "worker 755 /opt/deep\nroot 777 /code\nworker\n/opt/deep\n", run)
        config = json.loads(self.caller.caisson("image", "inspect", "made").stdout)[0]["config"]["config"]
        self.assertEqual(config["Labels"], {"caisson.template.start-command": "serve",
                                            "caisson.template.ready-command": "true"})
        again = self.template(steps, f"{digest}={path}", startCmd="serve", readyCmd="true")
        self.assertEqual(again.stdout, done.stdout)
        self.assertEqual(again.stderr.count("cached"), 9, again)
        steps[4]["force"] = True
        self.assertEqual(self.template(steps, f"{digest}={path}").stderr.count("cached"), 5)

    def test_owners_share_no_step(self):
        steps = [{"type": "RUN", "args": ["cat /proc/sys/kernel/random/uuid > /home/user/made"]}]
        made = {}
        for owner in ("one", "two", ""):
            done = self.template(steps, owner=owner)
            self.assertEqual(done.returncode, 0, (owner, done))
            # What every template has is of an owner's own too; nobody's was made by other tests here.
            if owner:
                self.assertEqual(done.stderr.count("cached"), 0, (owner, done))
            made[owner] = done.stdout
        self.assertEqual(len(set(made.values())), 3, made)
        for owner, image in made.items():
            again = self.template(steps, owner=owner)
            self.assertEqual(again.stdout, image, owner)
            self.assertGreater(again.stderr.count("cached"), 0, (owner, again))

    def test_an_archive_is_what_its_bytes_are(self):
        steps = [{"type": "COPY", "args": ["one.txt", "/srv/"], "filesHash": "0" * 64}]
        for text in "mine\n", "yours\n":
            _, path = self.archive({"one.txt": text})
            self.assertEqual(self.template(steps, f"{'0' * 64}={path}").returncode, 0)
            self.assertEqual(self.caller.caisson("run", "--image", "made", "--", "cat", "/srv/one.txt").out, text)
        refused = self.template(steps)
        self.assertIn("were not handed in", refused.stdout)

    def test_failures_read_as_clients_expect(self):
        for steps, text in (
                ([{"type": "RUN", "args": ["exit 3"]}], "failed to run command 'exit 3': exit status 3"),
                ([{"type": "RUN", "args": ["whoami", "root123"]}],
                 "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'"),
                ([{"type": "COPY", "args": ["a", "b"], "filesHash": "0" * 64}],
                 f"COPY a b: the files '{'0' * 64}' were not handed in")):
            done = self.template(steps)
            self.assertEqual((done.returncode, done.stdout), (1, text + "\n"), done)
        done = self.template([{"type": "FROM"}])
        self.assertEqual(done.returncode, 3, done)
        self.assertIn("steps[0]: type: found 'FROM'", done.stdout)


class RealProject(frame.ModeTest):
    modes = ("base",)

    def test_debian_packages_npm_and_two_stages(self):
        places = {"apt": apt_source(), "npm": npm_registry()}
        for name, address in places.items():
            if not address:
                frame.left_out(f"{self.id()}: this machine has no source for {name}")
        relay = Relay(places)
        self.addCleanup(relay.server_close)
        self.addCleanup(relay.shutdown)
        folder = self.given({"Dockerfile": DOCKERFILE, "package.json": json.dumps(PACKAGE), "main.js": MAIN,
                             ".dockerignore": "node_modules\n", "node_modules/ms/index.js": "no"})
        build = ("image", "build", "--progress", "plain", "-t", "project", "--build-arg", f"RELAY={relay.name}")
        # Without a network there is nothing to install from.
        done = self.caller.caisson(*build, folder, timeout=300)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("apt-get update", done.err.splitlines()[-1])
        self.assertEqual(relay.asked, [])
        done = self.caller.caisson(*build, "--net", relay.name, folder, timeout=900)
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(any("/npm/ms" in path for path in relay.asked), relay.asked)
        run = self.caller.caisson("run", "--image", "project", timeout=120)
        self.assertEqual((run.returncode, run.out), (0, '{"said":172800000}\n'), run)
        run = self.caller.caisson("run", "--image", "project", "--", "sh", "-c",
                                  "id -un; cat /said; echo '{\"a\":1}' | jq .a; ls node_modules", timeout=120)
        self.assertEqual((run.returncode, run.out), (0, "user\n172800000\n1\nms\n"), run)
        # Nothing is fetched twice.
        asked = len(relay.asked)
        done = self.caller.caisson(*build, "--net", relay.name, folder, timeout=300)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(len(relay.asked), asked)
        self.assertEqual(done.err.count(" CACHED\n"), 12, done)


frame.main()
