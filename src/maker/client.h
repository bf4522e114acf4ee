// The server's end of caisson-maker: starts it, and asks it.
//
// Any thread may ask; each request has a socket of its own for the answer, and the thread waits.
#pragma once

#include <string>
#include <vector>

#include "maker/host.h"
#include "maker/protocol.h"

namespace caisson::maker {

class Client final : public Host {
 public:
  // Starts the program with the rights and the environment of this process; in `group`, a path as
  // /proc/PID/cgroup names it, unless that is empty.
  static Result<Client> start(const std::string& group);
  // `control` is connected to a maker.
  explicit Client(Fd control) : control_(std::move(control)) {}

  using Host::make;
  Result<Made> make(const Recipe& recipe, int keys_fd) override;
  Result<Fd> connect(const std::string& id) override;
  Result<std::vector<std::string>> kept() override;
  Result<std::string> find_image(const std::string& name, NamedBy who) override;
  Result<std::vector<std::string>> images() override;
  Result<std::string> take_snapshot(const std::string& id, const std::string& image) override;
  Result<std::vector<std::string>> old_snapshots() override;
  Status drop_snapshot(const std::string& image) override;
  Result<Builder> start_builder() override;
  Result<std::vector<NamedImage>> template_images() override;
  Status drop_template_image(const std::string& name) override;
  Status trim_cache(const CacheBound& bound) override;
  Status check_network() override;

  // Readable when the maker has gone; nothing can be made then.
  int control_fd() const { return control_.get(); }

 private:
  struct Reply {
    std::vector<std::string> texts;
    std::vector<Fd> descriptors;
  };
  Result<Reply> ask(const Request& request, int keys_fd = -1);
  Fd control_;
};

}  // namespace caisson::maker
