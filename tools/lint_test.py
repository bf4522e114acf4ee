#!/usr/bin/env python3
"""Every rule of lint.py finds its bad example, at the right line, and lets the good one pass."""

import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lint  # noqa: E402

HEADER = "// What it is.\n#pragma once\n"


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write(".clang-format", "BasedOnStyle: Google\nColumnLimit: 100\n")
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def write(self, path, text, mode="w"):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, mode) as file:
            file.write(text)

    def found(self):
        return [(f.path, f.line, f.rule, f.warning) for f in lint.lint(self.root)]

    def expect(self, path, text, rule, line=1, warning=False):
        self.write(path, text)
        self.assertEqual(self.found(), [(path, line, rule, warning)])

    def expect_good(self, path, text):
        self.write(path, text)
        self.assertEqual(self.found(), [])


class Rules(Tree):
    def test_a_good_tree_passes(self):
        self.write("src/base/a.h", HEADER)
        self.write("src/wall/namespace/b.cpp", '#include "base/a.h"\n#include "wall/wall.h"\n')
        self.write("src/guest/c.cpp", '#include "base/a.h"\n#include "guest/d.h"\n')
        self.write("x.sh", "#!/bin/sh\necho fine\n")
        self.write("README.md", "see https://api.example.com/x and /home/user/x\n")
        self.assertEqual(self.found(), [])

    def test_an_empty_tree_is_a_finding(self):
        os.remove(os.path.join(self.root, ".clang-format"))
        self.assertEqual([f.rule for f in lint.lint(self.root)], ["tree"])

    def test_lower_layer_includes_higher(self):
        self.expect("src/policy/a.cpp", '#include "base/x.h"\n#include "wall/wall.h"\n', "layers", 2)

    def test_guest_includes_more_than_base(self):
        self.expect("src/guest/a.cpp", '#include "policy/spec.h"\n', "layers")

    def test_the_database_includes_more_than_base(self):
        self.expect_good("src/cli/a.cpp", '#include "db/teams.h"\n')
        self.expect("src/db/a.cpp", '#include "policy/spec.h"\n', "layers")

    def test_only_what_has_it_built_in_includes_the_guest(self):
        self.expect_good("src/box/a.cpp", '#include "guest/init.h"\n')
        self.expect("src/wall/a.cpp", '#include "guest/init.h"\n', "layers")

    def test_folder_outside_the_order(self):
        self.expect("src/odd/a.cpp", "int x;\n", "layers")

    def test_include_without_folder(self):
        self.expect("src/base/a.cpp", '#include "b.h"\n', "layers")

    def test_generated_header(self):
        self.expect_good("src/guest/a.cpp", '#include "seccomp_tables.h"\n')

    def test_kernel_header(self):
        self.expect("src/base/a.cpp", "#include <linux/kvm.h>\n", "kernel-headers")
        self.expect("src/base/a.cpp", "#include <asm/unistd.h>\n", "kernel-headers")

    def test_kernel_header_in_its_place(self):
        self.expect_good("src/base/kernel_abi.h", HEADER + "\n#include <linux/kvm.h>\n")

    def test_long_file(self):
        self.expect("src/base/a.cpp", "int x;\n" * 601, "length", 601, warning=True)
        self.expect("src/base/a.cpp", "int x;\n" * 801, "length", 801)

    def test_long_file_with_a_reason(self):
        lint.LONG_FILES["src/base/a.cpp"] = "a table"
        self.addCleanup(lint.LONG_FILES.clear)
        self.expect_good("src/base/a.cpp", "int x;\n" * 801)

    def test_marks(self):
        for mark in ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]:
            self.expect("a.md", f"fine\n{mark}: later\n", "marks", 2)

    def test_header_without_comment(self):
        self.expect("src/base/a.h", "#pragma once\n", "header-comment")

    def test_header_without_pragma_once(self):
        self.expect("src/base/a.h", "// What it is.\nint x();\n", "header-comment")

    def test_machine_path(self):
        self.expect("a.md", "in /ho" + "me/carol/src\n", "paths")
        self.expect("a.md", "in /wor" + "k/main\n", "paths")

    def test_a_path_of_a_sandbox(self):
        self.expect_good("a.md", "/home/, /home/user/src, /home/alice and /srv/src\n")

    def test_url(self):
        self.expect("a.md", "https:/" "/unknown.example.net/x\n", "urls")
        self.expect("a.md", "http:/" "/me:secret@evil.test:80/\n", "urls")
        self.expect("a.md", "https:/" "/notexample.com/\n", "urls")

    def test_url_put_together_at_run_time(self):
        self.expect_good("a.py", "x = f'http://{host}/'\n")

    def test_whitespace(self):
        self.expect("a.py", "x = 1 \n", "whitespace")
        self.expect("a.py", "x = 1", "whitespace")

    def test_not_utf8(self):
        self.write("a.md", b"one\n\xff\n", "wb")
        self.assertEqual(self.found(), [("a.md", 2, "encoding", False)])

    def test_python_that_does_not_compile(self):
        self.expect("a.py", "x = 1\nif:\n", "python", 2)
        self.write("a.py", "x = 1\n")
        self.expect("tool", "#!/usr/bin/env python3\nif:\n", "python", 2)

    def test_co_await_in_a_condition(self):
        self.expect("src/io/a.cpp", "Async<void> f() {\n  k();\n  if (co_await g()) h();\n}\n", "coroutines", 3)

    def test_co_await_in_a_choice(self):
        self.expect("src/io/a.cpp", "Async<int> f(bool b) {\n  k();\n  co_return b ? co_await g() : 1;\n}\n", "coroutines", 3)

    def test_co_await_as_an_argument(self):
        self.expect("src/io/a.cpp", "Async<void> f() {\n  k();\n  EXPECT_TRUE((co_await g()).has_value());\n}\n", "coroutines", 3)

    def test_co_await_where_it_may_stand(self):
        self.expect_good("src/io/a.cpp", """\
// if (co_await g()) as a comment
Async<int> f(int x) {
  const int a = co_await g("(co_await)");
  CO_TRY(co_await h());
  CO_TRY_ASSIGN(std::map<int, int> b, co_await h());
  if (x == a) co_await g();
  for (int i = 0; i < 3; ++i) co_await g();
  switch (x) {
    case X::kOne:
      co_await g();
      break;
    default:
      x = co_await g();
  }
  for (const int y : co_await k()) use(y);
  if (x > 0) {
    co_await g();
  } else
    co_await h();
  co_return co_await g();
}
""")

    def test_format(self):
        self.expect("src/base/a.cpp", "int  x;\n", "format")

    def test_shellcheck(self):
        self.expect("x.sh", '#!/bin/sh\nx="a b"\necho $x\n', "shell", 3)
        self.write("x.sh", "#!/bin/sh\n")
        self.expect("tool", '#!/usr/bin/env bash\nx="a b"\necho $x\n', "shell", 3)

    def test_ignored_files_are_not_read(self):
        self.write(".gitignore", "build/\n")
        self.expect_good("build/a.py", "if:\n")

    def test_without_git_every_file_but_the_build_is_read(self):
        subprocess.run(["rm", "-rf", self.root + "/.git"], check=True)
        self.write("build/a.py", "if:\n")
        self.expect("a.py", "if:\n", "python")


class Program(Tree):
    def run_lint(self, *arguments):
        return subprocess.run([sys.executable, HERE + "/lint.py", *arguments],
                              capture_output=True, text=True, check=False)

    def test_status(self):
        self.assertEqual(self.run_lint(self.root).returncode, 0)
        self.write("a.py", "if:\n")
        done = self.run_lint(self.root)
        self.assertEqual(done.returncode, 1)
        self.assertIn("a.py:1: python: ", done.stdout)
        self.assertTrue(done.stdout.endswith("lint: 1 findings, 0 warnings\n"))

    def test_a_warning_does_not_fail(self):
        self.write("src/base/a.cpp", "int x;\n" * 601)
        done = self.run_lint(self.root)
        self.assertEqual(done.returncode, 0)
        self.assertIn("1 warnings", done.stdout)

    def test_usage(self):
        self.assertEqual(self.run_lint().returncode, 2)
        self.assertEqual(self.run_lint("/nonexistent").returncode, 2)


if __name__ == "__main__":
    unittest.main()
