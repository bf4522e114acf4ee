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
#include <optional>
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
    keyring_ = AuditKeyring::open(folder_ / "keys").value();
  }
  ~AuditFileTest() override { std::filesystem::remove_all(folder_); }

  static std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(std::string_view text) { std::ofstream(path_) << text; }

  // One run of a gateway: claims the file and writes two records.
  void run() {
    auto file = open();
    ASSERT_TRUE(file.has_value()) << file.error().message();
    const auto claimed = claim_audit(file->get(), *keyring_);
    ASSERT_TRUE(claimed.has_value()) << claimed.error().message();
    auto reader = open_audit_reader(file->get());
    ASSERT_TRUE(reader.has_value());
    auto end = read_audit_end(reader->get(), claimed->chain);
    ASSERT_TRUE(end.has_value()) << end.error().message();
    auto chain = go_on(file->get(), claimed->chain, *end, read_head(claimed->head.get()).value());
    ASSERT_TRUE(chain.has_value()) << chain.error().message();
    for (const char* kind : {"begin", "end"}) {
      ASSERT_GT(append(file->get(), *chain,
                       R"({"ts":"2023-11-14T22:13:20Z","v":2,"sandbox":"sb1","kind":")" +
                           std::string(kind) + "\"}\n"),
                0u);
    }
    ASSERT_TRUE(write_head(claimed->head.get(), chain->head()).has_value());
  }
  AuditVerifier verify(const std::filesystem::path& path, std::optional<AuditHead> after = {}) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const std::string id = read_audit_chain(file.get()).value();
    AuditVerifier verifier(keyring_->key_of(id), std::move(after), keyring_->known(id).value());
    EXPECT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
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
    auto file = open();
    if (!file.has_value()) return file.error().message();
    const auto claimed = claim_audit(file->get(), *keyring_);
    return claimed.has_value() ? "" : claimed.error().message();
  }

  Result<Fd> open(std::uint64_t most = 1u << 20) { return open_audit(path_, *keyring_, most); }

  std::filesystem::path folder_, path_;
  std::optional<AuditKeyring> keyring_;
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
  auto file = open();
  ASSERT_TRUE(file.has_value());
  ASSERT_TRUE(claim_audit(file->get(), *keyring_).has_value());
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
  EXPECT_THAT(refusal(), HasSubstr("it is no audit file"));
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
  EXPECT_EQ(claim_audit(write_end.get(), *keyring_).error().message(), "allowed is a regular file");
  for (const int flags : {O_WRONLY, O_RDWR | O_APPEND}) {
    const Fd file(::open(path_.c_str(), flags | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(claim_audit(file.get(), *keyring_).error().message(),
              "allowed is a file that is open for appending alone");
  }
  EXPECT_THAT(open_audit(folder_, *keyring_, 100).error().message(), HasSubstr("Is a directory"));
  EXPECT_THAT(open_audit(folder_ / "x" / "y", *keyring_, 100).error().message(),
              HasSubstr("No such file"));
}

TEST_F(AuditFileTest, AFileThatHasGrownIsPutAsideAndTheNextGoesOnFromIt) {
  run();
  {
    auto file = open(100);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    ASSERT_TRUE(claim_audit(file->get(), *keyring_).has_value());
    EXPECT_THAT(refusal(), HasSubstr("another sandbox"));
  }
  run();
  ASSERT_TRUE(open(100).has_value());
  const AuditVerifier first = verify(path_.string() + ".1");
  EXPECT_EQ(first.records(), 3u);
  EXPECT_FALSE(first.broken());
  const AuditVerifier second = verify(path_.string() + ".2", first.head());
  EXPECT_EQ(second.records(), 4u);
  EXPECT_FALSE(second.broken());
  const AuditVerifier third = verify(path_, second.head());
  EXPECT_EQ(third.records(), 1u);
  EXPECT_FALSE(third.broken());
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".new"));
}

TEST_F(AuditFileTest, AnEndThatWasCutOffBetweenRunsIsToldByTheNext) {
  run();
  const std::string before = contents(path_);
  run();
  EXPECT_TRUE(verify(path_).cut().empty());
  write(before);
  EXPECT_EQ(verify(path_).cut().size(), 1u);
  run();
  const AuditVerifier verifier = verify(path_);
  EXPECT_FALSE(verifier.broken()) << verifier.broken()->sentence;
  ASSERT_EQ(verifier.cut().size(), 1u);
  EXPECT_THAT(verifier.cut()[0].sentence, HasSubstr("records 3 to 4 are missing"));
  EXPECT_EQ(verifier.head().sequence, 7u);
  // Also where the file is put aside first.
  write(before);
  ASSERT_TRUE(open(100).has_value());
  const AuditVerifier aside = verify(path_.string() + ".1");
  EXPECT_FALSE(aside.broken()) << aside.broken()->sentence;
  EXPECT_EQ(aside.cut().size(), 1u);
  EXPECT_FALSE(verify(path_, aside.head()).broken());
}

TEST_F(AuditFileTest, AFileThatIsClosedIsGoneOnWithInAnother) {
  run();
  const auto claim = [&] {
    const Fd file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    const auto claimed = claim_audit(file.get(), *keyring_);
    return claimed.has_value() ? "" : claimed.error().message();
  };
  const std::string whole = contents(path_);
  ASSERT_TRUE(open(100).has_value());
  // As after a crash between the two.
  ASSERT_EQ(::rename((path_.string() + ".1").c_str(), path_.c_str()), 0);
  EXPECT_EQ(claim(), "the file's last record says that it goes on in another one");
  ASSERT_TRUE(open().has_value());
  EXPECT_EQ(verify(path_.string() + ".1").records(), 3u);
  EXPECT_FALSE(verify(path_, verify(path_.string() + ".1").head()).broken());
}

TEST_F(AuditFileTest, ACrashBetweenLinkAndRenameLeavesNoSecondName) {
  run();
  ASSERT_TRUE(open(100).has_value());
  const std::string aside = path_.string() + ".1";
  ASSERT_EQ(::rename(aside.c_str(), path_.c_str()), 0);
  ASSERT_EQ(::link(path_.c_str(), aside.c_str()), 0);
  ASSERT_TRUE(open().has_value());
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".2"));
  EXPECT_EQ(verify(aside).records(), 3u);
  EXPECT_FALSE(verify(path_, verify(aside).head()).broken());
}

TEST_F(AuditFileTest, OtherKeysAreRefused) {
  run();
  keyring_ = AuditKeyring::open(folder_ / "others").value();
  EXPECT_THAT(refusal(), HasSubstr("its last record does not fit"));
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
