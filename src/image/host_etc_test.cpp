#include "image/host_etc.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <fstream>
#include <set>

#include "image/archive_for_test.h"
#include "image/files.h"

namespace caisson::image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_text;
using testing::TemporaryDirectory;

constexpr std::string_view kMachine = "0123456789abcdef0123456789abcdef";

std::string contents_of(const std::vector<GeneratedFile>& files, std::string_view path) {
  for (const GeneratedFile& file : files) {
    if (file.path == path) return file.contents;
  }
  return "absent";
}

// Words of letters, digits, '-' and '_', as host and account names are.
std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (char c : text + "\n") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_') {
      word += c;
    } else if (!word.empty()) {
      words.insert(std::move(word));
      word.clear();
    }
  }
  return words;
}

TEST(HostEtc, TheSandboxsOwnFilesHoldWhatWasGiven) {
  const auto files = sandbox_files("box", kMachine, "");
  EXPECT_EQ(contents_of(files, "/etc/hostname"), "box\n");
  EXPECT_THAT(contents_of(files, "/etc/hosts"), HasSubstr("127.0.1.1 box\n"));
  EXPECT_EQ(contents_of(files, "/etc/machine-id"), std::string(kMachine) + "\n");
  EXPECT_EQ(contents_of(files, "/etc/resolv.conf").find("nameserver"), std::string::npos);
}

TEST(HostEtc, ANameServerIsNamedAndAsked) {
  const auto files = sandbox_files("box", kMachine, "10.200.0.1");
  EXPECT_TRUE(contents_of(files, "/etc/resolv.conf").starts_with("nameserver 10.200.0.1\n"));
  EXPECT_THAT(nsswitch_with_dns().contents, HasSubstr("\nhosts: files dns\n"));
  EXPECT_EQ(nsswitch_with_dns().path, "/etc/nsswitch.conf");
  // Nobody asks where there is none.
  EXPECT_THAT(contents_of(host_files("box", kMachine), "/etc/nsswitch.conf"),
              HasSubstr("\nhosts: files\n"));
}

TEST(HostEtc, HasTheAccountsThatProgramsExpect) {
  const auto files = host_files("box", kMachine);
  const std::string passwd = contents_of(files, "/etc/passwd");
  EXPECT_TRUE(passwd.starts_with("root:x:0:0:root:/root:/bin/bash\n"));
  EXPECT_THAT(passwd, HasSubstr("user:x:1000:1000::/home/user:/bin/bash\n"));
  EXPECT_THAT(passwd, HasSubstr("nobody:x:65534:65534:"));
  const std::string group = contents_of(files, "/etc/group");
  EXPECT_THAT(group, HasSubstr("sudo:x:27:user\n"));
  EXPECT_THAT(group, HasSubstr("user:x:1000:\n"));
  // No account has a password.
  const std::string shadow = contents_of(files, "/etc/shadow");
  for (std::size_t at = 0; at < shadow.size(); at = shadow.find('\n', at) + 1) {
    EXPECT_EQ(shadow.substr(shadow.find(':', at), 3), ":*:");
  }
}

TEST(HostEtc, AnotherUserReplacesTheAccountOfItsId) {
  const auto files = host_files("box", kMachine, {.name = "www", .uid = 33, .gid = 33});
  const std::string passwd = contents_of(files, "/etc/passwd");
  EXPECT_THAT(passwd, HasSubstr("www:x:33:33:"));
  EXPECT_EQ(passwd.find("www-data"), std::string::npos);
  EXPECT_EQ(contents_of(files, "/etc/group").find("www-data"), std::string::npos);
  const std::string root =
      contents_of(host_files("box", kMachine, {.name = "root", .uid = 0, .gid = 0}), "/etc/passwd");
  EXPECT_EQ(root.find("\nroot:"), std::string::npos);
}

TEST(HostEtc, PathsAreUniqueAndBelowEtc) {
  std::set<std::string> seen;
  for (const GeneratedFile& file : host_files("box", kMachine)) {
    EXPECT_TRUE(file.path.starts_with("/etc/"));
    EXPECT_TRUE(seen.insert(file.path).second) << file.path;
    EXPECT_EQ(file.mode & 0022, S_ISLNK(file.mode) ? 0022u : 0u);
  }
}

