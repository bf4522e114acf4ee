#include "image/fetch/transfers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/sys.h"
#include "image/registry/url.h"

namespace caisson::image {
namespace {

constexpr std::size_t kMaxCertificates = 16 << 20;
constexpr std::size_t kMaxHeaders = 64 << 10;
constexpr long kConnectSeconds = 30;
constexpr long kStallSeconds = 60;  // without a byte
constexpr long kConnections = 8;

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view trim(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

FetchEnd meaning_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return FetchEnd::kDone;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return FetchEnd::kResolve;
    case CURLE_COULDNT_CONNECT:
      return FetchEnd::kConnect;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return FetchEnd::kCertificate;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CIPHER:
      return FetchEnd::kTls;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_WEIRD_SERVER_REPLY:
      return FetchEnd::kBroken;
    default:
      return FetchEnd::kOther;
  }
}

// Loopback, link-local and the unspecified address, also as IPv4 within IPv6.
bool is_inside(const sockaddr& address) {
  const auto inside4 = [](std::uint32_t host_order) {
    return (host_order >> 24) == 127 || (host_order >> 24) == 0 || (host_order >> 16) == 0xa9fe;
  };
  if (address.sa_family == AF_INET) {
    sockaddr_in in = {};
    std::memcpy(&in, &address, sizeof in);
    return inside4(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in = {};
    std::memcpy(&in, &address, sizeof in);
    const in6_addr& ip = in.sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&ip) || IN6_IS_ADDR_V4COMPAT(&ip)) {
      std::uint32_t last = 0;
      std::memcpy(&last, ip.s6_addr + 12, sizeof last);
      return inside4(ntohl(last)) || IN6_IS_ADDR_LOOPBACK(&ip) || IN6_IS_ADDR_UNSPECIFIED(&ip);
    }
    return IN6_IS_ADDR_LINKLOCAL(&ip) != 0;
  }
  return true;
}

}  // namespace

Result<FetchEnvironment> FetchEnvironment::read() {
  FetchEnvironment environment;
  // As for other programs: each in the place of the system's, which holds where it is not set.
  if (const std::string file = variable("SSL_CERT_FILE"); !file.empty()) {
    auto text = sys::read_file(AT_FDCWD, file, kMaxCertificates);
    if (!text.has_value()) return fail(std::move(text).error().with("SSL_CERT_FILE"));
    environment.certificates = std::move(*text);
  }
  environment.certificate_directory = variable("SSL_CERT_DIR");
  for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}) {
    if (!variable(name).empty()) environment.has_proxy = true;
  }
  return environment;
}

struct Transfers::Transfer {
  std::uint32_t id = 0;
  CURL* easy = nullptr;
  curl_slist* request_headers = nullptr;
  Fd output;
  std::string pending;  // of the body, taken from libcurl and not written yet
  bool paused = false;
  bool outside_only = false;
  bool refused_address = false;
  bool too_large = false;
  bool broken_pipe = false;
  bool head_sent = false;
  std::uint64_t left = 0;  // bytes of the body that are still allowed
  FetchHead head;
  std::size_t header_bytes = 0;
  std::optional<CURLcode> result;  // libcurl is done; the pending bytes may not be
  char error[CURL_ERROR_SIZE] = {};
  const Say* say = nullptr;

  Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() {
    if (easy != nullptr) curl_easy_cleanup(easy);
    curl_slist_free_all(request_headers);
  }

