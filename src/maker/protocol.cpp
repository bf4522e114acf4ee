#include "maker/protocol.h"

#include <algorithm>
#include <array>
#include <limits>

namespace caisson::maker {
namespace {

constexpr std::string_view kMagic = "CSNMAKE1";
constexpr std::size_t kLimits = 4;
constexpr std::size_t kNumberBytes = 8;
constexpr std::size_t kHeader = kMagic.size() + 1 + kLimits * kNumberBytes;
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kIdBytes = 32;

// Between a sandbox's id and its image: in no id.
constexpr char kBeforeImage = '@';
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

Status check_name(const Request& request) {
  const std::string& name = request.name;
  const bool wanted = request.operation != Operation::kKept &&
                      request.operation != Operation::kImages &&
                      request.operation != Operation::kOldSnapshots &&
                      request.operation != Operation::kStartBuilder &&
                      request.operation != Operation::kTemplateImages;
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
  for (const policy::LimitValue& limit :
       {recipe.cpu_milli, recipe.memory_bytes, recipe.disk_bytes, recipe.pids})
    put_number(bytes, limit.value_or(kUnlimited));
  bytes += request.operation == Operation::kMake ? recipe.image : request.name;
  if (request.operation == Operation::kTakeSnapshot) bytes += kBeforeImage + request.image;
  return bytes;
}

Result<Request> decode_request(std::string_view bytes) {
  if (!bytes.starts_with(kMagic))
    return fail(Error::invalid("a request that is not of this version"));
  if (bytes.size() < kHeader) return fail(Error::invalid("a request that ends too early"));
  const auto operation = static_cast<std::uint8_t>(bytes[kMagic.size()]);
  if (operation < static_cast<std::uint8_t>(Operation::kMake) ||
      operation > static_cast<std::uint8_t>(Operation::kDropTemplateImage))
    return fail(Error::invalid("a request of the unknown kind " + std::to_string(operation)));
  Request request{.operation = static_cast<Operation>(operation)};
  Recipe& recipe = request.recipe;
  const std::array<policy::LimitValue*, kLimits> limits = {&recipe.cpu_milli, &recipe.memory_bytes,
                                                           &recipe.disk_bytes, &recipe.pids};
  for (std::size_t i = 0; i < kLimits; ++i) {
    const std::uint64_t number = get_number(bytes, kMagic.size() + 1 + i * kNumberBytes);
    *limits[i] = number == kUnlimited ? policy::LimitValue() : policy::LimitValue(number);
  }
  request.name = bytes.substr(kHeader);
  if (request.operation == Operation::kTakeSnapshot) {
    const std::size_t at = request.name.find(kBeforeImage);
    if (at == std::string::npos || at + 1 == request.name.size() || request.name.size() > kMostName)
      return fail(Error::invalid("a request for a snapshot names no image"));
    request.image = request.name.substr(at + 1);
    request.name.resize(at);
    TRY(check_name({.operation = Operation::kFindImage, .name = request.image}));
  }
  TRY(check_name(request));
  if (request.operation == Operation::kMake) recipe.image = request.name;
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
