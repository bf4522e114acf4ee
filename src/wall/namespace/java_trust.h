// Java's own form of a list of authorities: Java reads no PEM.
//
// The form is JKS, which every Java reads, whatever it writes itself: entries with an alias, a time
// and a certificate, and a digest under the password "changeit", which every Java's own store has.
// It guards nothing: what stands in it is public. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::wall {

// `pem`: certificates one after another, with any text between them. What is no certificate in its
// armour is left out, as by other readers of such files. Error: invalid_argument where there are
// more than 4096, or where one is longer than 64 KiB.
Result<std::string> java_trust_store(std::string_view pem);

}  // namespace caisson::wall
