#include "image/worker/delta.h"

#include "image/reference.h"

namespace caisson::image {
namespace {

std::unexpected<Error> refuse(const EntryName& name, const std::string& why) {
  return fail(Error::invalid("entry '" + printable(name.path) + "': " + why));
}

}  // namespace

Status DeltaLayer::begin_layer() {
  if (begun_) return fail(Error::internal("a delta is made of one layer"));
  begun_ = true;
  TRY(tree_.begin_layer());
  return writer_.make_directory(kRootNode, {.mode = root_mode_}, true);
}

Status DeltaLayer::end_layer() {
  const std::vector<bool> there = tree_.reachable();
  for (NodeId node = 1; node < tree_.size(); ++node) {
    if (!there[node] || tree_.kind(node) != NodeKind::kWhiteout) continue;
    if (!tree_.is_opaque(tree_.parent(node))) continue;
    TRY(writer_.remove(node));
    tree_.remove(node);
  }
  return {};
}

Status DeltaLayer::mark_opaque(NodeId directory) {
  tree_.make_opaque(directory);
  return writer_.mark_opaque(directory);
}

Result<NodeId> DeltaLayer::directory(const EntryName& name, std::string_view path) {
  if (known_ && path == known_path_) return *known_;
  NodeId at = kRootNode;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : rest.size());
    const std::optional<NodeId> found = tree_.find(at, part);
    if (!found || tree_.kind(*found) != NodeKind::kDirectory) {
      return refuse(name,
                    "in a layer that is kept by itself its directory must be an entry before "
                    "it, with no symbolic link on the way");
    }
    at = *found;
  }
  known_ = at;
  known_path_ = path;
  return at;
}

Result<NodeId> DeltaLayer::replace(const EntryName& name, NodeKind kind) {
  TRY_ASSIGN(const NodeId parent, directory(name, name.parent()));
  if (const auto there = tree_.find(parent, name.last()); there) {
    known_.reset();
    TRY(writer_.remove(*there));
    tree_.remove(*there);
  }
  return tree_.add(parent, name.last(), kind);
}

Status DeltaLayer::make_directory(const EntryName& name, const EntryAttributes& attributes) {
  if (name.is_root()) {
    return refuse(name, "a layer that is kept by itself cannot change the root directory");
  }
  TRY_ASSIGN(const NodeId parent, directory(name, name.parent()));
  const std::optional<NodeId> there = tree_.find(parent, name.last());
  if (there && tree_.kind(*there) == NodeKind::kDirectory) {
    return writer_.make_directory(*there, attributes, true);
  }
  TRY_ASSIGN(const NodeId node, replace(name, NodeKind::kDirectory));
  TRY(writer_.make_directory(node, attributes, false));
  return there ? mark_opaque(node) : Status();
}

Status DeltaLayer::make_symlink(const EntryName& name, std::string_view target,
                                const EntryAttributes& attributes) {
  TRY_ASSIGN(const NodeId node, replace(name, NodeKind::kSymlink));
  return writer_.make_symlink(node, target, attributes);
}

Status DeltaLayer::make_pipe(const EntryName& name, const EntryAttributes& attributes) {
  TRY_ASSIGN(const NodeId node, replace(name, NodeKind::kPipe));
  return writer_.make_pipe(node, attributes);
}

Status DeltaLayer::make_hard_link(const EntryName& name, const EntryName& target_name) {
  auto refuse_link = [&](std::string_view why) {
    return fail(Error::invalid("hard link '" + printable(name.path) + "' to '" +
                               printable(target_name.path) + "', " + std::string(why)));
  };
  TRY_ASSIGN(const NodeId target_parent, directory(name, target_name.parent()));
  const std::optional<NodeId> target = tree_.find(target_parent, target_name.last());
  if (!target || tree_.kind(*target) == NodeKind::kWhiteout) {
    return refuse_link("which no earlier entry of the layer has made");
  }
  if (tree_.kind(*target) == NodeKind::kDirectory) return refuse_link("which is a directory");
  TRY_ASSIGN(const NodeId parent, directory(name, name.parent()));
  const std::optional<NodeId> there = tree_.find(parent, name.last());
  if (there == target) return {};
  if (there) {
    // What goes may hold the target.
    for (NodeId above = target_parent; above != kRootNode; above = tree_.parent(above)) {
      if (above == *there) return refuse_link("which would be removed by it");
    }
  }
  TRY_ASSIGN(const NodeId node, replace(name, tree_.kind(*target)));
  tree_.set_slot(node, tree_.slot(*target));
  tree_.set_linked(node);
  tree_.set_linked(*target);
  return writer_.link(node, *target);
}

Status DeltaLayer::begin_file(const EntryName& name, std::uint64_t size,
                              const EntryAttributes& attributes) {
  TRY_ASSIGN(const NodeId node, replace(name, NodeKind::kFile));
  return writer_.begin_file(node, size, attributes);
}

Status DeltaLayer::write_file(std::string_view bytes, std::uint64_t offset) {
  return writer_.write_file(bytes, offset);
}

Status DeltaLayer::end_file() {
  return writer_.end_file();
}

Status DeltaLayer::white_out(const EntryName& name) {
  TRY_ASSIGN(const NodeId parent, directory(name, name.parent()));
  const std::optional<NodeId> there = tree_.find(parent, name.last());
  if (!there) {
    TRY_ASSIGN(const NodeId node, tree_.add(parent, name.last(), NodeKind::kWhiteout));
    return writer_.make_whiteout(node);
  }
  // What the layer itself has of that name stands, and hides what is below; a directory must.
  return tree_.kind(*there) == NodeKind::kDirectory ? mark_opaque(*there) : Status();
}

Status DeltaLayer::make_opaque(const EntryName& name) {
  if (name.is_root()) {
    return refuse(name, "a layer that is kept by itself cannot hide the whole root");
  }
  TRY_ASSIGN(const NodeId node, directory(name, name.path));
  return mark_opaque(node);
}

}  // namespace caisson::image
