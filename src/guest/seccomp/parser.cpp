#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <set>

#include "guest/seccomp/compiler.h"

namespace caisson::guest::seccomp {
namespace {

// The words of a line up to a word that begins with `#`.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t start = line.find_first_not_of(" \t");
    if (start == std::string_view::npos || line[start] == '#') return words;
    line.remove_prefix(start);
    const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

// Decimal, 0x hexadecimal or 0 octal.
bool to_number(std::string_view text, std::uint64_t& value) {
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text.starts_with("0")) {
    base = 8;
    text.remove_prefix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Calls `take(words, indented)` for every line that has words; adds the line's number to its error.
template <typename Take>
Status for_each_line(std::string_view text, Take take) {
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) continue;
    Status taken = take(words, line.front() == ' ' || line.front() == '\t');
    if (!taken.has_value()) {
      return fail(std::move(taken).error().with("line " + std::to_string(number)));
    }
  }
  return {};
}

Error refused(std::string_view what, std::string_view found, std::string_view allowed) {
  return Error::invalid(std::string(what) + ": found \"" + std::string(found) +
                        "\"; allowed: " + std::string(allowed));
}

class PolicyParser {
 public:
  PolicyParser(const Numbers& numbers, const std::vector<Numbers>& others)
      : numbers_(numbers), others_(others) {
    policy_.rules.resize(std::size(kProfileNames));
  }

  Status line(const std::vector<std::string_view>& words, bool indented) {
    if (indented) return clause(words);
    TRY(finish_call());
    const std::string_view head = words[0];
    if (head == "unlisted") {
      if (words.size() != 2 || words[1] != "allow") {
        return fail(refused("unlisted", words.size() > 1 ? words[1] : "", "allow"));
      }
      policy_.allows_unlisted = true;
      return {};
    }
    if (head == "group") return group(words);
    if (head == "define") return define(words);
    if (!in_group_) return fail(refused("outside a group", head, "group, unlisted"));
    if (head == "why") {
      has_reason_ = words.size() > 1;
      return {};
    }
    if (!has_reason_) return fail(refused("the group's first line", head, "why TEXT"));
    if (head == "call") {
      if (words.size() != 2)
        return fail(refused("call", std::to_string(words.size() - 1) + " words", "one name"));
      call_ = std::string(words[1]);
      rule_ = {};
      has_else_ = false;
      return {};
    }
    std::size_t used = 0;
    TRY_ASSIGN(const Action action, parse_action(words, used));
    if (used == words.size()) return fail(refused(head, "no name", "names of system calls"));
    for (std::size_t i = used; i < words.size(); ++i) TRY(set(words[i], Rule{{}, action}));
    return {};
  }

  Result<Policy> finish() {
    TRY(finish_call());
    if (policy_.allows_unlisted) return std::move(policy_);
    for (const auto& [number, name] : numbers_.name_of) {
      for (std::size_t i = 0; i < policy_.rules.size(); ++i) {
        if (!policy_.rules[i].contains(number)) {
          return fail(Error::invalid("no group names " + name + " in profile " +
                                     std::string(kProfileNames[i]) +
                                     "; every known system call must be named"));
        }
      }
    }
    return std::move(policy_);
  }

 private:
  Status group(const std::vector<std::string_view>& words) {
    if (words.size() < 2 || (words.size() > 2 && (words[2] != "in" || words.size() == 3))) {
      return fail(refused("group", words.size() > 2 ? words[2] : "", "group NAME [in PROFILE…]"));
    }
    in_group_ = true;
    has_reason_ = false;
    only_in_.clear();
    for (std::size_t i = 3; i < words.size(); ++i) {
      const auto* found = std::find(std::begin(kProfileNames), std::end(kProfileNames), words[i]);
      if (found == std::end(kProfileNames)) {
        return fail(refused("profile", words[i], "default, browser, debug"));
      }
      only_in_.insert(static_cast<std::size_t>(found - std::begin(kProfileNames)));
    }
    return {};
  }

