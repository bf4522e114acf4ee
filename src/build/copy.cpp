#include "build/copy.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/sha256.h"
#include "build/words.h"
#include "image/reference.h"

namespace caisson::build {
namespace {

using box::Follow;
using image::printable;
using proto::FileType;

constexpr std::size_t kMostPending = 512;
constexpr std::size_t kMostAccounts = 1 << 20;  // bytes of /etc/passwd

std::string below(const std::string& directory, const std::string& name) {
  if (name.empty()) return directory;
  return directory.ends_with('/') ? directory + name : directory + "/" + name;
}

std::optional<std::uint32_t> id_of(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number >= image::kImageIds)
    return std::nullopt;
  return number;
}

// The fields of the line that begins with `name`, of a file whose fields end with ':'.
std::optional<std::vector<std::string_view>> account_line(std::string_view file,
                                                          std::string_view name, std::size_t key) {
  while (!file.empty()) {
    const std::size_t end = file.find('\n');
    std::string_view line = file.substr(0, end);
    file.remove_prefix(end == std::string_view::npos ? file.size() : end + 1);
    std::vector<std::string_view> fields;
    for (std::size_t colon = line.find(':'); colon != std::string_view::npos;
         colon = line.find(':')) {
      fields.push_back(line.substr(0, colon));
      line.remove_prefix(colon + 1);
    }
    fields.push_back(line);
    if (fields.size() >= 4 && fields[key] == name) return fields;
  }
  return std::nullopt;
}

Result<std::string> read_inside(box::FileClient& files, const std::string& path) {
  TRY_ASSIGN(const auto there, files.look(path));
  if (!there.has_value() || there->type != FileType::kRegular) return std::string();
  std::string text;
  TRY(files.read(path, [&](std::string_view bytes) -> Status {
    if (text.size() + bytes.size() > kMostAccounts)
      return fail(Error::exhausted(path + " of the image is longer than 1 MiB"));
    text += bytes;
    return {};
  }));
  return text;
}

}  // namespace

Result<Owner> find_owner_in(std::string_view passwd, std::string_view group,
                            const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string user = text.substr(0, colon);
  const bool with_group = colon != std::string::npos;
  const std::string group_name = with_group ? text.substr(colon + 1) : "";
  Owner owner;
  if (const auto uid = id_of(user)) {
    owner.uid = owner.gid = *uid;
  } else {
    const auto line = account_line(passwd, user, 0);
    const auto found = line.has_value() ? id_of((*line)[2]) : std::nullopt;
    if (user.empty() || !found.has_value())
      return fail(Error::invalid("there is no user '" + printable(user, 60) +
                                 "' in the image's /etc/passwd"));
    owner.uid = *found;
    // A name alone stands for a group of that name, else for the user's own.
    const auto same = account_line(group, user, 0);
    owner.gid = id_of(same.has_value() ? (*same)[2] : (*line)[3]).value_or(owner.uid);
  }
  if (!with_group) return owner;
  if (const auto gid = id_of(group_name)) {
    owner.gid = *gid;
    return owner;
  }
  const auto line = account_line(group, group_name, 0);
  const auto found = line.has_value() ? id_of((*line)[2]) : std::nullopt;
  if (group_name.empty() || !found.has_value())
    return fail(Error::invalid("there is no group '" + printable(group_name, 60) +
                               "' in the image's /etc/group"));
  owner.gid = *found;
  return owner;
}

Result<Owner> find_owner(box::FileClient& files, const std::string& text) {
  TRY_ASSIGN(const std::string passwd, read_inside(files, "/etc/passwd"));
  TRY_ASSIGN(const std::string group, read_inside(files, "/etc/group"));
  return find_owner_in(passwd, group, text);
}

Status ensure_directory(box::FileClient& files, const std::string& path, const Owner& owner) {
  if (path.empty() || path == "/") return {};
  TRY_ASSIGN(const auto there, files.look(path, Follow::kYes));
  if (there.has_value()) {
    if (there->type == FileType::kDirectory) return {};
    return fail(Error::invalid(path + " of the image is no directory"));
  }
  const std::size_t slash = path.rfind('/');
  TRY(ensure_directory(files, path.substr(0, slash), owner));
  TRY(files.make_directory(path, 0755));
  if (owner == Owner{}) return {};
  TRY(files.change_owner(path, owner.uid, owner.gid));
  return files.settle();
}

Result<bool> Copier::into_directory(bool several) {
  if (place_.into_directory || several || place_.destination == "/") return true;
  TRY_ASSIGN(const auto there, files_.look(place_.destination, Follow::kYes));
  return there.has_value() && there->type == FileType::kDirectory;
}

