// What a server and its caisson-vault say to each other: fixed binary requests and answers.
//
// A request is one message of a SOCK_SEQPACKET socket with a descriptor, a socket of the same kind
// on which the answer goes back; kKeep has a second one, the pipe with a request's body. So
// requests need no numbers, and one that is answered by nobody is seen to be. The side that reads
// trusts none of it. Nothing in an answer is a value. Pure; docs/formats/vault-protocol.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/secret.h"
#include "vault/vault.h"

namespace caisson::vault {

enum class Operation : std::uint8_t {
  kSeal = 1,
  kKeep = 2,
  kMakeKeys = 3,
  kSealForGateway = 4,
};

struct Request {
  Operation operation = Operation::kSeal;
  // kSeal: the policy's secrets, as the JSON of a policy that has nothing else
  // (policy/network_document.h), and what was sealed before.
  std::string rules = {}, before = {};
  std::vector<GivenSecret> values = {};  // kSeal
  std::string id = {};                   // kKeep: the secret's; kSealForGateway: the keys' number
  std::string sealed = {};               // kSealForGateway
};

// Of one message. What a gateway can be told at all is a third of it (launcher/gateway_protocol.h).
inline constexpr std::size_t kMostRequest = 192 * 1024;
inline constexpr std::size_t kMostAnswer = 160 * 1024;
inline constexpr std::size_t kMostValues = 1024;

// The bytes hold values, and wipe them.
SecretBytes encode(const Request& request);
// Error: invalid_argument, with what was wrong.
Result<Request> decode_request(std::string_view bytes);

// An answer's texts: kSeal the sealed secrets, and a name and a placeholder for each variable;
// kKeep the sealed value and the rest of the body; kMakeKeys the number and the certificate;
// kSealForGateway the sealed secrets.
std::string encode_done(const std::vector<std::string>& texts);
std::string encode_error(const Error& error);
// Errors: the one that was answered; data_loss.
Result<std::vector<std::string>> decode_answer(std::string_view bytes);

}  // namespace caisson::vault
