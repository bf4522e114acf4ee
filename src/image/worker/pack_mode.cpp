#include "image/worker/pack_mode.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "image/worker/confine.h"
#include "image/worker/pack.h"
#include "image/worker_protocol.h"

namespace caisson::image {
namespace {

constexpr int kLevel = 3;

void say(char kind, std::string_view text) {
  std::string message(1, kind);
  message += text.substr(0, kMaxWorkerMessage - 1);
  // Where nobody listens any more there is nobody to tell.
  if (::send(kWorkerReportFd, message.data(), message.size(), MSG_NOSIGNAL) < 0) ::_exit(3);
}

int report_failure(const Error& error) {
  say(kWorkerError, std::string(1, static_cast<char>(error.code())) + error.message());
  return 1;
}

struct Job {
  std::uint64_t entries = 0, bytes = 0, seconds = 0;
  bool trusted = false;
  std::uint32_t uid = 0, gid = 0;  // to become: ids that are mapped
};

template <typename T>
bool parse_number(const char* text, T& value) {
  const std::string_view view(text);
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  return error == std::errc() && end == view.data() + view.size();
}

Result<Job> parse(int count, char** arguments) {
  Job job;
  unsigned trusted = 0;
  if (count != 8 || !parse_number(arguments[2], job.entries) ||
      !parse_number(arguments[3], job.bytes) || !parse_number(arguments[4], job.seconds) ||
      !parse_number(arguments[5], trusted) || !parse_number(arguments[6], job.uid) ||
      !parse_number(arguments[7], job.gid))
    return fail(Error::internal("caisson-image-worker is started by caisson, not by hand"));
  job.trusted = trusted != 0;
  return job;
}

// zstd's frames to the output, and the digest of what went in.
class Compressor {
 public:
  static Result<std::unique_ptr<Compressor>> create() {
    auto made = std::make_unique<Compressor>();
    made->stream_.reset(::ZSTD_createCCtx());
    if (made->stream_ == nullptr ||
        ::ZSTD_isError(
            ::ZSTD_CCtx_setParameter(made->stream_.get(), ZSTD_c_compressionLevel, kLevel)) != 0 ||
        ::ZSTD_isError(::ZSTD_CCtx_setParameter(made->stream_.get(), ZSTD_c_checksumFlag, 1)) != 0)
      return fail(Error::exhausted("no memory to compress the layer"));
    return made;
  }

  Status add(std::string_view bytes) {
    hash_.update(bytes);
    return pass(bytes, ZSTD_e_continue);
  }
  // The digest of everything.
  Result<std::string> finish() {
    TRY(pass({}, ZSTD_e_end));
    return hash_.finish();
  }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* stream) const { ::ZSTD_freeCCtx(stream); }
  };

  Status pass(std::string_view bytes, ZSTD_EndDirective directive) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (;;) {
      ZSTD_outBuffer out{room_.data(), room_.size(), 0};
      const std::size_t left = ::ZSTD_compressStream2(stream_.get(), &out, &in, directive);
      if (::ZSTD_isError(left) != 0)
        return fail(Error::internal(std::string("zstd: ") + ::ZSTD_getErrorName(left)));
      TRY(write_all(std::string_view(room_.data(), out.pos)));
      if (directive == ZSTD_e_end ? left == 0 : in.pos == in.size) return {};
    }
  }

  static Status write_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent =
          TEMP_FAILURE_RETRY(::write(kWorkerArchiveFd, bytes.data(), bytes.size()));
      if (sent < 0) return fail_errno("write the layer");
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return {};
  }

  std::unique_ptr<ZSTD_CCtx, Free> stream_;
  std::vector<char> room_ = std::vector<char>(::ZSTD_CStreamOutSize());
  Sha256 hash_;
};

// The host's root reads what we cannot (worker_protocol.h).
Result<bool> ask_opaque(int directory_fd) {
  const int descriptors[] = {directory_fd};
  TRY(sys::send_message(kWorkerReportFd, std::string(1, kWorkerAsksOpaque), descriptors));
  char answer = 0;
  if (TEMP_FAILURE_RETRY(::recv(kWorkerReportFd, &answer, 1, 0)) != 1)
    return fail(Error(Code::kCancelled, "whoever wants the layer is gone"));
  return answer == 'y';
}

Result<std::string> work(const Job& job) {
  TRY_ASSIGN(const std::string bytes, sys::read_again(kWorkerLockFd, kMostRecord));
  TRY_ASSIGN(const LayerRecord record, decode_record(bytes));
  TRY(lock_down({.seconds = job.seconds, .task = WorkerTask::kPack}));
  TRY_ASSIGN(const std::unique_ptr<Compressor> out, Compressor::create());
  const PackInput input{.directory_fd = kWorkerDirectoryFd,
                        .record = record,
                        .ask_opaque = job.trusted ? ask_opaque : nullptr,
                        .most_entries = job.entries,
                        .most_bytes = job.bytes};
  TRY_ASSIGN(const PackReport report,
             pack(input, [&](std::string_view tar) { return out->add(tar); }));
  TRY_ASSIGN(const std::string diff_id, out->finish());
  return std::to_string(report.entries) + "\n" + std::to_string(report.bytes) + "\n" + diff_id;
}

int run_inner(const Job& job) {
  if (auto tied = die_with_parent(); !tied) return report_failure(tied.error());
  const auto done = work(job);
  if (!done) return report_failure(done.error());
  ::close(kWorkerArchiveFd);
  say(kWorkerDone, *done);
  return 0;
}

Status prepare(const Job& job) {
  TRY(die_with_parent());
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return fail_errno("open /");
  TRY(enter_namespaces(root.get()));
  say(kWorkerReady, "");
  char go = 0;
  if (::recv(kWorkerReportFd, &go, 1, 0) != 1 || go != kWorkerGo)
    return fail(Error::internal("the image worker was not told to go on"));
  TRY(take_empty_root(job.uid, job.gid));
  return die_with_parent();
}

}  // namespace

int run_pack(int count, char** arguments) {
  const auto job = parse(count, arguments);
  if (!job) return report_failure(job.error());
  if (auto ready = prepare(*job); !ready) return report_failure(ready.error());
  const pid_t child = ::fork();
  if (child < 0) return report_failure(Error::syscall("fork", errno));
  if (child == 0) ::_exit(run_inner(*job));
  ::close(kWorkerArchiveFd);
  // Only waits, so that a killed packer still gets its sentence.
  int status = 0;
  TEMP_FAILURE_RETRY(::waitpid(child, &status, 0));
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  std::string text = "the packer was ended by signal " + std::to_string(number);
  if (number == SIGXCPU || number == SIGKILL) text += " (its time limit)";
  if (number == SIGSYS) text += " (a system call that packing does not need)";
  return report_failure(Error::precondition(text));
}

}  // namespace caisson::image
