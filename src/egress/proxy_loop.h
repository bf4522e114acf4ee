// The life of the proxy's process, once it is confined: accepts, decides, counts.
#pragma once

#include "base/fd.h"
#include "egress/allow_list.h"
#include "egress/proxy.h"
#include "egress/resolver.h"

namespace caisson::egress {

// Until the other end of `control` says or is at its end: what was done.
Report run_proxy(const Fd& listener, const Fd& control, const AllowList& allowed,
                 const ProxyLimits& limits, Resolver resolver);

}  // namespace caisson::egress
