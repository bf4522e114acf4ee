#include "wall/plan.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "policy/inside_path.h"
#include "policy/limits.h"
#include "policy/names.h"
#include "policy/syntax.h"

namespace caisson::wall {
namespace {

// The fixed order of the fields is in transfer() below; numbers are little-endian, a text is a u32
// length and its bytes. The version changes with every change of the order: a launcher and its
// client come from one build.
constexpr std::uint32_t kMagic = 0x4e4c5043;  // "CPLN"
constexpr std::uint16_t kVersion = 11;
constexpr std::size_t kMaxInfo = 8 * 1024;
constexpr std::uint32_t kNoId = std::numeric_limits<std::uint32_t>::max();

template <typename T>
concept Number = std::is_unsigned_v<T> && !std::is_same_v<T, bool>;

class Writer {
 public:
  template <Number T>
  void number(const T& value, std::string_view) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_ += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
    }
  }
  void text(const std::string& value, std::string_view name) {
    number(static_cast<std::uint32_t>(value.size()), name);
    out_ += value;
  }
  void flag(const bool& value, std::string_view name) {
    number(static_cast<std::uint8_t>(value ? 1 : 0), name);
  }
  void image(const PlanImage& value, std::string_view name) {
    number(static_cast<std::uint8_t>(value), name);
  }
  void life(const Life& value, std::string_view name) {
    number(static_cast<std::uint8_t>(value), name);
  }
  void network(const PlanNetwork& value, std::string_view name) {
    number(static_cast<std::uint8_t>(value), name);
  }
  void keys(const PlanKeys& value, std::string_view name) {
    number(static_cast<std::uint8_t>(value), name);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads with a sticky fault: after the first one every value is zero or empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <Number T>
  void number(T& value, std::string_view name) {
    value = 0;
    if (bytes_.size() - offset_ < sizeof(T)) {
      refuse(name, "the end of the plan", "as many bytes as the field has");
      return;
    }
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      sum |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[offset_ + i])) << (8 * i);
    }
    offset_ += sizeof(T);
    value = static_cast<T>(sum);
  }
  void text(std::string& value, std::string_view name) {
    value.clear();
    std::uint32_t size = 0;
    number(size, name);
    if (size > bytes_.size() - offset_) {
      refuse(name, "a length of " + std::to_string(size),
             "at most " + std::to_string(bytes_.size() - offset_) + ", the bytes that follow");
      return;
    }
    value = bytes_.substr(offset_, size);
    offset_ += size;
  }
  void flag(bool& value, std::string_view name) {
    std::uint8_t byte = 0;
    number(byte, name);
    below(byte, 2, name);
    value = byte == 1;
  }
  void image(PlanImage& value, std::string_view name) {
    std::uint8_t byte = 0;
    number(byte, name);
    below(byte, 3, name);
    value = static_cast<PlanImage>(ok() ? byte : 0);
  }
  void life(Life& value, std::string_view name) {
    std::uint8_t byte = 0;
    number(byte, name);
    below(byte, kLives, name);
    value = static_cast<Life>(ok() ? byte : 0);
  }
  void network(PlanNetwork& value, std::string_view name) {
    std::uint8_t byte = 0;
    number(byte, name);
    below(byte, 2, name);
    value = static_cast<PlanNetwork>(ok() ? byte : 0);
  }
  void keys(PlanKeys& value, std::string_view name) {
    std::uint8_t byte = 0;
    number(byte, name);
    below(byte, 3, name);
    value = static_cast<PlanKeys>(ok() ? byte : 0);
  }

  void below(std::uint64_t value, std::uint64_t end, std::string_view name) {
    if (value < end) return;
    refuse(name, std::to_string(value), "0 to " + std::to_string(end - 1));
  }
  // `allowed` is empty where the value is right.
  void check(std::string_view name, std::string_view allowed) {
    if (!allowed.empty()) refuse(name, "another form", allowed);
  }
  void refuse(std::string_view name, std::string_view found, std::string_view allowed) {
    if (fault_.has_value()) return;
    std::string message = "plan: ";
    message.append(name).append(": found ").append(found).append("; allowed is ").append(allowed);
    fault_ = Error::invalid(std::move(message));
    offset_ = bytes_.size();
  }
  std::size_t left() const { return bytes_.size() - offset_; }
  bool ok() const { return !fault_.has_value(); }
  Error fault() const { return *fault_; }

 private:
  std::string_view bytes_;
  std::size_t offset_ = 0;
  std::optional<Error> fault_;
};

