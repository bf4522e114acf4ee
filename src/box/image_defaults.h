// What an image's configuration means for a sandbox made of it, as `docker run` has it:
//
//   program    the entrypoint and then the given command, or the image's own where none is given;
//   an
//              entrypoint that the spec gives replaces both of the image
//   user       the image's; of an image that says how it is run but not by whom, root
//   workdir    the image's, made where it is missing; of such an image that names none, /
//   env        the image's, weaker than the spec's
//   volumes    directories that must exist; they are as writable as everything else
//
// An image that says nothing of this, a plain root file system, leaves ours: its user 1000 where it
// has one, else root, in that user's home. What the spec says always wins. Ports are only told.
//
// The text is the image's and so hostile: it is checked by the rules for a spec, and an error names
// the image, the key and what is allowed. Pure functions.
#pragma once

#include <caisson/spec.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "image/config.h"

namespace caisson::box {

struct ImageDefaults {
  std::vector<std::string> entrypoint, command;
  std::map<std::string, std::string> env;
  std::string user;                      // empty: ours
  std::string workdir;                   // empty: the user's home
  std::vector<std::string> directories;  // absolute and normalised, each once
  std::vector<std::string> exposed_ports;
};

// `image` is its name, for errors. Error: precondition.
Result<ImageDefaults> defaults_of(const image::ImageConfig& config, std::string_view image);

// The whole command line; empty where neither names a program.
std::vector<std::string> command_line(const ImageDefaults& image, const policy::SpecValues& spec,
                                      const std::vector<std::string>& command);

}  // namespace caisson::box
