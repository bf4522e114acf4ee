#include "maker/protocol.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

#include "maker/recipe.h"

namespace caisson::maker {
namespace {

constexpr std::string_view kMagic = "CSNMAKE1";
constexpr std::size_t kNumberBytes = 8;
// One byte each, and what it may be at most.
constexpr std::uint8_t kChoices[] = {static_cast<std::uint8_t>(policy::WallKind::kMicrovm),
                                     static_cast<std::uint8_t>(policy::Privileges::kSudo),
                                     static_cast<std::uint8_t>(policy::SyscallProfile::kDebug),
                                     static_cast<std::uint8_t>(policy::OnRefusal::kKill),
                                     1 + static_cast<std::uint8_t>(policy::LayerKind::kQuota),
                                     1,
                                     1};
constexpr std::size_t kHeader =
    kMagic.size() + 1 + kSameLimits.size() * kNumberBytes + std::size(kChoices);
// Of a recipe: its image, user, workdir, hostname, network, authority and served domain, each but
// the first after one of these.
constexpr char kBetween = '\0';
constexpr std::size_t kTexts = 7;
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kIdBytes = 32;

// Between a sandbox's id and its image: in no id.
constexpr char kBeforeImage = '@';
// Between the bytes and the seconds of a bound; each is decimal, or this where there is none.
constexpr char kBetweenBounds = ':';
constexpr std::string_view kNoBound = "-";
constexpr char kDone = 0, kFailed = 1, kPart = 2;

void put_number(std::string& bytes, std::uint64_t number) {
  for (std::size_t i = 0; i < kNumberBytes; ++i)
    bytes += static_cast<char>((number >> (8 * i)) & 0xff);
}

std::uint64_t get_number(std::string_view bytes, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < kNumberBytes; ++i)
    number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return number;
}

std::string bound_text(policy::LimitValue bound) {
  return bound.has_value() ? std::to_string(*bound) : std::string(kNoBound);
}

Result<policy::LimitValue> read_bound(std::string_view text) {
  if (text == kNoBound) return policy::LimitValue();
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool plain = !text.empty() && (text.size() == 1 || text[0] != '0');
  if (!plain || error != std::errc() || end != text.data() + text.size())
    return fail(Error::invalid("a request to trim the cache has a bound that is no number"));
  return policy::LimitValue(number);
}

Result<CacheBound> read_cache_bound(std::string_view text) {
  const std::size_t at = text.find(kBetweenBounds);
  if (at == std::string_view::npos)
    return fail(Error::invalid("a request to trim the cache has one bound; it has two"));
  CacheBound bound;
  TRY_ASSIGN(bound.bytes, read_bound(text.substr(0, at)));
  TRY_ASSIGN(bound.seconds, read_bound(text.substr(at + 1)));
  return bound;
}

Status check_name(const Request& request) {
  const std::string& name = request.name;
  const bool wanted = request.operation != Operation::kKept &&
                      request.operation != Operation::kImages &&
                      request.operation != Operation::kOldSnapshots &&
                      request.operation != Operation::kStartBuilder &&
                      request.operation != Operation::kTemplateImages &&
                      request.operation != Operation::kCheckNetwork;
  if (name.empty() == wanted || name.size() > kMostName)
    return fail(Error::invalid("a request's name has " + std::to_string(name.size()) +
                               " bytes; allowed are " +
                               (wanted ? "1 to " + std::to_string(kMostName) : "none")));
  if (std::ranges::any_of(name, [](char c) { return c <= ' ' || c > '~'; }))
    return fail(Error::invalid("a request's name has a character that no name has"));
  // It becomes part of a path.
  const bool id = name.size() <= kIdBytes && std::ranges::all_of(name, [](char c) {
                    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
                  });
  const bool of_sandbox =
      request.operation == Operation::kConnect || request.operation == Operation::kTakeSnapshot;
  if (of_sandbox && !id) return fail(Error::invalid("a request about a sandbox names none"));
  if (request.operation == Operation::kDropTemplateImage && !name.starts_with(kTemplateNames))
    return fail(Error::invalid("a request about a template's image names another one"));
  return {};
}

// `bytes` are a header's.
Status read_recipe(std::string_view bytes, Recipe& recipe) {
  std::size_t at = 0;
  for (const SameLimit& limit : kSameLimits) {
    const std::uint64_t number = get_number(bytes, at);
    recipe.*limit.recipe = number == kUnlimited ? policy::LimitValue() : policy::LimitValue(number);
    at += kNumberBytes;
  }
  std::uint8_t choices[std::size(kChoices)];
  for (std::size_t i = 0; i < std::size(kChoices); ++i) {
    choices[i] = static_cast<std::uint8_t>(bytes[at + i]);
    if (choices[i] > kChoices[i])
      return fail(Error::invalid("a recipe with the unknown choice " + std::to_string(choices[i])));
  }
  recipe.wall = static_cast<policy::WallKind>(choices[0]);
  recipe.privileges = static_cast<policy::Privileges>(choices[1]);
  recipe.profile = static_cast<policy::SyscallProfile>(choices[2]);
  recipe.on_refusal = static_cast<policy::OnRefusal>(choices[3]);
  recipe.layer.reset();
  if (choices[4] != 0) recipe.layer = static_cast<policy::LayerKind>(choices[4] - 1);
  recipe.allow_emulation = choices[5] != 0;
  recipe.require_hard_limits = choices[6] != 0;
  return {};
}

// What they may hold is a spec's to say, which is made of the recipe and validated.
Status read_texts(std::string_view bytes, Recipe& recipe) {
  std::string* const texts[kTexts] = {&recipe.image,        &recipe.user,    &recipe.workdir,
                                      &recipe.hostname,     &recipe.network, &recipe.authority,
                                      &recipe.served_domain};
  for (std::size_t i = 0; i < kTexts; ++i) {
    const std::size_t end = bytes.find(kBetween);
    if ((end == std::string_view::npos) != (i + 1 == kTexts))
      return fail(Error::invalid("a recipe with too many or too few texts"));
    *texts[i] = bytes.substr(0, end);
    bytes.remove_prefix(std::min(bytes.size(), texts[i]->size() + 1));
  }
  return {};
}

// Texts one after the other, each ended by a zero.
std::vector<std::string> split_texts(std::string_view bytes) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\0');
    if (end == std::string_view::npos) return {};
    texts.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
  }
  return texts;
}

}  // namespace

