#include "egress/audit_verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace caisson::egress {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Lines = std::vector<std::string>;

AuditChainKey key() {
  return AuditChainKey::of(std::string(kAuditKey, 'm'), std::string(kAuditChainId, 'a'));
}
AuditChain new_chain() {
  return std::move(AuditChain::create(key(), {})).value();
}

std::string record(std::string_view kind, std::string_view sandbox = "sb1") {
  return R"({"ts":"2023-11-14T22:13:20.000000Z","v":2,"sandbox":")" + std::string(sandbox) +
         R"(","kind":")" + std::string(kind) + "\"}\n";
}

// Without line breaks.
void add(AuditChain& chain, Lines& lines, const std::string& text) {
  std::string line = chain.next(text);
  chain.appended(line.size());
  line.pop_back();
  lines.push_back(std::move(line));
}

// begin, three connections, end.
Lines run(AuditChain& chain, std::string_view sandbox = "sb1") {
  Lines lines;
  for (const std::string_view kind : {"begin", "tcp", "tls", "http", "end"})
    add(chain, lines, record(kind, sandbox));
  return lines;
}

Lines one_run() {
  AuditChain chain = new_chain();
  return run(chain);
}

AuditVerifier verify(const Lines& lines, std::optional<AuditHead> after = {},
                     AuditVerifier::Ended last = AuditVerifier::Ended::kYes, AuditHead known = {}) {
  AuditVerifier verifier(key(), std::move(after), std::move(known));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool is_last = i + 1 == lines.size();
    if (!verifier.feed(lines[i], is_last ? last : AuditVerifier::Ended::kYes)) break;
  }
  verifier.finish(AuditVerifier::StillWritten::kNo);
  return verifier;
}

std::string broken(const Lines& lines) {
  const AuditVerifier verifier = verify(lines);
  if (!verifier.broken()) return "";
  return std::to_string(verifier.broken()->line) + ": " + verifier.broken()->sentence;
}

TEST(AuditVerify, RunsThatFollowEachOtherAreWhole) {
  AuditChain chain = new_chain();
  Lines lines = run(chain);
  for (std::string& line : run(chain, "sb2")) lines.push_back(std::move(line));
  const AuditVerifier verifier = verify(lines);
  EXPECT_FALSE(verifier.broken());
  EXPECT_THAT(verifier.incomplete(), IsEmpty());
  EXPECT_THAT(verifier.remarks(), IsEmpty());
  EXPECT_EQ(verifier.records(), 10u);
  EXPECT_EQ(verifier.head(), chain.head());
}

TEST(AuditVerify, AnyByteThatIsChangedIsFoundInItsLine) {
  const Lines whole = one_run();
  for (std::size_t at = 0; at < whole[2].size(); ++at) {
    Lines lines = whole;
    lines[2][at] ^= 1;
    EXPECT_THAT(broken(lines), HasSubstr("3: ")) << lines[2];
  }
}

TEST(AuditVerify, ALineThatIsMissingMovedOrDoubledIsFound) {
  const Lines whole = one_run();
  Lines lines = whole;
  lines.erase(lines.begin() + 2);
  EXPECT_EQ(broken(lines), "3: before this line record 3 is missing");
  lines = whole;
  lines.erase(lines.begin(), lines.begin() + 2);
  EXPECT_EQ(broken(lines), "1: the first record of a file names its chain, and this one does not");
  lines = whole;
  lines.insert(lines.begin() + 2, whole[1]);
  EXPECT_EQ(broken(lines), "3: record 2 comes after record 2: lines were moved or doubled");
  lines = whole;
  std::swap(lines[1], lines[2]);
  EXPECT_EQ(broken(lines), "2: before this line record 2 is missing");
  lines = whole;
  lines.insert(lines.begin() + 2, "a line");
  EXPECT_THAT(broken(lines), HasSubstr("3: the line was changed or added: found is no record"));
  lines.insert(lines.begin() + 2, "");
  EXPECT_THAT(broken(lines), HasSubstr("3: the line was changed or added"));
  lines = whole;
  lines.push_back("a line");
  EXPECT_THAT(broken(lines), HasSubstr("6: the line was changed or added"));
  lines = whole;
  lines[1] = std::string(kMostAuditLine + 1, 'x');
  EXPECT_EQ(broken(lines), "2: it is longer than 65536 bytes");
}

