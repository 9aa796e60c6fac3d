// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/shorter_steps.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/tune/run_plans.hpp>
#include <ostrakon/tune/search.hpp>
#include <ostrakon/tune/space.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ostrakon::tune {

/// Ranks on a machine.
struct MachineRanks {
  simulate::Machine machine;
  int ranks = 1, ranks_per_node = 1;
};

/// Whether sums of a deck's step are bitwise equal to 1 rank on these ranks; none where it does not
/// fit them.
std::optional<bool> has_the_bits_of_one_rank(const config::Settings& deck, const MachineRanks& on);

/// The points of a space of a deck's settings, planned and simulated on a machine.
class LayoutCandidates : public Candidates {
 public:
  struct Limits {
    /// Whether points whose sums are not bitwise equal to 1 rank are not possible.
    bool needs_bits = false;
    Memory room = any_memory;
    int threads = 1;  ///< on which steps are planned
  };

  /// References are kept, but for the limits.
  LayoutCandidates(const config::Settings& deck, const Space& space, const MachineRanks& on,
                   const Limits& limits);

  std::vector<int> sizes() const override;
  std::vector<bool> are_starts() const override;
  std::string kind(const Point& point) const override;
  std::optional<Cost> bound(const Point& point) override;
  double effort(const Point& point) override;
  void expect(const std::vector<Point>& points) override;
  std::optional<Cost> estimate(const Point& point) override;
  std::optional<double> seconds(const Point& point) override;
  Memory memory(const Point& point) override;

  /// The deck with a point's settings.
  config::Settings settings(const Point& point) const;
  /// The prediction for a point of which seconds() is known.
  const simulate::Prediction& prediction(const Point& point) const {
    return predictions_.at(point);
  }
  /// The arenas of a point of which memory() is known.
  const Memory& arenas(const Point& point) const { return arenas_.at(point); }
  bool fits(const Point& point) const { return needed(arenas_.at(point)).fits(room_); }
  /// Whether the sums of a point of which seconds() is known are bitwise equal to 1 rank.
  bool has_bits(const Point& point) const { return bits_.at(point); }
  /// Points that are not possible as their sums are not bitwise equal to 1 rank.
  std::int64_t with_other_bits() const { return with_other_bits_; }
  /// Why a point is not possible, the first of them; null: all are.
  std::exception_ptr error() const { return error_; }

 private:
  /// Settings, and what follows from them on these ranks.
  struct Placed {
    config::Settings settings;
    plan::Policy policy;
    const plan::ModelDescription* model = nullptr;
    plan::StepLength whole;
  };

  /// Bound and estimate of a point are mostly asked for one after the other: the last one is kept.
  const std::optional<Placed>& place(const Point& point);
  std::optional<Placed> find_placed(const Point& point);
  const plan::ModelDescription& model(const config::Settings& settings, std::int64_t layers);
  /// What the kernels of a step take, with the bubble, at least.
  double kernel_seconds(const Placed& placed);
  const plan::ShorterSteps& shorter_steps(const Placed& placed);
  /// Whether sums of so long a step are bitwise equal to 1 rank only if those of the whole are.
  static bool shows_bits(const Placed& placed, const plan::StepLength& length);
  /// The training step of all stages, as build_plain_stages.
  std::vector<plan::StepPlan> plan_shorter(const Placed& placed, const plan::StepLength& length);
  struct Takes {
    plan::StepCost on_device;
    plan::StepCost on_host;  ///< its memory alone
  };
  Takes simulate_shorter(const Placed& placed, const std::vector<plan::StepPlan>& plans) const;
  /// What a rank needs of a memory, where the arenas of both kinds are `arenas`.
  Memory needed(const Memory& arenas) const;
  /// Where what has room to be deferred is known only when memory is laid out: with nothing
  /// deferred.
  std::optional<Placed> with_nothing_deferred(const Placed& placed);
  /// All that a point varies, with what follows from "auto" and from groups by name.
  std::string layout_name(const Placed& placed) const;
  /// Makes what estimate_layout reads.
  void prepare(const Placed& placed);
  Cost estimate_placed(const Placed& placed);
  /// Estimates a layout that is not known. May be asked by several threads at once. `threads`: on
  /// which it plans.
  Cost estimate_layout(const Placed& placed, int threads);
  double model_flops(const Placed& placed) const;

  const config::Settings& deck_;
  const Space& space_;
  const MachineRanks& on_;
  const bool needs_bits_;
  const Memory room_;
  const int threads_;
  const plan::Rates rates_;  // at which nothing takes longer than on the machine
  std::map<Point, Cost> bounds_;
  std::mutex mutex_;  // of what estimates have in common: shorter_, estimates_, models_
  using ShorterKey =
      std::tuple<const plan::ModelDescription*, std::int64_t, int, int, std::vector<int>>;
  std::map<ShorterKey, plan::ShorterSteps> shorter_;
  std::map<std::string, Cost> estimates_of_layouts_;  // by layout_name
  // By the plans of the shortest step, of each stage, and what may not show in them.
  std::map<std::tuple<const plan::ShorterSteps*, std::string, std::vector<std::uint64_t>>, Cost>
      estimates_;
  using KernelKey = std::tuple<const plan::ModelDescription*, std::int64_t, int, int,
                               plan::ScheduleKind, int, std::vector<int>>;
  std::map<KernelKey, double> kernel_seconds_;
  std::map<const plan::ModelDescription*, plan::ModelDescription> with_kernel_times_;
  std::map<std::string, plan::ModelDescription> models_;
  std::map<Point, simulate::Prediction> predictions_;
  std::map<Point, Memory> arenas_;
  std::map<Point, bool> bits_;
  std::optional<Point> placed_point_;  // the last one that place() was asked for
  std::optional<Placed> placed_;
  // The last point that was planned, of which plans are kept.
  Point planned_point_;
  std::optional<Placed> planned_placed_;
  std::unique_ptr<RunPlans> planned_;
  std::int64_t with_other_bits_ = 0;
  std::exception_ptr error_;
};

}  // namespace ostrakon::tune
