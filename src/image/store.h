// The store of images on this host: blobs (layers, configs, manifests) by their SHA-256, root file
// systems made of chains of layers (flattened, or the last layer over those of the others), image
// records, names, and the build cache.
//
//   state_directory()/images/     0700
//     lock                        held for moments, by whoever changes names or moves things
//     work                        is there when something may be unused or half done; locked shared
//                                 by whoever adds, exclusive by who sweeps. Its text: chains that
//                                 wait for the end of a sandbox
//     blobs/HEX                   0600
//     rootfs/CHAIN/info           text (RootfsInfo)
//     rootfs/CHAIN/rootfs/        the root directory, owned as ids.h says; or
//     rootfs/CHAIN/rootfs.erofs   one file system; of a delta (rootfs_kind.h) either is nothing
//                                 without those of the chain that its info names
//     rootfs/CHAIN/use            locked shared by who uses it, exclusive by who removes it
//     ids/IMAGEID                 text (ImageRecord)
//     refs/NAME                   text (ReferenceRecord)
//     cache/KEY                   text (CacheRecord); its time of modification is its last use
//     partial/HEX                 a download under way or broken off; its maker holds a lock on it
//     partial/HEX.kept            empty: the blob came whole and waits for the rest of its image
//     tmp/                        work under way; a directory's owner holds a lock on its `lock`
//
// Things are made in tmp or partial, synced, and renamed into place, blobs first, then the root
// file system, the record, the name, so that a crash at any moment leaves nothing half visible.
// What no name and no cache entry reaches is removed by a sweep. Opening a store sweeps where
// `work` says that there may be something and nobody is adding; where it is absent, as nearly
// always, that costs one system call.
//
// A Store that begins to add (begin_blob, make_workspace, add_image, cache_put) keeps sweeps away
// until it is destroyed or sweeps itself: what it has added may be unnamed until then. So: name
// what you add, then call sweep(), and let the Store go.
//
// Not thread-safe; several processes may use one store at once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/config.h"
#include "image/ids.h"
#include "image/mount.h"
#include "image/reference.h"
#include "image/store_types.h"
#include "image/worker_process.h"

namespace caisson::image {

inline constexpr std::size_t kMaxReadBlob = 4 << 20;

// An image and whether its root file system is here.
struct ImageInfo {
  ImageRecord record;
  std::optional<RootfsInfo> rootfs;
  std::vector<RootfsInfo> below;  // what that lies over, the next one first
  bool flattened = false;         // it was made by the call that gave this

  // Of all of them together; what an upper one hides counts too.
  std::uint64_t rootfs_bytes() const;
  std::uint64_t rootfs_entries() const;
};

// One root file system of an image, opened.
struct OpenRootfs {
  RootfsInfo info;
  // A detached read-only mount, else an O_PATH directory.
  ImageRoot root;
  // Keep it (or a copy of the descriptor) open for as long as the sandbox lives: as long as it is,
  // nobody removes the files.
  Fd in_use;
};

// One image, ready to be a sandbox's root.
struct ImageRef {
  std::string name;  // the reference's text, or "sha256:IMAGEID" where it was asked for by its id
  ImageRecord record;
  RootfsInfo rootfs;
  std::string config_json;
  ImageConfig config;
  // As in OpenRootfs.
  ImageRoot root;
  Fd in_use;
  // Of an image that lies over others: the lower directories under `root`, the next one first.
  // `root` alone is then not what the image holds.
  std::vector<OpenRootfs> below;

  std::uint32_t disk_base() const { return rootfs.disk_base(); }
};

struct ListedImage {
  Reference reference;
  ReferenceRecord named;  // an empty image_id: of the store's first format, to be imported again
  std::optional<ImageInfo> image;  // none: its record is missing or damaged
};

// A blob under way. Dropping one of a known digest keeps its bytes for the next begin_blob(); one
// of an unknown digest goes with the next sweep.
struct PartialBlob {
  Fd file;                 // read and write, positioned at its end; it also is the lock
  std::uint64_t size = 0;  // bytes that are there already
  bool present = false;    // the whole blob is in the store: nothing to do, `file` is not valid
  std::string digest;      // as given to begin_blob(), else empty
  std::string name;        // in its folder
  // The digest of the file, where who wrote it hashed it on the way: commit_blob() believes that.
  std::string hashed;
};

// A directory in tmp that is ours until add_image(), discard() or destruction, after which the next
// sweep removes it.
class Workspace {
 public:
  Workspace(Workspace&&) noexcept = default;
  Workspace& operator=(Workspace&&) noexcept = default;

