#!/usr/bin/env python3
"""How ./dev finds, asks for and installs packages, with apt-get, dpkg-query and sudo faked.

A copy of ./dev runs with a PATH whose first folder holds the fakes, as root and as an ordinary
user, with a terminal and without. Nothing is installed.
"""

import os
import pty
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOBODY = 65534

# Logs its arguments; `-s` answers from $FAKE/simulate (and $FAKE/simulate-PACKAGE for one alone).
APT = r"""#!/bin/bash
echo "apt-get $*" >>"$FAKE/log"
case "$*" in
  *" -s "*)
    file=$FAKE/simulate
    if [ -e "$FAKE/simulate-${*: -1}" ]; then file=$FAKE/simulate-${*: -1}; fi
    cat "$file" 2>/dev/null
    if [ -e "$FAKE/lists-missing" ]; then echo "E: Unable to locate package"; exit 100; fi
    if [ -e "$file.fails" ]; then exit 100; fi
    ;;
  update) rm -f "$FAKE/lists-missing" ;;
  *) if [ -e "$FAKE/install-fails" ]; then echo "E: no space left"; exit 100; fi ;;
esac
exit 0
"""
# Says that everything is installed but what $FAKE/missing lists.
DPKG = r"""#!/bin/bash
echo "dpkg-query" >>"$FAKE/log"
shift 3
for name in "$@"; do
  if ! grep -qx "$name" "$FAKE/missing" 2>/dev/null; then echo "$name installed"; fi
done
"""
SUDO = r"""#!/bin/bash
echo "sudo $*" >>"$FAKE/log"
shift
exec "$@"
"""
# Configuring and building do nothing.
NOTHING = "#!/bin/bash\nexit 0\n"


class Dev(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = folder.name
        self.tree = os.path.join(self.base, "tree")
        self.fake = os.path.join(self.base, "fake")
        os.makedirs(os.path.join(self.tree, "tools"))
        os.makedirs(self.fake)
        shutil.copy(os.path.join(ROOT, "dev"), self.tree)
        with open(os.path.join(self.tree, "tools/packages.txt"), "w") as file:
            file.write("# comment\nbuild one\nbuild two\nbench three\n")
        self.program("apt-get", APT)
        self.program("dpkg-query", DPKG)
        self.program("sudo", SUDO)
        self.program("cmake", NOTHING)
        self.program("ninja", NOTHING)
        for folder, _, files in os.walk(self.base):
            for path in [folder] + [os.path.join(folder, name) for name in files]:
                if os.geteuid() == 0:
                    os.chown(path, NOBODY, NOBODY)
        os.chmod(self.base, 0o755)

    def program(self, name, text):
        path = os.path.join(self.fake, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)

    def put(self, name, text=""):
        path = os.path.join(self.fake, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o666)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)

    def log(self):
        try:
            with open(os.path.join(self.fake, "log")) as file:
                return [line for line in file.read().splitlines() if line != "dpkg-query"]
        except FileNotFoundError:
            return []

    def options(self, user):
        environment = dict(os.environ, FAKE=self.fake, PATH=self.fake + ":" + os.environ["PATH"])
        options = {"env": environment, "cwd": self.base}
        if os.geteuid() == 0 and user == "ordinary":
            options.update(user=NOBODY, group=NOBODY, extra_groups=[])
        return options

    def dev(self, user="ordinary"):
        command = [self.tree + "/dev", "build"]
        if os.geteuid() != 0 and user == "root":
            command = ["unshare", "--user", "--map-root-user", *command]
        return subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, check=False, **self.options(user))

    def dev_on_terminal(self, answer):
        """Runs it on a terminal of its own, answers once it asks; returns status and output."""
        master, slave = pty.openpty()
        process = subprocess.Popen([self.tree + "/dev", "build"], stdin=slave, stdout=slave,
                                   stderr=slave, start_new_session=True, **self.options("ordinary"))
        os.close(slave)
        output, answered = b"", False
        while True:
            try:
                chunk = os.read(master, 4096)
            except OSError:
                break  # the last writer has closed it
            if not chunk:
                break
            output += chunk
            if not answered and b"[y/N]" in output:
                os.write(master, answer.encode() + b"\n")
                answered = True
        os.close(master)
        return process.wait(timeout=20), output.decode()


