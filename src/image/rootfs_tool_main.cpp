// A shell's way to make a root filesystem out of layers, for tests and the benchmark alone:
//   flatten directory|erofs DIRECTORY [--sync] [--step] LAYER…
// makes rootfs/ or rootfs.erofs in DIRECTORY and prints what the worker tells. --sync writes it to
// the disk; --step finishes after every layer, as a build does.
//   check FILE
// says what the store's check finds in an erofs file, and how long it took.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "image/erofs_check.h"
#include "image/files.h"
#include "image/rootfs_worker.h"

namespace caisson::image {
namespace {

Status check(const char* path) {
  const Fd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail_errno("open " + std::string(path));
  const auto begin = std::chrono::steady_clock::now();
  TRY_ASSIGN(const ErofsCounts counts, check_erofs(file.get(), RootfsKind::kWhole));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("good entries %llu inodes %llu milliseconds %.1f\n",
              static_cast<unsigned long long>(counts.entries),
              static_cast<unsigned long long>(counts.inodes), took.count());
  return {};
}

Status run(int count, char** arguments) {
  if (count == 3 && std::string(arguments[1]) == "check") return check(arguments[2]);
  std::vector<std::string> layers;
  bool sync = false, step = false;
  for (int i = 4; i < count; ++i) {
    const std::string word = arguments[i];
    sync = sync || word == "--sync";
    step = step || word == "--step";
    if (!word.starts_with("--")) layers.push_back(word);
  }
  const std::string command = count > 3 ? arguments[1] : "", form = count > 3 ? arguments[2] : "";
  if (command != "flatten" || (form != "directory" && form != "erofs")) {
    return fail(Error::invalid(
        "usage: flatten directory|erofs DIRECTORY [--sync] [--step] LAYER… | check FILE"));
  }
  TRY_ASSIGN(Fd directory, open_or_make_directory(arguments[3]));
  TRY_ASSIGN(RootfsWorker worker,
             RootfsWorker::start(form == "erofs" ? RootfsForm::kErofs : RootfsForm::kDirectory,
                                 directory.get(), -1, mapping_of_caller(), {}));
  RootfsReport whole;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Fd layer(open(layers[i].c_str(), O_RDONLY | O_CLOEXEC));
    if (!layer.valid()) return fail_errno("open " + layers[i]);
    TRY_ASSIGN(LayerReport report, worker.apply(layer.get(), {}));
    std::printf("layer %s %s entries %llu bytes %llu whiteouts %llu\n",
                report.layer.blob.digest.c_str(), report.layer.diff_id.c_str(),
                static_cast<unsigned long long>(report.counts.entries),
                static_cast<unsigned long long>(report.counts.bytes),
                static_cast<unsigned long long>(report.whiteouts));
    if (step || i + 1 == layers.size()) {
      TRY_ASSIGN(whole, worker.finish());
    }
  }
  std::printf(
      "whole entries %llu bytes %llu size %llu memory %llu\n",
      static_cast<unsigned long long>(whole.entries), static_cast<unsigned long long>(whole.bytes),
      static_cast<unsigned long long>(whole.size), static_cast<unsigned long long>(worker.end()));
  if (sync && syncfs(directory.get()) != 0) return fail_errno("syncfs");
  return {};
}

}  // namespace
}  // namespace caisson::image

int main(int count, char** arguments) {
  auto done = caisson::image::run(count, arguments);
  if (done.has_value()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
