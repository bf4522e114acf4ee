"""API keys and teams of the server: `caisson key` and `caisson team` on the database alone."""
import json
import os
import stat

import support


class Keys(support.CallerTest):
    def setUp(self):
        self.state = self.caller.mkdir(f"state-{self.id().rsplit('.', 1)[-1]}")

    def key(self, *arguments):
        return self.caller.caisson("key", *arguments, "--state-dir", self.state)

    def team(self, *arguments):
        return self.caller.caisson("team", *arguments, "--state-dir", self.state)

    def ok(self, done):
        self.assertEqual(done.returncode, 0, done)
        return done.out

    def test_a_key_is_shown_once_and_never_kept(self):
        secret = self.ok(self.key("create", "--name", "laptop"))
        self.assertRegex(secret, r"^e2b_[0-9a-f]{40}\n$")
        listed = json.loads(self.ok(self.key("ls", "--json")))
        self.assertEqual([(k["name"], k["team"]) for k in listed], [("laptop", "default")])
        self.assertEqual(listed[0]["mask"], f"{secret[:6]}…{secret.strip()[-2:]}")
        table = self.ok(self.key("ls"))
        self.assertIn("laptop", table)
        self.assertIn("never", table)
        self.assertNotIn(secret.strip(), table)
        for path in (self.state / "server").iterdir():
            self.assertNotIn(secret.strip().encode(), path.read_bytes(), path)

    def test_the_files_are_the_callers_alone(self):
        self.ok(self.key("create"))
        folder = self.state / "server"
        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
        for path in folder.iterdir():
            self.assertEqual((stat.S_IMODE(path.stat().st_mode), path.stat().st_uid), (0o600, self.caller.uid), path)

    def test_json_has_the_key_and_its_id(self):
        made = json.loads(self.ok(self.key("create", "--json")))
        self.assertRegex(made["key"], r"^e2b_[0-9a-f]{40}$")
        self.assertEqual(self.ok(self.key("ls", "-q")), made["id"] + "\n")

    def test_a_revoked_key_is_gone_from_the_list(self):
        first = json.loads(self.ok(self.key("create", "--json")))
        second = json.loads(self.ok(self.key("create", "--json")))
        self.assertEqual(self.ok(self.key("rm", first["id"][:8])), "")
        self.assertEqual(self.ok(self.key("ls", "-q")), second["id"] + "\n")
        self.assertEqual(len(json.loads(self.ok(self.key("ls", "--all", "--json")))), 2)
        self.assertIn("(revoked)", self.ok(self.key("ls", "-a")))
        self.assert_refused(self.key("rm", first["id"]), "no key", first["id"])

    def test_teams_have_keys_of_their_own(self):
        self.ok(self.team("create", "ci", "--name", "Tests", "--max-running", "20", "--max-memory", "2GiB"))
        made = json.loads(self.ok(self.key("create", "--team", "ci", "--json")))
        self.assertEqual(made["team"], "ci")
        self.assertEqual(self.ok(self.key("ls", "-q")), "")
        self.assertEqual(self.ok(self.key("ls", "-q", "--team", "ci")), made["id"] + "\n")
        self.assert_refused(self.key("rm", made["id"]), "no key")
        self.ok(self.key("rm", "--team", "ci", made["id"]))

    def test_quotas_are_set_one_by_one(self):
        self.ok(self.team("create", "ci", "--max-running", "20", "--max-lifetime", "90m"))
        self.ok(self.team("set", "ci", "--max-running", "unlimited", "--max-cpus", "1.5"))
        teams = {t["team"]: t for t in json.loads(self.ok(self.team("ls", "--json")))}
        self.assertEqual(sorted(teams), ["ci", "default"])
        self.assertEqual({k: v for k, v in teams["ci"].items() if k.startswith("max_")},
                         {"max_running": "unlimited", "max_cpus": "1.5", "max_memory": "unlimited",
                          "max_disk": "unlimited", "max_lifetime": "90m"})
        self.assertEqual(self.ok(self.team("ls", "-q")), "ci\ndefault\n")
        self.assertIn("90m", self.ok(self.team("ls")))

    def test_mistakes_are_said(self):
        self.assert_refused(self.key("create", "laptop"), "laptop", "--name")
        self.assert_refused(self.key("create", "--team", "none"), '"none"', "default")
        self.assert_refused(self.key("create", "--name", "a\nb"), "name", "allowed")
        self.assert_refused(self.key("ls", "ci"), "ci", "--team")
        self.assert_refused(self.key("rm"), "no key given")
        self.assert_refused(self.key("rm", "abc"), '"abc"', "8")
        self.assert_refused(self.team("create"), "one team")
        self.assert_refused(self.team("create", "A"), '"A"', "allowed")
        self.assert_refused(self.team("create", "default"), "already")
        self.assert_refused(self.team("create", "ci", "--max-memory", "lots"), "--max-memory", "lots", "512MiB")
        self.assert_refused(self.team("set", "none"), '"none"')
        self.assert_refused(self.team("set"), "one team")
        self.assert_refused(self.team("ls", "x"), "no arguments")
        self.assert_refused(self.caller.caisson("key"), "create, ls, rm")
        self.assert_refused(self.caller.caisson("key", "ls", "--state-dir", ""), "--state-dir")

    def test_a_folder_that_others_may_write_to_is_refused(self):
        self.ok(self.key("create"))
        os.chmod(self.state / "server", 0o777)
        self.assert_refused(self.key("create"), "others may write", "chmod")


support.main()
