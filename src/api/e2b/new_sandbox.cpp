#include "api/e2b/new_sandbox.h"

#include "api/e2b/network.h"
#include "api/sandbox_fields.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

constexpr std::chrono::seconds kUsualLifeV1{15};
constexpr std::size_t kMostTokens = 5, kMostVolumes = 64;

Error missing(const Object& body, std::string_view key, std::string_view allowed) {
  return policy::wrong(body.path_of(key), "nothing", allowed);
}

// iam and volumeMounts are checked before they are refused, so that a mistake is called one.
Status check_identity(const Object& body) {
  TRY_ASSIGN(const auto iam, body.object("iam"));
  if (!iam.has_value()) return {};
  TRY_ASSIGN(const auto tokens, iam->object("tokens"));
  if (!tokens.has_value()) return {};
  const json::Value::Object& members = *tokens->value().as_object();
  if (members.size() > kMostTokens) {
    return fail(policy::wrong(iam->path_of("tokens"), std::to_string(members.size()) + " tokens",
                              "at most " + std::to_string(kMostTokens)));
  }
  for (const json::Member& member : members) {
    TRY_ASSIGN(const auto token, tokens->object(member.key));
    if (!token.has_value()) return fail(missing(*tokens, member.key, "an object"));
    TRY_ASSIGN(const auto audience, token->text("audience", 1024));
    if (audience.value_or("").empty()) return fail(missing(*token, "audience", "a string"));
    TRY_ASSIGN(const auto type, token->text("tokenType", 64));
    if (type != "JWT-SVID") {
      return fail(policy::wrong(token->path_of("tokenType"),
                                type.has_value() ? policy::quote(*type) : "nothing",
                                "\"JWT-SVID\""));
    }
  }
  if (members.empty()) return {};
  return fail({Code::kUnimplemented, "iam: this server gives no identity tokens to sandboxes"});
}

Status check_volumes(const Object& body) {
  TRY_ASSIGN(const auto volumes, body.objects("volumeMounts", kMostVolumes));
  if (!volumes.has_value() || volumes->empty()) return {};
  for (const Object& volume : *volumes) {
    for (const char* key : {"name", "path"}) {
      TRY_ASSIGN(const auto text, volume.text(key, 4096));
      if (text.value_or("").empty()) return fail(missing(volume, key, "a string"));
    }
  }
  return fail({Code::kUnimplemented, "volumeMounts: this server has no volumes"});
}

Status read_lifecycle(const Object& body, fleet::NewSandbox& wanted) {
  TRY_ASSIGN(const auto pause, body.truth("autoPause"));
  TRY_ASSIGN(const auto memory, body.truth("autoPauseMemory"));
  TRY_ASSIGN(const auto resume, body.object("autoResume"));
  if (pause.value_or(false)) wanted.on_timeout = fleet::NewSandbox::OnTimeout::kPause;
  if (resume.has_value()) {
    TRY_ASSIGN(const auto enabled, resume->truth("enabled"));
    if (!enabled.has_value()) return fail(missing(*resume, "enabled", "true or false"));
    wanted.auto_resume = *enabled;
  }
  if (memory.value_or(true)) return {};
  if (!pause.value_or(false)) {
    return fail(
        Error::invalid("autoPauseMemory: found false; allowed only together with autoPause"));
  }
  if (wanted.auto_resume) {
    return fail(Error::invalid(
        "autoPauseMemory: found false; allowed only without autoResume, since traffic "
        "does not resume a sandbox that boots anew"));
  }
  wanted.on_timeout_keeps = fleet::Keep::kFiles;
  return {};
}

}  // namespace

Result<fleet::NewSandbox> parse_new_sandbox(const json::Value& value, Dialect dialect,
                                            const Egress& egress) {
  const Object body(value);
  fleet::NewSandbox wanted;
  TRY_ASSIGN(auto name, body.text("templateID", kMostTemplateName));
  if (name.value_or("").empty()) {
    return fail(missing(body, "templateID", "a template's name or id"));
  }
  wanted.template_name = std::move(*name);

  TRY_ASSIGN(const auto timeout, body.integer("timeout", 1, kMostSeconds));
  if (timeout.has_value()) {
    wanted.timeout = std::chrono::seconds(*timeout);
  } else if (dialect == Dialect::kV1) {
    wanted.timeout = kUsualLifeV1;
  }
  TRY_ASSIGN(const auto secure, body.truth("secure"));
  wanted.secure = dialect == Dialect::kV2 || secure.value_or(false);
  TRY(read_lifecycle(body, wanted));

  TRY_ASSIGN(wanted.metadata, read_metadata(body, "metadata"));
  TRY_ASSIGN(wanted.env, read_env(body, "envVars"));

  TRY_ASSIGN(Network network, parse_network(body));
  wanted.public_traffic = network.public_traffic;
  wanted.mask_request_host = network.mask_request_host;
  if (!network.public_traffic && !wanted.secure) {
    return fail(Error::invalid(
        "network.allowPublicTraffic: found false; allowed only together with secure"));
  }
  TRY_ASSIGN(wanted.network, policy_of(network, egress));
  wanted.network_fields = network_fields(network, egress);
  wanted.secrets = values_of(network);
  // A client starts its MCP gateway itself, by a command; all that we do is see that it is an
  // object.
  TRY_ASSIGN([[maybe_unused]] const auto mcp, body.object("mcp"));
  TRY(check_identity(body));
  TRY(check_volumes(body));
  return wanted;
}

}  // namespace caisson::api::e2b
