#include "image/registry/challenge.h"

#include <algorithm>

#include "base/json.h"
#include "image/json_fields.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

constexpr std::size_t kMaxHeader = 8 << 10;
constexpr std::size_t kMaxChallenges = 16;
constexpr std::size_t kMaxToken = 32 << 10;

bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }
  char peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t'))
      rest_.remove_prefix(1);
  }
  // Spaces and the commas of empty list elements.
  void skip_separators() {
    do skip_space();
    while (take(','));
  }
  std::string token() {
    std::string token;
    while (!rest_.empty() && is_token_character(rest_.front())) {
      token += rest_.front();
      rest_.remove_prefix(1);
    }
    return token;
  }
  // A token68 ends at a comma, a space or the end; anything else is no token68.
  bool skip_token68() {
    std::size_t length = 0;
    while (length < rest_.size() && (is_token_character(rest_[length]) || rest_[length] == '/')) {
      ++length;
    }
    while (length < rest_.size() && rest_[length] == '=') ++length;
    if (length == 0) return false;
    if (length < rest_.size() && rest_[length] != ',' && rest_[length] != ' ') return false;
    rest_.remove_prefix(length);
    return true;
  }
  bool quoted(std::string& out) {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (c == '\\') {
        if (rest_.empty()) return false;
        c = rest_.front();
        rest_.remove_prefix(1);
      }
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
      out += c;
    }
    return false;
  }
  // Whether NAME = follows: a parameter and not the next challenge's scheme.
  bool parameter_follows() const {
    Reader ahead = *this;
    if (ahead.token().empty()) return false;
    ahead.skip_space();
    return ahead.take('=') && ahead.peek() != '=' && !ahead.done() && ahead.peek() != ',';
  }

 private:
  std::string_view rest_;
};

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

Error malformed(std::string_view header) {
  return Error::invalid("WWW-Authenticate: found '" + printable(header, 120) +
                        "'; allowed is SCHEME NAME=\"VALUE\", …");
}

Result<Challenge> read_challenge(Reader& reader, std::string_view header) {
  Challenge challenge;
  challenge.scheme = lower(reader.token());
  if (challenge.scheme.empty()) return fail(malformed(header));
  if (reader.peek() != ' ' && reader.peek() != ',' && !reader.done()) {
    return fail(malformed(header));
  }
  reader.skip_space();
  if (reader.done() || reader.peek() == ',') return challenge;
  if (!reader.parameter_follows()) {
    if (!reader.skip_token68()) return fail(malformed(header));
    return challenge;
  }
  while (reader.parameter_follows()) {
    std::string name = lower(reader.token());
    reader.skip_space();
    reader.take('=');
    reader.skip_space();
    std::string value;
    if (reader.peek() == '"') {
      if (!reader.quoted(value)) return fail(malformed(header));
    } else {
      value = reader.token();
      if (value.empty()) return fail(malformed(header));
    }
    // Two readers of such a header would not agree on its meaning.
    if (!challenge.values.emplace(std::move(name), std::move(value)).second) {
      return fail(malformed(header));
    }
    reader.skip_space();
    if (!reader.done() && reader.peek() != ',') return fail(malformed(header));
    Reader behind = reader;
    behind.skip_separators();
    if (!behind.parameter_follows()) break;
    reader = behind;
  }
  return challenge;
}

}  // namespace

std::string Challenge::value(std::string_view name) const {
  const auto found = values.find(std::string(name));
  return found == values.end() ? std::string() : found->second;
}

Result<std::vector<Challenge>> parse_challenges(std::string_view header) {
  if (header.size() > kMaxHeader) return fail(malformed(header));
  std::vector<Challenge> challenges;
  Reader reader(header);
  for (reader.skip_separators(); !reader.done(); reader.skip_separators()) {
    if (challenges.size() == kMaxChallenges) return fail(malformed(header));
    TRY_ASSIGN(Challenge challenge, read_challenge(reader, header));
    challenges.push_back(std::move(challenge));
    reader.skip_space();
    if (!reader.done() && reader.peek() != ',') return fail(malformed(header));
  }
  return challenges;
}

Result<Url> token_url(const Challenge& challenge, const Url& registry,
                      std::string_view repository) {
  const std::string realm = challenge.value("realm");
  auto url = parse_url(realm);
  if (!url.has_value()) return fail(std::move(url).error().with("WWW-Authenticate: realm"));
  if (registry.secure && !url->secure) {
    return fail(Error::invalid("WWW-Authenticate: realm: found '" + url->shown() +
                               "'; allowed is https, as for the registry itself"));
  }
  if (!url->secure && !is_loopback_host(url->host) && url->host != registry.host) {
    return fail(Error::invalid("WWW-Authenticate: realm: found '" + url->shown() +
                               "'; allowed is https, or the registry's own host"));
  }
  if (is_loopback_host(url->host) && !is_loopback_host(registry.host)) {
    return fail(Error::invalid("WWW-Authenticate: realm: found '" + url->shown() +
                               "'; a registry elsewhere may not point to this host"));
  }
  std::string query;
  if (const std::string service = challenge.value("service"); !service.empty()) {
    query = "service=" + percent_encode(service) + "&";
  }
  query += "scope=" + percent_encode("repository:" + std::string(repository) + ":pull");
  url->target += (url->target.find('?') == std::string::npos ? "?" : "&") + query;
  return url;
}

Result<std::string> parse_token(std::string_view text) {
  TRY_ASSIGN(json::Value root, parse_object(text, "the token server's answer", 256 << 10));
  const Field top = {&root, ""};
  const auto bad = [] {
    // Not shown: it may be half of a secret.
    return fail(Error::invalid(
        "the token server's answer: allowed is \"token\" or \"access_token\" with a text that "
        "fits into a header"));
  };
  for (const char* key : {"token", "access_token"}) {
    const Field field = top.at(key);
    if (!field.present()) continue;
    const std::string* token = field.value->as_string();
    if (token == nullptr || token->size() > kMaxToken) return bad();
    if (token->empty()) continue;
    if (!std::ranges::all_of(*token, [](char c) { return c > 0x20 && c < 0x7f; })) return bad();
    return *token;
  }
  return bad();
}

}  // namespace caisson::image
