#!/usr/bin/env python3
"""Programs as they are, through TLS that is opened: case 40 of the catalogue (docs/egress-tests.md).

Each is told nothing but what a sandbox has of itself. It reaches a host that a policy inspects, and fails to reach one
that is not inspected and has a certificate of nobody's: it was given more to trust, and verifies as ever.
In both modes, root and rootless.
"""
import hashlib
import io
import itertools
import json
import pathlib
import subprocess
import tarfile
import zipfile

import lab
from lab import Echo

POLICY = "rules: [{hosts: [good.example.com], tls: inspect}, {hosts: [self.example.com], ports: [444]}]"
GOOD, BAD = "https://good.example.com", "https://self.example.com:444"
ROOM = ("--memory", "2GiB", "--pids", "512", "--timeout", "120s", "--cpu-time", "120s")

JAVA = """
class Get {
  public static void main(String[] words) throws Exception {
    System.out.print(new String(new java.net.URL(words[0]).openStream().readAllBytes()));
  }
}
"""


def wheel():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("probe.py", "")
        archive.writestr("probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
        archive.writestr("probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("probe-1.0.dist-info/RECORD", "")
    return made.getvalue()


def crate():
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in (("Cargo.toml", '[package]\nname = "probe"\nversion = "1.0.0"\n'), ("src/lib.rs", "")):
            entry = tarfile.TarInfo(f"probe-1.0.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


CRATE, NUMBERS = crate(), itertools.count()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Echo.files = {
    "/repository.git/info/refs": f"{COMMIT}\trefs/heads/main\n".encode(), "/repository.git/HEAD": b"ref: refs/heads/main\n", "/-/ping": b"{}",
    "/simple/probe/": b'<!DOCTYPE html><a href="/probe-1.0-py3-none-any.whl">probe-1.0-py3-none-any.whl</a>', "/probe-1.0-py3-none-any.whl": wheel(),
    "/crates/probe/1.0.0/download": CRATE, "/modules/example.com/probe/@v/list": b"v1.0.0\n",
    "/modules/example.com/probe/@v/v1.0.0.info": b'{"Version": "v1.0.0", "Time": "2020-01-01T00:00:00Z"}', "/modules/example.com/probe/@v/v1.0.0.mod": b"module example.com/probe\n",
}


class Clients(lab.Lab):
    def check(self, script, wanted, *tools, files=None, asked=b"GET "):
        """`script` with the beginning of a URL for $1; what it prints for the good one, and that the other fails."""
        self.need(*tools)
        for caller in self.each_caller():
            options = ROOM
            if files:
                folder = caller.mkdir(f"given-{next(NUMBERS)}")
                for name, make in files.items():
                    make(pathlib.Path(folder) / name)
                subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
                options = (*ROOM, "--copy", f"{folder}:/home/user/given", "-w", "/home/user/given")
            result = self.run_in(caller, POLICY, "bash", "-c", f"fetch() {{\n{script}\n}}\n(fetch {GOOD}) && echo reached; (fetch {BAD}) && echo believed; true",
                                 options=options)
            self.assertIn(wanted, result["stdout"], result)
            self.assertIn("reached\n", result["stdout"], result)
            self.assertNotIn("believed", result["stdout"], result)
            self.assertIn(asked, self.received("good"))
            self.assertEqual(self.received("self"), b"")
            # One went through the gateway's own TLS, the other as it was.
            self.assertLessEqual({("good.example.com", "inspect"), ("self.example.com", "splice")}, {(r["host"], r.get("tls")) for r in result["audit"]}, result)

    def test_curl(self):
        self.check("curl -sS $1/x && env -i /usr/bin/curl -sS $1/x", "GET /x\nGET /x\n", "curl")

    def test_wget(self):
        self.check("env -i /usr/bin/wget -t 1 -qO- $1/x", "GET /x\n", "wget")

    def test_git(self):
        self.check("GIT_TERMINAL_PROMPT=0 git ls-remote $1/repository.git", f"{COMMIT}\trefs/heads/main\n", "git")

    def test_node(self):
        self.check("""for get in 'fetch(url).then(a => a.text()).then(t => process.stdout.write(t)).catch(() => process.exit(1))' \\
  'require("https").get(url, a => a.pipe(process.stdout)).on("error", () => process.exit(1))'; do node -e "const url = '$1/x'; $get" || return 1; done""",
                   "GET /x\nGET /x\n", "node")

    def test_npm(self):
        self.check("npm ping --fetch-retries=0 --registry=$1/ 2>&1", "PONG", "npm", asked=b"GET /-/ping")

    def test_python_urllib(self):
        self.check("/usr/bin/python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end=\"\")' $1/x", "GET /x\n", "python3")

    def test_python_requests(self):
        self.check("/usr/bin/python3 -c 'import sys, requests; print(requests.get(sys.argv[1]).text, end=\"\")' $1/x", "GET /x\n", "python3")

    def test_pip(self):
        self.check("/usr/bin/python3 -m pip download --retries 0 --no-deps --no-cache-dir --disable-pip-version-check -q -d /tmp/got -i $1/simple/ probe && ls /tmp/got && rm -r /tmp/got",
                   "probe-1.0-py3-none-any.whl\n", "python3", "pip3")

    def test_java(self):
        def compiled(path):
            path.write_text(JAVA)
            subprocess.run(["javac", path], check=True)

        self.check("java -XX:TieredStopAtLevel=1 -cp . Get $1/x", "GET /x\n", "java", "javac", files={"Get.java": compiled})

    def test_cargo(self):
        def index(path):
            (path / "pr/ob").mkdir(parents=True)
            subprocess.run(["git", "init", "-q", "-b", "master", path], check=True)
            for server, url in (("good", GOOD), ("bad", BAD)):
                (path / "config.json").write_text(json.dumps({"dl": f"{url}/crates"}))
                (path / "pr/ob/probe").write_text(json.dumps({"name": "probe", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
                                                              "cksum": hashlib.sha256(CRATE).hexdigest()}) + "\n")
                for words in (["add", "."], ["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", server, "--allow-empty"],
                              ["branch", "-f", server]):
                    subprocess.run(["git", "-C", path, *words], check=True)

        def package(path):
            (path / "src").mkdir(parents=True)
            (path / "src/lib.rs").write_text("")
            (path / "Cargo.toml").write_text('[package]\nname = "x"\nversion = "1.0.0"\n[dependencies]\nprobe = { version = "1", registry = "lab" }\n')

        self.check("""export CARGO_HOME=/tmp/cargo-${1//[^a-z]/} CARGO_NET_RETRY=0 CARGO_REGISTRIES_LAB_INDEX=file:///home/user/given/index
case $1 in *good*) branch=good;; *) branch=bad;; esac
git -C index checkout -q -B master $branch && cd package && rm -f Cargo.lock && cargo fetch 2>&1""", "Downloaded probe v1.0.0", "cargo", "git",
                   files={"index": index, "package": package}, asked=b"GET /crates/probe/1.0.0/download")

    def test_go(self):
        self.check("PATH=$PATH:/usr/local/go/bin GOPROXY=$1/modules GOSUMDB=off GOFLAGS=-mod=mod GOTOOLCHAIN=local go list -m -versions example.com/probe", "example.com/probe v1.0.0\n", "go",
                   asked=b"GET /modules/example.com/probe/@v/list")


class Presets(lab.Lab):
    """--net preset: the servers that the caller's own programs use, for reading alone."""

    def fetched(self, options, script, *tools, env=None):
        """What a script printed for each caller that was told of the good host by its configuration and nothing else."""
        self.need("curl", *tools)
        for caller in self.each_caller():
            result = self.run_in(caller, "rules: []", "bash", "-c", script + "\n" + f"curl -sS -o /dev/null -w '%{{http_code}}\\n' -d x {GOOD}/upload",
                                 options=(*ROOM, *options), env=env)
            self.assertTrue(result["stdout"].endswith("403\n"), result)
            self.assertNotIn(b"/upload", self.received("good"))
            yield caller, result["stdout"]

    def test_pip(self):
        for _, told in self.fetched(("--net", "preset:pip"), "/usr/bin/python3 -m pip download --retries 0 --no-deps --no-cache-dir --disable-pip-version-check -q -d /tmp/got probe; ls /tmp/got",
                                    "python3", "pip3", env={"PIP_INDEX_URL": f"{GOOD}/simple"}):
            self.assertIn("probe-1.0-py3-none-any.whl\n", told)

    def test_npm_by_the_users_file(self):
        for kind in self.kinds:
            npmrc = pathlib.Path(self.world.caller(kind).home) / ".npmrc"
            npmrc.write_text(f"registry={GOOD}/\n")
            self.addCleanup(npmrc.unlink)
            npmrc.chmod(0o644)
        for _, told in self.fetched(("--net", "preset:npm"), "npm ping --fetch-retries=0 2>&1", "npm"):
            self.assertIn("PONG", told)

    def test_go(self):
        script = "PATH=$PATH:/usr/local/go/bin GOSUMDB=off GOFLAGS=-mod=mod GOTOOLCHAIN=local go list -m -versions example.com/probe"
        for _, told in self.fetched(("--net", "preset:go"), script, "go", env={"GOPROXY": f"{GOOD}/modules,direct"}):
            self.assertIn("example.com/probe v1.0.0\n", told)

    def test_git_reads_and_does_not_push(self):
        script = f"""export GIT_TERMINAL_PROMPT=0
git ls-remote {GOOD}/repository.git
git init -q /tmp/own && cd /tmp/own && git -c user.name=x -c user.email=x@example.com commit -q --allow-empty -m x
git push {GOOD}/repository.git HEAD:main || echo not pushed"""
        for _, told in self.fetched(("--net", "preset:git=good.example.com"), script, "git"):
            self.assertIn(f"{COMMIT}\trefs/heads/main\n", told)
            self.assertIn("not pushed\n", told)
        self.assertNotIn(b"POST", self.received("good"))

    def test_a_client_without_configuration_is_named(self):
        for caller in self.each_caller():
            done = caller.caisson("run", "--image", "host", "--net", "preset:cargo", "--", "true", preset=self.preset, env={"CARGO_HOME": "/nowhere"})
            self.assertEqual((done.returncode, done.out), (125, ""), done)
            for word in ("preset:cargo", "~/.cargo/config.toml", "--net preset:cargo=HOST"):
                self.assertIn(word, done.err)


if __name__ == "__main__":
    lab.main(__file__)
