#include "image/registry/pull.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/sha256.h"
#include "image/registry/names.h"
#include "image/registry/session.h"

namespace caisson::image {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kParallel = 3;
// An index may lead to another one, but not in circles.
constexpr int kMaxIndexDepth = 3;
constexpr milliseconds kShowEvery{200};

const std::string kAccept =
    std::string(media::kOciManifest) + ", " + std::string(media::kOciIndex) + ", " +
    std::string(media::kDockerManifest) + ", " + std::string(media::kDockerIndex);

std::string digest_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

struct FetchedManifest {
  std::string text, digest;
  Manifest manifest;
};

Status check_bytes(std::string_view what, std::string_view bytes, const Descriptor& expected) {
  if (bytes.size() != expected.size) {
    return fail(Error(Code::kDataLoss, std::string(what) + " sha256:" + expected.digest + " has " +
                                           std::to_string(bytes.size()) + " bytes; declared are " +
                                           std::to_string(expected.size)));
  }
  if (const std::string digest = digest_of(bytes); digest != expected.digest) {
    return fail(Error(Code::kDataLoss, std::string(what) + " should have been sha256:" +
                                           expected.digest + " and is sha256:" + digest));
  }
  return {};
}

// From what the reference names down to the manifest of one image.
Result<FetchedManifest> fetch_manifest(Session& session, const Reference& reference,
                                       const Platform& platform) {
  std::string selector = reference.selector();
  std::optional<Descriptor> expected;
  for (int depth = 0; depth < kMaxIndexDepth; ++depth) {
    TRY_ASSIGN(FetchOutcome answer,
               session.get("manifests/" + selector, kAccept, kMaxManifestSize));
    FetchedManifest fetched;
    fetched.digest = digest_of(answer.body);
    if (expected) {
      TRY(check_bytes("the manifest", answer.body, *expected));
    } else if (!reference.digest.empty() && fetched.digest != reference.digest) {
      return fail(
          Error(Code::kDataLoss, "the manifest should have been sha256:" + reference.digest +
                                     " and is sha256:" + fetched.digest));
    }
    const std::string_view type = answer.head.header("content-type");
    TRY_ASSIGN(auto parsed, parse_manifest(answer.body, type.substr(0, type.find_first_of("; "))));
    if (Manifest* manifest = std::get_if<Manifest>(&parsed)) {
      fetched.manifest = std::move(*manifest);
      fetched.text = std::move(answer.body);
      return fetched;
    }
    TRY_ASSIGN(IndexEntry entry, choose(std::get<Index>(parsed), platform));
    if (entry.manifest.size > kMaxManifestSize) {
      return fail(Error::invalid("the manifest for " + platform.text() + " has " +
                                 std::to_string(entry.manifest.size) + " bytes; allowed are " +
                                 std::to_string(kMaxManifestSize)));
    }
    selector = "sha256:" + entry.manifest.digest;
    expected = std::move(entry.manifest);
  }
  return fail(Error::invalid("the image's index leads to further indexes, " +
                             std::to_string(kMaxIndexDepth) + " deep; allowed is less"));
}

Status check_sizes(const Manifest& manifest, const PullLimits& limits) {
  std::uint64_t total = 0;
  for (const Descriptor& layer : manifest.layers) {
    if (layer.size > limits.layer || layer.size > limits.total - total) {
      return fail(Error::invalid("layer sha256:" + layer.digest + " has " +
                                 std::to_string(layer.size) + " bytes; allowed are " +
                                 std::to_string(limits.layer) + " for one layer and " +
                                 std::to_string(limits.total) + " for all of an image"));
    }
    total += layer.size;
  }
  return {};
}

Status check_config(const ImageConfig& config, const Manifest& manifest, const Platform& platform) {
  const Platform own = {config.os, config.architecture, config.variant};
  if (own.os != platform.os || own.architecture != platform.architecture) {
    return fail(Error::not_found("the image is not there for " + platform.text() + "; it is for " +
                                 printable(own.text(), 60)));
  }
  if (config.diff_ids.size() != manifest.layers.size()) {
    return fail(
        Error::invalid("the image's configuration lists " + std::to_string(config.diff_ids.size()) +
                       " layers and its manifest " + std::to_string(manifest.layers.size())));
  }
  return {};
}

// The layers' way into the store, three at once. They are begun in the order of their digests:
// whoever waits for another process holds only smaller ones, so nobody waits in a circle.
class LayerLoader {
 public:
  LayerLoader(Store& store, Session& session, const Manifest& manifest,
              const PullProgress& progress)
      : store_(store), session_(session), manifest_(manifest), progress_(progress) {
    for (std::size_t i = 0; i < manifest.layers.size(); ++i) {
      places_[manifest.layers[i].digest].push_back(i);
    }
  }

  Status run() {
    auto next = places_.begin();
    while (next != places_.end() || !jobs_.empty()) {
      while (jobs_.size() < kParallel && next != places_.end()) {
        TRY(begin(manifest_.layers[next->second.front()]));
        ++next;
      }
      TRY(step());
    }
    return {};
  }
  std::uint64_t downloaded() const { return downloaded_; }

 private:
  struct Job {
    Descriptor layer;
    PartialBlob blob;
    Exchange exchange;
    bool resumed = false;
  };

  void tell(const Descriptor& layer, LayerProgress::State state, std::uint64_t done) {
    if (!progress_.layer) return;
    for (std::size_t place : places_[layer.digest]) {
      progress_.layer({.index = place,
                       .digest = layer.digest,
                       .state = state,
                       .done = done,
                       .total = layer.size});
    }
  }