  int directory_fd() const { return directory_.get(); }
  // Locked; whoever inherits it keeps the sweep away.
  int lock_fd() const { return lock_.get(); }
  const std::string& name() const { return name_; }

 private:
  friend class Store;
  Workspace() = default;
  std::string name_;
  Fd directory_;
  Fd lock_;
};

// What a sweep or gc() removed, or would.
struct SweepReport {
  std::uint64_t images = 0;  // records
  std::uint64_t rootfs = 0;  // flattened chains
  std::uint64_t blobs = 0;
  std::uint64_t cache_entries = 0;
  std::uint64_t partial = 0;  // downloads broken off
  std::uint64_t bytes = 0;    // of all of it, on disk
  std::uint64_t in_use = 0;   // flattened chains that stay until a sandbox ends
};

enum class GcScope { kStale, kAll };  // cache entries and partial downloads: a week old, or all
enum class GcMode { kRemove, kDryRun };

// Of the build cache; nullopt is unlimited.
struct CacheBound {
  std::optional<std::uint64_t> bytes;   // on disk, of what no name keeps
  std::optional<std::int64_t> seconds;  // since its last use
};
struct CacheReport {
  std::uint64_t kept = 0, dropped = 0;  // entries
  std::uint64_t bytes = 0;              // of what the kept ones take
};

// What is in the store's file `format`, a number: to be raised with each change after which a
// program that knows less would read something wrong or sweep what is needed. 1: images by digest;
// 2: root file systems apart from images; 3: some of them over others. A program refuses numbers
// above its own; a store without the file is of one of these.
inline constexpr std::uint32_t kStoreFormat = 3;

class Store {
 public:
  // Opens (and makes) the store of this user and, where there may be something, sweeps. An error of
  // the sweep is no error of the store. Error: precondition where a newer program has made of it
  // what this one does not know (kStoreFormat): it is left as it is, unswept.
  static Result<Store> open();
  static Result<Store> open_at(const std::string& directory);
  // open(), but nullopt and nothing made when this user has no store yet.
  static Result<std::optional<Store>> open_if_present();

  // ---- images by name ----

  // `text` is a name (with a digest: also one of the same name whose image has that manifest),
  // "sha256:IMAGEID", or at least 6 digits of an id that begin only one.
  // Error: not_found, naming the images that there are; precondition where the image was unpacked
  // for ids that this process cannot use, has no root file system yet, or is of the store's first
  // format.
  Result<ImageRef> resolve(std::string_view text);
  // The id that `text` means; as resolve(), but nothing is opened, and an error names no other
  // image: it may reach somebody who is not to know them.
  Result<std::string> find(std::string_view text);
  bool contains(std::string_view reference);
  // Every name, sorted.
  Result<std::vector<ListedImage>> list();
  Result<ImageInfo> info(const std::string& image_id);
  // The names of the image, sorted.
  Result<std::vector<Reference>> names_of(const std::string& image_id);
  // Points the name to the image, which must be in the store.
  Status set_reference(const Reference& reference, const std::string& image_id);
  // Removes the name, or for an id all its names, and sweeps.
  Status remove(std::string_view text);

  // ---- blobs ----

  // Sure to stay so only while this Store adds.
  bool has_blob(const std::string& digest);
  // Opened for reading. Error: not_found.
  Result<Fd> open_blob(const std::string& digest);
  // The bytes of a small blob, checked against its digest. Error: not_found; data_loss; invalid
  // when larger than kMaxReadBlob.
  Result<std::string> read_blob(const std::string& digest);
  // Keeps these bytes and gives their digest.
  Result<std::string> put_blob(std::string_view bytes);
  // Waits for whoever makes a blob of the same digest. Append to `file`, then commit_blob().
  // nullopt: the digest is not known yet.
  Result<PartialBlob> begin_blob(const std::optional<std::string>& digest);
  // Nobody else may have the file open for writing any more: whoever has could change the bytes
  // after they were looked at. Hashes the file, compares with the digest given to begin_blob(),
  // syncs and renames into place. The digest. Error: data_loss when it is another one (the bytes
  // are dropped); resource_exhausted or another when the disk is full (an unknown digest's bytes
  // are dropped).
  Result<std::string> commit_blob(PartialBlob blob);
  // Drops the bytes now, those of a known digest too.
  Status discard_blob(PartialBlob blob);

