"""The frame of the integration tests: which mode a class runs in, and what a machine must have.

A mode is a kind of caller and an image: root, user (no range of ids), range (a subuid range) on the
`host` image, and base and code-interpreter (root on the image of that name, which `./dev image` builds).
A class names its modes; where this process cannot take one, or a tool is not on the machine, the test
says so in one line, and fails where CI=true.
The cases themselves are tests/cli/support.py's CallerTest: nothing may be left after each class.
"""
import fcntl
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import sys
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import support  # noqa: E402

harness = support.harness
MODES = ("root", "user", "range", "base")
BUILT = ("base", "code-interpreter")
# Where a program can be and be seen inside: the host image shows /usr alone.
SEEN_INSIDE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/usr/local/go/bin"


def archive_of(image):
    """The archive of a built image: CAISSON_BASE_IMAGE for base, or what the image script built."""
    beside = harness.build_dir().parent / "images" / f"{image}.tar.zst"
    usual = harness.ROOT / "build" / "images" / f"{image}.tar.zst"
    named = os.environ.get("CAISSON_BASE_IMAGE") if image == "base" else None
    return pathlib.Path(named) if named else beside if beside.exists() else usual


def left_out(why):
    """Something of this machine is missing: a failure in CI, elsewhere a line on stderr."""
    if os.environ.get("CI") == "true":
        raise AssertionError(why)
    print(f"left out: {why}", file=sys.stderr)
    raise unittest.SkipTest(why)


class Terminal:
    """caisson on a terminal: say() types a line and waits for what it makes appear. A `with` block ends it."""

    def __init__(self, caller, *arguments):
        command, self.seen = caller.command(*arguments), ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(caller.home)
                os.execvpe(command[0], command, {**caller.env, "TERM": "xterm"})
            finally:
                os._exit(127)
        self.resize(24, 80)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, wanted, seconds):
        """Reads until `wanted` appeared (None: to the end), and returns what came."""
        new, end = "", time.monotonic() + seconds
        while wanted is None or wanted not in new:
            if not select.select([self.master], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"waited in vain for {wanted!r}; the terminal got {self.seen!r}")
            try:
                data = os.read(self.master, 65536)
            except OSError:  # how the end of a terminal reads
                data = b""
            if not data:
                if wanted is None:
                    return new
                raise AssertionError(f"ended before {wanted!r}; the terminal got {self.seen!r}")
            new += data.decode(errors="replace")
            self.seen += data.decode(errors="replace")
        return new

    def say(self, line, wanted=None, seconds=20):
        """Types a line (bytes: exactly these, no newline) and waits for `wanted`, if given."""
        os.write(self.master, line if isinstance(line, bytes) else line.encode() + b"\n")
        return self.read(wanted, seconds) if wanted else ""

    def wait(self):
        self.read(None, 20)
        status = os.waitpid(self.pid, 0)[1]
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)


class ModeTest(support.CallerTest):
    """`self.mode` and `self.image`; `run_in` runs on that image."""

    modes = MODES
    mode = None

    @classmethod
    def setUpClass(cls):
        cls.image = cls.mode if cls.mode in BUILT else "host"
        kind = "root" if cls.mode in BUILT else cls.mode
        if kind not in harness.callers():
            left_out(f"{cls.__name__}: this process cannot be the {kind} caller (root and newuidmap are needed)")
        if cls.mode in BUILT and not archive_of(cls.mode).exists():
            left_out(f"{cls.__name__}: there is no {archive_of(cls.mode)}; ./dev image {cls.mode} builds it")
        cls.kind = kind
        super().setUpClass()
        if cls.mode in BUILT:
            done = cls.caller.caisson("image", "import", cls.mode, archive_of(cls.mode), timeout=600)
            assert done.returncode == 0, done

    def run(self, result=None):
        start = time.monotonic()
        done = super().run(result)
        if "-v" in sys.argv:
            print(f"  {time.monotonic() - start:.1f} s", file=sys.stderr)
        return done

    def run_in(self, *arguments, **options):
        return super().run_in("--image", self.image, *arguments, **options)

    def need(self, *tools):
        """Leaves the test out where the host image would not show one of these programs."""
        if self.image != "host":
            return
        for tool in tools:
            if not shutil.which(tool, path=SEEN_INSIDE):
                left_out(f"{self.id()}: {tool} is not below /usr; the group test of tools/packages.txt has it")

    def terminal(self, *arguments):
        return Terminal(self.caller, *arguments)

    def given(self, files):
        """A folder of the caller's, named like the test, with these files: path -> contents."""
        path = self.caller.mkdir(self.id().rsplit(".", 1)[1])
        for name, text in files.items():
            for parent in reversed(list(pathlib.PurePath(name).parents)[:-1]):
                if not (path / parent).exists():
                    self.caller.mkdir(path / parent)
            self.caller.write(path / name, text, 0o644)
        return path


def main():
    """Runs the calling module's classes in each of their modes; exits with 1 where a test failed."""
    harness.require_programs()
    harness.subreaper()
    module = sys.modules["__main__"]
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
    suite = unittest.TestSuite()
    for cls in [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, ModeTest)]:
        for mode in cls.modes:
            name = f"{cls.__name__}_{mode.replace('-', '_')}"
            made = type(name, (cls,), {"mode": mode, "__module__": cls.__module__, "__qualname__": name})
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(made):
                if all(word in test.id() for word in wanted):
                    suite.addTest(test)
    result = unittest.TextTestRunner(verbosity=2 if "-v" in sys.argv else 1).run(suite)
    if result.testsRun == 0 and not result.skipped and not result.errors:
        sys.exit("no test was run")
    sys.exit(not result.wasSuccessful())