// The order of the fields, once for both directions; `plan` is const for a Writer. The lower roots
// and the grants come between and are counted by the caller.
template <typename Archive, typename PlanType>
void transfer_head(Archive& archive, PlanType& plan) {
  archive.text(plan.id, "id");
  archive.image(plan.image, "image");
  archive.number(plan.image_fd, "image_fd");
  archive.number(plan.image_id_base, "image_id_base");
  archive.number(plan.image_file_fd, "image_file_fd");
  archive.text(plan.hostname, "hostname");
  archive.number(plan.user_uid, "user_uid");
  archive.number(plan.user_gid, "user_gid");
  archive.number(plan.privileges, "privileges");
  archive.number(plan.syscall_profile, "syscall_profile");
  archive.number(plan.on_refusal, "on_refusal");
  archive.number(plan.layer, "layer");
  archive.number(plan.layer_fd, "layer_fd");
  archive.number(plan.require_hard_limits, "require_hard_limits");
  archive.life(plan.life, "life");
  archive.number(plan.single, "single");
  archive.number(plan.keep_layer, "keep_layer");
  archive.number(plan.egress, "egress");
  archive.network(plan.network, "network");
  archive.number(plan.fixed_floor, "fixed_floor");
  archive.number(plan.audit, "audit");
  archive.number(plan.audit_fd, "audit_fd");
  archive.keys(plan.keys, "keys");
  archive.number(plan.keys_fd, "keys_fd");
  archive.text(plan.served_domain, "served_domain");
  archive.text(plan.authority, "authority");
  archive.number(plan.cpu_milli, "cpu_milli");
  archive.number(plan.memory, "memory");
  archive.number(plan.pids, "pids");
  archive.number(plan.disk, "disk");
  archive.number(plan.inodes, "inodes");
  archive.number(plan.open_files, "open_files");
  archive.number(plan.output, "output");
  archive.number(plan.timeout_ms, "timeout_ms");
  archive.number(plan.cpu_time_ms, "cpu_time_ms");
  archive.number(plan.io_read, "io_read");
  archive.number(plan.io_write, "io_write");
  archive.number(plan.io_read_ops, "io_read_ops");
  archive.number(plan.io_write_ops, "io_write_ops");
  archive.text(plan.workdir, "workdir");
  archive.text(plan.info, "info");
}

template <typename Archive, typename PlanType>
void transfer_tail(Archive& archive, PlanType& plan) {
  archive.number(plan.alarm, "alarm");
  archive.number(plan.alarm_fd, "alarm_fd");
  archive.number(plan.minter, "minter");
  archive.number(plan.minter_fd, "minter_fd");
}

template <typename Archive, typename GrantType>
void transfer_grant(Archive& archive, GrantType& grant) {
  archive.number(grant.fd, "grant.fd");
  archive.text(grant.to, "grant.to");
  archive.flag(grant.directory, "grant.directory");
  archive.flag(grant.writable, "grant.writable");
  archive.flag(grant.cover, "grant.cover");
  archive.number(grant.owner_uid, "grant.owner_uid");
  archive.number(grant.owner_gid, "grant.owner_gid");
}

template <typename Archive, typename LowerType>
void transfer_lower(Archive& archive, LowerType& lower) {
  archive.image(lower.form, "below.form");
  archive.number(lower.fd, "below.fd");
  archive.number(lower.id_base, "below.id_base");
  archive.number(lower.file_fd, "below.file_fd");
}

void transfer_list(Writer& writer, const std::vector<std::string>& list, std::size_t,
                   std::string_view name) {
  writer.number(static_cast<std::uint32_t>(list.size()), name);
  for (const std::string& text : list) writer.text(text, name);
}

void transfer_list(Reader& reader, std::vector<std::string>& list, std::size_t most,
                   std::string_view name) {
  std::uint32_t count = 0;
  reader.number(count, name);
  reader.below(count, most + 1, name);
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) reader.text(list.emplace_back(), name);
}

std::string_view setting_fault(std::string_view setting) {
  const std::size_t equals = setting.find('=');
  const bool good = equals != 0 && equals != std::string_view::npos &&
                    setting.find('\0') == std::string_view::npos;
  return good ? "" : "NAME=VALUE without a NUL byte";
}

std::string_view id_fault(std::string_view id) {
  const bool good =
      id.size() >= 8 && id.size() <= 32 && std::all_of(id.begin(), id.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
      });
  return good ? "" : "8 to 32 lower-case letters and digits";
}

// How many places the first of the audit's descriptors may have.
std::size_t first_audit_descriptors(const Plan& plan, std::size_t descriptor_count) {
  if (plan.audit == 0) return 1;
  constexpr std::size_t kBehind = kAuditDescriptors - 1;
  return descriptor_count > kBehind ? descriptor_count - kBehind : 0;
}

