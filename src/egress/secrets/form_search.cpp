#include "egress/secrets/form_search.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/guards.h"

namespace caisson::egress {
namespace {

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kHex = "0123456789abcdef";

unsigned bit_at(std::string_view bytes, std::size_t bit) {
  return static_cast<unsigned char>(bytes[bit / 8]) >> (7 - bit % 8) & 1u;
}

// The characters that a text has in base64 whatever stands around it, where `before` (0 to 2) bytes
// of its first group are not its own.
void append_base64(SecretBytes& out, std::string_view text, std::size_t before) {
  // Bits of its first byte that share a character with the byte before.
  const std::size_t shared = before * 8 % 6;
  for (std::size_t bit = shared == 0 ? 0 : 6 - shared; bit + 6 <= text.size() * 8; bit += 6) {
    unsigned value = 0;
    for (std::size_t i = 0; i < 6; ++i) value = value << 1 | bit_at(text, bit + i);
    out.push_back(kBase64[value]);
  }
}

void append_hex(SecretBytes& out, std::string_view text) {
  for (const char c : text) {
    out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
    out.push_back(kHex[static_cast<unsigned char>(c) & 15]);
  }
}

// Many texts in memory that is wiped.
class Texts {
 public:
  template <typename Append>
  void add(Append append) {
    const std::size_t begin = bytes_.size();
    append(bytes_);
    spans_.push_back({begin, bytes_.size() - begin});
  }
  Result<ManyPatterns> patterns() const {
    std::vector<std::string_view> views;
    for (const auto& [begin, size] : spans_) views.emplace_back(bytes_.data() + begin, size);
    return ManyPatterns::create(views);
  }

 private:
  struct Span {
    std::size_t begin, size;
  };
  SecretBytes bytes_;
  std::vector<Span> spans_;
};

}  // namespace

std::string_view to_string(Form form) {
  constexpr std::array<std::string_view, 8> kNames = {"plain",  "percent", "json", "escaped twice",
                                                      "base64", "base64",  "hex",  "wide"};
  return kNames[static_cast<std::size_t>(form)];
}

Result<SearchedTexts> SearchedTexts::create(std::span<const std::string_view> texts) {
  SearchedTexts searched;
  Texts plain, base64, hex;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = texts[i];
    const auto copy = [&](SecretBytes& out) { out.insert(out.end(), text.begin(), text.end()); };
    plain.add(copy);
    searched.plain_texts_.push_back(i);
    for (std::size_t before = 0; before < 3; ++before)
      base64.add([&](SecretBytes& out) { append_base64(out, text, before); });
    searched.whole_.push_back(text.size() % 3 == 0);
    hex.add([&](SecretBytes& out) { append_hex(out, text); });
  }
  // Forms write a space as a plus.
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].find(' ') == std::string_view::npos) continue;
    plain.add([&](SecretBytes& out) {
      for (const char c : texts[i]) out.push_back(c == ' ' ? '+' : c);
    });
    searched.plain_texts_.push_back(i);
  }
  TRY_ASSIGN(searched.plain_, plain.patterns());
  TRY_ASSIGN(searched.base64_, base64.patterns());
  TRY_ASSIGN(searched.hex_, hex.patterns());
  if (!searched.empty()) searched.find_beginnings();
  return searched;
}

std::vector<SearchedTexts::Reading> SearchedTexts::every_reading() {
  using enum Decoding;
  if (guard_off(Guard::kSecretForms)) return {{Form::kPlain, {kNone, kNone}, Kind::kPlain}};
  // Of matches of the same bytes the first reading's is kept.
  return {{Form::kPlain, {kNone, kNone}, Kind::kPlain},
          {Form::kPercent, {kPercent, kNone}, Kind::kPlain},
          {Form::kJson, {kJson, kNone}, Kind::kPlain},
          {Form::kTwice, {kPercent, kPercent}, Kind::kPlain},
          {Form::kTwice, {kPercent, kJsonDeep}, Kind::kPlain},
          {Form::kTwice, {kJsonDeep, kPercent}, Kind::kPlain},
          {Form::kTwice, {kJson, kJson}, Kind::kPlain},
          {Form::kTwice, {kJsonDeep, kNone}, Kind::kPlain},
          {Form::kBase64, {kPercent, kBase64}, Kind::kBase64},
          {Form::kBase64, {kJsonDeep, kBase64}, Kind::kBase64},
          {Form::kHex, {kLower, kNone}, Kind::kHex},
          {Form::kWide, {kWide, kNone}, Kind::kPlain}};
}

void SearchedTexts::find_beginnings() {
  readings_ = every_reading();
  for (Reading& reading : readings_) {
    const Decoder first(reading.decodings[0]), second(reading.decodings[1]);
    for (std::size_t i = 0; i < beginnings_.size(); ++i) {
      const auto byte = static_cast<unsigned char>(i);
      const unsigned char folded = second.folded(first.folded(byte));
      reading.beginnings[i] =
          first.opens(byte) || second.opens(byte) ||
          patterns(reading.kind).next(ManyPatterns::kStart, folded) != ManyPatterns::kStart;
      beginnings_[i] = beginnings_[i] || reading.beginnings[i];
    }
  }
}

Form SearchedTexts::form_of(const Reading& reading, std::size_t pattern) const {
  if (reading.kind != Kind::kBase64 || (whole_[pattern / 3] && pattern % 3 == 0))
    return reading.form;
  return Form::kBase64Within;
}

std::size_t SearchedTexts::text_of(const Reading& reading, std::size_t pattern) const {
  switch (reading.kind) {
    case Kind::kPlain:
      return plain_texts_[pattern];
    case Kind::kBase64:
      return pattern / 3;
    case Kind::kHex:
      break;
  }
  return pattern;
}

