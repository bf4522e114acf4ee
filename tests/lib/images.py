"""Images for tests: root file systems of a few entries, and images of the store with a configuration.

`rootfs(path, entries)` writes a tar with busybox and what the test names; `import_rootfs` makes it an
image of a caller's store; `configure` makes an image of the same tar with a configuration.
"""
import hashlib
import io
import json
import os
import shutil
import tarfile

PASSWD = ("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
          "web:x:33:33::/var/www:/bin/sh\n")
GROUP = "root:x:0:\nuser:x:1000:\nweb:x:33:\nstaff:x:50:web,other\naudio:x:63:user,web\n"
TOOLS = ("sh", "cat", "echo", "env", "id", "ls", "pwd", "sleep", "stat", "touch", "true", "test")


def link(target):
    entry = tarfile.TarInfo()
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


def directory(mode=0o755, uid=0, gid=0):
    entry = tarfile.TarInfo()
    entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, uid, gid
    return entry


def file(text, mode=0o644, uid=0, gid=0):
    entry = tarfile.TarInfo()
    entry.mode, entry.uid, entry.gid, entry.size = mode, uid, gid, len(text.encode())
    return entry, text.encode()


def rootfs(path, entries=(), tools=TOOLS):
    """A tar at `path`: busybox with links for `tools`, /etc/passwd and group, then {name: entry}."""
    contents = {"etc/passwd": file(PASSWD), "etc/group": file(GROUP), **dict(entries)}
    with tarfile.open(path, "w") as tar:
        tar.add(shutil.which("busybox"), "bin/busybox")
        for tool in tools:
            entry = link("busybox")
            entry.name = f"bin/{tool}"
            tar.addfile(entry)
        for name, entry in contents.items():
            entry, data = entry if isinstance(entry, tuple) else (entry, b"")
            entry.name = name
            tar.addfile(entry, io.BytesIO(data))
    os.chmod(path, 0o644)
    return path


def import_rootfs(caller, name, path):
    done = caller.caisson("image", "import", name, path)
    assert done.returncode == 0, done


def configure(caller, name, layer, config):
    """Imports the tar `layer` as the image `name` with this "config" member (OCI's keys), as `docker save` writes it."""
    text = layer.read_bytes()
    machine = os.uname().machine.replace("x86_64", "amd64").replace("aarch64", "arm64")
    whole = json.dumps({"os": "linux", "architecture": machine, "config": config,
                        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(text).hexdigest()}"]}}).encode()
    manifest = [{"Config": "config.json", "RepoTags": None, "Layers": ["layer.tar"]}]
    archive = layer.with_name("saved.tar")
    with tarfile.open(archive, "w") as tar:
        for part, data in (("manifest.json", json.dumps(manifest).encode()), ("config.json", whole), ("layer.tar", text)):
            entry = tarfile.TarInfo(part)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    archive.chmod(0o644)
    import_rootfs(caller, name, archive)
