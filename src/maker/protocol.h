// What a server and its caisson-maker say to each other: fixed binary requests and answers.
//
// A request is one message of a SOCK_SEQPACKET socket and comes with one descriptor, a socket of
// the same kind on which the answer goes back, and where its recipe has an authority with a second
// one, the keys; so that requests need no numbers and do not wait for
// each other. The side that reads a request trusts none of it. Pure;
// docs/formats/maker-protocol.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "maker/host.h"

namespace caisson::maker {

enum class Operation : std::uint8_t {
  kMake = 1,
  kConnect = 2,
  kKept = 3,
  kFindImage = 4,
  kImages = 5,
  kFindClientsImage = 6,
  kTakeSnapshot = 7,
  kOldSnapshots = 8,
  kDropSnapshot = 9,
  kStartBuilder = 10,
  kTemplateImages = 11,
  kDropTemplateImage = 12,
  kTrimCache = 13,
  kCheckNetwork = 14,
};

struct Request {
  Operation operation = Operation::kMake;
  Recipe recipe;  // kMake; its image is `name`
  // kConnect, kTakeSnapshot: the sandbox's id; kFindImage, kFindClientsImage, kDropSnapshot,
  // kDropTemplateImage: the image's name
  std::string name;
  std::string image = {};  // kTakeSnapshot: what the sandbox was made from
  CacheBound cache = {};   // kTrimCache
};

// Where caisson-template-builder finds its ends of a Builder's descriptors.
inline constexpr int kBuilderSocketFd = 3, kBuilderLifeFd = 4;

// Longer than any image's name.
inline constexpr std::size_t kMostName = 1024;
// A recipe has an image, three other texts, which a spec bounds lower, a network (60 KiB), a
// certificate (8) and a served domain (16).
inline constexpr std::size_t kMostRequest = 96 * 1024;
// Of one message, and of all that belong to one answer.
inline constexpr std::size_t kMostAnswer = 64 * 1024;
inline constexpr std::size_t kMostAnswers = 4u << 20;

std::string encode(const Request& request);
// Error: invalid_argument, with what was wrong.
Result<Request> decode_request(std::string_view bytes);

// An answer is any number of lists' parts and then one of the others.
std::vector<std::string> encode_list(const std::vector<std::string>& names);
std::string encode_made(const Made& made);
std::string encode_done();
std::string encode_error(const Error& error);

struct Answer {
  enum class Kind : std::uint8_t { kPart, kDone };
  Kind kind = Kind::kDone;
  // A part's names; of a sandbox that was made: id, user, workdir, image.
  std::vector<std::string> texts;
};
// Errors: the one that was answered; data_loss.
Result<Answer> decode_answer(std::string_view bytes);

}  // namespace caisson::maker
