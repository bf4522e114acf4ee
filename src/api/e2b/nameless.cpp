#include "api/e2b/nameless.h"

#include <functional>

#include "api/e2b/path.h"
#include "api/e2b/signature.h"
#include "base/secret.h"

namespace caisson::api::e2b {
namespace {

// Paths of the data plane that the control plane does not have.
bool is_envd_path(const http::Target& target) {
  if (target.segments.empty()) return false;
  const std::string& first = target.segments.front();
  return first == "process.Process" || first == "filesystem.Filesystem" || first == "files" ||
         first == "envs";
}

// Every one is compared, so that the time does not tell which was meant.
std::shared_ptr<fleet::Served> find_running(
    fleet::Fleet& fleet, const std::function<bool(const std::string& token)>& fits) {
  std::shared_ptr<fleet::Served> found;
  for (const auto& served : fleet.all_running()) {
    const std::string& token = served->view().access_token;
    if (!token.empty() && fits(token)) found = served;
  }
  return found;
}

}  // namespace

std::shared_ptr<fleet::Served> find_by_secret(fleet::Fleet& fleet, const http::Exchange& exchange) {
  const http::Target& target = exchange.target();
  if (!is_envd_path(target)) return nullptr;
  if (const auto token = exchange.request().headers.get("X-Access-Token")) {
    return find_running(fleet, [&](const std::string& own) { return same_secret(own, *token); });
  }
  const auto signature = target.query_value("signature");
  if (!signature.has_value() || target.path != "/files") return nullptr;
  // Nobody has shown a secret yet, so nothing long is hashed, and nothing once a sandbox.
  const std::string_view path = target.query_value("path").value_or("");
  const std::string_view user = target.query_value("username").value_or("");
  if (path.size() > kMaxPath || user.size() > kMaxName) return nullptr;
  const auto expires = parse_expiration(target.query_value("signature_expiration"));
  if (!expires.has_value()) return nullptr;
  const FileAccess access =
      exchange.request().method == "POST" ? FileAccess::kWrite : FileAccess::kRead;
  // When it expires is looked at where the file is served, which says so.
  const FileSigner signer(path, access, user, *expires);
  return find_running(
      fleet, [&](const std::string& own) { return same_secret(*signature, signer.sign(own)); });
}

}  // namespace caisson::api::e2b
