"""caisson image build: Dockerfiles with busybox, as every kind of caller."""
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time

import support
import harness  # by the path that support adds

TOOLS = ("sh cat ls echo id mkdir touch rm ln chown chmod env stat wc sleep find head tail test true false "
         "dd tar wget grep cp mv sed printf").split()
PASSWD = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
GROUP = "root:x:0:\nuser:x:1000:\nstaff:x:50:\n"


def base_archive(path):
    """A root file system of busybox alone."""
    with tarfile.open(path, "w") as tar:
        tar.add(shutil.which("busybox"), "bin/busybox")
        for tool in TOOLS:
            entry = tarfile.TarInfo(f"bin/{tool}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
        for name, mode in (("etc", 0o755), ("tmp", 0o1777), ("root", 0o700), ("home", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        for name, text in (("etc/passwd", PASSWD), ("etc/group", GROUP)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    path.chmod(0o644)


class Build(support.CallerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        archive = cls.caller.folder / "base.tar"
        base_archive(archive)
        done = cls.caller.caisson("image", "import", "bb", archive)
        assert done.returncode == 0, done

    def setUp(self):
        self.context = self.caller.mkdir(f"context-{self.id().rsplit('.', 1)[1]}")

    def write(self, path, data, mode=0o644):
        folder = self.context
        for part in os.path.dirname(path).split("/"):
            folder = folder / part
            if not folder.exists():
                folder.mkdir(mode=0o755)
                self.caller.own(folder)
        return self.caller.write(self.context / path, data, mode)

    def build(self, text, *options, **more):
        """`caisson image build` of a Dockerfile with this text in the context."""
        if text is not None:
            self.write("Dockerfile", text)
        return self.caller.caisson("image", "build", "--progress", "plain", *options, self.context, **more)

    def built(self, text, *options, **more):
        done = self.build(text, *options, **more)
        self.assertEqual(done.returncode, 0, done)
        return done

    def cached(self, done):
        """The numbers of the steps that came from the cache."""
        return [int(number) for number in re.findall(r"^#(\d+) CACHED$", done.err, re.M)]

    def shown(self, image, *command):
        done = self.run_in("--image", image, "--", *command)
        self.assertEqual(done.returncode, 0, done)
        return done.out

    def assert_failed(self, done, *words):
        """A step's own failure: 1, and the words in the last line."""
        self.assertEqual(done.returncode, 1, done)
        last = done.err.splitlines()[-1]
        self.assertTrue(last.startswith("caisson: "), done)
        for word in words:
            self.assertIn(word, last, done)

    def in_tmp(self):
        folder = self.caller.folder / "state/caisson/images/tmp"
        return sorted(os.listdir(folder)) if folder.exists() else []


class Images(Build):
    def test_stages_copies_and_the_configuration(self):
        self.write("a.txt", "A\n")
        self.write("dir/sub/s", "S\n")
        self.caller.own(self.context / "dir/sub")
        os.symlink("sub/s", self.context / "dir/link")
        self.built(
            "ARG BASE=bb\n"
            "FROM ${BASE} AS one\n"
            "ARG WHAT=world\n"
            'ENV GREETING="hello $WHAT"\n'
            "RUN echo $GREETING > /greeting\n"
            "COPY a.txt dir /data/\n"
            "FROM bb AS unused\n"
            "RUN false\n"
            "FROM bb\n"
            "COPY --from=one /greeting /data/ /out/\n"
            "WORKDIR /home/user/w\n"
            "RUN cat /out/greeting >> said && pwd >> said\n"
            'CMD ["cat", "/out/greeting"]\n',
            "-t", "app", "--build-arg", "WHAT=there", "--label", "who=me")
        self.assertEqual(self.shown("app", "cat", "/home/user/w/said"), "hello there\n/home/user/w\n")
        self.assertEqual(self.shown("app", "cat", "/out/a.txt", "/out/link", "/out/sub/s"), "A\nS\nS\n")
        inspected = json.loads(self.caller.caisson("image", "inspect", "app").stdout)[0]
        config = inspected["config"]["config"]
        self.assertEqual(config["Cmd"], ["cat", "/out/greeting"])
        self.assertEqual(config["WorkingDir"], "/home/user/w")
        self.assertEqual(config["Labels"], {"who": "me"})
        self.assertNotIn("Env", config)
        history = inspected["config"]["history"]
        self.assertEqual([step.get("empty_layer", False) for step in history[-4:]], [False, False, False, True])
        self.assertEqual(len(inspected["layers"]), 4)

    def test_owners_and_modes(self):
        if self.kind == "user":
            self.skipTest("without a range of ids every file belongs to the user")
        self.write("run.sh", "#!/bin/sh\necho ran\n", 0o755)
        self.write("d/f", "f")
        self.built(
            "FROM bb\n"
            "COPY run.sh /bin/\n"
            "COPY --chown=user:staff --chmod=750 d /d\n"
            "COPY --chown=7:8 d/f /new/folder/f\n"
            "USER user\n"
            "RUN run.sh && id -u && touch /tmp/mine\n"
            "USER 5:6\n"
            "RUN id -u; id -g\n"
            "FROM bb\n"
            "COPY --from=0 /d /tmp/mine /e/\n", "-t", "owners")
        listed = self.shown("owners", "stat", "-c", "%n %u:%g %a", "/e/f", "/e/mine")
        self.assertEqual(listed, "/e/f 1000:50 750\n/e/mine 1000:1000 644\n")

    def test_root_can_do_what_packages_need(self):
        if self.kind == "user":
            self.skipTest("without a range of ids there is no sudo")
        self.built(
            "FROM bb\n"
            "RUN echo bob:x:1001:1001::/home/bob:/bin/sh >> /etc/passwd && mkdir -p /home/bob && chown bob:staff /tmp && chmod 4755 /bin/busybox && rm /etc/group\n"
            "RUN touch /home/bob/x && chown bob /home/bob/x\n", "-t", "packages")
        self.assertEqual(self.shown("packages", "stat", "-c", "%U %a", "/bin/busybox", "/tmp", "/home/bob/x"),
                         "root 4755\nbob 1777\nbob 644\n")
        self.assertNotEqual(self.run_in("--image", "packages", "--", "cat", "/etc/group").returncode, 0)

    def test_from_scratch(self):
        self.write("busybox", open(shutil.which("busybox"), "rb").read(), 0o755)
        self.built(
            "FROM scratch\n"
            "COPY busybox /bin/\n"
            "COPY <<passwd <<'group' /etc/\n"
            "root:x:0:0::/:/bin/sh\n"
            "passwd\n"
            "$NOT\n"
            "group\n"
            'RUN ["/bin/busybox", "cp", "/etc/group", "/var/kept"]\n'
            'RUN ["/bin/busybox", "ln", "-s", "busybox", "/bin/cat"]\n', "-t", "scratched")
        self.assertEqual(self.shown("scratched", "/bin/cat", "/var/kept", "/etc/passwd"),
                         "$NOT\nroot:x:0:0::/:/bin/sh\n")

    def test_copies_merge_and_replace(self):
        self.write("one/a", "1a")
        self.write("one/sub/b", "1b")
        self.write("two/sub/c", "2c")
        self.write("two/a", "2a")
        self.built(
            "FROM bb\n"
            "RUN mkdir /real && ln -s /real /linked && echo old > /file && ln -s /file /d\n"
            "COPY one /x\n"
            "COPY two/ /x\n"
            "COPY one/a /linked/\n"
            "COPY one/a /linked\n"
            "COPY one/a /d\n"
            "COPY */a* /many/\n", "-t", "merged")
        self.assertEqual(self.shown("merged", "cat", "/x/a", "/x/sub/b", "/x/sub/c", "/real/a", "/d", "/file"),
                         "2a1b2c1a1aold\n")
        self.assertEqual(self.shown("merged", "ls", "/many"), "a\n")

    def test_archives_are_unpacked_by_add_alone(self):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as tar:
            entry = tarfile.TarInfo("in/side")
            entry.size, entry.uid = 2, 1000
            tar.addfile(entry, io.BytesIO(b"ok"))
        self.write("x.tar.gz", data.getvalue())
        self.write("plain.gz", b"\x1f\x8bnot an archive")
        self.built("FROM bb\nADD x.tar.gz plain.gz /added/\nCOPY x.tar.gz /copied/\n", "-t", "added")
        self.assertEqual(self.shown("added", "cat", "/added/in/side"), "ok")
        self.assertEqual(self.shown("added", "ls", "/added", "/copied"),
                         "/added:\nin\nplain.gz\n\n/copied:\nx.tar.gz\n")
        self.write("broken.tar.gz", b"\x1f\x8b" + b"x" * 100)
        self.assert_failed(self.build("FROM bb\nADD broken.tar.gz /a\n"), "Dockerfile:2: ADD broken.tar.gz")

    def test_scripts_in_here_documents(self):
        self.built(
            "FROM bb\n"
            "RUN <<EOF\n"
            "x=1\n"
            "echo line $x > /one\n"
            "EOF\n"
            "RUN <<EOF\n"
            "#!/bin/sh -e\n"
            "echo $0 > /two\n"
            "EOF\n", "-t", "scripts")
        self.assertEqual(self.shown("scripts", "cat", "/one", "/two"), "line 1\n/dev/shm/build-script\n")

    def test_what_is_left_out(self):
        self.write(".dockerignore", "*\n!keep\n")
        self.write("keep/a", "a")
        self.write("secret", "s")
        self.built("FROM bb\nCOPY . /all/\n", "-t", "less")
        self.assertEqual(self.shown("less", "find", "/all", "-type", "f"), "/all/keep/a\n")
        self.assert_failed(self.build("FROM bb\nCOPY secret /\n"),
                           "Dockerfile:2: COPY secret /: 'secret' is left out of the context by .dockerignore")
        self.write("other.Dockerfile", "FROM bb\nCOPY . /all/\n")
        self.write("other.Dockerfile.dockerignore", "keep\n*ockerfile*\n.docker*\n")
        self.built(None, "-f", self.context / "other.Dockerfile", "-t", "less")
        self.assertEqual(self.shown("less", "find", "/all", "-type", "f"), "/all/secret\n")

    def test_nothing_outside_the_context_is_copied(self):
        self.caller.write("outside", "secret")
        os.symlink("../outside", self.context / "link")
        os.symlink(self.caller.folder, self.context / "folder")
        for source in ("link", "folder/outside", "folder"):
            self.assert_failed(self.build(f"FROM bb\nCOPY {source} /x\n"), "Dockerfile:2", "leads out of the context")
        self.assert_failed(self.build("FROM bb\nCOPY ../outside /x\n"), "Dockerfile:2", "leads out of the context")
        self.built("FROM bb\nCOPY . /x/\n", "-t", "links")
        self.assertEqual(self.shown("links", "ls", "/x"), "Dockerfile\nfolder\nlink\n")


class Cache(Build):
    TEXT = "FROM bb\nRUN echo one > /one\nCOPY f /f\nRUN echo two > /two\nENV A=1\nCMD [\"cat\"]\n"

    def test_a_second_build_does_nothing_and_is_the_same(self):
        self.write("f", "1")
        first = self.built(self.TEXT, "-q").out
        self.assertRegex(first, r"^sha256:[0-9a-f]{64}\n$")
        os.utime(self.context / "f", (1, 1))
        again = self.built(self.TEXT, "-t", "again")
        self.assertEqual(self.cached(again), [2, 3, 4])
        self.assertEqual(self.built(self.TEXT, "-q").out, first)

    def test_what_changes_is_done_again_with_what_follows(self):
        self.write("f", "1")
        self.built(self.TEXT)
        self.write("f", "2")
        self.assertEqual(self.cached(self.built(self.TEXT, "-t", "x")), [2])
        self.assertEqual(self.shown("x", "cat", "/f"), "2")
        (self.context / "f").chmod(0o600)
        self.assertEqual(self.cached(self.built(self.TEXT)), [2])
        changed = self.TEXT.replace("two >", "three >")
        self.assertEqual(self.cached(self.built(changed)), [2, 3])
        self.assertEqual(self.cached(self.built("FROM bb\nENV B=2\n" + self.TEXT[8:])), [])
        self.assertEqual(self.cached(self.built(self.TEXT, "--no-cache")), [])

    def test_a_stage_that_comes_from_the_cache_can_be_copied_from(self):
        text = "FROM bb AS a\nRUN echo x > /x\nFROM bb\nCOPY --from=a /x /y{}\nRUN cat /y*\n"
        self.built(text.format(1))
        done = self.built(text.format(2), "-t", "copied")
        self.assertEqual(self.cached(done), [2])
        self.assertEqual(self.shown("copied", "cat", "/y2"), "x\n")

    def test_what_a_command_could_reach_is_part_of_what_it_made(self):
        text = "FROM bb\nRUN echo x > /x\n"
        self.built(text)
        self.assertEqual(self.cached(self.built(text, "--net", "files.example.com")), [])
        self.assertEqual(self.cached(self.built(text, "--net", "files.example.com")), [2])
        self.assertEqual(self.cached(self.built(text, "--net", "other.example.com")), [])
        self.assertEqual(self.cached(self.built(text)), [2])

    def test_two_at_once(self):
        self.write("Dockerfile", "FROM bb\nRUN sleep 1; echo x > /x\nRUN cat /x > /y\n")
        both = [self.caller.popen("image", "build", "-q", "-t", f"two{i}", self.context,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(2)]
        ends = [process.communicate(timeout=120) for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], ends)
        for i in range(2):
            self.assertEqual(self.shown(f"two{i}", "cat", "/y"), "x\n")
        self.assertEqual(self.in_tmp(), [])


class Failures(Build):
    def test_names_of_from_are_the_settings_or_can_be_pulled(self):
        folder = self.caller.mkdir("settings")
        self.caller.own(folder)
        (folder / "caisson").mkdir()
        (folder / "caisson").chmod(0o755)
        self.caller.write(folder / "caisson/config.yaml", 'images: {"ubuntu:22.04": bb}\n')
        env = {**self.caller.env, "XDG_CONFIG_HOME": str(folder)}
        text = "FROM ubuntu:22.04\nCOPY --from=ubuntu:22.04 /bin/sh /again\n"
        self.assertEqual(self.build(text, env=env).returncode, 0)
        for line in "", "FROM bb\n":
            done = self.build(text if not line else line + "COPY --from=ubuntu:22.04 /bin/sh /again\n")
            self.assertNotEqual(done.returncode, 0, done)
            self.assertIn("`caisson image pull ubuntu:22.04` gets it", done.err)

    def test_what_lies_in_the_context_leads_nowhere_else(self):
        secret = self.caller.write(self.caller.mkdir("elsewhere") / "secret", "topsecretword x\n")
        for name in "Dockerfile", ".dockerignore":
            with self.subTest(name=name):
                os.symlink(secret, self.context / name)
                done = self.build(None if name == "Dockerfile" else "FROM scratch\nCOPY a /\n")
                self.assertEqual(done.returncode, 125, done)
                self.assertIn(f"{name} leads out of the context through a link", done.err)
                self.assertNotIn("topsecretword", done.err)
                os.unlink(self.context / name)
        os.symlink(secret, self.caller.folder / "linked")  # who names it means it
        self.assertIn("topsecretword", self.build(None, "-f", self.caller.folder / "linked").err)

    def test_a_link_brings_nothing_that_is_left_out(self):
        self.write("private", "x")
        self.write(".dockerignore", "private\n")
        os.symlink("private", self.context / "link")
        self.assert_failed(self.build("FROM bb\nCOPY link /x\n"), "left out of the context by .dockerignore")

    def test_a_failing_step_shows_its_last_lines_and_its_place(self):
        done = self.build("FROM bb\n\nRUN for i in 1 2 3; do echo line $i; done; exit 7\n")
        self.assert_failed(done, "Dockerfile:3: RUN for i in", ": exit status 7")
        self.assertIn("----\nline 1\nline 2\nline 3\n----\n", done.err)
        self.assertEqual(self.in_tmp(), [])

    def test_limits_are_told_by_their_verdict(self):
        self.assert_failed(self.build("FROM bb\nRUN sleep 60\n", "--timeout", "1s"), "Dockerfile:2", "time_limit")
        if self.kind == "root":
            done = self.build("FROM bb\nRUN head -c 300m /dev/zero | tail > /dev/null\n", "--memory", "64MiB",
                              "--disk", "16MiB")
            self.assert_failed(done, "Dockerfile:2", "memory_limit")
        done = self.build("FROM bb\nRUN dd if=/dev/zero of=/big bs=1M count=40\n", "--disk", "8MiB")
        self.assert_failed(done, "Dockerfile:2", "disk_limit")

    def test_a_program_or_user_that_is_not_there(self):
        self.assert_failed(self.build("FROM bb\nRUN nonsense\n"), "Dockerfile:2: RUN nonsense", "exit status 127")
        self.assert_failed(self.build('FROM bb\nRUN ["/none"]\n'), "Dockerfile:2", "exit status 127")
        self.assert_failed(self.build("FROM bb\nUSER nobody9\nRUN id\n"), "Dockerfile:3: RUN id",
                           "there is no user 'nobody9'")

    def test_what_cannot_be_copied(self):
        self.write("a", "a")
        self.write("b", "b")
        for line, words in {
                "COPY none /": "the context has no 'none'",
                "COPY *.none /": "nothing matches '*.none'",
                "COPY [ab] /x": "the destination must be a directory",
                "COPY a /etc/passwd/x": "/etc/passwd of the image is no directory",
                "COPY . /etc/passwd": "/etc/passwd of the image is no directory",
        }.items():
            with self.subTest(line):
                self.assert_failed(self.build(f"FROM bb\n{line}\n"), "Dockerfile:2", words)
        if self.kind != "user":
            self.assert_failed(self.build("FROM bb\nCOPY --chown=you a /\n"), "there is no user 'you'")

    def test_mistakes_are_told_before_anything_runs(self):
        for text, words in {
                "FROM bb\nRUN false\nFRM x\n": "Dockerfile:3: unknown instruction 'FRM'; allowed are ADD",
                "FROM bb\nRUN --mount=type=cache,target=/x y\n": "Dockerfile:2: RUN --mount is not supported",
                "FROM bb\nONBUILD RUN x\n": "Dockerfile:2: ONBUILD is not supported",
                "FROM nothing\n": "Dockerfile:1: FROM nothing",
                "FROM bb\nADD https://example.com/x /x\n": "ADD of an address is not supported",
        }.items():
            with self.subTest(text):
                self.assertEqual(self.build(text).returncode, 125)
                self.assertIn(words, self.build(text).err)

    def test_wrong_options(self):
        self.write("Dockerfile", "FROM bb\n")
        build = lambda *arguments: self.caller.caisson("image", "build", *arguments)  # noqa: E731
        self.assert_refused(build(), "a context is needed")
        self.assert_refused(build(self.context / "none"), "the context", "none")
        self.assert_refused(build("-f", self.context / "none", self.context), "there is no file")
        self.assert_refused(build("-t", "UPPER", self.context), "UPPER")
        self.assert_refused(build("--label", "x", self.context), "--label 'x'", "NAME=VALUE")
        self.assert_refused(build("--net", "bad host", self.context), "--net", "HOST[:PORT]")
        self.assert_refused(build("--memory", "lots", self.context), "--memory")
        self.assert_refused(build("--progress", "loud", self.context), "--progress", "plain, tty and json")
        self.assert_refused(build("--target", "none", self.context), "--target", "no stage 'none'")

    def test_a_build_that_is_stopped_leaves_nothing(self):
        self.write("Dockerfile", "FROM bb\nRUN echo kept > /kept\nRUN echo up && sleep 60\n")
        for sent, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
            with self.subTest(sent):
                process = self.caller.popen("image", "build", "--progress", "json", self.context,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                while line := process.stdout.readline():
                    event = json.loads(line)
                    if event["event"] == "output" and event["number"] == 3:
                        break
                process.send_signal(sent)
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, status)
                self.assertTrue(harness.wait_until(lambda: not self.caller.sandboxes_left(), 20))
                # The next command that looks at the store sweeps.
                self.assertEqual(self.caller.caisson("image", "ls").returncode, 0)
                self.assertEqual(self.in_tmp(), [])


class Progress(Build):
    def test_json(self):
        self.write("Dockerfile", "FROM bb\nRUN echo out; echo err >&2\n")
        done = self.caller.caisson("image", "build", "--progress", "json", "-t", "j", self.context)
        self.assertEqual(done.returncode, 0, done)
        events = [json.loads(line) for line in done.out.splitlines()]
        self.assertEqual([e["event"] for e in events if e["event"] != "output"],
                         ["started", "done", "started", "done", "finishing", "built"])
        output = {e["channel"]: e["text"] for e in events if e["event"] == "output"}
        self.assertEqual(output, {"stdout": "out\n", "stderr": "err\n"})
        self.assertRegex(events[-1]["image"], "^sha256:[0-9a-f]{64}$")
        done = self.caller.caisson("image", "build", "--progress", "json", "-f", "-", self.context,
                                   input=b"FROM bb\nRUN echo last; exit 3\n")
        self.assertEqual(done.returncode, 1, done)
        failure = json.loads(done.out.splitlines()[-1])
        self.assertEqual((failure["place"], failure["reason"], failure["verdict"], failure["tail"]),
                         ("stdin:2", "exit status 3", "exited", ["last"]))

    def test_output_of_a_build_cannot_steer_a_terminal(self):
        self.write("Dockerfile", "FROM bb\nRUN printf 'a\\033]0;title\\007b\\n'; printf 'c\\033[2Jd\\n'; exit 1\n")
        for style in ("plain", "tty"):
            done = self.caller.on_pty("image", "build", "--progress", style, self.context)
            self.assertEqual(done.returncode, 1, done)
            self.assertNotIn(b"\x1b]0;", done.stdout)
            self.assertIn(b"exit status 1", done.stdout)

    def test_targets_and_standard_input(self):
        text = b"FROM bb AS a\nRUN echo a > /who\nFROM a AS b\nRUN echo b > /who\n"
        for options, who in ((("--target", "a"), "a\n"), ((), "b\n")):
            done = self.caller.caisson("image", "build", "-f", "-", "-q", "-t", "who", *options, self.context, input=text)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(self.shown("who", "cat", "/who"), who)


support.main()
