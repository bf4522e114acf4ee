// What a spec says to the launcher: the parts of its plan that follow from the spec, the account
// and the image's defaults alone.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "box/accounts.h"
#include "box/image_defaults.h"
#include "box/image_plan.h"
#include "policy/spec.h"
#include "wall/plan.h"

namespace caisson::box {

// The limits, the profile and who commands run as.
wall::Plan plan_of(const policy::SpecValues& spec, const Account& account);
// Whom programs inside trust: the image's authorities alone, or their gateway's too, of which
// variables tell them.
enum class Trust : bool { kImage, kGateway };
// What every command in the sandbox has: variables, the working directory, the image's volumes.
// Error: invalid_argument where there are too many variables.
Status add_defaults(wall::Plan& plan, const policy::SpecValues& spec, const ImageDefaults& defaults,
                    Trust trust);
// Sockets of the host in a granted directory are covered by a device that cannot be opened there:
// `cover`, which is opened where it is needed and which `descriptors` then borrows.
Status cover_sockets(const policy::Grant& grant, int directory_fd, wall::Plan& plan,
                     PlanDescriptors& descriptors, Fd& cover);

}  // namespace caisson::box