void check_head(Reader& reader, const Plan& plan, std::size_t descriptor_count) {
  reader.check("id", id_fault(plan.id));
  if (plan.image != PlanImage::kHost) {
    reader.below(plan.image_fd, descriptor_count, "image_fd");
    // The image's ids up to 65535 must exist on disk.
    reader.below(plan.image_id_base, kNoId - policy::kMaxId, "image_id_base");
  } else {
    reader.below(plan.image_fd, 1, "image_fd");
    reader.below(plan.image_id_base, 1, "image_id_base");
  }
  reader.below(plan.image_file_fd, plan.image == PlanImage::kMount ? descriptor_count : 1,
               "image_file_fd");
  if (!plan.workdir.empty()) reader.check("workdir", policy::path_fault(plan.workdir));
  reader.check("hostname", policy::hostname_fault(plan.hostname));
  reader.below(plan.user_uid, policy::kMaxId + 1, "user_uid");
  reader.below(plan.user_gid, policy::kMaxId + 1, "user_gid");
  reader.below(plan.privileges, policy::kPrivilegesNames.size(), "privileges");
  reader.below(plan.syscall_profile, policy::kProfileNames.size(), "syscall_profile");
  reader.below(plan.on_refusal, policy::kOnRefusalNames.size(), "on_refusal");
  reader.below(plan.layer, policy::kLayerNames.size(), "layer");
  reader.below(plan.layer_fd, lies_on_disk(plan) ? descriptor_count : 1, "layer_fd");
  reader.below(plan.require_hard_limits, 2, "require_hard_limits");
  reader.below(plan.single, 2, "single");
  // The host image has no overlay.
  reader.below(plan.keep_layer, plan.image == PlanImage::kHost ? 1 : 2, "keep_layer");
  reader.below(plan.egress, 2, "egress");
  reader.below(plan.fixed_floor, 2, "fixed_floor");
  reader.below(plan.audit, 2, "audit");
  reader.below(plan.audit_fd, first_audit_descriptors(plan, descriptor_count), "audit_fd");
  reader.below(static_cast<std::uint8_t>(plan.keys), plan.network == PlanNetwork::kGateway ? 3 : 2,
               "keys");
  reader.below(plan.keys_fd, plan.keys != PlanKeys::kNone ? descriptor_count : 1, "keys_fd");
  reader.below(plan.served_domain.size(),
               plan.network == PlanNetwork::kGateway ? kMaxPlanServedDomain + 1 : 1,
               "bytes of served_domain");
  reader.below(plan.authority.size(),
               plan.network == PlanNetwork::kGateway && plan.keys != PlanKeys::kSaid
                   ? kMaxPlanAuthority + 1
                   : 1,
               "bytes of authority");
  const auto limits = plan.limits();
  static_assert(limits.size() == policy::kLimitRules.size());
  for (std::size_t i = 0; i < limits.size(); ++i) {
    const policy::LimitRule& rule = policy::kLimitRules[i];
    if (limits[i] != 0 && (limits[i] < rule.min || limits[i] > rule.max)) {
      reader.refuse(
          rule.key, std::to_string(limits[i]),
          "0 (unlimited) or " + std::to_string(rule.min) + " to " + std::to_string(rule.max));
    }
  }
  if (plan.info.size() > kMaxInfo) {
    reader.refuse("info", std::to_string(plan.info.size()) + " bytes", "at most 8192");
  }
}

void check_lower(Reader& reader, const Plan& plan, const PlanRoot& lower,
                 std::size_t descriptor_count) {
  if (plan.image == PlanImage::kHost || lower.form == PlanImage::kHost) {
    reader.refuse("below.form", "a root under or of the host image", "roots of an image alone");
  }
  reader.below(lower.fd, descriptor_count, "below.fd");
  reader.below(lower.id_base, kNoId - policy::kMaxId, "below.id_base");
  reader.below(lower.file_fd, lower.form == PlanImage::kMount ? descriptor_count : 1,
               "below.file_fd");
}

void check_grant(Reader& reader, const Plan& plan, const PlanGrant& grant,
                 std::size_t descriptor_count) {
  reader.below(grant.fd, descriptor_count, "grant.fd");
  reader.check("grant.to", policy::target_fault(grant.to));
  reader.below(grant.owner_uid, kNoId, "grant.owner_uid");
  reader.below(grant.owner_gid, kNoId, "grant.owner_gid");
  for (const PlanGrant& other : plan.grants) {
    if (other.to == grant.to) reader.refuse("grant.to", "a path twice", "each path once");
  }
}

