"""From vitest's JSON reports of E2B's own suite to a table: which tests pass, and why the others do not.

Two reports come in: one of a run without any server, whose passing tests are E2B's tests of its client
alone, and one of a run against ours. Pure: reads no file and runs nothing.
"""
import re

BEGIN, END = "<!-- suite: begin -->", "<!-- suite: end -->"
REASON_LENGTH = 240


class ReportError(Exception):
    """The report is not one of vitest's; the text says what is missing."""


def results(report):
    """{(file, test): (status, reason)} of a report; files are named from the package's tests/ on."""
    found = {}
    try:
        for file in report["testResults"]:
            name = file["name"].replace("\\", "/").split("/tests/", 1)[-1]
            for test in file["assertionResults"]:
                key, number = (name, test["fullName"].strip()), 1
                while key in found:  # the same title twice in a file
                    number += 1
                    key = (name, f"{test['fullName'].strip()} ({number})")
                found[key] = (status(test["status"]), reason(test.get("failureMessages") or []))
            if not file["assertionResults"] and file["status"] == "failed":
                found[(name, "(the file itself)")] = ("failed", reason([file.get("message", "")]))
    except (KeyError, TypeError) as error:
        raise ReportError(f"not a JSON report of vitest: {error!r} is missing or of another kind") from None
    if not found:
        raise ReportError("the report holds no test")
    return found


def status(word):
    return word if word in ("passed", "failed") else "skipped"


def reason(messages):
    """The first line that says something, without the places of the machine it ran on."""
    for message in messages:
        for line in re.sub(r"\x1b\[[0-9;]*m", "", message).splitlines():
            line = re.sub(r"(?:file://)?(?:/[\w.@+-]+)+/(?=[\w.@+-]+)", "", line).strip()
            if line and not line.startswith("at "):
                return line if len(line) <= REASON_LENGTH else line[:REASON_LENGTH - 1] + "…"
    return "no reason given"


def combine(alone, served):
    """The results of both forms of a run: what passes without a server needs none, and is judged there."""
    merged = dict(served)
    for key, result in alone.items():
        if result[0] == "passed" or key not in merged:
            merged[key] = result
    return merged


def counts(found):
    return {kind: sum(state == kind for state, _ in found.values()) for kind in ("passed", "failed", "skipped")}


def live(alone):
    """The tests that need a server: those that fail where there is none."""
    return {key for key, (state, _) in alone.items() if state == "failed"}


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def table(heading, rows):
    return ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading), *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def render(alone, served, facts):
    """The text of the document between its markers. `facts` are the rows of its first table."""
    needs = live(alone)
    total, passed = counts(served), sum(served[key][0] == "passed" for key in needs if key in served)
    lines = ["", *table(("", ""), facts.items()), "",
             f"**{passed} of the {len(needs)} tests that need a server pass**; of all {len(served)}: {total['passed']} pass, "
             f"{total['failed']} fail, {total['skipped']} are skipped by the suite itself.", ""]
    files = sorted({name for name, _ in served})
    rows = []
    for name in files:
        mine = {key: result for key, result in served.items() if key[0] == name}
        needing = [key for key in mine if key in needs]
        told = counts(mine)
        rows.append((f"`{name}`", len(mine), len(needing), sum(mine[key][0] == "passed" for key in needing), told["failed"], told["skipped"]))
    lines += table(("file", "tests", "need a server", "of these pass", "fail", "skipped"), rows)
    failed = sorted((key, why) for key, (state, why) in served.items() if state == "failed")
    lines += ["", "## What fails", ""]
    if failed:
        lines += table(("file", "test", "reason"), ((f"`{name}`", cell(test), cell(why)) for (name, test), why in failed))
    else:
        lines.append("Nothing.")
    return "\n".join(lines) + "\n\n"


def replace(document, text):
    """The document with `text` between its markers."""
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(BEGIN) > document.index(END):
        raise ReportError(f"the document must hold {BEGIN!r} and, after it, {END!r}, each once")
    before, rest = document.split(BEGIN)
    return before + BEGIN + "\n" + text + END + rest.split(END)[1]
