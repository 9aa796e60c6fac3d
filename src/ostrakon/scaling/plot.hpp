// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ostrakon::scaling {

/// A value at a number of ranks.
struct PlotPoint {
  double x = 0.0, y = 0.0;
  double half_width = 0.0;  ///< of its error bar; 0: none
};

struct PlotLine {
  std::string label;
  std::string color;  ///< "#3f6fb5"
  bool is_dashed = false;
  bool has_markers = true;
  std::vector<PlotPoint> points;
};

/// Values over numbers of ranks, which are on a logarithmic axis with a tick at each of `ticks`.
struct Plot {
  std::string title;
  std::string y_label;
  std::vector<int> ticks;
  bool logarithmic_y = false;  ///< with a tick at each power of two
  double least_y = 0.0;        ///< at least down to here; of a linear axis
  std::vector<PlotLine> lines;
};

/// An <svg> of a fixed size, with its own styles, to be put into HTML.
std::string plot_svg(const Plot& plot);

/// Parts of a whole for one number of ranks.
struct Bar {
  std::string label;           ///< below it
  std::string note;            ///< below that, small
  std::vector<double> shares;  ///< bottom first, in the order of the labels
};

/// Stacked bars of 100 %, with a legend.
std::string bars_svg(const std::string& title, const std::vector<std::string>& labels,
                     const std::vector<std::string>& colors, const std::vector<Bar>& bars);

}  // namespace ostrakon::scaling
