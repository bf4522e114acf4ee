#include "guest/seccomp/compiler.h"

#include <cerrno>
#include <cstddef>

namespace caisson::guest::seccomp {
namespace {

constexpr std::uint32_t kMaxJump = 255;

std::uint32_t return_value(Action action, bool with_listener) {
  switch (action.kind) {
    case ActionKind::kAllow:
      return SECCOMP_RET_ALLOW;
    case ActionKind::kReport:
      if (with_listener) return SECCOMP_RET_USER_NOTIF;
      break;
    case ActionKind::kErrno:
      break;
  }
  return SECCOMP_RET_ERRNO | action.error_number;
}

const Rule& missing_rule() {
  static const Rule rule{{}, {ActionKind::kErrno, ENOSYS}};
  return rule;
}
const Rule& allow_rule() {
  static const Rule rule{};
  return rule;
}

// What the policy says of `number`, whether the tables know it or not.
const Rule& rule_of(const Policy& policy, std::size_t profile, std::uint32_t number) {
  const auto found = policy.rules[profile].find(number);
  if (found != policy.rules[profile].end()) return found->second;
  return policy.allows_unlisted ? allow_rule() : missing_rule();
}

// Builds a program from its end to its beginning: classic BPF jumps only forward, so that every
// target exists already when a jump to it is made. A Label is a position counted from the end.
class Assembler {
 public:
  using Label = std::size_t;

  // The label of a return of `value`, at most one short jump away from the next instruction.
  Label leave(std::uint32_t value) {
    const auto found = returns_.find(value);
    if (found != returns_.end() && distance(found->second) < kMaxJump) return found->second;
    const Label made = put(BPF_RET | BPF_K, 0, 0, value);
    returns_[value] = made;
    return made;
  }

  Label load(std::size_t offset) {
    return put(BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(offset));
  }
  Label mask(std::uint32_t value) { return put(BPF_ALU | BPF_AND | BPF_K, 0, 0, value); }

  // `operation` is BPF_JEQ or BPF_JGE.
  Label branch(unsigned operation, std::uint32_t value, Label yes, Label no) {
    // Two far targets: the first trampoline moves the second one further away by one instruction.
    if (distance(yes) >= kMaxJump) yes = trampoline(yes);
    if (distance(no) >= kMaxJump) no = trampoline(no);
    const std::size_t to_yes = distance(yes), to_no = distance(no);
    return put(BPF_JMP | operation | BPF_K, static_cast<std::uint8_t>(to_yes),
               static_cast<std::uint8_t>(to_no), value);
  }

  // Continues at `target`: nothing where it comes next anyway.
  Label go_to(Label target) { return distance(target) == 0 ? target : trampoline(target); }

  std::vector<sock_filter> finish() const { return {reversed_.rbegin(), reversed_.rend()}; }

 private:
  // Instructions that a jump from the next position skips.
  std::size_t distance(Label target) const { return reversed_.size() - target - 1; }
  Label trampoline(Label target) {
    return put(BPF_JMP | BPF_JA, 0, 0, static_cast<std::uint32_t>(distance(target)));
  }
  Label put(unsigned code, std::uint8_t yes, std::uint8_t no, std::uint32_t k) {
    reversed_.push_back({static_cast<std::uint16_t>(code), yes, no, k});
    return reversed_.size() - 1;
  }

  std::vector<sock_filter> reversed_;
  std::map<std::uint32_t, Label> returns_;
};

using Label = Assembler::Label;

class Compiler {
 public:
  Compiler(const Policy& policy, const Numbers& numbers, std::size_t profile, bool with_listener)
      : policy_(policy), numbers_(numbers), profile_(profile), with_listener_(with_listener) {}

  std::vector<sock_filter> run() {
    const std::uint32_t missing = SECCOMP_RET_ERRNO | ENOSYS;
    const Label start = numbers_entry();
    // Any other way into the kernel.
    Label other = code_.leave(missing);
    for (const Numbers::Foreign& foreign : numbers_.foreign) {
      const Label exits = exits_only(foreign, true);
      // The accumulator holds the architecture here, and again where this one does not match.
      other = code_.branch(BPF_JEQ, foreign.architecture, exits, other);
    }
    code_.branch(BPF_JEQ, numbers_.architecture, start, other);
    code_.load(offsetof(seccomp_data, arch));
    return code_.finish();
  }

 private:
  struct Range {
    std::uint32_t first;
    const Rule* rule;
  };

  // Loads the number and decides on it.
  Label numbers_entry() {
    std::vector<Range> ranges;
    const auto add = [&](std::uint32_t first, const Rule& rule) {
      const bool same = !ranges.empty() && rule.clauses.empty() &&
                        ranges.back().rule->clauses.empty() &&
                        ranges.back().rule->otherwise == rule.otherwise;
      if (!same) ranges.push_back({first, &rule});
    };
    const std::uint32_t newest = numbers_.name_of.rbegin()->first;
    for (std::uint32_t number = 0; number <= newest + 1; ++number) {
      add(number, rule_of(policy_, profile_, number));
    }
    Label x32 = 0;
    if (numbers_.has_x32) x32 = exits_only(numbers_.x32, false);
    const Label tree = search(ranges, 0, ranges.size());
    if (numbers_.has_x32)
      code_.branch(BPF_JGE, kX32Bit, x32, tree);
    else
      code_.go_to(tree);
    return code_.load(offsetof(seccomp_data, nr));
  }

