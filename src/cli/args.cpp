#include "cli/args.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace caisson::cli {
namespace {

constexpr Option kHelp = {.name = "--help", .letter = 'h', .value = "", .help = "Show this text."};

const Option* find_option(const CommandTable& command, std::string_view name) {
  if (name == kHelp.name) return &kHelp;
  for (const OptionGroup& group : command.groups)
    for (const Option& option : group.options)
      if (option.name == name) return &option;
  return nullptr;
}

const Option* find_letter(const CommandTable& command, char letter) {
  if (letter == kHelp.letter) return &kHelp;
  for (const OptionGroup& group : command.groups)
    for (const Option& option : group.options)
      if (option.letter == letter) return &option;
  return nullptr;
}

std::string in_command(const CommandTable& command) {
  return "; see 'caisson " + std::string(command.name) + " --help'";
}

Error unknown_option(const CommandTable& command, std::string_view given) {
  std::vector<std::string_view> names = {kHelp.name};
  for (const OptionGroup& group : command.groups)
    for (const Option& option : group.options)
      if (!option.hidden) names.push_back(option.name);
  const std::string_view close = similar(given, names);
  std::string message = "unknown option '" + std::string(given) + "'";
  if (!close.empty()) message += "; did you mean '" + std::string(close) + "'?";
  return Error::invalid(message + (close.empty() ? in_command(command) : ""));
}

class Parser {
 public:
  Parser(const CommandTable& command, std::span<char* const> arguments)
      : command_(command), arguments_(arguments) {}

  Result<Parsed> parse() {
    while (at_ < arguments_.size()) {
      const std::string_view argument = arguments_[at_++];
      if (argument == "--") {
        take_rest();
      } else if (argument.starts_with("--")) {
        TRY(take_long(argument));
      } else if (argument.size() > 1 && argument[0] == '-') {
        TRY(take_letters(argument));
      } else {
        parsed_.arguments.emplace_back(argument);
        if (command_.trailing) take_rest();
      }
    }
    return std::move(parsed_);
  }

 private:
  void take_rest() {
    for (; at_ < arguments_.size(); ++at_) parsed_.arguments.emplace_back(arguments_[at_]);
  }

  Status take_long(std::string_view argument) {
    const std::size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const Option* option = find_option(command_, name);
    if (option == nullptr) return fail(unknown_option(command_, name));
    if (option->value.empty()) {
      if (equals != std::string_view::npos)
        return fail(Error::invalid(std::string(name) + " takes no value, '" +
                                   std::string(argument.substr(equals + 1)) + "' was given"));
      return take(option, "");
    }
    if (equals != std::string_view::npos) return take(option, argument.substr(equals + 1));
    return take_next(option);
  }

  Status take_letters(std::string_view argument) {
    for (std::size_t i = 1; i < argument.size(); ++i) {
      const Option* option = find_letter(command_, argument[i]);
      if (option == nullptr)
        return fail(Error::invalid("unknown option '-" + std::string(1, argument[i]) + "'" +
                                   in_command(command_)));
      if (option->value.empty()) {
        TRY(take(option, ""));
        continue;
      }
      if (i + 1 < argument.size()) return take(option, argument.substr(i + 1));
      return take_next(option);
    }
    return {};
  }

  Status take_next(const Option* option) {
    if (at_ == arguments_.size())
      return fail(Error::invalid(std::string(option->name) + " needs a value: " +
                                 std::string(option->name) + " " + std::string(option->value)));
    return take(option, arguments_[at_++]);
  }

  Status take(const Option* option, std::string_view value) {
    if (option == &kHelp) {
      parsed_.help = true;
    } else {
      parsed_.options.push_back({option, std::string(value)});
    }
    return {};
  }

  const CommandTable& command_;
  std::span<char* const> arguments_;
  std::size_t at_ = 0;
  Parsed parsed_;
};

// Edit distance with a transposition counted once, for short words.
std::size_t distance(std::string_view a, std::string_view b) {
  constexpr std::size_t kLongest = 32;
  if (a.size() >= kLongest || b.size() >= kLongest) return kLongest;
  std::array<std::array<std::size_t, kLongest + 1>, kLongest + 1> cost = {};
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[a.size()][b.size()];
}

}  // namespace

bool Parsed::has(std::string_view name) const {
  return std::ranges::any_of(options,
                             [&](const Given& given) { return given.option->name == name; });
}

std::string Parsed::value(std::string_view name) const {
  for (auto given = options.rbegin(); given != options.rend(); ++given)
    if (given->option->name == name) return given->value;
  return "";
}

Result<Parsed> parse_arguments(const CommandTable& command, std::span<char* const> arguments) {
  return Parser(command, arguments).parse();
}

std::string_view similar(std::string_view given, std::span<const std::string_view> names) {
  std::string_view best;
  // A name much shorter than the slip would be no help.
  std::size_t least = std::min<std::size_t>(3, given.size() / 2 + 1);
  for (const std::string_view name : names)
    if (const std::size_t found = distance(given, name); found < least) {
      least = found;
      best = name;
    }
  return best;
}

}  // namespace caisson::cli
