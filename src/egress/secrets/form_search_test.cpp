#include "egress/secrets/form_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/encoding.h"
#include "egress/secrets/secrets_for_test.h"

namespace caisson::egress {
namespace {

using for_test::kPlaceholder;
using for_test::replaced;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kText(kPlaceholder);

SearchedTexts searched(const std::vector<std::string_view>& texts) {
  return SearchedTexts::create(texts).value();
}

std::vector<FoundForm> found(const SearchedTexts& texts, std::string_view stream) {
  FormSearch search(texts);
  search.feed(stream);
  search.finish();
  return search.take();
}

std::string escaped(std::string_view text, std::string_view before, bool upper = false) {
  std::string out;
  for (const char& c : text) {
    std::string hex = hex_encode(std::string_view(&c, 1));
    if (upper) {
      for (char& digit : hex) digit = static_cast<char>(::toupper(digit));
    }
    out.append(before).append(hex);
  }
  return out;
}

std::string wide(std::string_view text, std::size_t zeros_before, std::size_t zeros_after) {
  std::string out;
  for (const char c : text) out.append(zeros_before, '\0').append(1, c).append(zeros_after, '\0');
  return out;
}

std::string with_line_ends(std::string text, std::size_t each) {
  for (std::size_t at = each; at < text.size(); at += each + 2) text.insert(at, "\r\n");
  return text;
}

struct Case {
  std::string name, raw;
  Form form;
};

std::vector<Case> forms() {
  const std::string b64 = base64_encode(kText);
  const std::string part = kText.substr(1);
  return {
      {"plain", kText, Form::kPlain},
      {"percent upper", escaped(kText, "%", true), Form::kPercent},
      {"percent lower", escaped(kText, "%"), Form::kPercent},
      {"percent, one byte", "%67" + part, Form::kPercent},
      {"percent, a byte within", replaced(kText, "_F", "%5fF"), Form::kPercent},
      {"percent twice", "%2567" + part, Form::kTwice},
      {"percent twice, all", replaced(escaped(kText, "%"), "%", "%25"), Form::kTwice},
      {"percent of digits", "%%36%37" + part, Form::kTwice},
      {"json", escaped(kText, "\\u00"), Form::kJson},
      {"json upper", escaped(kText, "\\u00", true), Form::kJson},
      {"json, one byte", "\\u0067" + part, Form::kJson},
      {"json twice", "\\\\u0067" + part, Form::kTwice},
      {"json behind a backslash", "\\\\\\u0067" + part, Form::kTwice},
      {"json of the escape", "\\u005cu0067" + part, Form::kTwice},
      {"json, percent-encoded", "%5cu0067" + part, Form::kTwice},
      {"percent in json", "\\u002567" + part, Form::kTwice},
      {"base64 of it alone", b64, Form::kBase64},
      {"base64, one before", base64_encode("x" + kText), Form::kBase64Within},
      {"base64, two before", base64_encode("xy" + kText), Form::kBase64Within},
      {"base64, three before", base64_encode("xyz" + kText + "-"), Form::kBase64},
      {"base64url", base64url_encode("??" + kText + "??"), Form::kBase64Within},
      {"base64 in lines", with_line_ends(b64, 7), Form::kBase64},
      {"base64 percent-encoded", escaped(b64, "%"), Form::kBase64},
      {"base64 escaped", escaped(b64, "\\u00"), Form::kBase64},
      {"hex", hex_encode(kText), Form::kHex},
      {"hex upper", escaped(kText, "", true), Form::kHex},
      {"utf-16 little", wide(kText, 0, 1), Form::kWide},
      {"utf-16 big", wide(kText, 1, 0), Form::kWide},
      {"utf-32", wide(kText, 0, 3), Form::kWide},
  };
}

TEST(FormSearch, FindsATextInEveryForm) {
  const SearchedTexts texts = searched({"another text", kText});
  for (const Case& c : forms()) {
    const auto all = found(texts, "[ " + c.raw + " ]");
    ASSERT_EQ(all.size(), 1u) << c.name;
    EXPECT_EQ(all[0].text, 1u) << c.name;
    EXPECT_EQ(all[0].form, c.form) << c.name;
    EXPECT_GE(all[0].begin, 2u) << c.name;
    EXPECT_LE(all[0].end, 2 + c.raw.size()) << c.name;
  }
}

TEST(FormSearch, FindsTheSameInPiecesAndHoldsWhatMayBeABeginning) {
  const SearchedTexts texts = searched({kText});
  for (const Case& c : forms()) {
    const std::string stream = "{\"a\": \"" + c.raw + "\"}";
    const auto whole = found(texts, stream);
    for (std::size_t split = 0; split <= stream.size(); ++split) {
      FormSearch search(texts);
      search.feed(std::string_view(stream).substr(0, split));
      auto all = search.take();
      if (!whole.empty() && split > whole[0].begin && split < whole[0].end)
        EXPECT_LE(search.decided(), whole[0].begin) << c.name << " " << split;
      search.feed(std::string_view(stream).substr(split));
      search.finish();
      for (const FoundForm& match : search.take()) all.push_back(match);
      EXPECT_EQ(all, whole) << c.name << " " << split;
      EXPECT_EQ(search.decided(), stream.size());
    }
  }
}

TEST(FormSearch, HoldsNothingBackThatBeginsNothing) {
  const SearchedTexts texts = searched({kText});
  FormSearch search(texts);
  search.feed("data: an event\n\n");
  EXPECT_EQ(search.decided(), 16u);
  search.feed("gh");
  EXPECT_EQ(search.decided(), 16u);
  search.feed("ost");
  EXPECT_EQ(search.decided(), 21u);
}

TEST(FormSearch, AnEscapeThatHasNotEndedIsHeldBack) {
  const SearchedTexts texts = searched({kText});
  FormSearch search(texts);
  search.feed("a%");
  EXPECT_EQ(search.decided(), 1u);
  search.finish();
  EXPECT_EQ(search.decided(), 2u);
}

TEST(FormSearch, ATextWithSpacesIsFoundAsFormsWriteIt) {
  const SearchedTexts texts = searched({"nothing of it", "correct horse battery"});
  EXPECT_THAT(found(texts, "p=correct+horse+battery"),
              ElementsAre(FoundForm{1, Form::kPlain, 2, 23}));
  EXPECT_THAT(found(texts, "p=correct+horse+b%61ttery"),
              ElementsAre(FoundForm{1, Form::kPercent, 2, 25}));
  EXPECT_THAT(found(texts, "p=correct horse battery"),
              ElementsAre(FoundForm{1, Form::kPlain, 2, 23}));
}

TEST(FormSearch, TextsBeyondAsciiAreFoundEscaped) {
  const SearchedTexts texts = searched({"pässwörd€\xf0\x9f\x98\x80"});
  EXPECT_EQ(found(texts, R"("p\u00e4ssw\u00f6rd\u20ac\ud83d\ude00")").size(), 1u);
  EXPECT_EQ(found(texts, "p%c3%a4ssw%C3%B6rd%e2%82%ac%f0%9f%98%80").size(), 1u);
}

TEST(FormSearch, OfTextsWithinOneAnotherTheLongestIsFound) {
  const SearchedTexts texts = searched({"secretword", "my secretword is", "secretword is long"});
  EXPECT_THAT(found(texts, "a secretword b"), ElementsAre(FoundForm{0, Form::kPlain, 2, 12}));
  EXPECT_THAT(found(texts, "my secretword is"), ElementsAre(FoundForm{1, Form::kPlain, 0, 16}));
  EXPECT_THAT(found(texts, "my secretword iz"), ElementsAre(FoundForm{0, Form::kPlain, 3, 13}));
}

TEST(FormSearch, FindsEachOfManyInOneText) {
  const SearchedTexts texts = searched({"secretword", "my secretword is"});
  std::string stream;
  for (int i = 0; i < 20'000; ++i) stream += i % 2 == 0 ? "secretword," : "my secretword is,";
  const auto all = found(texts, stream);
  ASSERT_EQ(all.size(), 20'000u);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i].text, i % 2) << i;
}

TEST(FormSearch, SaysWhereTwoTextsOverlap) {
  const SearchedTexts texts = searched({"my secretword", "secretword is"});
  FormSearch search(texts);
  search.feed("my secretword is");
  search.finish();
  EXPECT_EQ(search.overlap(), (FoundForm{1, Form::kPlain, 3, 16}));
}

TEST(FormSearch, SaysSoAlsoWhereOneOfThemWasGivenAlready) {
  const SearchedTexts texts = searched({"aaaaaaaa"});
  FormSearch search(texts);
  search.feed("aaaaaaaa");
  EXPECT_EQ(search.take().size(), 1u);
  EXPECT_EQ(search.decided(), 8u);
  EXPECT_EQ(search.overlap(), std::nullopt);
  search.feed("a");
  EXPECT_EQ(search.overlap(), (FoundForm{0, Form::kPlain, 1, 9}));
  EXPECT_EQ(search.decided(), 8u);
}

TEST(FormSearch, FarApartLettersAreNoText) {
  const SearchedTexts texts = searched({kText});
  EXPECT_THAT(found(texts, wide(kText, 0, 4)), IsEmpty());
  std::string spread;
  for (const char c : base64_encode(kText)) spread.append(1, c).append("      ");
  EXPECT_THAT(found(texts, spread), IsEmpty());
}

TEST(FormSearch, NothingIsFoundOfNoTexts) {
  const SearchedTexts none;
  FormSearch search(none);
  search.feed("anything%41");
  EXPECT_EQ(search.decided(), 11u);
  search.finish();
  EXPECT_THAT(search.take(), IsEmpty());
}

TEST(FormSearch, TooLongTextsAreRefused) {
  const std::string half(kMostPatternBytes / 2, 'a');
  const std::vector<std::string_view> texts = {half};
  const auto refused = SearchedTexts::create(texts);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
}

TEST(FormSearch, FormsHaveNames) {
  EXPECT_EQ(to_string(Form::kPlain), "plain");
  EXPECT_EQ(to_string(Form::kBase64Within), "base64");
  EXPECT_EQ(to_string(Form::kWide), "wide");
}

}  // namespace
}  // namespace caisson::egress
