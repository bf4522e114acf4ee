#include "build/dockerfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::build {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Instruction> parsed(std::string_view text) {
  auto file = parse_dockerfile(text, "Dockerfile");
  EXPECT_TRUE(file.has_value()) << file.error().message();
  return file.has_value() ? file->instructions : std::vector<Instruction>();
}

std::string error_of(std::string_view text) {
  auto file = parse_dockerfile(text, "Dockerfile");
  return file.has_value() ? "" : file.error().message();
}

TEST(Dockerfile, JoinsLinesAndDropsComments) {
  const auto found = parsed(
      "# first\n"
      "from scratch\n"
      "\n"
      "RUN a \\\n"
      "  # between\n"
      "\n"
      "  b \\  \n"
      "  c\n"
      "  Label x=y\r\n");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].kind, InstructionKind::kFrom);
  EXPECT_EQ(found[0].line, 2u);
  EXPECT_EQ(found[1].rest, "a   b   c");
  EXPECT_EQ(found[1].line, 4u);
  EXPECT_EQ(found[2].rest, "x=y");
  EXPECT_EQ(found[2].line, 9u);
}

TEST(Dockerfile, ADoubledEscapeDoesNotGoOn) {
  const auto found = parsed("FROM a\nRUN x \\\\\nRUN y \\");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].rest, "x \\\\");
  EXPECT_EQ(found[2].rest, "y");
}

TEST(Dockerfile, DirectivesStandBeforeEverything) {
  auto file = parse_dockerfile("# syntax=x/y:1\n# escape=`\nFROM a\nRUN b `\n c\\\n", "f");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->escape, '`');
  EXPECT_EQ(file->instructions[1].rest, "b  c\\");
  file = parse_dockerfile("# a comment\n# escape=`\nFROM a\n", "f");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->escape, '\\');
  EXPECT_EQ(error_of("# escape=x\nFROM a"),
            "Dockerfile:1: the directive escape is 'x'; allowed are \\ and `");
  EXPECT_THAT(error_of("# escape=`\n# escape=`\nFROM a"), HasSubstr("Dockerfile:2: "));
}

TEST(Dockerfile, JsonFormsAreLists) {
  const auto found = parsed(
      "FROM a\nCMD [\"x\", \"y z\"]\nRUN [ not json ]\nENTRYPOINT []\nENV [\"a\"]=1\n"
      "COPY [\"a b\", \"/c\"]\n");
  EXPECT_TRUE(found[1].exec_form);
  EXPECT_THAT(found[1].list, ElementsAre("x", "y z"));
  EXPECT_FALSE(found[2].exec_form);
  EXPECT_TRUE(found[3].exec_form);
  EXPECT_FALSE(found[4].exec_form);
  EXPECT_THAT(found[5].list, ElementsAre("a b", "/c"));
  EXPECT_THAT(error_of("FROM a\nCMD [\"x\", 1]"), StartsWith("Dockerfile:2: the JSON form takes"));
}

TEST(Dockerfile, Flags) {
  const auto found = parsed("FROM a\nCOPY --from=b --link --chown='x y' s d\nRUN -- --a\n");
  EXPECT_THAT(found[1].flags, ElementsAre(Flag{"from", "b", true}, Flag{"link", "", false},
                                          Flag{"chown", "'x y'", true}));
  EXPECT_EQ(found[1].rest, "s d");
  EXPECT_EQ(found[2].rest, "--a");
}

TEST(Dockerfile, HereDocuments) {
  const auto found = parsed(
      "FROM a\n"
      "RUN <<EOF\n"
      "echo $X \\\n"
      "# not a comment\n"
      "EOF\n"
      "COPY <<'one' <<-two /d/\n"
      "1\n"
      "one\n"
      "\t\t2\n"
      "\ttwo\n"
      "RUN cat <<x && echo \"<<y\" <<<z\n"
      "x\n"
      "USER b\n");
  ASSERT_EQ(found.size(), 5u);
  EXPECT_THAT(found[1].documents,
              ElementsAre(HereDocument{"EOF", true, false, "echo $X \\\n# not a comment\n"}));
  EXPECT_THAT(found[2].documents, ElementsAre(HereDocument{"one", false, false, "1\n"},
                                              HereDocument{"two", true, true, "2\n"}));
  ASSERT_EQ(found[3].documents.size(), 1u);
  EXPECT_EQ(found[3].documents[0].name, "x");
  EXPECT_EQ(found[4].line, 13u);
  EXPECT_EQ(error_of("FROM a\nRUN <<EOF\nx\n"),
            "Dockerfile:2: the here-document 'EOF' that begins behind line 2 has no end");
}

TEST(Dockerfile, UnknownInstructionsNameTheirLine) {
  EXPECT_THAT(error_of("FROM a\n\nFRM b\n"),
              StartsWith("Dockerfile:3: unknown instruction 'FRM'; allowed are ADD, ARG, CMD, "));
  EXPECT_THAT(error_of("FROM a\nONBUILD RUN x\n"), StartsWith("Dockerfile:2: ONBUILD is not"));
  EXPECT_EQ(error_of("FROM a\nRUN\n"), "Dockerfile:2: RUN needs an argument");
  EXPECT_EQ(error_of("# x\n"), "Dockerfile: there is no instruction in it; FROM is needed");
  EXPECT_THAT(error_of(std::string_view("FROM a\nRUN x\0y\n", 15)),
              StartsWith("Dockerfile:2: a zero byte"));
}

TEST(Dockerfile, IsBounded) {
  std::string many;
  for (std::size_t i = 0; i < kMaxInstructions; ++i) many += "RUN x\n";
  EXPECT_EQ(error_of(many), "");
  EXPECT_THAT(error_of(many + "RUN x\n"), HasSubstr(":4097: more than 4096 instructions"));
  std::string joined = "RUN ";
  for (int i = 0; i < 300; ++i) joined += std::string(1000, 'x') + "\\\n";
  EXPECT_THAT(error_of(joined), HasSubstr("an instruction of more than 262144 bytes"));
  EXPECT_THAT(error_of(std::string(kMaxDockerfile + 1, ' ')), HasSubstr("is longer than"));
  EXPECT_THAT(error_of("RUN <<E\n" + std::string(300'000, 'x') + "\nE\n"),
              HasSubstr("a here-document of more than"));
  std::string documents = "COPY";
  for (int i = 0; i < 33; ++i) documents += " <<E";
  EXPECT_THAT(error_of(documents + " /\n"), HasSubstr("more than 32 here-documents"));
}

TEST(Dockerfile, NotesOldForms) {
  auto file = parse_dockerfile("FROM a\nMAINTAINER x\nRUN a \\\n\n b\n", "D");
  ASSERT_TRUE(file.has_value());
  EXPECT_THAT(file->notes,
              ElementsAre("D:2: MAINTAINER is old; LABEL says the same",
                          "D:4: an empty line inside of an instruction is passed over"));
}

}  // namespace
}  // namespace caisson::build
