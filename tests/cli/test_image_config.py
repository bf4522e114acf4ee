"""What an image's configuration means for run, exec, shell and ps, and what wins over it."""
import json
import pathlib
import shutil

import support  # first: it makes tests/lib known
import images
import registry_lab


class ImageConfig(support.CallerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = cls.caller.mkdir("images")
        cls.layer = images.rootfs(folder / "plain.tar", {
            "var/www": images.directory(uid=33, gid=33), "home/user": images.directory(uid=1000, gid=1000),
            "app/tool": images.file('#!/bin/sh\necho "tool $*"\n', 0o755), "srv/here": images.file("here\n"),
            "taken": images.file("a file\n")})
        images.import_rootfs(cls.caller, "plain", cls.layer)

    # Ids other than the user's own need a range; a user without one has no other.
    def has_ids(self):
        return self.kind != "user"

    def image(self, **config):
        """The image `made` with this configuration."""
        images.configure(self.caller, "made", self.layer, config)

    def out(self, *arguments, image="made", **options):
        done = self.run_in("--image", image, *arguments, **options)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.err, "", done)
        return done.out

    def test_an_image_that_says_nothing_is_run_as_its_user_at_home(self):
        self.image()
        for image in ("plain", "made"):
            self.assertEqual(self.out("--", "sh", "-c", "id -u; pwd", image=image), "1000\n/home/user\n")
            self.assert_refused(self.run_in("--image", image), "no program to run", f"the image {image} names none")

    def test_entrypoint_and_command_as_docker_run_has_them(self):
        self.image(Entrypoint=["echo", "entry"], Cmd=["default", "words"])
        self.assertEqual(self.out(), "entry default words\n")
        self.assertEqual(self.out("--", "given"), "entry given\n")
        self.assertEqual(self.out("--entrypoint", "", "--", "echo", "alone"), "alone\n")
        self.assertEqual(self.out("--entrypoint", "/bin/echo", "--", "other"), "other\n")
        self.assertEqual(self.out("--entrypoint", "/bin/echo"), "\n")  # the image's words go with its entrypoint
        self.assert_refused(self.run_in("--image", "made", "--entrypoint", ""), "no program to run")
        self.image(Cmd=["echo", "only cmd"])
        self.assertEqual(self.out(), "only cmd\n")
        self.assertEqual(self.out("--", "echo", "given"), "given\n")
        self.image(Entrypoint=["/app/tool"])
        self.assertEqual(self.out(), "tool \n")

    def test_a_spec_file_says_the_same(self):
        self.image(Entrypoint=["echo", "entry"], Cmd=["default"])
        spec = self.caller.write("images/spec.yaml", "image: made\nentrypoint: [echo, spec]\ncommand: [words]\n", 0o644)
        self.assertEqual(self.run_in("--spec", spec).out, "spec words\n")
        self.assertEqual(self.run_in("--spec", spec, "--entrypoint", "").returncode, 127)  # `words` is no program
        self.assertEqual(self.run_in("--spec", spec, "--", "other").out, "spec other\n")
        printed = self.run_in("--spec", spec, "--entrypoint", "/bin/echo", "--print-spec")
        self.assertIn("command: [words]\nentrypoint: [/bin/echo]\n", printed.out)
        self.assertNotIn("entrypoint", self.run_in("--image", "made", "--print-spec").out)

    def test_variables_are_weaker_than_the_specs(self):
        self.image(Env=["PATH=/app:/bin", "FROM_IMAGE=1", "BOTH=image", "EMPTY=", "HOME=/srv", "ODD"])
        self.assertEqual(self.out("--env", "BOTH=spec", "--", "sh", "-c", 'echo "$FROM_IMAGE $BOTH <$EMPTY> $HOME $ODD"; tool a'),
                         "1 spec <> /srv \ntool a\n")
        self.assertEqual(self.out("--", "tool", "b"), "tool b\n")  # found in the image's PATH

    def test_the_user_of_an_image_that_is_configured_is_root_unless_it_says_who(self):
        if not self.has_ids():
            return
        for user, shown in (("", "0 0 0"), ("web", "33 33 33 50 63"), ("33", "33 33 33 50 63"), ("web:audio", "33 63 63 50"),
                            ("33:audio", "33 63 63"), ("1000:50", "1000 50 50"), ("4000", "4000 4000 4000"), ("root", "0 0 0")):
            with self.subTest(user=user):
                self.image(User=user, Env=["A=B"])
                self.assertEqual(sorted(self.out("--", "sh", "-c", "echo $(id -u) $(id -g) $(id -G)").split()), sorted(shown.split()))
        self.image(User="web")
        self.assertEqual(self.out("--user", "user", "--", "id", "-u"), "1000\n")

    def test_a_user_whom_the_image_does_not_know_is_an_error_that_names_the_configuration(self):
        for user, words in (("nobody", "it has no user nobody"), ("web:nogroup", "it has no group nogroup"), ("a b", "found 'a b'"),
                            ("70000", "found '70000'"), ("web:", "found 'web:'")):
            with self.subTest(user=user):
                self.image(User=user, Cmd=["true"])
                self.assert_refused(self.run_in("--image", "made"), "image made: its configuration's User", words, "allowed")
                if not user.startswith(("a", "7", "web:")) or user == "web:nogroup":
                    self.assertEqual(self.out("--user", "user", "--", "id", "-u"), "1000\n")

    def test_the_working_directory_is_made_and_the_specs_wins(self):
        self.image(WorkingDir="/new/place", Cmd=["sh", "-c", "pwd; touch file && ls"])
        self.assertEqual(self.out(), "/new/place\nfile\n")
        self.image(WorkingDir="/srv", Cmd=["sh", "-c", "pwd; ls"])
        self.assertEqual(self.out(), "/srv\nhere\n")
        self.assertEqual(self.out("--workdir", "/app", "--", "pwd"), "/app\n")
        self.assertEqual(self.out("--ro", f"{self.caller.folder}/images:/workspace", "--workdir", "/workspace", "--", "pwd"),
                         "/workspace\n")
        self.image(WorkingDir="relative/../srv/.", Cmd=["pwd"])
        self.assertEqual(self.out(), "/srv\n")
        self.image(Cmd=["pwd"])
        self.assertEqual(self.out(), "/\n")
        self.image(WorkingDir="/taken", Cmd=["pwd"])
        self.assert_refused(self.run_in("--image", "made"), "a directory that the image names", "/taken")

    def test_volumes_are_there_and_can_be_written(self):
        self.image(Volumes={"/data": {}, "/srv/deep/er": {}, "/": {}, "/app/": {}}, User="user")
        self.assertEqual(self.out("--", "sh", "-c", "touch /data/x /srv/deep/er/y && ls -d /app/tool /data/x /srv/deep/er/y"),
                         "/app/tool\n/data/x\n/srv/deep/er/y\n")
        # A grant there is not in the way.
        self.assertEqual(self.out("--ro", f"{self.caller.folder}/images:/data", "--", "ls", "/data/plain.tar"), "/data/plain.tar\n")
        self.image(Volumes={f"/v{n}": {} for n in range(65)}, Cmd=["true"])
        self.assert_refused(self.run_in("--image", "made"), "configuration's Volumes", "65 directories", "63 at most")
        self.image(Volumes={"/x" * 3000: {}}, Cmd=["true"])
        self.assert_refused(self.run_in("--image", "made"), "configuration's Volumes", "allowed is")

    def test_links_of_the_image_do_not_lead_a_volume_outside(self):
        folder = self.caller.folder / "images"
        linked = images.rootfs(folder / "linked.tar", {"data": images.link("../../../etc/volume"), "loop": images.link("loop")})
        images.configure(self.caller, "made", linked, {"Volumes": {"/data/below": {}}, "User": "0"})
        # What the link leads to is not in the image: nothing is made for it, here or outside.
        self.assert_refused(self.run_in("--image", "made", "--", "true"), "a directory that the image names", "data")
        self.assertEqual(list(self.caller.folder.glob("**/volume")), [])
        images.configure(self.caller, "made", linked, {"Volumes": {"/loop/x": {}}, "Cmd": ["true"]})
        self.assert_refused(self.run_in("--image", "made"), "a directory that the image names", "/loop")

    def test_too_many_variables_are_refused_with_their_number(self):
        self.image(Env=[f"V{n}={'x' * 100}" for n in range(600)], Cmd=["true"])
        self.assert_refused(self.run_in("--image", "made"), "600 variables", "57344 bytes at most")

    def test_ports_are_told_and_exec_has_the_same_defaults(self):
        self.image(Entrypoint=["sleep"], Cmd=["60"], Env=["FROM_IMAGE=1", "BOTH=image"], WorkingDir="/srv",
                   ExposedPorts={"8080/tcp": {}, "53/udp": {}}, User="user")
        started = self.run_in("-d", "--image", "made", "--env", "BOTH=spec")
        self.assertEqual(started.returncode, 0, started)
        name = started.out.strip()
        try:
            (info,) = self.caller.caisson("ps", "--json").json()
            self.assertEqual(sorted(info["exposed_ports"]), ["53/udp", "8080/tcp"])
            self.assertEqual(info["command"], ["sleep", "60"])
            self.assertIn("8080/tcp", self.caller.caisson("ps").out)
            done = self.caller.caisson("exec", name, "--", "sh", "-c", 'echo "$FROM_IMAGE $BOTH $(id -u) $(pwd)"')
            self.assertEqual(done.out, "1 spec 1000 /srv\n", done)
            done = self.caller.caisson("exec", "-e", "BOTH=exec", "-w", "/app", name, "--", "sh", "-c", 'echo "$BOTH $(pwd)"')
            self.assertEqual(done.out, "exec /app\n", done)
        finally:
            self.caller.caisson("kill", name)

    def test_a_detached_sandbox_without_a_program_is_not_left_behind(self):
        self.image(Env=["A=B"])
        self.assert_refused(self.run_in("-d", "--image", "made"), "no program to run")
        self.assertEqual(self.caller.caisson("ps", "-q").out, "")

    def test_a_shell_has_the_images_defaults_but_not_its_entrypoint(self):
        self.image(Entrypoint=["echo", "entry"], Env=["FROM_IMAGE=1"], WorkingDir="/srv", User="user")
        done = self.caller.on_pty("shell", "--image", "made", "--", "sh", "-c", 'echo "<$FROM_IMAGE> $(pwd)"')
        self.assertEqual((done.returncode, done.out.strip()), (0, "<1> /srv"), done)

    def test_an_image_that_umoci_made(self):
        if not shutil.which("umoci"):
            self.skipTest("umoci is not installed")
        folder = self.caller.folder / "umoci"
        folder.mkdir()
        layout = registry_lab.make_layout(
            folder, [{"bin/busybox": pathlib.Path(shutil.which("busybox")).read_bytes(), "bin/sh": "busybox", "bin/echo": "busybox"},
                     {"etc/passwd": b"app:x:1000:1000::/:/bin/sh\n", "etc/group": b"app:x:1000:\n"}],
            config=["--config.entrypoint", "sh", "--config.entrypoint", "-c", "--config.cmd", 'echo "$GREETING $(pwd)"; test -w /data && echo writable',
                    "--config.env", "GREETING=from umoci", "--config.env", "PATH=/bin", "--config.user", "app",
                    "--config.workingdir", "/made/here", "--config.volume", "/data"])
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        images.import_rootfs(self.caller, "umoci", layout)
        self.assertEqual(self.out(image="umoci"), "from umoci /made/here\nwritable\n")

    def test_json_names_the_image_as_before(self):
        self.image(Cmd=["echo", "x"])
        done = self.run_in("--json", "--image", "made")
        result = json.loads(done.out)
        self.assertEqual((result["stdout"], result["image"]), ("x\n", "made"))


support.main()
