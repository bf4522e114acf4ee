#include "wall/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::wall {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kDescriptors = 4;

Plan full_plan() {
  Plan plan;
  plan.id = "abcd1234efgh";
  plan.image = PlanImage::kDirectory;
  plan.image_fd = 1;
  plan.image_id_base = 0x70000000;
  plan.grants = {{.fd = 0,
                  .to = "/workspace",
                  .directory = true,
                  .writable = false,
                  .owner_uid = 1000,
                  .owner_gid = 100},
                 {.fd = 3, .to = "/workspace/a b", .directory = false, .writable = true}};
  plan.directories = {"/data", "/app/src"};
  plan.environment = {"PATH=/app/bin:/bin", "EMPTY="};
  plan.workdir = "/app/src";
  plan.hostname = "box-1.example.com";
  plan.user_uid = 0;
  plan.user_gid = 65535;
  plan.privileges = 1;
  plan.syscall_profile = 2;
  plan.on_refusal = 1;
  plan.layer = 1;
  plan.layer_fd = 2;
  plan.require_hard_limits = 1;
  plan.life = Life::kKept;
  plan.single = 1;
  plan.keep_layer = 1;
  plan.egress = 1;
  plan.network = PlanNetwork::kGateway;
  plan.fixed_floor = 1;
  plan.audit = 1;
  plan.audit_fd = 1;
  plan.keys = PlanKeys::kFile;
  plan.keys_fd = 2;
  plan.alarm = 1;
  plan.alarm_fd = 1;
  plan.minter = 1;
  plan.minter_fd = 3;
  plan.served_domain = "{}";
  plan.authority = "-----BEGIN CERTIFICATE-----\n";
  plan.cpu_milli = 1500;
  plan.memory = 1ull << 30;
  plan.pids = 64;
  plan.disk = 1ull << 29;
  plan.inodes = 1000;
  plan.open_files = 0;
  plan.output = 1;
  plan.timeout_ms = 1;
  plan.cpu_time_ms = 31'536'000'000;
  plan.io_read = 4096;
  plan.io_write = 1ull << 50;
  plan.io_read_ops = 1;
  plan.io_write_ops = 1'000'000'000;
  plan.info = std::string("{\"x\":\0}", 7);
  return plan;
}

std::string message_of(const Plan& plan, std::size_t descriptors = kDescriptors) {
  const auto decoded = decode_plan(encode(plan), descriptors);
  return decoded.has_value() ? "accepted" : decoded.error().message();
}

TEST(Plan, RoundTripKeepsEveryField) {
  const Plan plan = full_plan();
  const auto decoded = decode_plan(encode(plan), kDescriptors);
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->id, plan.id);
  EXPECT_EQ(decoded->image, plan.image);
  EXPECT_EQ(decoded->image_fd, plan.image_fd);
  EXPECT_EQ(decoded->image_id_base, plan.image_id_base);
  ASSERT_EQ(decoded->grants.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(decoded->grants[i].fd, plan.grants[i].fd);
    EXPECT_EQ(decoded->grants[i].to, plan.grants[i].to);
    EXPECT_EQ(decoded->grants[i].directory, plan.grants[i].directory);
    EXPECT_EQ(decoded->grants[i].writable, plan.grants[i].writable);
    EXPECT_EQ(decoded->grants[i].owner_uid, plan.grants[i].owner_uid);
    EXPECT_EQ(decoded->grants[i].owner_gid, plan.grants[i].owner_gid);
  }
  EXPECT_EQ(decoded->directories, plan.directories);
  EXPECT_EQ(decoded->environment, plan.environment);
  EXPECT_EQ(decoded->workdir, plan.workdir);
  EXPECT_EQ(decoded->hostname, plan.hostname);
  EXPECT_EQ(decoded->user_uid, plan.user_uid);
  EXPECT_EQ(decoded->user_gid, plan.user_gid);
  EXPECT_EQ(decoded->privileges, plan.privileges);
  EXPECT_EQ(decoded->syscall_profile, plan.syscall_profile);
  EXPECT_EQ(decoded->on_refusal, plan.on_refusal);
  EXPECT_EQ(decoded->layer, plan.layer);
  EXPECT_EQ(decoded->layer_fd, plan.layer_fd);
  EXPECT_EQ(decoded->require_hard_limits, plan.require_hard_limits);
  EXPECT_EQ(decoded->life, plan.life);
  EXPECT_EQ(decoded->single, plan.single);
  EXPECT_EQ(decoded->keep_layer, plan.keep_layer);
  EXPECT_EQ(decoded->egress, plan.egress);
  EXPECT_EQ(decoded->network, plan.network);
  EXPECT_EQ(decoded->fixed_floor, plan.fixed_floor);
  EXPECT_EQ(decoded->audit, plan.audit);
  EXPECT_EQ(decoded->audit_fd, plan.audit_fd);
  EXPECT_EQ(decoded->keys, plan.keys);
  EXPECT_EQ(decoded->keys_fd, plan.keys_fd);
  EXPECT_EQ(decoded->alarm, plan.alarm);
  EXPECT_EQ(decoded->alarm_fd, plan.alarm_fd);
  EXPECT_EQ(decoded->minter, plan.minter);
  EXPECT_EQ(decoded->minter_fd, plan.minter_fd);
  EXPECT_EQ(decoded->served_domain, plan.served_domain);
  EXPECT_EQ(decoded->authority, plan.authority);
  EXPECT_EQ(decoded->cpu_milli, plan.cpu_milli);
  EXPECT_EQ(decoded->memory, plan.memory);
  EXPECT_EQ(decoded->pids, plan.pids);
  EXPECT_EQ(decoded->disk, plan.disk);
  EXPECT_EQ(decoded->inodes, plan.inodes);
  EXPECT_EQ(decoded->open_files, plan.open_files);
  EXPECT_EQ(decoded->output, plan.output);
  EXPECT_EQ(decoded->timeout_ms, plan.timeout_ms);
  EXPECT_EQ(decoded->cpu_time_ms, plan.cpu_time_ms);
  EXPECT_EQ(decoded->limits(), plan.limits());
  EXPECT_EQ(decoded->info, plan.info);
  EXPECT_EQ(encode(*decoded), encode(plan));
}

