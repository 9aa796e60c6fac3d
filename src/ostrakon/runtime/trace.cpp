// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/trace.hpp>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostrakon/plan/report/report.hpp>

namespace ostrakon::runtime {
namespace {

std::string quoted(const std::string& text) {
  // Invalid UTF-8 is replaced, so that it does not make a trace fail.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Returns an event that describes a process, or a thread of it.
std::string metadata(const char* name, int rank, const std::string& arguments, int thread = 0) {
  return std::string("{\"ph\":\"M\",\"name\":\"") + name + "\",\"pid\":" + std::to_string(rank) +
         ",\"tid\":" + std::to_string(thread) + ",\"args\":{" + arguments + "}}";
}

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

/// Writes nanoseconds as microseconds: "-0.070", "12.345".
std::string microseconds(std::int64_t count) {
  char text[32];
  const std::int64_t size = std::abs(count);
  std::snprintf(text, sizeof text, "%s%lld.%03lld", count < 0 ? "-" : "",
                static_cast<long long>(size / 1000), static_cast<long long>(size % 1000));
  return text;
}

std::string arguments_of(const plan::StepPlan& plan, const plan::Action& action,
                         std::int64_t step) {
  std::string text = "\"step\":" + std::to_string(step);
  if (action.unit >= 0)
    text += ",\"unit\":" + quoted(plan.units[static_cast<std::size_t>(action.unit)].name);
  if (action.micro_batch >= 0) text += ",\"micro_batch\":" + std::to_string(action.micro_batch);
  if (plan::communicates(action.kind))
    text += ",\"bytes_sent\":" + std::to_string(plan.bytes_sent(action));
  if (const std::int64_t copied = plan::copied_bytes(action); copied > 0)
    text += ",\"bytes_copied\":" + std::to_string(copied);
  return text;
}

}  // namespace

std::string begin_trace() {
  // Every other event follows a comma, so that parts can be in any order. This first one sets a
  // default value.
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" +
         metadata("process_sort_index", 0, "\"sort_index\":0");
}

std::string trace_rank(int rank, const std::string& host) {
  const std::string name = "rank " + std::to_string(rank) + " (" + host + ")";
  std::string text = ",\n" + metadata("process_name", rank, "\"name\":" + quoted(name)) + ",\n" +
                     metadata("process_sort_index", rank, "\"sort_index\":" + std::to_string(rank));
  for (int stream = 0; stream < plan::streams; ++stream)
    text += ",\n" +
            metadata("thread_name", rank,
                     "\"name\":" + quoted(plan::name(static_cast<plan::Stream>(stream))), stream) +
            ",\n" +
            metadata("thread_sort_index", rank, "\"sort_index\":" + std::to_string(stream), stream);
  return text;
}

std::string trace_step(const Program& program, const std::vector<ActionTime>& times, int rank,
                       std::int64_t step, double origin) {
  std::string text;
  for (std::size_t a = 0; a < times.size(); ++a) {
    const plan::Action& action = program.plan.actions[a];
    if (times[a].end == 0.0) continue;  // skipped
    // Both ends are rounded, not the duration, so that bars that don't overlap are still apart.
    const std::int64_t begin = nanoseconds(times[a].begin - origin);
    const std::int64_t end = nanoseconds(times[a].end - origin);
    text += ",\n{\"ph\":\"X\",\"name\":" + quoted(program.plan.describe(action)) +
            ",\"cat\":" + quoted(plan::name(action.kind)) + ",\"pid\":" + std::to_string(rank) +
            ",\"tid\":" + std::to_string(static_cast<int>(action.stream)) +
            ",\"ts\":" + microseconds(begin) + ",\"dur\":" + microseconds(end - begin) +
            ",\"args\":{" + arguments_of(program.plan, action, step) + "}}";
  }
  return text;
}

std::string end_trace() { return "\n]}\n"; }

}  // namespace ostrakon::runtime
