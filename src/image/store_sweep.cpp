// Removing from the store what nothing names.
//
// Under `work` (exclusive: nobody adds) and `lock` names are read, and what they do not reach goes
// in the order that keeps every crash harmless: cache entries, records, then what these kept. Root
// file systems are moved to tmp, where nobody sees them, and removed outside of the locks, for that
// may take seconds. `work` goes last: until then the next to open the store looks again.
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
#include "image/store_steps.h"

namespace caisson::image {
namespace {

constexpr std::int64_t kStaleSeconds = 7 * 24 * 60 * 60;
constexpr std::string_view kKeptEnd = ".kept";
constexpr const char* kFirstFormat = "by-digest";

bool is_older(int directory_fd, const std::string& name, std::int64_t seconds) {
  struct stat status = {};
  return fstatat(directory_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         std::time(nullptr) - status.st_mtim.tv_sec > seconds;
}

// Empty where there is no such folder.
Result<std::vector<std::string>> list_if_present(int directory_fd, const char* name) {
  auto folder = open_directory_at(directory_fd, name);
  if (!folder.has_value()) {
    if (folder.error().code() == Code::kNotFound) return std::vector<std::string>();
    return fail(std::move(folder).error());
  }
  return list_directory(folder->get());
}

}  // namespace

struct Store::Cleaning {
  GcMode mode = GcMode::kRemove;
  bool unmark = false;                // a dry run that found no `work` leaves none
  std::optional<GcScope> scope = {};  // none: a sweep, which leaves what may still be wanted
  SweepReport report = {};
  std::vector<std::string> busy = {};  // folders that wait for a sandbox's end