TEST(Plan, AMountComesWithItsFile) {
  Plan plan = full_plan();
  plan.image = PlanImage::kMount;
  plan.image_id_base = 0;
  plan.image_file_fd = 3;
  const auto decoded = decode_plan(encode(plan), kDescriptors);
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->image, PlanImage::kMount);
  EXPECT_EQ(decoded->image_file_fd, 3u);
}

TEST(Plan, RootsLieUnderTheImageInTheirOrder) {
  Plan plan = full_plan();
  plan.below = {{.form = PlanImage::kDirectory, .fd = 2, .id_base = 0x70000000},
                {.form = PlanImage::kMount, .fd = 3, .file_fd = 1}};
  const auto decoded = decode_plan(encode(plan), kDescriptors);
  ASSERT_TRUE(decoded) << decoded.error().message();
  const std::vector<PlanRoot> roots = image_roots(*decoded);
  ASSERT_EQ(roots.size(), 3u);
  EXPECT_EQ(roots[0].fd, plan.image_fd);
  EXPECT_EQ(roots[0].id_base, plan.image_id_base);
  EXPECT_EQ(roots[1].form, PlanImage::kDirectory);
  EXPECT_EQ(roots[1].fd, 2u);
  EXPECT_EQ(roots[1].id_base, 0x70000000u);
  EXPECT_EQ(roots[2].form, PlanImage::kMount);
  EXPECT_EQ(roots[2].fd, 3u);
  EXPECT_EQ(roots[2].file_fd, 1u);
  EXPECT_EQ(encode(*decoded), encode(plan));
  EXPECT_TRUE(image_roots(Plan()).empty());
}

TEST(Plan, RefusesEveryTruncation) {
  const std::string bytes = encode(full_plan());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto decoded = decode_plan(std::string_view(bytes).substr(0, size), kDescriptors);
    ASSERT_FALSE(decoded) << size;
    EXPECT_THAT(decoded.error().message(), HasSubstr("plan: "));
  }
}

// A flipped bit is refused, or it changed a value into another allowed one: then the plan is
// written again as exactly the flipped bytes. Nothing is read in two ways.
TEST(Plan, HasOneReadingForEveryFlippedBit) {
  const std::string bytes = encode(full_plan());
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto decoded = decode_plan(flipped, kDescriptors);
    if (decoded.has_value()) {
      EXPECT_EQ(encode(*decoded), flipped) << bit;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, bytes.size());
}

