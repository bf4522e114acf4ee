"""Images for tests: root file systems of a few entries, and images of the store with a configuration.

`rootfs(path, entries)` writes a tar with busybox and what the test names; `import_rootfs` makes it an
image of a caller's store; `configure` gives an image of the store another configuration under a new
name, as another tool's image would have it, without unpacking anything again.
"""
import hashlib
import io
import json
import os
import pathlib
import shutil
import tarfile
import time

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


def configure(caller, name, base, config, **top):
    """The name `name` for the layers of the image `base` with this "config" member (OCI's keys)."""
    store = pathlib.Path(caller.env["CAISSON_STATE_DIR"]) / "images"

    def keep(path, data):
        path.write_bytes(data)
        path.chmod(0o600)
        caller.own(path)

    old = (store / "refs" / f"{base}:latest").read_text().split("image ")[1].split("\n")[0]
    record = (store / "ids" / old).read_text()
    diff_ids = ["sha256:" + line.split(" ")[3] for line in record.splitlines() if line.startswith("layer ")]
    whole = {"os": "linux", "architecture": os.uname().machine.replace("x86_64", "amd64").replace("aarch64", "arm64"),
             "config": config, "rootfs": {"type": "layers", "diff_ids": diff_ids}, **top}
    text = json.dumps(whole).encode()
    new = hashlib.sha256(text).hexdigest()
    lines = [f"id {new}" if line.startswith("id ") else f"config-size {len(text)}" if line.startswith("config-size ") else line
             for line in record.splitlines() if not line.startswith("manifest ")]
    keep(store / "blobs" / new, text)
    keep(store / "ids" / new, ("\n".join(lines) + "\n").encode())
    keep(store / "refs" / f"{name}:latest", f"caisson-image-reference 2\nimage {new}\nset {int(time.time())}\n".encode())
    return new
