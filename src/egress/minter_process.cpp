#include "egress/minter_process.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/child_process.h"
#include "base/json.h"
#include "base/paths.h"
#include "base/sys.h"
#include "egress/secret_command.h"

namespace caisson::egress {
namespace {

json::Value list_of(const std::vector<std::string>& texts) {
  json::Value list = json::Value::array();
  for (const std::string& text : texts) list.push(text);
  return list;
}

}  // namespace

Result<Fd> start_minter(const std::vector<MintedSecret>& secrets) {
  TRY_ASSIGN(const std::string program, helper_binary("caisson-minter"));
  TRY_ASSIGN(SocketPair sockets, make_socket_pair(SOCK_SEQPACKET));
  ChildProcess child;
  // It leaves our process' family at once, since it may outlive us; what is waited for is its
  // beginning.
  TRY(child.start(program, {program}, std::array{sockets.theirs.get()}));
  sockets.theirs.reset();
  json::Value start = json::Value::object(), commands = json::Value::array();
  for (const MintedSecret& secret : secrets) {
    json::Value one = json::Value::object();
    one.set("name", secret.name).set("command", list_of(secret.command));
    if (secret.ttl_ms) one.set("ttl_ms", *secret.ttl_ms);
    commands.push(std::move(one));
  }
  start.set("env", list_of(command_environment())).set("secrets", std::move(commands));
  TRY_ASSIGN(const Fd text, sys::memory_file("caisson-minter", json::serialize(start)));
  TRY(sys::send_message(sockets.ours.get(), "S", std::array{text.get()}));
  for (const MintedSecret& secret : secrets) {
    const SecretBytes word =
        encode_minted({.kind = MintedWord::Kind::kValue,
                       .secret = secret.name,
                       .minted = {.value = SecretValue(secret.value), .expires = secret.expires}});
    TRY(sys::send_message(sockets.ours.get(), {word.data(), word.size()}, {}));
  }
  const int status = child.wait();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(Error::internal("the process that runs the commands of secrets did not start"));
  return std::move(sockets.ours);
}

}  // namespace caisson::egress
