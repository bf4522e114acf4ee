// The templates of a server that nobody built: names of its configuration, and every image of the
// local store by its name.
//
// A template that the configuration names means an image; any other name is one of the store's, but
// for those of images that teams' templates are made of. What a name means is looked up in the
// store and remembered for a moment, so that a burst of creates does not read it each time. Belongs
// to the loop.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "api/templates.h"
#include "fleet/local_fleet.h"
#include "policy/server_config.h"

namespace caisson::api {

// Whether a client may name an image of the store so: neither what a team has built nor a snapshot.
bool is_everybodys(std::string_view name);

class Catalogue {
 public:
  // The host and the configuration outlive it.
  Catalogue(io::Loop& loop, fleet::Host& host, const policy::ServerConfig& config);

  io::Async<Result<TemplateView>> find(std::string name);
  io::Async<Result<std::vector<TemplateView>>> list();

  // For making a sandbox of it. An empty name: the configuration's default.
  io::Async<Result<fleet::Template>> to_make(std::string name);
  // The configuration's pool.
  fleet::Pool::Sizes pool() const;

 private:
  // The image that the configuration, or nobody, gives for a name.
  std::string image_of(const std::string& name) const;
  fleet::Recipe recipe_of(const std::string& image) const;
  TemplateView view_of(const std::string& name) const;

  io::Loop& loop_;
  fleet::Host& host_;
  const policy::ServerConfig& config_;
  struct Known {
    std::string id;
    io::Clock::time_point until;
  };
  std::map<std::string, Known> known_;  // images that are there
};

}  // namespace caisson::api
