#include "cli/hint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace caisson::cli {
namespace {

class HintTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-hint-XXXXXX";
    folder_ = ::mkdtemp(name);
    std::ofstream(folder_ + "/script.py") << "x";
    std::ofstream(folder_ + "/word") << "x";
    std::filesystem::create_directory(folder_ + "/build");
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  static std::string hint(std::vector<std::string> command,
                          std::vector<policy::Grant> grants = {}) {
    policy::SpecValues spec;
    spec.command = std::move(command);
    spec.grants = std::move(grants);
    return invisible_file_hint(spec, "--ro");
  }
  std::string folder_;
  std::filesystem::path before_;
};

TEST_F(HintTest, AFileBelowTheWorkingDirectoryAsksForIt) {
  EXPECT_EQ(hint({"python3", "script.py"}),
            "'script.py' is a file of this host that the sandbox could not see: add --ro .");
  EXPECT_NE(hint({"python3", folder_ + "/script.py"}).find("--ro ."), std::string::npos);
  EXPECT_NE(hint({"tool", "--config=script.py"}).find("--ro ."), std::string::npos);
  EXPECT_NE(hint({"cat", "word"}).find("--ro ."), std::string::npos);
}

TEST_F(HintTest, AFileElsewhereAsksForItsFolder) {
  std::filesystem::current_path(before_);
  EXPECT_NE(hint({"python3", folder_ + "/script.py"}).find("--ro " + folder_), std::string::npos);
}

TEST_F(HintTest, NothingWhereNothingIsMissing) {
  EXPECT_EQ(hint({"python3", "script.py"}, {{.from = ".", .to = "/workspace"}}), "");
  EXPECT_EQ(hint({"python3", "script.py"}, {{.from = folder_ + "/script.py", .to = "/s"}}), "");
  EXPECT_EQ(hint({"python3", "other.py"}), "");
  EXPECT_EQ(hint({"/bin/sh", "-c", "exit 1"}), "");
  EXPECT_EQ(hint({"ls", "/tmp", "/"}), "");
  EXPECT_EQ(hint({"make", "build"}), "");  // a word that is a folder here by chance
  EXPECT_EQ(hint({"x", "-v", "--flag="}), "");
}

}  // namespace
}  // namespace caisson::cli
