// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/run_metrics.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/input_file.hpp>
#include <ostrakon/scaling/json_fields.hpp>

namespace ostrakon::scaling {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 30;

MetricsRow row_of(const Fields& fields, const std::string& line) {
  MetricsRow row;
  row.step = fields.integer("step", 1);
  row.tokens = fields.integer("tokens", 1);
  row.seconds = fields.number("step_seconds");
  require(row.seconds > 0.0, line, "step_seconds = 0; expected more than 0");
  row.mfu = fields.number("mfu");
  row.mfu_uncertain = fields.has("mfu_uncertain") && fields.flag("mfu_uncertain");
  row.peak_bytes = fields.integer("peak_bytes");
  return row;
}

}  // namespace

std::vector<MetricsRow> read_metrics(const std::string& file, const Study& study,
                                     const StudySize& size) {
  require(!is_missing(file), "'", file, "' does not exist: the run has not begun; start ",
          size.folder, "/job.sh");
  const std::string content = checkpoint::read_plain_file(file, "metrics of a run", most_bytes);
  std::vector<MetricsRow> rows;
  int number = 0;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = content.find('\n', at);
    const std::string line = text(file, ", line ", ++number);
    const nlohmann::json json = nlohmann::json::parse(content.substr(at, end - at), nullptr, false);
    require(end != std::string::npos && !json.is_discarded(), "'", line, "': is not a whole row (",
            shown(content.substr(at, std::min<std::size_t>(40, end - at))),
            "); expected an object and an end of line: the run is not finished, or was cut off");
    at = end + 1;
    const Fields fields(json, line);
    if (fields.has("validation_loss")) continue;
    rows.push_back(row_of(fields, line));
    const MetricsRow& row = rows.back();
    const auto expected = static_cast<std::int64_t>(rows.size());
    require(row.step == expected, "'", line, "': step = ", row.step, "; expected ", expected);
    require(row.tokens == row.step * size.tokens_per_step, "'", line, "': tokens = ", row.tokens,
            " after step ", row.step, "; expected ", row.step * size.tokens_per_step,
            ", as study.json plans ", size.tokens_per_step, " in a step on ", size.ranks,
            size.ranks == 1 ? " rank" : " ranks");
  }
  require(static_cast<std::int64_t>(rows.size()) == study.steps, "'", file, "' has ", rows.size(),
          " steps; expected ", study.steps, ": the run ",
          static_cast<std::int64_t>(rows.size()) < study.steps ? "is not finished"
                                                               : "is of another study");
  return rows;
}

}  // namespace ostrakon::scaling
