// Takes secrets out of what a server answers: an echo of a request, an error page, a redirect.
//
// The values of all of a sandbox's secrets, old ones as well, are looked for in every regular
// encoding (form_search.h) in the status line, the headers and the body, over pieces. Where the
// placeholder fits in the value's place (in a body: with the same length in the same spelling, so
// that the body keeps its length) it stands there afterwards, and the program inside sees what it
// sent; where it does not, the answer must be aborted. What a server has changed otherwise (cut in
// two, reversed, encrypted) is not found: which hosts get a secret is what matters most.
//
// Holds back no more of a body than what may be the beginning of a value, so events of a stream
// pass as they come. Pure; one AnswerScrub an answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "egress/secrets/form_search.h"
#include "egress/secrets/secret_rules.h"
#include "http/message.h"

namespace caisson::egress {

class AnswerScrub {
 public:
  explicit AnswerScrub(std::shared_ptr<const SecretRules> rules);

  // The head as the sandbox may see it; nullopt: the answer must be aborted. Also for interim
  // answers.
  std::optional<http::ResponseHead> head(const http::ResponseHead& head);
  // Whether the body that this head announces is encoded, although identity was asked for: it has
  // to be decoded before body() sees it, or the answer to be aborted.
  static bool is_encoded(const http::ResponseHead& head);
  // The next bytes of the body that may go on, perhaps none; nullopt: the answer must be aborted,
  // and it stays so.
  std::optional<std::string> body(std::string_view piece);
  // As LeakCheck::pause(). An answer whose value began with such bytes must be aborted.
  std::string pause();
  // The body has ended; the last of them.
  std::optional<std::string> end();

  // For the audit: how often a placeholder took a value's place, and what made an abort necessary.
  std::size_t replaced() const { return replaced_; }
  struct Cause {
    std::string secret;  // its name
    std::string_view form;
  };
  const std::optional<Cause>& cause() const { return cause_; }

 private:
  enum class Length : std::uint8_t { kKept, kFree };

  // A text as a whole; nullopt: abort.
  std::optional<std::string> text(std::string_view whole);
  std::optional<std::string> released();
  // What stands for a match; nullopt: nothing can.
  std::optional<std::string> replacement(const FoundForm& match, std::string_view raw,
                                         Length length) const;
  std::nullopt_t abort(const FoundForm& match);

  std::shared_ptr<const SecretRules> rules_;
  FormSearch texts_, body_;
  std::string held_;
  std::uint64_t base_ = 0;  // of held_ in the body
  std::size_t early_ = 0;   // bytes of held_ that have gone already
  std::size_t replaced_ = 0;
  std::optional<Cause> cause_;
};

}  // namespace caisson::egress
