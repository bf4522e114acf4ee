// Rules about secrets for tests: each with a placeholder and a value of the same length that are
// told apart at a glance.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "egress/secrets/secret_rules.h"

namespace caisson::egress::for_test {

using Place = policy::SecretPlace;
using PlaceKind = policy::SecretPlace::Kind;

inline constexpr std::string_view kValue = "ghp_RealRealRealRealRealRealReal0001";
inline constexpr std::string_view kPlaceholder = "ghp_FakeFakeFakeFakeFakeFakeFake0001";
inline constexpr std::string_view kOtherValue = "tok-REALrealREALrealREALreal-2";
inline constexpr std::string_view kOtherPlaceholder = "tok-FAKEfakeFAKEfakeFAKEfake-2";

inline SharedSecret shared(std::string_view value) {
  return std::make_shared<const SecretValue>(value);
}

inline policy::Host host(std::string_view text) {
  return policy::canonical_host(text).value();
}

// The secret "gh" for api.example.com and what is below example.org.
inline SecretEntry entry(std::vector<Place> in = {}) {
  SecretEntry made;
  made.rule.name = "gh";
  made.rule.env = "GH_TOKEN";
  made.rule.source = {.kind = policy::SecretSource::Kind::kEnv, .text = "TOKEN"};
  made.rule.hosts = {"api.example.com", "*.example.org"};
  made.rule.in = std::move(in);
  made.placeholder = kPlaceholder;
  made.value = shared(kValue);
  return made;
}

// The secret "other" for other.example.com.
inline SecretEntry other_entry(std::vector<Place> in = {}) {
  SecretEntry made = entry(std::move(in));
  made.rule.name = "other";
  made.rule.env = "OTHER_TOKEN";
  made.rule.hosts = {"other.example.com"};
  made.placeholder = kOtherPlaceholder;
  made.value = shared(kOtherValue);
  return made;
}

inline std::shared_ptr<const SecretRules> rules(std::vector<SecretEntry> entries) {
  auto made = SecretRules::create(std::move(entries));
  if (!made) {
    ADD_FAILURE() << made.error().message();
    return SecretRules::create({}).value();
  }
  return *made;
}

// The text with every match of `from` as `to`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace caisson::egress::for_test