TEST(Plan, RefusesBytesBehindTheEnd) {
  const auto decoded = decode_plan(encode(full_plan()) + '\0', kDescriptors);
  ASSERT_FALSE(decoded);
  EXPECT_THAT(decoded.error().message(), HasSubstr("plan: end: found 1 bytes more"));
}

TEST(Plan, RefusesTooManyBytesAndDescriptors) {
  EXPECT_THAT(decode_plan(std::string(kMaxPlanBytes + 1, 'x'), 0).error().message(),
              HasSubstr("found 163841 bytes; allowed is at most 163840"));
  EXPECT_THAT(message_of(full_plan(), kMaxPlanDescriptors + 1), HasSubstr("found 129 descriptors"));
  EXPECT_EQ(message_of(full_plan(), kMaxPlanDescriptors), "accepted");
}

TEST(Plan, RefusesAnotherMagicOrVersion) {
  std::string bytes = encode(full_plan());
  bytes[0] = 'X';
  EXPECT_THAT(decode_plan(bytes, kDescriptors).error().message(), HasSubstr("plan: magic: found"));
  bytes = encode(full_plan());
  bytes[4] = 99;
  EXPECT_THAT(decode_plan(bytes, kDescriptors).error().message(),
              HasSubstr("plan: version: found 99; allowed is 11"));
}

