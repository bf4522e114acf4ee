"""Images whose own entries are in the way: at the wall's mount points, at grants, at generated files."""
import io
import shutil
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
                    self.assert_refused(self.run_odd("--", "sh"), f"/{name} of the image is a symbolic link", "directory")
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

    def test_a_pipe_as_passwd_names_no_user(self):
        self.image({"etc/passwd": fifo(), "etc/group": fifo()})
        done = self.run_odd("--user", "1000", "--", "sh", "-c", "echo ran")
        self.assertEqual((done.returncode, done.out), (0, "ran\n"), done)


support.main()
