#!/usr/bin/env python3
"""Builds of templates from an image that a registry gives to nobody without a login: Debian's docker-registry with
passwords, on loopback. The login comes with the build's order and is nowhere afterwards."""
import ctypes
import json
import os
import pathlib
import shutil
import stat
import struct
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402
import registry_lab as lab  # noqa: E402
import serve_lab  # noqa: E402
from test_templates import Client  # noqa: E402

SECRET = "s3cr3t-Pa55word-of-alice"
APPLETS = ("sh", "cat", "mkdir", "chmod", "chown", "id")
LAYERS = [{"bin/busybox": pathlib.Path(shutil.which("busybox") or "/bin/busybox").read_bytes(),
           **{f"bin/{applet}": "busybox" for applet in APPLETS},
           "etc/passwd": b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
           "etc/group": b"root:x:0:\nuser:x:1000:\n", "etc/greeting": b"from the registry\n"}]


class CommandLines(threading.Thread):
    """Looks at what every process was started with and has in its environment, until stop()."""

    def __init__(self, secret):
        super().__init__(daemon=True)
        self.secret, self.found, self.looked, self.over = secret.encode(), set(), 0, threading.Event()

    def run(self):
        while not self.over.wait(0.01):
            for process in pathlib.Path("/proc").iterdir():
                if not process.name.isdigit():
                    continue
                for name in ("cmdline", "environ"):
                    try:
                        if self.secret in (process / name).read_bytes():
                            self.found.add(f"{name} of {(process / 'comm').read_text().strip()}")
                    except OSError:
                        pass  # it has ended
            self.looked += 1

    def stop(self):
        self.over.set()
        self.join()
        return self.found


def files_with(folder, text):
    """The files below the folder that hold it; images' own files are left out."""
    found = []
    for above, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "rootfs"]
        for path in (pathlib.Path(above) / name for name in names):
            try:
                if stat.S_ISREG(path.lstat().st_mode) and text.encode() in path.read_bytes():
                    found.append(path)
            except FileNotFoundError:
                pass  # removed meanwhile
    return found


