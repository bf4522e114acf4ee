#include "api/instruments.h"

#include <algorithm>
#include <charconv>

namespace caisson::api {
namespace {

// Text in which every metric is described once, before its samples.
class Page {
 public:
  void describe(std::string_view name, std::string_view type, std::string_view help) {
    add({"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"});
  }
  // `labels` as they stand between the braces.
  template <typename T>
  void sample(std::string_view name, std::string_view labels, T value) {
    add({name});
    if (!labels.empty()) add({"{", labels, "}"});
    add({" ", number(value), "\n"});
  }
  template <typename T>
  void metric(std::string_view name, std::string_view type, std::string_view help, T value) {
    describe(name, type, help);
    sample(name, "", value);
  }

  template <typename T>
  static std::string number(T value) {
    char text[64];
    return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
  }
  const std::string& text() const { return text_; }

 private:
  void add(std::initializer_list<std::string_view> pieces) {
    for (const std::string_view piece : pieces) text_ += piece;
  }
  std::string text_;
};

std::string label(std::string_view key, std::string_view value) {
  return std::string(key) + "=\"" + std::string(value) + "\"";
}

}  // namespace

std::string_view to_string(Plane plane) {
  switch (plane) {
    case Plane::kControl:
      return "control";
    case Plane::kSandbox:
      return "sandbox";
    case Plane::kPort:
      return "port";
  }
  return "control";
}

void Instruments::end(Plane plane, int status, std::chrono::nanoseconds time) {
  Numbers& numbers = of(plane);
  --numbers.under_way;
  ++numbers.by_class.at(static_cast<std::size_t>(std::clamp(status / 100, 0, 5)));
  const double seconds = std::chrono::duration<double>(time).count();
  for (std::size_t index = 0; index < kBounds.size(); ++index) {
    if (seconds <= kBounds[index]) ++numbers.up_to[index];
  }
  ++numbers.count;
  numbers.seconds += seconds;
}

std::string Instruments::text(const Gauges& gauges) const {
  Page page;
  const fleet::Counts& fleet = gauges.fleet;
  page.metric("caisson_sandboxes_running", "gauge", "Sandboxes that run.", fleet.running);
  page.metric("caisson_sandboxes_paused", "gauge", "Sandboxes that are paused.", fleet.paused);
  page.describe("caisson_sandboxes_refused_total", "counter",
                "Creates and resumes that would have gone over a limit: the team's, the server's.");
  page.sample("caisson_sandboxes_refused_total", label("limit", "team"), fleet.refused_by_quota);
  page.sample("caisson_sandboxes_refused_total", label("limit", "server"), fleet.refused_full);
  page.metric("caisson_pool_ready", "gauge", "Sandboxes made ahead that wait for a client.",
              fleet.pool_ready);
  page.metric("caisson_pool_wanted", "gauge", "Sandboxes that should be made ahead.",
              fleet.pool_wanted);
  page.metric("caisson_pool_taken_total", "counter", "Creates that found a sandbox made ahead.",
              fleet.pool_taken);
  page.metric("caisson_pool_missed_total", "counter", "Creates that had to wait for theirs.",
              fleet.pool_missed);
  page.metric("caisson_sandbox_log_entries_lost_total", "counter",
              "Entries of sandboxes' logs that could not be written.", fleet.events_lost);
  page.metric("caisson_server_log_lines_lost_total", "counter",
              "Lines of the server's own log that nobody read in time.", gauges.log_lines_lost);
  page.metric("caisson_connections", "gauge", "Connections of clients.", gauges.server.connections);
  page.metric("caisson_connections_total", "counter", "Connections that were taken.",
              gauges.server.connections_total);
  page.metric("caisson_refused_total", "counter",
              "Connections and heads of requests that the server refused.",
              gauges.server.refused_total);

  const auto each = [&](auto write) {
    for (std::size_t index = 0; index < planes_.size(); ++index) {
      write(label("plane", to_string(static_cast<Plane>(index))), planes_[index]);
    }
  };
  page.describe("caisson_requests_under_way", "gauge", "Requests that are being answered.");
  each([&](const std::string& plane, const Numbers& numbers) {
    page.sample("caisson_requests_under_way", plane, numbers.under_way);
  });
  page.describe("caisson_requests_total", "counter",
                "Requests by the class of their status; none: without an answer.");
  each([&](const std::string& plane, const Numbers& numbers) {
    for (std::size_t index = 0; index < numbers.by_class.size(); ++index) {
      const std::string status = index == 0 ? "none" : Page::number(index) + "xx";
      page.sample("caisson_requests_total", plane + "," + label("status", status),
                  numbers.by_class[index]);
    }
  });
  page.describe("caisson_request_seconds", "histogram",
                "From a request's head to the end of its answer.");
  each([&](const std::string& plane, const Numbers& numbers) {
    for (std::size_t index = 0; index < kBounds.size(); ++index) {
      page.sample("caisson_request_seconds_bucket",
                  plane + "," + label("le", Page::number(kBounds[index])), numbers.up_to[index]);
    }
    page.sample("caisson_request_seconds_bucket", plane + "," + label("le", "+Inf"), numbers.count);
    page.sample("caisson_request_seconds_sum", plane, numbers.seconds);
    page.sample("caisson_request_seconds_count", plane, numbers.count);
  });
  return page.text();
}

}  // namespace caisson::api
