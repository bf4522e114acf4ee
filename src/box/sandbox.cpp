#include <caisson/sandbox.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/child_process.h"
#include "base/fd.h"
#include "base/paths.h"
#include "base/sys.h"
#include "box/access.h"
#include "box/accounts.h"
#include "box/connection.h"
#include "box/exec.h"
#include "box/files.h"
#include "box/host_path.h"
#include "box/image_defaults.h"
#include "box/image_plan.h"
#include "box/launch.h"
#include "box/layer_directory.h"
#include "box/network.h"
#include "box/registry.h"
#include "box/requests.h"
#include "box/result_json.h"
#include "box/secrets.h"
#include "box/spec_plan.h"
#include "image/kept_layer.h"
#include "image/registry/names.h"
#include "image/store.h"
#include "launcher/minter_socket.h"
#include "policy/network_document.h"
#include "policy/network_policy.h"
#include "policy/upstream_proxy.h"
#include "wall/plan.h"

namespace caisson {
namespace {

constexpr std::string_view kBaseImage = "base";
constexpr std::string_view kWallName = "namespace";
constexpr std::size_t kMostInfo = 8 * 1024;
// Bounds against a file that is only large because it has holes: results may have as many bytes as
// the sandbox's disk, but at least this; what a person copies by hand may have more.
constexpr std::uint64_t kLeastResults = 256ull << 20;
constexpr std::uint64_t kMostCopiedOut = 64ull << 30;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The image that a spec means, opened.
struct ResolvedImage {
  std::string name;
  std::optional<image::ImageRef> files;  // none: the host image
  std::string note;
};

Result<ResolvedImage> resolve_image(const std::string& asked) {
  ResolvedImage resolved;
  resolved.name = asked;
  if (asked == image::kHostImage) return resolved;
  if (asked.empty()) {
    // Opening the store costs more than a run without one may: look first.
    const std::string file = image::Reference{.name = std::string(kBaseImage)}.file_name();
    if (::access((state_directory() + "/images/refs/" + file).c_str(), F_OK) != 0) {
      resolved.name = image::kHostImage;
      resolved.note =
          "using the host image (this host's own /usr, read-only): there is no image 'base' here";
      return resolved;
    }
    resolved.name = kBaseImage;
  } else {
    TRY_ASSIGN(const policy::Settings settings, policy::load_settings());
    TRY_ASSIGN(resolved.name, image::local_name(asked, settings));
  }
  TRY_ASSIGN(image::Store store, image::Store::open());
  auto files = store.resolve(resolved.name);
  if (!files.has_value())
    return fail(image::with_pull_hint(std::move(files).error(), resolved.name));
  resolved.files = std::move(*files);
  return resolved;
}

// Who commands run as: the spec's user, else the image's, else ours.
Result<box::Account> account_of(const policy::SpecValues& spec, const box::ImageDefaults& defaults,
                                const image::ImageRef* files, const std::string& name) {
  const std::vector<int> root_fds = box::roots_of(files);
  const bool by_image = spec.user.empty() && !defaults.user.empty();
  TRY_ASSIGN(box::Account account,
             box::find_account(root_fds, by_image ? defaults.user : spec.user));
  if (by_image && !account.unknown.empty())
    return fail(Error::precondition("image " + name + ": its configuration's User: found '" +
                                    defaults.user + "', but it has no " + account.unknown +
                                    "; allowed are a user of its /etc/passwd and a group of its "
                                    "/etc/group, numbers, or another one by --user"));
  return account;
}

Status check_wall(const policy::SpecValues& spec) {
  if (spec.wall == policy::WallKind::kAuto || spec.wall == policy::WallKind::kNamespace) return {};
  return fail(Error(Code::kUnimplemented,
                    "wall: this build has the namespace wall; allowed are auto and namespace"));
}

image::KeptLayer layer_of(wall::Handouts handouts) {
  image::KeptLayer layer;
  layer.directory = std::move(handouts.layer);
  layer.record = std::move(handouts.record);
  layer.uid_lines = std::move(handouts.uid_lines);
  layer.gid_lines = std::move(handouts.gid_lines);
  layer.trusted_attributes = handouts.trusted_attributes;
  return layer;
}

}  // namespace

struct Sandbox::State {
  SandboxInfo info;
  std::vector<std::string> notes;
  std::optional<box::Launch> launch;  // of a sandbox that this object made
  std::optional<box::Connection> connection;
  std::optional<std::uint32_t> first_stream;  // of a command that was asked for already
  box::Account account;
  box::ImageDefaults image;
  policy::SpecValues wanted;  // the spec of a sandbox that this object made
  std::vector<std::pair<std::string, box::HostTarget>> outputs;
  std::uint64_t disk = 0;
  // The locks that keep the image's files in place.
  std::vector<Fd> image_in_use;
  // What the sandbox handed out and nobody has taken yet.
  std::optional<image::KeptLayer> kept_layer;
  Fd egress_listener;
  wall::Gateway gateway;
  // Of the spec's network: it ends with this object.
  std::unique_ptr<egress::GatewayProcess> network;
  std::optional<policy::NetworkReport> network_report;
  Fd minter;  // of its secrets; it ends with this object
  bool closed = false;