  // The layer of an image of the store whose blob that is; nullopt: there is none. Reads all
  // records.
  Result<std::optional<LayerRef>> find_layer(const std::string& blob_digest);

  // ---- adding images ----

  // Keeps config, manifest and record, and flattens the chain of layers where that is not here yet;
  // when two processes add the same chain one of them works, the other waits. After an error no
  // record is there. Error: invalid for a content that does not fit together (a diff_id that the
  // config does not list, a bad archive, a limit); not_found for a missing blob; precondition for
  // what this host lacks.
  Result<ImageInfo> add_image(const ImageContent& content, const UnpackLimits& limits = {},
                              const Progress& progress = {});
  // The same with the root file system made already: `workspace` holds rootfs/ or rootfs.erofs
  // (finished), which `rootfs` describes (its chain is filled in). Where the chain is here already
  // the workspace is discarded.
  Result<ImageInfo> add_image(const ImageContent& content, Workspace workspace, RootfsInfo rootfs);
  // The same for an image that is another one and a layer more, as a snapshot of a sandbox is: only
  // that layer is made, as a delta over the other's root file system, which takes the time and the
  // disk of the changes alone. It is flattened like any other where it cannot be so: the other one
  // has no root file system that can be used here, there would be more than kMostStacked of them,
  // or the layer is no delta (worker/delta.h). The limits hold for the layer. Error, besides:
  // invalid where the content's layers are not the other's and one more; not_found for no such
  // image.
  Result<ImageInfo> add_image_over(const std::string& base_image_id, const ImageContent& content,
                                   const UnpackLimits& limits = {}, const Progress& progress = {});
  // Says that a worker of this process read exactly that blob and computed that diff_id, so that
  // adding an image of it need not read it again. Every other pair that no record of the store has
  // is read and compared before it gets into one: find_layer() and the next import believe records.
  void vouch(const LayerRef& layer);
  // Config, manifest and record alone: for steps of a build. resolve() refuses it until add_image()
  // of the same content makes its root file system.
  Result<ImageInfo> add_record(const ImageContent& content);
  Result<Workspace> make_workspace();
  Status discard(Workspace workspace);
  // Held until the returned lock is closed: nobody else does the work of that name (a chain id, or
  // "import-DIGEST") meanwhile.
  Result<Fd> lock_work(const std::string& name);
  bool has_rootfs(const std::string& chain);
  // Whether it is whole, in one piece.
  bool has_whole_rootfs(const std::string& chain);
  // Whether a sandbox uses the chain's root file system.
  bool in_use(const std::string& chain);
  // The form of root file systems that are made here now, as the settings say (`image_form`).
  // Error: precondition where that is erofs and such a file cannot be mounted here.
  Result<RootfsForm> preferred_form();

  // ---- build cache ----

  // `key`: 64 hexadecimal digits. The image that a step made, nullopt when that is not here (any
  // more). A hit counts as use.
  Result<std::optional<std::string>> cache_get(const std::string& key);
  // The image must be in the store (add_record() is enough).
  Status cache_put(const std::string& key, const std::string& image_id);

  // Drops the entries that were used longest ago until the rest is within the bound, and sweeps.
  // Entries go at once; what they kept goes with a sweep, which as ever waits until nobody adds.
  Result<CacheReport> trim_cache(const CacheBound& bound);

  // ---- removal ----

  // Lets go of this Store's hold on what it added, and removes what nothing names, the remains of
  // dead work, and what waited for a sandbox's end. Nothing happens while another process adds: the
  // next to open the store sweeps.
  Status sweep();
  // The same, with old cache entries, partial downloads and blobs that wait for the rest of their
  // image. Error: unavailable while another process adds images.
  Result<SweepReport> gc(GcScope scope, GcMode mode);

  int directory_fd() const { return directory_.get(); }

 private:
  enum class Folder : std::uint8_t { kRefs, kIds, kRootfs, kBlobs, kCache, kPartial, kTmp };
  static constexpr std::size_t kFolders = 7;
  // What a text meant: `reference` has a name where it was one.
  struct Found {
    std::string name;
    Reference reference = {.name = {}, .tag = {}};
    std::string image_id;
  };
  struct Reachable;
  struct Cleaning;
  Store() = default;

