// Applies the entries of layers to one root filesystem: which node an entry means, what it
// replaces, and what the marks of a layer take away.
//
// Names are resolved inside the root. The directory that an entry lies in is made where it is
// missing (0755, uid and gid 0, time 0), and symbolic links on the way to it are followed as they
// would be inside (at most 40, never above the root), since distributions have /lib as a link and
// their packages write to it. The last part of a name is never followed. The last of two entries of
// a name stands; a directory's entry over a directory changes its attributes alone. Marks touch
// only what earlier layers have, wherever in the archive they are. One thread.
#pragma once

#include <optional>
#include <string>

#include "image/worker/layer_sink.h"
#include "image/worker/layer_tree.h"
#include "image/worker/rootfs_writer.h"

namespace caisson::image {

class Flattener final : public LayerSink {
 public:
  // Borrows both.
  Flattener(LayerTree& tree, RootfsWriter& writer) : tree_(tree), writer_(writer) {}

  Status begin_layer() override;
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
  enum class Missing { kMake, kNothing };
  // The directory `path`, on behalf of the entry `name`. With kNothing, nullopt where there is
  // none. Error: invalid where a file is in the way, or too many links are.
  Result<std::optional<NodeId>> directory(const EntryName& name, std::string_view path,
                                          Missing missing);
  Result<NodeId> parent_for(const EntryName& name);
  // A new node for the entry, in place of what had its name.
  Result<NodeId> replace(const EntryName& name, NodeKind kind);
  Result<std::optional<NodeId>> find(const EntryName& name, const EntryName& what);
  Status remove(NodeId node);

  LayerTree& tree_;
  RootfsWriter& writer_;
  // The last entry's directory: most entries lie where the one before did.
  std::string known_path_;
  std::optional<NodeId> known_;
};

}  // namespace caisson::image