TEST(HostEtc, NamesNothingOfThisHost) {
  std::string all;
  for (const GeneratedFile& file : host_files("box", kMachine)) all += file.contents + "\n";
  Fd etc(open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::vector<HostEtcEntry> entries = open_host_etc(etc.get()).value();
  const std::set<std::string> words = words_of(all);
  char hostname[256] = {};
  ASSERT_EQ(gethostname(hostname, sizeof hostname - 1), 0);
  EXPECT_FALSE(words.contains(hostname)) << hostname;
  EXPECT_FALSE(words.contains(read_text("/etc/machine-id").substr(0, 32)));
  // Ordinary accounts of this host, but one that happens to be called like ours.
  std::ifstream passwd("/etc/passwd");
  for (std::string line; std::getline(passwd, line);) {
    const std::string name = line.substr(0, line.find(':'));
    const std::string id = line.substr(line.find(':', name.size() + 1) + 1);
    if (std::atoi(id.c_str()) < 1000 || name == "user" || name == "nobody") continue;
    EXPECT_FALSE(words.contains(name)) << name;
  }
  EXPECT_EQ(all.find("PRIVATE KEY"), std::string::npos);
  for (const HostEtcEntry& entry : entries) {
    if (entry.kind != HostEtcKind::kFile) continue;
    EXPECT_EQ(read_text("/etc/" + entry.path).find("PRIVATE KEY"), std::string::npos) << entry.path;
  }
}

TEST(HostEtc, ShowsNothingThatIsPrivateOrPersonal) {
  for (const std::string& path : host_etc_allowlist()) {
    for (const char* never : {"passwd", "group", "shadow", "ssh", "ssl", "ssl/private", "ssl/certs",
                              "hosts", "hostname", "resolv.conf", "machine-id", "sudoers", "npmrc",
                              "gitconfig", "pip.conf", "netrc", "environment", "perl", "apt"}) {
      EXPECT_NE(path, never);
      EXPECT_FALSE(path.starts_with(std::string(never) + "/") && std::string_view(never) != "ssl" &&
                   std::string_view(never) != "ssl/certs")
          << path;
    }
    EXPECT_EQ(path.find(".."), std::string::npos);
    EXPECT_NE(path.front(), '*');
  }
}

TEST(HostEtc, KnowsSecretNames) {
  for (const char* name :
       {"server.key", "SERVER.KEY", "id_rsa", "id_ed25519", "private", "secrets", "shadow-",
        "krb5.keytab", "jmxremote.password", "a.p12", "ssh_host_key"}) {
    EXPECT_TRUE(looks_secret(name)) << name;
  }
  for (const char* name : {"ca-certificates.crt", "id_rsa.pub", "keyboard", "fonts.conf",
                           "jmxremote.password.template", "libx.conf"}) {
    EXPECT_FALSE(looks_secret(name)) << name;
  }
}

// A made-up /etc. Its files are root's only when the test is; else nothing at all is shown.
class FakeEtc : public ::testing::Test {
 protected:
  void file(const std::string& path, mode_t mode = 0644) {
    std::filesystem::create_directories(std::filesystem::path(directory_ / path).parent_path());
    std::ofstream(directory_ / path) << path;
    ASSERT_EQ(chmod((directory_ / path).c_str(), mode), 0);
  }
  std::vector<std::string> shown() {
    Fd etc(open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::vector<std::string> paths;
    for (const HostEtcEntry& entry : open_host_etc(etc.get()).value()) paths.push_back(entry.path);
    if (geteuid() != 0) {
      EXPECT_THAT(paths, IsEmpty());
      paths = {"not root"};
    }
    return paths;
  }
  static auto only(std::vector<std::string> paths) {
    if (geteuid() != 0) paths = {"not root"};
    return ::testing::ElementsAreArray(paths);
  }
  TemporaryDirectory directory_;
};

TEST_F(FakeEtc, ShowsAllowedPublicFiles) {
  file("ld.so.cache");
  file("passwd");
  file("ssl/certs/ca-certificates.crt");
  file("ssl/certs/machine.pem");
  file("java-17-openjdk/security/java.security");
  file("python3.11/sitecustomize.py");
  file("rpc", 0600);
  file("magic", 0666);
  EXPECT_THAT(shown(), only({"ld.so.cache", "ssl/certs/ca-certificates.crt", "python3.11",
                             "java-17-openjdk"}));
}

TEST_F(FakeEtc, LeavesOutADirectoryWithASecretName) {
  file("fonts/fonts.conf");
  file("alternatives/server.key");
  EXPECT_THAT(shown(), only({"fonts"}));
}

TEST_F(FakeEtc, ShowsLinksBelowUsrAndNoOthers) {
  auto link = [&](const char* target, const char* name) {
    std::filesystem::create_symlink(target, directory_ / name);
  };
  file("decoy/fonts.conf");
  link("/usr/share/magic", "magic");
  link("../usr/share/rpc", "rpc");
  link("/root/secret", "inputrc");
  link("/usr/../root/secret", "gai.conf");
  link("../usr/../root/secret", "xattr.conf");
  link("../root/secret", "mime.types");
  link("decoy", "fonts");
  link("/", "ssl");
  auto expected = only({"magic", "rpc"});
  EXPECT_THAT(shown(), expected);
}

TEST_F(FakeEtc, LeavesOutWhatIsNotRoots) {
  file("magic");
  file("rpc");
  if (geteuid() == 0) {
    ASSERT_EQ(chown((directory_ / "magic").c_str(), 1234, 0), 0);
  }
  EXPECT_THAT(shown(), only({"rpc"}));
}

}  // namespace
}  // namespace caisson::image