  void send_head() {
    if (head_sent) return;
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 100 || status > 599) return;
    head.id = id;
    head.status = static_cast<int>(status);
    (*say)(head.encode());
    head_sent = true;
  }

  // False: the reader takes no more for now.
  bool flush() {
    while (!pending.empty()) {
      const ssize_t done =
          TEMP_FAILURE_RETRY(::write(output.get(), pending.data(), pending.size()));
      if (done < 0 && errno == EAGAIN) return false;
      if (done < 0) {
        broken_pipe = true;
        pending.clear();
        return true;
      }
      pending.erase(0, static_cast<std::size_t>(done));
    }
    return true;
  }

  static std::size_t on_body(char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    transfer.send_head();
    if (!transfer.flush()) {
      transfer.paused = true;
      return CURL_WRITEFUNC_PAUSE;
    }
    if (transfer.broken_pipe) return 0;
    if (size > transfer.left) {
      transfer.too_large = true;
      return 0;
    }
    transfer.left -= size;
    transfer.pending.assign(data, size);
    transfer.flush();
    return transfer.broken_pipe ? 0 : size;
  }

  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    // Behind the body come trailers, which mean nothing here.
    if (transfer.head_sent) return size;
    const std::string_view text = trim({data, size});
    if (text.starts_with("HTTP/")) {  // of a new answer: one of 100 came before
      transfer.head.headers.clear();
      transfer.header_bytes = 0;
      return size;
    }
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return size;
    std::string name(text.substr(0, colon));
    std::ranges::transform(name, name.begin(), lower);
    if (std::ranges::find(kFetchHeaders, name) == kFetchHeaders.end()) return size;
    transfer.header_bytes += size;
    if (transfer.header_bytes > kMaxHeaders) return 0;
    transfer.head.headers.emplace_back(std::move(name), trim(text.substr(colon + 1)));
    return size;
  }

  static curl_socket_t on_socket(void* self, curlsocktype, curl_sockaddr* address) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (transfer.outside_only && is_inside(address->addr)) {
      transfer.refused_address = true;
      return CURL_SOCKET_BAD;
    }
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }
};

Transfers::Transfers(FetchEnvironment environment, Say say)
    : environment_(std::move(environment)), say_(std::move(say)) {}

Transfers::Transfers(Transfers&& other) noexcept
    : environment_(std::move(other.environment_)),
      say_(std::move(other.say_)),
      multi_(std::exchange(other.multi_, nullptr)),
      transfers_(std::move(other.transfers_)) {}

Transfers::~Transfers() {
  for (auto& [id, transfer] : transfers_) curl_multi_remove_handle(multi_, transfer->easy);
  transfers_.clear();
  if (multi_ != nullptr) curl_multi_cleanup(multi_);
}

Result<Transfers> Transfers::create(FetchEnvironment environment, Say say) {
  if (curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK) {
    return fail(Error::internal("libcurl cannot be initialised"));
  }
  Transfers transfers(std::move(environment), std::move(say));
  transfers.multi_ = curl_multi_init();
  if (transfers.multi_ == nullptr) return fail(Error::internal("libcurl: no memory"));
  curl_multi_setopt(transfers.multi_, CURLMOPT_MAXCONNECTS, kConnections);
  return transfers;
}