  Status define(const std::vector<std::string_view>& words) {
    if (words.size() != 3) return fail(refused("define", "", "define NAME NUMBER"));
    std::uint64_t value = 0;
    if (!to_number(words[2], value)) return fail(refused("define", words[2], "a number"));
    const auto [place, is_new] = defines_.emplace(std::string(words[1]), value);
    if (!is_new && place->second != value) {
      return fail(refused("define", words[1], "one value for a name"));
    }
    return {};
  }

  Result<std::uint64_t> number(std::string_view word) {
    std::uint64_t value = 0;
    if (to_number(word, value)) return value;
    const auto found = defines_.find(word);
    if (found == defines_.end()) return fail(refused("value", word, "a number or a defined name"));
    return found->second;
  }

  Result<Action> parse_action(const std::vector<std::string_view>& words, std::size_t& used) {
    const std::string_view word = words[used++];
    if (word == "allow") return Action{ActionKind::kAllow, 0};
    if (word == "deny") return Action{ActionKind::kErrno, EPERM};
    if (word == "missing") return Action{ActionKind::kErrno, ENOSYS};
    if (word == "report") return Action{ActionKind::kReport, EPERM};
    if (word == "succeed") return Action{ActionKind::kErrno, 0};
    if (word == "errno") {
      if (used == words.size()) return fail(refused("errno", "", "errno NUMBER"));
      TRY_ASSIGN(const std::uint64_t value, number(words[used++]));
      if (value == 0 || value > 4095) return fail(refused("errno", words[used - 1], "1 to 4095"));
      return Action{ActionKind::kErrno, static_cast<std::uint16_t>(value)};
    }
    return fail(refused("action", word, "allow, deny, missing, report, succeed, errno N"));
  }

  Status clause(const std::vector<std::string_view>& words) {
    if (call_.empty()) return fail(refused("an indented line", words[0], "only after call NAME"));
    if (has_else_) return fail(refused("after else", words[0], "nothing"));
    std::size_t used = 0;
    if (words[0] == "else") {
      if (words.size() == 1) return fail(refused("else", "", "else ACTION"));
      used = 1;
      TRY_ASSIGN(rule_.otherwise, parse_action(words, used));
      if (used != words.size()) return fail(refused("after else", words[used], "nothing"));
      has_else_ = true;
      return {};
    }
    Clause made;
    TRY_ASSIGN(made.action, parse_action(words, used));
    std::string_view joint = "if";
    do {
      if (used == words.size() || words[used] != joint) {
        return fail(refused("condition", used == words.size() ? "" : words[used], joint));
      }
      ++used;
      TRY_ASSIGN(Term term, parse_term(words, used));
      made.terms.push_back(std::move(term));
      joint = "and";
    } while (used != words.size());
    rule_.clauses.push_back(std::move(made));
    return {};
  }

  Result<Term> parse_term(const std::vector<std::string_view>& words, std::size_t& used) {
    const auto next = [&]() { return used < words.size() ? words[used++] : std::string_view(); };
    Term term;
    std::string_view name = next();
    if (name.ends_with(".full")) {
      term.full = true;
      name.remove_suffix(5);
    }
    if (name.size() != 4 || !name.starts_with("arg") || name[3] < '0' || name[3] > '5') {
      return fail(refused("argument", name, "arg0 to arg5, argN.full"));
    }
    term.argument = static_cast<unsigned>(name[3] - '0');
    std::string_view comparison = next();
    if (comparison == "&" && !term.full) {
      TRY_ASSIGN(const std::uint64_t mask, number(next()));
      if (mask == 0 || mask > 0xffffffff)
        return fail(refused("mask", words[used - 1], "1 to 0xffffffff"));
      term.mask = static_cast<std::uint32_t>(mask);
      comparison = next();
    }
    if (comparison != "==" && comparison != "!=") {
      return fail(refused("comparison", comparison, "== or !="));
    }
    term.equal = comparison == "==";
    std::string_view list = next();
    do {
      const std::string_view word = list.substr(0, list.find('|'));
      list.remove_prefix(std::min(list.size(), word.size() + 1));
      TRY_ASSIGN(const std::uint64_t value, number(word));
      // A value outside the mask could never be met, or always.
      if (!term.full && (value & term.mask) != value) {
        return fail(refused("value", word, "bits of the mask"));
      }
      term.values.push_back(value);
    } while (!list.empty());
    if (term.full && term.values.size() != 1) {
      return fail(refused("argN.full", "several values", "one"));
    }
    return term;
  }

