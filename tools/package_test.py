#!/usr/bin/env python3
"""The Debian package: what is in it, and that its texts can be read by what reads them."""

import gzip
import io
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = pathlib.Path(os.environ.get("CAISSON_BUILD", ROOT / "build" / "release"))


def run(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        build = pathlib.Path(folder.name)
        (build / "log").mkdir()
        (build / "release").symlink_to(RELEASE)
        path = run(ROOT / "packaging/debian/build", build, env={**os.environ, "SOURCE_DATE_EPOCH": "1735689600"})
        cls.path = path.decode().strip()
        with tarfile.open(fileobj=io.BytesIO(run("dpkg-deb", "--fsys-tarfile", cls.path))) as tar:
            cls.entries = {entry.name.removeprefix("."): entry for entry in tar.getmembers()}
            cls.texts = {name: tar.extractfile(entry).read() for name, entry in cls.entries.items() if entry.isfile()}

    def field(self, name):
        return run("dpkg-deb", "--field", self.path, name).decode().strip()

    def test_programs_belong_to_root(self):
        for name in ("bin/caisson", "libexec/caisson/caisson-launcher", "libexec/caisson/caisson-guest",
                     "libexec/caisson/caisson-image-worker", "libexec/caisson/caisson-image-fetch", "libexec/caisson/caisson-serve",
                     "libexec/caisson/caisson-gateway", "libexec/caisson/caisson-minter", "libexec/caisson/caisson-maker", "libexec/caisson/caisson-remote", "libexec/caisson/caisson-template-builder", "libexec/caisson/caisson-vault"):
            entry = self.entries["/usr/" + name]
            self.assertEqual((entry.mode & 0o7777, entry.uid, entry.gid), (0o755, 0, 0), name)

    def depends(self):
        return {package.split()[0] for package in self.field("Depends").split(",")}

    def test_each_library_of_a_program_is_of_a_package_that_it_depends_on(self):
        needed = set()
        with tempfile.NamedTemporaryFile() as file:
            for name, text in self.texts.items():
                if not text.startswith(b"\x7fELF"):
                    continue
                pathlib.Path(file.name).write_bytes(text)
                needed |= set(re.findall(r"NEEDED +(\S+)", run("objdump", "-p", file.name).decode()))
        self.assertIn("libc.so.6", needed)
        for library in sorted(needed):
            owners = {line.split(":")[0] for line in run("dpkg", "-S", f"*/{library}").decode().splitlines()}
            self.assertTrue(owners & self.depends(), (library, owners))

    def test_every_program_is_in_it(self):
        built = {path.name for path in RELEASE.iterdir() if path.is_file() and os.access(path, os.X_OK) and path.name.startswith("caisson")}
        packaged = {pathlib.Path(name).name for name in self.entries if name.startswith(("/usr/bin/", "/usr/libexec/caisson/"))}
        self.assertEqual(built - packaged, set())

    def test_links_of_the_readme_lead_somewhere(self):
        folder = "/usr/share/doc/caisson/"
        readme = self.texts.get(folder + "README.md") or gzip.decompress(self.texts[folder + "README.md.gz"])
        links = re.findall(r"\]\(([^)#:]+)\)", readme.decode())
        self.assertIn("docs/network.md", links)
        missing = [link for link in links if folder + link not in self.entries and link not in ("CONTRIBUTING.md", "LICENSE")]
        self.assertEqual(missing, [])

    def test_only_the_fetcher_and_the_server_need_libraries(self):
        self.assertEqual(self.field("Recommends"), "ca-certificates, uidmap")
        depends = self.depends()
        self.assertEqual(depends, {"libc-ares2", "libc6", "libcurl4", "libgcc-s1", "libnghttp2-14", "libssl3", "libstdc++6", "passwd", "zlib1g"})
        dynamic = b"/lib64/ld-linux"
        needy = [name for name, text in self.texts.items() if text.startswith(b"\x7fELF") and dynamic in text]
        self.assertEqual(sorted(needy), ["/usr/libexec/caisson/caisson-gateway", "/usr/libexec/caisson/caisson-image-fetch", "/usr/libexec/caisson/caisson-remote",
                                         "/usr/libexec/caisson/caisson-serve", "/usr/libexec/caisson/caisson-vault"])

    def test_every_command_has_a_man_page(self):
        pages = {name for name in self.texts if name.startswith("/usr/share/man/man1/")}
        self.assertEqual(len(pages), len({p for p in pages if gzip.decompress(self.texts[p]).startswith(b".TH ")}))
        self.assertLessEqual({f"/usr/share/man/man1/caisson{c}.1.gz" for c in ("", "-run", "-exec", "-image-import", "-doctor")}, pages)

    def test_completions_are_where_the_shells_look(self):
        share = "/usr/share/"
        self.assertTrue(self.texts[share + "zsh/vendor-completions/_caisson"].startswith(b"#compdef caisson"))
        self.assertIn(b"complete -c caisson", self.texts[share + "fish/vendor_completions.d/caisson.fish"])
        script = self.texts[share + "bash-completion/completions/caisson"].decode()
        ask = script + '\nCOMP_WORDS=(caisson run --mem); COMP_CWORD=2; _caisson caisson --mem run; echo "${COMPREPLY[@]}"'
        self.assertEqual(run("bash", "-c", ask).decode(), "--memory\n")

    def test_the_units_are_what_systemd_reads(self):
        folder = "/usr/lib/systemd/system/"
        units = {name.removeprefix(folder) for name in self.texts if name.startswith(folder)}
        self.assertEqual(units, {"caisson.service", "caisson-sandboxes.service"})
        server = self.texts[folder + "caisson.service"].decode()
        self.assertIn("KillMode=process\n", server)
        # Filters and privileges of the service would be the sandboxes' too; hidden parts of /proc keep them from having one.
        for setting in ("NoNewPrivileges", "SystemCall", "Restrict", "MemoryDeny", "ProtectKernel", "ProtectProc", "ProcSubset", "ProtectHostname"):
            self.assertNotIn("\n" + setting, server)
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd is not installed")
        with tempfile.TemporaryDirectory() as root:
            for name, text in self.texts.items():
                if name.startswith((folder, "/usr/bin/", "/usr/libexec/")):
                    path = pathlib.Path(root + name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(text)
                    path.chmod(self.entries[name].mode)
            # What the units name of the host's.
            for name in ("/bin/kill", *(f"{folder}{unit}" for unit in ("sysinit.target", "basic.target", "network.target", "shutdown.target"))):
                path = pathlib.Path(root + name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("[Unit]\n")
                path.chmod(0o755 if name == "/bin/kill" else 0o644)
            for unit in sorted(units):
                said = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", unit], capture_output=True, text=True, check=False)
                self.assertEqual((said.returncode, said.stdout + said.stderr), (0, ""))

    def test_the_changelog_and_the_copyright_are_debians_kind(self):
        log = gzip.decompress(self.texts["/usr/share/doc/caisson/changelog.gz"]).decode()
        self.assertTrue(log.startswith(f"caisson ({self.field('Version')}) "), log)
        self.assertTrue(log.endswith("  Wed, 01 Jan 2025 00:00:00 +0000\n"), log)
        self.assertIn(b"/usr/share/common-licenses/Apache-2.0", self.texts["/usr/share/doc/caisson/copyright"])


if __name__ == "__main__":
    unittest.main()
