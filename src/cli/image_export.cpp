// caisson image export: an image of the local store as a file that other tools read.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "image/store.h"
#include "image/transfer/saved_image.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 2> kOptions = {
    {{.name = "--output",
      .letter = 'o',
      .value = "FILE",
      .help = "The file to write; '-' is standard output.",
      .complete = Complete::kFile},
     {.name = "--format",
      .value = "FORM",
      .help = "oci: the tar of an OCI layout (the default). docker: what `docker load` takes.",
      .complete = Complete::kWords,
      .words = "oci docker"}}};
constexpr std::array<OptionGroup, 1> kGroups = {{{"Options", kOptions}}};
constexpr std::array<Example, 2> kExamples = {
    {{"caisson image export tools:1 -o tools.tar", "an OCI layout"},
     {"caisson image export tools:1 --format docker -o - | docker load", "for Docker"}}};

// Written beside its place and moved there when it is whole.
Status export_to_file(image::Store& store, const std::string& name, image::SavedForm form,
                      const std::string& path) {
  const std::string beside = path + ".partial-" + std::to_string(::getpid());
  const Fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) return fail_errno("'" + beside + "'");
  Status done = image::export_image(store, name, form, file.get());
  if (done.has_value() && ::rename(beside.c_str(), path.c_str()) != 0) {
    done = fail_errno("'" + path + "'");
  }
  if (!done.has_value()) ::unlink(beside.c_str());
  return done;
}

}  // namespace

constinit const CommandTable kImageExportTable = {
    .name = "image export",
    .synopsis = "NAME -o FILE",
    .summary = "Write an image of the local store into a file",
    .text =
        "All of the image: its layers as they are, its configuration and its name. `caisson image "
        "import`, skopeo, podman and docker read it.",
    .groups = kGroups,
    .examples = kExamples,
    .complete = Complete::kImage};

int run_image_export(const Parsed& parsed) {
  const std::string path = parsed.value("--output");
  if (parsed.arguments.size() != 1 || path.empty()) {
    say("a name and a file are needed; caisson image export NAME -o FILE");
    return kExitOwnError;
  }
  const std::string form_name = parsed.has("--format") ? parsed.value("--format") : "oci";
  if (form_name != "oci" && form_name != "docker") {
    say("--format: found '" + shown(form_name) + "'; allowed is oci or docker");
    return kExitOwnError;
  }
  const auto form =
      form_name == "oci" ? image::SavedForm::kLayout : image::SavedForm::kDockerArchive;
  if (path == "-" && ::isatty(1) == 1) {
    say("an archive is nothing for a terminal; give a file to -o");
    return kExitOwnError;
  }
  auto store = image::Store::open();
  if (!store.has_value()) return say_error(store.error());
  const std::string& name = parsed.arguments[0];
  const Status done = path == "-" ? image::export_image(*store, name, form, 1)
                                  : export_to_file(*store, name, form, path);
  return done.has_value() ? 0 : say_error(done.error());
}

}  // namespace caisson::cli
