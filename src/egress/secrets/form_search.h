// Looks for texts in a stream in every form that a regular encoding can have given them: as they
// are, percent-encoded or escaped as in JSON (any bytes of them, in any spelling, once or twice),
// in base64 within whatever was encoded (both alphabets; itself percent-encoded or escaped), as
// hexadecimal digits, in UTF-16 or UTF-32.
//
// Two things stand on it: that no placeholder leaves in a part of a message where it may not be,
// and that no secret comes back. Both need to know which bytes may go on already, so it says up to
// where everything is decided; what it holds open is no more than what may be the beginning of a
// match, and bounded. Pure; one FormSearch a stream, over texts that are shared and immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "egress/secrets/decoding.h"
#include "egress/secrets/many_patterns.h"

namespace caisson::egress {

enum class Form : std::uint8_t {
  kPlain,
  kPercent,
  kJson,
  kTwice,   // either within either
  kBase64,  // whole: the form has no bits of what is around the text
  kBase64Within,
  kHex,
  kWide,
};
// "base64"; for the audit.
std::string_view to_string(Form form);

// How many bytes that may begin a match may be let go before that is decided, where somebody waits
// for them: no more than half of the shortest text.
inline constexpr std::size_t kMostEarly = 4;

class SearchedTexts {
 public:
  SearchedTexts() = default;
  // Texts of at least 8 bytes; they are copied. Error: resource_exhausted for too many bytes.
  static Result<SearchedTexts> create(std::span<const std::string_view> texts);

  bool empty() const { return plain_.count() == 0; }
  // As they are, and with a plus for each space, as forms write them.
  const ManyPatterns& plain() const { return plain_; }
  std::size_t text_of_plain(std::size_t pattern) const { return plain_texts_[pattern]; }

 private:
  friend class FormSearch;
  enum class Kind : std::uint8_t { kPlain, kBase64, kHex };
  // One way to read a stream.
  struct Reading {
    Form form;
    std::array<Decoding, 2> decodings;
    Kind kind;
    // The bytes that begin something.
    std::array<bool, 256> beginnings{};
  };
  static std::vector<Reading> every_reading();
  void find_beginnings();
  const ManyPatterns& patterns(Kind kind) const {
    return kind == Kind::kPlain ? plain_ : kind == Kind::kBase64 ? base64_ : hex_;
  }
  Form form_of(const Reading& reading, std::size_t pattern) const;
  std::size_t text_of(const Reading& reading, std::size_t pattern) const;

  ManyPatterns plain_, base64_, hex_;
  std::vector<std::size_t> plain_texts_;
  // Whether a text ends with a character of its base64; there are three patterns for each.
  std::vector<bool> whole_;
  std::vector<Reading> readings_;
  std::array<bool, 256> beginnings_{};  // of any reading
};

struct FoundForm {
  std::size_t text = 0;
  Form form = Form::kPlain;
  std::uint64_t begin = 0, end = 0;  // in the stream
  bool operator==(const FoundForm&) const = default;
};

class FormSearch {
 public:
  // `texts` outlives it.
  explicit FormSearch(const SearchedTexts& texts);

  void feed(std::string_view piece);
  // The stream has ended.
  void finish();
  // A new stream.
  void reset();

  // What was found and is decided: the leftmost and of those the longest, none within another.
  std::vector<FoundForm> take();
  // Every byte before this one belongs to a match that take() gave or to none.
  std::uint64_t decided() const;
  // Of the first two texts of which each had bytes that the other had not, the later one: no
  // replacing of the other would leave nothing of it.
  const std::optional<FoundForm>& overlap() const { return overlap_; }

 private:
  // A reading on its way.
  struct View {
    View(const SearchedTexts::Reading& reading, const ManyPatterns& patterns);
    bool is_idle() const {
      return state == ManyPatterns::kStart && !first.pending() && !second.pending();
    }
    // Where what may be a match begins.
    std::optional<std::uint64_t> open() const;

    const SearchedTexts::Reading* reading;
    const ManyPatterns* patterns;
    Decoder first, second;
    ManyPatterns::State state = ManyPatterns::kStart;
    std::uint64_t count = 0;            // of decoded bytes
    std::vector<std::uint64_t> begins;  // of the last ones, by count; a ring
  };

  // Whether every view is idle behind it.
  bool feed_byte(unsigned char byte);
  void feed_view(View& view, unsigned char byte);
  void feed_second(View& view, const DecodedByte& byte);
  void decoded(View& view, const DecodedByte& byte);
  void found(const FoundForm& match);
  std::uint64_t open() const;
  bool is_idle() const;

  const SearchedTexts* texts_;
  std::vector<View> views_;
  std::uint64_t position_ = 0;
  std::uint64_t given_ = 0;  // end of what take() gave
  std::vector<FoundForm> candidates_;
  std::optional<FoundForm> overlap_;
};

}  // namespace caisson::egress
