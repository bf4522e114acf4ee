#include "wall/namespace/parts.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/namespace/idmap.h"
#include "wall/namespace/layer.h"
#include "wall/namespace/rootfs.h"

namespace caisson::wall {
namespace {

// No step's name begins like these.
const std::string kBorn = "ok ";
const std::string kLacking = "! ";  // before the sentence of a failed precondition

Error failure_of(std::string_view sentence) {
  if (!sentence.starts_with(kLacking)) return Error::internal(std::string(sentence));
  return Error::precondition(std::string(sentence.substr(kLacking.size())));
}

// A writable grant whose files cannot be the command's.
Error unmapped_grant(int path_fd, const Error& why) {
  char path[4096];
  const ssize_t length =
      ::readlink(("/proc/self/fd/" + std::to_string(path_fd)).c_str(), path, sizeof path);
  utsname kernel{};
  (void)::uname(&kernel);
  return Error::precondition(
      "grants: " + std::string(path, static_cast<std::size_t>(std::max<ssize_t>(length, 0))) +
      ": this file system cannot be id-mapped on Linux " + kernel.release + " (" +
      std::strerror(why.error_number()) +
      "), so that nobody inside would own what is written there; allowed are --ro, --copy with "
      "--out, and --rw of a path on ext4, xfs or btrfs");
}

// One of the image's mounts with these ids, still detached. What a set-id mode would mean is
// decided last: before the mapping an erofs file's ids are the host's.
Result<Fd> make_image(const Plan& plan, const PlanRoot& root, int mapping_fd) {
  const int image_fd = plan.descriptors[root.fd];
  const bool mounted = root.form == PlanImage::kMount;
  Fd image;
  if (mounted) {
    image = Fd(::fcntl(image_fd, F_DUPFD_CLOEXEC, 3));
    if (!image.valid()) return fail_errno("fcntl F_DUPFD_CLOEXEC");
    TRY(sys::mount_setattr(image.get(), false,
                           MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, 0));
  } else {
    TRY_ASSIGN(image, clone_mount(image_fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV |
                                                (plan.privileges == 0 ? MOUNT_ATTR_NOSUID : 0)));
  }
  TRY(sys::mount_idmap(image.get(), mapping_fd));
  if (mounted && plan.privileges != 0)
    TRY(sys::mount_setattr(image.get(), false, 0, MOUNT_ATTR_NOSUID));
  return image;
}

// All of them. A mapping costs a process, and most roots have the ids of the one above.
Status make_images(const Plan& plan, const Ids& ids, std::vector<Fd>& images) {
  const std::vector<PlanRoot> roots = image_roots(plan);
  Fd mapping;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const std::uint32_t base = roots[i].id_base;
    if (!mapping.valid() || base != roots[i - 1].id_base) {
      TRY_ASSIGN(mapping, make_mapping(image_mapping(ids.outer_uids, ids.inner_uids, base),
                                       image_mapping(ids.outer_gids, ids.inner_gids, base)));
    }
    TRY_ASSIGN(images[i], make_image(plan, roots[i], mapping.get()));
  }
  return {};
}

// Every descriptor of the parts, in the order of the message.
std::vector<Fd*> slots(RootParts& parts) {
  std::vector<Fd*> all = {&parts.layer, &parts.overlay, &parts.etc, &parts.devices};
  for (Fd& image : parts.images) all.push_back(&image);
  for (Fd& grant : parts.grants) all.push_back(&grant);
  return all;
}

RootParts no_parts(const Plan& plan) {
  RootParts parts;
  parts.images.resize(image_roots(plan).size());
  parts.grants.resize(plan.grants.size());
  return parts;
}

}  // namespace

Result<RootParts> make_parts(const Plan& plan, const Ids& ids, Steps& steps) {
  RootParts parts = no_parts(plan);
  const std::vector<PlanRoot> roots = image_roots(plan);
  if (ids.mode != IdMode::kRoot) {
    const auto is_mount = [](const PlanRoot& root) { return root.form == PlanImage::kMount; };
    if (std::ranges::none_of(roots, is_mount)) return parts;
    return fail(Error::precondition(
        "the image is a mount of its own, which only root's sandboxes can have"));
  }
  TRY(steps.enter("image"));
  TRY(make_images(plan, ids, parts.images));
  if (!roots.empty() && !lies_on_disk(plan) && !tmpfs_has_user_attributes()) {
    TRY_ASSIGN(OuterOverlay outer, make_outer_overlay(plan, ids, plan.switches, parts.images));
    parts.layer = std::move(outer.layer);
    parts.overlay = std::move(outer.overlay);
    for (Fd& image : parts.images) image.reset();
  }
  TRY(steps.enter("grants"));
  Fd mapping;
  std::pair<std::uint32_t, std::uint32_t> mapping_of;
  for (std::size_t i = 0; i < plan.grants.size(); ++i) {
    const PlanGrant& grant = plan.grants[i];
    std::uint64_t flags = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (is_off(plan.switches, Mechanism::kMountFlags)) flags = 0;
    if (!grant.writable && !is_off(plan.switches, Mechanism::kReadOnlyMounts))
      flags |= MOUNT_ATTR_RDONLY;
    TRY_ASSIGN(parts.grants[i], clone_mount(plan.descriptors[grant.fd], flags, plan.switches));
    const std::pair owner(grant.owner_uid, grant.owner_gid);
    if (!mapping.valid() || mapping_of != owner) {
      const auto uid = ids.host_uid(plan.user_uid), gid = ids.host_gid(plan.user_gid);
      if (!uid || !gid) return fail(Error::invalid("the user's id is not mapped inside"));
      TRY_ASSIGN(mapping, make_mapping({{owner.first, *uid, 1}}, {{owner.second, *gid, 1}}));
      mapping_of = owner;
    }
    // Not every file system can be idmapped; then what is granted has the host's owners, none of
    // whom exists inside. That is enough for reading what everybody may read.
    const auto owned = sys::mount_idmap(parts.grants[i].get(), mapping.get());
    if (!owned && grant.writable)
      return fail(unmapped_grant(plan.descriptors[grant.fd], owned.error()));
  }
  TRY_ASSIGN(parts.devices, make_device_mount());
  return parts;
}

