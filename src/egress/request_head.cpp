#include "egress/request_head.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace caisson::egress {
namespace {

constexpr std::size_t kMostMethod = 32;
constexpr std::size_t kMostLengthDigits = 18;
constexpr unsigned kMostChunkDigits = 15;
constexpr std::string_view kEnd = "\r\n\r\n";
constexpr std::string_view kScheme = "http://";

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  });
}

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

bool is_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

struct Header {
  std::string_view name, value;
};

// Meant for the proxy, besides what `Connection` names.
bool is_for_the_proxy(std::string_view name) {
  for (const std::string_view hop :
       {"connection", "proxy-connection", "keep-alive", "te", "trailer", "upgrade",
        "proxy-authorization", "proxy-authenticate"}) {
    if (same_name(name, hop)) return true;
  }
  return false;
}

class Parser {
 public:
  explicit Parser(std::string_view head) : rest_(head) {}

  std::optional<Answer> run(RequestHead& out) {
    if (!request_line() || !headers()) return refusal_;
    if (!target(out) || !host(out) || !body(out)) return refusal_;
    if (!out.tunnel) write(out);
    return std::nullopt;
  }

 private:
  bool refuse(std::string sentence, int status = 400) {
    refusal_ = Answer{status, std::move(sentence)};
    return false;
  }

  // Up to CR LF; what is left of a head always has one.
  std::string_view line() {
    const std::size_t end = rest_.find("\r\n");
    const std::string_view found = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 2, rest_.size()));
    return found;
  }

  bool request_line() {
    const std::string_view text = line();
    const std::size_t first = text.find(' '), last = text.rfind(' ');
    if (first == std::string_view::npos || first == last)
      return refuse("the first line must be METHOD TARGET HTTP/1.1");
    method_ = text.substr(0, first);
    target_ = text.substr(first + 1, last - first - 1);
    const std::string_view version = text.substr(last + 1);
    if (version != "HTTP/1.1" && version != "HTTP/1.0")
      return refuse("this proxy speaks HTTP/1.1 and HTTP/1.0 alone", 505);
    modern_ = version == "HTTP/1.1";
    if (!is_token(method_) || method_.size() > kMostMethod)
      return refuse("the method is not a word of at most 32 characters");
    if (target_.empty() || !is_visible(target_))
      return refuse("the target holds a character that has no place there");
    return true;
  }

  bool headers() {
    while (!rest_.empty()) {
      const std::string_view text = line();
      const std::size_t colon = text.find(':');
      if (colon == std::string_view::npos || !is_token(text.substr(0, colon)))
        return refuse("a header line is not NAME: VALUE");
      const Header header{text.substr(0, colon), trimmed(text.substr(colon + 1))};
      if (!is_value(header.value))
        return refuse("a header's value holds a character that has no place there");
      if (headers_.size() == kMostHeaders)
        return refuse("the request has more than 128 headers", 431);
      headers_.push_back(header);
    }
    for (const Header& header : headers_) {
      if (!same_name(header.name, "connection")) continue;
      for (std::string_view left = header.value; !left.empty();) {
        const std::size_t comma = std::min(left.find(','), left.size());
        const std::string_view name = trimmed(left.substr(0, comma));
        left.remove_prefix(std::min(comma + 1, left.size()));
        for (const std::string_view framing : {"host", "content-length", "transfer-encoding"}) {
          if (same_name(name, framing))
            return refuse("Connection names a header that the request cannot do without");
        }
        if (!name.empty()) dropped_.push_back(name);
      }
    }
    return true;
  }

  // The only header of that name; `found` stays empty where there is none.
  bool single(std::string_view name, std::optional<std::string_view>& found) {
    for (const Header& header : headers_) {
      if (!same_name(header.name, name)) continue;
      if (found.has_value()) return refuse("the request has " + std::string(name) + " twice");
      found = header.value;
    }
    return true;
  }

  bool target(RequestHead& out) {
    out.tunnel = method_ == "CONNECT";
    std::string_view authority = target_;
    if (!out.tunnel) {
      if (target_.size() < kScheme.size() || !same_name(target_.substr(0, kScheme.size()), kScheme))
        return refuse(
            "this is a proxy: the target must begin with http: and name a host, or be that of "
            "CONNECT");
      authority = target_.substr(kScheme.size());
      const std::size_t end = std::min(authority.find_first_of("/?#"), authority.size());
      path_ = authority.substr(end);
      authority = authority.substr(0, end);
      if (path_.find('#') != std::string_view::npos)
        return refuse("a target in a request has no fragment");
    }
    if (authority.find('@') != std::string_view::npos)
      return refuse("a target in a request holds no user name and no password");
    auto parsed = policy::canonical_authority(authority);
    if (!parsed) return refuse(parsed.error().message());
    if (out.tunnel && !parsed->port) return refuse("CONNECT names a host and its port: HOST:PORT");
    out.target = {std::move(parsed->host), parsed->port.value_or(80)};
    return true;
  }

  bool host(const RequestHead& out) {
    std::optional<std::string_view> host;
    if (!single("host", host)) return false;
    if (!host.has_value())
      return !modern_ || out.tunnel || refuse("an HTTP/1.1 request must have a Host header");
    // Some clients leave out the port of a tunnel.
    const auto named = policy::canonical_authority(*host);
    if (!named || named->host != out.target.host ||
        named->port.value_or(out.tunnel ? out.target.port : 80) != out.target.port)
      return refuse("the Host header names another target than the request");
    return true;
  }

  bool body(RequestHead& out) {
    std::optional<std::string_view> length, encoding;
    if (!single("content-length", length) || !single("transfer-encoding", encoding)) return false;
    if (length.has_value() && encoding.has_value())
      return refuse("the request has both Content-Length and Transfer-Encoding");
    if (out.tunnel && (length.value_or("0") != "0" || encoding.has_value()))
      return refuse("CONNECT has no body");
    if (encoding.has_value()) {
      if (!modern_ || !same_name(*encoding, "chunked"))
        return refuse("Transfer-Encoding may be chunked, in HTTP/1.1, and nothing else", 501);
      out.chunked = true;
    }
    if (!length.has_value()) return true;
    const auto [end, error] =
        std::from_chars(length->data(), length->data() + length->size(), out.body_bytes);
    if (error != std::errc() || end != length->data() + length->size() ||
        length->size() > kMostLengthDigits)
      return refuse("Content-Length is not a number of at most 18 digits");
    return true;
  }

  void write(RequestHead& out) const {
    std::string& text = out.forward;
    text.append(method_).append(" ");
    if (!path_.starts_with('/')) text += '/';
    text.append(path_).append(" HTTP/1.1\r\nHost: ");
    text += out.target.host.text();
    if (out.target.port != 80) text += ":" + std::to_string(out.target.port);
    text += "\r\n";
    for (const Header& header : headers_) {
      if (same_name(header.name, "host") || is_for_the_proxy(header.name)) continue;
      if (std::any_of(dropped_.begin(), dropped_.end(),
                      [&](std::string_view name) { return same_name(name, header.name); }))
        continue;
      text.append(header.name).append(": ").append(header.value).append("\r\n");
    }
    text += "Connection: close\r\n\r\n";
  }

  std::string_view rest_;
  std::string_view method_, target_, path_;
  bool modern_ = false;
  std::vector<Header> headers_;
  std::vector<std::string_view> dropped_;  // by name
  std::optional<Answer> refusal_;
};

