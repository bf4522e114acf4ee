// Bounding the build cache by what it takes and by age.
//
// An entry takes what its image keeps and neither a name nor an entry that was used later does.
// Those that go are taken away under the store's lock alone, also while others add: who was given
// an entry holds off every sweep (cache_get()), so that what the entry meant stays as long as it is
// worked with.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "image/files.h"
#include "image/store.h"
#include "image/store_reach.h"

namespace caisson::image {
namespace {

struct Entry {
  std::string key, image_id;
  std::int64_t used_ns = 0;
};

std::int64_t nanoseconds_of(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// On disk; 0 where it is not there.
std::uint64_t size_at(int directory_fd, const std::string& path) {
  struct stat status = {};
  if (fstatat(directory_fd, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

// Newest first; what is no entry of ours is a sweep's.
Result<std::vector<Entry>> entries_by_use(int cache_fd) {
  TRY_ASSIGN(const std::vector<std::string> keys, list_directory(cache_fd));
  std::vector<Entry> entries;
  for (const std::string& key : keys) {
    struct stat status = {};
    if (!is_sha256(key) || fstatat(cache_fd, key.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    const auto text = read_small_file_at(cache_fd, key);
    if (!text.has_value()) continue;
    auto record = CacheRecord::decode(*text);
    if (!record.has_value()) continue;
    entries.push_back({.key = key,
                       .image_id = std::move(record->image_id),
                       .used_ns = nanoseconds_of(status.st_mtim)});
  }
  std::ranges::sort(entries, std::ranges::greater(), &Entry::used_ns);
  return entries;
}

}  // namespace

Result<std::uint64_t> Store::cost_of(const std::string& image_id, Reachable& reached) {
  auto record = read_record(image_id);
  if (!record.has_value()) return 0;  // the entry is useless, which a sweep finds
  std::uint64_t cost = 0;
  const auto add_file = [&](const std::string& folder, const std::string& name,
                            std::set<std::string>& known) {
    if (!name.empty() && known.insert(name).second)
      cost += size_at(directory_.get(), folder + name);
  };
  add_file("ids/", image_id, reached.images);
  add_file("blobs/", image_id, reached.blobs);
  add_file("blobs/", record->manifest, reached.blobs);
  for (const LayerRef& layer : record->layers) add_file("blobs/", layer.blob.digest, reached.blobs);
  TRY_ASSIGN(const std::vector<RootfsInfo> stack, stack_of(record->chain));
  for (const RootfsInfo& rootfs : stack)
    if (reached.chains.insert(rootfs.chain).second)
      cost += rootfs.disk_bytes != 0 ? rootfs.disk_bytes : rootfs.bytes;
  return cost;
}

Result<CacheReport> Store::trim_cache(const CacheBound& bound) {
  // On a full disk the mark may have no room; removing makes some, and sweeps below.
  if (auto marked = begin_adding();
      !marked.has_value() && marked.error().code() != Code::kResourceExhausted) {
    return fail(std::move(marked).error());
  }
  CacheReport report;
  {
    TRY_ASSIGN(const int cache, folder(Folder::kCache));
    TRY_ASSIGN(Fd held, lock());
    TRY_ASSIGN(const std::vector<Entry> entries, entries_by_use(cache));
    TRY_ASSIGN(Reachable reached, reachable({}));
    const std::int64_t now = std::int64_t{std::time(nullptr)} * 1'000'000'000;
    bool full = false;
    for (const Entry& entry : entries) {
      if (!full) {
        TRY_ASSIGN(const std::uint64_t cost, cost_of(entry.image_id, reached));
        const bool old =
            bound.seconds.has_value() && (now - entry.used_ns) / 1'000'000'000 > *bound.seconds;
        // What was used before this one goes as well.
        full = old || (bound.bytes.has_value() && report.bytes + cost > *bound.bytes);
        if (!full) report.bytes += cost;
      }
      if (!full) {
        ++report.kept;
        continue;
      }
      if (unlinkat(cache, entry.key.c_str(), 0) != 0 && errno != ENOENT) {
        return fail_errno("remove a cache entry");
      }
      ++report.dropped;
    }
    if (report.dropped > 0 && fsync(cache) != 0) return fail_errno("fsync cache");
  }
  TRY(sweep());
  return report;
}

}  // namespace caisson::image