TEST(AuditVerify, ARecordOfAnotherChainDoesNotFit) {
  const Lines whole = one_run();
  AuditChain other = new_chain();
  Lines lines = run(other, "sb9");
  lines[3] = whole[3];
  EXPECT_EQ(broken(lines), "4: the line was changed: its hash does not fit what it says");
}

TEST(AuditVerify, AnEndThatIsMissingIsTold) {
  Lines lines = one_run();
  lines.pop_back();
  AuditVerifier verifier = verify(lines);
  EXPECT_FALSE(verifier.broken());
  ASSERT_EQ(verifier.incomplete().size(), 1u);
  EXPECT_EQ(verifier.incomplete()[0].line, 1u);
  EXPECT_THAT(verifier.incomplete()[0].sentence, HasSubstr("the run of sb1 that begins here has no "
                                                           "closing record, and the file ends"));
  lines.push_back("{\"ts\":");
  verifier = verify(lines, {}, AuditVerifier::Ended::kNo);
  ASSERT_EQ(verifier.incomplete().size(), 2u);
  EXPECT_EQ(verifier.incomplete()[0],
            (AuditFinding{5, "the file ends within a record, by a crash or because it was cut"}));
  verifier = AuditVerifier(key());
  verifier.feed(lines[0], AuditVerifier::Ended::kYes);
  verifier.finish(AuditVerifier::StillWritten::kYes);
  EXPECT_THAT(verifier.incomplete(), IsEmpty());
  ASSERT_EQ(verifier.remarks().size(), 1u);
  EXPECT_THAT(verify({}).incomplete(), ElementsAre(AuditFinding{0, "there is no record in it"}));
  // A whole record without its line break was not written whole either.
  lines = one_run();
  EXPECT_EQ(verify(lines, {}, AuditVerifier::Ended::kNo).incomplete().size(), 2u);
}

TEST(AuditVerify, ARunThatWasKilledBeforeTheNextIsTold) {
  AuditChain chain = new_chain();
  Lines lines;
  add(chain, lines, record("begin"));
  for (std::string& line : run(chain, "sb2")) lines.push_back(std::move(line));
  const AuditVerifier verifier = verify(lines);
  EXPECT_FALSE(verifier.broken());
  ASSERT_EQ(verifier.incomplete().size(), 1u);
  EXPECT_THAT(verifier.incomplete()[0].sentence, HasSubstr("the run of sb1"));
}

TEST(AuditVerify, WhatWasCutOffIsARemarkWhereTheNextRecordSaysSo) {
  AuditChain chain = new_chain();
  Lines lines;
  add(chain, lines, record("begin"));
  lines.push_back(chain.next(record("tcp")).substr(0, 20));
  chain.appended(20);
  std::string next = chain.next(record("tcp"));
  lines.push_back(next.substr(1, 30));
  chain.appended(31);
  next = chain.next(record("end"));
  chain.appended(next.size());
  lines.push_back(next.substr(1, next.size() - 2));
  const AuditVerifier verifier = verify(lines);
  EXPECT_FALSE(verifier.broken()) << verifier.broken()->sentence;
  EXPECT_THAT(verifier.incomplete(), IsEmpty());
  ASSERT_EQ(verifier.remarks().size(), 2u);
  EXPECT_EQ(verifier.remarks()[0].line, 2u);
  EXPECT_EQ(verifier.remarks()[1],
            (AuditFinding{4, "2 records before it were not written: the file took no more"}));

  Lines changed = lines;
  changed[1][5] ^= 1;
  EXPECT_EQ(broken(changed), "2: what was cut off here is not what the next record says of it");
  changed = lines;
  changed.erase(changed.begin() + 1, changed.begin() + 3);
  EXPECT_EQ(broken(changed),
            "2: the record says that 51 bytes before it were cut off, and they are not there");
}

TEST(AuditVerify, FilesThatGoOnFromEachOther) {
  AuditChain chain = new_chain();
  const Lines first = run(chain);
  const AuditHead end = chain.head();
  Lines second;
  chain.begin_file();
  add(chain, second, audit_link("segment", end, "2023-11-14T22:13:20Z"));
  for (std::string& line : run(chain, "sb2")) second.push_back(std::move(line));

  AuditVerifier verifier = verify(second, end);
  EXPECT_FALSE(verifier.broken());
  EXPECT_THAT(verifier.remarks(), IsEmpty());
  verifier = verify(second);
  EXPECT_FALSE(verifier.broken());
  EXPECT_THAT(verifier.remarks(),
              ElementsAre(AuditFinding{
                  1, "it goes on from another file, whose last hash was " + end.hash}));
  const AuditHead other{.sequence = end.sequence - 1, .hash = end.hash};
  EXPECT_EQ(verify(second, other).broken()->sentence,
            "the file does not go on from the end of the one before it");
  EXPECT_EQ(verify(first, end).broken()->sentence,
            "the file does not go on from the one before it: it begins anew");
  Lines both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(broken(both), "6: the first record of another file: lines were moved");
  // Without its first record a file is none.
  second.erase(second.begin());
  EXPECT_EQ(broken(second), "1: the first record of a file names its chain, and this one does not");
}

