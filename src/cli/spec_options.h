// The options that make a spec, shared by every command that makes a sandbox.
#pragma once

#include <caisson/spec.h>

#include <array>

#include "base/error.h"
#include "cli/args.h"

namespace caisson::cli {

extern const std::array<Option, 18> kAccessOptions;
extern const std::array<Option, 14> kLimitOptions;

// The document of --spec, or else `defaults`, with the other options laid over it and the
// positional arguments as the command; validated. Errors name the option or the document's key. The
// only calls to the host are reading the document and looking whether a granted path is a
// directory.
Result<SandboxSpec> spec_from(const Parsed& parsed, policy::SpecValues defaults);

}  // namespace caisson::cli