// A line feed without a return before it, or a return without a line feed after it. The last byte
// may be a return whose line feed has not come yet.
bool has_bare_line_end(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r')) return true;
    if (bytes[i] == '\r' && i + 1 < bytes.size() && bytes[i + 1] != '\n') return true;
  }
  return false;
}

std::string_view reason_of(int status) {
  switch (status) {
    case 403:
      return "Forbidden";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Bad Request";
  }
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = lower(c);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

}  // namespace

ParsedHead parse_request_head(std::string_view bytes) {
  ParsedHead parsed;
  const std::size_t end = bytes.substr(0, kMostHead).find(kEnd);
  const std::string_view seen =
      bytes.substr(0, end == std::string_view::npos ? kMostHead : end + kEnd.size());
  if (has_bare_line_end(seen)) {
    parsed.refusal = Answer{400, "the lines of a request must end with CR LF"};
  } else if (end != std::string_view::npos) {
    parsed.used = seen.size();
    RequestHead head;
    parsed.refusal = Parser(seen.substr(0, end + 2)).run(head);
    if (!parsed.refusal) parsed.head = std::move(head);
  } else if (bytes.size() >= kMostHead) {
    parsed.refusal = Answer{431, "the head of the request has more than 16 KiB"};
  }
  return parsed;
}

std::string response(const Answer& answer) {
  const std::string body = "caisson: " + answer.sentence + "\n";
  return "HTTP/1.1 " + std::to_string(answer.status) + " " + std::string(reason_of(answer.status)) +
         "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

Result<std::size_t> BodyFramer::take(std::string_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && !whole()) {
    if (state_ != State::kData) {
      TRY(take_framing(bytes[used]));
      ++used;
      continue;
    }
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size() - used));
    used += count;
    left_ -= count;
    if (chunked_ && left_ == 0) state_ = State::kDataReturn;
  }
  return used;
}

Status BodyFramer::take_framing(char c) {
  const auto expect = [&](char wanted, State next) -> Status {
    if (c != wanted) return fail(Error::invalid("a chunk of the body is malformed"));
    state_ = next;
    return {};
  };
  switch (state_) {
    case State::kSize: {
      const int digit = digit_of(c);
      if (digit < 0 && digits_ > 0) return expect('\r', State::kSizeLineFeed);
      if (digit < 0 || ++digits_ > kMostChunkDigits)
        return fail(Error::invalid("the size of a chunk is malformed"));
      left_ = left_ * 16 + static_cast<unsigned>(digit);
      return {};
    }
    case State::kSizeLineFeed:
      digits_ = 0;
      return expect('\n', left_ == 0 ? State::kLastReturn : State::kData);
    case State::kDataReturn:
      return expect('\r', State::kDataLineFeed);
    case State::kDataLineFeed:
      return expect('\n', State::kSize);
    case State::kLastReturn:
      return expect('\r', State::kLastLineFeed);
    case State::kLastLineFeed:
      return expect('\n', State::kEnd);
    case State::kData:
    case State::kEnd:
      break;
  }
  return fail(Error::internal("a body's framing was asked for at the wrong place"));
}

}  // namespace caisson::egress