  Label exits_only(const Numbers::Foreign& foreign, bool loads) {
    const Label missing = code_.leave(SECCOMP_RET_ERRNO | ENOSYS);
    const Label allow = code_.leave(SECCOMP_RET_ALLOW);
    const Label second = code_.branch(BPF_JEQ, foreign.exit_group, allow, missing);
    const Label first = code_.branch(BPF_JEQ, foreign.exit, allow, second);
    return loads ? code_.load(offsetof(seccomp_data, nr)) : first;
  }

  // Where to split so that both sides hold about as many numbers: when a filter is installed the
  // kernel runs it on paper once for every number.
  static std::size_t halfway(const std::vector<Range>& ranges, std::size_t begin, std::size_t end) {
    const std::uint32_t middle =
        ranges[begin].first + (ranges[end - 1].first + 1 - ranges[begin].first) / 2;
    std::size_t split = begin + 1;
    while (split + 1 < end && ranges[split].first < middle) ++split;
    const auto distance = [&](std::size_t i) {
      return ranges[i].first > middle ? ranges[i].first - middle : middle - ranges[i].first;
    };
    return split > begin + 1 && distance(split - 1) < distance(split) ? split - 1 : split;
  }

  Label search(const std::vector<Range>& ranges, std::size_t begin, std::size_t end) {
    if (end - begin == 1) return decide(*ranges[begin].rule);
    const std::size_t middle = halfway(ranges, begin, end);
    const Label upper = search(ranges, middle, end);
    const Label lower = search(ranges, begin, middle);
    return code_.branch(BPF_JGE, ranges[middle].first, upper, lower);
  }

  Label decide(const Rule& rule) {
    Label next = code_.leave(return_value(rule.otherwise, with_listener_));
    for (std::size_t i = rule.clauses.size(); i-- > 0;) {
      const Clause& clause = rule.clauses[i];
      Label yes = code_.leave(return_value(clause.action, with_listener_));
      for (std::size_t k = clause.terms.size(); k-- > 0;) yes = test(clause.terms[k], yes, next);
      next = yes;
    }
    return next;
  }

  // The label of code that goes to `yes` where the term holds and to `no` where not.
  Label test(const Term& term, Label yes, Label no) {
    if (!term.equal) std::swap(yes, no);
    const std::size_t low = offsetof(seccomp_data, args) + 8 * term.argument;
    if (term.full) {
      code_.branch(BPF_JEQ, static_cast<std::uint32_t>(term.values[0]), yes, no);
      const Label low_half = code_.load(low);
      code_.branch(BPF_JEQ, static_cast<std::uint32_t>(term.values[0] >> 32), low_half, no);
      return code_.load(low + 4);
    }
    Label otherwise = no;
    for (std::size_t i = term.values.size(); i-- > 0;) {
      otherwise = code_.branch(BPF_JEQ, static_cast<std::uint32_t>(term.values[i]), yes, otherwise);
    }
    if (term.mask != 0xffffffff) code_.mask(term.mask);
    return code_.load(low);
  }

  const Policy& policy_;
  const Numbers& numbers_;
  std::size_t profile_;
  bool with_listener_;
  Assembler code_;
};

bool holds(const Term& term, const seccomp_data& call) {
  const std::uint64_t argument = call.args[term.argument];
  const std::uint64_t seen =
      term.full ? argument : static_cast<std::uint32_t>(argument) & term.mask;
  bool any = false;
  for (const std::uint64_t value : term.values) any = any || seen == value;
  return any == term.equal;
}

std::uint32_t exits_only(const Numbers::Foreign& foreign, std::uint32_t number) {
  const bool ends = number == foreign.exit || number == foreign.exit_group;
  return ends ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | ENOSYS;
}

}  // namespace

Result<std::vector<sock_filter>> compile(const Policy& policy, const Numbers& numbers,
                                         std::size_t profile, bool with_listener) {
  std::vector<sock_filter> program = Compiler(policy, numbers, profile, with_listener).run();
  if (program.size() > BPF_MAXINSNS) {
    return fail(Error(Code::kOutOfRange, "the filter has " + std::to_string(program.size()) +
                                             " instructions; the kernel takes 4096"));
  }
  return program;
}

std::uint32_t evaluate(const Policy& policy, const Numbers& numbers, std::size_t profile,
                       bool with_listener, const seccomp_data& call) {
  const std::uint32_t number = static_cast<std::uint32_t>(call.nr);
  if (call.arch != numbers.architecture) {
    for (const Numbers::Foreign& foreign : numbers.foreign) {
      if (foreign.architecture == call.arch) return exits_only(foreign, number);
    }
    return SECCOMP_RET_ERRNO | ENOSYS;
  }
  if (numbers.has_x32 && number >= kX32Bit) return exits_only(numbers.x32, number);
  const Rule& rule = rule_of(policy, profile, number);
  for (const Clause& clause : rule.clauses) {
    bool all = true;
    for (const Term& term : clause.terms) all = all && holds(term, call);
    if (all) return return_value(clause.action, with_listener);
  }
  return return_value(rule.otherwise, with_listener);
}

}  // namespace caisson::guest::seccomp
