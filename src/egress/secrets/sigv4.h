// AWS's Signature Version 4 (AWS4-HMAC-SHA256): what a request's Authorization header says of its
// signature, and the signature that a key makes of a request. By AWS's documentation ("Create a
// signed AWS API request"), whose example requests are this file's tests.
//
// What is signed is the method, the path, the query, some of the headers and the body's hash, in
// one spelling, the canonical request. A server makes it of what it received, so it has to be made
// of exactly what is sent. Pure, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "http/message.h"

namespace caisson::egress::sigv4 {

inline constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
// Of any version and algorithm.
inline constexpr std::string_view kAnyAlgorithm = "AWS4-";

// For what a derived key holds.
struct Scope {
  std::string date;  // "20130524"
  std::string region, service;
  // "20130524/us-east-1/s3/aws4_request"
  std::string text() const;
  bool operator==(const Scope&) const = default;
};

struct Authorization {
  std::string access_key;
  Scope scope;
  std::vector<std::string> signed_headers;  // in small letters, ascending, "host" among them
  std::string signature;                    // 64 hexadecimal digits
  bool operator==(const Authorization&) const = default;
};

// The value of the header: the algorithm, then Credential, SignedHeaders and Signature in any
// order, each once. nullopt: it is anything else.
std::optional<Authorization> parse_authorization(std::string_view value);
std::string written(const Authorization& authorization);

// "20130524T000000Z".
std::string timestamp(std::chrono::system_clock::time_point time);
// Whether it is of that form.
bool is_timestamp(std::string_view text);

// A path with the escapes of the canonical form, and those alone.
std::string encoded_path(std::string_view path);
// Every parameter with the escapes of the canonical form, in order; `query` without its question
// mark. A '+' is itself.
std::string canonical_query(std::string_view query);

// The canonical request, with `path` and `query` as they are to stand there.
std::string canonical_request(const http::RequestHead& head, std::string_view path,
                              std::string_view query,
                              const std::vector<std::string>& signed_headers,
                              std::string_view payload);

// The key of one day, region and service.
SecretValue derived_key(std::string_view secret_key, const Scope& scope);
// The signature under a derived key, in hexadecimal digits. `time` is a timestamp().
std::string signature(std::string_view derived_key, std::string_view time, const Scope& scope,
                      std::string_view canonical_request);

}  // namespace caisson::egress::sigv4
