// caisson-serve: the server. Reads its configuration, opens what it keeps, takes up the sandboxes
// of the server before it, and serves until it is told to stop; its sandboxes go on without it.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/database_keys.h"
#include "api/database_secrets.h"
#include "api/database_snapshots.h"
#include "api/e2b/envd.h"
#include "api/ground.h"
#include "api/service.h"
#include "api/templates/local_templates.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/sys.h"
#include "build/template_job.h"
#include "db/keys.h"
#include "db/server_secret.h"
#include "db/teams.h"
#include "egress/allow_list.h"
#include "egress/served_domain.h"
#include "fleet/database_records.h"
#include "fleet/local_fleet.h"
#include "fleet/network.h"
#include "fleet/quota.h"
#include "http/server.h"
#include "io/dev_ca.h"
#include "io/log.h"
#include "io/race.h"
#include "io/tls.h"
#include "io/turns.h"
#include "policy/host_name.h"
#include "policy/names.h"
#include "policy/server_config.h"

namespace caisson::api {
namespace {

constexpr int kStatusOfOurError = 125;
constexpr std::chrono::seconds kDrainTime{15};
constexpr std::chrono::minutes kSweepEvery{5};
// Images that are made or dropped at a time: each takes one of the loop's threads for long.
constexpr std::size_t kImagesAtOnce = 2;
constexpr std::size_t kMostCertificate = 12 * 1024;

struct Arguments {
  std::string config;
  std::vector<policy::GivenFlag> flags;
  bool print_config = false, print_address = false;
};

Result<Arguments> parse_arguments(int count, char** values) {
  Arguments arguments;
  for (int at = 1; at < count; ++at) {
    std::string_view flag = values[at];
    if (flag == "--print-config") {
      arguments.print_config = true;
    } else if (flag == "--print-address") {
      arguments.print_address = true;
    } else if (flag.starts_with("--")) {
      std::string_view text;
      if (const auto equals = flag.find('='); equals != std::string_view::npos) {
        text = flag.substr(equals + 1);
        flag = flag.substr(0, equals);
      } else if (at + 1 < count) {
        text = values[++at];
      } else {
        return fail(Error::invalid(std::string(flag) + ": a value must follow"));
      }
      if (flag == "--config") {
        arguments.config = text;
      } else {
        arguments.flags.push_back({flag, text});
      }
    } else {
      return fail(Error::invalid("found '" + std::string(flag) + "', allowed are options alone"));
    }
  }
  return arguments;
}

// Every connection and sandbox takes descriptors.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<bool> has_key(db::Database& database) {
  TRY_ASSIGN(const db::Team team, db::Teams(database).find(db::kDefaultTeam));
  TRY_ASSIGN(const auto present, db::Keys(database).list(team.id));
  return !present.empty();
}

Result<std::string> make_first_key(db::Database& database) {
  TRY_ASSIGN(const db::Team team, db::Teams(database).find(db::kDefaultTeam));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  TRY_ASSIGN(
      db::NewApiKey made,
      db::Keys(database).create(
          team.id, "first", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
  return std::move(made.secret);
}

// Ends kept sandboxes that no record names: those of a pool, and those whose record was lost.
io::Async<std::size_t> end_strangers(io::Loop& loop, fleet::Host& host,
                                     std::set<std::string> known) {
  auto list = [&host] { return host.kept(); };
  const auto all = co_await loop.in_pool(std::move(list));
  std::size_t ended = 0;
  if (!all.has_value()) co_return ended;
  for (const std::string& id : *all) {
    if (known.contains(id)) continue;
    co_await fleet::end_sandbox(loop, host, id);
    ++ended;
  }
  co_return ended;
}

io::Log::Level level_of(policy::LogLevel level) {
  switch (level) {
    case policy::LogLevel::kDebug:
      return io::Log::Level::kDebug;
    case policy::LogLevel::kInfo:
      return io::Log::Level::kInfo;
    case policy::LogLevel::kWarn:
      return io::Log::Level::kWarning;
    case policy::LogLevel::kError:
      return io::Log::Level::kError;
  }
  return io::Log::Level::kInfo;
}

// All that a running server is made of, in the order in which it is made.
class Program {
 public:
  Program(policy::ServerConfig config, Arguments arguments, Ground ground)
      : config_(std::move(config)),
        arguments_(std::move(arguments)),
        ground_(std::move(ground)),
        log_(STDERR_FILENO, level_of(config_.log_level)),
        loop_(config_.threads) {}

  // What can fail before anything is served.
  Status prepare();
  // Until it was told to stop.
  int run();

 private:
  Status prepare_tls();
  Status say_who_serves(const std::string& host, unsigned short listens_at);
  // Whether sandboxes can have one.
  void look_at_network();
  fleet::FleetOptions fleet_options();
  io::Async<Result<fleet::Template>> find_template(std::string team, std::string name);
  io::Async<void> sweep_snapshots();
  io::Async<void> keep_templates();
  io::Async<void> start();
  io::Async<void> drain();
  Status watch(int control_fd, const char* whose);
  io::Async<void> watch_control(std::unique_ptr<io::Stream> control, const char* whose);
  void say_where(unsigned short port) const;

  const policy::ServerConfig config_;
  const Arguments arguments_;
  Ground ground_;
  const io::Log log_;
  io::Loop loop_;
  std::string first_key_;
  std::optional<db::ServerSecret> secret_;
  std::shared_ptr<fleet::SharedDatabase> database_;
  std::optional<db::Variables> variables_;
  const std::shared_ptr<io::Turns> image_turns_ = std::make_shared<io::Turns>(loop_, kImagesAtOnce);
  std::optional<DatabaseSnapshots> snapshots_;
  std::shared_ptr<const vault::Vault> vault_;
  std::optional<DatabaseSecrets> secrets_;
  std::optional<DatabaseKeys> database_keys_;
  std::optional<CachedKeys> keys_;
  std::optional<LocalTemplates> templates_;
  std::optional<fleet::DatabaseQuotas> quotas_;
  std::optional<fleet::LocalFleet> fleet_;
  std::optional<e2b::DataPlane> data_plane_;
  std::optional<Service> service_;
  std::unique_ptr<io::Listener> listener_, tls_listener_, ports_listener_;
  std::shared_ptr<io::TlsIdentity> identity_;
  std::string served_domain_;  // egress/served_domain.h
  std::string domain_;         // as clients are told: with the port, where it is not 443
  std::string ca_;             // of tls.dev: the file that clients must trust
  std::optional<http::Server> server_, ports_server_;
  Egress egress_;
  bool stopping_ = false;
  int status_ = 0;
};

Status Program::prepare() {
  const std::string directory = db::server_directory(config_.state_directory);
  TRY_ASSIGN(db::Database database, db::Database::open(db::database_path(config_.state_directory)));
  TRY_ASSIGN(secret_, db::ServerSecret::open(directory));
  TRY_ASSIGN(const bool keyed, has_key(database));
  // It is for who sees it now, and not for a journal that keeps it.
  if (!keyed && (arguments_.print_address || ::isatty(STDOUT_FILENO) == 1)) {
    TRY_ASSIGN(first_key_, make_first_key(database));
  } else if (!keyed) {
    log_.write(io::Log::Level::kWarning, "no API key yet; make one with caisson key create");
  }
  TRY_ASSIGN(variables_, db::Variables::open(config_.run_directory));
  database_ = std::make_shared<fleet::SharedDatabase>(loop_, std::move(database));
  TRY(watch(ground_.host.control_fd(), "caisson-maker"));
  TRY(watch(ground_.vault.control_fd(), "caisson-vault"));
  if (!ground_.vault.not_locked().empty())
    log_.write(io::Log::Level::kWarning, "secrets may be written to swap space",
               {{"error", ground_.vault.not_locked()}});
  TRY_ASSIGN(listener_, io::adopt_listener(loop_, std::move(ground_.plain)));
  if (config_.tls.listen.has_value()) TRY(prepare_tls());
  look_at_network();
  return {};
}

void Program::look_at_network() {
  egress_.usual = config_.e2b_network;
  const Status can = ground_.host.check_network();
  egress_.exists = can.has_value();
  if (!egress_.exists)
    log_.write(io::Log::Level::kWarning, "sandboxes have no network on this host",
               {{"error", can.error().message()}});
  else
    log_.write(io::Log::Level::kInfo, "sandboxes have a network gateway",
               {{"default_network", policy::to_string(egress_.usual)}});
}

Status Program::prepare_tls() {
  std::string certificate = config_.tls.certificate, key = config_.tls.key;
  const std::string host = config_.tls.domain.substr(0, config_.tls.domain.find(':'));
  if (config_.tls.dev) {
    TRY_ASSIGN(io::DevCa made, io::make_dev_ca(config_.state_directory + "/tls", host));
    certificate = std::move(made.certificate);
    key = std::move(made.key);
    ca_ = std::move(made.ca_certificate);
  }
  TRY_ASSIGN(identity_, io::TlsIdentity::load(std::move(certificate), std::move(key)));
  TRY_ASSIGN(auto below, io::adopt_listener(loop_, std::move(ground_.tls)));
  domain_ = config_.tls.domain;
  constexpr unsigned short kUsualPort = 443;
  if (domain_ == host && below->port() != kUsualPort)
    domain_ += ":" + std::to_string(below->port());
  TRY_ASSIGN(auto ports, io::adopt_listener(loop_, std::move(ground_.ports)));
  TRY(say_who_serves(host, ports->port()));
  tls_listener_ = io::wrap_tls_server(loop_, std::move(below), identity_);
  ports_listener_ = io::wrap_tls_server(loop_, std::move(ports), identity_);
  return {};
}

// To the gateways of sandboxes, which may ask for another's port.
Status Program::say_who_serves(const std::string& host, unsigned short listens_at) {
  if (host.empty()) return {};
  const std::size_t colon = domain_.find(':');
  constexpr std::uint16_t kUsualPort = 443;
  egress::ServedDomain served{.domain = policy::canonical_host(host).value_or(policy::Host()).name,
                              .port = kUsualPort};
  if (colon != std::string::npos) {
    TRY_ASSIGN(served.port, policy::parse_port(std::string_view(domain_).substr(colon + 1)));
  }
  served.address = "127.0.0.1:" + std::to_string(listens_at);
  if (!ca_.empty()) {
    TRY_ASSIGN(served.authority, sys::read_file(AT_FDCWD, ca_, kMostCertificate));
  }
  served_domain_ = egress::encode(served);
  // A domain that no name can have is no sandbox's.
  if (!egress::parse_served_domain(served_domain_).has_value()) served_domain_.clear();
  return {};
}

fleet::FleetOptions Program::fleet_options() {
  fleet::FleetOptions options;
  options.pool = Catalogue(loop_, ground_.host, config_).pool();
  options.pool_in_use = config_.pool_in_use;
  if (egress_.exists) options.made_network = fleet::served_network({.unmatched = egress_.usual});
  options.find_template = [this](std::string team, std::string name) {
    return find_template(std::move(team), std::move(name));
  };
  options.quota = [this](std::string team) { return quotas_->of(std::move(team)); };
  options.most_running = config_.max_sandboxes;
  options.building = [this](std::optional<std::string_view> team) {
    return templates_->building(team);
  };
  options.most_paused = config_.max_paused.value_or(config_.max_sandboxes);
  options.usual_life = config_.defaults.lifetime_ms.has_value()
                           ? std::chrono::seconds(*config_.defaults.lifetime_ms / 1000)
                           : fleet::kLongestLife;
  options.image_turns = image_turns_;
  options.served_domain = served_domain_;
  options.vault = vault_;
  options.inspect_later = config_.e2b_inspect_later;
  options.kept_values = [this](std::string team, std::vector<std::string> names) {
    return kept_values(database_, std::move(team), std::move(names));
  };
  options.token = [this](std::string_view id, std::string_view purpose) {
    return secret_->token(
        purpose == "traffic" ? db::TokenPurpose::kTraffic : db::TokenPurpose::kEnvdAccess, id);
  };
  return options;
}

// A template, else a snapshot: no name is both.
io::Async<Result<fleet::Template>> Program::find_template(std::string team, std::string name) {
  auto found = co_await templates_->to_make(team, name);
  if (found.has_value() || found.error().code() != Code::kNotFound) co_return found;
  auto snapshot = co_await snapshots_->to_make(std::move(team), std::move(name));
  if (snapshot.has_value()) co_return snapshot;
  co_return found;
}

io::Async<void> Program::sweep_snapshots() {
  for (;;) {
    const Status swept = co_await snapshots_->sweep();
    if (!swept.has_value())
      log_.write(io::Log::Level::kWarning, "images of snapshots could not be swept",
                 {{"error", swept.error().message()}});
    co_await io::Loop::sleep(kSweepEvery);
  }
}

io::Async<void> Program::keep_templates() {
  auto report = [this](const Error& error) {
    log_.write(io::Log::Level::kWarning, "what builds left could not be swept",
               {{"error", error.message()}});
  };
  co_await templates_->keep_house(std::move(report));
}

void Program::say_where(unsigned short port) const {
  const std::string url =
      "http://" + policy::to_string(policy::ListenAddress{config_.listen.address, port});
  log_.write(io::Log::Level::kInfo, "serving", {{"url", url}, {"domain", domain_}});
  if (arguments_.print_address) {
    json::Value line = json::Value::object();
    line.set("url", url);
    if (!first_key_.empty()) line.set("api_key", first_key_);
    if (!domain_.empty()) line.set("domain", domain_);
    if (!ca_.empty()) line.set("ca", ca_);
    std::printf("%s\n", json::serialize(line).c_str());
    std::fflush(stdout);
    return;
  }
  if (first_key_.empty()) return;
  // Told once, to whoever started it; it is not kept.
  std::printf(
      "The first API key, which is shown only now:\n\n  E2B_API_URL=%s\n"
      "  E2B_SANDBOX_URL=%s\n  E2B_API_KEY=%s\n\n",
      url.c_str(), url.c_str(), first_key_.c_str());
  std::fflush(stdout);
}

io::Async<void> Program::start() {
  auto adopted = co_await fleet_->adopt();
  if (!adopted.has_value()) {
    log_.write(io::Log::Level::kError, "the database cannot be read",
               {{"error", adopted.error().message()}});
    status_ = kStatusOfOurError;
    loop_.stop();
    co_return;
  }
  const std::size_t ended = co_await end_strangers(loop_, ground_.host, fleet_->host_ids());
  if (adopted->damaged > 0)
    log_.write(io::Log::Level::kError,
               "records of sandboxes cannot be read: these run on, and are looked at again",
               {{"damaged", adopted->damaged}});
  log_.write(io::Log::Level::kInfo, "sandboxes of an earlier server",
             {{"running", adopted->running},
              {"paused", adopted->paused},
              {"lost", adopted->lost},
              {"unreached", adopted->unreached},
              {"damaged", adopted->damaged},
              {"ended", ended}});
  const auto cleaned = co_await templates_->prepare();
  if (!cleaned.has_value())
    log_.write(io::Log::Level::kError, "what builds of an earlier server left stays for now",
               {{"error", cleaned.error().message()}});
  loop_.spawn(sweep_snapshots());
  loop_.spawn(keep_templates());
  fleet_->start_pool();
  const unsigned short port = listener_->port();
  server_->serve(std::move(listener_));
  if (tls_listener_ != nullptr)
    server_->serve(std::move(tls_listener_), http::Server::Transport::kTls);
  if (ports_listener_ != nullptr)
    ports_server_->serve(std::move(ports_listener_), http::Server::Transport::kTls);
  service_->set_state(Service::State::kReady);
  say_where(port);
  ground_.readiness.tell("READY=1");
}

io::Async<void> Program::drain() {
  service_->set_state(Service::State::kStopping);
  ground_.readiness.tell("STOPPING=1");
  log_.write(io::Log::Level::kInfo, "stopping; sandboxes go on");
  const auto until = io::Clock::now() + kDrainTime;
  co_await io::both(server_->drain(until), ports_server_->drain(until));
  co_await templates_->close();
  co_await fleet_->close();
  loop_.stop();
}

// Nothing can be made without these, and only whoever has the rights can start another: the server
// ends, to be started again.
Status Program::watch(int control_fd, const char* whose) {
  Fd control(::fcntl(control_fd, F_DUPFD_CLOEXEC, 0));
  if (!control.valid()) return fail_errno("fcntl F_DUPFD_CLOEXEC");
  TRY_ASSIGN(auto stream, io::adopt(loop_, std::move(control)));
  loop_.spawn(watch_control(std::move(stream), whose));
  return {};
}

io::Async<void> Program::watch_control(std::unique_ptr<io::Stream> control, const char* whose) {
  char room[1];
  std::ignore = co_await control->read(room);
  if (stopping_) co_return;
  log_.write(io::Log::Level::kError, "what the server needs has ended, and so does the server",
             {{"process", whose}});
  status_ = kStatusOfOurError;
  loop_.stop();
}

int Program::run() {
  templates_.emplace(LocalTemplates::Parts{
      .loop = loop_,
      .config = config_,
      .database = database_,
      .host = ground_.host,
      .uploads = db::server_directory(config_.state_directory) + "/uploads",
      .upload_token =
          [this](std::string_view what) { return secret_->token(db::TokenPurpose::kUpload, what); },
      .quota = [this](std::string team) { return quotas_->of(std::move(team)); },
      .room = [this](std::string team) { return fleet_->room(std::move(team)); }});
  quotas_.emplace(database_, config_);
  vault_ = std::make_shared<const vault::Client>(std::move(ground_.vault));
  fleet_.emplace(loop_, ground_.host, fleet_options(),
                 std::make_unique<fleet::DatabaseRecords>(database_, std::move(*variables_)));
  database_keys_.emplace(database_);
  snapshots_.emplace(
      loop_, ground_.host, database_,
      DatabaseSnapshots::Options{.most = config_.max_snapshots, .turns = image_turns_});
  keys_.emplace(*database_keys_);
  secrets_.emplace(loop_, database_, vault_, *fleet_);
  data_plane_.emplace(*fleet_);
  service_.emplace(Service::Parts{.backend = {.loop = loop_,
                                              .fleet = *fleet_,
                                              .templates = *templates_,
                                              .snapshots = *snapshots_,
                                              .secrets = *secrets_,
                                              .domain = domain_,
                                              .egress = egress_},
                                  .keys = *keys_,
                                  .log = log_,
                                  .sandbox =
                                      [this](http::Exchange& exchange, SandboxAddress address) {
                                        return data_plane_->serve(exchange, std::move(address));
                                      },
                                  .server_counts = [this] { return server_->counts(); }});
  http::Limits limits;
  limits.connections = config_.max_connections;
  server_.emplace(loop_, limits,
                  [this](http::Exchange& exchange) { return service_->handle(exchange); });
  ports_server_.emplace(
      loop_, limits, [this](http::Exchange& exchange) { return service_->handle_port(exchange); });
  for (const int number : {SIGTERM, SIGINT}) {
    loop_.on_signal(number, [this] {
      if (!std::exchange(stopping_, true)) return loop_.spawn(drain());
      loop_.stop();
    });
  }
  // A certificate that was renewed.
  loop_.on_signal(SIGHUP, [this] {
    if (identity_ == nullptr) return;
    const auto reloaded = identity_->reload();
    log_.write(reloaded.has_value() ? io::Log::Level::kInfo : io::Log::Level::kError,
               "the certificate was read again",
               {{"error", reloaded.has_value() ? "" : reloaded.error().message()}});
  });
  loop_.spawn(start());
  loop_.run();
  return status_;
}

// What builds of templates reach is decided by whoever starts the maker, and not asked of it.
Status tell_builders(const policy::ServerConfig& config) {
  if (auto hosts = egress::AllowList::parse(config.builds.hosts); !hosts.has_value())
    return fail(std::move(hosts).error().with("builds.hosts"));
  const auto list = [](const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
    return text;
  };
  ::setenv(build::kHostsVariable, list(config.builds.hosts).c_str(), 1);
  ::setenv(build::kRegistriesVariable, list(config.builds.registries).c_str(), 1);
  return {};
}

int serve(int count, char** values) {
  const auto say = [](const Error& error) {
    std::fprintf(stderr, "caisson serve: %s\n", error.message().c_str());
    return kStatusOfOurError;
  };
  auto arguments = parse_arguments(count, values);
  if (!arguments.has_value()) return say(arguments.error());
  auto config = policy::load_server_config(arguments->config, arguments->flags);
  if (!config.has_value()) return say(config.error());
  if (arguments->print_config) {
    std::fputs(policy::print_server_config(*config).c_str(), stdout);
    return 0;
  }
  // A folder of its own: what `caisson run` makes is not the server's to end.
  config->run_directory += "/serve";
  ::setenv("CAISSON_STATE_DIR", config->state_directory.c_str(), 1);
  ::setenv("CAISSON_RUN_DIR", config->run_directory.c_str(), 1);
  if (const Status told = tell_builders(*config); !told.has_value()) return say(told.error());
  ::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();
  auto ground = Ground::prepare(*config);
  if (!ground.has_value()) return say(ground.error());
  Program program(std::move(*config), std::move(*arguments), std::move(*ground));
  if (const auto prepared = program.prepare(); !prepared.has_value()) return say(prepared.error());
  return program.run();
}

}  // namespace
}  // namespace caisson::api

int main(int count, char** values) {
  // What a request frees stays for the next: by default each thread's memory is given back to the
  // kernel beyond 128 KiB, piece by piece, and asked for again with a fault for every page.
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  return caisson::api::serve(count, values);
}
