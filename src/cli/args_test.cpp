#include "cli/args.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/commands.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 4> kOptions = {{
    {.name = "--memory", .letter = 'm', .value = "SIZE", .help = "Memory."},
    {.name = "--detach", .letter = 'd', .help = "Leave it."},
    {.name = "--interactive", .letter = 'i', .help = "Input."},
    {.name = "--secret-word", .help = "Hidden.", .hidden = true},
}};
constexpr std::array<OptionGroup, 1> kGroups = {{{"Options", kOptions}}};
constexpr std::array<Example, 1> kExamples = {{{"caisson demo x", "do it"}}};
constexpr CommandTable kTrailing = {.name = "demo",
                                    .synopsis = "[OPTIONS] PROGRAM",
                                    .summary = "A demonstration",
                                    .text = "First paragraph.\n\nSecond paragraph.",
                                    .groups = kGroups,
                                    .examples = kExamples,
                                    .trailing = true};
constexpr CommandTable kPlain = {.name = "plain", .groups = kGroups};

Result<Parsed> parse(const CommandTable& table, std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return parse_arguments(table, pointers);
}

std::string fault(const CommandTable& table, std::vector<std::string> words) {
  const auto parsed = parse(table, std::move(words));
  return parsed.has_value() ? "" : parsed.error().message();
}

TEST(Args, FormsOfAnOptionAreTheSame) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--memory", "1MiB"},
                                                {"--memory=1MiB"},
                                                {"-m", "1MiB"},
                                                {"-m1MiB"},
                                                {"-dm", "1MiB"},
                                                {"-dim1MiB"}}) {
    const auto parsed = parse(kPlain, words);
    ASSERT_TRUE(parsed.has_value()) << words[0];
    EXPECT_EQ(parsed->value("--memory"), "1MiB");
  }
}

TEST(Args, TheProgramEndsTheOptions) {
  const auto parsed = parse(kTrailing, {"-d", "prog", "--memory", "-x", "--", "y"});
  ASSERT_TRUE(parsed.has_value());
  EXPECT_TRUE(parsed->has("--detach"));
  EXPECT_FALSE(parsed->has("--memory"));
  EXPECT_EQ(parsed->arguments, (std::vector<std::string>{"prog", "--memory", "-x", "--", "y"}));
}

TEST(Args, TwoDashesEndTheOptions) {
  const auto parsed = parse(kTrailing, {"-d", "--", "-x", "--", "y"});
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->arguments, (std::vector<std::string>{"-x", "--", "y"}));
}

TEST(Args, OptionsMayFollowArgumentsWhereNoProgramDoes) {
  const auto parsed = parse(kPlain, {"a", "-d", "b", "-"});
  ASSERT_TRUE(parsed.has_value());
  EXPECT_TRUE(parsed->has("--detach"));
  EXPECT_EQ(parsed->arguments, (std::vector<std::string>{"a", "b", "-"}));
}

TEST(Args, TheLastValueCounts) {
  EXPECT_EQ(parse(kPlain, {"-m", "1", "-m", "2"})->value("--memory"), "2");
}

TEST(Args, FaultsNameTheOptionAndSuggest) {
  EXPECT_EQ(fault(kPlain, {"--memroy", "1"}),
            "unknown option '--memroy'; did you mean '--memory'?");
  EXPECT_EQ(fault(kPlain, {"--xyzzyxyzzy"}),
            "unknown option '--xyzzyxyzzy'; see 'caisson plain --help'");
  EXPECT_EQ(fault(kPlain, {"-z"}), "unknown option '-z'; see 'caisson plain --help'");
  EXPECT_EQ(fault(kPlain, {"--memory"}), "--memory needs a value: --memory SIZE");
  EXPECT_EQ(fault(kPlain, {"-m"}), "--memory needs a value: --memory SIZE");
  EXPECT_EQ(fault(kPlain, {"--detach=1"}), "--detach takes no value, '1' was given");
  // Hidden options work but are never suggested.
  EXPECT_EQ(fault(kPlain, {"--secret-worm"}),
            "unknown option '--secret-worm'; see 'caisson plain --help'");
  EXPECT_EQ(fault(kPlain, {"--secret-word"}), "");
}

