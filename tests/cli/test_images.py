"""The store's commands; and images whose own entries are in the way: at the wall's mount points, at
grants, at generated files."""
import gzip
import io
import json
import lzma
import shutil
import subprocess
import tarfile

import support


def link(target):
    entry = tarfile.TarInfo()
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


def fifo():
    entry = tarfile.TarInfo()
    entry.type, entry.mode = tarfile.FIFOTYPE, 0o666
    return entry


class Hostile(support.CallerTest):
    def setUp(self):
        self.folder = self.caller.mkdir(f"images-{self.id().rsplit('.', 1)[1]}")
        self.caller.write(self.folder / "given/file", "given\n", 0o644)

    def image(self, entries, links=("cat", "ls", "sh")):
        """Imports the image `odd`: busybox and these entries, by name; text is a file."""
        archive = self.folder / "odd.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(shutil.which("busybox"), "bin/busybox")
            for tool in links:
                entry = link("busybox")
                entry.name = f"bin/{tool}"
                tar.addfile(entry)
            for name, entry in entries.items():
                text = entry.encode() if isinstance(entry, str) else b""
                if isinstance(entry, str):
                    entry = tarfile.TarInfo()
                    entry.size, entry.mode = len(text), 0o644
                entry.name = name
                tar.addfile(entry, io.BytesIO(text))
        archive.chmod(0o644)
        done = self.caller.caisson("image", "import", "odd", archive)
        self.assertEqual(done.returncode, 0, done)

    def run_odd(self, *arguments):
        return self.run_in("--image", "odd", *arguments, timeout=20)

    def test_mount_points_must_be_directories_and_the_error_names_them(self):
        for name in ("proc", "dev", "sys", "etc"):
            for target in ("tmp", "/tmp", "/etc", "nowhere"):
                with self.subTest(name=name, target=target):
                    self.image({name: link(target)})
                    # Whose the files are is looked up before; a link to itself is noticed there.
                    words = ["/etc/passwd", "more links"] if target == f"/{name}" else [f"/{name} of the image is a symbolic link", "directory"]
                    self.assert_refused(self.run_odd("--", "sh"), *words)
            with self.subTest(name=name):
                self.image({name: "text"})
                self.assert_refused(self.run_odd("--", "sh"), f"/{name} of the image is a file", "directory")

    def test_links_elsewhere_are_the_images_own_business(self):
        self.image({"var": link("tmp"), "home": link("/tmp"), "srv": link("nowhere"), "opt": link("../../../..")})
        done = self.run_odd("--", "cat", "/proc/sys/kernel/hostname")
        self.assertEqual((done.returncode, done.out), (0, "sandbox\n"), done)

    def test_a_pipe_where_a_file_is_granted_is_covered(self):
        self.image({"opt/pipe": fifo()})
        done = self.run_odd("--ro", f"{self.folder}/given/file:/opt/pipe", "--", "cat", "/opt/pipe")
        self.assertEqual((done.returncode, done.out), (0, "given\n"), done)

    def test_a_pipe_where_a_folder_is_granted_is_refused(self):
        self.image({"opt/pipe": fifo()})
        self.assert_refused(self.run_odd("--ro", f"{self.folder}/given:/opt/pipe", "--", "sh"), "/opt/pipe", "directory")
        self.assert_refused(self.run_odd("--ro", f"{self.folder}/given:/opt/pipe/below", "--", "sh"), "/opt/pipe")
        self.assert_refused(self.run_odd("--ro", f"{self.folder}/given/file:/bin", "--", "sh"), "/bin is a directory", "a file")

    def test_pipes_where_files_are_generated_make_room(self):
        names = ("hostname", "hosts", "resolv.conf", "machine-id")
        self.image({f"etc/{name}": fifo() for name in names})
        done = self.run_odd("--", "cat", *(f"/etc/{name}" for name in names))
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(done.out.startswith("sandbox\n"), done)

    def test_etc_stays_the_images_own_beside_what_is_generated(self):
        etc = tarfile.TarInfo()
        etc.type, etc.mode, etc.uid, etc.gid = tarfile.DIRTYPE, 0o711, 33, 50
        self.image({"etc": etc, "etc/kept": "kept\n", "etc/hostname": "other\n"})
        done = self.run_odd("--", "cat", "/etc/kept", "/etc/hostname")
        self.assertEqual((done.returncode, done.out), (0, "kept\nsandbox\n"), done)
        done = self.run_odd("--", "ls", "-ldn", "/etc")
        self.assertTrue(done.out.startswith("drwx--x--x "), done)
        if self.caller.kind == "root":
            self.assertEqual(done.out.split()[2:4], ["33", "50"], done)

    def test_a_pipe_as_passwd_names_no_user(self):
        self.image({"etc/passwd": fifo(), "etc/group": fifo()})
        done = self.run_odd("--user", "1000", "--", "sh", "-c", "echo ran")
        self.assertEqual((done.returncode, done.out), (0, "ran\n"), done)


