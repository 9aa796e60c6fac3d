// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/plot.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/plan/picture_style.hpp>

namespace ostrakon::scaling {
namespace {

using plan::escape;

constexpr double width = 520.0, height = 372.0;
constexpr double left = 64.0, right = 500.0, top = 44.0, bottom = 290.0;

std::string label(double x, double y, const char* anchor, const std::string& what,
                  const char* css = "soft", const char* attributes = "") {
  return print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\" %s>", x, y, anchor, css,
               attributes) +
         escape(what) + "</text>\n";
}

std::string segment(double x1, double y1, double x2, double y2, const std::string& style) {
  return print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", x1, y1, x2, y2) + style +
         "/>\n";
}

std::string open_svg(const std::string& title) {
  return print(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
             "height=\"%.0f\" role=\"img\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, "
             "Arial, sans-serif\" font-size=\"12\">\n",
             width, height, width, height) +
         "<style>.soft{fill:#5b6572}.ink{fill:#1d2430;font-weight:600;font-size:15px}</style>\n" +
         print("<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n", width, height) +
         label(left, 24, "start", title, "ink");
}

/// "0.25", "1", "128".
std::string number(double value) { return print("%.4g", value); }

/// 1, 2 or 5 times a power of ten, so that about five ticks fit.
double tick_step(double range) {
  const double rough = range / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10.0 * power;
}

class Axes {
 public:
  explicit Axes(const Plot& plot) : plot_(plot) {
    constexpr double none = std::numeric_limits<double>::infinity();
    double least = plot.logarithmic_y ? none : plot.least_y;
    double most = plot.logarithmic_y ? 0.0 : plot.least_y;
    for (const PlotLine& line : plot.lines)
      for (const PlotPoint& point : line.points) {
        least = std::min(least, plot.logarithmic_y ? point.y : point.y - point.half_width);
        most = std::max(most, point.y + point.half_width);
      }
    if (plot.logarithmic_y) {
      low_ = std::floor(std::log2(std::max(std::min(least, most), 1e-300)));
      high_ = std::max(low_ + 1.0, std::ceil(std::log2(most) - 1e-9));
      step_ = std::max(1.0, std::ceil((high_ - low_) / 8.0));
    } else {
      if (!(most > least)) most = least + 1.0;
      step_ = tick_step(most - least);
      low_ = step_ * std::floor(least / step_ + 1e-9);
      high_ = step_ * std::ceil(most / step_ - 0.02);
    }
  }

  double x(double ranks) const {
    const double first = std::log2(plot_.ticks.front()), last = std::log2(plot_.ticks.back());
    if (plot_.ticks.size() == 1) return 0.5 * (left + right);
    return left + 20.0 + (right - left - 40.0) * (std::log2(ranks) - first) / (last - first);
  }
  double y(double value) const {
    const double place = plot_.logarithmic_y ? std::log2(std::max(value, std::exp2(low_))) : value;
    return bottom - (bottom - top) * (place - low_) / (high_ - low_);
  }

  std::string draw() const {
    std::string svg;
    for (double tick = low_; tick <= high_ + 1e-9 * step_; tick += step_) {
      const double value = plot_.logarithmic_y ? std::exp2(tick) : tick;
      const double shown = std::abs(value) < 1e-9 * step_ ? 0.0 : value;
      svg += segment(left, y(value), right, y(value), "stroke=\"#e4e8ee\"");
      svg += label(left - 8, y(value) + 4, "end", number(shown));
    }
    double before = -1e9;
    for (const int tick : plot_.ticks) {
      svg += segment(x(tick), bottom, x(tick), bottom + 5, "stroke=\"#9aa5b1\"");
      if (x(tick) - before < 24.0) continue;  // no room for its label
      svg += label(x(tick), bottom + 18, "middle", std::to_string(tick));
      before = x(tick);
    }
    svg += segment(left, bottom, right, bottom, "stroke=\"#9aa5b1\"");
    svg += label(0.5 * (left + right), bottom + 34, "middle", "ranks");
    svg += label(16, 0.5 * (top + bottom), "middle", plot_.y_label, "soft",
                 print("transform=\"rotate(-90 16 %.1f)\"", 0.5 * (top + bottom)).c_str());
    return svg;
  }