std::string encode(const Request& request) {
  std::string bytes(kMagic);
  bytes += static_cast<char>(request.operation);
  const Recipe& recipe = request.recipe;
  for (const SameLimit& limit : kSameLimits)
    put_number(bytes, (recipe.*limit.recipe).value_or(kUnlimited));
  const std::uint8_t choices[std::size(kChoices)] = {
      static_cast<std::uint8_t>(recipe.wall),
      static_cast<std::uint8_t>(recipe.privileges),
      static_cast<std::uint8_t>(recipe.profile),
      static_cast<std::uint8_t>(recipe.on_refusal),
      static_cast<std::uint8_t>(recipe.layer.has_value() ? 1 + static_cast<int>(*recipe.layer) : 0),
      static_cast<std::uint8_t>(recipe.allow_emulation ? 1 : 0),
      static_cast<std::uint8_t>(recipe.require_hard_limits ? 1 : 0)};
  for (const std::uint8_t choice : choices) bytes += static_cast<char>(choice);
  if (request.operation == Operation::kMake) {
    bytes += recipe.image;
    for (const std::string& text : {recipe.user, recipe.workdir, recipe.hostname, recipe.network,
                                    recipe.authority, recipe.served_domain})
      bytes += kBetween + text;
    return bytes;
  }
  bytes += request.name;
  if (request.operation == Operation::kTrimCache)
    bytes += bound_text(request.cache.bytes) + kBetweenBounds + bound_text(request.cache.seconds);
  if (request.operation == Operation::kTakeSnapshot) bytes += kBeforeImage + request.image;
  return bytes;
}

Result<Request> decode_request(std::string_view bytes) {
  if (!bytes.starts_with(kMagic))
    return fail(Error::invalid("a request that is not of this version"));
  if (bytes.size() < kHeader) return fail(Error::invalid("a request that ends too early"));
  const auto operation = static_cast<std::uint8_t>(bytes[kMagic.size()]);
  if (operation < static_cast<std::uint8_t>(Operation::kMake) ||
      operation > static_cast<std::uint8_t>(Operation::kCheckNetwork))
    return fail(Error::invalid("a request of the unknown kind " + std::to_string(operation)));
  Request request{.operation = static_cast<Operation>(operation)};
  TRY(read_recipe(bytes.substr(kMagic.size() + 1), request.recipe));
  request.name = bytes.substr(kHeader);
  if (request.operation == Operation::kMake) {
    TRY(read_texts(request.name, request.recipe));
    request.name = request.recipe.image;
  }
  if (request.operation == Operation::kTakeSnapshot) {
    const std::size_t at = request.name.find(kBeforeImage);
    if (at == std::string::npos || at + 1 == request.name.size() || request.name.size() > kMostName)
      return fail(Error::invalid("a request for a snapshot names no image"));
    request.image = request.name.substr(at + 1);
    request.name.resize(at);
    TRY(check_name({.operation = Operation::kFindImage, .name = request.image}));
  }
  TRY(check_name(request));
  if (request.operation == Operation::kTrimCache) {
    TRY_ASSIGN(request.cache, read_cache_bound(request.name));
    request.name.clear();
  }
  return request;
}

std::vector<std::string> encode_list(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  std::string part(1, kPart);
  std::size_t all = 0;
  for (const std::string& name : names) {
    if (name.size() > kMostName || (all += name.size() + 1) > kMostAnswers) continue;
    if (part.size() + name.size() + 1 > kMostAnswer) {
      parts.push_back(std::move(part));
      part.assign(1, kPart);
    }
    part += name;
    part += '\0';
  }
  if (part.size() > 1) parts.push_back(std::move(part));
  return parts;
}

std::string encode_made(const Made& made) {
  std::string bytes(1, kDone);
  for (const std::string& text : {made.id, made.user, made.workdir, made.image}) {
    bytes += text;
    bytes += '\0';
  }
  return bytes;
}

std::string encode_done() {
  return std::string(1, kDone);
}

std::string encode_error(const Error& error) {
  std::string bytes(1, kFailed);
  bytes += static_cast<char>(error.code());
  return bytes + error.message().substr(0, kMostAnswer - bytes.size());
}

Result<Answer> decode_answer(std::string_view bytes) {
  if (bytes.empty()) return fail(Error(Code::kDataLoss, "an empty answer"));
  const char kind = bytes[0];
  if (kind == kFailed && bytes.size() >= 2) {
    const auto code = static_cast<std::uint8_t>(bytes[1]);
    if (code >= static_cast<std::uint8_t>(Code::kCancelled) &&
        code <= static_cast<std::uint8_t>(Code::kUnauthenticated))
      return fail(Error(static_cast<Code>(code), std::string(bytes.substr(2))));
  }
  if (kind != kDone && kind != kPart) return fail(Error(Code::kDataLoss, "an unknown answer"));
  return Answer{.kind = kind == kDone ? Answer::Kind::kDone : Answer::Kind::kPart,
                .texts = split_texts(bytes.substr(1))};
}

}  // namespace caisson::maker
