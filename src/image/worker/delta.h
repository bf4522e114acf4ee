// Applies the entries of one layer alone to a root file system that will lie over others: what it
// takes away becomes marks of overlayfs instead (image/rootfs_kind.h).
//
// Nothing is known of what lies below, so a layer must say everything itself: each entry's
// directory comes before it (its attributes hide those below), no way leads through a symbolic
// link, a hard link's target is in the layer, and the root stays what it is. Layers that are not so
// are refused as invalid and have to be flattened. The last of two entries of a name stands; what
// comes in the place of a file or a mark hides all that is below, as it would in a flattened tree.
//
// pack.h packs layers so. It also marks no name in a directory that is not below: an overlay would
// list that one, though nobody could open it. One thread.
#pragma once

#include <optional>
#include <string>

#include "image/worker/layer_sink.h"
#include "image/worker/layer_tree.h"
#include "image/worker/rootfs_writer.h"

namespace caisson::image {

class DeltaLayer final : public LayerSink {
 public:
  // Borrows both. `root_mode`: of what it lies over.
  DeltaLayer(LayerTree& tree, RootfsWriter& writer, mode_t root_mode)
      : tree_(tree), writer_(writer), root_mode_(root_mode) {}

  Status begin_layer() override;
  // Takes away the marks on names in what is opaque: they hide nothing, and an overlay that has
  // nothing to merge would show them.
  Status end_layer() override;

  Status make_directory(const EntryName& name, const EntryAttributes& attributes) override;
  Status make_symlink(const EntryName& name, std::string_view target,
                      const EntryAttributes& attributes) override;
  Status make_pipe(const EntryName& name, const EntryAttributes& attributes) override;
  Status make_hard_link(const EntryName& name, const EntryName& target) override;
  Status begin_file(const EntryName& name, std::uint64_t size,
                    const EntryAttributes& attributes) override;
  Status write_file(std::string_view bytes, std::uint64_t offset) override;
  Status end_file() override;
  Status white_out(const EntryName& name) override;
  Status make_opaque(const EntryName& directory) override;

 private:
  // The directory `path`, which the layer has made, on behalf of the entry `name`.
  Result<NodeId> directory(const EntryName& name, std::string_view path);
  // A new node for the entry, in place of what had its name.
  Result<NodeId> replace(const EntryName& name, NodeKind kind);
  Status mark_opaque(NodeId directory);

  LayerTree& tree_;
  RootfsWriter& writer_;
  mode_t root_mode_;
  // The last entry's directory: most entries lie where the one before did.
  std::string known_path_;
  std::optional<NodeId> known_;
  bool begun_ = false;
};

}  // namespace caisson::image
