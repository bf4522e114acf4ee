"""Texts from the table: help, man pages, completions, the version; images; doctor; the example."""
import json
import os
import re
import shutil
import subprocess
import tarfile

import support

COMMANDS = ["run", "shell", "exec", "ps", "logs", "kill", "pause", "resume", "cp", "image pull", "image import",
            "image export", "image build", "image ls", "image inspect", "image tag", "image rm", "image gc", "key create", "key ls", "key rm",
            "team create", "team ls", "team set", "policy check", "policy explain", "policy apply", "secret set", "secret ls", "secret rm", "audit tail", "audit why", "audit verify", "serve", "doctor", "completion"]


class Texts(support.CallerTest):
    def test_version(self):
        self.assertRegex(self.caller.caisson("--version").out, r"^caisson \d+\.\d+\.\d+\n$")

    def test_help_of_every_command_has_an_example(self):
        overview = self.caller.caisson("--help")
        self.assertEqual(overview.returncode, 0)
        for command in COMMANDS:
            done = self.caller.caisson(*command.split(), "--help")
            self.assertEqual(done.returncode, 0, done)
            self.assertIn("Example", done.out)
            self.assertIn(f"caisson {command}", done.out)
            self.assertIn(command, overview.out)

    def test_help_of_every_group_lists_its_commands(self):
        groups = sorted({command.split()[0] for command in COMMANDS if " " in command})
        self.assertGreater(len(groups), 3)
        for group in groups:
            for word in ("--help", "-h", "help"):
                done = self.caller.caisson(group, word)
                self.assertEqual((done.returncode, done.err), (0, ""), (group, done))
                listed = re.findall(r"^  (\S+ \S+)  ", done.out, re.M)
                self.assertEqual(listed, [command for command in COMMANDS if command.startswith(group + " ")], done.out)
            self.assert_refused(self.caller.caisson(group), f"'caisson {group}' needs a command")
        self.assert_refused(self.caller.caisson("nothing", "--help"), "unknown command 'nothing'")

    def test_man_pages(self):
        folder = self.caller.mkdir("man")
        self.assertEqual(self.caller.caisson("man", folder).returncode, 0)
        self.assertEqual(sorted(os.listdir(folder)),
                         sorted(["caisson.1"] + [f"caisson-{c.replace(' ', '-')}.1" for c in COMMANDS]))
        if shutil.which("man"):
            for page in os.listdir(folder):
                done = subprocess.run(["man", "--warnings", "-l", folder / page], capture_output=True, env={"MANWIDTH": "80", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
                self.assertEqual((done.returncode, done.stderr), (0, b""), page)
        self.assert_refused(self.caller.caisson("man", "/no/such/folder"), "/no/such/folder")

    def test_completions(self):
        script = self.caller.caisson("completion", "bash").out
        self.assertEqual(subprocess.run(["bash", "-n"], input=script.encode()).returncode, 0)
        asked = script + 'COMP_WORDS=(caisson run --mem) COMP_CWORD=2; _caisson; echo "${COMPREPLY[@]}"\n' \
            'COMP_WORDS=(caisson sh) COMP_CWORD=1; _caisson; echo "${COMPREPLY[@]}"\n' \
            'COMP_WORDS=(caisson run --privileges "") COMP_CWORD=3; _caisson; echo "${COMPREPLY[@]}"\n' \
            'COMP_WORDS=(caisson image "") COMP_CWORD=2; _caisson; echo "${COMPREPLY[@]}"\n' \
            'COMP_WORDS=(caisson key "") COMP_CWORD=2; _caisson; echo "${COMPREPLY[@]}"\n' \
            'COMP_WORDS=(caisson key ls --a) COMP_CWORD=3; _caisson; echo "${COMPREPLY[@]}"\n'
        done = subprocess.run(["bash"], input=asked.encode(), capture_output=True)
        self.assertEqual(done.stdout.decode().splitlines(), ["--memory", "shell", "none sudo", "pull import export build ls inspect tag rm gc",
                                                             "create ls rm", "--all"], done.stderr)
        for shell in ("zsh", "fish"):
            self.assertIn("memory", self.caller.caisson("completion", shell).out)
        self.assert_refused(self.caller.caisson("completion", "tcsh"), "tcsh", "bash, zsh and fish")

    def test_doctor(self):
        done = self.caller.caisson("doctor")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("wall namespace", done.out)
        findings = json.loads(self.caller.caisson("doctor", "--json").out)
        self.assertTrue(any(f["wall"] == "namespace" and f["feature"] == "wall" for f in findings))
        self.assertTrue(all(f["state"] in ("works", "limited", "missing") for f in findings), findings)
        self.assert_refused(self.caller.caisson("doctor", "x"), "no arguments")

    def test_images(self):
        # A root file system as small as can be: busybox alone.
        archive = self.caller.folder / "tiny.tar"
        with tarfile.open(archive, "w") as tar:
            for name in ("bin", "etc", "home", "home/user", "tmp", "proc", "dev", "sys", "run"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                entry.uid = entry.gid = 1000 if name == "home/user" else 0
                tar.addfile(entry)
            tar.add(shutil.which("busybox"), "bin/busybox", filter=lambda e: e.replace(uid=0, gid=0, uname="", gname="", deep=False))
            for tool in ("sh", "echo", "cat", "id"):
                entry = tarfile.TarInfo(f"bin/{tool}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
            import io
            text = b"root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/user:/bin/sh\n"
            entry = tarfile.TarInfo("etc/passwd")
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text))
        archive.chmod(0o644)
        done = self.caller.caisson("image", "import", "tiny", archive)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.caller.caisson("image", "ls", "-q").out, "tiny:latest\n")
        listed = json.loads(self.caller.caisson("image", "ls", "--json").out)
        self.assertEqual(listed[0]["name"], "tiny:latest")
        self.assertRegex(listed[0]["id"], r"^sha256:[0-9a-f]{64}$")
        self.assertIn("tiny:latest", self.caller.caisson("image", "ls").out)
        done = self.run_in("--image", "tiny", "--", "id", "-un")
        self.assertEqual((done.returncode, done.out), (0, "me\n"), done)
        # An image named base is taken without being asked for.
        self.assertEqual(self.caller.caisson("image", "import", "base", "-", input=archive.read_bytes()).returncode, 0)
        self.assertEqual(self.verdict("--", "id", "-un")["image"], "base")
        for name in ("tiny", "base"):
            self.assertEqual(self.caller.caisson("image", "rm", name).returncode, 0)
        self.assert_refused(self.caller.caisson("image", "rm", "tiny"), "tiny")
        self.assert_refused(self.caller.caisson("image", "rm"), "no image given")
        self.assert_refused(self.caller.caisson("image", "import"), "a name and an archive")
        self.assert_refused(self.caller.caisson("image", "import", "x", "/no/such.tar"), "/no/such.tar")
        self.assert_refused(self.caller.caisson("image", "import", "host", archive), "host")
        self.assert_refused(self.caller.caisson("image", "import", "x", "/etc/hostname"))
        self.assertEqual(self.verdict("--", "true")["image"], "host")


class Example(support.CallerTest):
    def test_the_example_program(self):
        programs = self.caller.programs()
        example = programs / "examples" / "caisson_hello"
        if not example.exists():  # a copy for a user who cannot reach the build folder
            (programs / "examples").mkdir()
            shutil.copy(support.harness.build_dir() / "examples" / "caisson_hello", example)
        command = self.caller.command()
        done = subprocess.run([*command[:-1], str(example)], env=self.caller.env, capture_output=True, timeout=60)
        text = done.stdout.decode()
        self.assertEqual(done.returncode, 0, (text, done.stderr))
        self.assertTrue(re.search(r"^exited with 0: 42$", text, re.M), text)
        self.assertTrue(re.search(r"^time_limit", text, re.M), text)


support.main()