FormSearch::View::View(const SearchedTexts::Reading& reading, const ManyPatterns& patterns)
    : reading(&reading),
      patterns(&patterns),
      first(reading.decodings[0]),
      second(reading.decodings[1]),
      begins(std::bit_ceil(patterns.longest() + 1)) {}

std::optional<std::uint64_t> FormSearch::View::open() const {
  const std::size_t bytes = patterns->open(state);
  if (bytes > 0) return begins[(count - bytes) & (begins.size() - 1)];
  // What the second decoder holds came through the first before what that holds.
  if (const auto begin = second.pending()) return begin;
  return first.pending();
}

FormSearch::FormSearch(const SearchedTexts& texts) : texts_(&texts) {
  for (const SearchedTexts::Reading& reading : texts.readings_)
    views_.emplace_back(reading, texts.patterns(reading.kind));
}

void FormSearch::reset() {
  for (View& view : views_) {
    view.first.reset();
    view.second.reset();
    view.state = ManyPatterns::kStart;
    view.count = 0;
  }
  position_ = given_ = 0;
  candidates_.clear();
  overlap_.reset();
}

bool FormSearch::is_idle() const {
  return std::ranges::all_of(views_, [](const View& view) { return view.is_idle(); });
}

void FormSearch::feed(std::string_view piece) {
  if (views_.empty()) {
    position_ += piece.size();
    return;
  }
  bool idle = is_idle();
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    // Most bytes begin nothing.
    if (idle && !texts_->beginnings_[byte]) {
      ++position_;
    } else {
      idle = feed_byte(byte);
    }
  }
}

bool FormSearch::feed_byte(unsigned char byte) {
  bool idle = true;
  ++position_;
  for (View& view : views_) {
    if (view.is_idle() && !view.reading->beginnings[byte]) continue;
    feed_view(view, byte);
    idle = idle && view.is_idle();
  }
  return idle;
}

void FormSearch::feed_view(View& view, unsigned char byte) {
  unsigned char same = byte;
  if (view.first.passes(same)) {
    feed_second(view, {same, position_ - 1, position_});
    return;
  }
  Decoder::Output out;
  view.first.push({byte, position_ - 1, position_}, out);
  for (const DecodedByte& each : out) feed_second(view, each);
}

void FormSearch::feed_second(View& view, const DecodedByte& byte) {
  DecodedByte same = byte;
  if (view.second.passes(same.byte)) {
    decoded(view, same);
    return;
  }
  Decoder::Output out;
  view.second.push(byte, out);
  for (const DecodedByte& each : out) decoded(view, each);
}

void FormSearch::finish() {
  for (View& view : views_) {
    Decoder::Output once, twice;
    view.first.finish(once);
    for (const DecodedByte& each : once) feed_second(view, each);
    view.second.finish(twice);
    for (const DecodedByte& each : twice) decoded(view, each);
    view.state = ManyPatterns::kStart;
  }
}

void FormSearch::decoded(View& view, const DecodedByte& byte) {
  const std::size_t mask = view.begins.size() - 1;
  view.begins[view.count & mask] = byte.begin;
  ++view.count;
  view.state = view.patterns->next(view.state, byte.byte);
  const auto pattern = view.patterns->ends(view.state);
  if (view.patterns->open(view.state) == 0) view.state = ManyPatterns::kStart;
  if (!pattern) return;
  FoundForm match;
  match.begin = view.begins[(view.count - view.patterns->size(*pattern)) & mask];
  match.end = byte.end;
  match.form = texts_->form_of(*view.reading, *pattern);
  match.text = texts_->text_of(*view.reading, *pattern);
  found(match);
}

void FormSearch::found(const FoundForm& match) {
  const auto within = [](const FoundForm& a, const FoundForm& b) {
    return a.begin >= b.begin && a.end <= b.end;
  };
  // Another view's reading of bytes that are replaced already.
  if (match.end <= given_) return;
  // None is within another, so they end in the order in which they begin, and only the last ones
  // end behind where this one begins.
  auto near = candidates_.end();
  while (near != candidates_.begin() && std::prev(near)->end > match.begin) --near;
  if (std::any_of(near, candidates_.end(), [&](const FoundForm& c) { return within(match, c); }))
    return;
  const auto rest =
      std::remove_if(near, candidates_.end(), [&](const FoundForm& c) { return within(c, match); });
  const bool overlaps =
      match.begin < given_ ||
      std::any_of(near, rest, [&](const FoundForm& c) { return c.begin < match.end; });
  if (overlaps && !overlap_) overlap_ = match;
  const auto place = std::ranges::upper_bound(near, rest, match.begin, {}, &FoundForm::begin);
  const auto at = place - candidates_.begin();
  candidates_.erase(rest, candidates_.end());
  candidates_.insert(candidates_.begin() + at, match);
}

std::uint64_t FormSearch::open() const {
  std::uint64_t least = position_;
  for (const View& view : views_) least = std::min(least, view.open().value_or(position_));
  return least;
}

std::vector<FoundForm> FormSearch::take() {
  // A longer match with this one in it would have begun already.
  const std::uint64_t open = this->open();
  std::vector<FoundForm> given;
  std::size_t count = 0;
  while (count < candidates_.size() && candidates_[count].begin < open) {
    given_ = std::max(given_, candidates_[count].end);
    given.push_back(candidates_[count++]);
  }
  candidates_.erase(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count));
  return given;
}

std::uint64_t FormSearch::decided() const {
  std::uint64_t decided = open();
  if (!candidates_.empty()) decided = std::min(decided, candidates_.front().begin);
  return std::max(decided, given_);
}

}  // namespace caisson::egress
