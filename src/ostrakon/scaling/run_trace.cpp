// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/run_trace.hpp>

#include <algorithm>
#include <fstream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/input_file.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/scaling/json_fields.hpp>
#include <set>

namespace ostrakon::scaling {
namespace {

using Json = nlohmann::json;

constexpr int most_ranks = 1 << 20;

/// Builds a RunTrace from single events.
class TraceBuilder {
 public:
  explicit TraceBuilder(const std::string& file) : file_(file) {}

  void add(const Json& event) {
    const Fields fields(event, file_, text("traceEvents[", events_++, "]"));
    const std::string kind = fields.text("ph");
    if (kind == "M") add_rank(fields);
    if (kind == "X") add_action(fields);
  }

  RunTrace take() {
    trace_.hosts = static_cast<int>(hosts_.size());
    require(trace_.ranks > 0, "'", file_, "': has no ranks; expected a trace of ostrakon-train");
    for (auto& [step, of_ranks] : trace_.steps) {
      of_ranks.resize(static_cast<std::size_t>(trace_.ranks));
      for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
        require(!of_ranks[rank].empty(), "'", file_, "': step ", step, " has no actions of rank ",
                rank, "; expected those of all ", trace_.ranks, " ranks");
    }
    return std::move(trace_);
  }

 private:
  void add_rank(const Fields& fields) {
    if (fields.text("name") != "process_name") return;
    trace_.ranks = std::max(trace_.ranks, fields.small("pid") + 1);
    require(trace_.ranks <= most_ranks, "'", file_, "': too many ranks");
    const std::string name = fields.object("args").text("name");  // "rank 3 (host)"
    hosts_.insert(name.substr(std::min(name.size(), name.find('('))));
  }

  void add_action(const Fields& fields) {
    const int rank = fields.small("pid"), stream = fields.small("tid");
    const auto action = plan::find_kind(fields.text("cat"));
    require(action.has_value() && stream < plan::streams && rank < most_ranks, "'", file_,
            "': has an event of the kind ", shown(fields.text("cat")), " on stream ", stream,
            "; expected actions of this version's plans");
    // Times are in microseconds; those before the first step's begin may be rounded to below 0.
    TracedAction traced;
    traced.kind = *action;
    traced.stream = static_cast<plan::Stream>(stream);
    traced.begin = 1e-6 * fields.any_number("ts");
    traced.end = traced.begin + 1e-6 * fields.number("dur");
    auto& ranks = trace_.steps[fields.object("args").integer("step", 1)];
    if (ranks.size() <= static_cast<std::size_t>(rank))
      ranks.resize(static_cast<std::size_t>(rank) + 1);
    ranks[static_cast<std::size_t>(rank)].push_back(traced);
  }

  const std::string file_;
  std::int64_t events_ = 0;
  std::set<std::string> hosts_;
  RunTrace trace_;
};

}  // namespace

RunTrace read_trace(const std::string& file) {
  require(!is_missing(file), "'", file,
          "' does not exist; expected a run with output.trace as in the study's deck");
  // plain_file_size and PlainFile throw where the file is not a regular file, or a Git LFS pointer.
  checkpoint::plain_file_size(file, "trace");
  const PlainFile looked_at(file, PlainFile::Mode::read);
  std::ifstream stream(file, std::ios::binary);
  require(stream.is_open(), "'", file, "' can't be read: ", system_error());
  TraceBuilder builder(file);
  // Traces are large, so each event is processed as soon as it is read, and not kept.
  const auto take = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event != Json::parse_event_t::object_end || depth != 2) return true;
    builder.add(value);
    return false;
  };
  try {
    const Json rest = Json::parse(stream, take);
    require(rest.is_object() && rest.contains("traceEvents"), "'", file,
            "': traceEvents is missing; expected a trace of ostrakon-train");
  } catch (const Json::exception& error) {
    throw Error(text("'", file, "' is not a whole trace: ", checkpoint::reason_of(error),
                     "; expected JSON: the run is not finished, or was cut off"));
  }
  return builder.take();
}

}  // namespace ostrakon::scaling
