// A sandbox: made from a spec, runs commands, gone when it is closed.
//
//   auto spec = caisson::SandboxSpec::validate({.command = {"python3", "-c", "print(6 * 7)"}});
//   auto run = caisson::run(spec.value());
//   // run->outcome.verdict == caisson::Verdict::kExited, run->standard_output == "42\n"
//
// A Sandbox owns its launcher process and a connection to its supervisor; destroying it ends
// everything inside and waits until nothing of it is left on the host. Nothing here throws and
// nothing is logged. One thread at a time may use a Sandbox; only a Control may be used from other
// threads and from signal handlers. Programs that use it must not have SIGCHLD ignored, since the
// launcher is waited for.
//
// Static libraries to link: see examples/CMakeLists.txt. The helper programs are looked for beside
// the running program, one folder above it, and where the package installs them: caisson-launcher
// for every sandbox, caisson-gateway where the spec has a network, caisson-image-worker where an
// image is unpacked or a layer packed.
#pragma once

#include <caisson/error.h>
#include <caisson/life.h>
#include <caisson/result.h>
#include <caisson/spec.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace caisson {

class Fd;
namespace image {
struct ImageRef;
struct KeptLayer;
}  // namespace image
namespace wall {
struct Gateway;
}  // namespace wall

// Steers a command while run() waits for it: from a callback, another thread or a signal handler.
// Every call is async-signal-safe and keeps errno. What is asked while no command runs is kept for
// the next one, at most some hundred requests.
class Control {
 public:
  // Error: resource_exhausted when no descriptors are left.
  static Result<Control> create();
  Control(Control&&) noexcept;
  Control& operator=(Control&&) noexcept;
  ~Control();

  // Ends the command; its verdict becomes kCancelled. A second call ends the whole sandbox.
  void cancel() const;
  // Sends a signal (1 to 64) to the command's process group.
  void signal(int number) const;
  // The terminal's new size in characters; without effect where the command has no terminal.
  void resize(std::uint16_t columns, std::uint16_t rows) const;
  // For run(): readable when something was asked.
  int read_fd() const { return read_fd_; }

 private:
  Control(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}
  void ask(std::uint8_t what, std::uint16_t first, std::uint16_t second) const;
  int read_fd_ = -1;
  int write_fd_ = -1;
};

enum class OutputChannel : std::uint8_t { kStdout, kStderr };

struct TerminalSize {
  std::uint16_t columns = 80;
  std::uint16_t rows = 24;
};

// One command, and where its bytes come from and go to.
struct Command {
  // Program and arguments; the program is looked up in the PATH inside. Not empty, unless the image
  // stands in.
  std::vector<std::string> arguments;
  // As `docker run` has it: the image's entrypoint, or the spec's, stands before `arguments`, and
  // where those are empty the image's own command does. Only for a sandbox that this object made.
  bool from_image = false;
  // Added to the spec's and the image's variables; nothing of the caller's environment is
  // inherited.
  std::map<std::string, std::string> env;
  std::string workdir;  // absolute path inside; empty: the spec's, the image's, the user's home
  std::string user;     // NAME, UID[:GID] or NAME:GROUP inside; empty: the spec's or the image's
  // A terminal instead of pipes: stdout and stderr both arrive as kStdout.
  std::optional<TerminalSize> terminal;
  // Standard input: these bytes, then end of file …
  std::string input;
  // … or, when not -1, what can be read from this descriptor until its end. Borrowed; may be of any
  // kind; left in the mode (blocking or not) that it had. With both empty, input is /dev/null.
  int input_fd = -1;
};

struct RunOptions {
  // Called with output as it arrives; returning false cancels the command and drops what follows.
  // Where it is not set, output is kept in RunResult. Slow consumers slow the command down.
  std::function<bool(OutputChannel, std::string_view)> on_output;
  // attach() alone: so many bytes are missing here, since they came faster than they were read and
  // only the newest are kept.
  std::function<void(std::uint64_t)> on_missed;
  // Called once, when the command has been started.
  std::function<void()> on_started;
  // Borrowed; may be null.
  const Control* control = nullptr;
};