 private:
  const Plot& plot_;
  double low_ = 0.0, high_ = 1.0;  // of a logarithmic axis: exponents of two
  double step_ = 1.0;
};

std::string draw_line(const Axes& axes, const PlotLine& line) {
  std::string svg;
  if (line.points.size() > 1) {
    std::string path;
    for (const PlotPoint& point : line.points)
      path += print("%s%.1f %.1f", path.empty() ? "M" : " L", axes.x(point.x), axes.y(point.y));
    svg += "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + line.color +
           "\" stroke-width=\"2\"" + (line.is_dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>\n";
  }
  const std::string style = "stroke=\"" + line.color + "\" stroke-width=\"1.5\"";
  for (const PlotPoint& point : line.points) {
    const double x = axes.x(point.x);
    if (point.half_width > 0.0) {
      const double low = axes.y(point.y - point.half_width);
      const double high = axes.y(point.y + point.half_width);
      svg += segment(x, low, x, high, style) + segment(x - 5, low, x + 5, low, style) +
             segment(x - 5, high, x + 5, high, style);
    }
    if (line.has_markers)
      svg += print("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x, axes.y(point.y),
                   line.color.c_str());
  }
  return svg;
}

/// Labels in a row below the plot, in two rows where they need them.
std::string legend(const std::vector<std::string>& labels, const std::vector<std::string>& colors) {
  std::string svg;
  double x = left - 40.0, y = bottom + 52.0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double room = 32.0 + 7.0 * static_cast<double>(labels[i].size());
    if (x + room > width) {
      x = left - 40.0;
      y += 16.0;
    }
    svg += print("<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" rx=\"2\" fill=\"%s\"/>\n",
                 x, y - 10.0, colors[i].c_str());
    svg += label(x + 16.0, y, "start", labels[i]);
    x += room;
  }
  return svg;
}

}  // namespace

std::string plot_svg(const Plot& plot) {
  const Axes axes(plot);
  std::string svg = open_svg(plot.title) + axes.draw();
  std::vector<std::string> labels, colors;
  for (const PlotLine& line : plot.lines) {
    svg += draw_line(axes, line);
    labels.push_back(line.label);
    colors.push_back(line.color);
  }
  return svg + legend(labels, colors) + "</svg>\n";
}

std::string bars_svg(const std::string& title, const std::vector<std::string>& labels,
                     const std::vector<std::string>& colors, const std::vector<Bar>& bars) {
  std::string svg = open_svg(title);
  const auto y = [](double share) { return bottom - (bottom - top) * share; };
  for (int percent = 0; percent <= 100; percent += 20) {
    svg += segment(left, y(0.01 * percent), right, y(0.01 * percent), "stroke=\"#e4e8ee\"");
    svg += label(left - 8, y(0.01 * percent) + 4, "end", std::to_string(percent) + " %");
  }
  const double room = (right - left) / static_cast<double>(bars.size());
  const double bar_width = std::min(64.0, 0.7 * room);
  for (std::size_t b = 0; b < bars.size(); ++b) {
    const double middle = left + room * (static_cast<double>(b) + 0.5);
    double below = 0.0;
    for (std::size_t i = 0; i < bars[b].shares.size(); ++i) {
      const double share = bars[b].shares[i];
      svg += print("<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" fill=\"%s\"><title>",
                   middle - 0.5 * bar_width, y(below + share), bar_width,
                   y(below) - y(below + share), colors[i].c_str()) +
             escape(labels[i]) + print(": %.1f %%</title></rect>\n", 100.0 * share);
      below += share;
    }
    svg += label(middle, bottom + 18, "middle", bars[b].label);
    if (!bars[b].note.empty())
      svg += label(middle, bottom + 32, "middle", bars[b].note, "soft", "font-size=\"9\"");
  }
  svg += segment(left, bottom, right, bottom, "stroke=\"#9aa5b1\"");
  svg += label(left - 8, bottom + 18, "end", "ranks");
  return svg + legend(labels, colors) + "</svg>\n";
}

}  // namespace ostrakon::scaling
