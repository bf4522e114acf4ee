"""The frame of the tests of pulling: one plain registry with the image team/tool:1, callers with empty stores.

Images are made and pushed by umoci and skopeo, the registry is Debian's docker-registry (tests/lib/registry_lab.py).
Everything is on loopback, in temporary folders.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import support  # noqa: E402

import registry_lab as lab  # noqa: E402

harness = support.harness
LAYERS = [{"bin/busybox": pathlib.Path(shutil.which("busybox")).read_bytes(), "bin/sh": "busybox", "bin/cat": "busybox",
           "etc/greeting": b"first\n", "gone": b"x\n"},
          {"etc/greeting": b"hello\n", ".wh.gone": b""}]
# As OCI names this machine.
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


def main():
    """Runs the calling module's tests; a tool or program that is missing is a failure."""
    for program in ("docker-registry", "skopeo", "umoci", "htpasswd", "openssl"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed; ./dev test installs it")
    for program in ("caisson-image-worker", "caisson-image-fetch"):
        if not (harness.build_dir() / program).exists():
            sys.exit(f"{harness.build_dir()} lacks {program}: build the release preset first")
    module = sys.modules["__main__"]
    # The frame itself holds no test.
    for name in [name for name, value in vars(module).items() if value is PullTest]:
        delattr(module, name)
    code = 1
    try:
        support.main()
    except SystemExit as ended:
        code = ended.code
    finally:
        Shared.close()
    sys.exit(code)