  Status begin(const Descriptor& layer) {
    Job job = {.layer = layer};
    TRY_ASSIGN(job.blob, store_.begin_blob(layer.digest));
    if (job.blob.present) {
      tell(layer, LayerProgress::State::kPresent, layer.size);
      return {};
    }
    // What is longer than it may be is of no use.
    if (job.blob.size > layer.size) {
      if (::ftruncate(job.blob.file.get(), 0) != 0) return fail_errno("truncate a blob");
      job.blob.size = 0;
    }
    job.resumed = job.blob.size > 0;
    ask(job);
    jobs_.push_back(std::move(job));
    return {};
  }

  void ask(Job& job) {
    job.exchange = session_.exchange(
        "blobs/sha256:" + job.layer.digest, "",
        {.file_fd = job.blob.file.get(), .offset = job.blob.size, .limit = job.layer.size});
  }

  Status step() {
    bool changed = false;
    for (std::size_t i = 0; i < jobs_.size();) {
      TRY_ASSIGN(const bool over, advance(jobs_[i]));
      if (over) {
        jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
        changed = true;
      } else {
        ++i;
      }
    }
    if (changed || jobs_.empty()) return {};
    return session_.wait(kShowEvery);
  }

  // True: the blob is in the store.
  Result<bool> advance(Job& job) {
    // All of it may be there from an earlier pull.
    if (job.blob.size < job.layer.size || job.exchange.tries > 0) {
      TRY_ASSIGN(std::optional<FetchOutcome> outcome, session_.advance(job.exchange));
      if (!outcome) {
        tell(job.layer, LayerProgress::State::kLoading,
             job.exchange.sink.offset + session_.received(job.exchange));
        return false;
      }
      downloaded_ += outcome->received;
      if (outcome->file_size != job.layer.size) {
        return fail(Error(Code::kDataLoss, "layer sha256:" + job.layer.digest + " has " +
                                               std::to_string(outcome->file_size) +
                                               " bytes; declared are " +
                                               std::to_string(job.layer.size)));
      }
    }
    if (::ftruncate(job.blob.file.get(), static_cast<off_t>(job.layer.size)) != 0) {
      return fail_errno("truncate a blob");
    }
    auto placed = store_.commit_blob(std::move(job.blob));
    if (!placed.has_value()) {
      if (placed.error().code() != Code::kDataLoss || !job.resumed) {
        return fail(std::move(placed).error());
      }
      // The bytes from before were not of this blob, or the registry gave other ones: once more
      // from the start.
      job.resumed = false;
      TRY_ASSIGN(job.blob, store_.begin_blob(job.layer.digest));
      if (!job.blob.present) {
        ask(job);
        return false;
      }
    }
    tell(job.layer, LayerProgress::State::kLoaded, job.layer.size);
    return true;
  }

  Store& store_;
  Session& session_;
  const Manifest& manifest_;
  const PullProgress& progress_;
  std::map<std::string, std::vector<std::size_t>> places_;
  std::vector<Job> jobs_;
  std::uint64_t downloaded_ = 0;
};

// From the store where it is there.
Result<std::string> config_of(Store& store, Session& session, const Descriptor& config) {
  if (auto known = store.read_blob(config.digest); known.has_value()) return known;
  TRY_ASSIGN(FetchOutcome answer, session.get("blobs/sha256:" + config.digest, "", kMaxConfigSize));
  TRY(check_bytes("the image's configuration", answer.body, config));
  return std::move(answer.body);
}

Result<PullReport> pull_from(Store& store, const RegistryName& name, const Reference& reference,
                             const PullOptions& options, const PullProgress& progress) {
  PullReport report = {.reference = reference};
  TRY_ASSIGN(Session session, Session::open(name.registry, name.repository, options.settings,
                                            options.login, progress.note));
  TRY_ASSIGN(FetchedManifest fetched, fetch_manifest(session, reference, options.platform));
  const Manifest& manifest = fetched.manifest;
  report.image_id = manifest.config.digest;
  report.manifest_digest = fetched.digest;
  report.layers = manifest.layers.size();
  for (const Descriptor& layer : manifest.layers) report.bytes += layer.size;
  TRY(check_sizes(manifest, options.limits));

  TRY_ASSIGN(std::string config, config_of(store, session, manifest.config));
  TRY_ASSIGN(const ImageConfig parsed, parse_image_config(config));
  TRY(check_config(parsed, manifest, options.platform));
  if (options.named) report.reference = options.named(report.image_id);
  if (auto known = store.info(report.image_id); known.has_value() && known->rootfs) {
    TRY(store.set_reference(report.reference, report.image_id));
    return report;
  }

  if (progress.begin) progress.begin(manifest.layers.size(), report.bytes);
  LayerLoader loader(store, session, manifest, progress);
  TRY(loader.run());
  report.downloaded = loader.downloaded();

  ImageContent content = {
      .config = std::move(config), .layers = {}, .manifest = std::move(fetched.text)};
  for (std::size_t i = 0; i < manifest.layers.size(); ++i) {
    content.layers.push_back({.blob = manifest.layers[i], .diff_id = parsed.diff_ids[i]});
  }
  TRY_ASSIGN(ImageInfo added, store.add_image(content, options.limits.unpack, progress.unpack));
  TRY(store.set_reference(report.reference, added.record.id));
  return report;
}

}  // namespace

Result<PullReport> pull(Store& store, const Reference& reference, const PullOptions& options,
                        const PullProgress& progress) {
  TRY_ASSIGN(const RegistryName name, registry_name(reference, options.settings));
  auto report = pull_from(store, name, reference, options, progress);
  // What cannot be swept now, the next to open the store sweeps.
  if (!store.sweep().has_value()) errno = 0;
  if (!report.has_value()) {
    return fail(std::move(report).error().with("pull " + reference.text()));
  }
  return report;
}

}  // namespace caisson::image
