#include "egress/secrets/scrub.h"

#include <algorithm>
#include <utility>

#include "base/encoding.h"
#include "base/guards.h"
#include "http/text.h"

namespace caisson::egress {
namespace {

bool is_upper_hex(char c) {
  return c >= 'A' && c <= 'F';
}

std::string hex_of(std::string_view bytes, bool upper) {
  std::string text = hex_encode(bytes);
  if (upper) {
    for (char& c : text) {
      if (c >= 'a') c = static_cast<char>(c - 'a' + 'A');
    }
  }
  return text;
}

// Whether an escape of two digits behind `opening` has a capital one.
bool has_upper_escape(std::string_view raw, std::string_view opening) {
  for (std::size_t at = raw.find(opening); at != std::string_view::npos;
       at = raw.find(opening, at + 1)) {
    if (std::ranges::any_of(raw.substr(at + opening.size(), 2), is_upper_hex)) return true;
  }
  return false;
}

// The placeholder with an escape wherever `raw` has one; `raw` spells as many bytes. nullopt: an
// escape of `raw` has no like for a placeholder's character.
std::optional<std::string> spelled_as(std::string_view raw, std::string_view placeholder,
                                      Form form) {
  const std::string_view opening = form == Form::kPercent ? "%" : "\\u00";
  const std::size_t width = opening.size() + 2;
  const bool upper = has_upper_escape(raw, opening);
  std::string out;
  std::size_t at = 0;
  for (const char& c : placeholder) {
    if (at >= raw.size()) return std::nullopt;
    const std::string_view rest = raw.substr(at);
    if (rest[0] != opening[0]) {
      out += c;
      ++at;
      continue;
    }
    if (!rest.starts_with(opening) || rest.size() < width) return std::nullopt;
    out.append(opening).append(hex_of(std::string_view(&c, 1), upper));
    at += width;
  }
  if (at != raw.size()) return std::nullopt;
  return out;
}

}  // namespace

AnswerScrub::AnswerScrub(std::shared_ptr<const SecretRules> rules)
    : rules_(std::move(rules)), texts_(rules_->values()), body_(rules_->values()) {}

bool AnswerScrub::is_encoded(const http::ResponseHead& head) {
  return std::ranges::any_of(head.headers.all(), [](const auto& header) {
    return http::same_name(header.first, "content-encoding") &&
           !http::same_name(http::trimmed(header.second), "identity");
  });
}

std::optional<http::ResponseHead> AnswerScrub::head(const http::ResponseHead& head) {
  if (cause_) return std::nullopt;
  http::ResponseHead made = head;
  made.headers = http::Headers();
  const auto reason = text(head.reason);
  if (!reason) return std::nullopt;
  made.reason = *reason;
  for (const auto& [name, value] : head.headers.all()) {
    const auto clean_name = text(name), clean_value = text(value);
    if (!clean_name || !clean_value) return std::nullopt;
    made.headers.add(*clean_name, *clean_value);
  }
  return made;
}

std::optional<std::string> AnswerScrub::text(std::string_view whole) {
  if (guard_off(Guard::kScrub)) return std::string(whole);
  texts_.reset();
  texts_.feed(whole);
  texts_.finish();
  std::string out;
  std::size_t done = 0;
  const std::vector<FoundForm> matches = texts_.take();
  if (texts_.overlap()) return abort(*texts_.overlap());
  for (const FoundForm& match : matches) {
    const auto begin = static_cast<std::size_t>(match.begin);
    const auto end = static_cast<std::size_t>(match.end);
    const auto instead = replacement(match, whole.substr(begin, end - begin), Length::kFree);
    if (!instead) return abort(match);
    out.append(whole.substr(done, begin - done)).append(*instead);
    done = end;
    ++replaced_;
  }
  return out.append(whole.substr(done));
}

std::optional<std::string> AnswerScrub::body(std::string_view piece) {
  if (guard_off(Guard::kScrub)) return std::string(piece);
  if (cause_) return std::nullopt;
  held_ += piece;
  body_.feed(piece);
  return released();
}

std::string AnswerScrub::pause() {
  if (cause_ || held_.size() > kMostEarly) return "";
  return held_.substr(std::exchange(early_, held_.size()));
}

std::optional<std::string> AnswerScrub::end() {
  if (cause_) return std::nullopt;
  body_.finish();
  return released();
}

std::optional<std::string> AnswerScrub::released() {
  std::string out;
  std::size_t done = 0;
  const std::vector<FoundForm> matches = body_.take();
  if (body_.overlap()) return abort(*body_.overlap());
  for (const FoundForm& match : matches) {
    const auto begin = static_cast<std::size_t>(match.begin - base_);
    const auto end = static_cast<std::size_t>(match.end - base_);
    if (begin < early_) return abort(match);
    const auto instead =
        replacement(match, std::string_view(held_).substr(begin, end - begin), Length::kKept);
    if (!instead) return abort(match);
    out.append(held_, done, begin - done).append(*instead);
    done = end;
    ++replaced_;
  }
  const auto decided = static_cast<std::size_t>(body_.decided() - base_);
  out.append(held_, done, decided - done);
  held_.erase(0, decided);
  base_ += decided;
  // No match begins among what has gone, so it is in front as it was.
  const std::size_t gone = std::min(early_, decided);
  out.erase(0, gone);
  early_ -= gone;
  return out;
}

std::optional<std::string> AnswerScrub::replacement(const FoundForm& match, std::string_view raw,
                                                    Length length) const {
  const std::string& placeholder = rules_->secret_of_value(match.text).placeholder();
  std::optional<std::string> instead;
  switch (match.form) {
    case Form::kPlain:
      instead = placeholder;
      break;
    case Form::kHex:
      instead = hex_of(placeholder, std::ranges::any_of(raw, is_upper_hex));
      break;
    case Form::kPercent:
    case Form::kJson:
      // Needs no escape in either; the spelling only keeps the length.
      instead = length == Length::kFree ? placeholder : spelled_as(raw, placeholder, match.form);
      break;
    case Form::kBase64:
      // Padding within what follows would end it for some readers.
      if (placeholder.size() % 3 == 0)
        instead = raw.find_first_of("-_") == std::string_view::npos ? base64_encode(placeholder)
                                                                    : base64url_encode(placeholder);
      break;
    case Form::kBase64Within:
    case Form::kTwice:
    case Form::kWide:
      break;
  }
  if (instead && length == Length::kKept && instead->size() != raw.size()) return std::nullopt;
  return instead;
}

std::nullopt_t AnswerScrub::abort(const FoundForm& match) {
  cause_ = Cause{rules_->secret_of_value(match.text).name(), to_string(match.form)};
  wipe(held_);
  return std::nullopt;
}

}  // namespace caisson::egress
