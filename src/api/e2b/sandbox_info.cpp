#include "api/e2b/sandbox_info.h"

#include <chrono>
#include <map>

namespace caisson::api::e2b {

using json::Value;
using proto::Tag;

namespace {

constexpr std::uint64_t kMiB = 1u << 20;

std::uint64_t eight_bytes(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size() && i < 8; ++i)
    number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return number;
}

}  // namespace

io::Async<Status> answer_variables(const Request& request) {
  Value body = Value::object();
  for (const auto& [name, value] : request.sandbox->env()) body.set(name, value);
  co_return co_await answer_json(request.exchange, 200, body);
}

Value metrics_of(const std::vector<std::string>& events, double cpu_percent, std::int64_t now) {
  std::map<std::string, std::uint64_t, std::less<>> values;
  for (const std::string& payload : events) {
    const auto event = proto::FieldReader::parse(payload);
    if (!event.has_value()) continue;
    const auto names = event->all(Tag::kMetricName), numbers = event->all(Tag::kMetricValue);
    for (std::size_t i = 0; i < names.size() && i < numbers.size(); ++i)
      values[std::string(names[i])] = eight_bytes(numbers[i]);
  }
  const auto value = [&](std::string_view name) {
    const auto found = values.find(name);
    return found == values.end() ? 0 : found->second;
  };
  Value body = Value::object();
  body.set("ts", now)
      .set("cpu_count", value("cpu_count"))
      .set("cpu_used_pct", cpu_percent)
      .set("mem_total", value("memory_total"))
      .set("mem_used", value("memory_used"))
      .set("mem_cache", value("memory_cache"))
      .set("mem_total_mib", value("memory_total") / kMiB)
      .set("mem_used_mib", value("memory_used") / kMiB)
      .set("disk_total", value("disk_total"))
      .set("disk_used", value("disk_used"));
  return body;
}

io::Async<Status> answer_metrics(fleet::Fleet& fleet, const Request& request) {
  const auto events = co_await call_guest(request, proto::Kind::kMetrics, {});
  if (!events.has_value()) {
    const int status = events.error().code() == Code::kUnavailable ? 502 : 500;
    co_return co_await answer_error(request.exchange, status, events.error().message());
  }
  const auto samples = fleet.samples(request.sandbox->team(), request.sandbox->view().id,
                                     std::nullopt, std::nullopt);
  const double percent =
      samples.has_value() && !samples->empty() ? samples->back().cpu_used_percent : 0;
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(fleet::WallClock::now().time_since_epoch());
  co_return co_await answer_json(request.exchange, 200, metrics_of(*events, percent, now.count()));
}

io::Async<Status> answer_no_sandbox(http::Exchange& exchange, std::string_view id) {
  Value body = Value::object();
  body.set("sandboxId", id).set("message", "The sandbox was not found").set("code", 502);
  co_return co_await answer_json(exchange, 502, body);
}

}  // namespace caisson::api::e2b
