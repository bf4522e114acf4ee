#include "base/readiness.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace caisson {

Result<Readiness> Readiness::open() {
  constexpr const char* kVariable = "NOTIFY_SOCKET";
  const char* given = ::getenv(kVariable);
  if (given == nullptr || *given == '\0') return Readiness(Fd());
  const std::string name = given;
  ::unsetenv(kVariable);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if ((name[0] != '/' && name[0] != '@') || name.size() >= sizeof address.sun_path)
    return fail(Error::invalid(std::string(kVariable) + ": found '" + name +
                               "'; allowed is the path of a socket, or @NAME"));
  name.copy(address.sun_path, name.size());
  // '@': a name without a file.
  if (name[0] == '@') address.sun_path[0] = '\0';
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return fail_errno("socket");
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return fail_errno("connect to $NOTIFY_SOCKET " + name);
  return Readiness(std::move(socket));
}

void Readiness::tell(std::string_view text) const {
  if (!socket_.valid()) return;
  static_cast<void>(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace caisson