TEST(AuditVerify, NobodyMakesRecordsWithoutTheKey) {
  AuditChain other =
      std::move(AuditChain::create(AuditChainKey::of("other", key().id), {})).value();
  EXPECT_EQ(broken(run(other)), "1: the line was changed: its hash does not fit what it says");
}

TEST(AuditVerify, AnEndThatIsKnownAndMissingIsToldAsCut) {
  AuditChain chain = new_chain();
  const Lines whole = run(chain);
  const AuditHead known = chain.head();
  using Ended = AuditVerifier::Ended;
  EXPECT_THAT(verify(whole, {}, Ended::kYes, known).cut(), IsEmpty());
  Lines lines(whole.begin(), whole.begin() + 2);
  const AuditVerifier verifier = verify(lines, {}, Ended::kYes, known);
  EXPECT_FALSE(verifier.broken());
  EXPECT_THAT(verifier.cut(),
              ElementsAre(AuditFinding{
                  2,
                  "the file ends with record 2, and record 5 is known to have been written: the "
                  "end was cut off, or lost in a crash of the host"}));
  EXPECT_EQ(verify({}, {}, Ended::kYes, known).cut().size(), 1u);
  // The record that is known is another one.
  const AuditHead other{.sequence = 3, .hash = std::string(64, 'b')};
  EXPECT_EQ(verify(whole, {}, Ended::kYes, other).broken()->line, 3u);
  // Records behind the one that is known are not sealed by that.
  const AuditHead early{.sequence = 1, .hash = parse_audit_line(whole[0])->hash};
  EXPECT_THAT(verify(whole, {}, Ended::kYes, early).cut(), IsEmpty());
}

TEST(AuditVerify, WhoGoesOnBehindACutEndSaysSoForEver) {
  AuditChain chain = new_chain();
  Lines lines = run(chain);
  const AuditHead known = chain.head();
  lines.resize(2);
  AuditChain behind = std::move(AuditChain::create(key(), known)).value();
  add(behind, lines, audit_link("cut", known, "2023-11-14T22:13:20Z"));
  for (std::string& line : run(behind, "sb2")) lines.push_back(std::move(line));
  const AuditVerifier verifier = verify(lines, {}, AuditVerifier::Ended::kYes, behind.head());
  EXPECT_FALSE(verifier.broken()) << verifier.broken()->sentence;
  EXPECT_THAT(verifier.cut(),
              ElementsAre(AuditFinding{3,
                                       "before this line records 3 to 5 are missing: the end was "
                                       "cut off, and was known when the file was gone on with"}));
  EXPECT_EQ(verifier.records(), 8u);
  EXPECT_EQ(verifier.head(), behind.head());
  lines[2][10] ^= 1;
  EXPECT_NE(broken(lines), "");
  // Where nothing is missing there is none.
  AuditChain again = new_chain();
  lines = run(again);
  add(again, lines, audit_link("cut", again.head(), "2023-11-14T22:13:20Z"));
  EXPECT_EQ(broken(lines), "6: a record says that the end before it was cut off, and it was not");
}

TEST(AuditVerify, SaysHowFarItIsSealed) {
  AuditChain chain = new_chain();
  Lines lines;
  for (const char* kind : {"begin", "tcp", "seal", "tcp", "tcp"}) add(chain, lines, record(kind));
  AuditVerifier verifier = verify(lines);
  EXPECT_EQ(verifier.sealed(), 3u);
  ASSERT_EQ(verifier.incomplete().size(), 1u);
  EXPECT_THAT(verifier.incomplete()[0].sentence,
              HasSubstr("it is whole as far as record 5, and sealed as far as record 3; 2 behind "
                        "that are not sealed yet"));
  add(chain, lines, record("end"));
  EXPECT_EQ(verify(lines).sealed(), 6u);
}

