#include "egress/gateway/audit_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "egress/audit_entry.h"
#include "egress/audit_verify.h"

namespace caisson::egress {
namespace {

using policy::AuditSync;
using testing::ElementsAre;

AuditChainKey key() {
  return AuditChainKey::of("key", std::string(kAuditChainId, 'a'));
}

class AuditWriterTest : public testing::Test {
 protected:
  AuditWriterTest() {
    std::string name = testing::TempDir() + "/writer-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~AuditWriterTest() override { std::filesystem::remove_all(folder_); }

  Fd file(const std::string& name) {
    return Fd(::open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
  AuditWriter writer(AuditWriter::Options options) {
    options.sandbox = "sb1";
    options.sealed = [this](const AuditHead& head) { told_.push_back(head.sequence); };
    return AuditWriter(loop_, file("a"), AuditChain::create(key(), {}).value(), std::move(options));
  }
  void write(AuditWriter& to, AuditKind kind) {
    to.write(kind, audit_line({.kind = kind}, "sb1", 1, std::chrono::system_clock::now()));
  }
  // The loop goes on for as long, or until `done`.
  void run(std::chrono::milliseconds time) {
    loop_.spawn([](io::Loop& loop, std::chrono::milliseconds wait) -> io::Async<void> {
      co_await io::Loop::sleep(wait);
      loop.stop();
    }(loop_, time));
    loop_.run();
  }
  std::vector<std::string> kinds(const std::string& name) {
    std::ifstream text(folder_ / name);
    std::vector<std::string> found;
    for (std::string line; std::getline(text, line);)
      found.push_back(parse_audit_line(line).value_or(AuditEntry()).kind);
    return found;
  }
  AuditVerifier verify(const std::string& name, std::optional<AuditHead> after = {}) {
    AuditVerifier verifier(key(), std::move(after));
    std::ifstream text(folder_ / name);
    for (std::string line; std::getline(text, line);)
      if (!verifier.feed(line, AuditVerifier::Ended::kYes)) break;
    verifier.finish(AuditVerifier::StillWritten::kNo);
    return verifier;
  }

  io::Loop loop_;
  std::filesystem::path folder_;
  std::vector<std::uint64_t> told_;
};

TEST_F(AuditWriterTest, SealsBehindSoManyRecordsOrSoMuchTime) {
  for (const AuditSync sync : {AuditSync::kNone, AuditSync::kInterval, AuditSync::kEach}) {
    std::filesystem::remove(folder_ / "a");
    told_.clear();
    AuditWriter to = writer({.sync = sync});
    write(to, AuditKind::kBegin);
    for (std::uint64_t i = 0; i + 2 < AuditWriter::kRecordsASeal; ++i) write(to, AuditKind::kTcp);
    EXPECT_THAT(kinds("a"), testing::Not(testing::Contains("seal")));
    write(to, AuditKind::kTcp);
    EXPECT_EQ(kinds("a").back(), "seal");
    write(to, AuditKind::kTcp);
    run(AuditWriter::kSealAfter + std::chrono::milliseconds(300));
    EXPECT_EQ(kinds("a").size(), AuditWriter::kRecordsASeal + 3);
    EXPECT_EQ(kinds("a").back(), "seal");
    EXPECT_EQ(told_.back(), AuditWriter::kRecordsASeal + 3);
    // With nothing new there is no other.
    run(AuditWriter::kSealAfter + std::chrono::milliseconds(100));
    EXPECT_EQ(kinds("a").size(), AuditWriter::kRecordsASeal + 3);
    write(to, AuditKind::kEnd);
    to.close();
    EXPECT_EQ(told_.back(), to.head().sequence);
    const AuditVerifier verifier = verify("a");
    EXPECT_FALSE(verifier.broken()) << verifier.broken()->sentence;
    EXPECT_TRUE(verifier.incomplete().empty());
    EXPECT_EQ(verifier.sealed(), AuditWriter::kRecordsASeal + 4);
  }
}

TEST_F(AuditWriterTest, BeyondItsBoundRecordsAreCountedAndTheEndSaysSo) {
  AuditWriter to = writer({.sync = AuditSync::kNone, .most = 260});
  for (const AuditKind kind :
       {AuditKind::kBegin, AuditKind::kTcp, AuditKind::kTcp, AuditKind::kTcp, AuditKind::kEnd})
    write(to, kind);
  EXPECT_THAT(kinds("a"), ElementsAre("begin", "tcp", "end"));
  const AuditVerifier verifier = verify("a");
  EXPECT_FALSE(verifier.broken()) << verifier.broken()->sentence;
  ASSERT_EQ(verifier.remarks().size(), 1u);
  EXPECT_EQ(verifier.remarks()[0].sentence,
            "2 records before it were not written: the file took no more");
}

TEST_F(AuditWriterTest, WithoutAFileNothingIsWritten) {
  AuditWriter to(loop_, Fd(), std::nullopt, {});
  write(to, AuditKind::kBegin);
  to.close();
  EXPECT_EQ(to.head(), AuditHead());
}

}  // namespace
}  // namespace caisson::egress
