#include "api/templates/build_process.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/sys.h"

namespace caisson::api {
namespace {

using build::JobLine;

// Longer than it takes to end once it was told to.
constexpr std::chrono::seconds kPatience{15};
// Descriptors that go with one byte.
constexpr std::size_t kBatch = 64;

// Blocks.
Result<maker::Builder> start_with(maker::Host& host, const std::vector<std::string>& paths) {
  TRY_ASSIGN(maker::Builder builder, host.start_builder());
  std::vector<Fd> files;
  std::vector<int> numbers;
  for (const std::string& path : paths) {
    Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file.valid()) return fail_errno("open the files of a build");
    numbers.push_back(file.get());
    files.push_back(std::move(file));
  }
  for (std::span<const int> rest = numbers; !rest.empty();) {
    const auto some = rest.first(std::min(kBatch, rest.size()));
    if (sys::send_part(builder.socket.get(), " ", some) != 1)
      return fail_errno("hand the files of a build over");
    rest = rest.subspan(some.size());
  }
  return builder;
}

}  // namespace

io::Async<Result<std::unique_ptr<BuildProcess>>> BuildProcess::start(
    io::Loop& loop, maker::Host& host, std::vector<std::string> archive_paths) {
  auto job = [&host, paths = std::move(archive_paths)] { return start_with(host, paths); };
  CO_TRY_ASSIGN(maker::Builder builder, co_await loop.in_pool(std::move(job)));
  CO_TRY_ASSIGN(auto stream, io::adopt(loop, std::move(builder.socket)));
  co_return std::unique_ptr<BuildProcess>(
      new BuildProcess(std::move(builder.life), std::move(stream)));
}

io::Async<Status> BuildProcess::send(build::TemplateJob job) {
  const std::string line = build::encode(job) + "\n";
  co_return co_await stream_->write(line);
}

io::Async<Result<std::vector<JobLine>>> BuildProcess::next(io::Clock::time_point until) {
  std::vector<JobLine> lines;
  std::array<char, 65536> piece;
  while (lines.empty()) {
    const auto left = until - io::Clock::now();
    if (left <= io::Clock::duration::zero())
      co_return fail(Error(Code::kDeadlineExceeded, "the time of the build is over"));
    stream_->set_timeout(until == io::Clock::time_point::max() ? io::Clock::duration::zero()
                                                               : left);
    const auto count = co_await stream_->read(piece);
    if (!count.has_value()) {
      if (count.error().code() == Code::kDeadlineExceeded) continue;
      co_return lines;  // it broke off
    }
    if (*count == 0) co_return lines;
    std::string_view rest(piece.data(), *count);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      partial_ += rest.substr(0, end);
      rest.remove_prefix(end + 1);
      auto line = build::parse_job_line(std::exchange(partial_, {}));
      if (!line.has_value()) co_return fail(Error(Code::kDataLoss, line.error().message()));
      lines.push_back(std::move(*line));
    }
    partial_ += rest;
    if (partial_.size() > build::kMaxJobLine)
      co_return fail(Error(Code::kDataLoss, "a line of a build is too long"));
  }
  co_return lines;
}

io::Async<void> BuildProcess::end() {
  const auto until = io::Clock::now() + kPatience;
  std::array<char, 4096> dropped;
  for (;;) {
    const auto left = until - io::Clock::now();
    if (left <= io::Clock::duration::zero()) break;
    stream_->set_timeout(left);
    const auto count = co_await stream_->read(dropped);
    if (!count.has_value() || *count == 0) break;
  }
  terminate();
}

}  // namespace caisson::api
