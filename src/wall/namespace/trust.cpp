// Whom the programs of a sandbox trust besides the authorities of its image: whoever opens their
// TLS for the policy. One file of ours holds all of them, another one the same for Java. Each has a
// name of its own, for the variables that many runtimes read, and lies over the bundle that the
// image has, for the others.
// What the image and the layer hold stays as it was.
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <span>
#include <string>
#include <utility>

#include "base/guards.h"
#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/namespace/java_trust.h"
#include "wall/namespace/layer.h"
#include "wall/namespace/rootfs.h"

namespace caisson::wall {
namespace {

// Where distributions keep all authorities as one file; the first that is there is the image's.
// Relative to a root; several may be links to one.
constexpr const char* kBundles[] = {"etc/ssl/certs/ca-certificates.crt",
                                    "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem",
                                    "etc/ssl/cert.pem"};
// The same for Java, in a form of its own.
constexpr const char* kJavaBundles[] = {"etc/ssl/certs/java/cacerts", "etc/pki/java/cacerts"};
constexpr int kGatewayPatienceMs = 10'000;
constexpr std::size_t kMostBundle = 4u << 20;
constexpr std::uint64_t kBarred =
    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
constexpr std::uint64_t kInside = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;

// An image may have anything there: what is no file of that name, or cannot be reached by it, is no
// bundle. Invalid: none.
Result<Fd> open_bundle(int root_fd, const char* path, std::uint64_t flags) {
  auto found = sys::openat2(root_fd, path, flags | O_CLOEXEC, 0, kInside);
  if (!found) {
    const int number = found.error().error_number();
    const bool none = number == ENOENT || number == ENOTDIR || number == ELOOP || number == EACCES;
    if (none) return Fd();
    return fail(std::move(found).error().with(std::string("/") + path));
  }
  struct stat facts{};
  if (::fstat(found->get(), &facts) != 0) return fail_errno(std::string("stat /") + path);
  if (!S_ISREG(facts.st_mode)) return Fd();
  return found;
}

// The authorities of this root; empty: it has none.
Result<std::string> bundle_of(int root_fd) {
  for (const char* path : kBundles) {
    TRY_ASSIGN(const Fd file, open_bundle(root_fd, path, O_RDONLY | O_NONBLOCK));
    if (!file.valid()) continue;
    auto text = sys::read_again(file.get(), kMostBundle);
    if (!text) return fail(std::move(text).error().with(std::string("/") + path));
    if (!text->empty() && !text->ends_with('\n')) *text += '\n';
    return text;
  }
  return std::string();
}

// The gateway that says it was started when this sandbox was begun, and gets ready beside it.
Result<std::string> authority_of(const Plan& plan) {
  if (plan.keys != PlanKeys::kSaid) return plan.authority;
  const int said_fd = plan.descriptors[plan.keys_fd];
  pollfd entry{said_fd, POLLIN, 0};
  if (TEMP_FAILURE_RETRY(::poll(&entry, 1, kGatewayPatienceMs)) <= 0)
    return fail(Error(Code::kDeadlineExceeded, "the gateway does not say its certificate"));
  TRY_ASSIGN(sys::Message said, sys::recv_message(said_fd, kMaxPlanAuthority));
  if (said.bytes.empty())
    return fail(Error::precondition("the gateway ended before it had a certificate"));
  return std::move(said.bytes);
}

bool is_same(int one_fd, int other_fd) {
  struct stat one{}, other{};
  return ::fstat(one_fd, &one) == 0 && ::fstat(other_fd, &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

// The file of ours over every one of these that the image has.
Status RootBuilder::lay_over(int ours_fd, std::span<const char* const> paths) {
  for (const char* path : paths) {
    TRY_ASSIGN(const Fd bundle, open_bundle(root_.get(), path, O_PATH));
    if (!bundle.valid() || is_same(bundle.get(), ours_fd)) continue;
    TRY(bind(ours_fd, bundle.get(), "", kBarred));
  }
  return {};
}

Result<RootBuilder::TrustFiles> RootBuilder::make_trust_files() {
  TRY_ASSIGN(std::string trusted, bundle_of(root_.get()));
  // Else whoever reads our file would believe no server whose TLS is not opened.
  if (trusted.empty()) {
    const Fd host(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!host.valid()) return fail_errno("open /");
    TRY_ASSIGN(trusted, bundle_of(host.get()));
  }
  TRY_ASSIGN(const std::string authority, authority_of(plan_));
  trusted += authority;
  // Not in the layer, whose room is the program's alone.
  const sys::MountOption options[] = {{"mode", "755"}, {"size", "8m"}, {"nr_inodes", "8"}};
  TRY_ASSIGN(
      const Fd made,
      sys::make_mount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  TRY(write_new(made.get(), "pem", trusted, 0444));
  TRY_ASSIGN(const std::string store, java_trust_store(trusted));
  TRY(write_new(made.get(), "java", store, 0444));
  if (::mkdirat(layer_.get(), ".trust", 0755) != 0) return fail_errno("mkdir .trust");
  TRY(sys::move_mount(made.get(), layer_.get(), ".trust"));
  TrustFiles files;
  files.pem = Fd(::openat(made.get(), "pem", O_PATH | O_CLOEXEC | O_NOFOLLOW));
  files.java = Fd(::openat(made.get(), "java", O_PATH | O_CLOEXEC | O_NOFOLLOW));
  if (!files.pem.valid() || !files.java.valid()) return fail_errno("open of what is to be trusted");
  return files;
}

Status RootBuilder::put_trust() {
  if (plan_.authority.empty() && plan_.keys != PlanKeys::kSaid) return {};
  auto put = [&]() -> Status {
    TRY_ASSIGN(const TrustFiles files, make_trust_files());
    TRY_ASSIGN(const Fd run, sys::openat2(root_.get(), "run", O_PATH | O_DIRECTORY, 0, kInside));
    if (::mkdirat(run.get(), "caisson", 0755) == 0) {
      TRY(own(run.get(), "caisson", 0, 0));
    } else if (errno != EEXIST) {
      return fail_errno(std::string("mkdir for ") + kTrustFile);
    }
    TRY_ASSIGN(const Fd folder, sys::openat2(run.get(), "caisson", O_PATH | O_DIRECTORY, 0,
                                             RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
    const std::string pem = std::string(kTrustFile).substr(sizeof("/run/caisson/") - 1);
    for (const auto& [name, file] :
         {std::pair(pem, files.pem.get()), std::pair(std::string("cacerts"), files.java.get())}) {
      TRY(write_new(folder.get(), name.c_str(), "", 0444));
      TRY(bind(file, folder.get(), name, kBarred));
    }
    if (!guard_off(Guard::kTrustBundle)) TRY(lay_over(files.pem.get(), kBundles));
    if (guard_off(Guard::kTrustJava)) return Status();
    return lay_over(files.java.get(), kJavaBundles);
  };
  auto status = put();
  if (status.has_value()) return {};
  return fail(std::move(status).error().with(
      "network: the certificates that programs inside are to trust, since TLS is inspected"));
}

}  // namespace caisson::wall
