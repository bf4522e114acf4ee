#include "policy/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace caisson::policy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Settings, AreRead) {
  const auto settings = parse_settings(R"(
default_registry: registry.example.com:5000/library
insecure_registries: [a.example.com, "b.example.com:80"]
images:
  ubuntu:22.04: base
  "python": code:1
)");
  ASSERT_TRUE(settings.has_value()) << settings.error().message();
  EXPECT_EQ(settings->default_registry, "registry.example.com:5000/library");
  EXPECT_THAT(settings->insecure_registries, ElementsAre("a.example.com", "b.example.com:80"));
  EXPECT_EQ(settings->images.at("ubuntu:22.04"), "base");
  EXPECT_EQ(settings->images.at("python"), "code:1");
  EXPECT_EQ(parse_settings("").value(), Settings());
}

TEST(Settings, AreRefusedWithKeyFoundAndAllowed) {
  struct Row {
    const char *text, *key, *found, *allowed;
  };
  for (const Row& row :
       {Row{"default_regisrty: a", "default_regisrty", "unknown key", "default_registry"},
        Row{"default_registry: 'A B'", "default_registry", "A B", "HOST"},
        Row{"default_registry: [a]", "default_registry", "a list", "HOST"},
        Row{"default_registry:", "default_registry", "nothing", "HOST"},
        Row{"default_registry: a:99999", "default_registry", "99999", "HOST"},
        Row{"default_registry: example.com/a:1", "default_registry", "a:1", "HOST"},
        Row{"default_registry: https://example.com", "default_registry", "https", "HOST"},
        Row{"insecure_registries: a", "insecure_registries", "\"a\"", "a list"},
        Row{"insecure_registries: [a, {}]", "insecure_registries[1]", "a mapping", "HOST"},
        Row{"insecure_registries: [a/b]", "insecure_registries[0]", "a/b", "HOST"},
        Row{"images: [a]", "images", "a list", "a mapping"},
        Row{"images: {a: [b]}", "images.a", "a list", "NAME"},
        Row{"images: {a: 'B B'}", "images.a", "B B", "NAME"},
        Row{"images: {'A A': b}", "images", "no image", "NAME"},
        Row{"default_registry: a\ndefault_registry: b", "default_registry", "twice", "once"},
        Row{"[a]", "settings", "a list", "a mapping"},
        Row{"a: &b c", "settings", "anchor", "YAML"}}) {
    const auto settings = parse_settings(row.text);
    ASSERT_FALSE(settings.has_value()) << row.text;
    EXPECT_EQ(settings.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(settings.error().message(),
                AllOf(HasSubstr(row.key), HasSubstr(row.found), HasSubstr(row.allowed)))
        << row.text;
  }
}

class LoadSettings : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/caisson-settings-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    ::setenv("XDG_CONFIG_HOME", folder, 1);
    ::unsetenv("CAISSON_DEFAULT_REGISTRY");
    ::unsetenv("CAISSON_IMAGE_FORM");
  }
  void TearDown() override {
    ::unsetenv("XDG_CONFIG_HOME");
    ::unsetenv("CAISSON_DEFAULT_REGISTRY");
    ::unsetenv("CAISSON_IMAGE_FORM");
    ::unlink((folder_ + "/caisson/config.yaml").c_str());
    ::rmdir((folder_ + "/caisson").c_str());
    ::rmdir(folder_.c_str());
  }
  void write(const char* text) {
    ::mkdir((folder_ + "/caisson").c_str(), 0700);
    std::ofstream(folder_ + "/caisson/config.yaml") << text;
  }
  std::string folder_;
};

TEST_F(LoadSettings, ComeFromTheUsersFile) {
  write("default_registry: a.example.com\n");
  EXPECT_EQ(settings_path(), folder_ + "/caisson/config.yaml");
  EXPECT_EQ(load_settings().value().default_registry, "a.example.com");
}

TEST_F(LoadSettings, TheEnvironmentGoesBefore) {
  write("default_registry: a.example.com\ninsecure_registries: [c.example.com]\n");
  ::setenv("CAISSON_DEFAULT_REGISTRY", "b.example.com", 1);
  EXPECT_EQ(load_settings().value().default_registry, "b.example.com");
  EXPECT_EQ(load_settings().value().insecure_registries.size(), 1u);
  ::setenv("CAISSON_DEFAULT_REGISTRY", "not a host", 1);
  EXPECT_THAT(load_settings().error().message(), HasSubstr("CAISSON_DEFAULT_REGISTRY"));
}

TEST_F(LoadSettings, ImagesAreDirectoriesUnlessSaidOtherwise) {
  EXPECT_EQ(parse_settings("").value().image_form, ImageForm::kDirectory);
  write("image_form: erofs\n");
  EXPECT_EQ(load_settings().value().image_form, ImageForm::kErofs);
  ::setenv("CAISSON_IMAGE_FORM", "directory", 1);
  EXPECT_EQ(load_settings().value().image_form, ImageForm::kDirectory);
  ::setenv("CAISSON_IMAGE_FORM", "ext4", 1);
  EXPECT_THAT(load_settings().error().message(), HasSubstr("CAISSON_IMAGE_FORM"));
  write("image_form: [erofs]\n");
  EXPECT_THAT(load_settings().error().message(), HasSubstr("directory or erofs"));
}

TEST_F(LoadSettings, SomebodyElsesFolderHasNoneOfOurs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  write("odd: 1\n");  // an error for who can read it
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setresuid(4321, 4321, 4321) != 0) ::_exit(1);
    ::_exit(load_settings().has_value() ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

TEST_F(LoadSettings, ErrorsNameTheFile) {
  write("odd: 1\n");
  EXPECT_THAT(load_settings().error().message(), HasSubstr(folder_ + "/caisson/config.yaml"));
}

}  // namespace
}  // namespace caisson::policy
