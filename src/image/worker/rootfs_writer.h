// What a root filesystem is written as: a directory or an erofs file. The Flattener (of a delta,
// the DeltaLayer) decides what there is and calls this; a node is always in the tree, and
// reachable, when it is named here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "image/rootfs_worker.h"
#include "image/worker/layer_tree.h"
#include "image/worker/unpack.h"

namespace caisson::image {

class RootfsWriter {
 public:
  virtual ~RootfsWriter() = default;
  // `existing`: it was made before (as the root always was) and only its attributes change.
  virtual Status make_directory(NodeId node, const EntryAttributes& attributes, bool existing) = 0;
  virtual Status make_symlink(NodeId node, std::string_view target,
                              const EntryAttributes& attributes) = 0;
  virtual Status make_pipe(NodeId node, const EntryAttributes& attributes) = 0;
  // `target` is no directory.
  virtual Status link(NodeId node, NodeId target) = 0;
  // As in EntrySink.
  virtual Status begin_file(NodeId node, std::uint64_t size, const EntryAttributes& attributes) = 0;
  virtual Status write_file(std::string_view bytes, std::uint64_t offset) = 0;
  virtual Status end_file() = 0;
  // The node, and what is below it, is about to be removed from the tree.
  virtual Status remove(NodeId node) = 0;
  // The directory has just become opaque in the tree.
  virtual Status make_opaque(NodeId directory) = 0;
  // Of a delta alone: a mark that hides a name of what lies below, and one on a directory that
  // hides everything that lies below it there.
  virtual Status make_whiteout(NodeId node) = 0;
  virtual Status mark_opaque(NodeId directory) = 0;
  virtual Result<std::string> read_link(NodeId node) = 0;
  // Makes the whole complete and readable; more layers may follow.
  virtual Result<RootfsReport> finish() = 0;
};

}  // namespace caisson::image
