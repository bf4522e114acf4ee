"""The parts of the test machine, each made once and kept by hash in build/vm/.

    kernel-<hash>/      vmlinuz and the few modules needed, out of Debian's cloud kernel package,
                        which is downloaded and taken apart, never installed
    usr-<hash>.erofs    a small /usr from this host's packages: python3, bash, coreutils, …
    initrd-<hash>       the agent (agent.cpp) and the modules
    payload-<hash>.erofs  the programs under test and whatever files a test adds
    root.ext4           an empty filesystem; QEMU writes to a snapshot of it that it throws away

Everything is written under a temporary name and renamed, so that a killed build leaves nothing that
looks whole, and a lock keeps two builds apart. Runs as root or as an ordinary user.
"""

import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("CAISSON_VM_CACHE", REPOSITORY / "build" / "vm"))
BUILD = Path(os.environ.get("CAISSON_BUILD", REPOSITORY / "build" / "release"))
META_PACKAGE = "linux-image-cloud-amd64"

# What is loaded before the disks can be seen, with all that these depend on.
MODULES = ["virtio_mmio", "virtio_pci", "virtio_blk", "virtio_console", "crc32c-intel", "erofs",
           "overlay", "loop", "fuse"]

# Whole packages, less their documentation; and single programs with the libraries that they need.
PACKAGES = ["coreutils", "dash", "bash", "grep", "sed", "findutils", "util-linux", "mount", "procps",
            "tar", "gzip", "uidmap", "python3-minimal", "python3.11-minimal", "libpython3.11-minimal",
            "libpython3.11-stdlib", "libc-bin"]
LEFT_OUT = re.compile(r"^/usr/(share/(?!zoneinfo/UTC)|lib/locale|lib/systemd|lib/python3\.11/(lib2to3|idlelib|"
                      r"ensurepip|pydoc_data|tkinter|turtledemo|distutils|test|unittest/test|sqlite3|curses)"
                      r"|include|lib/udev|lib/mime|sbin/(mkfs|fsck|swap|fdisk|sfdisk|cfdisk)"
                      r"|lib/x86_64-linux-gnu/gconv)")
PROGRAMS = ["/usr/bin/mawk"]
# glibc opens this one by name.
LIBRARIES = ["/usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib/x86_64-linux-gnu/libnss_files.so.2"]


class PartsError(Exception):
    """A part of the machine cannot be made; the text says what is missing and what to do."""


def require(program, package):
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise PartsError(f"{program} is not installed: install the package {package}")
    return path