TEST(Args, HelpIsInEveryTable) {
  EXPECT_TRUE(parse(kTrailing, {"--help"})->help);
  EXPECT_TRUE(parse(kPlain, {"x", "-h"})->help);
  EXPECT_FALSE(parse(kTrailing, {"prog", "--help"})->help);
}

TEST(Args, Similar) {
  constexpr std::array<std::string_view, 3> kNames = {"run", "shell", "exec"};
  EXPECT_EQ(similar("rnu", kNames), "run");
  EXPECT_EQ(similar("shel", kNames), "shell");
  EXPECT_EQ(similar("zzzzz", kNames), "");
  EXPECT_EQ(similar("x", kNames), "");
}

TEST(ArgsText, HelpShowsWhatIsNotHidden) {
  const std::string text = help_text(kTrailing);
  EXPECT_NE(text.find("Usage: caisson demo [OPTIONS] PROGRAM\n"), std::string::npos);
  EXPECT_NE(text.find("  -m, --memory SIZE       Memory.\n"), std::string::npos) << text;
  EXPECT_NE(text.find("Second paragraph."), std::string::npos);
  EXPECT_NE(text.find("caisson demo x"), std::string::npos);
  EXPECT_EQ(text.find("--secret-word"), std::string::npos);
}

TEST(ArgsText, EveryCommandHasAnExampleAndShortLines) {
  for (const CommandTable* table : all_tables()) {
    EXPECT_FALSE(table->examples.empty()) << table->name;
    EXPECT_FALSE(table->summary.empty() || table->summary.ends_with('.')) << table->name;
    const std::string text = help_text(*table);
    std::size_t start = 0;
    while (start < text.size()) {
      const std::size_t end = text.find('\n', start);
      const std::string line = text.substr(start, end - start);
      if (!line.starts_with("  caisson")) EXPECT_LE(line.size(), 80u) << line;
      start = end + 1;
    }
  }
}

TEST(ArgsText, OptionNamesAreUniqueAndAnswerForThemselves) {
  for (const CommandTable* table : all_tables()) {
    std::vector<std::string_view> names;
    std::string letters = "h";
    for (const OptionGroup& group : table->groups)
      for (const Option& option : group.options) {
        EXPECT_TRUE(option.name.starts_with("--")) << option.name;
        EXPECT_TRUE(option.help.ends_with('.')) << option.name;
        EXPECT_EQ(std::ranges::count(names, option.name), 0) << table->name << option.name;
        names.push_back(option.name);
        if (option.letter == 0) continue;
        EXPECT_EQ(letters.find(option.letter), std::string::npos) << table->name << option.name;
        letters += option.letter;
      }
  }
}

TEST(ArgsText, ManPagesEscapeWhatRoffWouldRead) {
  const std::string page = man_page(kTrailing);
  EXPECT_NE(page.find(".TH caisson\\-demo 1"), std::string::npos);
  EXPECT_NE(page.find("\\-\\-memory"), std::string::npos);
  EXPECT_NE(page.find(".SH EXAMPLES"), std::string::npos);
  for (const CommandTable* table : all_tables()) {
    const std::string text = man_page(*table);
    for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
      if (at + 1 < text.size() && text[at + 1] == '.')
        EXPECT_TRUE(text[at + 2] >= 'A' && text[at + 2] <= 'z') << text.substr(at, 20);
  }
}

TEST(ArgsText, CompletionsKnowEveryCommandAndOption) {
  for (const std::string_view shell : {"bash", "zsh", "fish"}) {
    const auto script = completion_script(shell, all_tables());
    ASSERT_TRUE(script.has_value());
    for (const CommandTable* table : all_tables()) {
      if (table->hidden) continue;
      for (const OptionGroup& group : table->groups)
        for (const Option& option : group.options)
          EXPECT_NE(script->find(option.name.substr(2)), std::string::npos) << option.name;
    }
  }
  EXPECT_EQ(completion_script("tcsh", all_tables()).error().message(),
            "no completion for shell 'tcsh'; there is one for bash, zsh and fish");
}

}  // namespace
}  // namespace caisson::cli
