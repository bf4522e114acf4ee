#!/usr/bin/env python3
"""caisson audit tail, why and verify: what is said of an audit file, and their exit statuses.

The files are made here, from the description in docs/network.md and not by the program, so that a
mistake on both of its sides would show.
"""
import hashlib
import hmac
import json
import os
import pathlib
import shutil
import subprocess

import support

BEGIN, END = {"sandbox": "sb1", "kind": "begin"}, {"sandbox": "sb1", "kind": "end"}
TIME = "2026-11-30T12:00:00.000000Z"


def decision(word, **named):
    return {"sandbox": "sb1", "rev": 1, "kind": "tls", "decision": word, **named}


REFUSED = decision("deny", reason="no_rule", host="evil.example.com", port=443, dst="198.18.0.2:443")
PATH = decision("deny", reason="path", rule="mirror", host="mirror.example.com", port=80, method="GET", path="/upload", status=403) | {"kind": "http"}
ALLOWED = decision("allow", reason="match", rule="api", host="api.example.com", port=443, bytes_up=10, bytes_down=20)
RUN = [BEGIN, REFUSED, REFUSED, PATH, ALLOWED, END]


MASTER, ID = b"k" * 32, "a" * 32


def mac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()


def key_of(sequence, chain_id=ID):
    key = mac(MASTER, b"audit chain " + chain_id.encode())
    for bit in range(47, -1, -1):
        key = mac(key, b"1" if sequence >> bit & 1 else b"0")
    return key


def chain(records, sequence=0, before="0" * 64):
    """The lines of these records, and the last hash."""
    lines = []
    for record in records:
        sequence += 1
        if record["kind"] == "cut":
            before = record["before"]
        named = {"chain": ID} if not lines and (sequence == 1 or record["kind"] == "segment") else {}
        body = json.dumps({"ts": TIME, "v": 2, **record, **named, "seq": sequence}, separators=(",", ":"))[:-1]
        before = mac(key_of(sequence), bytes.fromhex(before) + body.encode()).hex()
        lines.append(f'{body},"hash":"{before}"}}\n')
    return lines, before