  bool removes() const { return mode == GcMode::kRemove; }
  // Whether something of that age goes: a cache entry, a download.
  bool drops(int directory_fd, const std::string& name) const {
    return scope && (*scope == GcScope::kAll || is_older(directory_fd, name, kStaleSeconds));
  }
};

Status Store::remove_from_tmp(const std::string& name) {
  TRY_ASSIGN(const int tmp, folder(Folder::kTmp));
  auto removed = remove_tree_at(tmp, name);
  if (removed.has_value()) return {};
  // Files of a range of subordinate ids are not ours to touch from here.
  if (mapping_of_caller().layout != IdLayout::kSubuid) return removed;
  return remove_by_worker(tmp, name, mapping_of_caller());
}

bool Store::may_hold_rubbish() const {
  auto text = read_small_file_at(directory_.get(), "work");
  if (!text.has_value()) return text.error().code() != Code::kNotFound;
  if (text->empty()) return true;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string folder(rest.substr(0, end));
    if (!has(folder) || !is_locked_at(directory_.get(), folder + "/use")) return true;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return false;
}

Result<bool> Store::retire(int directory_fd, const std::string& name) {
  auto directory = open_directory_at(directory_fd, name);
  if (!directory.has_value()) {
    if (directory.error().code() == Code::kNotFound) return true;
    return fail(std::move(directory).error());
  }
  TRY_ASSIGN(std::optional<Fd> alone,
             lock_file_at(directory->get(), "use", LockKind::kExclusive, LockWait::kTry));
  if (!alone) return false;
  TRY_ASSIGN(const int tmp, folder(Folder::kTmp));
  if (renameat(directory_fd, name.c_str(), tmp, random_name().c_str()) != 0) {
    return fail_errno("move " + name + " away");
  }
  return true;
}

Status Store::drop_file(Cleaning& how, int directory_fd, const std::string& name) {
  struct stat status = {};
  if (fstatat(directory_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    how.report.bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  if (how.removes() && unlinkat(directory_fd, name.c_str(), 0) != 0 && errno != ENOENT) {
    return fail_errno("remove " + name);
  }
  return {};
}

Status Store::clean_cache(Cleaning& how, std::vector<std::string>& kept) {
  TRY_ASSIGN(const int cache, folder(Folder::kCache));
  TRY_ASSIGN(const std::vector<std::string> keys, list_directory(cache));
  const std::uint64_t before = how.report.cache_entries;
  for (const std::string& key : keys) {
    if (!is_sha256(key)) {  // half written by a dead process
      if (how.removes()) unlinkat(cache, key.c_str(), 0);
      continue;
    }
    TRY_ASSIGN(const std::string text, read_small_file_at(cache, key));
    auto record = CacheRecord::decode(text);
    const bool useless = !record.has_value() || !has("ids/" + record->image_id);
    if (!useless && !how.drops(cache, key)) {
      kept.push_back(record->image_id);
      continue;
    }
    ++how.report.cache_entries;
    TRY(drop_file(how, cache, key));
  }
  if (how.removes() && how.report.cache_entries > before && fsync(cache) != 0) {
    return fail_errno("fsync cache");
  }
  return {};
}

Result<Store::Reachable> Store::reachable(const std::vector<std::string>& cached_images) {
  Reachable reached;
  reached.images.insert(cached_images.begin(), cached_images.end());
  TRY_ASSIGN(const std::vector<Reference> all, names());
  for (const Reference& name : all) {
    TRY_ASSIGN(const std::string text,
               read_small_file_at(directory_.get(), "refs/" + name.file_name()));
    if (std::string digest = first_format_digest(text); !digest.empty()) {
      reached.first_format.insert(std::move(digest));
      continue;
    }
    auto record = ReferenceRecord::decode(text);
    if (!record.has_value()) {
      return fail(std::move(record).error().with("image '" + name.text() + "'"));
    }
    reached.images.insert(record->image_id);
  }
  for (const std::string& id : reached.images) {
    auto record = read_record(id);
    if (!record.has_value()) {
      // A name without an image keeps nothing; one that cannot be read might keep anything.
      if (record.error().code() == Code::kNotFound) continue;
      return fail(std::move(record).error());
    }
    reached.chains.insert(record->chain);
    TRY_ASSIGN(const std::vector<RootfsInfo> stack, stack_of(record->chain));
    for (const RootfsInfo& rootfs : stack) reached.chains.insert(rootfs.below);
    reached.blobs.insert(id);
    if (!record->manifest.empty()) reached.blobs.insert(record->manifest);
    for (const LayerRef& layer : record->layers) reached.blobs.insert(layer.blob.digest);
  }
  return reached;
}

Status Store::clean_records(Cleaning& how, const Reachable& reached) {
  TRY_ASSIGN(const int ids, folder(Folder::kIds));
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(ids));
  const std::uint64_t before = how.report.images;
  TRY(enter_store_step("store-unlist"));
  for (const std::string& id : all) {
    if (reached.images.contains(id)) continue;
    if (is_sha256(id)) ++how.report.images;
    TRY(drop_file(how, ids, id));
  }
  if (how.removes() && how.report.images > before && fsync(ids) != 0) {
    return fail_errno("fsync ids");
  }
  return {};
}

Status Store::clean_rootfs(Cleaning& how, const Reachable& reached) {
  TRY_ASSIGN(const int chains, folder(Folder::kRootfs));
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(chains));
  TRY(enter_store_step("store-retire"));
  for (const std::string& chain : all) {
    if (reached.chains.contains(chain)) continue;
    const auto info = read_rootfs(chain);
    if (how.removes()) {
      TRY_ASSIGN(const bool gone, retire(chains, chain));
      if (!gone) how.busy.push_back("rootfs/" + chain);
    } else if (is_locked_at(chains, chain + "/use")) {
      how.busy.push_back("rootfs/" + chain);
    }
    if (!how.busy.empty() && how.busy.back() == "rootfs/" + chain) continue;
    ++how.report.rootfs;
    if (info.has_value()) {
      how.report.bytes += info->disk_bytes != 0 ? info->disk_bytes : info->bytes;
    }
  }
  return {};
}

Status Store::clean_blobs(Cleaning& how, const Reachable& reached) {
  TRY_ASSIGN(const int blobs, folder(Folder::kBlobs));
  TRY_ASSIGN(const int partial, folder(Folder::kPartial));
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(blobs));
  for (const std::string& digest : all) {
    if (reached.blobs.contains(digest)) continue;
    const std::string mark = digest + std::string(kKeptEnd);
    const bool marked = faccessat(partial, mark.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (marked && !is_older(partial, mark, kStaleSeconds) && how.scope != GcScope::kAll) continue;
    ++how.report.blobs;
    TRY(drop_file(how, blobs, digest));
  }
  return {};
}

Status Store::clean_partial(Cleaning& how, const Reachable& reached) {
  TRY_ASSIGN(const int partial, folder(Folder::kPartial));
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(partial));
  for (const std::string& name : all) {
    if (name.ends_with(kKeptEnd)) {
      const std::string digest = name.substr(0, name.size() - kKeptEnd.size());
      if (how.removes() && (reached.blobs.contains(digest) || !has_blob(digest))) {
        unlinkat(partial, name.c_str(), 0);
      }
      continue;
    }
    if (!how.drops(partial, name) || is_locked_at(partial, name)) continue;
    ++how.report.partial;
    TRY(drop_file(how, partial, name));
  }
  return {};
}

// What the store's first format kept: root directories by the digest of their archive. Nothing uses
// them any more but sandboxes that were started before.
Status Store::clean_first_format(Cleaning& how, const Reachable& reached) {
  auto folder = open_directory_at(directory_.get(), kFirstFormat);
  if (!folder.has_value()) {
    if (folder.error().code() == Code::kNotFound) return {};
    return fail(std::move(folder).error());
  }
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(folder->get()));
  for (const std::string& digest : all) {
    if (reached.first_format.contains(digest)) continue;
    const std::string path = std::string(kFirstFormat) + "/" + digest;
    const auto info = read_small_file_at(directory_.get(), path + "/info");
    bool gone = !is_locked_at(directory_.get(), path + "/use");
    if (how.removes()) {
      TRY_ASSIGN(gone, retire(folder->get(), digest));
    }
    if (!gone) {
      how.busy.push_back(path);
      continue;
    }
    ++how.report.rootfs;
    if (info.has_value()) how.report.bytes += first_format_bytes(*info);
  }
  if (how.removes()) unlinkat(directory_.get(), kFirstFormat, AT_REMOVEDIR);
  return {};
}