struct RunResult {
  Outcome outcome;
  std::string standard_output, standard_error;
};

// What is known about a sandbox without asking it.
struct SandboxInfo {
  std::string id;
  std::string wall;      // "namespace"
  std::string image;     // the resolved image: "host", "base", …
  std::string image_id;  // of the store, 64 hexadecimal digits; empty: the host's, or not known
  std::vector<std::string> command;
  std::int64_t created_ms = 0;              // Unix time
  std::optional<std::int64_t> deadline_ms;  // Unix time; none: unlimited
  bool paused = false;
  Life life = Life::kOwner;
  std::uint32_t owner_uid = 0;  // on the host
  // Who commands run as unless they say otherwise, and that user's numbers inside.
  std::string user;
  std::uint32_t uid = 0, gid = 0;
  // It trusts its gateway, which may open TLS.
  bool inspects = false;
  // What the image says that its program listens on ("8080/tcp"); nothing is published for it.
  std::vector<std::string> exposed_ports;
};

// Counters of everything in a sandbox. Times in microseconds, sizes in bytes. What this host cannot
// tell is 0.
struct SandboxUsage {
  std::uint64_t user_us = 0, system_us = 0;
  std::uint64_t memory_now = 0, memory_peak = 0;
  std::uint64_t pids_now = 0, pids_peak = 0;  // processes and threads
  std::uint64_t disk_bytes = 0, disk_inodes = 0;
};

// Of a command in a kept sandbox that survives whoever started it.
struct KeepOptions {
  std::string label;  // opaque, at most 8 KiB; comes back in the list
  // So many of the newest bytes of its output are kept, at most 1 MiB; of all commands of a sandbox
  // together 8 MiB.
  std::uint32_t output_kept = 64 * 1024;
  // Of this command; none: unlimited.
  std::optional<std::uint64_t> timeout_ms, output;
};
struct KeptCommand {
  std::uint32_t number = 0;  // by which it is joined
  std::uint32_t pid = 0;     // inside
  std::string label;
  std::int64_t started_ms = 0;     // Unix time
  std::optional<Outcome> outcome;  // none: it runs
};

struct CreateOptions;
namespace box {
struct Access;
}  // namespace box

class Sandbox {
 public:
  // A sandbox that was begun before anybody knows what it is to be: what every sandbox needs (ids,
  // control groups, its entry among the others) is claimed meanwhile. Hand it to create(); dropped
  // before, it leaves nothing. Move-only; one thread.
  class Begun {
   public:
    Begun();
    Begun(Begun&&) noexcept;
    Begun& operator=(Begun&&) noexcept;
    ~Begun();

   private:
    friend class Sandbox;
    struct State;
    std::unique_ptr<State> state_;
  };
  // Errors: those of create() that do not depend on the spec.
  static Result<Begun> begin();

  // Makes the sandbox: opens every granted path, resolves the image, starts launcher and guest.
  // When it returns an error nothing is left of it. Errors: invalid_argument (a path that cannot be
  // granted), not_found (image, path, helper program), failed_precondition (this host cannot hold
  // what the spec asks; the message begins with the step), permission_denied, resource_exhausted.
  static Result<Sandbox> create(const SandboxSpec& spec, const CreateOptions& options);
  static Result<Sandbox> create(const SandboxSpec& spec);
  // A sandbox of this user that runs already. Error: not_found.
  static Result<Sandbox> connect(const std::string& id);
  // The sandboxes of this user's run directory, oldest first. Entries that end meanwhile are left
  // out.
  static Result<std::vector<SandboxInfo>> list();

  Sandbox(Sandbox&&) noexcept;
  Sandbox& operator=(Sandbox&&) noexcept;
  // Ends the sandbox as close() does, unless it outlives its maker or was connected to.
  ~Sandbox();

  const SandboxInfo& info() const;
  // Remarks that a person should see, e.g. that the host image stands in for a missing base image.
  const std::vector<std::string>& notes() const;

