// The server's end of caisson-vault: starts it, and asks it.
//
// Any thread may ask; each request has a socket of its own for the answer, and the thread waits.
#pragma once

#include <string>
#include <vector>

#include "vault/protocol.h"
#include "vault/vault.h"

namespace caisson::vault {

class Client final : public Vault {
 public:
  // Starts the program with the rights and the environment of this process, whose
  // CAISSON_STATE_DIR has the key (key_file.h). Errors: those of the key's file.
  static Result<Client> start();
  // `control` is connected to a keeper that starts (keeper.h): waits for its first word.
  static Result<Client> greet(Fd control);

  Result<Sealed> seal(const policy::NetworkPolicy& policy, std::span<const GivenSecret> values,
                      std::string_view before) const override;
  Result<Kept> keep(std::string_view id, int body_fd) const override;
  Result<NetworkKeys> make_keys() const override;

  // Readable when the vault has gone and nobody starts it again.
  int control_fd() const { return control_.get(); }
  // Why the vault's memory may be written to swap space; empty: it may not.
  const std::string& not_locked() const { return not_locked_; }

 protected:
  Result<std::string> seal_for_gateway(std::string_view number,
                                       std::string_view sealed) const override;

 private:
  explicit Client(Fd control) : control_(std::move(control)) {}
  struct Reply {
    std::vector<std::string> texts;
    std::vector<Fd> descriptors;
  };
  // Error: data_loss where it has not so many texts, or fewer where they are a list.
  Result<Reply> ask(const Request& request, std::size_t texts, int body_fd = -1) const;
  Fd control_;
  std::string not_locked_;
};

}  // namespace caisson::vault
