#include "image/registry/credentials.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/encoding.h"

namespace caisson::image {
namespace {

using namespace std::string_literals;

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CredentialFile, HoldsLoginsAndHelpers) {
  const std::string auth = base64_encode("user:pass:word");
  const auto file = parse_credential_file(R"({"auths":{"r.example.com:5000":{"auth":")" + auth +
                                          R"("},"https://i.example.com/v1/":{"auth":")" + auth +
                                          R"(","identitytoken":"idtoken"},"empty.example.com":{}},
         "credHelpers":{"h.example.com":"desktop"},"credsStore":"pass","other":[1]})");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->entries.at("r.example.com:5000").user, "user");
  EXPECT_EQ(file->entries.at("r.example.com:5000").secret, "pass:word");
  EXPECT_EQ(file->entries.at("i.example.com").identity_token, "idtoken");
  EXPECT_EQ(file->entries.at("empty.example.com"), Credentials());
  EXPECT_EQ(file->helpers.at("h.example.com"), "desktop");
  EXPECT_EQ(file->store, "pass");
  EXPECT_TRUE(parse_credential_file("{}").has_value());
}

TEST(CredentialFile, ErrorsNameTheKeyAndNoSecret) {
  const std::string no_colon = base64_encode("secretonly");
  const std::string line = base64_encode("user:sec\nret");
  for (const std::string& entry :
       {R"({"auth":"%%secret"})"s, R"({"auth":")" + no_colon + "\"}", R"({"auth":")" + line + "\"}",
        R"({"auth":5})"s, R"({"identitytoken":["secret"]})"s,
        R"({"password":"secret\r\nX: y"})"s}) {
    const auto file = parse_credential_file(R"({"auths":{"r.example.com":)" + entry + "}}");
    ASSERT_FALSE(file.has_value()) << entry;
    EXPECT_THAT(file.error().message(), HasSubstr("auths.r.example.com"));
    EXPECT_THAT(file.error().message(), Not(HasSubstr("secret")));
    EXPECT_THAT(file.error().message(), Not(HasSubstr(no_colon)));
  }
  EXPECT_FALSE(parse_credential_file(R"({"credsStore":"../x"})").has_value());
  EXPECT_FALSE(parse_credential_file(R"({"credHelpers":{"a":"b c"}})").has_value());
}

TEST(CredentialHelper, ItsAnswerIsRead) {
  EXPECT_EQ(parse_helper_answer(R"({"ServerURL":"x","Username":"u","Secret":"s"})").value(),
            (Credentials{.user = "u", .secret = "s", .identity_token = {}}));
  EXPECT_EQ(parse_helper_answer(R"({"Username":"<token>","Secret":"s"})").value().identity_token,
            "s");
  EXPECT_FALSE(parse_helper_answer("secret").has_value());
}

// A folder with a config.json and programs, as DOCKER_CONFIG and at the front of PATH.
class FindCredentials : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/caisson-credentials-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    path_ = ::getenv("PATH") == nullptr ? "" : ::getenv("PATH");
    ::setenv("DOCKER_CONFIG", folder, 1);
    ::setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    ::unsetenv("DOCKER_CONFIG");
    for (const std::string& name : files_) ::unlink((folder_ + "/" + name).c_str());
    ::rmdir(folder_.c_str());
  }
  void write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    std::ofstream(folder_ + "/" + name) << text;
    ::chmod((folder_ + "/" + name).c_str(), mode);
    files_.push_back(name);
  }
  void helper(const std::string& script) {
    write("docker-credential-test", "#!/bin/sh\n" + script, 0700);
    write("config.json", R"({"credsStore":"test","auths":{"r.example.com":{"auth":")" +
                             base64_encode("file:x") + "\"}}}");
  }

  std::string folder_, path_;
  std::vector<std::string> files_;
};

TEST_F(FindCredentials, AreAbsentWithoutAFile) {
  EXPECT_FALSE(find_credentials("r.example.com").value().has_value());
}

TEST_F(FindCredentials, ComeFromTheFile) {
  write("config.json", R"({"auths":{"r.example.com":{"auth":")" + base64_encode("u:s") + "\"}}}");
  EXPECT_EQ(find_credentials("r.example.com").value()->user, "u");
  EXPECT_FALSE(find_credentials("r.example.com:5000").value().has_value());
}

TEST_F(FindCredentials, ComeFromAHelperThatIsToldTheRegistry) {
  helper(R"sh([ "$1" = get ] || exit 1
read -r host
printf '{"Username":"of-%s","Secret":"s"}' "$host")sh");
  EXPECT_EQ(find_credentials("r.example.com").value()->user, "of-r.example.com");
}

TEST_F(FindCredentials, ComeFromTheFileWhereTheHelperHasNone) {
  helper("echo 'credentials not found in native keychain'; exit 1");
  EXPECT_EQ(find_credentials("r.example.com").value()->user, "file");
}

TEST_F(FindCredentials, ComeFromTheFileWhereTheHelperIsNotInstalled) {
  helper("");
  ::unlink((folder_ + "/docker-credential-test").c_str());
  EXPECT_EQ(find_credentials("r.example.com").value()->user, "file");
}

TEST_F(FindCredentials, AHelperThatFailsIsAnErrorWithoutItsWords) {
  helper("echo topsecret; exit 3");
  const auto found = find_credentials("r.example.com");
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message(), HasSubstr("docker-credential-test"));
  EXPECT_THAT(found.error().message(), Not(HasSubstr("topsecret")));
}

TEST_F(FindCredentials, AHelperThatTalksTooMuchIsEnded) {
  helper("exec yes");
  const auto found = find_credentials("r.example.com");
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message(), HasSubstr("more than"));
}

TEST_F(FindCredentials, AMalformedFileIsNamed) {
  write("config.json", "{");
  const auto found = find_credentials("r.example.com");
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message(), HasSubstr(folder_ + "/config.json"));
}

}  // namespace
}  // namespace caisson::image
