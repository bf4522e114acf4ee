// Many sandboxes of one image at a time, as a server has them, for the tests:
//
//   shared_image_tool shared|each CHAIN_DIRECTORY COUNT -- PROGRAM [ARGUMENT...]
//
// In a mount namespace of its own it opens the image in CHAIN_DIRECTORY (rootfs.erofs or rootfs/),
// once for all sandboxes (shared) or once for each, starts PROGRAM in COUNT sandboxes, the first
// before all others, waits until each has written "ready", and prints one line of JSON: how the
// image was opened, and how many bytes of it are in the page cache, files and the file behind the
// mount together, with one sandbox and with all.
#include <caisson/sandbox.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/kernel_abi.h"
#include "image/mount.h"
#include "image/store.h"

namespace caisson {
namespace {

constexpr std::chrono::seconds kPatience(300);

// Bytes of the file that are in memory.
std::uint64_t resident(int file_fd) {
  struct stat facts{};
  if (::fstat(file_fd, &facts) != 0 || facts.st_size == 0) return 0;
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* at = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED, file_fd, 0);
  if (at == MAP_FAILED) return 0;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  std::uint64_t bytes = 0;
  if (::mincore(at, size, pages.data()) == 0)
    for (const unsigned char one : pages) bytes += (one & 1) != 0 ? page : 0;
  ::munmap(at, size);
  return bytes;
}

std::uint64_t resident_below(int directory_fd) {
  const int copy = ::openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* directory = copy >= 0 ? ::fdopendir(copy) : nullptr;
  if (directory == nullptr) return 0;
  std::uint64_t bytes = 0;
  while (const dirent* entry = ::readdir(directory)) {
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    if (entry->d_type != DT_DIR && entry->d_type != DT_REG) continue;
    const Fd below(::openat(copy, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!below.valid()) continue;
    bytes += entry->d_type == DT_DIR ? resident_below(below.get()) : resident(below.get());
  }
  ::closedir(directory);
  return bytes;
}

// What a sandbox is made of; its mount has one file system for as long as this lives.
struct Running {
  Fd files;  // of its image, to look at
  std::optional<Sandbox> sandbox;
};

struct Plan {
  bool shared = true;
  Fd chain;
  std::size_t count = 0;
  std::vector<std::string> program;
};

Result<image::ImageRoot> root_for(const Plan& plan, const image::SharedRoot& shared) {
  return plan.shared ? shared.clone() : image::open_root(plan.chain.get());
}

Result<Running> start(const Plan& plan, const image::SharedRoot& shared) {
  image::ImageRef image;
  image.name = "shared";
  TRY_ASSIGN(image.root, root_for(plan, shared));
  Running running;
  running.files = Fd(::fcntl(image.root.fd.get(), F_DUPFD_CLOEXEC, 3));
  policy::SpecValues values;
  values.image = "shared";
  values.command = plan.program;
  values.limits.timeout_ms = 600'000;
  values.limits.cpu_time_ms = 600'000;
  values.limits.memory = 128ull << 20;
  values.limits.disk = 16ull << 20;
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(values));
  TRY_ASSIGN(running.sandbox, Sandbox::create(spec, {.life = Life::kMainCommand, .root = &image}));
  TRY_ASSIGN(const auto ended, running.sandbox->start({.arguments = plan.program}));
  if (ended.has_value()) return fail(Error::internal("the program ended at once"));
  return running;
}

Status await_ready(Running& running) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::string seen;
  while (std::chrono::steady_clock::now() < end) {
    seen.clear();
    RunOptions options;
    options.on_output = [&](OutputChannel, std::string_view bytes) {
      seen += bytes;
      return true;
    };
    TRY_ASSIGN(const auto ended, running.sandbox->attach(Sandbox::Follow::kNo, options));
    if (seen.find("ready") != std::string::npos) return {};
    if (ended.has_value()) break;
    ::usleep(10'000);
  }
  return fail(Error::internal("a sandbox was not ready: " + seen));
}

std::uint64_t in_memory(const Plan& plan, const std::vector<Running>& all) {
  std::uint64_t bytes = 0;
  for (const Running& running : all) {
    bytes += resident_below(running.files.get());
    if (plan.shared) break;  // all see the same pages
  }
  const Fd file(::openat(plan.chain.get(), image::kErofsName, O_RDONLY | O_CLOEXEC));
  return bytes + (file.valid() ? resident(file.get()) : 0);
}

Status run_tool(const Plan& plan) {
  if (::unshare(CLONE_NEWNS) != 0) return fail_errno("unshare");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return fail_errno("make mounts private");
  TRY_ASSIGN(const image::SharedRoot shared, image::SharedRoot::open(plan.chain.get()));
  std::vector<Running> all;
  std::uint64_t one = 0;
  Status went = [&]() -> Status {
    for (std::size_t i = 0; i < plan.count; ++i) {
      TRY_ASSIGN(Running running, start(plan, shared));
      all.push_back(std::move(running));
      if (i != 0) continue;
      TRY(await_ready(all[0]));
      one = in_memory(plan, all);
    }
    for (Running& running : all) TRY(await_ready(running));
    return {};
  }();
  const std::uint64_t many = in_memory(plan, all);
  for (Running& running : all) (void)running.sandbox->end();
  TRY(std::move(went));
  std::printf("{\"how\":\"%s\",\"one\":%llu,\"all\":%llu}\n", std::string(shared.how()).c_str(),
              static_cast<unsigned long long>(one), static_cast<unsigned long long>(many));
  return {};
}

}  // namespace
}  // namespace caisson

int main(int count, char** words) {
  caisson::Plan plan;
  if (count < 6 || std::strcmp(words[4], "--") != 0) {
    std::fprintf(stderr,
                 "usage: shared_image_tool shared|each CHAIN_DIRECTORY COUNT -- PROGRAM…\n");
    return 2;
  }
  plan.shared = std::strcmp(words[1], "shared") == 0;
  plan.chain = caisson::Fd(::open(words[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  plan.count = std::strtoul(words[3], nullptr, 10);
  plan.program.assign(words + 5, words + count);
  const auto done = caisson::run_tool(plan);
  if (done.has_value()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
