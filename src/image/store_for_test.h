// What the tests of the store share: a store of the test's own, images made of small layers, and
// the program that works on the same store in another process. Test code only.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "image/archive_for_test.h"
#include "image/config.h"
#include "image/files.h"
#include "image/manifest.h"
#include "image/store.h"

namespace caisson::image::testing {

inline std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() = default;
  explicit StoreTest(const char* parent) : directory_(parent) {}
  Store open() {
    auto store = Store::open_at(directory_ / "images");
    VERIFY(store.has_value());
    return std::move(*store);
  }
  std::vector<std::string> names(const std::string& folder) {
    return entries_of(directory_ / ("images/" + folder));
  }
  // Whether the store has what a sweep would look at.
  bool marked() { return std::filesystem::exists(directory_ / "images/work"); }
  void expect_nothing_left() {
    for (const char* folder : {"tmp", "refs", "ids", "rootfs", "blobs", "partial", "cache"}) {
      EXPECT_THAT(names(folder), ::testing::IsEmpty()) << folder;
    }
    EXPECT_FALSE(marked());
  }
  // Appends to a file of the store; false where it is absent.
  bool append(const std::string& path, std::string_view text) {
    std::FILE* file = std::fopen((directory_ / ("images/" + path)).c_str(), "r+e");
    if (file == nullptr) return false;
    std::fseek(file, 0, SEEK_END);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
    return true;
  }
  void replace(const std::string& path, std::string_view text) {
    std::FILE* file = std::fopen((directory_ / ("images/" + path)).c_str(), "we");
    VERIFY(file != nullptr);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }

  // A layer with one file, whose blob is in the store.
  static LayerRef layer(Store& store, const std::string& file, const std::string& text = "text\n") {
    return layer_of(store, Tar().add({.name = file, .data = text}).bytes());
  }
  static LayerRef layer_of(Store& store, const std::string& tar) {
    const std::string digest = store.put_blob(tar).value();
    return {
        .blob = {.media_type = std::string(media::kOciLayer), .digest = digest, .size = tar.size()},
        .diff_id = digest};
  }
  static ImageContent content(std::vector<LayerRef> layers, const std::string& author = "") {
    ImageConfig config;
    config.architecture = host_architecture();
    config.author = author;
    for (const LayerRef& layer : layers) config.diff_ids.push_back(layer.diff_id);
    return {.config = encode(config), .layers = std::move(layers), .manifest = {}};
  }
  // An image of one layer with one file, by that name, in a store of the moment.
  std::string add(const std::string& name, const std::string& file = "file") {
    Store store = open();
    auto info = store.add_image(content({layer(store, file)}));
    VERIFY(info.has_value());
    VERIFY(store.set_reference(parse_reference(name).value(), info->record.id).has_value());
    VERIFY(store.sweep().has_value());
    return info->record.id;
  }

  // A process of its own that does this; its exit status is 0 where it gave true.
  static pid_t in_child(const std::function<bool()>& work) {
    const pid_t pid = fork();
    if (pid == 0) _exit(work() ? 0 : 1);
    return pid;
  }
  // The program that the tests share the store with.
  pid_t start_tool(const std::vector<std::string>& arguments) {
    std::string tool =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "caisson_image_tool";
    std::vector<std::string> all = {tool};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& argument : all) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("CAISSON_STATE_DIR", directory_.path().c_str(), 1);
      execv(tool.c_str(), pointers.data());
      _exit(127);
    }
    return pid;
  }
  static int wait_for(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }
  static bool ended(pid_t pid) {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid;
  }

  TemporaryDirectory directory_;
};

// A pipe with which one process tells another that it is so far.
class Signal {
 public:
  Signal() {
    int ends[2] = {-1, -1};
    VERIFY(pipe2(ends, O_CLOEXEC) == 0);
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
  }
  void give() { VERIFY(write(write_.get(), "x", 1) == 1); }
  // False where everybody who could give it has gone.
  bool await() {
    write_.reset();
    char byte = 0;
    return TEMP_FAILURE_RETRY(read(read_.get(), &byte, 1)) == 1;
  }

 private:
  Fd read_, write_;
};

}  // namespace caisson::image::testing