void check_tail(Reader& reader, const Plan& plan, std::size_t descriptor_count) {
  reader.below(plan.alarm, 2, "alarm");
  reader.below(plan.alarm_fd, plan.alarm != 0 ? descriptor_count : 1, "alarm_fd");
  reader.below(plan.minter, 2, "minter");
  reader.below(plan.minter_fd, plan.minter != 0 ? descriptor_count : 1, "minter_fd");
}

void check_lists(Reader& reader, const Plan& plan) {
  for (const std::string& directory : plan.directories)
    reader.check("directories", policy::path_fault(directory));
  std::size_t bytes = 0;
  for (const std::string& setting : plan.environment) {
    reader.check("environment", setting_fault(setting));
    bytes += setting.size() + 1;
  }
  reader.below(bytes, kMaxPlanEnvironmentBytes + 1, "bytes of environment");
}

}  // namespace

Status check_id(std::string_view id) {
  if (const std::string_view allowed = id_fault(id); !allowed.empty())
    return fail(Error::invalid("id: allowed are " + std::string(allowed)));
  return {};
}

std::vector<PlanRoot> image_roots(const Plan& plan) {
  if (plan.image == PlanImage::kHost) return {};
  std::vector<PlanRoot> roots = {{.form = plan.image,
                                  .fd = plan.image_fd,
                                  .id_base = plan.image_id_base,
                                  .file_fd = plan.image_file_fd}};
  roots.insert(roots.end(), plan.below.begin(), plan.below.end());
  return roots;
}

bool lies_on_disk(const Plan& plan) {
  return plan.layer == static_cast<std::uint8_t>(policy::LayerKind::kQuota);
}

std::string encode(const Plan& plan) {
  Writer writer;
  writer.number(kMagic, "magic");
  writer.number(kVersion, "version");
  transfer_head(writer, plan);
  writer.number(static_cast<std::uint32_t>(plan.below.size()), "below");
  for (const PlanRoot& lower : plan.below) transfer_lower(writer, lower);
  writer.number(static_cast<std::uint32_t>(plan.grants.size()), "grants");
  for (const PlanGrant& grant : plan.grants) transfer_grant(writer, grant);
  transfer_list(writer, plan.directories, kMaxPlanDirectories, "directories");
  transfer_list(writer, plan.environment, kMaxPlanEnvironment, "environment");
  transfer_tail(writer, plan);
  return writer.take();
}

Result<Plan> decode_plan(std::string_view bytes, std::size_t descriptor_count) {
  if (bytes.size() > kMaxPlanBytes) {
    return fail(Error::invalid("plan: found " + std::to_string(bytes.size()) +
                               " bytes; allowed is at most " + std::to_string(kMaxPlanBytes)));
  }
  if (descriptor_count > kMaxPlanDescriptors) {
    return fail(Error::invalid("plan: found " + std::to_string(descriptor_count) +
                               " descriptors; allowed is at most " +
                               std::to_string(kMaxPlanDescriptors)));
  }
  Reader reader(bytes);
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  reader.number(magic, "magic");
  if (magic != kMagic) reader.refuse("magic", std::to_string(magic), std::to_string(kMagic));
  reader.number(version, "version");
  if (version != kVersion) {
    reader.refuse("version", std::to_string(version), std::to_string(kVersion));
  }
  Plan plan;
  transfer_head(reader, plan);
  if (reader.ok()) check_head(reader, plan, descriptor_count);
  std::uint32_t count = 0;
  reader.number(count, "below");
  reader.below(count, kMaxPlanBelow + 1, "below");
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    PlanRoot lower;
    transfer_lower(reader, lower);
    if (reader.ok()) check_lower(reader, plan, lower, descriptor_count);
    plan.below.push_back(lower);
  }
  reader.number(count, "grants");
  reader.below(count, policy::kMaxGrants + 1, "grants");
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    PlanGrant grant;
    transfer_grant(reader, grant);
    if (reader.ok()) check_grant(reader, plan, grant, descriptor_count);
    plan.grants.push_back(std::move(grant));
  }
  transfer_list(reader, plan.directories, kMaxPlanDirectories, "directories");
  transfer_list(reader, plan.environment, kMaxPlanEnvironment, "environment");
  if (reader.ok()) check_lists(reader, plan);
  transfer_tail(reader, plan);
  if (reader.ok()) check_tail(reader, plan, descriptor_count);
  if (reader.ok() && reader.left() != 0) {
    reader.refuse("end", std::to_string(reader.left()) + " bytes more", "nothing");
  }
  if (!reader.ok()) return fail(reader.fault());
  return plan;
}

}  // namespace caisson::wall
