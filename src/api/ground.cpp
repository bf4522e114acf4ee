#include "api/ground.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>

#include "api/rights.h"
#include "base/sys.h"
#include "db/database.h"
#include "db/private_file.h"
#include "io/address.h"
#include "io/stream.h"

namespace caisson::api {
namespace {

constexpr std::size_t kMostAddress = 64;

std::string tls_folder(const policy::ServerConfig& config) {
  return config.state_directory + "/tls";
}

std::string variables_folder(const policy::ServerConfig& config) {
  return config.run_directory + "/served-env";
}

// Held by the one server of a folder for as long as it runs. Error: there is another one.
Result<Fd> lock_folder(const std::string& folder) {
  TRY_ASSIGN(const Fd directory, db::open_private_directory(folder));
  const std::string path = folder + "/lock";
  Fd file(::openat(directory.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("open " + path);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno != EWOULDBLOCK) return fail_errno("flock " + path);
  return fail(Error::precondition("another server uses " + folder +
                                  "; allowed is one, or --state-dir and --run-dir of its own"));
}

// Where gateways reach the server, which sandboxes that outlive it have been told: the same for as
// long as there is the run directory, whose sandboxes they are. Error: somebody else has it, who
// would get what is meant for us.
Result<Fd> bind_ports(const std::string& run_directory) {
  const std::string path = run_directory + "/ports-address";
  const auto known = sys::read_file(AT_FDCWD, path, kMostAddress);
  if (known.has_value()) {
    auto bound = io::bind_tcp(*known);
    if (bound.has_value()) return bound;
    return fail(std::move(bound).error().with(
        "sandboxes reach this server at " + *known + ", as " + path +
        " says; end what listens there, or all sandboxes of this server and then that file"));
  }
  if (known.error().error_number() != ENOENT) return fail(known.error());
  TRY_ASSIGN(Fd bound, io::bind_tcp("127.0.0.1:0"));
  const std::string address = io::own_address(bound.get()).text();
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("make " + path);
  if (::write(file.get(), address.data(), address.size()) != static_cast<ssize_t>(address.size())) {
    ::unlink(path.c_str());
    return fail_errno("write " + path);
  }
  return bound;
}

// The run directory stays root's, and sandboxes are found in it by the maker alone.
Status give_folders(const policy::ServerConfig& config, const ServerUser& user) {
  TRY(give_folder(db::server_directory(config.state_directory), user));
  TRY(make_passable(config.state_directory));
  if (config.tls.dev) TRY(give_folder(tls_folder(config), user));
  TRY(make_passable(config.run_directory.substr(0, config.run_directory.rfind('/'))));
  TRY(make_passable(config.run_directory));
  return give_folder(variables_folder(config), user);
}

// As who this process is by now.
Status check_reach(const std::string& path, int mode, const std::string& advice) {
  if (::access(path.c_str(), mode) == 0) return {};
  const int error_number = errno;
  return fail(Error::syscall("the server's user, uid " + std::to_string(::getuid()) +
                                 ", cannot use " + path + "; " + advice,
                             error_number));
}

Status check_reach(const policy::ServerConfig& config) {
  const std::string folder_advice = "others must be allowed to go through what is above it";
  for (const std::string& folder :
       {db::server_directory(config.state_directory), variables_folder(config)})
    TRY(check_reach(folder, R_OK | W_OK | X_OK, folder_advice));
  // Read now, and again when they were renewed.
  for (const std::string& file : {config.tls.certificate, config.tls.key})
    if (!file.empty()) TRY(check_reach(file, R_OK, "it must be readable for that user"));
  return {};
}

}  // namespace

Result<Ground> Ground::prepare(const policy::ServerConfig& config) {
  std::optional<ServerUser> user;
  if (::geteuid() == 0) {
    TRY_ASSIGN(user, find_server_user(config.user));
  }
  const std::string state = db::server_directory(config.state_directory);
  TRY_ASSIGN(Fd state_lock, lock_folder(state));
  TRY_ASSIGN(Fd run_lock, lock_folder(config.run_directory));
  // Clients are told to trust the certificate in it.
  const std::string tls = tls_folder(config);
  if (config.tls.dev && ::mkdir(tls.c_str(), 0755) != 0 && errno != EEXIST)
    return fail_errno("make " + tls);
  if (user.has_value()) TRY(give_folders(config, *user));
  // Bound before anything is made, since that is what a second server fails at.
  TRY_ASSIGN(Fd plain, io::bind_tcp(policy::to_string(config.listen)));
  Fd secure, ports;
  if (config.tls.listen.has_value()) {
    TRY_ASSIGN(secure, io::bind_tcp(policy::to_string(*config.tls.listen)));
    TRY_ASSIGN(ports, bind_ports(config.run_directory));
  }
  TRY_ASSIGN(Readiness readiness, Readiness::open());
  TRY_ASSIGN(maker::Client host, maker::Client::start(config.sandbox_group));
  TRY_ASSIGN(vault::Client vault, vault::Client::start());
  if (user.has_value()) {
    TRY(become(*user));
    TRY(check_reach(config));
  }
  TRY(confine_server());
  return Ground{.locks = {std::move(state_lock), std::move(run_lock)},
                .plain = std::move(plain),
                .tls = std::move(secure),
                .ports = std::move(ports),
                .readiness = std::move(readiness),
                .host = std::move(host),
                .vault = std::move(vault)};
}

}  // namespace caisson::api
