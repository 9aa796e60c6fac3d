// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/fit_least.hpp>
#include <ostrakon/plan/fit_stages.hpp>
#include <ostrakon/plan/shorter_steps.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/simulate/search.hpp>
#include <ostrakon/train/layout_space.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ostrakon::train {

/// How ranks run their streams, as runtime.streams says.
simulate::Streams streams_of(const config::Settings& settings, const simulate::Machine& machine,
                             int ranks_per_node);

/// Ranks on a machine.
struct RanksOn {
  simulate::Machine machine;
  int ranks = 1, ranks_per_node = 1;
};

/// Whether sums of a deck's step are bitwise equal to 1 rank on these ranks; none where it does not
/// fit them.
std::optional<bool> has_the_bits_of_one_rank(const config::Settings& deck, const RanksOn& on);

/// The points of a space of a deck's settings, planned and simulated on a machine.
class LayoutCandidates : public simulate::Candidates {
 public:
  struct Limits {
    /// Whether points whose sums are not bitwise equal to 1 rank are not possible.
    bool needs_bits = false;
    std::int64_t room_bytes = std::numeric_limits<std::int64_t>::max();  ///< of an arena
    int threads = 1;  ///< on which steps are planned
  };

  /// References are kept, but for the limits.
  LayoutCandidates(const config::Settings& deck, const LayoutSpace& space, const RanksOn& on,
                   const Limits& limits);

  std::vector<int> sizes() const override;
  std::vector<bool> are_starts() const override;
  std::string kind(const simulate::Point& point) const override;
  std::optional<simulate::Cost> bound(const simulate::Point& point) override;
  double effort(const simulate::Point& point) override;
  void expect(const std::vector<simulate::Point>& points) override;
  std::optional<simulate::Cost> estimate(const simulate::Point& point) override;
  std::optional<double> seconds(const simulate::Point& point) override;
  std::int64_t bytes(const simulate::Point& point) override;

  /// The deck with a point's settings.
  config::Settings settings(const simulate::Point& point) const;
  /// The prediction for a point of which seconds() is known.
  const simulate::Prediction& prediction(const simulate::Point& point) const {
    return predictions_.at(point);
  }
  /// The fit of a point of which bytes() is known.
  const plan::Fit& fit(const simulate::Point& point) const { return fits_.at(point); }
  /// Points that are not possible as their sums are not bitwise equal to 1 rank.
  std::int64_t with_other_bits() const { return with_other_bits_; }
  /// Why a point is not possible, the first of them; null: all are.
  std::exception_ptr error() const { return error_; }

 private:
  /// Settings as they are on these ranks, and what follows from them.
  struct Placed {
    config::Settings settings;
    plan::Candidate candidate;
    plan::StepLength whole;
  };

  std::optional<Placed> place(const simulate::Point& point);
  const plan::ModelDescription& model(const config::Settings& settings, std::int64_t layers);
  /// What the kernels of a step take, with the bubble: a lower bound of its time for any division
  /// of the model into stages; where there are many, for that of make_chunks.
  double kernel_seconds(const Placed& placed);
  const plan::ShorterSteps& shorter_steps(const Placed& placed);
  /// Whether sums of so long a step are bitwise equal to 1 rank only if those of the whole are.
  static bool shows_bits(const Placed& placed, const plan::StepLength& length);
  /// The training step of all stages, as build_plain_stages.
  std::vector<plan::StepPlan> plan_shorter(const Placed& placed, const plan::StepLength& length);
  plan::StepTakes simulate_shorter(const Placed& placed,
                                   const std::vector<plan::StepPlan>& plans) const;
  /// Where what has room to be deferred is known only when memory is laid out: with nothing
  /// deferred.
  std::optional<Placed> with_nothing_deferred(const Placed& placed);
  /// All that a point varies, with what follows from "auto" and from groups by name.
  std::string layout_name(const Placed& placed) const;
  /// Makes what estimate_layout reads.
  void prepare(const Placed& placed);
  simulate::Cost estimate_placed(const Placed& placed);
  /// Estimates a layout that is not known. May be asked by several threads at once. `threads`: on
  /// which it plans.
  simulate::Cost estimate_layout(const Placed& placed, int threads);
  double model_flops(const Placed& placed) const;

  const config::Settings& deck_;
  const LayoutSpace& space_;
  const RanksOn& on_;
  const bool needs_bits_;
  const std::int64_t room_bytes_;
  const int threads_;
  const plan::Rates rates_;  // bounding_rates
  plan::LeastFinder least_;
  std::map<simulate::Point, simulate::Cost> bounds_;
  std::mutex mutex_;  // of what estimates have in common: shorter_, estimates_, models_
  using ShorterKey =
      std::tuple<const plan::ModelDescription*, std::int64_t, int, int, std::vector<int>>;
  std::map<ShorterKey, plan::ShorterSteps> shorter_;
  std::map<std::string, simulate::Cost> estimates_of_layouts_;  // by layout_name
  // By the plans of the shortest step, of each stage, and what may not show in them.
  std::map<std::tuple<const plan::ShorterSteps*, std::string, std::vector<std::uint64_t>>,
           simulate::Cost>
      estimates_;
  using KernelKey = std::tuple<const plan::ModelDescription*, std::int64_t, int, int,
                               plan::ScheduleKind, int, std::vector<int>>;
  std::map<KernelKey, double> kernel_seconds_;
  std::map<const plan::ModelDescription*, plan::ModelDescription> with_kernel_times_;
  std::map<std::string, plan::ModelDescription> models_;
  std::map<simulate::Point, simulate::Prediction> predictions_;
  std::map<simulate::Point, plan::Fit> fits_;
  // The last point that was planned, of which plans are kept.
  simulate::Point planned_point_;
  std::optional<Placed> planned_placed_;
  std::unique_ptr<plan::CandidateStages> planned_;
  std::int64_t with_other_bits_ = 0;
  std::exception_ptr error_;
};

}  // namespace ostrakon::train