  // Runs the command to its end. An error means that the connection to the sandbox broke or that
  // the command could not even be asked for; everything that happens to the command is an Outcome.
  Result<RunResult> run(const Command& command, const RunOptions& options = {});
  // Starts the command of a detached sandbox and returns when it runs; read it with attach(). The
  // outcome of a command that could not be started comes back as a value, nullopt means it runs.
  Result<std::optional<Outcome>> start(const Command& command);
  enum class Follow : std::uint8_t { kNo, kYes };
  // The kept output of the first command (the last 1 MiB) and, with kYes, what follows until it
  // ends. The outcome is empty while the command still runs. A slow reader delays nobody: it misses
  // what is kept no more when it reads on. A cancel, or on_output's false, ends the reading alone.
  Result<std::optional<Outcome>> attach(Follow follow, const RunOptions& options);

  // In a kept sandbox, starts a command that survives this connection, and returns when it runs.
  // Its input is /dev/null, or a terminal. An outcome: it could not be started. Errors:
  // failed_precondition (the sandbox is not kept, or paused), resource_exhausted (200 run already).
  Result<std::variant<KeptCommand, Outcome>> keep(const Command& command,
                                                  const KeepOptions& options = {});
  // Those that run, and those that ended less than 30 seconds ago, of the latter at most 64.
  Result<std::vector<KeptCommand>> kept();
  // As attach(), of a kept command. kNew: only what comes from now on. Error: not_found.
  enum class From : std::uint8_t { kKept, kOldest, kNew };
  Result<std::optional<Outcome>> attach(std::uint32_t number, From from, const RunOptions& options);

  // Moves the deadline of a kept sandbox to so many milliseconds from now, sooner or later; 0 ends
  // it. Errors: failed_precondition (it is not kept), invalid_argument (more than a year).
  Status set_deadline(std::uint64_t from_now_ms);
  // From now on this is what may leave a sandbox that outlives its maker; connections that it
  // denies are reset. nullopt: nothing. Errors: invalid_argument (of the policy),
  // failed_precondition (the sandbox was made without a network or a gateway, or lives as long as
  // its maker), resource_exhausted (the policy is too long: 60 KiB as JSON).
  Status set_network(const std::optional<policy::NetworkPolicy>& policy);
  // Holds everything that commands run, with its memory and its pids, until it is resumed. Files
  // can be read and written meanwhile; commands are refused. The deadline goes on to count, and so
  // does the time of commands that have one. Asking for what is so already is no error. Errors:
  // failed_precondition (this host cannot: docs of `caisson pause`), deadline_exceeded (something
  // would not stop within a second; nothing is held).
  Status pause();
  Status resume();
  // Ends everything that runs in a kept sandbox, as a reboot would: its files stay, and what is run
  // then sees another boot_id(4). A sandbox that was paused is not any more.
  Status reboot();
  Result<SandboxUsage> usage();

  // Copies a file or directory between host and sandbox. Links are copied as links and never
  // followed, neither here nor inside; devices, sockets and pipes are refused. Copying in, files
  // belong to the user of Command's default. A partly copied tree is left where an error stops it;
  // a file that exists is replaced as a whole or not at all.
  Status copy_in(const std::string& host_path, const std::string& inside_path);
  Status copy_out(const std::string& inside_path, const std::string& host_path);
  // Brings the spec's `results` to the host, into directories that create() opened. Every one is
  // tried; the error names those that failed.
  Status fetch_outputs();

  // With CreateOptions::keep_layer, once: what was changed over the image, to be read when the
  // sandbox has ended, which its descriptors outlive (image/kept_layer.h). Drop it after close().
  // Error: failed_precondition where there is none to take.
  Result<image::KeptLayer> take_layer();
  // Of a kept sandbox made with CreateOptions::keep_layer: what was changed over the image so far,
  // to be read while everything inside stands still: until release_layer(), or the end of this
  // object. What others start meanwhile waits. Errors: failed_precondition where it was not made
  // so, or this host cannot hold it; unavailable where somebody reads it already.
  Result<image::KeptLayer> hold_layer();
  Status release_layer();
  // With CreateOptions::egress_listener, once: the listener on 127.0.0.1:3128 inside; whoever
  // accepts from it is outside. Error: failed_precondition where there is none to take.
  Result<Fd> take_egress_listener();
  // With CreateOptions::gateway and Life::kOwner, once: the sockets that all the sandbox's packets
  // end in (wall/handouts.h). Nobody else has them: whoever closes them takes the sandbox's network
  // away, and what is not answered by them is refused inside. Error: failed_precondition where
  // there are none to take.
  Result<wall::Gateway> take_gateway();