class NamesGiven:
    """Every name that a folder's files were given from now on, however short they had it: names()."""

    CREATED, MOVED_TO = 0x100, 0x80

    def __init__(self, folder):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.watch = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.watch < 0 or self.libc.inotify_add_watch(self.watch, os.fsencode(folder), self.CREATED | self.MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {folder}")

    def names(self):
        given = set()
        while True:
            try:
                events = os.read(self.watch, 65536)
            except BlockingIOError:
                return given
            while events:
                _, mask, _, size = struct.unpack_from("iIII", events)
                if mask & 0x4000:
                    raise AssertionError("more names than the kernel holds")
                given.add(os.fsdecode(events[16:16 + size].rstrip(b"\0")))
                events = events[16 + size:]

    def close(self):
        os.close(self.watch)


class TemplateLogins(Client):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-template-logins-"))
        cls.addClassCleanup(shutil.rmtree, cls.place)
        (cls.place / "htpasswd").write_bytes(lab.run("htpasswd", "-Bbn", "alice", SECRET))
        cls.registry = lab.Registry(cls.place / "registry",
                                    auth={"htpasswd": {"realm": "test", "path": str(cls.place / "htpasswd")}})
        cls.addClassCleanup(cls.registry.stop)
        layout = lab.make_layout(cls.place, LAYERS, config=("--config.cmd", "/bin/sh"))
        cls.registry.push(layout, "t", "team/tool:1", "--dest-creds", f"alice:{SECRET}")
        cls.image = f"{cls.registry.name}/team/tool:1"
        # One for each test of names: which was pulled first counts nowhere.
        for name in ("hidden", "shadowed"):
            layout = lab.make_layout(cls.place, LAYERS, tag=name, config=("--config.cmd", "/bin/sh", "--config.env", f"N={name}"))
            cls.registry.push(layout, name, f"team/{name}:1", "--dest-creds", f"alice:{SECRET}")
        (cls.place / "serve.yaml").write_text(json.dumps({"builds": {"registries": [cls.registry.name]}}))
        context = serve_lab.fresh(arguments=("--config", str(cls.place / "serve.yaml"), "--log-level", "debug"))
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def order(self, password=None, image=None):
        order = {"fromImage": image or self.image, "steps": [{"type": "ENV", "args": ["A", "b"]}]}
        if password is not None:
            order["fromImageRegistry"] = {"type": "registry", "username": "alice", "password": password}
        return order

    def named(self, name):
        """What a name means in the server's store."""
        done = self.server.caller.caisson("image", "ls", "--json")
        return [one["id"] for one in json.loads(done.out) if one["name"] == name]

    def watched_names(self):
        refs, = self.server.caller.folder.rglob("refs")
        watch = NamesGiven(refs)
        self.addCleanup(watch.close)
        return watch

    def assert_nowhere(self, secret):
        self.assertEqual(files_with(self.server.caller.folder, secret), [])
        self.assertEqual(files_with(pathlib.Path(self.server.caller.env["CAISSON_RUN_DIR"]), secret), [])

    def test_without_a_login_or_with_a_wrong_one_it_fails_and_says_so(self):
        wrong = "wrong-" + SECRET
        for password in (None, wrong):
            state, entries = self.finished(self.ordered("refused", self.order(password)))
            self.assertEqual((state["status"], state["reason"]["step"]), ("error", "base"), state)
            self.assertIn("login", state["reason"]["message"])
            self.assertIn(self.registry.name, state["reason"]["message"])
            self.assertNotIn(wrong, json.dumps([state, entries]))
        self.assertEqual(self.ask("POST", "/v2/sandboxes", {"templateID": "refused"})[0], 404)
        self.assert_nowhere(wrong)

    def test_with_its_login_it_is_built_and_the_login_is_nowhere(self):
        watch = CommandLines(SECRET)
        watch.start()
        self.addCleanup(watch.stop)
        made = self.ordered("tool", self.order(SECRET))
        state, entries = self.finished(made)
        self.assertEqual(watch.stop(), set())
        self.assertGreater(watch.looked, 5)
        self.assertEqual(state["status"], "ready", (state, entries))
        self.assertTrue(any("pulling " + self.image in entry["message"] for entry in entries), entries)
        details = self.ask("GET", f"/templates/{made['templateID']}")[1]
        self.assertNotIn(SECRET, json.dumps([state, entries, details]))
        # Neither its database, nor its log, nor its store.
        self.assert_nowhere(SECRET)
        # What one build has pulled is no other's without the login.
        state, _ = self.finished(self.ordered("other", self.order()))
        self.assertEqual((state["status"], state["reason"]["step"]), ("error", "base"), state)

    def test_the_name_that_everybody_knows_never_means_it(self):
        watch = self.watched_names()
        state, entries = self.finished(self.ordered("hidden", self.order(SECRET, f"{self.registry.name}/team/hidden:1")))
        self.assertEqual(state["status"], "ready", (state, entries))
        given = watch.names()
        self.assertTrue(any("pulled-" in name for name in given), given)
        self.assertEqual([name for name in given if "team" in name], [])

    def test_what_the_operator_calls_so_stays_what_it_was(self):
        caller, image = self.server.caller, f"{self.registry.name}/team/shadowed:1"
        small = self.place / "small.tar"
        small.write_bytes(lab.tar_of({"file": b"the operator's\n"}))
        done = caller.caisson("image", "import", image, small)
        self.assertEqual(done.returncode, 0, done)
        self.addCleanup(caller.caisson, "image", "rm", image)
        before = self.named(image)
        self.assertEqual(len(before), 1)
        state, entries = self.finished(self.ordered("shadowed", self.order(SECRET, image)))
        self.assertEqual(state["status"], "ready", (state, entries))
        self.assertEqual(self.named(image), before)


if __name__ == "__main__":
    for program in ("docker-registry", "skopeo", "umoci", "htpasswd"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed; ./dev test installs it")
    harness.require_programs()
    unittest.main(verbosity=2)
