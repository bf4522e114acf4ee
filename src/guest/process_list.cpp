#include <sys/stat.h>

#include <string>

#include "guest/process_stat.h"
#include "guest/worker.h"

namespace caisson::guest {
namespace {

using proto::Tag;

constexpr std::size_t kMaxCommandLine = 4096;

}  // namespace

Status process_list_worker(const proto::FieldReader& /*fields*/, WorkerLink& link) {
  return for_each_process(
      [&](std::uint32_t pid, const std::string& directory, const ProcessStat& stat) -> Status {
        struct stat owner{};
        if (::stat(directory.c_str(), &owner) != 0) return {};  // ended meanwhile
        std::string command = read_start(directory + "/cmdline", kMaxCommandLine);
        if (command.empty()) command = "[" + stat.name + "]";  // a zombie
        proto::Fields event;
        event.put_u32(Tag::kPid, pid)
            .put_u32(Tag::kParentPid, stat.parent)
            .put_u32(Tag::kUid, owner.st_uid)
            .put(Tag::kName, stat.name)
            .put(Tag::kCommandLine, command);
        return link.event(event);
      });
}

}  // namespace caisson::guest