def output_of(*command, **keywords):
    done = subprocess.run(command, capture_output=True, text=True, **keywords)
    if done.returncode != 0:
        raise PartsError(f"{' '.join(map(str, command))} failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout


def digest(*parts):
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with open(part, "rb") as file:
                part = hashlib.file_digest(file, "sha256").digest()
        elif not isinstance(part, bytes):
            part = repr(part).encode()
        total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()[:16]


@contextmanager
def cache_lock():
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch():
    folder = tempfile.mkdtemp(prefix="tmp-", dir=CACHE)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_older(pattern, keep, count=3):
    """Keeps the newest few of a kind, so that the cache does not grow with every build."""
    found = sorted((path for path in CACHE.glob(pattern) if path != keep),
                   key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[count - 1:]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


# ---- kernel ------------------------------------------------------------------------------------


def kernel_package():
    """The .deb of Debian's newest cloud kernel that apt knows, or the one we already have."""
    folder = CACHE / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    have = sorted(folder.glob("linux-image-6.1.*-cloud-amd64_*.deb"), key=lambda path: path.stat().st_mtime)
    if have:
        return have[-1]
    # apt would drop to a user that cannot write here, and warn; as root it need not drop at all.
    options = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
    try:
        return download_kernel(folder, options)
    except PartsError:
        # The host's lists of packages are missing or old. Newer ones go into a folder of our own:
        # the host's stay as they are, and no privilege is needed.
        state = CACHE / "apt"
        (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (state / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        options += ["-o", f"Dir::State::Lists={state / 'lists'}", "-o", f"Dir::Cache={state / 'cache'}"]
        try:
            output_of("apt-get", "update", "-qq", *options)
            return download_kernel(folder, options)
        finally:
            shutil.rmtree(state, ignore_errors=True)


def download_kernel(folder, options):
    depends = output_of("apt-cache", *options, "depends", META_PACKAGE)
    match = re.search(r"Depends: (linux-image-6\.1\.\S+-cloud-amd64)", depends)
    if match is None:
        raise PartsError(f"apt knows no {META_PACKAGE} of Linux 6.1; it says {depends.strip()!r}")
    with scratch() as folder_of_download:
        output_of("apt-get", "download", "-qq", *options, match[1], cwd=folder_of_download)
        (package,) = folder_of_download.glob("*.deb")
        package.rename(folder / package.name)
    return folder / package.name


def module_name(path):
    return Path(path).name.removesuffix(".ko").replace("-", "_")


def module_dependencies(data):
    match = re.search(rb"\0depends=([^\0]*)\0", data)
    return [name.replace("-", "_") for name in match[1].decode().split(",") if name] if match else []


def kernel():
    """A folder with vmlinuz, modules/*.ko and modules/order."""
    package = kernel_package()
    result = CACHE / f"kernel-{digest(package.name, MODULES)}"
    if result.exists():
        return result
    modules, image = {}, None
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if re.match(r"\./boot/vmlinuz-", member.name):
                    image = archive.extractfile(member).read()
                elif member.name.endswith(".ko"):
                    modules[module_name(member.name)] = archive.extractfile(member).read()
    if process.returncode != 0 or image is None:
        raise PartsError(f"{package} holds no kernel: remove it, it is downloaded anew")
    order = []

    def add(name):
        if name not in modules:
            raise PartsError(f"{package.name} has no module {name}")
        for other in module_dependencies(modules[name]):
            add(other)
        if name not in order:
            order.append(name)

    for name in MODULES:
        add(name.replace("-", "_"))
    with scratch() as folder:
        (folder / "modules").mkdir()
        (folder / "vmlinuz").write_bytes(image)
        for name in order:
            (folder / "modules" / f"{name}.ko").write_bytes(modules[name])
        (folder / "modules" / "order").write_text("".join(f"{name}.ko\n" for name in order))
        os.chmod(folder, 0o755)
        os.rename(folder, result)
    remove_older("kernel-*", result)
    return result


# ---- /usr --------------------------------------------------------------------------------------


def in_usr(path):
    return re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", path)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def stage(path, root):
    """Puts a file, link or folder of the host's /usr into the tree, with its times and mode."""
    target = root / path.removeprefix("/usr/")
    if os.path.lexists(target):
        return
    if os.path.islink(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        link = os.readlink(path)
        os.symlink(link, target)
        pointed = in_usr(os.path.normpath(os.path.join(os.path.dirname(path), link)))
        if pointed.startswith("/usr/") and os.path.isfile(pointed):
            stage(pointed, root)
    elif os.path.isdir(path):
        target.mkdir(parents=True, exist_ok=True)
    elif os.path.isfile(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def usr_image():
    versions = output_of("dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n", *PACKAGES, "libc6")
    result = CACHE / f"usr-{digest(versions, PACKAGES, PROGRAMS, LIBRARIES, LEFT_OUT.pattern, 3)}.erofs"
    if result.exists():
        return result
    mkfs = require("mkfs.erofs", "erofs-utils")
    busybox = require("busybox", "busybox-static")
    names = {in_usr(line) for line in output_of("dpkg", "-L", *PACKAGES).splitlines() if line}
    with scratch() as folder:
        root = folder / "usr"
        root.mkdir(mode=0o755)
        for path in sorted(names) + PROGRAMS + LIBRARIES + ["/usr/share/zoneinfo/UTC"]:
            if path.startswith("/usr/") and not LEFT_OUT.match(path):
                stage(path, root)
        # Compiled forms are made at installation and belong to no package's list of files.
        for path in root.glob("lib/python3.11/**/*.py"):
            source = Path("/usr") / path.relative_to(root)
            compiled = source.parent / "__pycache__" / (source.stem + ".cpython-311.pyc")
            if compiled.exists():
                stage(str(compiled), root)
        for name, target in (("awk", "mawk"), ("sh", "dash")):
            link = root / "bin" / name
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        elf = [str(path) for path in root.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path)]
        shutil.copy2(busybox, root / "bin" / "busybox")
        listing = subprocess.run(["ldd", *elf], capture_output=True, text=True).stdout
        for library in sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listing, re.MULTILINE))):
            stage(in_usr(os.path.realpath(library)), root)
            stage(in_usr(library), root)
        (root / "local").mkdir(exist_ok=True)
        output_of(mkfs, "--all-root", "-x-1", str(folder / "image"), str(root))
        os.chmod(folder / "image", 0o644)
        os.rename(folder / "image", result)
    remove_older("usr-*.erofs", result)
    return result


# ---- initramfs, payload, root --------------------------------------------------------------------


def cpio_entry(name, mode, data=b"", device=(0, 0)):
    encoded = name.encode() + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0]
    entry = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    entry += b"\0" * (-len(entry) % 4)
    return entry + data + b"\0" * (-len(data) % 4)


def initrd(kernel_folder, agent=None):
    agent = Path(agent or BUILD / "tests" / "vm-agent")
    if not agent.exists():
        raise PartsError(f"{agent} is missing: build the target vm_agent")
    result = CACHE / f"initrd-{digest(agent, kernel_folder.name, 1)}"
    if result.exists():
        return result
    archive = [cpio_entry("dev", stat.S_IFDIR | 0o755),
               cpio_entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
               cpio_entry("modules", stat.S_IFDIR | 0o755),
               cpio_entry("init", stat.S_IFREG | 0o755, agent.read_bytes())]
    for path in sorted((kernel_folder / "modules").iterdir()):
        archive.append(cpio_entry(f"modules/{path.name}", stat.S_IFREG | 0o644, path.read_bytes()))
    archive.append(cpio_entry("TRAILER!!!", 0))
    temporary = result.with_suffix(".tmp")
    temporary.write_bytes(b"".join(archive))
    temporary.rename(result)
    remove_older("initrd-*", result)
    return result


def payload_files(files):
    """Every file of the payload: (path inside /opt/caisson, path on this host)."""
    found = {}
    for target, source in files.items():
        source = Path(source)
        if not source.exists():
            raise PartsError(f"no file {source} for {target}")
        if source.is_dir():
            for path in sorted(source.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    found[f"{target}/{path.relative_to(source)}"] = path
        else:
            found[target] = source
    return sorted(found.items())


def payload_image(files):
    found = payload_files(files)
    result = CACHE / f"payload-{digest([(name, os.stat(path).st_mode) for name, path in found], *(path for _, path in found))}.erofs"
    if result.exists():
        os.utime(result)
        return result
    mkfs = require("mkfs.erofs", "erofs-utils")
    with scratch() as folder:
        root = folder / "payload"
        (root / "build").mkdir(parents=True)
        os.chmod(root, 0o755)
        for name, path in found:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, root / name)
        output_of(mkfs, "--all-root", str(folder / "image"), str(root))
        os.rename(folder / "image", result)
    remove_older("payload-*.erofs", result, count=6)
    return result


def root_image():
    result = CACHE / "root.ext4"
    if not result.exists():
        mkfs = require("mkfs.ext4", "e2fsprogs")
        with scratch() as folder:
            with open(folder / "image", "wb") as file:
                file.truncate(2 << 30)
            output_of(mkfs, "-q", "-F", "-E", "root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1",
                      "-O", "^has_journal", str(folder / "image"))
            os.rename(folder / "image", result)
    return result


def main():
    """Downloads and makes everything that does not depend on our own programs."""
    with cache_lock():
        for part in (kernel(), usr_image(), root_image()):
            print(part)


if __name__ == "__main__":
    try:
        main()
    except PartsError as error:
        sys.exit(f"vm: {error}")