  Status finish_call() {
    if (call_.empty()) return {};
    if (!has_else_) return fail(refused("call " + call_, "no else", "else ACTION at the end"));
    const std::string name = std::move(call_);
    call_.clear();
    return set(name, std::move(rule_));
  }

  Status set(std::string_view name, Rule rule) {
    const auto found = numbers_.number_of.find(name);
    if (found == numbers_.number_of.end()) {
      const bool elsewhere = std::any_of(others_.begin(), others_.end(), [&](const Numbers& other) {
        return other.number_of.contains(name);
      });
      if (elsewhere) return {};
      return fail(refused("system call", name, "names of the numbers table"));
    }
    for (std::size_t i = 0; i < policy_.rules.size(); ++i) {
      if (!only_in_.empty() && !only_in_.contains(i)) continue;
      const auto key = std::pair(found->second, i);
      const bool again =
          only_in_.empty() ? !general_.insert(key).second : !special_.insert(key).second;
      if (again) return fail(refused("system call", name, "one group for each profile"));
      // What a group says for named profiles stands, wherever the general group is.
      if (only_in_.empty() && special_.contains(key)) continue;
      policy_.rules[i][found->second] = rule;
    }
    return {};
  }

  const Numbers& numbers_;
  const std::vector<Numbers>& others_;
  Policy policy_;
  std::map<std::string, std::uint64_t, std::less<>> defines_;
  std::set<std::pair<std::uint32_t, std::size_t>> general_, special_;
  std::set<std::size_t> only_in_;
  bool in_group_ = false, has_reason_ = false, has_else_ = false;
  std::string call_;
  Rule rule_;
};

}  // namespace

Result<Numbers> parse_numbers(std::string_view text) {
  Numbers numbers;
  const auto take = [&](const std::vector<std::string_view>& words, bool) -> Status {
    std::vector<std::uint64_t> values(words.size());
    for (std::size_t i = 0; i < words.size(); ++i) {
      const bool is_word = words[0][0] > '9' ? i == 0 : i == 1;
      if (!is_word && (!to_number(words[i], values[i]) || values[i] > 0xffffffff)) {
        return fail(refused("numbers table", words[i], "a 32-bit number"));
      }
    }
    const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(values[i]); };
    if (words[0] == "architecture" && words.size() == 2) {
      numbers.architecture = at(1);
    } else if (words[0] == "foreign" && words.size() == 4) {
      numbers.foreign.push_back({at(1), at(2), at(3)});
    } else if (words[0] == "x32" && words.size() == 3) {
      numbers.has_x32 = true;
      numbers.x32 = {0, at(1) | kX32Bit, at(2) | kX32Bit};
    } else if (words.size() == 2 && words[0][0] <= '9' && values[0] < 0x10000) {
      const bool is_new = numbers.name_of.emplace(at(0), words[1]).second &&
                          numbers.number_of.emplace(words[1], at(0)).second;
      if (!is_new) return fail(refused("numbers table", words[1], "each number and name once"));
    } else {
      return fail(refused("numbers table", words[0],
                          "architecture N, foreign N EXIT EXIT_GROUP, x32 EXIT EXIT_GROUP, "
                          "NUMBER NAME"));
    }
    return {};
  };
  TRY(for_each_line(text, take));
  if (numbers.architecture == 0 || numbers.name_of.empty()) {
    return fail(Error::invalid("numbers table: no architecture or no system call"));
  }
  return numbers;
}

Result<Policy> parse_policy(std::string_view text, const Numbers& numbers,
                            const std::vector<Numbers>& others) {
  PolicyParser parser(numbers, others);
  TRY(for_each_line(text, [&](const std::vector<std::string_view>& words, bool indented) {
    return parser.line(words, indented);
  }));
  return parser.finish();
}

}  // namespace caisson::guest::seccomp
