"""Looks for a value wherever one could be: in memory, in what /proc tells of a process, in files.

Not only the value as it is: `forms` has it in every coding in which something could have kept it, and in each also
pieces, since freed memory loses its first bytes to the allocator. What is found is told by the name of the form, never
by its bytes.

Needs nothing but the standard library, so that it can also be run inside of a sandbox.
"""
import base64
import os
import re
import stat

PIECE = 14  # bytes of a value, of which another one could have as many by chance once in 2^84
BLOCK = 1 << 20


def codings(text):
    """{name: bytes} of these bytes in each coding."""
    found = {"plain": text, "hex": text.hex().encode(), "HEX": text.hex().upper().encode(),
             "utf-16": text.decode("latin-1").encode("utf-16-le"), "reversed": text[::-1],
             "percent": b"".join(b"%%%02x" % byte for byte in text), "PERCENT": b"".join(b"%%%02X" % byte for byte in text),
             "json": b"".join(b"\\u%04x" % byte for byte in text), "JSON": b"".join(b"\\u%04X" % byte for byte in text)}
    for before in range(3):
        # What bytes beside it do not touch.
        whole = base64.b64encode(b"\0" * before + text + b"\0" * (-(before + len(text)) % 3))
        inner = whole[-(-before * 4 // 3):(before + len(text)) * 4 // 3]
        found[f"base64 at {before}"] = inner
        found[f"base64url at {before}"] = inner.translate(bytes.maketrans(b"+/", b"-_"))
    return found


def forms(value):
    """A pattern of the value and of pieces that it consists of, each in each coding; for `seen`."""
    if len(value) < PIECE:
        raise ValueError("too short to tell from what is there by chance")
    pieces = {value}
    pieces.update(value[at:at + PIECE] for at in range(0, len(value) - PIECE + 1, PIECE))
    pieces.add(value[-PIECE:])
    named = {}
    for piece in pieces:
        for name, text in codings(piece).items():
            named.setdefault(text, name)
    # The longest first, so that the whole is told before its pieces.
    return Forms(named, re.compile(b"|".join(re.escape(text) for text in sorted(named, key=len, reverse=True))))


class Forms:
    def __init__(self, named, pattern):
        self.named, self.pattern = named, pattern
        self.longest = max(map(len, named))

    def seen(self, data):
        """The names of the codings that are in there, sorted."""
        return sorted({self.named[match.group()] for match in self.pattern.finditer(data)})


def in_stream(forms, read):
    """What `seen` says of everything that `read(count)` gives until it gives nothing."""
    found, kept = set(), b""
    while piece := read(BLOCK):
        kept += piece
        found.update(forms.seen(kept))
        kept = kept[-forms.longest:]
    return sorted(found)


def in_file(forms, path):
    """The same of a file's bytes; [] where it is gone."""
    try:
        # Neither a pipe nor a device: opening one would wait.
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK | os.O_NOFOLLOW)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return []
            return in_stream(forms, file.read)
    except OSError:
        return []


def in_tree(forms, root, leave_out=()):
    """{path below root: codings} of every file, link and name there; `leave_out` are paths below root."""
    found = {}
    for folder, folders, files in os.walk(root):
        below = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if os.path.normpath(os.path.join(below, name)) not in leave_out]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            shown = os.path.normpath(os.path.join(below, name))
            if shown in leave_out:
                continue
            seen = forms.seen(os.fsencode(name))
            try:
                if os.path.islink(path):
                    seen += forms.seen(os.fsencode(os.readlink(path)))
                for attribute in os.listxattr(path, follow_symlinks=False):
                    seen += forms.seen(os.fsencode(attribute) + b"\0" + os.getxattr(path, attribute, follow_symlinks=False))
            except OSError:
                pass  # gone meanwhile, or of a file system that has none
            seen += in_file(forms, path)
            if seen:
                found[shown] = sorted(set(seen))
    return found


def in_memory(forms, pid):
    """(codings in a process' memory, how many bytes were looked at). Error: OSError where it cannot be read at all."""
    found, size = set(), 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            bounds, rights, *_, name = (line.split(maxsplit=5) + [""])[:6]
            if "r" not in rights or name.startswith(("[vvar", "[vsyscall")):
                continue
            at, end = (int(bound, 16) for bound in bounds.split("-"))
            kept = b""
            while at < end:
                try:
                    memory.seek(at)
                    piece = memory.read(min(BLOCK, end - at))
                except (OSError, OverflowError, ValueError):
                    break  # of a file that is shorter than its mapping
                if not piece:
                    break
                at += len(piece)
                size += len(piece)
                kept += piece
                found.update(forms.seen(kept))
                kept = kept[-forms.longest:]
    return sorted(found), size


def in_process(forms, pid):
    """{where: codings} of a process' memory, environment and command line, and the names of what it has open."""
    found = {}
    memory, size = in_memory(forms, pid)
    if size == 0:
        raise OSError(f"no memory of process {pid} could be read")
    for where, seen in (("memory", memory), *((name, in_file(forms, f"/proc/{pid}/{name}")) for name in ("environ", "cmdline", "comm"))):
        if seen:
            found[where] = seen
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            seen = forms.seen(os.fsencode(os.readlink(f"/proc/{pid}/fd/{fd}")))
        except OSError:
            continue
        if seen:
            found[f"fd {fd}"] = seen
    return found
