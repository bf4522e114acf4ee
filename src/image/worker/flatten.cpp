#include "image/worker/flatten.h"

#include <algorithm>
#include <utility>

#include "image/reference.h"

namespace caisson::image {
namespace {

constexpr int kMaxLinks = 40;          // as in the kernel
constexpr std::size_t kMaxWay = 4095;  // PATH_MAX without its zero, as in the kernel
constexpr EntryAttributes kUnmentioned = {.mode = 0755};

std::unexpected<Error> refuse(const EntryName& name, std::string_view why) {
  return fail(Error::invalid("entry '" + printable(name.path) + "': " + std::string(why)));
}

}  // namespace

Status Flattener::begin_layer() {
  known_.reset();
  return tree_.begin_layer();
}

Status Flattener::end_layer() {
  known_.reset();
  for (NodeId node : tree_.renewed()) TRY(writer_.make_directory(node, kUnmentioned, true));
  return {};
}

Result<std::optional<NodeId>> Flattener::directory(const EntryName& name, std::string_view path,
                                                   Missing missing) {
  NodeId at = kRootNode;
  if (missing == Missing::kMake && !tree_.of_this_layer(at)) tree_.touch(at, false);
  int links = 0;
  std::string rest(path);
  for (std::size_t next = 0; next < rest.size();) {
    const std::size_t slash = std::min(rest.find('/', next), rest.size());
    const std::string part = rest.substr(next, slash - next);
    next = slash + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") {  // of a link: names have none
      at = tree_.parent(at);
      continue;
    }
    if (part.size() > kMaxEntryComponent) {
      return refuse(name, "a symbolic link on its way has a part of more than 255 bytes");
    }
    const std::optional<NodeId> found = tree_.find(at, part);
    if (!found) {
      if (missing == Missing::kNothing) return std::nullopt;
      TRY_ASSIGN(at, tree_.add(at, part, NodeKind::kDirectory));
      TRY(writer_.make_directory(at, kUnmentioned, false));
      continue;
    }
    switch (tree_.kind(*found)) {
      case NodeKind::kDirectory:
        at = *found;
        if (missing == Missing::kMake && !tree_.of_this_layer(at)) tree_.touch(at, false);
        break;
      case NodeKind::kSymlink: {
        if (++links > kMaxLinks) {
          return refuse(name, "the way to it leads through more than 40 symbolic links");
        }
        TRY_ASSIGN(std::string target, writer_.read_link(*found));
        if (target.starts_with('/')) at = kRootNode;
        if (next < rest.size()) target += "/" + rest.substr(next);
        if (target.size() > kMaxWay) {
          return refuse(name,
                        "with the symbolic links on it the way to it has more than 4095 bytes");
        }
        rest = std::move(target);
        next = 0;
        break;
      }
      default:
        if (missing == Missing::kNothing) return std::nullopt;
        return refuse(name, "the way to it leads through '" + printable(tree_.path(*found)) +
                                "', which is no directory");
    }
  }
  return at;
}

Result<NodeId> Flattener::parent_for(const EntryName& name) {
  const std::string_view path = name.parent();
  if (known_ && path == known_path_) return *known_;
  TRY_ASSIGN(known_, directory(name, path, Missing::kMake));
  known_path_ = path;
  return *known_;
}

Status Flattener::remove(NodeId node) {
  known_.reset();
  TRY(writer_.remove(node));
  tree_.remove(node);
  return {};
}

Result<NodeId> Flattener::replace(const EntryName& name, NodeKind kind) {
  TRY_ASSIGN(const NodeId parent, parent_for(name));
  if (const auto there = tree_.find(parent, name.last()); there) TRY(remove(*there));
  return tree_.add(parent, name.last(), kind);
}

