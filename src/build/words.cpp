#include "build/words.h"

#include <algorithm>

namespace caisson::build {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Expander {
 public:
  Expander(std::string_view text, char escape, const Lookup& variables, Quoting quoting,
           std::size_t depth)
      : text_(text), escape_(escape), variables_(variables), quoting_(quoting), depth_(depth) {}

  Result<std::string> run() {
    while (!done()) {
      const char c = peek();
      if (c == '$') {
        TRY(variable());
      } else if (quoting_ == Quoting::kWord && c == '\'') {
        TRY(single_quoted());
      } else if (quoting_ == Quoting::kWord && c == '"') {
        TRY(double_quoted());
      } else if (c == escape_) {
        escaped(quoting_ == Quoting::kText ? "$`" : "");
      } else {
        out_ += take();
      }
      TRY(check_size());
    }
    return std::move(out_);
  }

 private:
  bool done() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }
  char take() { return text_[at_++]; }

  Status check_size() const {
    if (out_.size() > kMaxExpanded)
      return fail(Error::exhausted("variables make a text of more than " +
                                   std::to_string(kMaxExpanded) + " bytes"));
    return {};
  }

  // The escape character and what it stands before; `meant` empty: any character.
  void escaped(std::string_view meant) {
    const char escape = take();
    if (done()) {
      out_ += escape;
      return;
    }
    const char next = peek();
    if (!meant.empty() && next != escape && meant.find(next) == std::string_view::npos) {
      out_ += escape;
      return;
    }
    out_ += take();
  }

  Status single_quoted() {
    const std::size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) return fail(Error::invalid("a single quote is not closed"));
    out_ += text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return {};
  }

  Status double_quoted() {
    take();
    while (!done()) {
      const char c = peek();
      if (c == '"') {
        take();
        return {};
      }
      if (c == '$') {
        TRY(variable());
      } else if (c == escape_) {
        escaped("\"$");
      } else {
        out_ += take();
      }
      TRY(check_size());
    }
    return fail(Error::invalid("a double quote is not closed"));
  }

  std::string_view name() {
    const std::size_t start = at_;
    if (!done() && is_digit(peek())) {
      ++at_;
    } else {
      while (!done() && (begins_name(peek()) || (at_ > start && is_digit(peek())))) ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  Status variable() {
    take();
    if (done()) {
      out_ += '$';
      return {};
    }
    if (peek() == '{') return braced();
    const std::string_view found = name();
    if (found.empty()) {
      out_ += '$';
      return {};
    }
    out_ += variables_(found).value_or("");
    return {};
  }

  // The word of `${NAME:-WORD}` up to its brace, which is taken.
  Result<std::string_view> word() {
    const std::size_t start = at_;
    std::size_t open = 1;
    char quote = 0;
    for (; !done(); ++at_) {
      const char c = peek();
      if (c == escape_ && quote != '\'') {
        if (at_ + 1 < text_.size()) ++at_;
      } else if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (c == '{') {
        ++open;
      } else if (c == '}' && --open == 0) {
        ++at_;
        return text_.substr(start, at_ - start - 1);
      }
    }
    return fail(Error::invalid("a '${' is not closed by '}'"));
  }

  Status braced() {
    take();
    const std::string_view found = name();
    if (found.empty()) return fail(Error::invalid("a '${' without the name of a variable"));
    std::optional<std::string> value = variables_(found);
    if (done()) return fail(Error::invalid("a '${' is not closed by '}'"));
    char kind = take();
    if (kind == '}') {
      out_ += value.value_or("");
      return {};
    }
    if (kind == ':') {
      if (value.has_value() && value->empty()) value.reset();
      kind = done() ? ' ' : take();
    }
    if (kind != '-' && kind != '+' && kind != '?')
      return fail(Error::invalid("'${" + std::string(found) +
                                 "' goes on in a way that is not supported; allowed are ${X}, "
                                 "${X:-y}, ${X-y}, ${X:+y}, ${X+y}, ${X:?y} and ${X?y}"));
    TRY_ASSIGN(const std::string_view inner, word());
    if (depth_ + 1 >= kMaxExpandDepth)
      return fail(Error::exhausted("variables are nested more than " +
                                   std::to_string(kMaxExpandDepth) + " deep"));
    TRY_ASSIGN(const std::string other,
               Expander(inner, escape_, variables_, quoting_, depth_ + 1).run());
    if (kind == '+') {
      if (value.has_value()) out_ += other;
      return {};
    }
    if (value.has_value()) {
      out_ += *value;
    } else if (kind == '-') {
      out_ += other;
    } else {
      return fail(Error::invalid("the variable " + std::string(found) + " is not set" +
                                 (other.empty() ? "" : ": " + other)));
    }
    return {};
  }

  std::string_view text_;
  char escape_;
  const Lookup& variables_;
  Quoting quoting_;
  std::size_t depth_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

Lookup lookup(const Variables& variables) {
  return [&variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Result<std::string> expand(std::string_view text, char escape, const Lookup& variables,
                           Quoting quoting) {
  return Expander(text, escape, variables, quoting, 0).run();
}

Result<std::vector<std::string>> split_quoted(std::string_view text, char escape) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote == 0 && is_blank(c)) {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
      continue;
    }
    in_word = true;
    word += c;
    if (c == escape && quote != '\'') {
      if (at + 1 < text.size()) word += text[++at];
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    }
  }
  if (quote != 0)
    return fail(Error::invalid(quote == '"' ? "a double quote is not closed"
                                            : "a single quote is not closed"));
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> split_blank(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    if (is_blank(text[at])) {
      ++at;
      continue;
    }
    const std::size_t start = at;
    while (at < text.size() && !is_blank(text[at])) ++at;
    words.emplace_back(text.substr(start, at - start));
  }
  return words;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && begins_name(name[0]) && std::all_of(name.begin(), name.end(), [](char c) {
    return begins_name(c) || is_digit(c);
  });
}

}  // namespace caisson::build