  // Of a sandbox whose spec has a network, when it was closed: what its gateway did.
  const std::optional<policy::NetworkReport>& network_report() const;

  // Ends everything inside and waits until it is removed. Error: internal, naming what could not be
  // removed. A second call does nothing. The process that did the removing ends a moment later and
  // is reaped when the next sandbox is begun.
  Status close();
  // Asks a sandbox that was connected to to end; it is gone soon after.
  Status end();

 private:
  friend struct box::Access;
  struct State;
  explicit Sandbox(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct CreateOptions {
  // kMainCommand lives for its first command: until that ends, also for its limits. kKept lives
  // until the spec's timeout, which is then the sandbox's and can be moved (set_deadline()); its
  // commands have no time of their own. Both also end by `end()` of any connection to them.
  Life life = Life::kOwner;
  // What Sandbox::begin() gave; taken from there.
  Sandbox::Begun* begun = nullptr;
  // The command that the first run() will be given: it is asked for at once, so that it starts
  // without another round to the sandbox and back. Borrowed for the call. Only
  // with Life::kOwner, and of no effect where the spec copies something in or has a network, which
  // have to be there before.
  const Command* first_command = nullptr;
  // Nothing is wanted of the sandbox but that command's result: it ends by itself with the command,
  // and other calls find it gone. Results that the spec names are still fetched.
  bool only_command = false;
  // Sandbox::take_layer() is wanted, or hold_layer() of a kept sandbox. Not for the host image.
  // Whose files of the image are whose is settled by the spec's user, as everywhere: who runs a
  // command as root in an image of an ordinary user's range leaves that at 1000 and names 0 as
  // Command::user.
  bool keep_layer = false;
  // Sandbox::take_egress_listener() is wanted: without it nothing listens and nothing inside
  // reaches anything. Only with Life::kOwner.
  bool egress_listener = false;
  // Sandbox::take_gateway() is wanted: the sandbox has an interface and a name server, behind which
  // is what its maker does with the gateway's sockets, and nothing else. Of one that outlives its
  // maker the sockets stay with it, and what it sends is refused until set_network(). create()
  // fails with failed_precondition where this host lacks what it takes (`caisson doctor`).
  enum class Gateway : bool { kNo, kYes };
  Gateway gateway = Gateway::kNo;
  // Where the gateway of a spec's network writes its records, lines of JSON: a file that is open
  // for appending alone, empty or with such records, which one sandbox at a time writes to. -1:
  // nowhere. Borrowed for the call.
  int audit_fd = -1;
  // For a spec with a network, of a sandbox that outlives its maker: keys that were made elsewhere
  // (a file, borrowed for the call), and the certificate, as PEM, of whom it is to trust. No secret
  // is fetched then, and where there are some nothing may leave the sandbox until whoever has the
  // keys tells it what (ControlOperation::kSetNetwork). -1: keys are made here, where the network
  // inspects TLS.
  int keys_fd = -1;
  std::string authority = {};
  // What the gateway of a server's sandbox knows of the server (egress/served_domain.h).
  std::string served_domain = {};
  // This image instead of the one that the spec names, which is then only what the sandbox says it
  // is made from. Borrowed for the call; its files must stay for as long as the sandbox lives.
  const image::ImageRef* root = nullptr;
};

// A sandbox for one command: create, run spec's command, fetch results, close.
Result<RunResult> run(const SandboxSpec& spec, const RunOptions& options = {});

}  // namespace caisson
