// For tests: a host without sandboxes, whose builders are a shell script that finds its socket as
// descriptor 3 and its life as 4, and whose store has the names that the test gave it.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "maker/host.h"

namespace caisson::api {

class ScriptHost final : public maker::Host {
 public:
  std::string script;  // empty: no builder can be started
  std::vector<maker::NamedImage> named;
  std::vector<maker::CacheBound> trimmed;  // what was asked for, in order
  std::vector<maker::Recipe> asked_for;    // sandboxes, none of which was made
  std::function<void()> on_list;           // called before the names are listed, on any thread

  ~ScriptHost() override {
    for (const pid_t pid : builders_) {
      ::kill(pid, SIGKILL);
      TEMP_FAILURE_RETRY(::waitpid(pid, nullptr, 0));
    }
  }

  Result<maker::Builder> start_builder() override {
    if (script.empty()) return fail(Error::not_found("there is no builder"));
    int talk[2], life[2];
    VERIFY(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk) == 0);
    VERIFY(::pipe2(life, O_CLOEXEC) == 0);
    const Fd theirs(talk[1]), watched(life[0]);
    maker::Builder builder{.socket = Fd(talk[0]), .life = Fd(life[1])};
    const std::string whole = "read -r job <&3\n" + script;
    const pid_t pid = ::fork();
    VERIFY(pid >= 0);
    if (pid == 0) {
      const int socket = ::fcntl(theirs.get(), F_DUPFD, 64);
      const int end = ::fcntl(watched.get(), F_DUPFD, 64);
      ::dup2(socket, 3);
      ::dup2(end, 4);
      ::close(socket);
      ::close(end);
      ::execl("/bin/bash", "bash", "-c", whole.c_str(), nullptr);
      ::_exit(127);
    }
    const std::lock_guard lock(mutex_);
    builders_.push_back(pid);
    return builder;
  }
  Result<std::vector<maker::NamedImage>> template_images() override {
    if (on_list) on_list();
    const std::lock_guard lock(mutex_);
    return named;
  }
  Status drop_template_image(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(named, [&](const maker::NamedImage& one) { return one.name == name; });
    return {};
  }
  Status check_network() override { return {}; }
  Status trim_cache(const maker::CacheBound& bound) override {
    const std::lock_guard lock(mutex_);
    trimmed.push_back(bound);
    return {};
  }

  std::size_t asked_to_trim() {
    const std::lock_guard lock(mutex_);
    return trimmed.size();
  }

  using maker::Host::make;
  Result<maker::Made> make(const maker::Recipe& recipe, int) override {
    const std::lock_guard lock(mutex_);
    asked_for.push_back(recipe);
    return fail(Error::precondition("this host makes no sandboxes now"));
  }
  Result<Fd> connect(const std::string& id) override { return fail(Error::not_found(id)); }
  Result<std::vector<std::string>> kept() override { return std::vector<std::string>(); }
  Result<std::string> find_image(const std::string& name, maker::NamedBy) override {
    if (name == "base") return "sha256:" + std::string(64, 'b');
    return fail(Error::not_found("no image of this server has that name"));
  }
  Result<std::vector<std::string>> images() override { return std::vector<std::string>(); }
  Result<std::string> take_snapshot(const std::string& id, const std::string&) override {
    return fail(Error::not_found(id));
  }
  Result<std::vector<std::string>> old_snapshots() override { return std::vector<std::string>(); }
  Status drop_snapshot(const std::string&) override { return {}; }

 private:
  std::mutex mutex_;
  std::vector<pid_t> builders_;
};

}  // namespace caisson::api