TEST(Plan, RefusesEachValueOutOfRange) {
  struct Case {
    void (*change)(Plan&);
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](Plan& p) { p.id = "abc"; }, "plan: id: found"},
      {[](Plan& p) { p.id = "../../../etc"; }, "plan: id: found"},
      {[](Plan& p) { p.id = std::string(33, 'a'); }, "plan: id: found"},
      {[](Plan& p) { p.id = "ABCDEFGH"; }, "plan: id: found"},
      {[](Plan& p) { p.image = static_cast<PlanImage>(3); }, "plan: image: found 3"},
      {[](Plan& p) { p.image_fd = 4; }, "plan: image_fd: found 4; allowed is 0 to 3"},
      {[](Plan& p) { p.image_id_base = 0xffffffff; }, "plan: image_id_base: found"},
      {[](Plan& p) { p.image = PlanImage::kHost; }, "plan: image_fd: found 1; allowed is 0 to 0"},
      {[](Plan& p) { p.image_file_fd = 1; }, "plan: image_file_fd: found 1; allowed is 0 to 0"},
      {[](Plan& p) {
         p.image = PlanImage::kMount;
         p.image_file_fd = 4;
       },
       "plan: image_file_fd: found 4; allowed is 0 to 3"},
      {[](Plan& p) {
         p.image = PlanImage::kMount;
         p.image_fd = 4;
       },
       "plan: image_fd: found 4; allowed is 0 to 3"},
      {[](Plan& p) { p.below.resize(8); }, "plan: below: found 8; allowed is 0 to 7"},
      {[](Plan& p) { p.below = {{.fd = 4}}; }, "plan: below.fd: found 4; allowed is 0 to 3"},
      {[](Plan& p) { p.below = {{.id_base = 0xffffffff}}; }, "plan: below.id_base: found"},
      {[](Plan& p) { p.below = {{.file_fd = 1}}; }, "plan: below.file_fd: found 1"},
      {[](Plan& p) { p.below = {{.form = PlanImage::kMount, .file_fd = 4}}; },
       "plan: below.file_fd: found 4"},
      {[](Plan& p) { p.below = {{.form = PlanImage::kHost}}; }, "plan: below.form: found"},
      {[](Plan& p) { p.below = {{.form = static_cast<PlanImage>(3)}}; },
       "plan: below.form: found 3"},
      {[](Plan& p) {
         p.image = PlanImage::kHost;
         p.image_fd = p.image_id_base = p.keep_layer = 0;
         p.below.resize(1);
       },
       "plan: below.form: found"},
      {[](Plan& p) { p.workdir = "app"; }, "plan: workdir: found"},
      {[](Plan& p) { p.directories[1] = "/a/../b"; }, "plan: directories: found"},
      {[](Plan& p) { p.directories.resize(65, "/a"); }, "plan: directories: found 65"},
      {[](Plan& p) { p.environment[1] = "NONE"; }, "plan: environment: found"},
      {[](Plan& p) { p.environment[1] = "=x"; }, "plan: environment: found"},
      {[](Plan& p) { p.environment[1] = std::string("A=\0", 3); }, "plan: environment: found"},
      {[](Plan& p) { p.environment.resize(2049, "A=B"); }, "plan: environment: found 2049"},
      {[](Plan& p) { p.environment[1] = "A=" + std::string(57344, 'b'); },
       "plan: bytes of environment: found"},
      {[](Plan& p) { p.hostname = ""; }, "plan: hostname"},
      {[](Plan& p) { p.hostname = "a b"; }, "plan: hostname"},
      {[](Plan& p) { p.user_uid = 65536; }, "plan: user_uid: found 65536"},
      {[](Plan& p) { p.user_gid = 65536; }, "plan: user_gid: found 65536"},
      {[](Plan& p) { p.privileges = 2; }, "plan: privileges: found 2"},
      {[](Plan& p) { p.syscall_profile = 3; }, "plan: syscall_profile: found 3"},
      {[](Plan& p) { p.on_refusal = 2; }, "plan: on_refusal: found 2; allowed is 0 to 1"},
      {[](Plan& p) { p.layer = 2; }, "plan: layer: found 2"},
      {[](Plan& p) { p.layer_fd = 4; }, "plan: layer_fd: found 4; allowed is 0 to 3"},
      {[](Plan& p) { p.layer = 0; }, "plan: layer_fd: found 2; allowed is 0 to 0"},
      {[](Plan& p) { p.require_hard_limits = 2; }, "plan: require_hard_limits: found 2"},
      {[](Plan& p) { p.life = static_cast<Life>(3); }, "plan: life: found 3; allowed is 0 to 2"},
      {[](Plan& p) { p.single = 2; }, "plan: single: found 2"},
      {[](Plan& p) { p.keep_layer = 2; }, "plan: keep_layer: found 2; allowed is 0 to 1"},
      {[](Plan& p) { p.egress = 2; }, "plan: egress: found 2"},
      {[](Plan& p) { p.network = static_cast<PlanNetwork>(2); }, "plan: network: found 2"},
      {[](Plan& p) { p.fixed_floor = 2; }, "plan: fixed_floor: found 2"},
      {[](Plan& p) { p.audit = 2; }, "plan: audit: found 2"},
      {[](Plan& p) { p.audit_fd = 2; }, "plan: audit_fd: found 2; allowed is 0 to 1"},
      {[](Plan& p) { p.audit = 0; }, "plan: audit_fd: found 1; allowed is 0 to 0"},
      {[](Plan& p) { p.served_domain = std::string(16 * 1024 + 1, 'x'); },
       "plan: bytes of served_domain"},
      {[](Plan& p) { p.keys = static_cast<PlanKeys>(3); }, "plan: keys: found 3"},
      {[](Plan& p) { p.keys = PlanKeys::kSaid; },
       "plan: bytes of authority: found 28; allowed is 0 to 0"},
      {[](Plan& p) { p.keys_fd = 4; }, "plan: keys_fd: found 4; allowed is 0 to 3"},
      {[](Plan& p) { p.keys = PlanKeys::kNone; }, "plan: keys_fd: found 2; allowed is 0 to 0"},
      {[](Plan& p) { p.minter = 2; }, "plan: minter: found 2"},
      {[](Plan& p) { p.minter_fd = 4; }, "plan: minter_fd: found 4; allowed is 0 to 3"},
      {[](Plan& p) { p.alarm = 2; }, "plan: alarm: found 2"},
      {[](Plan& p) { p.alarm_fd = 4; }, "plan: alarm_fd: found 4; allowed is 0 to 3"},
      {[](Plan& p) { p.alarm = 0; }, "plan: alarm_fd: found 1; allowed is 0 to 0"},
      {[](Plan& p) { p.network = PlanNetwork::kNone; },
       "plan: bytes of served_domain: found 2; allowed is 0 to 0"},
      {[](Plan& p) {
         p.network = PlanNetwork::kNone;
         p.served_domain.clear();
       },
       "plan: bytes of authority: found 28; allowed is 0 to 0"},
      {[](Plan& p) { p.authority.resize(8193, 'x'); }, "plan: bytes of authority: found 8193"},
      {[](Plan& p) { p.cpu_milli = 9; }, "plan: cpus: found 9; allowed is 0 (unlimited) or 10"},
      {[](Plan& p) { p.memory = 1; }, "plan: memory: found 1"},
      {[](Plan& p) { p.pids = 1; }, "plan: pids: found 1"},
      {[](Plan& p) { p.disk = 1; }, "plan: disk: found 1"},
      {[](Plan& p) { p.inodes = 1; }, "plan: inodes: found 1"},
      {[](Plan& p) { p.open_files = 1; }, "plan: open_files: found 1"},
      {[](Plan& p) { p.output = ~0ull; }, "plan: output: found 18446744073709551615"},
      {[](Plan& p) { p.timeout_ms = ~0ull; }, "plan: timeout: found"},
      {[](Plan& p) { p.cpu_time_ms = ~0ull; }, "plan: cpu_time: found"},
      {[](Plan& p) { p.io_read = 4095; }, "plan: io_read: found 4095"},
      {[](Plan& p) { p.io_write = ~0ull; }, "plan: io_write: found 18446744073709551615"},
      {[](Plan& p) { p.io_read_ops = 1'000'000'001; }, "plan: io_read_ops: found 1000000001"},
      {[](Plan& p) { p.io_write_ops = ~0ull; }, "plan: io_write_ops: found"},
      {[](Plan& p) { p.info = std::string(8193, 'x'); }, "plan: info: found 8193 bytes"},
      {[](Plan& p) { p.grants[0].fd = 4; }, "plan: grant.fd: found 4"},
      {[](Plan& p) { p.grants[0].to = "workspace"; }, "plan: grant.to: found"},
      {[](Plan& p) { p.grants[0].to = "/"; }, "plan: grant.to: found"},
      {[](Plan& p) { p.grants[0].to = "/a/../b"; }, "without . and .."},
      {[](Plan& p) { p.grants[0].to = "/a//b"; }, "without empty components"},
      {[](Plan& p) { p.grants[0].to = "/proc/self"; }, "outside /proc, /dev and /sys"},
      {[](Plan& p) { p.grants[0].to = std::string("/a\0b", 4); }, "without a NUL byte"},
      {[](Plan& p) { p.grants[1].to = "/workspace"; }, "plan: grant.to: found a path twice"},
      {[](Plan& p) { p.grants[0].owner_uid = 0xffffffff; }, "plan: grant.owner_uid: found"},
      {[](Plan& p) { p.grants[0].owner_gid = 0xffffffff; }, "plan: grant.owner_gid: found"},
      {[](Plan& p) { p.grants.resize(65); }, "plan: grants: found 65; allowed is 0 to 64"},
  };
  for (const Case& c : cases) {
    Plan plan = full_plan();
    c.change(plan);
    EXPECT_THAT(message_of(plan), HasSubstr(c.message));
    EXPECT_THAT(message_of(plan), HasSubstr("allowed is"));
  }
}

