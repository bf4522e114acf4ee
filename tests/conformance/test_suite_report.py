"""The table of E2B's suite is made from vitest's report, without the report's machine in it."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import suite_report  # noqa: E402


def test_of(title, status, *messages):
    return {"fullName": title, "status": status, "failureMessages": list(messages)}


def report(**files):
    return {"testResults": [{"name": f"/somewhere/else/packages/js-sdk/tests/{name}.test.ts", "status": "failed", "message": "", "assertionResults": tests}
                            for name, tests in files.items()]}


ALONE = report(mocked=[test_of("adds", "passed"), test_of("waits", "skipped")],
               real=[test_of("creates", "failed", "TypeError: fetch failed\n    at x"), test_of("kills", "failed", "TypeError: fetch failed")])
SERVED = report(mocked=[test_of("adds", "failed", "Error: 404"), test_of("waits", "skipped")],
                real=[test_of("creates", "passed"), test_of("kills", "failed", "\n\x1b[31mError: a | b\x1b[0m in /opt/checkout/src/x.ts\n    at /opt/x.ts")])


class Report(unittest.TestCase):
    def test_names_states_and_reasons(self):
        found = suite_report.results(SERVED)
        self.assertEqual(found[("real.test.ts", "creates")], ("passed", "no reason given"))
        self.assertEqual(found[("real.test.ts", "kills")], ("failed", "Error: a | b in x.ts"))
        self.assertEqual(found[("mocked.test.ts", "waits")][0], "skipped")

    def test_a_title_twice_is_two_tests(self):
        found = suite_report.results(report(real=[test_of("same", "passed"), test_of("same", "failed", "why")]))
        self.assertEqual([found[("real.test.ts", name)][0] for name in ("same", "same (2)")], ["passed", "failed"])

    def test_a_file_that_does_not_load_is_a_failure(self):
        broken = {"testResults": [{"name": "/x/tests/a.test.ts", "status": "failed", "message": "SyntaxError: here", "assertionResults": []}]}
        self.assertEqual(suite_report.results(broken), {("a.test.ts", "(the file itself)"): ("failed", "SyntaxError: here")})

    def test_what_passes_alone_is_judged_there(self):
        merged = suite_report.combine(suite_report.results(ALONE), suite_report.results(SERVED))
        self.assertEqual(merged[("mocked.test.ts", "adds")][0], "passed")
        self.assertEqual(merged[("real.test.ts", "kills")][1], "Error: a | b in x.ts")

    def test_the_table(self):
        text = suite_report.render(suite_report.results(ALONE), suite_report.results(SERVED), {"suite": "made up"})
        self.assertIn("**1 of the 2 tests that need a server pass**; of all 4: 1 pass, 2 fail, 1 are skipped", text)
        self.assertIn("| `real.test.ts` | 2 | 2 | 1 | 1 | 0 |", text)
        self.assertIn("| `real.test.ts` | kills | Error: a \\| b in x.ts |", text)
        self.assertNotIn("/opt/", text)

    def test_long_reasons_are_cut(self):
        self.assertEqual(len(suite_report.reason(["x" * 5000])), suite_report.REASON_LENGTH)

    def test_what_is_no_report(self):
        for wrong in ({}, {"testResults": []}, {"testResults": [{"name": "x"}]}, []):
            with self.assertRaises(suite_report.ReportError):
                suite_report.results(wrong)

    def test_only_what_is_between_the_markers_changes(self):
        document = f"before\n{suite_report.BEGIN}\nold\n{suite_report.END}\nafter\n"
        self.assertEqual(suite_report.replace(document, "new\n"), f"before\n{suite_report.BEGIN}\nnew\n{suite_report.END}\nafter\n")
        with self.assertRaises(suite_report.ReportError):
            suite_report.replace("no markers", "new")


if __name__ == "__main__":
    unittest.main()
