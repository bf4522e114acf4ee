"""Images in files: what other tools save is imported, what is exported other tools read."""
import hashlib
import json
import shutil

import registry_case
from registry_case import lab


class Files(registry_case.PullTest):
    def exported(self, name, form):
        path = self.folder / f"out-{form}.tar"
        out = self.caller.mkdir(f"exports-{form}") / "image.tar"
        done = self.caller.caisson("image", "export", name, "--format", form, "-o", out)
        self.assertEqual(done.returncode, 0, done)
        shutil.copy(out, path)
        return path

    def test_skopeo_reads_what_is_exported(self):
        name = f"{self.shared.registry.name}/team/tool:1"
        report = self.pulled(name)
        layout = self.exported(name, "oci")
        seen = json.loads(lab.run("skopeo", "inspect", f"oci-archive:{layout}"))
        self.assertEqual((seen["Digest"], len(seen["Layers"])), (report["manifest"], 2))
        docker = self.exported(name, "docker")
        raw = lab.run("skopeo", "inspect", "--config", "--raw", f"docker-archive:{docker}")
        self.assertEqual("sha256:" + hashlib.sha256(raw).hexdigest(), report["id"])
        # Copied out of it, every byte is read and checked.
        for source in (f"oci-archive:{layout}", f"docker-archive:{docker}"):
            target = self.folder / f"copy-{source.split(':')[0]}"
            lab.run("skopeo", "copy", source, f"oci:{target}:x")
        # And it comes back.
        self.caller.caisson("image", "rm", name)
        for path in (layout, docker):
            path.chmod(0o644)
            done = self.caller.caisson("image", "import", path)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(name, done.out)
            listed = json.loads(self.caller.caisson("image", "ls", "--json").out)
            self.assertEqual([image["name"] for image in listed], [name])
            done = self.caller.caisson("run", "--image", name, "--", "/bin/cat", "/etc/greeting")
            self.assertEqual((done.returncode, done.out), (0, "hello\n"), done)
            self.caller.caisson("image", "rm", name)

    def test_layouts_and_archives_of_other_tools_are_imported(self):
        done = self.caller.caisson("image", "import", "mine:1", self.shared.layout)
        self.assertEqual(done.returncode, 0, done)
        self.assert_refused(self.caller.caisson("image", "import", self.shared.layout), "'t'", "NAME")
        saved = self.folder / "saved.tar"
        lab.run("skopeo", "copy", f"oci:{self.shared.layout}:t", f"docker-archive:{saved}:team/saved:2")
        done = self.caller.caisson("image", "import", "-", input=saved.read_bytes())
        self.assertEqual(done.returncode, 0, done)
        # As skopeo calls it: with the host that it takes for a short name's.
        saved_name = done.out.rsplit(": ", 1)[0]
        self.assertTrue(saved_name.endswith("team/saved:2"), done)
        for name in ("mine:1", saved_name):
            done = self.caller.caisson("run", "--image", name, "--", "/bin/cat", "/etc/greeting")
            self.assertEqual((done.returncode, done.out), (0, "hello\n"), done)

    def test_files_that_are_not_whole_are_refused(self):
        layout = self.folder / "broken"
        shutil.copytree(self.shared.layout, layout)
        index = json.loads((layout / "index.json").read_text())
        text = (layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text()
        layer = json.loads(text)["layers"][0]["digest"][7:]
        blob = layout / "blobs/sha256" / layer
        whole = blob.read_bytes()
        damaged = bytes([whole[0] ^ 1]) + whole[1:]
        link = self.folder / "elsewhere"
        link.write_bytes(whole)

        def replace(content):
            blob.chmod(0o644)
            blob.write_bytes(content)

        for change, word in ((lambda: replace(damaged), layer), (lambda: replace(whole[:-1]), "declared"),
                             (blob.unlink, layer), (lambda: blob.symlink_to(link), layer)):
            change()
            done = self.caller.caisson("image", "import", "a", layout)
            self.assert_refused(done, word)
            self.assert_store_empty()

    def test_export_wants_an_image_and_a_place(self):
        self.assert_refused(self.caller.caisson("image", "export", "none", "-o", "x"), "none")
        self.assertFalse(list(self.caller.home.glob("x*")))
        self.assert_refused(self.caller.caisson("image", "export", "a"), "FILE")
        self.assert_refused(self.caller.caisson("image", "export", "a", "-o", "x", "--format", "zip"), "oci or docker")


if __name__ == "__main__":
    registry_case.main()