void Transfers::start(const FetchRequest& request, Fd output) {
  auto owned = std::make_unique<Transfer>();
  Transfer& transfer = *owned;
  transfer.id = request.id;
  transfer.output = std::move(output);
  transfer.left = request.limit;
  transfer.say = &say_;
  const auto refuse = [&](FetchEnd end, const char* text) {
    transfer.output.reset();
    say_(FetchResult{.id = request.id, .end = end, .text = text}.encode());
  };
  auto url = parse_url(request.url);
  if (transfers_.contains(request.id) || transfers_.size() >= kMaxFetches || !url.has_value()) {
    return refuse(FetchEnd::kOther, "a request that makes no sense");
  }
  transfer.easy = curl_easy_init();
  if (transfer.easy == nullptr) return refuse(FetchEnd::kOther, "no memory");
  CURL* easy = transfer.easy;
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(easy, option, value); };
  for (const std::string& header : request.headers) {
    transfer.request_headers = curl_slist_append(transfer.request_headers, header.c_str());
  }
  // No "Expect: 100-continue", and nothing of libcurl's own but Host and User-Agent.
  transfer.request_headers = curl_slist_append(transfer.request_headers, "Expect:");
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_HTTPHEADER, transfer.request_headers);
  // Credentials are for the server alone, not for a proxy before it.
  set(CURLOPT_HEADEROPT, long{CURLHEADER_SEPARATE});
  set(CURLOPT_USERAGENT, "caisson/" CAISSON_VERSION);
  if (request.form) {
    set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.form->size()));
    set(CURLOPT_COPYPOSTFIELDS, request.form->c_str());
  }
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_HTTP_CONTENT_DECODING, 0L);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_NETRC, long{CURL_NETRC_IGNORED});
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  set(CURLOPT_TIMEOUT, static_cast<long>(request.seconds));
  set(CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
  if (!environment_.certificates.empty()) {
    curl_blob blob = {environment_.certificates.data(), environment_.certificates.size(),
                      CURL_BLOB_NOCOPY};
    curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob);
  }
  if (!environment_.certificate_directory.empty()) {
    set(CURLOPT_CAPATH, environment_.certificate_directory.c_str());
  }
  // Nobody means a proxy elsewhere to reach this host.
  if (is_loopback_host(url->host)) set(CURLOPT_NOPROXY, "*");
  // Behind a proxy the address is the proxy's, which may well be this host.
  transfer.outside_only = request.outside_only && !environment_.has_proxy;
  set(CURLOPT_OPENSOCKETFUNCTION, &Transfer::on_socket);
  set(CURLOPT_OPENSOCKETDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_ERRORBUFFER, transfer.error);
  set(CURLOPT_PRIVATE, &transfer);
  if (curl_multi_add_handle(multi_, easy) != CURLM_OK) {
    return refuse(FetchEnd::kOther, "libcurl does not take the request");
  }
  transfers_.emplace(request.id, std::move(owned));
}

void Transfers::finish(Transfer& transfer, FetchEnd end, const std::string& text) {
  transfer.output.reset();
  say_(FetchResult{.id = transfer.id, .end = end, .text = text}.encode());
  curl_multi_remove_handle(multi_, transfer.easy);
  transfers_.erase(transfer.id);
}

void Transfers::cancel(std::uint32_t id) {
  // Over meanwhile: its end is on the way.
  if (auto found = transfers_.find(id); found != transfers_.end()) {
    finish(*found->second, FetchEnd::kCancelled, "");
  }
}

void Transfers::collect() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Transfer* transfer = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    transfer->result = message->data.result;
  }
  std::vector<Transfer*> over;
  for (auto& [id, transfer] : transfers_) {
    if (!transfer->flush()) continue;
    if (transfer->paused && !transfer->result) {
      transfer->paused = false;
      curl_easy_pause(transfer->easy, CURLPAUSE_CONT);
    }
    if (transfer->result) over.push_back(transfer.get());
  }
  for (Transfer* transfer : over) {
    const CURLcode code = *transfer->result;
    transfer->send_head();
    FetchEnd end = meaning_of(code);
    std::string text;
    if (code != CURLE_OK) {
      text = transfer->error[0] != '\0' ? transfer->error : curl_easy_strerror(code);
    }
    if (transfer->too_large) {
      end = FetchEnd::kTooLarge;
      text = "more bytes than were to come";
    } else if (transfer->refused_address && code != CURLE_OK) {
      end = FetchEnd::kForbidden;
      text = "an address of this host itself";
    }
    finish(*transfer, end, text);
  }
}

Result<bool> Transfers::step(int control_fd) {
  int running = 0;
  if (curl_multi_perform(multi_, &running) != CURLM_OK) {
    return fail(Error::internal("libcurl: curl_multi_perform failed"));
  }
  collect();
  std::vector<curl_waitfd> waited = {{.fd = control_fd, .events = CURL_WAIT_POLLIN, .revents = 0}};
  for (const auto& [id, transfer] : transfers_) {
    if (!transfer->pending.empty()) {
      waited.push_back({.fd = transfer->output.get(), .events = CURL_WAIT_POLLOUT, .revents = 0});
    }
  }
  if (curl_multi_poll(multi_, waited.data(), static_cast<unsigned>(waited.size()), 1000, nullptr) !=
      CURLM_OK) {
    return fail(Error::internal("libcurl: curl_multi_poll failed"));
  }
  return waited[0].revents != 0;
}

}  // namespace caisson::image
