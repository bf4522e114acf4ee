// One request of the data plane, and what all of its handlers need: who asks, for which sandbox,
// until when; calls to the sandbox's guest; answers.
//
// The data plane acts as E2B's own server inside a sandbox does: files are worked on with root's
// rights, whoever asks, and what is created belongs to the user who asks. Sandboxes for it are
// therefore made with sudo's privileges. A Request lives as long as its handler runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/proto.h"
#include "fleet/fleet.h"
#include "http/server.h"
#include "io/async.h"

namespace caisson::api::e2b {

class Watchers;

struct Request {
  http::Exchange& exchange;
  // Held, since the sandbox may end meanwhile.
  std::shared_ptr<fleet::Served> sandbox;
  // Connect-Timeout-Ms.
  std::optional<io::Clock::time_point> deadline{};
  // Of all sandboxes; null where no call needs them.
  Watchers* watchers = nullptr;

  std::optional<std::string_view> header(std::string_view name) const {
    return exchange.request().headers.get(name);
  }
};

// Whether a request may be served, or was answered with a refusal.
enum class Allowed : std::uint8_t { kYes, kAnswered };

// A user of the sandbox, by its own /etc/passwd.
struct Account {
  std::string name;
  std::uint32_t uid = 0, gid = 0;
  std::string home;
};

// Who asks: the user of `Authorization: Basic`, whose password means nothing; else the sandbox's
// default. Error: unauthenticated.
Result<std::string> user_of(const Request& request);
// Whether it can be a user's name: "invalid username: 'x'" (unauthenticated) for what the guest
// would understand as more than that, as "user:group" and numbers.
Status check_user_name(std::string_view name);
// The same error where there is none of that name.
io::Async<Result<Account>> look_up(const Request& request, std::string name);
// user_of() and look_up().
io::Async<Result<Account>> account_of(const Request& request);
// Error: see resolve_path().
Result<std::string> path_for(const Request& request, const Account& account,
                             std::string_view given);

// The fields of a file operation with root's rights.
proto::Fields file_fields(proto::FileOperation operation, std::string_view path);
// To whom belongs what it creates.
void put_owner(proto::Fields& fields, const Account& account);

// Error: unavailable where the sandbox is none that runs.
Result<std::unique_ptr<fleet::BoxStream>> open_stream(const Request& request, proto::Kind kind,
                                                      const proto::Fields& fields);
// The next message; the stream's end is a message too. Error: deadline_exceeded, unavailable.
io::Async<Result<fleet::BoxStream::Message>> next_message(const Request& request,
                                                          fleet::BoxStream& stream);
// How a stream ended: the error of its CLOSE, if there is one.
Status status_of_close(std::string_view payload);
// Runs one operation to its end and gives its EVENTs. Error: also where there are more than `most`,
// or 16 MiB of them (resource_exhausted).
io::Async<Result<std::vector<std::string>>> call_guest(const Request& request, proto::Kind kind,
                                                       proto::Fields fields, std::size_t most = 16);

// Headers of every answer: any origin may read it. Who may ask is settled by tokens alone.
http::Headers answer_headers(std::string_view content_type = "");
io::Async<Status> answer_json(http::Exchange& exchange, int status, const json::Value& body);
// {"code":404,"message":"…"}
io::Async<Status> answer_error(http::Exchange& exchange, int status, std::string_view message);

}  // namespace caisson::api::e2b
