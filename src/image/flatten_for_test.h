// Layers flattened in this process, under no rights but the test's own, into both forms. Test code
// only.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <zlib.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "image/archive_for_test.h"
#include "image/erofs_check.h"
#include "image/files.h"
#include "image/rootfs_for_test.h"
#include "image/worker/delta.h"
#include "image/worker/directory_writer.h"
#include "image/worker/erofs_writer.h"
#include "image/worker/flatten.h"
#include "image/worker/uncompress.h"

namespace caisson::image::testing {

class TextInput final : public ArchiveInput {
 public:
  explicit TextInput(std::string_view text) : rest_(text) {}
  Result<std::string_view> read() override {
    const std::string_view piece = rest_.substr(0, 10'000);
    rest_.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view rest_;
};

// Layers into one of the two forms, and what is there then.
class FlattenTest : public ::testing::TestWithParam<RootfsForm> {
 protected:
  FlattenTest() {
    std::filesystem::create_directories(directory_ / "outside");
    std::ofstream(directory_ / "outside/secret") << "untouched";
    begin();
  }

  // Whatever the layers were, nothing beside the root has changed.
  ~FlattenTest() override {
    EXPECT_EQ(read_text(directory_ / "outside/secret"), "untouched");
    EXPECT_EQ(list_directory(open_or_make_directory(directory_.path()).value().get()).value(),
              (std::vector<std::string>{"outside", "root"}));
    EXPECT_EQ(list_directory(open_or_make_directory(directory_ / "outside").value().get()).value(),
              std::vector<std::string>{"secret"});
    struct stat status = {};
    EXPECT_EQ(stat((directory_ / "outside/secret").c_str(), &status), 0);
    EXPECT_EQ(status.st_nlink, 1u);
  }

  // A fresh root.
  void begin() {
    flattener_.reset();
    writer_.reset();
    VERIFY(!root_.valid() || remove_tree_at(parent_.get(), "root").has_value());
    parent_ = open_or_make_directory(directory_.path()).value();
    root_ = open_or_make_directory(directory_ / "root").value();
    VERIFY(fchmod(root_.get(), 0755) == 0);
    tree_ = std::make_unique<LayerTree>(limits_.entries);
    before_ = {};
    if (GetParam() == RootfsForm::kDirectory) {
      // The real user may own files of any id; another one keeps them all.
      writer_ = std::make_unique<DirectoryWriter>(
          *tree_, root_.get(), geteuid() == 0 ? IdLayout::kShifted : IdLayout::kSingle);
    } else {
      image_ = Fd(memfd_create("image", MFD_CLOEXEC));
      metadata_ = Fd(memfd_create("metadata", MFD_CLOEXEC));
      auto erofs = std::make_unique<ErofsWriter>(*tree_, image_.get(), metadata_.get(), kind_);
      VERIFY(erofs->begin().has_value());
      writer_ = std::move(erofs);
    }
    if (kind_ == RootfsKind::kWhole) {
      flattener_ = std::make_unique<Flattener>(*tree_, *writer_);
    } else {
      flattener_ = std::make_unique<DeltaLayer>(*tree_, *writer_, kDeltaRootMode);
    }
  }
  Result<LayerCounts> apply(std::string_view bytes) {
    TextInput input(bytes);
    Uncompressed tar(input, limits_.ratio);
    TRY(flattener_->begin_layer());
    TRY_ASSIGN(LayerCounts found, read_layer(tar, *flattener_, limits_, before_));
    TRY(flattener_->end_layer());
    before_.entries += found.counts.entries;
    before_.bytes += found.counts.bytes;
    return found;
  }
  // What is there after the layers so far.
  Listing listing() {
    auto finished = writer_->finish();
    VERIFY(finished.has_value());
    finished_ = *finished;
    if (GetParam() == RootfsForm::kErofs) {
      auto checked = check_erofs(image_.get(), kind_);
      EXPECT_TRUE(checked.has_value()) << checked.error().message();
      if (checked.has_value()) EXPECT_EQ(checked->entries, finished_.entries);
    }
    Listing found = GetParam() == RootfsForm::kDirectory
                        ? list_tree(directory_ / "root")
                        : ErofsReader(read_whole(image_path())).list();
    EXPECT_EQ(finished_.entries + 1, found.size());
    for (auto& [name, file] : found) {
      if (geteuid() != 0) file.uid = file.gid = 0;
    }
    return found;
  }
  std::string image_path() const { return "/proc/self/fd/" + std::to_string(image_.get()); }

  // One layer alone.
  Result<UnpackReport> unpack_bytes(std::string_view bytes) {
    begin();
    TRY_ASSIGN(LayerCounts found, apply(bytes));
    found_ = listing();
    return found.counts;
  }
  // All of them, bottom to top; found_ is what is there then.
  void unpack_layers(const std::vector<Tar>& layers) {
    begin();
    for (const Tar& layer : layers) {
      auto report = apply(layer.bytes());
      ASSERT_TRUE(report.has_value()) << report.error().message();
    }
    found_ = listing();
  }
  // The message of a refusal, which must blame the archive.
  std::string refusal(std::string_view bytes) {
    begin();
    return refusal_of_next(bytes);
  }
  std::string refusal_of_next(std::string_view bytes) {
    auto done = apply(bytes);
    if (done.has_value()) return "it was taken";
    EXPECT_EQ(done.error().code(), Code::kInvalidArgument) << done.error().message();
    return done.error().message();
  }
  // Of found_.
  bool exists(const std::string& name) const { return found_.contains(name); }
  std::string text(const std::string& name) const {
    auto at = found_.find(name);
    return at == found_.end() ? "(absent)" : at->second.contents;
  }
  unsigned mode(const std::string& name) const {
    auto at = found_.find(name);
    return at == found_.end() ? 0 : at->second.mode;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, file] : found_) {
      if (!name.empty()) all.push_back(name);
    }
    return all;
  }

  static constexpr mode_t kDeltaRootMode = 0711;

  RootfsKind kind_ = RootfsKind::kWhole;  // of what begin() begins
  TemporaryDirectory directory_;
  Fd parent_, root_, image_, metadata_;
  UnpackLimits limits_;
  UnpackReport before_;
  std::unique_ptr<LayerTree> tree_;
  std::unique_ptr<RootfsWriter> writer_;
  std::unique_ptr<LayerSink> flattener_;
  RootfsReport finished_;
  Listing found_;
};

inline std::string gzip(std::string_view bytes) {
  z_stream stream = {};
  VERIFY(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  VERIFY(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string name_of_form(const ::testing::TestParamInfo<RootfsForm>& info) {
  return info.param == RootfsForm::kDirectory ? "Directory" : "Erofs";
}
inline const auto kBothForms = ::testing::Values(RootfsForm::kDirectory, RootfsForm::kErofs);

}  // namespace caisson::image::testing