class Audit(support.CallerTest):
    def file(self, lines, name="net.jsonl"):
        return str(self.caller.write(name, "".join(lines), 0o644))

    def setUp(self):
        super().setUp()
        folder = self.keys()
        for path in (folder.parent, folder, folder / "heads"):
            path.mkdir(mode=0o700, exist_ok=True)
            self.caller.own(path)
        (folder / "key").write_bytes(MASTER)
        (folder / "key").chmod(0o600)
        self.caller.own(folder / "key")
        for head in (folder / "heads").iterdir():
            head.unlink()

    def keys(self):
        return pathlib.Path(self.caller.env["CAISSON_STATE_DIR"]) / "audit"

    def know(self, sequence, digest):
        head = self.keys() / "heads" / ID
        head.write_bytes(sequence.to_bytes(8, "big") + bytes.fromhex(digest))
        self.caller.own(head)

    def verify(self, *arguments):
        done = self.caller.caisson("audit", "verify", *arguments)
        return done.returncode, done.out

    def test_a_whole_file_is_verified(self):
        lines, head = chain(RUN + RUN)
        file = self.file(lines)
        self.assertEqual(self.verify(file), (0, f"whole: 12 records, sealed as far as record 12, head {head}\n"))
        self.assertEqual(self.verify("--head", head, file)[0], 0)
        status, out = self.verify("--json", file)
        self.assertEqual((status, json.loads(out)), (0, {"whole": True, "broken": False, "cut": False, "incomplete": False, "records": 12,
                                                         "sealed": 12, "seq": 12,
                                                         "head": head, "findings": []}))

    def test_the_first_line_that_is_not_as_it_was_is_named(self):
        lines, head = chain(RUN)
        for changed, number, words in (
                (lines[:3] + [lines[3].replace("/upload", "/public")] + lines[4:], 4, "the line was changed: its hash does not fit"),
                (lines[:3] + ["{}\n"] + lines[4:], 4, "the line was changed or added: found is no record"),
                (lines[:2] + lines[3:], 3, "before this line record 3 is missing"),
                (lines[2:], 1, "the first record of a file names its chain, and this one does not"),
                (lines[:3] + lines[2:], 4, "record 3 comes after record 3: lines were moved or doubled"),
                (lines[:1] + ["x" * 70_000 + "\n"] + lines[1:], 2, "it is longer than 65536 bytes")):
            file = self.file(changed)
            status, out = self.verify(file)
            self.assertEqual((status, out.splitlines()[-1].startswith(f"broken: {file}, line {number}: {words}")), (2, True), out)
            told = json.loads(self.verify("--json", file)[1])
            self.assertEqual((told["whole"], told["broken"], told["findings"][-1]["line"]), (False, True, number))
        status, out = self.verify("--head", "0" * 64, self.file(lines))
        self.assertEqual((status, "the last record is not the one whose hash was given; its own is " + head in out), (2, True), out)

    def test_an_end_that_is_missing_is_told(self):
        lines, _ = chain(RUN)
        for end in (lines[:-1], lines[:-1] + [lines[-1][:-1]], lines[:-1] + [lines[-1][:30]]):
            status, out = self.verify(self.file(end))
            self.assertEqual((status, "line 1: the run of sb1 that begins here has no closing record" in out), (1, True), out)
            self.assertNotIn("broken", out)
        status, out = self.verify(self.file([]))
        self.assertEqual((status, "there is no record in it" in out), (1, True), out)

    def test_an_end_that_was_known_and_is_missing_is_told(self):
        lines, head = chain(RUN)
        self.know(len(RUN), head)
        self.assertEqual(self.verify(self.file(lines))[0], 0)
        file = self.file(lines[:2])
        status, out = self.verify(file)
        self.assertEqual((status, f"cut: {file}, line 2: the file ends with record 2, and record 6 is known to have been written" in out), (3, True), out)
        told = json.loads(self.verify("--json", file)[1])
        self.assertEqual((told["whole"], told["cut"], told["broken"]), (False, True, False))
        # A whole run less, which has all that a file needs.
        longer, last = chain(RUN + RUN)
        self.know(12, last)
        self.assertEqual(self.verify(self.file(lines))[0], 3)
        # Who goes on says so.
        more, end = chain([{"kind": "cut", "before": last}, *RUN], 12, last)
        self.know(19, end)
        file = self.file(lines + more)
        status, out = self.verify(file)
        self.assertEqual((status, f"cut: {file}, line 7: before this line records 7 to 12 are missing" in out), (3, True), out)

    def test_records_need_the_key(self):
        lines, _ = chain(RUN)
        forged = [lines[0], *chain(RUN)[0][1:]]
        body = lines[1][:lines[1].index(',"hash"')]
        before = json.loads(lines[0])["hash"]
        forged[1] = f'{body},"hash":"{hashlib.sha256(bytes.fromhex(before) + body.encode()).hexdigest()}"}}\n'
        status, out = self.verify(self.file(forged))
        self.assertEqual((status, "line 2: the line was changed: its hash does not fit" in out), (2, True), out)
        file = self.file(lines)
        other = self.keys().parent / "other"
        os.rename(self.keys(), other)
        self.assert_refused(self.caller.caisson("audit", "verify", file), "without the key that the records were made with nothing can be proven")
        self.assertEqual(self.verify("--keys", str(other), file)[0], 0)
        (other / "key").write_bytes(b"x" * 32)
        self.assertEqual(self.verify("--keys", str(other), file)[0], 2)
        shutil.rmtree(other)

    def test_files_that_go_on_from_each_other(self):
        first, head = chain(RUN)
        second, last = chain([{"kind": "segment", "before": head}, *RUN], len(RUN), head)
        old, new = self.file(first, "net.jsonl.1"), self.file(second)
        self.assertEqual(self.verify(old, new), (0, f"whole: 13 records, sealed as far as record 13, head {last}\n"))
        status, out = self.verify(new)
        self.assertEqual((status, f"line 1: it goes on from another file, whose last hash was {head}" in out), (0, True), out)
        status, out = self.verify(new, old)
        self.assertEqual((status, "it begins anew" in out), (2, True), out)
        shorter = self.file(chain(RUN[:-2] + [END])[0], "net.jsonl.1")
        status, out = self.verify(shorter, new)
        self.assertEqual((status, "the file does not go on from the end of the one before it" in out), (2, True), out)

    def test_why_says_what_was_refused_and_the_nearest_rule(self):
        file = self.file(chain(RUN)[0])
        for asked, lines in (
                ("evil.example.com", [r"refused 2 times, last in record 3 .* deny tls evil\.example\.com:443: no rule names the host, and what no rule allows is denied"]),
                ("https://EVIL.example.com/x", [r"refused 2 times, "]),
                ("evil.example.com:443", [r"refused 2 times, "]),
                ("198.18.0.2", [r"refused 2 times, "]),
                ("http://mirror.example.com/upload?x=1", [r"refused once, .* GET mirror\.example\.com:80/upload: no rule for the host has the path, .* \(the nearest is mirror\), status 403"]),
                ("4", [r"refused once, last in record 4 "]),
                ("api.example.com", [r"let through once, last in record 5 .*: a rule allows it \(api\), 10 bytes up, 20 down"]),
                ("sb1", [r"refused 2 times", r"refused once", r"let through once"])):
            done = self.caller.caisson("audit", "why", file, asked)
            told = done.out.splitlines()
            self.assertEqual((done.returncode, len(told)), (0, len(lines)), done)
            for line, wanted in zip(told, lines):
                self.assertRegex(line, wanted)
        for asked in ("www.example.com", "evil.example.com:80", "http://mirror.example.com/other", "99", "sb2", "1"):
            done = self.caller.caisson("audit", "why", file, asked)
            self.assertEqual((done.returncode, done.out), (1, f"there is no record of a decision about {asked}\n"), done)

    def test_why_leaves_out_what_is_no_record(self):
        lines, _ = chain(RUN)
        done = self.caller.caisson("audit", "why", self.file(["x\n", *lines, "y"]), "evil.example.com")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("2 lines are no records", done.err)

    def test_tail_shows_the_last_records(self):
        file = self.file(chain(RUN)[0])
        done = self.caller.caisson("audit", "tail", file)
        self.assertEqual((done.returncode, done.out.count("\n")), (0, 6), done)
        done = self.caller.caisson("audit", "tail", "-n", "2", file)
        self.assertEqual(done.out, f"5 {TIME} sb1 allow tls api.example.com:443: a rule allows it (api), 10 bytes up, 20 down\n6 {TIME} sb1 end\n")
        done = self.caller.caisson("audit", "tail", "--json", "-n1", file)
        self.assertEqual(done.out, chain(RUN)[0][-1])
        done = self.caller.caisson("audit", "tail", self.file(["\x1b[2J\n", "{"]))
        self.assertEqual((done.returncode, done.out), (0, "(no record: \\x1b[2J)\n"), done)
        self.assertIn("the file ends within a record", done.err)

    def test_tail_follows_the_file_and_its_successor(self):
        first, head = chain(RUN)
        second, _ = chain([{"kind": "segment", "before": head}, BEGIN], len(RUN), head)
        file = pathlib.Path(self.file(first[:1]))
        process = self.caller.popen("audit", "tail", "-f", "--json", str(file), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline().decode(), first[0])
        with open(file, "a") as more:
            more.write(first[1][:20])
            more.flush()
            more.write(first[1][20:] + first[2])
            more.flush()
            for line in first[1:3]:
                self.assertEqual(process.stdout.readline().decode(), line)
            os.rename(file, f"{file}.1")
            self.file(second)
            more.write(first[3])
        told = [process.stdout.readline().decode() for _ in range(3)]
        self.assertEqual(told, [first[3], *second])
        os.truncate(file, 0)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 125)
        self.assertIn(b"has become shorter", err)

    def test_what_cannot_be_read_is_refused(self):
        file = self.file(chain(RUN)[0])
        long = self.file(["x" * 70_000], "long")
        for words, *said in ((["tail"], "one file is needed"), (["tail", "-n", "10001", file], "--lines: found '10001'", "a number to 10000"),
                             (["tail", "-n", "x", file], "--lines: found 'x'"), (["why", file], "a file and what to look for are needed"),
                             (["why", file, "ftp://a.example.com/"], "found 'ftp://a.example.com/'", "allowed is a host"), (["why", file, "a b"], "found 'a b'"),
                             (["verify"], "a file is needed"), (["verify", "--head", "x", file], "--head: found 'x'", "64 lower-case"),
                             (["verify", "/no/such"], "/no/such", "No such file"), (["verify", "/dev/null"], "allowed is a regular file"),
                             (["tail", "/no/such"], "No such file"), (["why", "/no/such", "x"], "No such file"),
                             (["tail", long], "line 1: it is too long for a record"), (["why", long, "x"], "line 1: it is too long for a record")):
            self.assert_refused(self.caller.caisson("audit", *words), *said)


support.main()