Status Flattener::make_directory(const EntryName& name, const EntryAttributes& attributes) {
  if (name.is_root()) {
    tree_.touch(kRootNode, true);
    return writer_.make_directory(kRootNode, attributes, true);
  }
  TRY_ASSIGN(const NodeId parent, parent_for(name));
  const std::optional<NodeId> there = tree_.find(parent, name.last());
  const bool existing = there && tree_.kind(*there) == NodeKind::kDirectory;
  NodeId node = existing ? *there : kNoNode;
  if (!existing) {
    TRY_ASSIGN(node, replace(name, NodeKind::kDirectory));
  }
  tree_.touch(node, true);
  return writer_.make_directory(node, attributes, existing);
}

Status Flattener::make_symlink(const EntryName& name, std::string_view target,
                               const EntryAttributes& attributes) {
  TRY_ASSIGN(const NodeId node, replace(name, NodeKind::kSymlink));
  return writer_.make_symlink(node, target, attributes);
}

Status Flattener::make_pipe(const EntryName& name, const EntryAttributes& attributes) {
  TRY_ASSIGN(const NodeId node, replace(name, NodeKind::kPipe));
  return writer_.make_pipe(node, attributes);
}

Result<std::optional<NodeId>> Flattener::find(const EntryName& name, const EntryName& what) {
  TRY_ASSIGN(const std::optional<NodeId> parent, directory(name, what.parent(), Missing::kNothing));
  return parent ? tree_.find(*parent, what.last()) : std::nullopt;
}

Status Flattener::make_hard_link(const EntryName& name, const EntryName& target_name) {
  auto refuse_link = [&](std::string_view why) {
    return fail(Error::invalid("hard link '" + printable(name.path) + "' to '" +
                               printable(target_name.path) + "', " + std::string(why)));
  };
  TRY_ASSIGN(std::optional<NodeId> target, find(name, target_name));
  if (!target) return refuse_link("which no earlier entry has made");
  if (tree_.kind(*target) == NodeKind::kDirectory) return refuse_link("which is a directory");
  TRY_ASSIGN(const NodeId parent, parent_for(name));
  const std::optional<NodeId> there = tree_.find(parent, name.last());
  if (there == target) return {};
  if (there) {
    // What goes may hold the target.
    for (NodeId above = tree_.parent(*target); above != kRootNode; above = tree_.parent(above)) {
      if (above == *there) return refuse_link("which would be removed by it");
    }
  }
  TRY_ASSIGN(const NodeId node, replace(name, tree_.kind(*target)));
  tree_.set_slot(node, tree_.slot(*target));
  tree_.set_linked(node);
  tree_.set_linked(*target);
  return writer_.link(node, *target);
}

Status Flattener::begin_file(const EntryName& name, std::uint64_t size,
                             const EntryAttributes& attributes) {
  TRY_ASSIGN(const NodeId node, replace(name, NodeKind::kFile));
  return writer_.begin_file(node, size, attributes);
}

Status Flattener::write_file(std::string_view bytes, std::uint64_t offset) {
  return writer_.write_file(bytes, offset);
}

Status Flattener::end_file() {
  return writer_.end_file();
}

Status Flattener::white_out(const EntryName& name) {
  TRY_ASSIGN(const std::optional<NodeId> node, find(name, name));
  if (!node) return {};
  if (!tree_.of_this_layer(*node)) return remove(*node);
  if (tree_.kind(*node) != NodeKind::kDirectory) return {};
  // This layer has a directory of the name: only what earlier layers put into it goes.
  tree_.make_opaque(*node);
  TRY(writer_.make_opaque(*node));
  return tree_.mentioned(*node) ? Status() : writer_.make_directory(*node, kUnmentioned, true);
}

Status Flattener::make_opaque(const EntryName& name) {
  TRY_ASSIGN(const std::optional<NodeId> node, directory(name, name.path, Missing::kNothing));
  if (!node) return {};
  known_.reset();
  tree_.make_opaque(*node);
  return writer_.make_opaque(*node);
}

}  // namespace caisson::image
