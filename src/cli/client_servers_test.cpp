#include "cli/client_servers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace caisson::cli {
namespace {

using policy::PresetServer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

TEST(ClientServers, PipsFiles) {
  const PipUrls read = pip_urls(
      "# index-url = https://no.example.com\n[global]\nindex-url=https://a.example.com/simple \n"
      "timeout = 3\n[install]\nextra-index-url =\n  https://b.example.com\n\thttps://c.example.com "
      "https://d.example.com\ntrusted-host = e.example.com\n  f.example.com\n");
  EXPECT_THAT(read.index, ElementsAre("https://a.example.com/simple"));
  EXPECT_THAT(read.extra, ElementsAre("https://b.example.com", "https://c.example.com",
                                      "https://d.example.com"));
  EXPECT_THAT(pip_urls("").index, IsEmpty());
}

TEST(ClientServers, NpmsFiles) {
  const NpmUrls read = npm_urls(
      "; registry=https://no.example.com\nregistry = \"https://a.example.com/\"\r\n"
      "@acme:registry=https://b.example.com\n//b.example.com/:_authToken=x\nregistry=\ncolor=no\n");
  EXPECT_THAT(read.registry, ElementsAre("https://a.example.com/"));
  EXPECT_THAT(read.scoped, ElementsAre("https://b.example.com"));
}

TEST(ClientServers, CargosFiles) {
  EXPECT_THAT(
      cargo_urls("[source.crates-io]\nreplace-with = 'm'\n[source.m]\n"
                 "registry = \"sparse+https://a.example.com/index/\" # with a remark\n"
                 "[registries.own]\nindex = 'https://b.example.com/'\nregistry = \"c\"\n"
                 "[registry]\nindex = \"https://no.example.com\"\n[source.x]\nregistry = 3\n"
                 "registry = \"without an end\nregistry\n"),
      ElementsAre("sparse+https://a.example.com/index/", "https://b.example.com/"));
}

TEST(ClientServers, GosListsAndFiles) {
  EXPECT_THAT(go_urls("https://a.example.com"
                      "|"
                      "https://b.example.com, direct,off"),
              ElementsAre("https://a.example.com", "https://b.example.com"));
  EXPECT_EQ(go_proxy("GOFLAGS=-x\nGOPROXY=https://a.example.com,direct\n"),
            "https://a.example.com,direct");
  EXPECT_EQ(go_proxy("GOFLAGS=-x"), "");
}

TEST(ClientServers, AptsFiles) {
  EXPECT_THAT(apt_list_urls("# deb http://no.example.com x\ndeb http://a.example.com/debian stable "
                            "main\n deb-src [arch=amd64 signed-by=/x] https://b.example.com x\n"
                            "deb [broken http://no.example.com\nrpm http://no.example.com x\n"),
              ElementsAre("http://a.example.com/debian", "https://b.example.com"));
  EXPECT_THAT(apt_sources_urls("Types: deb\nURIs: http://a.example.com/debian\n  "
                               "http://b.example.com\n#URIs: http://no.example.com\nSuites: "
                               "https-like\n"),
              ElementsAre("http://a.example.com/debian", "http://b.example.com"));
}

// A host with files below a folder of its own.
class OnAHost : public testing::Test {
 protected:
  OnAHost() {
    std::string name = (std::filesystem::temp_directory_path() / "caisson-test-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~OnAHost() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  Result<ClientServers> find(std::string_view preset) {
    return client_servers(
        preset, {.root = root_, .home = root_ + "/home", .variable = [this](const char* name) {
                   const auto found = variables_.find(name);
                   return found == variables_.end() ? std::nullopt
                                                    : std::optional<std::string>(found->second);
                 }});
  }

  std::string root_;
  std::map<std::string, std::string> variables_;
};

TEST_F(OnAHost, WithoutConfigurationThereIsNone) {
  for (const std::string_view preset : policy::kPresets) {
    const auto found = find(preset);
    ASSERT_TRUE(found.has_value()) << preset;
    EXPECT_THAT(found->servers, IsEmpty()) << preset;
    EXPECT_THAT(found->env, IsEmpty()) << preset;
  }
}

TEST_F(OnAHost, PipsVariableWinsOverTheUsersFileAndThatOverTheHosts) {
  write("/etc/pip.conf",
        "[global]\nindex-url = https://host.example.com/simple\n"
        "extra-index-url = https://more.example.com\n");
  EXPECT_THAT(find("pip")->env,
              ElementsAre(Pair("PIP_EXTRA_INDEX_URL", "https://more.example.com"),
                          Pair("PIP_INDEX_URL", "https://host.example.com/simple")));
  write("/home/.config/pip/pip.conf", "[global]\nindex-url = https://user.example.com/simple\n");
  EXPECT_EQ(find("pip")->env.at("PIP_INDEX_URL"), "https://user.example.com/simple");
  variables_["PIP_INDEX_URL"] = "https://set.example.com:8443/simple";
  const auto found = find("pip");
  EXPECT_EQ(found->env.at("PIP_INDEX_URL"), "https://set.example.com:8443/simple");
  EXPECT_THAT(found->servers,
              ElementsAre(PresetServer{"host.example.com"}, PresetServer{"more.example.com"},
                          PresetServer{"user.example.com"}, PresetServer{"set.example.com", 8443}));
}

TEST_F(OnAHost, NpmCargoGoAndApt) {
  write("/home/.npmrc", "registry=https://npm.example.com/\n@a:registry=http://own.example.com\n");
  auto found = find("npm");
  EXPECT_THAT(found->servers, ElementsAre(PresetServer{"npm.example.com"},
                                          PresetServer{"own.example.com", 80, false}));
  EXPECT_THAT(found->env, ElementsAre(Pair("npm_config_registry", "https://npm.example.com/")));
  variables_["npm_config_registry"] = "https://set.example.com/";
  EXPECT_EQ(find("npm")->env.at("npm_config_registry"), "https://set.example.com/");

  write("/home/.cargo/config.toml", "[source.a]\nregistry = \"sparse+https://c.example.com/\"\n");
  EXPECT_THAT(find("cargo")->servers, ElementsAre(PresetServer{"c.example.com"}));
  variables_["CARGO_HOME"] = root_ + "/nowhere";
  EXPECT_THAT(find("cargo")->servers, IsEmpty());

  write("/home/.config/go/env", "GOPROXY=https://go.example.com,direct\n");
  EXPECT_THAT(find("go")->servers, ElementsAre(PresetServer{"go.example.com"}));
  variables_["GOPROXY"] = "https://other.example.com";
  found = find("go");
  EXPECT_THAT(found->servers, ElementsAre(PresetServer{"other.example.com"}));
  EXPECT_EQ(found->env.at("GOPROXY"), "https://other.example.com");

  write("/etc/apt/sources.list",
        "deb cdrom:[x]/ stable main\ndeb file:/srv/http/debian stable main\ndeb "
        "http://a.example.com/d x\n");
  write("/etc/apt/sources.list.d/b.sources", "URIs: https://b.example.com/d\n");
  write("/etc/apt/sources.list.d/c.list.old", "deb http://no.example.com/d x\n");
  EXPECT_THAT(find("apt")->servers,
              ElementsAre(PresetServer{"a.example.com", 80, false}, PresetServer{"b.example.com"}));
}

TEST_F(OnAHost, APasswordIsRefusedWhereItStandsAndNotSaid) {
  write("/etc/pip.conf", "[global]\nindex-url = https://me:hunter2@host.example.com/simple\n");
  const auto found = find("pip");
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message(), AllOf(HasSubstr("/etc/pip.conf"), HasSubstr("a user name"),
                                             Not(HasSubstr("hunter2"))));
  variables_["GOPROXY"] = "file:///srv/go";
  EXPECT_THAT(find("go").error().message(), HasSubstr("GOPROXY"));
}

TEST_F(OnAHost, AFileThatCannotBeReadIsAnError) {
  write("/etc/pip.conf/below", "");
  EXPECT_THAT(find("pip").error().message(), HasSubstr("pip.conf"));
}

}  // namespace
}  // namespace caisson::cli
