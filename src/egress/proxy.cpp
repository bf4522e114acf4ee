#include "egress/proxy.h"

#include <utility>

namespace caisson::egress {

Result<EgressProxy> EgressProxy::start(Fd, AllowList, ProxyLimits) {
  return fail(Error(Code::kUnimplemented, "there is no egress proxy yet"));
}
EgressProxy::EgressProxy(EgressProxy&& other) noexcept
    : control_(std::move(other.control_)), pid_(std::exchange(other.pid_, -1)) {}
EgressProxy& EgressProxy::operator=(EgressProxy&& other) noexcept {
  control_ = std::move(other.control_);
  pid_ = std::exchange(other.pid_, -1);
  return *this;
}
EgressProxy::~EgressProxy() = default;
Report EgressProxy::stop() {
  return {};
}
std::vector<std::string> EgressProxy::environment() {
  return {};
}

}  // namespace caisson::egress
