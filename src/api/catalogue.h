// The templates of a server: names of its configuration, and every image of the local store.
//
// A template that the configuration names is public and means an image; any other name is one of
// the store's. What a name means is looked up in the store and remembered for a moment, so that a
// burst of creates does not read it each time. Belongs to the loop.
#pragma once

#include <map>
#include <string>

#include "api/templates.h"
#include "fleet/local_fleet.h"
#include "policy/server_config.h"

namespace caisson::api {

class Catalogue final : public Templates {
 public:
  // The host and the configuration outlive it.
  Catalogue(io::Loop& loop, fleet::Host& host, const policy::ServerConfig& config);

  io::Async<Result<TemplateView>> find(std::string team, std::string name) override;
  io::Async<Result<std::vector<TemplateView>>> list(std::string team) override;

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
  std::map<std::string, io::Clock::time_point> known_;  // images that are there, until when
};

}  // namespace caisson::api
