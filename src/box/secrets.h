// The values of a sandbox's secrets, fetched by whoever makes it: from a variable, a file or a
// descriptor of the caller's. They go to the gateway alone (egress/gateway_process.h); the sandbox
// gets placeholders.
#pragma once

#include <caisson/network.h>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/secret.h"

namespace caisson::box {

// In the policy's order. Blocks on what is read. Error: invalid_argument or not_found with the
// secret's name and nothing of its value; unimplemented for a command.
Result<std::vector<SecretValue>> fetch_secrets(const policy::NetworkPolicy& policy);

// One of them. Errors: as above, without the name.
Result<SecretValue> fetch_secret(const policy::SecretSource& source);

// Overwrites the variables that the values came from in this process' environment, whose beginning
// /proc/PID/environ shows for as long as it lives. For a program that has no other use for them;
// nobody may read the environment meanwhile.
void forget_variables(const policy::NetworkPolicy& policy);

// Puts the placeholders, in the policy's order, into a plan's environment ("NAME=VALUE"), in place
// of what the image sets there.
void add_placeholders(std::vector<std::string>& environment, const policy::NetworkPolicy& policy,
                      const std::vector<std::string>& placeholders);
// Error: a variable that is to be a secret's placeholder is set to something else as well.
Status check_variables(const policy::NetworkPolicy& policy,
                       const std::map<std::string, std::string>& env);

}  // namespace caisson::box