Status Copier::make_parents(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == 0 || slash == std::string::npos) return {};
  return ensure_directory(files_, path.substr(0, slash), place_.owner.value_or(Owner{}));
}

Copier::Attributes Copier::attributes(const SourceEntry& entry, const std::string& path) const {
  Attributes made;
  made.path = path;
  made.owner = place_.owner.value_or(Owner{entry.uid, entry.gid});
  made.mode = place_.mode.value_or(entry.mode);
  made.link = entry.type == SourceType::kLink;
  return made;
}

Status Copier::later(Attributes attributes) {
  pending_.push_back(std::move(attributes));
  return pending_.size() >= kMostPending ? apply() : Status();
}

Status Copier::apply() {
  TRY(files_.settle());
  for (const Attributes& one : pending_)
    if (one.owner != Owner{}) TRY(files_.change_owner(one.path, one.owner.uid, one.owner.gid));
  // A change of owner takes set-id bits away.
  TRY(files_.settle());
  for (const Attributes& one : pending_)
    if (!one.link) TRY(files_.change_mode(one.path, one.mode));
  pending_.clear();
  return files_.settle();
}

Status Copier::copy(const Source& source, const std::vector<SourceTree>& trees) {
  TRY_ASSIGN(const bool into, into_directory(trees.size() > 1));
  if (place_.into_directory)
    TRY(ensure_directory(files_, place_.destination, place_.owner.value_or(Owner{})));
  for (const SourceTree& tree : trees) {
    const std::string top =
        tree.is_directory() || !into ? place_.destination : below(place_.destination, tree.name);
    TRY(make_parents(top));
    for (const SourceEntry& entry : tree.entries)
      TRY(one(source, tree, entry, below(top, entry.path), entry.path.empty()));
  }
  return {};
}

Status Copier::one(const Source& source, const SourceTree& tree, const SourceEntry& entry,
                   const std::string& path, bool top) {
  if (entry.type == SourceType::kDirectory) return make_directory(entry, path, top);
  if (entry.type == SourceType::kLink) {
    auto made = files_.symlink(path, entry.target);
    if (!made.has_value()) return fail(std::move(made).error().with("link " + path));
    return later(attributes(entry, path));
  }
  TRY_ASSIGN(const Fd file, source.open(tree, entry));
  std::string buffer(128 * 1024, '\0');
  Sha256 hash;
  bool whole = false;
  TRY(put_file(path, entry, [&]() -> Result<std::string> {
    for (;;) {
      const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno("read for " + path);
      const std::string piece = buffer.substr(0, static_cast<std::size_t>(count));
      hash.update(piece);
      whole = piece.empty();
      return piece;
    }
  }));
  if (whole && !entry.digest.empty() && hash.finish() != entry.digest)
    return fail(Error(Code::kAborted, "the source of " + path + " changed while it was read"));
  return {};
}

Status Copier::put_file(const std::string& path, const SourceEntry& entry,
                        const box::FileClient::Source& bytes) {
  const std::uint32_t mode = place_.mode.value_or(entry.mode);
  auto written = files_.write(path, mode & 0777, entry.modified, bytes, box::Replace::kWhole);
  if (!written.has_value()) return fail(std::move(written).error().with("write " + path));
  const Attributes wanted = attributes(entry, path);
  // The rest is as it was made.
  if (wanted.owner == Owner{} && (wanted.mode & ~0777u) == 0) return {};
  return later(wanted);
}

Status Copier::make_directory(const SourceEntry& entry, const std::string& path, bool top) {
  TRY_ASSIGN(const auto there, files_.look(path, Follow::kYes));
  if (there.has_value() && there->type != FileType::kDirectory)
    return fail(Error::invalid(path + " of the image is no directory; the source is one"));
  if (!there.has_value()) TRY(files_.make_directory(path, entry.mode & 0777));
  // What a destination is already, it stays.
  if (top && there.has_value()) return {};
  times_.emplace_back(path, entry.modified);
  return later(attributes(entry, path));
}

Status Copier::write(const std::string& name, std::string_view text, bool several) {
  TRY_ASSIGN(const bool into, into_directory(several));
  const std::string path = into ? below(place_.destination, name) : place_.destination;
  TRY(make_parents(path));
  SourceEntry entry;
  entry.mode = 0644;
  std::string_view rest = text;
  return put_file(path, entry, [&]() -> Result<std::string> {
    const std::string piece(rest.substr(0, 64 * 1024));
    rest.remove_prefix(piece.size());
    return piece;
  });
}

Status Copier::finish() {
  TRY(apply());
  for (const auto& [path, modified] : times_) TRY(files_.set_modified(path, modified));
  times_.clear();
  return files_.settle();
}

}  // namespace caisson::build