// What dead work left in tmp: names to remove. Locks that nobody holds go at once.
Result<std::vector<std::string>> Store::dead_work() {
  TRY_ASSIGN(const int tmp, folder(Folder::kTmp));
  TRY_ASSIGN(const std::vector<std::string> all, list_directory(tmp));
  std::vector<std::string> dead;
  for (const std::string& name : all) {
    if (name.starts_with("work.") || name.starts_with("new.")) {
      if (!is_locked_at(tmp, name)) unlinkat(tmp, name.c_str(), 0);
      continue;
    }
    auto directory = open_directory_at(tmp, name);
    if (!directory.has_value()) continue;
    auto idle = lock_file_at(directory->get(), "lock", LockKind::kExclusive, LockWait::kTry);
    // An error: another sweep has just taken the directory away.
    if (idle.has_value() && idle->has_value()) dead.push_back(name);
  }
  for (const Folder folder_with_text : {Folder::kRefs, Folder::kIds}) {
    TRY_ASSIGN(const int folder_fd, folder(folder_with_text));
    TRY_ASSIGN(const std::vector<std::string> files, list_directory(folder_fd));
    for (const std::string& name : files) {
      if (name.starts_with(".new.")) unlinkat(folder_fd, name.c_str(), 0);
    }
  }
  return dead;
}

// Removes `work` when nothing is left to do, or writes down what has to be waited for.
Status Store::conclude(const std::vector<std::string>& busy) {
  TRY_ASSIGN(std::optional<Fd> work,
             lock_file_at(directory_.get(), "work", LockKind::kExclusive, LockWait::kTry));
  if (!work) return {};  // who adds now sweeps afterwards
  TRY_ASSIGN(const std::vector<std::string> left, list_if_present(directory_.get(), "tmp"));
  if (!left.empty()) return {};
  if (busy.empty()) {
    unlinkat(directory_.get(), "work", 0);
    return {};
  }
  std::string text;
  for (const std::string& folder : busy) text += folder + "\n";
  if (pwrite(work->get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int truncated = ftruncate(work->get(), 0);  // then everything is looked at again
    return truncated == 0 ? Status() : fail_errno("truncate work");
  }
  return {};
}

Result<SweepReport> Store::clean(Fd work, Cleaning how) {
  std::vector<std::string> dead;
  {
    TRY_ASSIGN(Fd held, lock());
    TRY(enter_store_step("store-sweep"));
    if (how.removes() && ftruncate(work.get(), 0) != 0) return fail_errno("truncate work");
    std::vector<std::string> cached_images;
    TRY(clean_cache(how, cached_images));
    TRY_ASSIGN(const Reachable reached, reachable(cached_images));
    TRY(clean_records(how, reached));
    TRY(clean_rootfs(how, reached));
    TRY(clean_blobs(how, reached));
    TRY(clean_partial(how, reached));
    TRY(clean_first_format(how, reached));
    if (how.removes()) {
      TRY_ASSIGN(dead, dead_work());
    }
  }
  how.report.in_use = how.busy.size();
  if (!how.removes()) {
    if (how.unmark) unlinkat(directory_.get(), "work", 0);
    return how.report;
  }
  work.reset();
  TRY(enter_store_step("store-empty"));
  // Two sweeps of the same name do each other no harm.
  for (const std::string& name : dead) TRY(remove_from_tmp(name));
  TRY(conclude(how.busy));
  return how.report;
}

Status Store::sweep() {
  adding_.reset();
  TRY_ASSIGN(std::optional<Fd> work,
             lock_file_at(directory_.get(), "work", LockKind::kExclusive, LockWait::kTry));
  if (!work) return {};  // who adds there sweeps
  TRY(clean(std::move(*work), Cleaning()));
  return {};
}

Result<SweepReport> Store::gc(GcScope scope, GcMode mode) {
  adding_.reset();
  const bool marked = has("work");
  TRY_ASSIGN(std::optional<Fd> work,
             lock_file_at(directory_.get(), "work", LockKind::kExclusive, LockWait::kTry));
  if (!work) {
    return fail(Error::unavailable(
        "another process is adding images; nothing is removed until it has ended"));
  }
  return clean(std::move(*work), {.mode = mode, .unmark = !marked, .scope = scope});
}

}  // namespace caisson::image