  // Opened (and made) when it is first needed.
  Result<int> folder(Folder folder);
  bool has(const std::string& path) const;
  Result<Fd> lock();
  // Takes the shared lock of `work`, once.
  Status begin_adding();
  bool may_hold_rubbish() const;
  // Says that the store is of our format, where it is of none or of a lower one. Where that cannot
  // be written now, as on a full disk, it must be before anything is added.
  Status check_format();
  Status say_format();

  Result<ImageRecord> read_record(const std::string& image_id);
  Result<RootfsInfo> read_rootfs(const std::string& chain);
  Result<ReferenceRecord> read_reference(const Reference& reference);
  Result<std::string> read_blob_bytes(const std::string& digest);
  Result<std::optional<std::string>> find_id(std::string_view digits);
  Result<std::string> find_pinned(const Reference& wanted);
  Result<Found> find_named(std::string_view text);
  // The same; its error names the images that there are.
  Result<Found> find_or_list(std::string_view text);
  Result<std::vector<Reference>> names();
  Result<std::string> available();
  Result<std::optional<ImageRef>> open_image(const Found& found);
  Status check_marks(const ImageRef& image) const;
  Result<std::optional<OpenRootfs>> open_rootfs(const std::string& chain,
                                                const std::string& image_name);
  // Of the chain and what it lies over, top first; as far as they are here.
  // Ends where one is not there. Error: one cannot be read.
  Result<std::vector<RootfsInfo>> stack_of(const std::string& chain);

  Status check_content(const ImageContent& content);
  bool mounts_erofs();
  Result<std::vector<LayerRef>> unverified(const ImageContent& content);
  Status verify_layers(const ImageContent& content, const UnpackLimits& limits,
                       const Progress& progress);
  bool is_usable(const std::vector<RootfsInfo>& stack);
  Result<bool> has_usable_rootfs(const std::string& chain);
  Result<RootfsInfo> flatten(const ImageContent& content, const Workspace& workspace,
                             const UnpackLimits& limits, const Progress& progress);
  Status flatten_into_place(const ImageContent& content, const std::string& chain,
                            const UnpackLimits& limits, const Progress& progress);
  Result<RootfsInfo> make_delta(const ImageContent& content, RootfsForm form,
                                const RootfsInfo& below, const Workspace& workspace,
                                const UnpackLimits& limits, const Progress& progress);
  Result<bool> delta_into_place(const ImageContent& content, const std::string& chain,
                                const std::string& below, const UnpackLimits& limits,
                                const Progress& progress);
  Status place_rootfs(const Workspace& workspace, RootfsInfo rootfs);
  Status place_or_discard(Workspace workspace, RootfsInfo rootfs);
  Status make_way(const std::string& chain);
  std::optional<ImageRecord> whole_record(const std::string& image_id);
  Status add_rootfs(ImageInfo& info);
  Result<ImageInfo> write_record(const ImageContent& content);

  // All of these under `work` and `lock`.
  Result<SweepReport> clean(Fd work, Cleaning how);
  Status clean_cache(Cleaning& how, std::vector<std::string>& kept);
  // What the image takes on disk beside what is reached already; from then on that is reached too.
  Result<std::uint64_t> cost_of(const std::string& image_id, Reachable& reached);
  Result<Reachable> reachable(const std::vector<std::string>& cached_images);
  Status clean_records(Cleaning& how, const Reachable& reached);
  Status clean_rootfs(Cleaning& how, const Reachable& reached);
  Status clean_blobs(Cleaning& how, const Reachable& reached);
  Status clean_partial(Cleaning& how, const Reachable& reached);
  Status clean_first_format(Cleaning& how, const Reachable& reached);
  Result<std::vector<std::string>> dead_work();
  Status conclude(const std::vector<std::string>& busy);
  Status drop_file(Cleaning& how, int directory_fd, const std::string& name);
  // Moves an unused directory to tmp for removal; false: it is in use. Under the lock.
  Result<bool> retire(int directory_fd, const std::string& name);
  Status remove_from_tmp(const std::string& name);

  Fd directory_;
  std::array<Fd, kFolders> folders_;
  Fd adding_;  // `work`, locked shared
  bool format_said_ = true;
  std::set<std::pair<std::string, std::string>> vouched_;  // blob digest, diff_id
};

}  // namespace caisson::image