Status add_etc(RootParts& parts, Fd etc, IdMode mode) {
  parts.etc = std::move(etc);
  if (!parts.etc.valid() || mode != IdMode::kRoot) return {};
  TRY_ASSIGN(parts.etc, clone_mount(parts.etc.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                         MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  return {};
}

Status send_parts(int socket_fd, RootParts parts) {
  std::string present;
  std::vector<int> descriptors;
  for (const Fd* part : slots(parts)) {
    present += part->valid() ? '1' : '0';
    if (part->valid()) descriptors.push_back(part->get());
  }
  return sys::send_message(socket_fd, present, descriptors);
}

Result<RootParts> receive_parts(int socket_fd, const Plan& plan) {
  RootParts parts = no_parts(plan);
  const std::vector<Fd*> all = slots(parts);
  TRY_ASSIGN(sys::Message message, sys::recv_message(socket_fd, all.size()));
  if (message.bytes.size() != all.size())
    return fail(Error{Code::kCancelled, "the supervisor is gone"});
  std::size_t next = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (message.bytes[i] == '0') continue;
    if (next == message.descriptors.size())
      return fail(Error::internal("a part of the root did not arrive"));
    *all[i] = std::move(message.descriptors[next++]);
  }
  return parts;
}

Status send_birth(int socket_fd, int layer_fd, int boot_id_fd, const Handouts& handouts) {
  std::vector<int> descriptors = {layer_fd, boot_id_fd};
  for (const int fd : descriptors_of(handouts)) descriptors.push_back(fd);
  return sys::send_message(socket_fd, kBorn + encode_handouts(handouts), descriptors);
}

void send_stillbirth(int socket_fd, const Error& why) {
  const bool lacking = why.code() == Code::kFailedPrecondition;
  const std::string sentence = (lacking ? kLacking : "") + why.message();
  (void)sys::send_message(socket_fd, sentence.substr(0, kMostHandoutText), {});
}

Result<Birth> receive_birth(int socket_fd) {
  TRY_ASSIGN(sys::Message answer, sys::recv_message(socket_fd, kMostHandoutText));
  if (answer.bytes.empty()) return fail(Error::internal("in setup: the setup child died"));
  if (!answer.bytes.starts_with(kBorn)) {
    Error why = failure_of(answer.bytes);
    return fail(Error(why.code(), "in " + why.message()));
  }
  if (answer.descriptors.size() < 2)
    return fail(Error::internal("in setup: no writable layer came back"));
  Birth birth;
  birth.layer = std::move(answer.descriptors[0]);
  birth.boot_id = std::move(answer.descriptors[1]);
  answer.descriptors.erase(answer.descriptors.begin(), answer.descriptors.begin() + 2);
  TRY_ASSIGN(birth.handouts, decode_handouts(std::string_view(answer.bytes).substr(kBorn.size()),
                                             std::move(answer.descriptors)));
  return birth;
}

Status send_spaces(int socket_fd, const Gateway& gateway) {
  std::vector<int> descriptors;
  if (gateway.valid())
    descriptors = {gateway.tcp.get(), gateway.dns_udp.get(), gateway.dns_tcp.get(),
                   gateway.namespace_fd.get()};
  return sys::send_message(socket_fd, kBorn, descriptors);
}

Result<Gateway> receive_spaces(int socket_fd) {
  TRY_ASSIGN(sys::Message word, sys::recv_message(socket_fd, kMostHandoutText));
  if (word.bytes.empty()) return fail(Error::internal("the namespaces' maker died"));
  if (word.bytes != kBorn) return fail(failure_of(word.bytes));
  Gateway gateway;
  std::vector<Fd>& files = word.descriptors;
  if (files.empty()) return gateway;
  if (files.size() != 4) return fail(Error::internal("a socket of the gateway did not arrive"));
  gateway.tcp = std::move(files[0]);
  gateway.dns_udp = std::move(files[1]);
  gateway.dns_tcp = std::move(files[2]);
  gateway.namespace_fd = std::move(files[3]);
  return gateway;
}

}  // namespace caisson::wall
