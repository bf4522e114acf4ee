"""What tests of the server by E2B's wire share: one server for a class, and how it is asked (wire.py)."""
import unittest

import serve_lab
import wire

TAG = "long one"


class Case(unittest.TestCase):
    """One server for all tests of a class, and how it is asked."""

    @classmethod
    def setUpClass(cls):
        context = serve_lab.fresh()
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        cls.wire = wire.Wire(cls.server)

    def ask(self, *arguments, **values):
        return self.wire.ask(*arguments, **values)

    def create(self, **values):
        return self.wire.create(**values)

    def start(self, sandbox, command):
        """Starts a command and goes away as soon as it runs; its pid inside."""
        return self.wire.start(sandbox, command, TAG)

    def stream(self, sandbox, method, body):
        return self.wire.stream(sandbox, method, body)

    def output_of(self, sandbox, command):
        """What a command says on standard output until it ends with success."""
        status, output = self.wire.run(sandbox, command)
        self.assertEqual(status, 0, (command, output))
        return output

    def listed(self):
        return {found["sandboxID"]: found for found in self.ask("GET", "/v2/sandboxes")[1]}
