// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/report.hpp>

#include <algorithm>
#include <ostrakon/base/text.hpp>
#include <ostrakon/plan/picture_style.hpp>
#include <ostrakon/scaling/plot.hpp>
#include <ostrakon/scaling/report_tables.hpp>

namespace ostrakon::scaling {
namespace {

using plan::escape;

constexpr const char* measured_color = "#3f6fb5";
constexpr const char* ideal_color = "#9aa5b1";
constexpr const char* predicted_color = "#e0912f";
/// Colors of named_shares, and of named_factors but the first, which is the computing's.
constexpr const char* part_colors[] = {"#3f6fb5", "#8fb3dd", "#e0912f",
                                       "#8e63b5", "#3f9b5f", "#c9cfd8"};
constexpr const char* factor_colors[] = {"#3f6fb5", "#57a5c9", "#e0912f",
                                         "#8e63b5", "#3f9b5f", "#c8553d"};

std::string markdown(const ReportTable& table) {
  const auto row_text = [](const std::vector<std::string>& cells) {
    std::string line = "|";
    for (const std::string& cell : cells) line += " " + cell + " |";
    return line + "\n";
  };
  std::string out = row_text(table.head) + "|---|";
  for (std::size_t i = 1; i < table.head.size(); ++i) out += "---:|";
  out += "\n";
  for (const auto& row : table.rows) out += row_text(row);
  return out;
}

std::string html(const ReportTable& table) {
  const auto row_text = [](const std::vector<std::string>& cells, const char* tag) {
    std::string line = "<tr>";
    for (const std::string& cell : cells) line += text("<", tag, ">", escape(cell), "</", tag, ">");
    return line + "</tr>\n";
  };
  std::string out =
      "<div class=\"wide\"><table>\n<thead>" + row_text(table.head, "th") + "</thead>\n<tbody>\n";
  for (const auto& row : table.rows) out += row_text(row, "td");
  return out + "</tbody></table></div>\n";
}

std::vector<int> ticks_of(const std::vector<ScalingPoint>& points) {
  std::vector<int> ticks;
  for (const ScalingPoint& point : points) ticks.push_back(point.size.ranks);
  return ticks;
}

/// A line of one value of each point.
template <class Value>
PlotLine line_of(const std::vector<ScalingPoint>& points, const std::string& label,
                 const std::string& color, const Value& value) {
  PlotLine line;
  line.label = label;
  line.color = color;
  for (const ScalingPoint& point : points) {
    const Interval of_point = value(point);
    line.points.push_back(
        {static_cast<double>(point.size.ranks), of_point.mean, of_point.half_width});
  }
  return line;
}

/// The sizes that have a prediction relative to the base's.
PlotLine predicted_line(const std::vector<ScalingPoint>& points, bool as_efficiency) {
  PlotLine line;
  line.label = "predicted";
  line.color = predicted_color;
  line.is_dashed = true;
  for (const ScalingPoint& point : points)
    if (point.predicted_speedup > 0.0)
      line.points.push_back(
          {static_cast<double>(point.size.ranks),
           as_efficiency ? 100.0 * point.predicted_speedup / point.ideal : point.predicted_speedup,
           0.0});
  return line;
}

PlotLine plain(PlotLine line) {
  line.has_markers = false;
  return line;
}

std::string step_plot(const std::vector<ScalingPoint>& points) {
  Plot plot;
  plot.title = "Seconds of a step";
  plot.y_label = "s";
  plot.ticks = ticks_of(points);
  plot.logarithmic_y = true;
  PlotLine predicted;
  predicted.label = "predicted";
  predicted.color = predicted_color;
  predicted.is_dashed = true;
  for (const ScalingPoint& point : points)
    if (point.size.prediction)
      predicted.points.push_back(
          {static_cast<double>(point.size.ranks), point.size.prediction->seconds, 0.0});
  if (!predicted.points.empty()) plot.lines.push_back(std::move(predicted));
  plot.lines.push_back(line_of(points, "measured, 95 % interval", measured_color,
                               [](const ScalingPoint& point) { return point.step_seconds; }));
  return plot_svg(plot);
}

std::string speedup_plot(const std::vector<ScalingPoint>& points) {
  Plot plot;
  plot.title = "Speedup";
  plot.y_label = text("tokens/s over those on ", points[0].size.ranks,
                      points[0].size.ranks == 1 ? " rank" : " ranks");
  plot.ticks = ticks_of(points);
  plot.logarithmic_y = true;
  plot.lines.push_back(plain(line_of(points, "ideal", ideal_color, [](const ScalingPoint& point) {
    return Interval{point.ideal, 0.0, false};
  })));
  if (PlotLine line = predicted_line(points, false); !line.points.empty())
    plot.lines.push_back(std::move(line));
  plot.lines.push_back(line_of(points, "measured, 95 % interval", measured_color,
                               [](const ScalingPoint& point) { return point.speedup; }));
  return plot_svg(plot);
}

std::string efficiency_plot(const std::vector<ScalingPoint>& points) {
  Plot plot;
  plot.title = "Efficiency";
  plot.y_label = "%";
  plot.ticks = ticks_of(points);
  plot.lines.push_back(plain(line_of(points, "ideal", ideal_color, [](const ScalingPoint&) {
    return Interval{100.0, 0.0, false};
  })));
  if (PlotLine line = predicted_line(points, true); !line.points.empty())
    plot.lines.push_back(std::move(line));
  plot.lines.push_back(
      line_of(points, "measured, 95 % interval", measured_color, [](const ScalingPoint& point) {
        Interval percent = point.efficiency;
        percent.mean *= 100.0;
        percent.half_width *= 100.0;
        return percent;
      }));
  return plot_svg(plot);
}

std::string factor_plot(const std::vector<ScalingPoint>& points) {
  Plot plot;
  plot.title = "Factors of the efficiency";
  plot.y_label = "relative to the fewest ranks";
  plot.ticks = ticks_of(points);
  const char* const* color = factor_colors;
  for (const NamedFactor& factor : named_factors)
    plot.lines.push_back(line_of(points, factor.name, *color++, [&](const ScalingPoint& point) {
      return Interval{point.relative.*factor.value, 0.0, false};
    }));
  return plot_svg(plot);
}

std::string share_plot(const std::vector<ScalingPoint>& points) {
  std::vector<std::string> labels, colors;
  const char* const* color = part_colors;
  for (const NamedShare& share : named_shares) {
    labels.emplace_back(share.name);
    colors.emplace_back(*color++);
  }
  std::vector<Bar> bars;
  for (const ScalingPoint& point : points) {
    Bar bar;
    bar.label = text(point.size.ranks);
    for (const NamedShare& share : named_shares) bar.shares.push_back(point.shares.*share.value);
    bars.push_back(bar);
    if (!point.size.prediction) continue;
    const PredictedStep& step = *point.size.prediction;
    bar.note = "predicted";
    bar.shares.clear();
    for (const double share : predicted_shares(step)) bar.shares.push_back(share);
    bars.push_back(std::move(bar));
  }
  return bars_svg("Where the time of a step goes", labels, colors, bars);
}

constexpr const char* page_style = R"(<style>
body{margin:2rem auto;max-width:1100px;padding:0 1rem;background:#ffffff;color:#1d2430;
font:16px/1.5 system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif}
h1{font-size:1.6rem;margin-bottom:.3rem}h2{font-size:1.15rem;margin-top:2rem}
.plots{display:flex;flex-wrap:wrap;gap:1rem}.plots svg{max-width:100%;height:auto;
border:1px solid #e4e8ee;border-radius:6px}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;border-bottom:1px solid #e4e8ee;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:#5b6572;font-weight:600}
dt{font-weight:600;float:left;clear:left;width:8rem}dd{margin:0 0 .3rem 8.5rem}
.soft{color:#5b6572}
</style>
)";

std::string html_list(const std::vector<std::string>& lines) {
  std::string out = "<ul>\n";
  for (const std::string& line : lines) out += "<li>" + escape(line) + "</li>\n";
  return out + "</ul>\n";
}

}  // namespace

std::string report_markdown(const Collected& collected, const std::vector<ScalingPoint>& points) {
  std::string out = text("# ", report_title(collected.study), "\n\n");
  for (const std::string& fact : report_facts(collected)) out += fact + "\n\n";
  const auto list = [&](const char* title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    out += text("## ", title, "\n");
    for (const std::string& line : lines) out += "- " + line + "\n";
    out += "\n";
  };
  list("To be noted", describe_remarks(collected, points));
  out += "## Speed\n" + markdown(speed_table(points)) + "\n";
  out += "## Factors of the efficiency\n" + markdown(factor_table(points)) + "\n";
  out += "## Where the time of a step goes\n" + markdown(share_table(points)) + "\n";
  list("Outlier steps", describe_outliers(collected));
  out += "## Words\n";
  for (const auto& [word, meaning] : report_words())
    out += "- **" + word + "**: " + meaning + ".\n";
  return out;
}

std::string report_html(const Collected& collected, const std::vector<ScalingPoint>& points) {
  const std::string title = escape(report_title(collected.study));
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>" +
      title + "</title>\n" + page_style + "</head><body>\n<h1>" + title + "</h1>\n";
  for (const std::string& fact : report_facts(collected))
    out += "<p class=\"soft\">" + escape(fact) + "</p>\n";
  const auto list = [&](const char* heading, const std::vector<std::string>& lines) {
    if (!lines.empty()) out += text("<h2>", heading, "</h2>\n", html_list(lines));
  };
  list("To be noted", describe_remarks(collected, points));
  out += "<div class=\"plots\">\n" + speedup_plot(points) + efficiency_plot(points) +
         share_plot(points) + factor_plot(points) + step_plot(points) + "</div>\n";
  out += "<h2>Speed</h2>\n" + html(speed_table(points));
  out += "<h2>Factors of the efficiency</h2>\n" + html(factor_table(points));
  out += "<h2>Where the time of a step goes</h2>\n" + html(share_table(points));
  list("Outlier steps", describe_outliers(collected));
  out += "<h2>Words</h2>\n<dl>\n";
  for (const auto& [word, meaning] : report_words())
    out += "<dt>" + escape(word) + "</dt><dd>" + escape(meaning) + "</dd>\n";
  return out + "</dl>\n</body></html>\n";
}

std::string report_csv(const std::vector<ScalingPoint>& points) {
  std::string csv =
      "ranks,nodes,runs,step_seconds,step_seconds_95,tokens_per_second,"
      "tokens_per_second_per_rank,mfu,speedup,speedup_95,ideal_speedup,efficiency,efficiency_95";
  const auto column = [](std::string name) {
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  };
  for (const NamedFactor& factor : named_factors) csv += ",factor_" + column(factor.name);
  for (const NamedShare& share : named_shares) csv += ",share_" + column(share.name);
  csv += ",predicted_step_seconds,prediction_error\n";
  const auto half_width = [](const Interval& interval) {
    return interval.is_known ? text(interval.half_width) : "";
  };
  for (const ScalingPoint& point : points) {
    csv += text(point.size.ranks, ",", point.size.nodes, ",", point.runs, ",",
                point.step_seconds.mean, ",", half_width(point.step_seconds), ",",
                point.tokens_per_second.mean, ",", point.tokens_per_second.mean / point.size.ranks,
                ",", point.mfu, ",", point.speedup.mean, ",", half_width(point.speedup), ",",
                point.ideal, ",", point.efficiency.mean, ",", half_width(point.efficiency));
    for (const NamedFactor& factor : named_factors) csv += text(",", point.relative.*factor.value);
    for (const NamedShare& share : named_shares) csv += text(",", point.shares.*share.value);
    csv += ",";
    if (point.size.prediction) csv += text(point.size.prediction->seconds);
    csv += ",";
    if (point.prediction_error) csv += text(*point.prediction_error);
    csv += "\n";
  }
  return csv;
}

}  // namespace ostrakon::scaling