TEST(AuditVerify, AFileThatIsClosedNeedNotGoAsFarAsIsKnown) {
  AuditChain chain = new_chain();
  Lines lines = run(chain);
  add(chain, lines, audit_aside("2023-11-14T22:13:20Z"));
  const AuditHead later{.sequence = 20, .hash = std::string(64, 'b')};
  const AuditVerifier alone = verify(lines, {}, AuditVerifier::Ended::kYes, later);
  EXPECT_THAT(alone.cut(), IsEmpty());
  // But it is not all: one that lies in the place of its successor is no whole one.
  ASSERT_EQ(alone.incomplete().size(), 1u);
  EXPECT_THAT(alone.incomplete()[0].sentence, HasSubstr("goes on in another"));
  add(chain, lines, record("tcp"));
  EXPECT_EQ(broken(lines), "7: the record before it closed the file: it was added, or moved");
  // A run that was killed before is told.
  AuditChain killed = new_chain();
  lines.clear();
  add(killed, lines, record("begin"));
  add(killed, lines, audit_aside("2023-11-14T22:13:20Z"));
  EXPECT_EQ(verify(lines).incomplete().size(), 1u);
}

TEST(AuditEnd, TheChainIsNamedByTheFirstWholeRecord) {
  AuditChain chain = new_chain();
  std::string text;
  for (const std::string& line : run(chain)) text += line + "\n";
  EXPECT_EQ(find_audit_chain(text, AuditTail::kWholeFile).value(), key().id);
  EXPECT_EQ(find_audit_chain("{\"ts\n" + text, AuditTail::kEndOnly).value(), key().id);
  EXPECT_EQ(find_audit_chain("", AuditTail::kWholeFile).value(), "");
  EXPECT_EQ(find_audit_chain("{\"ts", AuditTail::kWholeFile).value(), "");
  EXPECT_FALSE(find_audit_chain("notes", AuditTail::kWholeFile).has_value());
  EXPECT_FALSE(find_audit_chain("{\"ts\n", AuditTail::kWholeFile).has_value());
  EXPECT_FALSE(find_audit_chain("{\"ts", AuditTail::kEndOnly).has_value());
  EXPECT_EQ(
      find_audit_chain(text.substr(text.find('\n') + 1), AuditTail::kWholeFile).error().message(),
      "its first record does not name its chain");
}

TEST(AuditEnd, IsTheLastWholeRecordAndWhatLiesBehindIt) {
  AuditChain chain = new_chain();
  std::string text;
  for (const std::string& line : run(chain)) text += line + "\n";
  auto end = find_audit_end(key(), text, AuditTail::kWholeFile);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->head, chain.head());
  EXPECT_EQ(end->torn, "");
  end = find_audit_end(key(), text + "{\"t", AuditTail::kWholeFile);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->head, chain.head());
  EXPECT_EQ(end->torn, "{\"t");
  end = find_audit_end(key(), "", AuditTail::kWholeFile);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->head, AuditHead());
  end = find_audit_end(key(), "{\"ts", AuditTail::kWholeFile);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->torn, "{\"ts");
  // Two that were cut off, one behind the other.
  end = find_audit_end(key(), text + "{\"a\n{\"b", AuditTail::kWholeFile);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->head, chain.head());
  EXPECT_EQ(end->torn, "{\"a\n{\"b");
  // The last line alone, of a longer file.
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_TRUE(find_audit_end(key(), last, AuditTail::kEndOnly).has_value());
  EXPECT_FALSE(find_audit_end(key(), last, AuditTail::kWholeFile).has_value());
}

TEST(AuditEnd, OfWhatIsNoAuditFileOrWasChangedIsRefused) {
  EXPECT_FALSE(find_audit_end(key(), "notes", AuditTail::kWholeFile).has_value());
  EXPECT_FALSE(find_audit_end(key(), "{\"ts", AuditTail::kEndOnly).has_value());
  EXPECT_FALSE(find_audit_end(key(), "notes\n", AuditTail::kWholeFile).has_value());
  EXPECT_FALSE(find_audit_end(key(), "{" + std::string(kMostAuditLine, 'x'), AuditTail::kWholeFile)
                   .has_value());
  AuditChain chain = new_chain();
  std::string text;
  for (const std::string& line : run(chain)) text += line + "\n";
  text[text.rfind("sb1")] = 'x';
  EXPECT_EQ(find_audit_end(key(), text, AuditTail::kWholeFile).error().message(),
            "its last record does not fit the one before it");
}

}  // namespace
}  // namespace caisson::egress
