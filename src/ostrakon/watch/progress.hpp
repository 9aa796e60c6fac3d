// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/watch/fault.hpp>
#include <ostrakon/watch/record.hpp>
#include <string>
#include <vector>

namespace ostrakon::watch {

/// How long things may take.
class Limits {
 public:
  /// `seconds`: the limit of everything; 0: limits follow from the times that were measured.
  explicit Limits(double seconds = 0.0) : seconds_(seconds) {}

  /// The limit of an action that recently took `recent` seconds at most; 0: not known yet.
  /// `on_device`: whether it may wait for all that a device has been given before.
  double of_action(plan::Kind kind, double recent, bool on_device) const;
  /// The limit of what follows the last action of a plan that recently took `recent` seconds.
  double of_end(double recent) const;
  /// The limit of an occupation, 0 where it has none, that took `longest` seconds at most, and for
  /// which `allowance` seconds are expected.
  double of(Occupation occupation, double longest, double allowance) const;
  /// How long a rank may be silent.
  double of_silence() const;

  /// After how many seconds what usually takes `usual` seconds at most, or 0 where that is not
  /// known yet, is worth a notice.
  static double of_notice(double usual);

 private:
  double seconds_;
};

/// What this rank is doing, written by its threads as they go on, and read by the thread of its
/// watchdog, whatever state the others are in. Writing costs a few relaxed stores for each action.
class Progress {
 public:
  static constexpr int kept = 64;  ///< actions of each stream that are kept

  /// `rank`: this rank's number in plans. The thread that makes it is the one that drives the run.
  explicit Progress(int rank, Limits limits = Limits());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // ---- written by the threads that run a plan; `now`: by seconds_now()

  /// Begins a run of a plan, which must outlive the run, and the last call of actions().
  /// `on_device`: whether actions go on on a device after they have ended here.
  void begin_run(const plan::StepPlan& plan, bool on_device);
  void end_run();
  /// An action waits for work of others that has begun, or has begun itself, or has ended.
  void await(plan::Stream stream, int action, double now);
  /// Returns whether it is to be carried out: a fault on purpose may skip it.
  bool begin(plan::Stream stream, int action);
  void end(plan::Stream stream, int action, double now);

  // ---- written by the thread that drives the run

  void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }

  /// Arms a fault in steps of `plan`, a training plan of this rank. Throws Error where it has no
  /// such action, or none that could change places with it.
  void arm(const Fault& fault, const plan::StepPlan& plan);
  /// Changes the order in which actions of `plan` run on one thread, as an armed swap does.
  void reorder(const plan::StepPlan& plan, std::vector<int>& order) const;
  /// Does what an armed fault does to the writing of the checkpoint of a step. By any thread.
  void inject_checkpoint_fault(std::int64_t step);

  // ---- read by the watchdog

  /// What this rank is doing at `now`.
  Record record(double now) const;
  const Limits& limits() const { return limits_; }
  /// This process did not run until `now`, so that nothing before counts.
  void forgive(double now) { resumed_.store(now, std::memory_order_relaxed); }

  /// An action of the past, or one that has not ended: `end` is 0.
  struct Past {
    std::int64_t step = 0;
    std::string action;
    double begin = 0.0, end = 0.0;
  };
  /// The last actions of a stream, in order.
  std::vector<Past> actions(plan::Stream stream) const;

 private:
  friend class OccupationScope;
  friend class MpiCallScope;

  struct Entry {
    std::atomic<std::int64_t> step{0};
    std::atomic<int> action{-1};
    std::atomic<int> purpose{0};
    std::atomic<double> begin{0.0}, end{0.0};
  };
  /// What is known of a stream; one thread writes it.
  struct Cell {
    std::atomic<int> current{-1};     ///< action that awaits others or has begun; -1: none
    std::atomic<int> last_begun{-1};  ///< of this run
    std::atomic<double> since{0.0};   ///< of `current`
    std::atomic<unsigned> count{0};   ///< of entries ever made
    std::array<Entry, kept> entries;
  };
  /// What a thread is doing outside plans.
  struct State {
    std::atomic<Occupation> occupation{Occupation::none};
    std::atomic<double> since{0.0};
    std::atomic<double> allowance{0.0};
  };
  /// What is known of the plans of a purpose.
  struct Known {
    const plan::StepPlan* plan = nullptr;
    std::unique_ptr<std::atomic<float>[]> recent;  ///< seconds of each action
    float recent_run = 0.0F;                       ///< seconds of the whole plan
  };

  double seconds_since(double then, double now) const;
  State& state_of_this_thread();
  /// Learns how long a thread has been occupied without a break by `now`.
  void learn(const State& state, double now);
  void describe_action(Record& record, double now) const;
  void describe_waits(Record& record, const plan::StepPlan& plan, const plan::Action& action,
                      bool has_begun) const;

  const int rank_;
  const Limits limits_;
  std::array<Cell, plan::streams> cells_;
  State driver_, background_;
  std::array<std::atomic<double>, occupations> longest_{};
  std::atomic<const char*> call_{nullptr};  ///< of MPI, by the thread that drives the run
  std::atomic<double> call_since_{0.0};
  std::atomic<std::int64_t> step_{0};
  std::atomic<int> global_sums_{0};  ///< begun in this run
  std::atomic<double> resumed_{0.0};

  mutable std::mutex mutex_;  // protects the members below, which change between runs only
  std::array<Known, std::size(plan::purpose_names)> known_;  // by purpose
  const plan::StepPlan* running_ = nullptr;
  bool on_device_ = false;
  std::int64_t runs_ = 0;
  double run_since_ = 0.0;

  Fault fault_;
  int fault_action_ = -1;
  int fault_next_ = -1;  ///< the action that a swap puts before it
  bool is_armed_ = false;
};

/// The progress of this process, null where nothing watches it: set by the constructor of Progress.
Progress* progress();

/// The time in which a thread is occupied with something, as seen by the watchdog. May be nested.
class OccupationScope {
 public:
  /// `allowance`: the seconds that it is expected to take, where that is known.
  explicit OccupationScope(Occupation occupation, double allowance = 0.0);
  ~OccupationScope();
  OccupationScope(const OccupationScope&) = delete;
  OccupationScope& operator=(const OccupationScope&) = delete;

 private:
  Progress* const progress_;
  Occupation before_ = Occupation::none;
  double allowance_before_ = 0.0;
};

/// The time in which a thread is in a call of MPI between plans, or for a sum in one, mostly to
/// wait for other ranks. The watchdog sees it where the thread drives the run. May be nested.
class MpiCallScope {
 public:
  /// `call`: its name, which must live for good.
  explicit MpiCallScope(const char* call);
  ~MpiCallScope();
  MpiCallScope(const MpiCallScope&) = delete;
  MpiCallScope& operator=(const MpiCallScope&) = delete;

 private:
  Progress* progress_ = nullptr;
  double begin_ = 0.0;  // 0: it is nested
};

/// Seconds that this thread has been in such calls so far, also where nothing watches it.
double seconds_communicating();

}  // namespace ostrakon::watch
