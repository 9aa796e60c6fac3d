// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/scaling/collected.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// The result of all runs of a size, compared with those on the fewest ranks.
struct ScalingPoint {
  StudySize size;
  int runs = 1;           ///< number of repeats that were used
  Interval step_seconds;  ///< interval of one run; of several: by Student's t over their means
  Interval tokens_per_second;
  Interval speedup;     ///< ratio of tokens per second to the base's
  double ideal = 1.0;   ///< speedup with an efficiency of 1: ranks over those of the base
  Interval efficiency;  ///< speedup / ideal: of tokens per second and rank
  Shares shares;        ///< mean over runs
  Factors factors;      ///< factors by these shares and the mean step
  Factors relative;     ///< relative to the base; their product is the efficiency
  double mfu = 0.0;     ///< mean over runs, as a share
  bool mfu_uncertain = false;
  std::int64_t peak_bytes = 0;     ///< maximum over runs
  bool is_superlinear = false;     ///< whether the whole interval of the efficiency is above 1
  std::string superlinear_factor;  ///< for superlinear points: the factor that gains most
  double predicted_speedup = 0.0;  ///< relative to the base's prediction; 0: no prediction
  /// (predicted - measured) / measured step, if there is a prediction.
  std::optional<double> prediction_error;
};

/// Returns a study's result: a point for each size that has runs, fewest ranks first. Intervals of
/// ratios combine those of both values as independent ones, to first order.
std::vector<ScalingPoint> scaling_points(const Collected& collected);

/// A member of Factors, in the order of the product, or of Shares: its name, and its key in
/// collected.json.
template <class Struct>
struct NamedMember {
  const char* name;
  const char* key;
  double Struct::*value;
};
using NamedFactor = NamedMember<Factors>;
using NamedShare = NamedMember<Shares>;
constexpr NamedFactor named_factors[] = {{"compute rate", "compute_rate", &Factors::compute_rate},
                                         {"balance", "balance", &Factors::balance},
                                         {"overlap", "overlap", &Factors::overlap},
                                         {"host", "host", &Factors::host},
                                         {"copies", "copies", &Factors::copies},
                                         {"bubbles", "bubbles", &Factors::bubbles}};
constexpr NamedShare named_shares[] = {
    {"compute", "compute", &Shares::compute},
    {"imbalance", "imbalance", &Shares::imbalance},
    {"exposed communication", "communication", &Shares::communication},
    {"exposed host", "host", &Shares::host},
    {"exposed copies", "copies", &Shares::copies},
    {"waiting", "waiting", &Shares::waiting}};

/// Returns lines of base/format.hpp: "figure: ranks_4.efficiency 87.5 %".
std::string figures(const std::vector<ScalingPoint>& points);

/// Returns lines such as "step 17 of ranks-2/run-1: 0.61 s, usually 0.31 s; +0.29 s on rank 1,
/// stream gather".
std::vector<std::string> describe_outliers(const Collected& collected);

/// Returns remarks on the reliability of the figures: missing runs, superlinear points, compute
/// rates that fall much, other hosts or memory than planned, and intervals that are too wide.
std::vector<std::string> describe_remarks(const Collected& collected,
                                          const std::vector<ScalingPoint>& points);

}  // namespace ostrakon::scaling