class Store(support.CallerTest):
    """`caisson image import, ls, inspect, tag, rm, gc`."""

    def setUp(self):
        self.folder = self.caller.mkdir(f"store-{self.id().rsplit('.', 1)[1]}")
        for entry in self.list():
            self.must("rm", entry["name"])

    def image(self, *arguments, **options):
        return self.caller.caisson("image", *arguments, **options)

    def must(self, *arguments, **options):
        done = self.image(*arguments, **options)
        self.assertEqual(done.returncode, 0, done)
        return done

    def list(self):
        return json.loads(self.must("ls", "--json").stdout)

    def inspect(self, name):
        return json.loads(self.must("inspect", name).stdout)[0]

    def archive(self, text="text\n"):
        """Bytes of a tar: busybox as sh, and the file /what."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, mode, data in (("bin/sh", 0o755, open(shutil.which("busybox"), "rb").read()),
                                     ("what", 0o644, text.encode())):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), mode
                tar.addfile(entry, io.BytesIO(data))
        return out.getvalue()

    def add(self, name, text="text\n"):
        self.must("import", name, "-", input=self.archive(text))
        return self.inspect(name)["id"]

    def files(self, folder):
        place = self.caller.folder / "state/caisson/images" / folder
        return sorted(path.name for path in place.iterdir()) if place.is_dir() else []

    def assert_empty(self):
        self.assertEqual({name: self.files(name) for name in ("refs", "ids", "rootfs", "blobs", "tmp", "partial")},
                         {name: [] for name in ("refs", "ids", "rootfs", "blobs", "tmp", "partial")})

    def test_import_of_every_packing_gives_one_root_file_system(self):
        plain = self.archive()
        packed = {"plain": plain, "gzip": gzip.compress(plain), "xz": lzma.compress(plain),
                  "zstd": subprocess.run(["zstd", "-q"], input=plain, stdout=subprocess.PIPE, check=True).stdout}
        for name, data in packed.items():
            self.must("import", name, "-", input=data)
        # The image is what it unpacks to: it is there once, packed as it came first.
        self.assertEqual(len({self.inspect(name)["id"] for name in packed}), 1)
        self.assertEqual((len(self.files("rootfs")), len(self.files("ids")), len(self.files("blobs"))), (1, 1, 2))
        for name, data in packed.items():
            for other in packed:
                self.must("rm", other)
            self.assert_empty()
            self.must("import", name, "-", input=data)
            seen = self.inspect(name)
            layer = seen["layers"][0]
            self.assertEqual(layer["size"], len(data))
            self.assertEqual([layer["diff_id"]], seen["config"]["rootfs"]["diff_ids"])
            self.assertTrue(layer["media_type"].endswith({"plain": ".tar"}.get(name, "+" + name)), layer)
            for other in packed:
                self.must("tag", name, other)
        self.assertEqual(self.run_in("--image", "xz", "--", "sh", "-c", "echo $(cat what)").returncode, 0)

    def test_ls_and_inspect_agree(self):
        self.assertEqual(self.list(), [])
        identity = self.add("team/tool:1")
        self.must("tag", "team/tool:1", "tool")
        listed = {entry["name"]: entry for entry in self.list()}
        self.assertEqual(sorted(listed), ["team/tool:1", "tool:latest"])
        seen = self.inspect("tool")
        for entry in listed.values():
            self.assertEqual((entry["id"], entry["usable"], entry["layers"]), (identity, True, 1))
            self.assertEqual((entry["bytes"], entry["entries"]), (seen["rootfs"]["bytes"], seen["rootfs"]["entries"]))
            self.assertEqual(entry["layer_bytes"], seen["layer_bytes"])
        self.assertEqual(seen["names"], ["team/tool:1", "tool:latest"])
        self.assertEqual(seen["config"]["os"], "linux")
        self.assertIs(seen["rootfs"]["in_use"], False)
        self.assertEqual(self.must("ls", "-q").out.split(), ["team/tool:1", "tool:latest"])
        table = self.must("ls").out.splitlines()
        self.assertEqual(table[0].split(), ["NAME", "ID", "SIZE", "FILES", "AGE"])
        self.assertEqual(table[1].split()[:2], ["team/tool:1", identity[7:19]])
        self.assertEqual(len(json.loads(self.must("inspect", "tool", identity, identity[7:13]).stdout)), 3)

    def test_an_id_is_as_good_as_a_name(self):
        identity = self.add("tool", "of the tool\n")
        for text in (identity, identity[7:], identity[7:19]):
            done = self.run_in("--image", text, "--", "sh", "-c", "read line < /what; echo $line")
            self.assertEqual((done.returncode, done.out), (0, "of the tool\n"), done)
        self.must("tag", identity[7:19], "second:x")
        self.assertEqual(self.inspect("second:x")["id"], identity)

    def test_tag_moves_a_name(self):
        old, new = self.add("stable", "old\n"), self.add("edge", "new\n")
        self.must("tag", "edge", "stable")
        self.assertEqual(self.inspect("stable")["id"], new)
        self.assertNotEqual(old, new)
        self.assertEqual(self.files("ids"), [new[7:]])
        self.assertEqual(len(self.files("rootfs")), 1)

    def test_rm_by_name_and_by_id(self):
        identity = self.add("one")
        self.must("tag", "one", "two")
        self.must("tag", "one", "three")
        self.must("rm", "one")
        self.assertEqual(self.must("ls", "-q").out.split(), ["three:latest", "two:latest"])
        self.must("rm", identity[7:19])
        self.assert_empty()

    def test_rm_of_several_goes_on_behind_an_error(self):
        self.add("one")
        done = self.image("rm", "nothing", "one")
        self.assert_refused(done, "no image 'nothing:latest'", "there are: one:latest")
        self.assert_empty()

    def test_a_running_sandbox_keeps_its_files(self):
        self.add("tool", "kept\n")
        started = self.run_in("-d", "--image", "tool", "--", "sh", "-c", "while :; do read line < /what; done")
        self.assertEqual(started.returncode, 0, started)
        sandbox = started.out.strip()
        self.assertIs(self.inspect("tool")["rootfs"]["in_use"], True)
        self.must("rm", "tool")
        self.assertEqual((self.files("refs"), self.files("ids"), self.files("blobs")), ([], [], []))
        self.assertEqual(len(self.files("rootfs")), 1)
        self.assertIn("in use", self.must("gc", "--all").out)
        done = self.caller.caisson("exec", sandbox, "--", "sh", "-c", "read line < /what; echo $line")
        self.assertEqual(done.out, "kept\n", done)
        self.assertEqual(self.caller.caisson("kill", sandbox).returncode, 0)
        # Its launcher lives a moment longer, and the next command sweeps.
        support.harness.wait_until(lambda: self.must("ls") and not self.files("rootfs"), 10)
        self.assert_empty()

    def test_gc_says_what_it_frees(self):
        self.add("tool")
        self.assertEqual(self.must("gc").out, "freed 0 B\n")
        part = self.caller.folder / "state/caisson/images/partial" / ("a" * 64)
        self.caller.write(part, "x" * 5000)
        self.assertEqual(self.must("gc").out, "freed 0 B\n")  # it is of today
        dry = self.must("gc", "--all", "--dry-run").out
        self.assertRegex(dry, r"^would free [0-9.]+ KiB: 1 download that was broken off\n$")
        self.assertTrue(part.exists())
        counted = json.loads(self.must("gc", "--all", "--json").stdout)
        self.assertEqual((counted["partial"], counted["images"], counted["dry_run"]), (1, 0, False))
        self.assertGreaterEqual(counted["bytes"], 5000)
        self.assertFalse(part.exists())
        self.assertEqual(self.inspect("tool")["names"], ["tool:latest"])

    def test_two_imports_at_once_do_the_work_once(self):
        path = self.caller.write(self.folder / "archive.tar", self.archive(), 0o644)
        running = [self.caller.popen("image", "import", f"tool{i}", path, stdout=subprocess.PIPE) for i in range(4)]
        said = [process.communicate()[0].decode() for process in running]
        self.assertEqual([process.returncode for process in running], [0] * 4)
        self.assertEqual(sum("already in the store" not in text for text in said), 1, said)
        self.assertEqual((len(self.files("rootfs")), len(self.files("refs")), self.files("tmp")), (1, 4, []))

    def test_an_image_of_the_first_format_asks_to_be_imported_again(self):
        self.add("new")
        digest = "d" * 64
        images = self.caller.folder / "state/caisson/images"
        for path in ("by-digest", f"by-digest/{digest}", f"by-digest/{digest}/rootfs"):
            self.caller.mkdir(images / path)
        self.caller.write(images / "refs/old:latest", f"caisson-image-reference 1\ndigest {digest}\nimported 1\n")
        self.assert_refused(self.run_in("--image", "old", "--", "sh"), "image 'old:latest'", "import it again")
        self.assertIn("(import it again)", self.must("ls").out)
        self.add("old")
        self.assertEqual(self.run_in("--image", "old", "--", "sh", "-c", ":").returncode, 0)
        self.assertFalse((images / "by-digest").exists())

    def test_misuse_is_one_sentence(self):
        self.add("tool")
        path = self.caller.write(self.folder / "archive.tar", self.archive(), 0o644)
        for arguments, words in (
                (("import",), ["a name and an archive are needed"]),
                (("import", "x"), ["'x'", "No such file"]),
                (("import", "x", self.folder / "nowhere"), ["nowhere", "No such file"]),
                (("import", "x", "-"), ["the archive is empty"]),
                (("import", "Bad", "-"), ["image name 'Bad'"]),
                (("import", "x@sha256:" + "a" * 64, path), ["leave '@sha256"]),
                (("tag", "tool"), ["an image and a name are needed"]),
                (("tag", "nothing", "x"), ["no image 'nothing:latest'"]),
                (("tag", "tool", "Bad"), ["image name 'Bad'"]),
                (("tag", "tool", "x@sha256:" + "a" * 64), ["leave '@sha256"]),
                (("inspect",), ["no image given"]),
                (("inspect", "nothing"), ["no image 'nothing:latest'"]),
                (("rm",), ["no image given"]),
                (("rm", "123456"), ["no image '123456:latest'"]),
                (("ls", "x"), ["takes no arguments"]),
                (("gc", "x"), ["takes no arguments"])):
            with self.subTest(arguments=arguments):
                self.assert_refused(self.image(*arguments), *words)
        self.assertEqual(self.must("ls", "-q").out, "tool:latest\n")


support.main()
