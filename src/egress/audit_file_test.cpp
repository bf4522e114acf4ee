#include "egress/audit_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "egress/audit_verify.h"

namespace caisson::egress {
namespace {

using testing::HasSubstr;

class AuditFileTest : public testing::Test {
 protected:
  AuditFileTest() {
    std::string name = testing::TempDir() + "/audit-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ / "net.jsonl";
  }
  ~AuditFileTest() override { std::filesystem::remove_all(folder_); }

  static std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(std::string_view text) { std::ofstream(path_) << text; }

  // One run of a gateway: claims the file and writes two records.
  void run() {
    auto file = open_audit(path_);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    const Status claimed = claim_audit(file->get());
    ASSERT_TRUE(claimed.has_value()) << claimed.error().message();
    auto reader = open_audit_reader(file->get());
    ASSERT_TRUE(reader.has_value());
    auto end = read_audit_end(reader->get());
    ASSERT_TRUE(end.has_value()) << end.error().message();
    AuditChain chain(end->head, end->torn);
    for (const char* kind : {"begin", "end"}) {
      const std::string line =
          chain.next(R"({"ts":"2023-11-14T22:13:20Z","v":1,"sandbox":"sb1","kind":")" +
                     std::string(kind) + "\"}\n");
      ASSERT_EQ(::write(file->get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
      chain.appended(line.size());
    }
  }
  AuditVerifier verify(const std::filesystem::path& path, std::optional<AuditHead> after = {}) {
    AuditVerifier verifier(std::move(after));
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    AuditLines lines(file.get());
    AuditLines::Line line;
    while (lines.next(line).value_or(false)) {
      const auto ended = line.ended ? AuditVerifier::Ended::kYes : AuditVerifier::Ended::kNo;
      if (!verifier.feed(line.text, ended) || !line.ended) break;
    }
    verifier.finish(AuditVerifier::StillWritten::kNo);
    return verifier;
  }
  std::string refusal() {
    auto file = open_audit(path_);
    if (!file.has_value()) return file.error().message();
    const Status claimed = claim_audit(file->get());
    return claimed.has_value() ? "" : claimed.error().message();
  }

  std::filesystem::path folder_, path_;
};

TEST_F(AuditFileTest, RunsGoOnWhereTheOneBeforeEnded) {
  run();
  run();
  const AuditVerifier verifier = verify(path_);
  EXPECT_FALSE(verifier.broken());
  EXPECT_TRUE(verifier.incomplete().empty());
  EXPECT_EQ(verifier.records(), 4u);
  struct stat info = {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AuditFileTest, WhatWasCutOffIsKeptAndTold) {
  run();
  std::ofstream(path_, std::ios::app) << R"({"ts":"2023)";
  run();
  EXPECT_THAT(contents(path_), HasSubstr("{\"ts\":\"2023\n{"));
  const AuditVerifier verifier = verify(path_);
  EXPECT_FALSE(verifier.broken());
  EXPECT_EQ(verifier.records(), 4u);
  ASSERT_EQ(verifier.remarks().size(), 1u);
  EXPECT_EQ(verifier.remarks()[0].line, 3u);
}

TEST_F(AuditFileTest, OneWriterAtATimeHasIt) {
  auto file = open_audit(path_);
  ASSERT_TRUE(file.has_value());
  ASSERT_TRUE(claim_audit(file->get()).has_value());
  EXPECT_THAT(refusal(), HasSubstr("another sandbox writes its records to this file"));
  const Fd reader(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(is_audit_claimed(reader.get()).value_or(false));
  // A copy keeps it, as the gateway's does when its starter has closed his.
  Fd copy(::dup(file->get()));
  *file = Fd();
  EXPECT_TRUE(is_audit_claimed(reader.get()).value_or(false));
  copy = Fd();
  EXPECT_FALSE(is_audit_claimed(reader.get()).value_or(true));
  EXPECT_EQ(refusal(), "");
}

TEST_F(AuditFileTest, WhatHoldsSomethingElseIsRefused) {
  write("notes\n");
  EXPECT_THAT(refusal(), HasSubstr("its last line is no record"));
  EXPECT_EQ(contents(path_), "notes\n");
  write("");
  run();
  std::string changed = contents(path_);
  changed[changed.rfind("sb1")] = 'x';
  write(changed);
  EXPECT_THAT(refusal(), HasSubstr("its last record does not fit the one before it"));
  EXPECT_EQ(contents(path_), changed);
}

TEST_F(AuditFileTest, WhatIsNoFileOrNotForAppendingIsRefused) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]), write_end(ends[1]);
  EXPECT_EQ(claim_audit(write_end.get()).error().message(), "allowed is a regular file");
  for (const int flags : {O_WRONLY, O_RDWR | O_APPEND}) {
    const Fd file(::open(path_.c_str(), flags | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(claim_audit(file.get()).error().message(),
              "allowed is a file that is open for appending alone");
  }
  EXPECT_THAT(open_audit(folder_).error().message(), HasSubstr("Is a directory"));
  EXPECT_THAT(open_audit(folder_ / "x" / "y").error().message(), HasSubstr("No such file"));
}

TEST_F(AuditFileTest, AFileThatHasGrownIsPutAsideAndTheNextGoesOnFromIt) {
  run();
  {
    auto file = open_audit(path_, 100);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    ASSERT_TRUE(claim_audit(file->get()).has_value());
    EXPECT_THAT(refusal(), HasSubstr("another sandbox"));
  }
  run();
  ASSERT_TRUE(open_audit(path_, 100).has_value());
  const AuditVerifier first = verify(path_.string() + ".1");
  EXPECT_EQ(first.records(), 2u);
  EXPECT_FALSE(first.broken());
  const AuditVerifier second = verify(path_.string() + ".2", first.head());
  EXPECT_EQ(second.records(), 3u);
  EXPECT_FALSE(second.broken());
  const AuditVerifier third = verify(path_, second.head());
  EXPECT_EQ(third.records(), 1u);
  EXPECT_FALSE(third.broken());
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".new"));
}

TEST_F(AuditFileTest, LinesComeInBoundedPieces) {
  write("a\n\nb");
  Fd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  AuditLines lines(file.get());
  AuditLines::Line line;
  ASSERT_TRUE(lines.next(line).value_or(false));
  EXPECT_EQ(line.text, "a");
  ASSERT_TRUE(lines.next(line).value_or(false));
  EXPECT_TRUE(line.text.empty() && line.ended);
  ASSERT_TRUE(lines.next(line).value_or(false));
  EXPECT_TRUE(line.text == "b" && !line.ended);
  // It goes on as the file does.
  std::ofstream(path_, std::ios::app) << "c\n" << std::string(3 * kMostAuditLine, 'x');
  ASSERT_TRUE(lines.next(line).value_or(false));
  EXPECT_TRUE(line.text == "bc" && line.ended);
  ASSERT_TRUE(lines.next(line).value_or(false));
  EXPECT_GT(line.text.size(), kMostAuditLine);
  EXPECT_LT(line.text.size(), 2 * kMostAuditLine + 1);
  EXPECT_FALSE(line.ended);
  write("");
  file = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  AuditLines none(file.get());
  EXPECT_FALSE(none.next(line).value_or(true));
}

}  // namespace
}  // namespace caisson::egress
