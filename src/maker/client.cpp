#include "maker/client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/child_process.h"
#include "base/companion.h"
#include "base/paths.h"
#include "base/sys.h"

namespace caisson::maker {
namespace {

// Longer than a launcher may take: it says itself when something does not come about.
constexpr timeval kPatience{60, 0};
// Of what reads or writes an image's files, which has its own bounds.
constexpr timeval kLongPatience{45 * 60, 0};

Error gone() {
  return Error::unavailable("caisson-maker, which makes sandboxes, has ended");
}

}  // namespace

Result<Client> Client::start(const std::string& group) {
  TRY_ASSIGN(const std::string path, helper_binary("caisson-maker"));
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  std::vector<std::string> arguments = {"caisson-maker"};
  if (!group.empty()) arguments.insert(arguments.end(), {"--group", group});
  TRY(start_companion(path, std::move(arguments), std::move(pair.theirs)));
  return Client(std::move(pair.ours));
}

Result<Client::Reply> Client::ask(const Request& request, int keys_fd) {
  const std::string bytes = encode(request);
  // What the maker would refuse is told here, where a name may come from a client.
  TRY(decode_request(bytes));
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  const bool is_long = request.operation == Operation::kTakeSnapshot ||
                       request.operation == Operation::kDropSnapshot ||
                       request.operation == Operation::kDropTemplateImage ||
                       request.operation == Operation::kTrimCache;
  const timeval& patience = is_long ? kLongPatience : kPatience;
  if (::setsockopt(pair.ours.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
    return fail_errno("setsockopt SO_RCVTIMEO");
  std::vector<int> descriptors = {pair.theirs.get()};
  if (keys_fd >= 0) descriptors.push_back(keys_fd);
  if (const auto sent = sys::send_message(control_.get(), bytes, descriptors); !sent.has_value())
    return fail(sent.error().error_number() == EPIPE ? gone() : sent.error());
  // So that its end is seen.
  pair.theirs.reset();
  Reply reply;
  for (std::size_t all = 0;;) {
    auto message = sys::recv_message(pair.ours.get(), kMostAnswer);
    if (!message.has_value()) {
      if (message.error().error_number() == EAGAIN)
        return fail(Error(Code::kDeadlineExceeded, "caisson-maker does not answer"));
      if (message.error().error_number() == ECONNRESET) return fail(gone());
      return fail(std::move(message).error());
    }
    if (message->bytes.empty()) return fail(gone());
    TRY_ASSIGN(Answer answer, decode_answer(message->bytes));
    all += message->bytes.size();
    if (all > 2 * kMostAnswers) return fail(Error(Code::kDataLoss, "an answer without end"));
    for (std::string& text : answer.texts) reply.texts.push_back(std::move(text));
    for (Fd& fd : message->descriptors) reply.descriptors.push_back(std::move(fd));
    if (answer.kind == Answer::Kind::kDone) return reply;
  }
}

Result<Made> Client::make(const Recipe& recipe, int keys_fd) {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kMake, .recipe = recipe}, keys_fd));
  if (reply.texts.size() != 4) return fail(Error(Code::kDataLoss, "a sandbox without its facts"));
  return Made{.id = std::move(reply.texts[0]),
              .user = std::move(reply.texts[1]),
              .workdir = std::move(reply.texts[2]),
              .image = std::move(reply.texts[3])};
}

Result<Fd> Client::connect(const std::string& id) {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kConnect, .name = id}));
  if (reply.descriptors.size() != 1)
    return fail(Error(Code::kDataLoss, "a connection without a socket"));
  return std::move(reply.descriptors[0]);
}

Result<std::vector<std::string>> Client::kept() {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kKept}));
  return std::move(reply.texts);
}

Result<std::string> Client::find_image(const std::string& name, NamedBy who) {
  const auto operation =
      who == NamedBy::kOperator ? Operation::kFindImage : Operation::kFindClientsImage;
  TRY_ASSIGN(Reply reply, ask({.operation = operation, .name = name}));
  if (reply.texts.size() != 1) return fail(Error(Code::kDataLoss, "an image without its id"));
  return std::move(reply.texts[0]);
}

Result<std::string> Client::take_snapshot(const std::string& id, const std::string& image) {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kTakeSnapshot, .name = id, .image = image}));
  if (reply.texts.size() != 1) return fail(Error(Code::kDataLoss, "a snapshot without its image"));
  return std::move(reply.texts[0]);
}

Result<std::vector<std::string>> Client::old_snapshots() {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kOldSnapshots}));
  return std::move(reply.texts);
}

Status Client::drop_snapshot(const std::string& image) {
  TRY(ask({.operation = Operation::kDropSnapshot, .name = image}));
  return {};
}

Result<Builder> Client::start_builder() {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kStartBuilder}));
  if (reply.descriptors.size() != 2)
    return fail(Error(Code::kDataLoss, "a builder without its descriptors"));
  return Builder{.socket = std::move(reply.descriptors[0]),
                 .life = std::move(reply.descriptors[1])};
}

Result<std::vector<NamedImage>> Client::template_images() {
  TRY_ASSIGN(const Reply reply, ask({.operation = Operation::kTemplateImages}));
  std::vector<NamedImage> images;
  for (std::size_t at = 0; at + 1 < reply.texts.size(); at += 2)
    images.push_back({.name = reply.texts[at], .image = reply.texts[at + 1]});
  return images;
}

Status Client::drop_template_image(const std::string& name) {
  TRY(ask({.operation = Operation::kDropTemplateImage, .name = name}));
  return {};
}

Status Client::trim_cache(const CacheBound& bound) {
  TRY(ask({.operation = Operation::kTrimCache, .cache = bound}));
  return {};
}

Status Client::check_network() {
  TRY(ask({.operation = Operation::kCheckNetwork}));
  return {};
}

Result<std::vector<std::string>> Client::images() {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kImages}));
  return std::move(reply.texts);
}

}  // namespace caisson::maker