TEST(Plan, RefusesAFlagThatIsNeitherZeroNorOne) {
  constexpr std::size_t kTail = 10;
  Plan plan = full_plan();
  plan.grants.resize(1);
  plan.directories.clear();
  plan.environment.clear();
  std::string bytes = encode(plan);
  bytes.resize(bytes.size() - 8 - kTail);  // the two counts, and what stands behind them
  // The last grant ends with directory, writable, cover and two ids.
  bytes[bytes.size() - 11] = 2;
  EXPECT_THAT(decode_plan(bytes, kDescriptors).error().message(),
              HasSubstr("plan: grant.directory: found 2; allowed is 0 to 1"));
}

TEST(Plan, RefusesALengthBeyondTheEnd) {
  std::string bytes = encode(full_plan());
  bytes[9] = '\x7f';  // the top byte of the length of `id`
  EXPECT_THAT(decode_plan(bytes, kDescriptors).error().message(),
              HasSubstr("plan: id: found a length of 21307"));
}

TEST(Plan, TheLargestSpecFitsIntoOnePlan) {
  Plan plan = full_plan();
  plan.grants.clear();
  for (int i = 0; i < 64; ++i) {
    PlanGrant grant;
    grant.to = "/" + std::string(100, static_cast<char>('a' + i % 26)) + "/" +
               std::to_string(1000 + i) + std::string(405, 'x');
    for (char& c : grant.to) c = c == 'x' ? 'y' : c;
    grant.to[300] = '/';
    plan.grants.push_back(grant);
  }
  plan.info.assign(8192, 'i');
  plan.directories.assign(kMaxPlanDirectories, "/" + std::string(250, 'd'));
  plan.environment.assign(kMaxPlanEnvironment, "NAME=" + std::string(22, 'v'));
  EXPECT_LE(encode(plan).size(), kMaxPlanBytes);
  EXPECT_EQ(message_of(plan), "accepted");
}

}  // namespace
}  // namespace caisson::wall
