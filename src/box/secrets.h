// The values of a sandbox's secrets, fetched by whoever makes it: from a variable, a file, a
// descriptor or a command of the caller's. They go to the gateway alone (egress/gateway_process.h);
// the sandbox gets placeholders.
#pragma once

#include <caisson/network.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/secret.h"
#include "base/time_text.h"

namespace caisson::box {

struct FetchedSecrets {
  std::vector<SecretValue> values;            // in the policy's order
  std::vector<std::optional<WallTime>> ends;  // of each; nullopt: none
};
// Blocks on what is read, and runs what is a command (egress/secret_command.h). Error: with the
// secret's name and nothing of its value.
Result<FetchedSecrets> fetch_secrets(const policy::NetworkPolicy& policy);

// A process that runs the commands again when their values are about to end; invalid where no
// secret has a command, or none of their values ends.
Result<Fd> start_minter(const policy::NetworkPolicy& policy, const FetchedSecrets& secrets);

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
