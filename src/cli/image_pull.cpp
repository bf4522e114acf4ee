// caisson image pull: images of registries.
#include <unistd.h>

#include <array>
#include <string>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/pull_view.h"
#include "cli/table.h"
#include "image/registry/names.h"
#include "image/registry/pull.h"
#include "image/store.h"
#include "policy/settings.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 3> kOptions = {
    {{.name = "--platform",
      .value = "OS/ARCH",
      .help = "The platform to take of an image that is there for several; this machine's by "
              "default."},
     {.name = "--quiet", .letter = 'q', .help = "Say nothing but errors."},
     {.name = "--json", .help = "Print one line of JSON: what was pulled."}}};
constexpr std::array<OptionGroup, 1> kGroups = {{{"Options", kOptions}}};
constexpr std::array<Example, 2> kExamples = {
    {{"caisson image pull registry.example.com/team/tool:1.2", "from a registry"},
     {"CAISSON_DEFAULT_REGISTRY=registry.example.com caisson image pull tool",
      "a short name; the setting default_registry does the same"}}};

json::Value as_json(const image::PullReport& report) {
  json::Value value = json::Value::object();
  value.set("name", report.reference.text());
  value.set("id", "sha256:" + report.image_id);
  value.set("manifest", "sha256:" + report.manifest_digest);
  value.set("layers", report.layers);
  value.set("bytes", report.bytes);
  value.set("downloaded", report.downloaded);
  return value;
}

Result<image::PullReport> pull_named(const std::string& name, const std::string& platform,
                                     PullOutput output) {
  image::PullOptions options;
  TRY_ASSIGN(const image::Reference reference, image::parse_reference(name));
  TRY_ASSIGN(options.settings, policy::load_settings());
  if (!platform.empty()) {
    TRY_ASSIGN(options.platform, image::parse_platform(platform));
  }
  TRY_ASSIGN(const auto local, image::mapped_name(reference, options.settings));
  if (local) {
    return fail(Error::invalid("'" + reference.text() + "' stands for the local image '" +
                               local->text() +
                               "' by the setting images, so there is nothing to pull"));
  }
  TRY_ASSIGN(image::Store store, image::Store::open());
  PullView view(output);
  return image::pull(store, reference, options, view.progress());
}

}  // namespace

constinit const CommandTable kImagePullTable = {
    .name = "image pull",
    .synopsis = "[OPTIONS] NAME",
    .summary = "Fetch an image from a registry into the local store",
    .text =
        "NAME is HOST[:PORT]/NAME[:TAG][@sha256:DIGEST]. A name without a registry's host is asked "
        "for at the setting default_registry.\n\n"
        "Settings are in $XDG_CONFIG_HOME/caisson/config.yaml (else "
        "~/.config/caisson/config.yaml), "
        "and where that is absent in /etc/caisson/config.yaml: default_registry, HOST[:PORT] "
        "(CAISSON_DEFAULT_REGISTRY goes before it); insecure_registries, a list of those that are "
        "spoken to without TLS (those on this host may be anyway); images, a mapping from names to "
        "images of the local store.\n\n"
        "A login is taken from $DOCKER_CONFIG/config.json or ~/.docker/config.json, as `docker "
        "login` and `skopeo login` leave it, or from the credential helper that is named there. "
        "https_proxy, no_proxy, SSL_CERT_FILE and SSL_CERT_DIR count. A download that broke goes "
        "on where it ended when it is asked for again.",
    .groups = kGroups,
    .examples = kExamples};

int run_image_pull(const Parsed& parsed) {
  if (parsed.arguments.size() != 1) {
    say("one name is needed; caisson image pull NAME");
    return kExitOwnError;
  }
  const bool json = parsed.has("--json");
  const PullOutput output = parsed.has("--quiet") || json ? PullOutput::kNothing
                            : ::isatty(2) == 1            ? PullOutput::kBars
                                                          : PullOutput::kLines;
  const auto report = pull_named(parsed.arguments[0], parsed.value("--platform"), output);
  if (!report.has_value()) return say_error(report.error());
  if (json) {
    write_all(1, json::serialize(as_json(*report)) + "\n");
  } else if (!parsed.has("--quiet")) {
    write_all(1, report->reference.text() + ": " + std::to_string(report->layers) +
                     (report->layers == 1 ? " layer, " : " layers, ") + size_text(report->bytes) +
                     ", sha256:" + report->image_id.substr(0, 12) +
                     (report->downloaded == 0 ? " (already here)\n" : "\n"));
  }
  return 0;
}

}  // namespace caisson::cli
