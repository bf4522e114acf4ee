#include "build/dockerfile.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/json.h"
#include "build/words.h"
#include "image/reference.h"

namespace caisson::build {
namespace {

using image::printable;

struct Keyword {
  std::string_view name;
  InstructionKind kind;
};
constexpr std::array<Keyword, 17> kKeywords = {{
    {"ADD", InstructionKind::kAdd},
    {"ARG", InstructionKind::kArg},
    {"CMD", InstructionKind::kCmd},
    {"COPY", InstructionKind::kCopy},
    {"ENTRYPOINT", InstructionKind::kEntrypoint},
    {"ENV", InstructionKind::kEnv},
    {"EXPOSE", InstructionKind::kExpose},
    {"FROM", InstructionKind::kFrom},
    {"HEALTHCHECK", InstructionKind::kHealthcheck},
    {"LABEL", InstructionKind::kLabel},
    {"MAINTAINER", InstructionKind::kMaintainer},
    {"RUN", InstructionKind::kRun},
    {"SHELL", InstructionKind::kShell},
    {"STOPSIGNAL", InstructionKind::kStopsignal},
    {"USER", InstructionKind::kUser},
    {"VOLUME", InstructionKind::kVolume},
    {"WORKDIR", InstructionKind::kWorkdir},
}};

std::string allowed_keywords() {
  std::string text;
  for (const Keyword& keyword : kKeywords) {
    if (!text.empty()) text += ", ";
    text += keyword.name;
  }
  return text;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool may_have_flags(InstructionKind kind) {
  return kind == InstructionKind::kAdd || kind == InstructionKind::kCopy ||
         kind == InstructionKind::kFrom || kind == InstructionKind::kRun ||
         kind == InstructionKind::kHealthcheck;
}
bool may_be_list(InstructionKind kind) {
  return kind == InstructionKind::kAdd || kind == InstructionKind::kCopy ||
         kind == InstructionKind::kCmd || kind == InstructionKind::kEntrypoint ||
         kind == InstructionKind::kRun || kind == InstructionKind::kShell ||
         kind == InstructionKind::kVolume;
}
bool may_have_documents(InstructionKind kind) {
  return kind == InstructionKind::kAdd || kind == InstructionKind::kCopy ||
         kind == InstructionKind::kRun;
}

// The file's lines, one after the other.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  // The next line without its line break; nullopt at the end.
  std::optional<std::string_view> next() {
    if (at_ >= text_.size()) return std::nullopt;
    const std::size_t end = text_.find('\n', at_);
    std::string_view line = text_.substr(at_, end == std::string_view::npos ? end : end - at_);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
    ++number_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
  std::uint32_t number() const { return number_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t number_ = 0;
};

bool is_comment(std::string_view line) {
  return trim(line).starts_with('#');
}

// Where the line goes on in the next one: without the escape character; else nullopt.
std::optional<std::string_view> continued(std::string_view line, char escape) {
  while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
  if (!line.ends_with(escape)) return std::nullopt;
  line.remove_suffix(1);
  if (line.ends_with(escape)) return std::nullopt;
  return line;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : lines_(text) {
    file_.name = std::string(name);
  }

  Result<Dockerfile> run() {
    bool directives = true;
    while (const auto line = lines_.next()) {
      const std::uint32_t number = lines_.number();
      if (directives && (directives = is_directive_place(*line))) {
        auto taken = directive(*line);
        if (!taken.has_value()) return fail_at(number, std::move(taken).error());
        if (*taken) continue;
        directives = false;
      }
      if (trim(*line).empty() || is_comment(*line)) continue;
      if (file_.instructions.size() == kMaxInstructions)
        return fail_at(number, Error::exhausted("more than " + std::to_string(kMaxInstructions) +
                                                " instructions"));
      auto joined = join(*line);
      if (!joined.has_value()) return fail_at(number, std::move(joined).error());
      auto made = instruction(*joined, number);
      if (!made.has_value()) return fail_at(number, std::move(made).error());
      file_.instructions.push_back(std::move(*made));
    }
    if (file_.instructions.empty())
      return fail(Error::invalid(file_.name + ": there is no instruction in it; FROM is needed"));
    return std::move(file_);
  }

 private:
  std::unexpected<Error> fail_at(std::uint32_t line, Error error) const {
    return fail(at_line(file_.name, line, std::move(error)));
  }

  static bool is_directive_place(std::string_view line) { return line.starts_with('#'); }

  // `# key=value` before everything else. False: it is an ordinary comment.
  Result<bool> directive(std::string_view line) {
    line = trim(line.substr(1));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string key = lower(trim(line.substr(0, equals)));
    const std::string_view value = trim(line.substr(equals + 1));
    if (key == "syntax" || key == "check") return true;
    if (key != "escape") return false;
    if (value != "\\" && value != "`")
      return fail(Error::invalid("the directive escape is '" + printable(value, 20) +
                                 "'; allowed are \\ and `"));
    if (escape_given_) return fail(Error::invalid("the directive escape is there twice"));
    escape_given_ = true;
    file_.escape = value[0];
    return true;
  }

  // The line and those that it goes on in.
  Result<std::string> join(std::string_view line) {
    std::string text;
    bool blank_noted = false;
    for (;;) {
      const auto more = continued(line, file_.escape);
      text += more.value_or(line);
      if (text.size() > kMaxInstructionBytes)
        return fail(Error::exhausted("an instruction of more than " +
                                     std::to_string(kMaxInstructionBytes) + " bytes"));
      if (!more.has_value()) break;
      std::optional<std::string_view> next;
      while ((next = lines_.next()).has_value() && (trim(*next).empty() || is_comment(*next))) {
        if (trim(*next).empty() && !blank_noted) {
          blank_noted = true;
          note(lines_.number(), "an empty line inside of an instruction is passed over");
        }
      }
      if (!next.has_value()) break;
      line = *next;
    }
    return std::string(trim(text));
  }

  void note(std::uint32_t line, std::string_view text) {
    if (file_.notes.size() < 64)
      file_.notes.push_back(file_.name + ":" + std::to_string(line) + ": " + std::string(text));
  }

  Result<Instruction> instruction(const std::string& text, std::uint32_t line) {
    if (text.find('\0') != std::string::npos)
      return fail(Error::invalid("a zero byte; a Dockerfile is text"));
    const std::size_t end = std::min(text.find_first_of(" \t\n\r\v\f"), text.size());
    const std::string word = upper(std::string_view(text).substr(0, end));
    if (word == "ONBUILD")
      return fail(Error(Code::kUnimplemented,
                        "ONBUILD is not supported; write the instruction into the Dockerfile "
                        "that builds on this image"));
    const auto* const found = std::find_if(kKeywords.begin(), kKeywords.end(),
                                           [&](const Keyword& k) { return k.name == word; });
    if (found == kKeywords.end())
      return fail(Error::invalid("unknown instruction '" + printable(text.substr(0, end), 40) +
                                 "'; allowed are " + allowed_keywords()));
    Instruction made;
    made.kind = found->kind;
    made.line = line;
    made.text = text;
    std::string_view rest = trim(std::string_view(text).substr(end));
    if (may_have_flags(made.kind)) TRY(take_flags(rest, made));
    made.rest = std::string(rest);
    if (made.rest.empty()) return fail(Error::invalid(word + " needs an argument"));
    if (may_be_list(made.kind) && made.rest.starts_with('[')) TRY(take_list(made));
    if (may_have_documents(made.kind) && !made.exec_form) TRY(take_documents(made));
    if (made.kind == InstructionKind::kMaintainer)
      note(line, "MAINTAINER is old; LABEL says the same");
    return made;
  }

  static Status take_flags(std::string_view& rest, Instruction& made) {
    while (rest.starts_with("--")) {
      std::size_t end = 0;
      char quote = 0;
      for (; end < rest.size(); ++end) {
        const char c = rest[end];
        if (quote != 0) {
          if (c == quote) quote = 0;
        } else if (c == '"' || c == '\'') {
          quote = c;
        } else if (c == ' ' || c == '\t') {
          break;
        }
      }
      const std::string_view flag = rest.substr(2, end - 2);
      rest = trim(rest.substr(end));
      // `--` alone ends them.
      if (flag.empty()) return {};
      if (made.flags.size() == kMaxWords) return fail(Error::exhausted("too many flags"));
      const std::size_t equals = flag.find('=');
      Flag taken;
      taken.name = std::string(flag.substr(0, equals));
      taken.given = equals != std::string_view::npos;
      if (taken.given) taken.value = std::string(flag.substr(equals + 1));
      made.flags.push_back(std::move(taken));
    }
    return {};
  }

  // Docker takes what is no JSON as the shell form; a list of other things than strings is wrong.
  static Status take_list(Instruction& made) {
    json::ParseLimits limits;
    limits.bytes = kMaxInstructionBytes;
    limits.depth = 4;
    limits.values = kMaxWords + 1;
    const auto value = json::parse(made.rest, limits);
    if (!value.has_value()) return {};
    const json::Value::Array* items = value->as_array();
    if (items == nullptr) return {};
    for (const json::Value& item : *items) {
      const std::string* text = item.as_string();
      if (text == nullptr)
        return fail(Error::invalid("the JSON form takes strings alone, each in double quotes"));
      if (text->find('\0') != std::string::npos)
        return fail(Error::invalid("the JSON form holds a zero byte"));
      made.list.push_back(*text);
    }
    made.exec_form = true;
    return {};
  }

  // `<<NAME`, `<<-NAME` and `3<<NAME` among the words, and their contents from the lines below.
  Status take_documents(Instruction& made) {
    const auto words = split_quoted(made.rest, file_.escape);
    // A quote that is not closed is the shell's business.
    if (!words.has_value()) return {};
    if (words->size() > kMaxWords) return fail(Error::exhausted("more than 4096 words"));
    for (const std::string& word : *words) {
      auto document = document_of(word);
      if (!document.has_value()) continue;
      if (made.documents.size() == kMaxHereDocuments)
        return fail(
            Error::exhausted("more than " + std::to_string(kMaxHereDocuments) + " here-documents"));
      made.documents.push_back(std::move(*document));
    }
    for (HereDocument& document : made.documents) TRY(read_document(document));
    return {};
  }

  std::optional<HereDocument> document_of(std::string_view word) const {
    while (!word.empty() && word[0] >= '0' && word[0] <= '9') word.remove_prefix(1);
    if (!word.starts_with("<<")) return std::nullopt;
    word.remove_prefix(2);
    HereDocument document;
    if (word.starts_with('-')) {
      document.strip = true;
      word.remove_prefix(1);
    }
    if (word.empty() || word.find('<') != std::string_view::npos) return std::nullopt;
    auto name =
        expand(word, file_.escape, [](std::string_view variable) -> std::optional<std::string> {
          return "$" + std::string(variable);
        });
    if (!name.has_value() || name->empty() || name->find('\n') != std::string::npos)
      return std::nullopt;
    document.expand = *name == word;
    document.name = std::move(*name);
    return document;
  }

  Status read_document(HereDocument& document) {
    const std::uint32_t from = lines_.number();
    while (const auto line = lines_.next()) {
      std::string_view text = *line;
      if (document.strip)
        while (text.starts_with('\t')) text.remove_prefix(1);
      if (text == document.name) return {};
      document.content += text;
      document.content += '\n';
      if (document.content.size() > kMaxInstructionBytes)
        return fail(Error::exhausted("a here-document of more than " +
                                     std::to_string(kMaxInstructionBytes) + " bytes"));
    }
    return fail(Error::invalid("the here-document '" + printable(document.name, 40) +
                               "' that begins behind line " + std::to_string(from) +
                               " has no end"));
  }

  Lines lines_;
  Dockerfile file_;
  bool escape_given_ = false;
};

}  // namespace

std::string_view to_string(InstructionKind kind) {
  for (const Keyword& keyword : kKeywords)
    if (keyword.kind == kind) return keyword.name;
  return "";
}

Error at_line(std::string_view name, std::uint32_t line, Error error) {
  return std::move(error).with(std::string(name) + ":" + std::to_string(line));
}

Result<Dockerfile> parse_dockerfile(std::string_view text, std::string_view name) {
  if (text.size() > kMaxDockerfile)
    return fail(Error::exhausted(std::string(name) + " is longer than " +
                                 std::to_string(kMaxDockerfile) + " bytes"));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return Parser(text, name).run();
}

}  // namespace caisson::build