class Ordinary(Dev):
    def test_nothing_missing_is_silent(self):
        done = self.dev()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.log(), [])

    def test_without_a_terminal_it_says_the_command_and_stops(self):
        self.put("missing", "two\n")
        done = self.dev()
        self.assertEqual(done.returncode, 1)
        self.assertIn("as root run: apt-get install -y --no-remove --no-install-recommends two",
                      done.stderr)
        self.assertEqual(self.log(), [])

    def test_on_a_terminal_it_asks_and_installs(self):
        self.put("missing", "one\ntwo\n")
        status, output = self.dev_on_terminal("y")
        self.assertEqual(status, 0, output)
        self.assertIn("installing Debian packages: one two", output)
        self.assertIn("sudo -- env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-remove "
                      "--no-install-recommends one two", self.log())

    def test_on_a_terminal_no_means_no(self):
        self.put("missing", "one\n")
        status, output = self.dev_on_terminal("")
        self.assertEqual(status, 1)
        self.assertIn("as root run: apt-get install", output)
        self.assertEqual(self.log(), [])

    def test_a_command_from_elsewhere_stands_for_its_package(self):
        with open(os.path.join(self.tree, "tools/packages.txt"), "a") as file:
            file.write("build odd sudo\nbuild odder no-such-command\n")
        self.put("missing", "odd\nodder\n")
        done = self.dev()
        self.assertTrue(done.stderr.endswith("recommends odder\n"), done.stderr)

    def test_foreign_build_folder(self):
        os.makedirs(os.path.join(self.tree, "build"))
        os.chmod(os.path.join(self.tree, "build"), 0o555)
        done = self.dev()
        self.assertEqual(done.returncode, 1)
        self.assertIn("belongs to another user", done.stderr)


class Root(Dev):
    INSTALL = "apt-get install -y --no-remove --no-install-recommends one two"

    def test_installs_without_asking(self):
        self.put("missing", "one\ntwo\n")
        done = self.dev("root")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("installing Debian packages: one two", done.stderr)
        self.assertEqual(self.log()[-1], self.INSTALL)
        self.assertFalse([line for line in self.log() if line.startswith("sudo")])

    def test_a_fresh_machine_gets_lists_first(self):
        self.put("missing", "one\ntwo\n")
        self.put("lists-missing")
        done = self.dev("root")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("apt-get update", self.log())
        self.assertEqual(self.log()[-1], self.INSTALL)

    def test_a_conflict_is_named_and_nothing_is_installed(self):
        self.put("missing", "one\ntwo\n")
        self.put("simulate", "Remv theirs [1.0]\nInst two\n")
        self.put("simulate-one", "Inst one\n")
        self.put("simulate-two", "Remv theirs [1.0]\nInst two\n")
        done = self.dev("root")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Debian's package two conflicts", done.stderr)
        self.assertIn("theirs", done.stderr)
        self.assertNotIn(self.INSTALL, self.log())

    def test_a_package_that_apt_refuses_is_named(self):
        self.put("missing", "one\n")
        self.put("simulate", "E: broken packages\n")
        self.put("simulate.fails")
        done = self.dev("root")
        self.assertEqual(done.returncode, 1)
        self.assertIn("E: broken packages", done.stderr)
        self.assertIn("Debian's package one cannot be installed", done.stderr)

    def test_a_failing_install_shows_the_log(self):
        self.put("missing", "one\n")
        self.put("install-fails")
        done = self.dev("root")
        self.assertEqual(done.returncode, 1)
        self.assertIn("E: no space left", done.stderr)
        self.assertIn("apt-install.log", done.stderr)

    def test_a_second_look_costs_nothing(self):
        # The stamp must be younger than Debian's list, which on a busy machine has just changed.
        while time.time() - os.stat("/var/lib/dpkg/status").st_mtime < 0.05:
            time.sleep(0.01)
        self.assertEqual(self.dev("root").returncode, 0)
        os.remove(os.path.join(self.fake, "log"))
        self.assertEqual(self.dev("root").returncode, 0)
        self.assertFalse(os.path.exists(os.path.join(self.fake, "log")))


class Commands(unittest.TestCase):
    def check(self, arguments, status, text):
        done = subprocess.run([ROOT + "/dev", *arguments], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, status)
        self.assertIn(text, done.stdout + done.stderr)

    def test_help(self):
        self.check(["help"], 0, "usage: ./dev COMMAND")
        self.check([], 0, "usage: ./dev COMMAND")

    def test_an_image_needs_ids_and_says_so_before_anything_is_fetched(self):
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            # A copy, since the tree may be closed to that user.
            shutil.copytree(ROOT + "/images", os.path.join(folder, "images"))
            library = os.path.join(folder, "images", "lib.sh")
            with open(library) as file:
                script = file.read()
            with open(library, "w") as file:
                file.write(script.replace("/etc/subuid /etc/subgid", "/dev/null"))
            for name in ("mmdebstrap", "npm"):
                path = os.path.join(folder, name)
                with open(path, "w") as file:
                    file.write("#!/bin/sh\necho fetched\nexit 1\n")
                os.chmod(path, 0o755)
            script = os.path.join(folder, "images", "base", "build")
            done = subprocess.run([*become, "bash", script, "--output", os.path.join(folder, "base.tar.zst")],
                                  stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False,
                                  env={"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"})
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("usermod --add-subuids", done.stderr)
        self.assertNotIn("fetch", done.stderr + done.stdout)

    def test_bad_arguments(self):
        self.check(["nonsense"], 1, "no command 'nonsense'")
        self.check(["test", "--quick"], 1, "test knows only --all, not --quick")
        self.check(["fuzz", "-5"], 1, "not '-5'")
        self.check(["bench", "../x"], 1, "no benchmark '../x'")
        self.check(["image", "nothing"], 1, "no image 'nothing'; there are base code-interpreter, and all")


if __name__ == "__main__":
    sys.exit(unittest.main())
