#include "io/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/sys.h"
#include "base/time_text.h"

namespace caisson::io {
namespace {

// What `write` leaves in the log.
template <typename Write>
std::string logged(Log::Level least, Write write) {
  int ends[2];
  VERIFY(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd out(ends[0]);
  {
    const Fd in(ends[1]);
    const Log log(in.get(), least);
    write(log);
    EXPECT_TRUE(log.flush(std::chrono::seconds(10)));
  }
  std::string text(65536, '\0');
  const ssize_t count = ::read(out.get(), text.data(), text.size());
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return text;
}

TEST(LogTest, ALineIsOneJsonObject) {
  const std::string text = logged(Log::Level::kInfo, [](const Log& log) {
    log.write(Log::Level::kWarning, "a \"thing\"\n", {{"status", 404}, {"path", "/x"}});
  });
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const Result<json::Value> line = json::parse(std::string_view(text).substr(0, text.size() - 1));
  ASSERT_TRUE(line.has_value()) << text;
  EXPECT_TRUE(parse_time(*line->find("time")->as_string()).has_value());
  EXPECT_EQ(*line->find("level"), json::Value("warning"));
  EXPECT_EQ(*line->find("message"), json::Value("a \"thing\"\n"));
  EXPECT_EQ(*line->find("status"), json::Value(404));
  EXPECT_EQ(*line->find("path"), json::Value("/x"));
}

TEST(LogTest, WhatIsBelowTheLevelIsNotWritten) {
  const std::string text = logged(Log::Level::kInfo, [](const Log& log) {
    log.write(Log::Level::kDebug, "unseen");
    log.write(Log::Level::kInfo, "seen");
  });
  EXPECT_EQ(text.find("unseen"), std::string::npos);
  EXPECT_NE(text.find("\"seen\""), std::string::npos);
}

TEST(LogTest, LongTextsAreCutBetweenCharacters) {
  const std::string text = logged(Log::Level::kInfo, [](const Log& log) {
    log.write(Log::Level::kInfo, "m", {{"path", std::string(511, 'x') + "äöü"}});
  });
  const Result<json::Value> line = json::parse(std::string_view(text).substr(0, text.size() - 1));
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(*line->find("path"), json::Value(std::string(511, 'x') + "…"));
}

TEST(LogTest, BytesThatAreNoTextAreCutToo) {
  const std::string text = logged(Log::Level::kInfo, [](const Log& log) {
    log.write(Log::Level::kInfo, "m", {{"path", std::string(5000, '\xff')}});
  });
  EXPECT_LT(text.size(), 2000U);
  EXPECT_TRUE(json::parse(std::string_view(text).substr(0, text.size() - 1)).has_value());
}

// A pipe that nobody reads.
TEST(LogTest, AReaderThatStallsHoldsUpNobodyAndIsToldWhatItMissed) {
  int ends[2];
  VERIFY(::pipe2(ends, O_CLOEXEC) == 0);
  Fd out(ends[0]);
  const Fd in(ends[1]);
  constexpr std::size_t kRoom = 4096;
  const Log log(in.get(), Log::Level::kInfo, kRoom);
  const std::string text(400, 'x');
  std::uint64_t said = 0;
  const auto say = [&] {
    log.write(Log::Level::kInfo, text);
    ++said;
  };
  // First what the pipe holds, then more than the queue does.
  do say();
  while (log.flush(std::chrono::milliseconds(50)));
  for (int i = 0; i < 200; ++i) say();
  EXPECT_GT(log.lost(), 100u);
  std::string all;
  char piece[4096];
  while (!all.contains("lines of it are lost")) {
    const ssize_t count = ::read(out.get(), piece, sizeof piece);
    ASSERT_GT(count, 0);
    all.append(piece, static_cast<std::size_t>(count));
  }
  EXPECT_TRUE(log.flush(std::chrono::seconds(10)));
  EXPECT_TRUE(all.contains("\"lines\":" + std::to_string(log.lost()) + "}")) << log.lost();
  // Every other line is whole.
  const auto lines = static_cast<std::uint64_t>(std::count(all.begin(), all.end(), '\n'));
  EXPECT_EQ(lines + log.lost(), said + 1);
}

TEST(LogTest, ItsEndWaitsForAStalledReaderNoLongerThanASecond) {
  int ends[2];
  VERIFY(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd out(ends[0]);
  const Fd in(ends[1]);
  const auto begin = std::chrono::steady_clock::now();
  {
    const Log log(in.get(), Log::Level::kInfo);
    for (int i = 0; i < 1000; ++i) log.write(Log::Level::kInfo, std::string(400, 'x'));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(LogTest, LevelsHaveNames) {
  EXPECT_EQ(parse_level("debug"), Log::Level::kDebug);
  EXPECT_EQ(parse_level("error"), Log::Level::kError);
  EXPECT_EQ(parse_level("loud"), std::nullopt);
}

}  // namespace
}  // namespace caisson::io
