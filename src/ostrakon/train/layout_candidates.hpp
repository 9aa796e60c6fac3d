// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/fit_least.hpp>
#include <ostrakon/plan/fit_stages.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/simulate/search.hpp>
#include <ostrakon/train/layout_space.hpp>
#include <string>
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
  /// References are kept. `needs_bits`: whether points whose sums are not bitwise equal to 1 rank
  /// are not possible.
  LayoutCandidates(const config::Settings& deck, const LayoutSpace& space, const RanksOn& on,
                   bool needs_bits);

  std::vector<int> sizes() const override;
  std::vector<bool> are_starts() const override;
  std::string kind(const simulate::Point& point) const override;
  std::optional<simulate::Cost> bound(const simulate::Point& point) override;
  std::optional<simulate::Cost> estimate(const simulate::Point& point) override;
  std::optional<double> seconds(const simulate::Point& point) override;
  std::int64_t bytes(const simulate::Point& point) override;

  /// The deck with a point's settings.
  config::Settings settings(const simulate::Point& point) const;
  /// Of a point of which seconds() is known.
  const simulate::Prediction& prediction(const simulate::Point& point) const {
    return predictions_.at(point);
  }
  /// Of a point of which bytes() is known.
  const plan::Fit& fit(const simulate::Point& point) const { return fits_.at(point); }
  /// Points that are not possible as their sums are not bitwise equal to 1 rank.
  std::int64_t with_other_bits() const { return with_other_bits_; }
  /// Why a point is not possible, the first of them; null: all are.
  std::exception_ptr error() const { return error_; }

 private:
  /// A step as long as the deck's, or a shorter one of which that follows.
  struct Length {
    std::int64_t layers = 0, micro_batches = 0;
  };
  /// Settings as they are on these ranks, and what follows from them.
  struct Placed {
    config::Settings settings;
    plan::Candidate candidate;
    Length length;
  };

  std::optional<Placed> place(const simulate::Point& point);
  const plan::ModelDescription& model(const config::Settings& settings, std::int64_t layers);
  /// The training step of all stages, as build_plain_stages.
  std::vector<plan::StepPlan> plan_shortened(const Placed& placed, const Length& length);
  simulate::Cost estimate_placed(const Placed& placed);
  double model_flops(const Placed& placed) const;

  const config::Settings& deck_;
  const LayoutSpace& space_;
  const RanksOn& on_;
  const bool needs_bits_;
  plan::LeastFinder least_;
  std::map<simulate::Point, simulate::Cost> bounds_;
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
