#include "api/v1/sandbox.h"

#include <charconv>

#include "api/sandbox_fields.h"
#include "policy/complain.h"

namespace caisson::api::v1 {

Result<std::shared_ptr<fleet::Served>> sandbox_of(const Call& call) {
  const std::string& id = call.parameter(0);
  std::shared_ptr<fleet::Served> found = call.backend.fleet.find(call.team, id);
  if (found == nullptr || found->ended()) return fail(no_such_sandbox(id));
  return found;
}

Result<std::shared_ptr<fleet::Served>> running_sandbox_of(const Call& call) {
  TRY_ASSIGN(std::shared_ptr<fleet::Served> found, sandbox_of(call));
  if (found->view().state == fleet::State::kPaused)
    return fail(Error::precondition("sandbox " + policy::quote(call.parameter(0)) + " is paused"));
  return found;
}

io::Async<Result<std::vector<std::string>>> ask(std::shared_ptr<fleet::Served> sandbox,
                                                proto::ControlOperation operation) {
  CO_TRY_ASSIGN(fleet::BoxClient * client, sandbox->client());
  co_return co_await client->request(operation, {});
}

Result<std::optional<std::int64_t>> query_number(const Call& call, std::string_view name,
                                                 std::int64_t least, std::int64_t most) {
  const auto text = call.query(name);
  if (!text.has_value()) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < least || number > most)
    return fail(
        policy::wrong(name, policy::quote(*text),
                      "a number from " + std::to_string(least) + " to " + std::to_string(most)));
  return number;
}

Result<Answered> query_truth(const Call& call, std::string_view name) {
  const std::string_view text = call.query(name).value_or("false");
  if (text == "true") return Answered::kYes;
  if (text == "false") return Answered::kNo;
  return fail(policy::wrong(name, policy::quote(text), "true or false"));
}

}  // namespace caisson::api::v1