  // What a command leaves open is the spec's and the image's; the supervisor adds variables and the
  // working directory, since it serves clients who know neither.
  Result<Command> with_defaults(const Command& command) const {
    Command full = command;
    if (full.user.empty()) full.user = account.user;
    if (!command.from_image) return full;
    full.arguments = box::command_line(image, wanted, command.arguments);
    if (full.arguments.empty())
      return fail(Error::invalid("no program to run: none is given and the image " + info.image +
                                 " names none; caisson run [OPTIONS] -- PROGRAM [ARGUMENT...]"));
    return full;
  }
  Status copy_grants(const policy::SpecValues& spec, std::vector<box::HostPath>& sources);
  Status take_handouts(wall::Handouts handouts, const wall::Plan& plan);
};

Status Sandbox::State::take_handouts(wall::Handouts handouts, const wall::Plan& plan) {
  // Those of a sandbox that outlives us stay with it: hold_layer(), set_network().
  const bool takes_layer = plan.keep_layer != 0 && plan.life == Life::kOwner;
  const bool takes_gateway =
      plan.network == wall::PlanNetwork::kGateway && plan.life == Life::kOwner;
  if (handouts.layer.valid() != takes_layer || handouts.egress.valid() != (plan.egress != 0) ||
      handouts.gateway.valid() != takes_gateway)
    return fail(Error::internal("the launcher handed out something else than was asked for"));
  egress_listener = std::move(handouts.egress);
  gateway = std::move(handouts.gateway);
  if (!takes_layer) return {};
  kept_layer = layer_of(std::move(handouts));
  kept_layer->vanishes = wall::lies_on_disk(plan);
  return {};
}

Status Sandbox::State::copy_grants(const policy::SpecValues& spec,
                                   std::vector<box::HostPath>& sources) {
  std::size_t at = 0;
  for (const policy::Grant& grant : spec.grants) {
    if (grant.mode != policy::GrantMode::kCopy) continue;
    const box::HostPath source = std::move(sources[at++]);
    auto copied = box::copy_in(*connection, source, box::last_component(grant.from), grant.to,
                               account.user, box::Existing::kMerge);
    if (!copied.has_value())
      return fail(std::move(copied).error().with("copy " + grant.from + " to " + grant.to));
  }
  return {};
}

Sandbox::Sandbox(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sandbox::Sandbox(Sandbox&&) noexcept = default;
Sandbox& Sandbox::operator=(Sandbox&& other) noexcept {
  if (this != &other) {
    if (state_ != nullptr) static_cast<void>(close());
    state_ = std::move(other.state_);
  }
  return *this;
}

Sandbox::~Sandbox() {
  if (state_ != nullptr) static_cast<void>(close());
}

struct Sandbox::Begun::State {
  box::Launch launch;
};

Sandbox::Begun::Begun() = default;
Sandbox::Begun::Begun(Begun&&) noexcept = default;
Sandbox::Begun& Sandbox::Begun::operator=(Begun&&) noexcept = default;
Sandbox::Begun::~Begun() = default;

Result<Sandbox::Begun> Sandbox::begin() {
  TRY_ASSIGN(box::Launch launch, box::Launch::start());
  Begun begun;
  begun.state_ = std::make_unique<Begun::State>(std::move(launch));
  return begun;
}

Result<Sandbox> Sandbox::create(const SandboxSpec& spec, const CreateOptions& options) {
  TRY(check_wall(spec.values()));
  const bool outlives = options.life != Life::kOwner;
  const bool networked = spec->network.has_value();
  const bool inspects = networked && policy::inspects(*spec->network);
  const bool keyed = options.keys_fd >= 0;
  if (keyed && !(outlives && networked))
    return fail(
        Error::invalid("keys_fd: keys are for a network of a sandbox that outlives its maker"));
  if (outlives && options.first_command != nullptr)
    return fail(Error::invalid(
        "first_command: a sandbox that outlives its maker gets its command by start()"));
  if ((options.life == Life::kMainCommand && options.keep_layer) ||
      (outlives && options.egress_listener))
    return fail(Error::invalid(
        "keep_layer, egress_listener: this sandbox outlives whoever they are handed to"));
  auto state = std::make_unique<State>();
  Begun begun;
  if (options.begun != nullptr) begun = std::move(*options.begun);
  if (begun.state_ == nullptr) {
    TRY_ASSIGN(begun, begin());
  }
  box::Launch& launch = begun.state_->launch;
  box::PlanDescriptors descriptors;
  std::vector<box::HostPath> granted, copied;
  Fd cover;  // what lies over sockets of the host
  ResolvedImage image{.name = spec->image};
  if (options.root == nullptr) {
    TRY_ASSIGN(image, resolve_image(spec->image));
  }
  const image::ImageRef* const files = options.root != nullptr   ? options.root
                                       : image.files.has_value() ? &*image.files
                                                                 : nullptr;
  if (options.keep_layer && files == nullptr)
    return fail(Error::invalid(
        "keep_layer: the host image has no layer of changes over it; allowed is an image that "
        "was imported"));
  if (files != nullptr) {
    TRY_ASSIGN(state->image, box::defaults_of(files->config, image.name));
  }
  box::FetchedSecrets secrets;
  Fd minter;
  if (networked) {
    TRY(box::check_variables(*spec->network, spec->env));
    if (!keyed) {
      TRY_ASSIGN(secrets, box::fetch_secrets(*spec->network));
      TRY_ASSIGN(minter, box::start_minter(*spec->network, secrets));
    }
  }
  state->wanted = spec.values();
  TRY_ASSIGN(state->account, account_of(spec.values(), state->image, files, image.name));
  SandboxInfo& info = state->info;
  info.image = image.name;
  if (files != nullptr) info.image_id = files->record.id;
  // A sandbox that would have nothing to do is not made.
  if (options.first_command != nullptr) TRY(state->with_defaults(*options.first_command));
  wall::Plan plan = box::plan_of(spec.values(), state->account);
  TRY(box::add_defaults(plan, spec.values(), state->image,
                        inspects || keyed ? box::Trust::kGateway : box::Trust::kImage));
  box::add_image(plan, descriptors, files);
  Fd layers;
  if (spec->layer == policy::LayerKind::kQuota) {
    TRY_ASSIGN(layers, box::open_layer_directory());
    plan.layer_fd = descriptors.add(layers.get());
  }
  for (const policy::Grant& grant : spec->grants) {
    auto opened = box::open_host_path(grant.from);
    if (!opened.has_value()) return fail(std::move(opened).error().with("files"));
    if (grant.mode == policy::GrantMode::kCopy) {
      copied.push_back(std::move(*opened));
      continue;
    }
    plan.grants.push_back({.fd = descriptors.add(opened->fd.get()),
                           .to = grant.to,
                           .directory = opened->directory,
                           .writable = grant.mode == policy::GrantMode::kReadWrite,
                           .owner_uid = opened->uid,
                           .owner_gid = opened->gid});
    if (opened->directory)
      TRY(box::cover_sockets(grant, opened->fd.get(), plan, descriptors, cover));
    granted.push_back(std::move(*opened));
  }
  for (const policy::Output& output : spec->outputs) {
    auto target = box::open_host_target(output.to);
    if (!target.has_value()) return fail(std::move(target).error().with("results"));
    state->outputs.emplace_back(output.path, std::move(*target));
  }
  plan.id = launch.id();
  plan.life = options.life;
  plan.keep_layer = options.keep_layer ? 1 : 0;
  plan.egress = options.egress_listener ? 1 : 0;
  if (networked || options.gateway == CreateOptions::Gateway::kYes)
    plan.network = wall::PlanNetwork::kGateway;
  if (networked && spec->network->floor == policy::Floor::kFixed) plan.fixed_floor = 1;
  egress::Records records;
  if (outlives && plan.network == wall::PlanNetwork::kGateway && options.audit_fd >= 0) {
    TRY_ASSIGN(records, box::claim_records(options.audit_fd));
    plan.audit = 1;
    plan.audit_fd = descriptors.add(records.file.get());
    static_cast<void>(descriptors.add(records.chain.get()));
    static_cast<void>(descriptors.add(records.head.get()));
  }
  if (plan.network == wall::PlanNetwork::kGateway) plan.served_domain = options.served_domain;
  // What is copied in has to be there before the command is, and the gateway too.
  const bool at_once = copied.empty() && !networked;
  const Command* first = at_once ? options.first_command : nullptr;
  plan.single = first != nullptr && options.only_command && spec->outputs.empty() ? 1 : 0;
  info.id = plan.id;
  info.wall = kWallName;
  info.command = box::command_line(state->image, spec.values(), spec->command);
  info.exposed_ports = state->image.exposed_ports;
  info.created_ms = now_ms();
  if (plan.timeout_ms != 0)
    info.deadline_ms = info.created_ms + static_cast<std::int64_t>(plan.timeout_ms);
  info.life = options.life;
  info.inspects = inspects || keyed;
  info.owner_uid = ::geteuid();
  info.user = state->account.user;
  info.uid = state->account.uid;
  info.gid = state->account.gid;
  plan.info = box::info_text(info, kMostInfo);
  if (!image.note.empty()) state->notes.push_back(image.note);
  box::add_locks(descriptors, files);
  if (image.files.has_value()) {
    state->image_in_use.push_back(std::move(image.files->in_use));
    for (image::OpenRootfs& lower : image.files->below)
      state->image_in_use.push_back(std::move(lower.in_use));
  }
  state->disk = spec->limits.disk.value_or(kMostCopiedOut);
  box::KeptNetwork kept;
  Fd alarm;
  if (networked && !keyed && (inspects || !outlives)) {
    Fd raise;
    // Of one that outlives us the launcher has an alarm of its own.
    if (!outlives && box::may_terminate(*spec->network)) {
      TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
      alarm = std::move(pair.ours);
      raise = std::move(pair.theirs);
      plan.alarm = 1;
      plan.alarm_fd = descriptors.add(alarm.get());
    }
    Fd values;
    if (minter.valid() && !outlives) {
      TRY_ASSIGN(values, launcher::connect_minter(minter.get()));
    }
    TRY_ASSIGN(state->network,
               box::start_gateway(info.id, *spec->network, outlives ? -1 : options.audit_fd,
                                  std::move(raise), std::move(values)));
    TRY(box::complete_plan(*state->network, *spec->network, std::move(secrets.values), plan));
  } else if (networked) {
    // Only started when something is sent, which is no time to find that it is missing.
    TRY(helper_binary("caisson-gateway"));
    plan.authority = options.authority;
    // One with values is told by whoever seals them.
    if (policy::rules_with_values(*spec->network).empty())
      kept.text = policy::written(*spec->network);
  }
  if (inspects && !outlives) {
    plan.keys = wall::PlanKeys::kSaid;
    plan.keys_fd = descriptors.add(state->network->certificate_fd());
  }
  if (inspects && outlives && !keyed) {
    TRY_ASSIGN(plan.authority, box::authority_of(*state->network));
    TRY_ASSIGN(kept, box::keep_gateway(*state->network, *spec->network));
    state->network.reset();
  }
  if ((inspects || keyed) && outlives) {
    plan.keys = wall::PlanKeys::kFile;
    plan.keys_fd = descriptors.add(keyed ? options.keys_fd : kept.keys.get());
  }
  if (minter.valid() && outlives) {
    plan.minter = 1;
    plan.minter_fd = descriptors.add(minter.get());
  } else {
    state->minter = std::move(minter);
  }
  TRY_ASSIGN(Fd client, launch.send(plan, descriptors.numbers()));
  state->connection.emplace(std::move(client));
  if (first != nullptr) {
    TRY_ASSIGN(const Command full, state->with_defaults(*first));
    TRY_ASSIGN(state->first_stream, box::open_exec(*state->connection, full));
    // It waits in the socket until the supervisor is ready to look.
    TRY(state->connection->progress(POLLOUT));
  }
  auto up = launch.await_up();
  if (!up.has_value() && state->network != nullptr) TRY(box::check_gateway(*state->network));
  TRY_ASSIGN(wall::Handouts handouts, std::move(up));
  TRY(state->take_handouts(std::move(handouts), plan));
  if (networked && !outlives) TRY(box::open_gateway(*state->network, std::move(state->gateway)));
  state->launch.emplace(std::move(launch));
  Status filled = state->copy_grants(spec.values(), copied);
  if (filled.has_value() && outlives && !kept.text.empty())
    filled = box::set_network(*state->connection, kept.text);
  Sandbox sandbox(std::move(state));
  if (!filled.has_value()) {
    sandbox.state_->info.life = Life::kOwner;
    static_cast<void>(sandbox.close());
    return fail(std::move(filled).error());
  }
  if (options.life == Life::kKept) {
    box::send_settled(*sandbox.state_->connection);
    TRY(sandbox.state_->connection->flush());
  }
  return sandbox;
}

Result<Sandbox> Sandbox::create(const SandboxSpec& spec) {
  return create(spec, {});
}

Result<Sandbox> Sandbox::connect(const std::string& id) {
  TRY_ASSIGN(box::RegisteredSandbox found, box::connect_registered(id));
  auto state = std::make_unique<State>();
  state->info = std::move(found.info);
  state->connection.emplace(std::move(found.socket));
  state->account = {.uid = state->info.uid, .gid = state->info.gid, .user = state->info.user};
  return Sandbox(std::move(state));
}

Result<std::vector<SandboxInfo>> Sandbox::list() {
  return box::list_registered();
}

const SandboxInfo& Sandbox::info() const {
  return state_->info;
}
const std::vector<std::string>& Sandbox::notes() const {
  return state_->notes;
}

box::Connection& box::Access::connection(Sandbox& sandbox) {
  return *sandbox.state_->connection;
}

Result<image::KeptLayer> Sandbox::take_layer() {
  if (!state_->kept_layer.has_value())
    return fail(
        Error::precondition("take_layer: this sandbox was not created with keep_layer, or its "
                            "layer was taken already"));
  image::KeptLayer layer = std::move(*state_->kept_layer);
  state_->kept_layer.reset();
  return layer;
}

Result<image::KeptLayer> Sandbox::hold_layer() {
  TRY_ASSIGN(wall::Handouts handouts, box::hold_layer(*state_->connection));
  return layer_of(std::move(handouts));
}

Status Sandbox::release_layer() {
  return box::release_layer(*state_->connection);
}

Result<Fd> Sandbox::take_egress_listener() {
  if (!state_->egress_listener.valid())
    return fail(
        Error::precondition("take_egress_listener: this sandbox was not created with "
                            "egress_listener, or its listener was taken already"));
  return std::move(state_->egress_listener);
}

const std::optional<policy::NetworkReport>& Sandbox::network_report() const {
  return state_->network_report;
}

Result<wall::Gateway> Sandbox::take_gateway() {
  if (!state_->gateway.valid())
    return fail(Error::precondition(
        "take_gateway: this sandbox was not created with a gateway, or it was taken already"));
  return std::move(state_->gateway);
}

Result<RunResult> Sandbox::run(const Command& command, const RunOptions& options) {
  TRY_ASSIGN(const Command full, state_->with_defaults(command));
  const auto stream = std::exchange(state_->first_stream, std::nullopt);
  if (!stream.has_value()) return box::run_exec(*state_->connection, full, options);
  return box::run_exec(*state_->connection, *stream, full, options);
}

Result<std::optional<Outcome>> Sandbox::start(const Command& command) {
  TRY_ASSIGN(const Command full, state_->with_defaults(command));
  return box::start_exec(*state_->connection, full);
}

Result<std::optional<Outcome>> Sandbox::attach(Follow follow, const RunOptions& options) {
  return box::attach_exec(*state_->connection, std::nullopt,
                          follow == Follow::kYes ? From::kOldest : From::kKept, options);
}

Result<std::variant<KeptCommand, Outcome>> Sandbox::keep(const Command& command,
                                                         const KeepOptions& options) {
  TRY_ASSIGN(const Command full, state_->with_defaults(command));
  return box::keep_exec(*state_->connection, full, options);
}

Result<std::vector<KeptCommand>> Sandbox::kept() {
  return box::list_kept(*state_->connection);
}

Result<std::optional<Outcome>> Sandbox::attach(std::uint32_t number, From from,
                                               const RunOptions& options) {
  return box::attach_exec(*state_->connection, number, from, options);
}

Status Sandbox::set_deadline(std::uint64_t from_now_ms) {
  TRY_ASSIGN(state_->info.deadline_ms, box::set_deadline(*state_->connection, from_now_ms));
  return {};
}

Status Sandbox::set_network(const std::optional<policy::NetworkPolicy>& policy) {
  if (policy.has_value()) {
    TRY(policy::CompiledNetwork::compile(*policy));
    if (policy::inspects(*policy) && !state_->info.inspects)
      return fail(Error::precondition(
          "network: this sandbox was made with a policy that inspects no TLS, so that it trusts no "
          "certificate of its gateway; allowed are rules with tls: splice or plaintext"));
  }
  return box::set_network(*state_->connection,
                          policy::written(policy.value_or(policy::NetworkPolicy())));
}

Status Sandbox::pause() {
  TRY(box::hold(*state_->connection, box::Held::kYes));
  state_->info.paused = true;
  return {};
}

Status Sandbox::resume() {
  TRY(box::hold(*state_->connection, box::Held::kNo));
  state_->info.paused = false;
  return {};
}

Status Sandbox::reboot() {
  TRY(box::reboot(*state_->connection, box::Held::kNo));
  state_->info.paused = false;
  return {};
}

Result<SandboxUsage> Sandbox::usage() {
  return box::usage(*state_->connection);
}

Status Sandbox::copy_in(const std::string& host_path, const std::string& inside_path) {
  TRY_ASSIGN(const box::HostPath source, box::open_host_path(host_path));
  return box::copy_in(*state_->connection, source, box::last_component(host_path), inside_path,
                      state_->account.user, box::Existing::kInto);
}

Status Sandbox::copy_out(const std::string& inside_path, const std::string& host_path) {
  TRY_ASSIGN(const box::HostTarget target, box::open_host_target(host_path));
  return box::copy_out(*state_->connection, inside_path, target, state_->account.user,
                       box::Existing::kInto, kMostCopiedOut);
}

Status Sandbox::fetch_outputs() {
  std::string failures;
  for (const auto& [path, target] : state_->outputs) {
    const auto copied = box::copy_out(*state_->connection, path, target, state_->account.user,
                                      box::Existing::kMerge, std::max(state_->disk, kLeastResults));
    if (copied.has_value()) continue;
    if (!failures.empty()) failures += "; ";
    failures += "result " + path + ": " + copied.error().message();
  }
  if (!failures.empty()) return fail(Error::precondition(failures));
  return {};
}

Status Sandbox::close() {
  if (state_->closed) return {};
  state_->closed = true;
  if (!state_->launch.has_value() || state_->info.life != Life::kOwner) {
    if (state_->launch.has_value()) state_->launch->leave();
    state_->connection.reset();
    return {};
  }
  if (state_->connection.has_value()) {
    box::send_shutdown(*state_->connection);
    static_cast<void>(state_->connection->flush());
    state_->connection->finish();
  }
  auto ended = state_->launch->wait_end();
  state_->connection.reset();
  // After its sandbox, so that what that did last is in the report.
  if (state_->network != nullptr) state_->network_report = box::end_gateway(*state_->network);
  state_->network.reset();
  return ended;
}

Status Sandbox::end() {
  box::send_shutdown(*state_->connection);
  TRY(state_->connection->flush());
  state_->connection->finish();
  // The supervisor closes the connection when it takes the sandbox down.
  for (;;) {
    const auto frame = state_->connection->wait();
    if (!frame.has_value()) return {};
  }
}

Result<RunResult> run(const SandboxSpec& spec, const RunOptions& options) {
  Command command;
  command.arguments = spec->command;
  command.from_image = true;
  TRY_ASSIGN(Sandbox sandbox,
             Sandbox::create(spec, {.first_command = &command, .only_command = true}));
  TRY_ASSIGN(RunResult result, sandbox.run(command, options));
  if (!spec->outputs.empty()) TRY(sandbox.fetch_outputs());
  TRY(sandbox.close());
  return result;
}

}  // namespace caisson
